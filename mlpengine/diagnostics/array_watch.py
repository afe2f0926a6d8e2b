"""Verdicts on training loops of other libraries, from plain arrays: `Watch`."""

import re
from dataclasses import replace
from math import isfinite, nan, prod, sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Limits
from mlpengine.core.spec import FLOATS, Array
from mlpengine.core.wording import quoted, suggestion
from mlpengine.diagnostics.constant_loss import baseline_loss, feature_sizes
from mlpengine.diagnostics.layers import LayerFacts, NetworkFacts
from mlpengine.diagnostics.monitor import Diagnostics
from mlpengine.diagnostics.rules import verdicts
from mlpengine.diagnostics.schedule import SamplingSchedule
from mlpengine.diagnostics.thresholds import STRETCH, WATCH_EVERY, WATCHED_ROWS
from mlpengine.diagnostics.units import is_saturated, range_of
from mlpengine.diagnostics.verdict import Verdict, Verdicts
from mlpengine.nn.layers import ActivationLike, activation_op
from mlpengine.ops import LOSSES, GradOp, Loss
from mlpengine.tape.norm import GlobalNorm

SECTION = r"\b(?:data|model|training|optimizer)\."
WORDS = {
    rf" \({SECTION}[^)]*\)": "",
    rf": set {SECTION}\w+ to \w+": "",
    r"\boptimizer\.lr\b": "the learning rate",
    r"\btraining\.clip_norm\b": "the norm at which gradients are clipped",
    rf"{SECTION}(?=\w)": "",
}
"""Patterns of config keys in advice, with their replacements in loops without a config."""


