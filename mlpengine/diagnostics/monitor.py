"""Gradients, updates and activations of a network, measured during training: `Diagnostics`."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import isfinite, log10, nan
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpengine.core.buffers import Uncopyable, replay
from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural, quoted, suggestion
from mlpengine.diagnostics.baselines import Baselines, BaselineScore, Copies
from mlpengine.diagnostics.constant_loss import NO_EXTREME, ExtremeValue
from mlpengine.diagnostics.layer_buffers import Workspace
from mlpengine.diagnostics.layers import NetworkFacts
from mlpengine.diagnostics.probes import BoundProbes
from mlpengine.diagnostics.rows import NoiseScale
from mlpengine.diagnostics.samples import (
    LAYER_QUANTITIES,
    NET_INDEX,
    NET_QUANTITIES,
    Columns,
    Series,
)
from mlpengine.diagnostics.schedule import SamplingSchedule
from mlpengine.diagnostics.spikes import Spike, Spikes
from mlpengine.diagnostics.thresholds import SMALL_BATCH
from mlpengine.diagnostics.units import UnitWindow, rectifies
from mlpengine.diagnostics.updates import UpdateProbe
from mlpengine.nn import Gradients, Network, Scratch
from mlpengine.ops import Loss
from mlpengine.optim import Optimizer
from mlpengine.tape.norm import GlobalNorm

if TYPE_CHECKING:
    from mlpengine.drawing.chart_types import Chart

QUANTITY_NAMES = (
    "loss",
    "lr",
    "gradient_norm",
    "clipped_norm",
    "clipped_share",
    "spikes",
    "depth_slope",
)
LOSS, LR, NORM, CLIPPED_NORM, CLIPPED_SHARE, SPIKE_COUNT, SLOPE = (
    NET_INDEX[name] for name in QUANTITY_NAMES
)


class Diagnostics(Uncopyable):
    """Measures gradients, updates and activations of a network during training.

    Call `after_step` after each step of the optimizer.  Most calls only compare the gradient norm
    with a limit.  In the first step and in every `every`-th step, a call takes a sample: it
    measures all quantities of `mlpengine.diagnostics.samples`.  Memory does not grow with the run,
    except for two numbers per epoch.

    Args:
        mlp: the network, or its `NetworkFacts` if other code measures it (`Watch`).
        every: steps between samples; by default 50, and 500 after step 1,000 if a sample takes
            longer than a step.
        steps_per_epoch: a unit is dead if it does not fire in at least this many steps.
        baseline: loss of the best constant prediction (`baseline_loss`); None if unknown.
        validation_baseline: loss of the same prediction on the validation rows.
        target_rms: root mean square of the targets of a regression.
        feature_sizes: (in_dim,), the size of each feature (`feature_sizes`).
        feature_names: names of the features; by default, numbers from 0.
        name_row: function from the number of a row to its name, such as "line 17".
        loss: the loss; a verdict checks whether the output activation suits it.
        optimizer: the optimizer, or an object with its settings as attributes.
        target_range: smallest and largest target of a regression.
        weight_scale: size of the initial weights, usually 1 to 1.5 (`weight_scale`).
        extreme: the most extreme value of features or targets.

    Attributes:
        facts: facts about the network.
        mlp: the network, if it was given.
        first_loss: loss of step 1.
        failure: message of the error that ended the run, or "".
        skipped: number of steps without an update, because a number was not finite.
        values: the last sample, in the order of `columns`.
        sampled: step of the last sample, 0 before the first.
        batch_size: rows of the largest batch.
        series: samples of the whole run.
        noise: the gradient noise scale.
        spikes: the detector of unusual gradient norms.
        noted: the last 20 spikes.
        due: the next step that needs `sample` or `skip`.
        free_until: the step before the next sample.
        pending: gradient norms since the last sample; `after_step` appends to this list.
        clipped: number of clipped steps since the last sample.
        layers: facts about each named layer.
        dropout: rates of dropout, in forward order.
        unknown_rows: why the gradients of single rows are unknown, or "".
        windows: for each rectifier layer, the units that fired recently.
        epochs: (training loss, validation loss) of each epoch.

        The caller sets the following attributes at the end of a run:

        baselines: errors of simple models on the rows.
        baseline_score: scores of the network and of a linear prediction, or None.
        class_counts, recalls: for each class, the number of training rows, and the recall (NaN with
            too few rows).
        class_names: names of the classes; empty if they have only numbers.
        dead_at_end: by rectifier layer, the share of units that are 0 on a sample of rows.
        copies: shares of validation rows that repeat a training row.
        validation_error: error on validation rows divided by the error of a constant prediction,
            and the number of rows that the constant predicts wrongly.
        planned_split: ``time`` or ``group`` if validation rows are later rows or other groups;
            ``teacher`` if a teacher labeled the training rows alone.
        stops_early: whether early stopping keeps the weights of the best epoch.
        ending: ``early`` if early stopping ended the run, ``time`` if a time limit ended it.

    Raises: UsageError for `every` below 1, or for buffers that do not keep their activations.
    """

    def __init__(
        self,
        mlp: Network | NetworkFacts,
        *,
        every: int | None = None,
        steps_per_epoch: int = 1,
        baseline: float | None = None,
        validation_baseline: float | None = None,
        target_rms: float | None = None,
        feature_sizes: Array | None = None,
        feature_names: Sequence[str] = (),
        name_row: Callable[[int], str] = "training row {}".format,
        loss: Loss | None = None,
        optimizer: Optimizer | SimpleNamespace | None = None,
        target_range: tuple[float, float] = (nan, nan),
        weight_scale: float | None = None,
        extreme: ExtremeValue = NO_EXTREME,
    ) -> None:
        if isinstance(mlp, Network):
            self.mlp, self.facts = mlp, NetworkFacts.of(mlp)
        elif isinstance(mlp, NetworkFacts):
            self.facts = mlp
        else:
            raise UsageError(f"diagnostics: mlp must be a network (got {quoted(mlp)})")
        self.layers, self.dropout, features = self.facts[:3]
        self.baseline, self.validation_baseline = _known(baseline), _known(validation_baseline)
        self.target_rms, self.first_loss = _known(target_rms), nan
        self.feature_sizes: Array = np.zeros(0) if feature_sizes is None else feature_sizes
        self.feature_names = tuple(feature_names) or tuple(map(str, range(features)))
        self.failure, self.skipped, self.name_row = "", 0, name_row
        self.failed_setting: tuple[str, ...] = ()
        self.loss, self.optimizer = loss, optimizer
        self.target_range, self.steps_per_epoch = target_range, steps_per_epoch
        self.extreme = extreme
        self.baselines = Baselines()
        self.baseline_score: BaselineScore | None = None
        self.weight_scale = _known(weight_scale)
        self.class_counts: Array = np.zeros(0)
        self.recalls: Array = np.zeros(0)
        self.class_names: Sequence[str] = ()
        self.columns = Columns(len(self.layers))
        self.values = [nan] * len(self.columns)
        self.sampled = self.batch_size = self.clipped = 0
        self.series = Series(self.columns)
        self.noise, self.spikes = NoiseScale(), Spikes()
        self.pending = self.spikes.pending
        self.windows = {
            number: UnitWindow(layer.units, self.facts.dtype, steps_per_epoch)
            for number, layer in enumerate(self.layers)
            if rectifies(layer.activation)
        }
        self.unknown_rows, self.planned_split, self.stops_early = "", "", False
        self.ending = ""
        self.dead_at_end: Mapping[int, float] = {}
        self.copies, self.validation_error = Copies(), (nan, 0)
        self.epochs: list[tuple[float, float]] = []
        self.noted: deque[Spike] = deque(maxlen=20)
        self._schedule = SamplingSchedule(every)
        self._workspace: Workspace | None = None
        self._bound: dict[int, BoundProbes] = {}
        self._unknown = tuple(self.values)
        indices = self.columns.indices
        self._update_indices = indices("update_ratio")
        gradients, dead = indices("gradient_rms"), indices("dead_share")
        weighted = [number for number, layer in enumerate(self.layers) if layer.weights]
        self._gradient_indices = [gradients[number] for number in weighted]
        self._dead_indices = [(dead[n], window) for n, window in self.windows.items()]
        if isinstance(mlp, Network):
            self._updates = UpdateProbe(mlp.params, self.layers)
            self.begin(0)

    def begin(self, steps: int) -> None:
        """Copy the parameters after `steps` steps; call this when a run is resumed."""
        self._updates.before_step()
        self._copied_at = steps
        self._plan(steps)

    def _plan(self, step: int) -> None:
        schedule = self._schedule
        schedule.plan(step)
        self.due = schedule.due
        self.free_until = schedule.sample_at - 1

    def after_step(
        self,
        scratch: Scratch,
        grads: Gradients,
        step: int,
        *,
        loss: float | None = None,
        norm: float | None = None,
        clipped_norm: float | None = None,
        lr: float | None = None,
        rows: Array | None = None,
    ) -> bool:
        """Measure step number `step`, counted from 1, after its update.

        Args:
            scratch: buffers of the forward pass of the step.
            grads: buffers of the backward pass of the step.
            step: number of the step; call this method for every step.
            loss: mean loss of the batch.
            norm: global norm of the gradients before clipping; by default, the norm of `grads`.
            clipped_norm: norm after clipping; samples contain the gradients before clipping.
            lr: learning rate of the step.
            rows: row indices of the batch; the buffers may hold only the first of these rows.  By
                default, positions in the batch.

        Returns: whether `values` is a new sample.
        """
        if norm is None:
            norm = clipped_norm = GlobalNorm(grads.flat)() if step >= self.due else nan
        elif clipped_norm is None:
            clipped_norm = norm
        self.pending.append(norm)
        if clipped_norm < norm:
            self.clipped += 1
        if step < self.due and norm <= self.spikes.limit:
            return False
        return self.sample(scratch, grads, step, _known(loss), norm, clipped_norm, _known(lr), rows)

    def sample(
        self,
        scratch: Scratch,
        grads: Gradients,
        step: int,
        loss: float,
        norm: float,
        clipped_norm: float,
        lr: float,
        rows: Array | None,
    ) -> bool:
        """Do the work of `after_step` for a step that is `due` or has an unusually large norm."""
        if scratch.mlp is not self.mlp:
            raise UsageError(f"diagnostics: scratch must be of {self.mlp} (got {scratch.mlp})")
        probes = self._probes(scratch, grads)
        if norm > self.spikes.limit:
            self._note_spike(probes, step, norm, rows)
        if step < self.due:
            return False
        is_sample = step >= self._schedule.sample_at
        if is_sample:
            self.spikes.update()
            for number, window in self.windows.items():
                window.add(probes.rectified[number], step)
            with np.errstate(all="ignore"):
                self._sample(probes, step, norm, rows, clipped_norm / norm if norm else 1.0)
            self.close_sample(step, loss, norm, clipped_norm, lr)
        self.skip(step)
        return is_sample

    def skip(self, step: int) -> None:
        """Plan the next sample; copy the parameters if the next step is a sample.

        Up to the step `free_until`, you may call `skip` instead of `sample`.
        """
        self._plan(step)
        if self._schedule.sample_at == step + 1:
            self._updates.before_step()
            self._copied_at = step

    def dead_share(self, layer: int) -> float:
        """Return the share of a layer's dead units; NaN if it is unknown."""
        window = self.windows.get(layer)
        if window is None or window.dead is None:
            return self.get("dead_share", layer)
        return window.dead_share

    def get(self, quantity: str, layer: int | None = None) -> float:
        """Return a quantity of the last sample; NaN if it is unknown.

        Raises: UsageError for an unknown quantity, or a layer number that does not exist.
        """
        names, count = NET_QUANTITIES if layer is None else LAYER_QUANTITIES, self.columns.layers
        if layer not in (None, *range(count)):
            numbers = f"a layer by its number, 0 to {count - 1}"
            raise UsageError(f"diagnostics: get takes {numbers} (got {quoted(layer)})")
        if quantity not in names:
            of = "the network" if layer is None else "a layer"
            listed = f"{', '.join(names)} of {of}"
            raise UsageError(
                f"diagnostics: get takes {listed} (got {quoted(quantity)})"
                f"{suggestion(quantity, names)}"
            )
        return self.values[self.columns.index(quantity, layer)]

    def close_epoch(self, train_loss: float, validation_loss: float | None = None) -> None:
        """Add the losses of an epoch; without epochs, verdicts use losses given to `after_step`."""
        self.epochs.append((train_loss, _known(validation_loss)))

    def _sample(
        self,
        probes: BoundProbes,
        step: int,
        norm: float,
        rows: Array | None,
        clip: float,
    ) -> None:
        values, batch = self.values, probes.scratch.batch_size
        if rows is not None and len(rows) > batch:  # the buffers belong to a shard
            batch = len(rows)
            self.batch_size = max(self.batch_size, batch)
        probes.rows.mean_rows[()] = batch
        values[:] = self._unknown
        probes.measure(clip, values)
        self.noise.add(probes.rows.summarize(values, rows), norm, batch, values)
        if self._copied_at != step - 1:
            for index in self._update_indices:
                values[index] = nan

    def close_sample(
        self, step: int, loss: float, norm: float, clipped_norm: float, lr: float
    ) -> None:
        """Add norms, loss and rate to the measured `values`, and store them as a sample."""
        values = self.values
        values[LOSS], values[LR] = loss, lr
        values[NORM], values[CLIPPED_NORM], values[SPIKE_COUNT] = (
            norm,
            clipped_norm,
            float(self.spikes.count),
        )
        values[CLIPPED_SHARE] = self.clipped / max(1, step - self.sampled)
        slopes = [values[index] for index in self._gradient_indices]
        if slopes and slopes[0] > 0 and slopes[-1] > 0 and isfinite(slopes[0]):
            values[SLOPE] = log10(slopes[0] / slopes[-1])
        for index, window in self._dead_indices:
            values[index] = window.dead_share
        self.sampled, self.clipped = step, 0
        if step == 1:
            self.first_loss = loss
        self.series.append(step, values)

    def __repr__(self) -> str:
        return f"Diagnostics({plural(len(self.series), 'sample')}, step {self.sampled:,})"

    def _repr_html_(self) -> str:
        from mlpengine.drawing.cell import chart_cell

        return chart_cell(repr(self), self.charts())._repr_html_()

    def charts(self) -> "list[Chart]":
        """Return norms, update ratios, gradients by layer, units and the noise scale by step."""
        from mlpengine.diagnostics.curves import gradients_of
        from mlpengine.drawing.charts import gradient_charts

        if not self.sampled:
            return []
        names = () if self.facts.kind else [layer.name for layer in self.facts.layers]
        return gradient_charts(gradients_of(self.series, self.batch_size, names))

    def _note_spike(self, probes: BoundProbes, step: int, norm: float, rows: Array | None) -> None:
        """Record a spike and the row with the largest gradient."""
        self.spikes.count += 1
        with np.errstate(all="ignore"):
            replay(probes.rows.norm_calls)
            norms = probes.rows.norms
            largest = int(norms.argmax())
            few = probes.rows.unknown or len(norms) < SMALL_BATCH  # each row has a large share
            share = nan if few else float(norms[largest] / norms.sum())
        row = int(rows[largest]) if rows is not None else largest
        self.noted.append(Spike(step, norm, norm / self.spikes.usual, row, share))

    def _probes(self, scratch: Scratch, grads: Gradients) -> BoundProbes:
        """Return the probes bound to these buffers; make the probes in the first call."""
        bound = self._bound.get(id(scratch))
        if bound is not None and bound.grads is grads:
            return bound
        if self._workspace is None or self._workspace.batch_size < scratch.batch_size:
            outputs = (layer.output.spec for layer in scratch.recording.layers)
            size, dtype = max(spec.size for spec in outputs), self.mlp.dtype
            self._workspace = Workspace(size, scratch.batch_size, dtype)
            self.batch_size = scratch.batch_size
            self._schedule.set_step_size(len(self.mlp.params), scratch.batch_size)
        self._bound[id(scratch)] = BoundProbes(
            scratch, grads, self.layers, self._workspace, self._updates, self.columns
        )
        self.unknown_rows = self._bound[id(scratch)].rows.unknown
        return self._bound[id(scratch)]

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the state that later samples need: arrays and JSON-able data."""
        return {
            "sampled": self.sampled,
            "batch_size": self.batch_size,
            "stretch": self._schedule.stretch,
            "clipped": self.clipped,
            "first_loss": np.array(self.first_loss),
            "noise": self.noise.state_dict(),
            "spikes": self.spikes.state_dict(),
            "noted": np.array(self.noted, np.float64).reshape(-1, len(Spike._fields)),
            "values": np.array(self.values),
            "epochs": np.array(self.epochs, np.float64).reshape(-1, 2),
            **{f"series.{key}": value for key, value in self.series.state_dict().items()},
            **{
                f"window.{number}.{key}": value
                for number, window in self.windows.items()
                for key, value in window.state_dict().items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned.  Then load the parameters and call `begin`."""
        self.sampled, self.clipped = int(state["sampled"]), int(state["clipped"])
        self.batch_size = int(state["batch_size"])
        self._schedule.stretch = int(state["stretch"])
        self.first_loss = float(state["first_loss"])
        self.noise.load_state_dict(state["noise"])
        self.spikes.load_state_dict(state["spikes"])
        self.noted.clear()
        for step, norm, times, row, share in state["noted"].tolist():
            self.noted.append(Spike(int(step), norm, times, int(row), share))
        self.values[:] = state["values"].tolist()
        self.epochs = [(train, validation) for train, validation in state["epochs"].tolist()]
        self.series.load_state_dict(_under("series.", state))
        for number, window in self.windows.items():
            window.load_state_dict(_under(f"window.{number}.", state))


def _known(value: float | None) -> float:
    return nan if value is None else value


def _under(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
