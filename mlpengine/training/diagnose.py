"""Diagnostics of a training run: a callback for the loop, and its file."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import inf, isnan, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlpengine.core.files import read_file
from mlpengine.core.named import NamedRows, arrays_in, as_rows
from mlpengine.core.spec import Array
from mlpengine.diagnostics import Diagnostics, table, verdicts
from mlpengine.diagnostics.baselines import (
    Baselines,
    Beside,
    baselines,
    copies_of,
    error_beside_constant,
    rows_within,
)
from mlpengine.diagnostics.constant_loss import (
    NO_EXTREME,
    ExtremeValue,
    constant_losses,
    extreme_feature,
    extreme_target,
    feature_sizes,
    weight_scale,
)
from mlpengine.diagnostics.layer_buffers import flat_rows
from mlpengine.diagnostics.samples import Columns
from mlpengine.diagnostics.thresholds import (
    COPY_ROWS,
    COPY_VALUES,
    MAX_ROWS,
    MIN_BASELINE_ROWS,
    SIMPLE_MODELS,
)
from mlpengine.diagnostics.units import rectifies
from mlpengine.diagnostics.verdict import Verdicts, without
from mlpengine.models.task import Classification, Regression, Split, Task
from mlpengine.ops import KnownTargets, Loss
from mlpengine.settings import DiagnosticsSettings
from mlpengine.step.packing import restoring
from mlpengine.step.step import TrainingStep
from mlpengine.training.history import CsvLog, EpochRow, csv_lines
from mlpengine.training.learner import SkipBudget
from mlpengine.training.loop import Callback, Loop, Result

DIAGNOSTICS_FILE = "diagnostics.csv"

MIN_CLASS_ROWS = 5
"""Minimum number of rows of a class for a meaningful recall."""
FACT_ROWS, FEATURE_ROWS, RECALL_ROWS = 50_000, 1_000, 5_000
"""Maximum number of rows for losses of a constant, for sizes of features, and for recalls."""
FACT_VALUES = 1 << 24
"""Maximum number of values to search for an extreme value, or of outputs for recalls."""
SQUARES = ("mse", "mae", "huber", "log_cosh")
"""Losses that depend on the distance from a target."""
SAMPLES_AT_ONCE = 20
"""Number of samples written in one call."""

_log = logging.getLogger("mlpengine")


class SampleLog(CsvLog):
    """diagnostics.csv: a line for each step, layer and quantity, without NaN.

    A resumed run keeps the first `rows` lines after the header.
    """

    def __init__(self, path: Path, columns: Columns, rows: int = 0) -> None:
        known = read_file(path) if path.exists() else b""
        kept = known.splitlines(keepends=True)[1 : rows + 1]  # without the header, written anew
        if len(kept) < rows:
            _log.warning("warning: %s has lost %d of %d lines", path, rows - len(kept), rows)
        self.rows = len(kept)
        super().__init__(path, csv_lines(("step", "layer", "quantity", "value")) + b"".join(kept))
        self._middles = [f",{layer},{quantity}," for layer, quantity in columns]
        self._samples: list[tuple[int, list[float]]] = []

    def add(self, step: int, values: list[float]) -> None:
        """Add a sample; several samples are written at once to save time."""
        self._samples.append((step, values.copy()))
        if len(self._samples) >= SAMPLES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write the added samples."""
        if not self._samples:
            return
        lines = [
            f"{step}{middle}{value!r}\n"
            for step, values in self._samples
            for middle, value in zip(self._middles, values, strict=True)
            if not isnan(value)
        ]
        self.write("".join(lines).encode())
        self.rows += len(lines)
        self._samples.clear()