class Watch:
    """Finds out why a training loop does not learn; printing the object prints the verdicts.

    After each update, call `record` for each layer, in forward order, and then `step`.  Only some
    steps are measured; `due` tells whether the current step is measured.

    Args:
        loss: name of the loss, such as "softmax_cross_entropy", or a `Loss`; None if unknown.
        every: steps between samples; by default 50, and 500 after step 1,000.
        settings: settings of the optimizer: `lr`, `momentum`, `betas`, `eps`, `weight_decay`.

    Attributes:
        core: the measurements; they exist after the first step.
        steps: number of steps so far.

    Raises: UsageError for an unknown loss, and for a layer that the first step did not record.
    """

    core: Diagnostics

    def __init__(
        self, loss: str | Loss | None = None, *, every: int | None = None, **settings: Any
    ) -> None:
        if isinstance(loss, str) and loss not in LOSSES:
            raise UsageError(
                f"watch: loss must be one of {', '.join(LOSSES)} (got {loss!r})"
                f"{suggestion(loss, LOSSES)}"
            )
        if (lr := settings.get("lr")) is not None:
            Limits(at_least=0).check("watch: lr", lr)
        self.loss = LOSSES[loss]() if isinstance(loss, str) else loss
        self.settings, self.steps = SimpleNamespace(**settings), 0
        self.dropout: tuple[float, ...] = ()
        self._schedule = SamplingSchedule(every or WATCH_EVERY)
        self._schedule.stretch = 1 if every else STRETCH
        self._schedule.sample_at = 2  # an update needs the weights of two steps
        self._layers: dict[str, LayerFacts] = {}
        self._weights: dict[str, Array] = {}
        self._before: dict[str, tuple[int, Array]] = {}
        self._measured: dict[str, dict[str, float]] = {}
        self._activations: dict[str, Array] = {}
        self._targets: list[Array] = []
        self._total: Any = 0.0
        self._counted = self._rows = 0

    @property
    def due(self) -> bool:
        """Whether the current step is measured; in other steps `record` does nothing."""
        return self.steps + 1 >= self._schedule.due

    @property
    def is_sample(self) -> bool:
        """Whether `record` computes its quantities in the current step.

        `due` is True one step earlier, too: an update is the difference of two steps' weights.
        """
        return self.steps + 1 in (1, self._schedule.sample_at)

    def record(
        self,
        layer: str,
        *,
        weights: Any = None,
        gradients: Any = None,
        activations: Any = None,
        activation: ActivationLike = None,
    ) -> None:
        """Record a layer of the current step, after the update.

        Shapes: weights and gradients (without biases) have the same shape; activations (rows, ...,
        units) are the output of the layer after `activation`, a name such as "relu".
        """
        if not self.due:
            return
        step, op = self.steps + 1, activation_op(activation)
        if step > 1 and layer not in self._layers:
            raise UsageError(f"watch: {layer!r} must be recorded in the first step, too")
        facts = self._layers.setdefault(layer, LayerFacts(layer, 0, op, (), False, True))
        measured = self._measured.setdefault(layer, {})
        if activations is not None:
            y = _floats(activations)
            y = self._activations[layer] = y.reshape(-1, y.shape[-1])[:WATCHED_ROWS]
            self._rows = max(self._rows, len(y))
            if self.is_sample:
                measured |= _of_activations(y, facts.activation)
            facts = facts._replace(units=y.shape[1])
        if weights is not None:
            w = self._weights[layer] = _floats(weights)
            copied, before = self._before.get(layer, (-1, np.empty_like(w)))
            if self.is_sample:
                measured |= _of_update(w, gradients, before if copied == step - 1 else None)
            if step != self._schedule.sample_at or self._schedule.every == 1:
                np.copyto(before, w)
                self._before[layer] = step, before
            facts = facts._replace(weights=(layer,), units=facts.units or len(w))
        self._layers[layer] = facts

    def step(self, loss: Any, *, inputs: Any = None, targets: Any = None) -> None:
        """End a step.

        Args:
            loss: mean loss of the batch, a number or an array with one entry.
            inputs: (rows, ...), the input of the network, to check its scale.
            targets: (rows,) class indices or (rows, ...) numbers, to compare the loss with the loss
                of the best constant prediction.
        """
        if not self._layers:
            raise UsageError("watch: record must be called for each layer before step")
        if isinstance(loss, str | None) or prod(np.shape(loss)) != 1:
            raise UsageError(f"watch: loss must be one number (got {quoted(loss)})")
        loss = loss.reshape(()) if np.shape(loss) else loss
        self._total += loss
        self._counted += 1
        self.steps += 1
        if self.steps == 1:
            layers = tuple(self._layers.values())
            facts = NetworkFacts(layers, self.dropout, 0, layers[-1].units, self._weights)
            self.core = Diagnostics(facts, loss=self.loss, optimizer=self.settings)
            self.core.first_loss = float(loss)
            self.core.unknown_rows = "gradients of single rows are not recorded"
        if self.steps < self._schedule.due:
            return
        if targets is not None and len(self._targets) < WATCHED_ROWS:
            self._targets.append(np.array(targets[:WATCHED_ROWS]))
        self._close(float(loss), inputs)
        self._schedule.plan(self.steps)

    def epoch(self, validation_loss: Any = None) -> None:
        """End an epoch; `validation_loss` is the mean loss on rows that do not train."""
        train = float(self._total) / max(self._counted, 1)
        self._check(train)
        self._total, self._counted = 0.0, 0
        self.core.close_epoch(train, None if validation_loss is None else float(validation_loss))
        self.core.steps_per_epoch = round(self.steps / len(self.core.epochs))

    def verdicts(self) -> Verdicts:
        """Return the problems so far, causes first."""
        self._check(float(self._total))
        if self._targets and self.loss is not None:
            self._set_constants(self.core, self.loss)
        return Verdicts(self._verdicts())

    def _verdicts(self) -> list[Verdict]:
        return [_without_keys(verdict) for verdict in verdicts(self.core)]

    def _repr_html_(self) -> str:
        if not self.steps:
            return "nothing is measured so far"
        return self.verdicts()._repr_html_() + self.core._repr_html_()

    def __str__(self) -> str:
        return "\n".join(map(str, self.verdicts())) or "nothing unusual"

    def _close(self, loss: float, inputs: Any) -> None:
        """Add the activations of a step to the windows; take a sample if one is due."""
        core = self.core
        for number, name in enumerate(self._layers):
            known = isfinite(loss) and name in self._activations  # NaN is no dead unit
            if number in core.windows and known:
                core.windows[number].add(self._activations[name], self.steps)
        if self.steps in (1, self._schedule.sample_at):
            self._sample(core, loss, inputs)
        self._measured.clear()
        self._activations.clear()

    def _sample(self, core: Diagnostics, loss: float, inputs: Any) -> None:
        core.values[:] = [nan] * len(core.values)
        squares = 0.0
        for number, name in enumerate(self._layers):
            measured = self._measured.get(name, {})
            for quantity, value in measured.items():
                core.values[core.columns.index(quantity, number)] = value
            if "gradient_rms" in measured:
                size = measured["gradient_rms"]  # a square by ** raises OverflowError
                squares += size * size * self._weights[name].size
        if inputs is not None:
            self._rows = max(self._rows, len(inputs))
            x = _floats(inputs[:WATCHED_ROWS]).reshape(-1, prod(np.shape(inputs)[1:]))
            index = core.columns.index("input_mean")
            core.values[index : index + 2] = float(x.mean()), float(x.std())
            if not core.feature_sizes.size:
                core.feature_sizes = feature_sizes(x)
                core.feature_names = tuple(map(str, range(x.shape[1])))
        core.batch_size, norm = self._rows, sqrt(squares)
        core.close_sample(self.steps, loss, norm, norm, getattr(self.settings, "lr", nan))
        self._check(loss)

    def _check(self, loss: float) -> None:
        if not self.steps:
            raise UsageError("watch: step must be called after each update (no step so far)")
        if not (isfinite(loss) or self.core.failure):
            self.core.failure = f"step {self.steps:,}: the loss was {loss} here or before"

    def _set_constants(self, core: Diagnostics, loss: Loss) -> None:
        """Set the loss of a constant prediction and, for regression, size and range of targets."""
        y = np.concatenate(self._targets)
        if y.dtype.kind == "f":
            y = y.reshape(len(y), -1)
            y = y[np.isfinite(y).all(axis=1)]
            if not len(y):
                return
        core.baseline = core.validation_baseline = baseline_loss(loss, y, core.facts.outputs)
        if "regression" in loss.tasks:
            core.target_rms = float(np.sqrt(np.mean(np.square(y, dtype=np.float64))))
            core.target_range = float(y.min()), float(y.max())