class LoopDiagnostics(Callback):
    """Keeps the `Diagnostics` of a run, and writes its samples to a file.

    With several networks, steps are measured in the first network only; losses and predictions are
    measured in all networks.

    Args:
        path: path of diagnostics.csv; None writes no file.
        every: steps between samples (see `Diagnostics`).
        silence: names of verdicts to leave out.
        planned_split: see `Diagnostics`.

    Attributes:
        core: the diagnostics; made when the loop starts.
    """

    name = "diagnostics"
    order = -10  # before the callbacks that report the measurements
    watches_first = True
    core: Diagnostics

    def __init__(
        self,
        path: Path | None = None,
        *,
        every: int | None = None,
        silence: Collection[str] = (),
        planned_split: str = "",
    ) -> None:
        self._path, self._every, self._planned = path, every, planned_split
        self._silence = DiagnosticsSettings(silence=tuple(silence)).silence
        self._state: Mapping[str, Any] | None = None
        self._log: SampleLog | None = None
        self._measured = False
        self.is_used = True  # whether the measured network is in the model

    def on_train_start(self, loop: Loop) -> None:
        """Create the diagnostics, restore a loaded state, and open the file."""
        self._learners, one = loop.members, loop.members[0]
        self.core = Diagnostics(
            one.step.mlp,
            every=self._every,
            **diagnostic_inputs(one.step, one.train, [m.validation for m in loop.members]),
        )
        self.core.stops_early = one.early_stopping is not None
        self.core.planned_split = self._planned
        with restoring() if self._state is not None else nullcontext():
            if self._state is not None:
                self.core.load_state_dict(self._state)
            self.core.begin(one.steps)
            if self._path is not None:
                rows = self._state["lines"] if self._state else 0
                self._log = SampleLog(self._path, self.core.columns, rows)
        self._spikes, self._pending = self.core.spikes, self.core.pending
        self._optimizer = one.step.optimizer

    def on_train_batch_end(self, loop: Loop) -> None:
        """Measure the step if a sample is due or the gradient norm is a spike."""
        step, core = loop.step, self.core
        norm, number = step.grad_norm, self._optimizer.steps
        self._pending.append(norm)
        if step.clipped_norm < norm:
            core.clipped += 1
        if number < core.due and norm <= self._spikes.limit:
            return
        loss, lr, clipped = step.loss_value, self._optimizer.current_lr, step.clipped_norm
        rows = loop.batch_rows
        sampled = core.sample(step.scratch, step.grads, number, loss, norm, clipped, lr, rows)
        if sampled and self._log is not None:
            self._log.add(number, core.values)

    def skip_budget(self, loop: Loop) -> SkipBudget:
        """Return the steps before the next sample, and the gradient norm of a spike."""
        return SkipBudget(self.core.free_until - self._optimizer.steps, self._spikes.limit)

    def on_steps_skipped(self, loop: Loop, norms: list[float]) -> None:
        """Add the gradient norms and the number of clipped steps."""
        core = self.core
        self._pending += norms
        core.clipped += loop.step.clipped_steps
        if self._optimizer.steps == core.due:
            core.skip(core.due)

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        """Add the losses of an epoch; with several networks, their means."""
        self.core.close_epoch(row.train_loss, row.validation.get("loss", float("nan")))

    def on_exception(self, loop: Loop, error: Exception) -> None:
        """Record the error that ended the run, and write the earlier samples."""
        self.core.failure, self.core.failed_setting = str(error), getattr(error, "setting", ())
        self._close()

    def on_fit_end(self, loop: Loop, result: Result) -> None:
        """Record what ended the run."""
        self.core.ending = result.ending
        self._close()

    def verdicts(self) -> Verdicts:
        """Return the problems of the run, or an empty list.

        The first call also measures simple models on the rows, unless the run failed.
        """
        one = self._learners[0]
        self.core.skipped = sum(each.skipped for each in self._learners)
        if not (self.core.failure or self._measured):
            self._measured = True
            networks = [
                Trained(each.evaluator.outputs, np.sort(each.batches.order), each.validation)
                for each in self._learners
            ]
            measure_rows(self.core, one.task, one.train, networks)
        told = without(verdicts(self.core), self._silence)
        if not self.is_used:
            text = (
                "The model does not contain the measured network (its ensemble weight is 0), so a "
                "fix improves the model only if the network then gets a weight."
            )
            told[:] = [
                replace(one, evidence=f"{one.evidence} {text}") if one.is_of_network else one
                for one in told
            ]
        return Verdicts(told, in_loop=True)

    def __repr__(self) -> str:
        return f"LoopDiagnostics({self.core!r})" if hasattr(self, "core") else "LoopDiagnostics()"

    def _repr_html_(self) -> str:
        if not hasattr(self, "core"):
            return "nothing is measured so far"
        return self.verdicts()._repr_html_() + self.core._repr_html_()

    def table(self) -> str:
        """Return the last sample as a table with one line for each layer."""
        return table(self.core)

    def _close(self) -> None:
        if self._log is not None:
            self._log.flush()
            self._log.sync()
            self._log.close()

    def state_dict(self) -> dict[str, Any]:
        """Write the samples so far; return the state, with the number of lines in the file."""
        state = self.core.state_dict()
        if self._log is None:
            return {**state, "lines": 0}
        self._log.flush()
        self._log.sync()
        return {**state, "lines": self._log.rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from this state in the next `on_train_start`."""
        self._state = state


@np.errstate(all="ignore")  # a diverged run may overflow
def diagnostic_inputs(
    step: TrainingStep, train: Split, validation: Sequence[Split | None]
) -> dict[str, Any]:
    """Return the properties of a run's step and rows, as arguments of `Diagnostics`.

    Properties of large data come from up to `FACT_ROWS` or `FEATURE_ROWS` evenly spaced rows.
    With several inputs, a feature's name begins with the name of its input.
    """
    loss = step.loss
    known = loss.plain() if isinstance(loss, KnownTargets) else loss
    held_out = [part for part in validation if part is not None]  # of each network
    parts = [_thinned(part) for part in (train, *held_out)]
    baseline, *others = constant_losses(loss, step.mlp.outputs, parts)
    arguments: dict[str, Any] = {
        "loss": known,
        "optimizer": step.optimizer,
        "steps_per_epoch": -(-len(train) // step.batch_size),
        "baseline": baseline,
        "validation_baseline": sum(others) / len(others) if others else None,
        "feature_sizes": feature_sizes(_joined(train.x[:: -(-len(train) // FEATURE_ROWS)])),
        "weight_scale": weight_scale(step.mlp),
    }
    if known.name in SQUARES:
        y, _ = parts[0]
        y = y if known is loss else y[~np.isnan(y)]  # missing targets
        arguments["target_rms"] = float(np.sqrt(np.mean(np.square(y, dtype=np.float64))))
        arguments["target_range"] = float(y.min()), float(y.max())
    arguments["extreme"] = extreme_value(known, train, arguments["feature_sizes"])
    if isinstance(train.x, NamedRows):
        sizes = {name: prod(array.shape[1:]) for name, array in train.x.arrays.items()}
        arguments["feature_names"] = [f"{name} {i}" for name, k in sizes.items() for i in range(k)]
    if train.places is not None:
        arguments |= {"feature_names": train.places.features, "name_row": train.places.rows.place}
    return arguments


def extreme_value(loss: Loss, train: Split, sizes: Array) -> ExtremeValue:
    """Return the most extreme value of features in memory, or of regression targets."""
    known, rows = NO_EXTREME, train.x
    if isinstance(rows, np.ndarray | NamedRows) and len(rows) * len(sizes) <= FACT_VALUES:
        known = extreme_feature(_joined(rows), sizes)
    if loss.name in SQUARES and len(train.y) * train.y.shape[-1] <= FACT_VALUES:
        known = max(known, extreme_target(train.y[:]), key=lambda extreme: extreme.times)
    return known


class Trained(NamedTuple):
    """A trained network.

    `predict` maps features to outputs, `used` has the indices of the training rows, and
    `validation` has the rows that chose the best epoch.
    """

    predict: Callable[[Array], Array]
    used: Array
    validation: Split | None


def measure_rows(
    diagnostics: Diagnostics, task: Task, train: Split, networks: Sequence[Trained]
) -> None:
    """Measure recalls, simple models, dead units and duplicate rows, and store the results.

    Samples depend only on the numbers of rows, features and outputs, so equal runs give equal
    verdicts.
    """
    if isinstance(task, Classification):
        measure_recalls(diagnostics, task, train, networks)
    if isinstance(task, Classification | Regression):
        measure_baselines(diagnostics, task, train, networks)


def measure_recalls(
    diagnostics: Diagnostics, task: Classification, train: Split, networks: Sequence[Trained]
) -> None:
    """Set the number of training rows, the recall and the name of each class.

    Recalls are measured on validation rows.  A class with fewer than 5 validation rows is also
    measured on training rows.
    """
    parts = [(one.predict, one.validation) for one in networks if one.validation is not None]
    if not parts:
        return
    classes = max(int(part.truth.max()) for _, part in [*parts, (None, train)]) + 1
    diagnostics.class_counts = np.bincount(train.truth, minlength=classes)
    diagnostics.class_names = task.labels
    rows, hits = np.sum([_hits(predict, task, part, classes) for predict, part in parts], axis=0)
    if (rows < MIN_CLASS_ROWS).any():
        of_train = np.stack(_hits(networks[0].predict, task, train, classes))
        rows, hits = np.stack([rows, hits]) + of_train * (rows < MIN_CLASS_ROWS)
    diagnostics.recalls = np.where(rows < MIN_CLASS_ROWS, np.nan, hits / np.maximum(rows, 1))


def _hits(
    predict: Callable[[Array], Array], task: Task, part: Split, classes: int
) -> tuple[Array, Array]:
    """Count all rows and correctly predicted rows of each class, in up to `RECALL_ROWS` rows."""
    stride = -(-len(part) // min(RECALL_ROWS, FACT_VALUES // classes + 1))
    truth = part.truth[::stride]
    predicted = task.predict(predict(as_rows(part.x[::stride])))
    hits = truth[predicted == truth]
    return np.bincount(truth, minlength=classes), np.bincount(hits, minlength=classes)


def measure_baselines(
    diagnostics: Diagnostics,
    task: Classification | Regression,
    train: Split,
    networks: Sequence[Trained],
) -> None:
    """Measure simple models on a sample of the rows, in at most `SIMPLE_MODELS` seconds.

    Each row is predicted by a network that was trained on it; networks take turns.
    """
    values = sum(prod(array.shape[1:]) for array in arrays_in(train.x))
    values += min(task.outputs, MAX_ROWS)  # a sample has at most as many classes as rows
    limit = min(MAX_ROWS, rows_within(SIMPLE_MODELS, values))
    if limit < MIN_BASELINE_ROWS:
        return
    first, *others = networks
    used = first.used if not others else np.unique(np.concatenate([n.used for n in networks]))
    used = used[_is_complete(train.truth[used])]
    if len(used) < MIN_BASELINE_ROWS:
        return
    rows = used[:: -(-len(used) // limit)]
    x, truth = as_rows(train.x[rows]), train.truth[rows]
    places, turn = np.arange(len(rows)), np.arange(len(networks))[:, None]
    turn = (places + turn) % len(networks)
    is_training_row = np.stack([np.isin(rows, network.used) for network in networks])
    network_of_row = turn[is_training_row[turn, places].argmax(axis=0), places]
    outputs = first.predict(x if not others else x[:1])
    if others:
        outputs = np.empty((len(rows), outputs.shape[1]), outputs.dtype)
        for k, network in enumerate(networks):
            if (own := network_of_row == k).any():
                outputs[own] = network.predict(x[own])
    predicted = task.predict(outputs)
    if isinstance(task, Regression) and not task.has_errors:  # censored times: no simple model
        measure_units(diagnostics, x)
        diagnostics.baselines = Baselines(related=inf)
        return
    if predicted.shape != truth.shape:
        return  # the outputs are quantiles, or means and variances
    measure_units(diagnostics, x)
    other = other_truth = None
    if (part := first.validation) is not None and (is_complete := _is_complete(part.truth)).any():
        some = np.flatnonzero(is_complete)[:: -(-int(is_complete.sum()) // limit)]
        own = as_rows(part.x[some])
        other, guess = _joined(own), task.predict(first.predict(own))
        other_truth = part.truth[some]
        diagnostics.validation_error = error_beside_constant(guess, other_truth)
        many = first.used[:: -(-len(first.used) * values // COPY_VALUES)]
        pair = _joined(as_rows(train.x[many])), other[:: -(-len(other) // COPY_ROWS)]
        if all(np.isfinite(one).all() for one in pair):
            diagnostics.copies = copies_of(*pair)
    beside = [_beside(train, rows, step) for step in (1, -1)]
    diagnostics.baselines = baselines(
        _joined(x), truth, predicted, rows, other, other_truth, beside
    )


def _beside(train: Split, rows: Array, step: int) -> Beside:
    """Return the targets of the rows `step` rows below, and whether these are training rows."""
    origin = train.places.rows.origin if train.places else None
    origin = np.arange(len(train)) if origin is None else origin
    order, wanted = np.argsort(origin, kind="stable"), origin[rows] + step
    found = order[np.searchsorted(origin, wanted, sorter=order).clip(max=len(train) - 1)]
    return train.truth[found], origin[found] == wanted


def _is_complete(truth: Array) -> Array:
    """Return whether each row of targets, (rows,) or (rows, targets), has no missing value."""
    return np.asarray(~np.isnan(truth.reshape(len(truth), -1)).any(axis=1))


def measure_units(diagnostics: Diagnostics, x: Any) -> None:
    """Set the share of units that are 0 on all rows `x`, for each rectifier layer."""
    mlp = diagnostics.mlp.without_dropout()
    scratch = mlp.scratch(len(x))
    mlp.forward(x, scratch)
    layers = zip(diagnostics.layers, scratch.activations, strict=True)
    diagnostics.dead_at_end = {
        number: 1 - float(output.any(axis=0).mean())
        for number, (layer, output) in enumerate(layers)
        if rectifies(layer.activation)
    }


def _joined(x: Any) -> Array:
    """Return features (rows, features); several inputs are joined side by side."""
    each = [flat_rows(np.asarray(array)) for array in arrays_in(x)]
    each = [np.zeros(one.shape, "f4") if one.dtype.kind in "iu" else one for one in each]
    return each[0] if len(each) == 1 else np.concatenate(each, axis=1)


def _thinned(part: Split) -> tuple[Any, Array | None]:
    """Return targets and weights of up to `FACT_ROWS` evenly spaced rows."""
    stride = -(-len(part) // FACT_ROWS)
    return part.y[::stride], None if part.weights is None else part.weights[::stride]