def _floats(values: Any) -> Array:
    array = np.asarray(values)
    return array if array.dtype in FLOATS else array.astype(np.float32)


@np.errstate(all="ignore")  # a diverged run may overflow
def _of_activations(y: Array, op: GradOp | None) -> dict[str, float]:
    measured = {"activation_mean": float(y.mean()), "activation_std": float(y.std())}
    if isfinite(np.subtract(*range_of(op))):
        measured["saturated_share"] = float(is_saturated(op, y).mean())
    return measured


@np.errstate(all="ignore")
def _of_update(weights: Array, gradients: Any, before: Array | None) -> dict[str, float]:
    """Return the quantities of the weights of a layer; overwrite `before` with the update."""
    measured: dict[str, float] = {}
    if gradients is not None:
        g = np.ravel(_floats(gradients))
        measured["gradient_rms"] = GlobalNorm(g)() / sqrt(g.size)
    if before is not None:
        size = GlobalNorm(np.ravel(before))()
        length = GlobalNorm(np.ravel(np.subtract(before, weights, before)))()
        measured["update_ratio"] = length / size if size else nan
    return measured


def _without_keys(verdict: Verdict) -> Verdict:
    """Replace the config keys in the advice of a verdict by words."""
    advice = verdict.advice
    for pattern, words in WORDS.items():
        advice = re.sub(pattern, words, advice)
    return replace(verdict, advice=advice, fix=(), no_fix="there is no config")
