"""Checks of a network, its loss and its data before a long run; all state is restored."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite, isnan, nan
from typing import Any

import numpy as np

from mlpengine.core.errors import NumericalError
from mlpengine.core.spec import Array
from mlpengine.core.structure import finite
from mlpengine.core.wording import plural
from mlpengine.diagnostics.constant_loss import baseline_loss, loss_of_zeros, lowest_loss
from mlpengine.diagnostics.layers import NetworkFacts
from mlpengine.diagnostics.lr_range import LrRange, lr_range
from mlpengine.diagnostics.monitor import Diagnostics
from mlpengine.diagnostics.rules import start_advice
from mlpengine.diagnostics.thresholds import (
    DEAD,
    FEW,
    FEW_RATES,
    MEMORIZED_SHARE,
    PREFLIGHT_ROWS,
    SATURATED_SHARE,
    START_TIMES,
    TOO_FAST,
    TOO_SLOW,
    TRIAL_STEPS,
)
from mlpengine.diagnostics.trial import Rows, restored
from mlpengine.diagnostics.units import is_saturated, rectifies, saturation
from mlpengine.diagnostics.verdict import percent, two_digits
from mlpengine.nn import Network
from mlpengine.ops import Loss
from mlpengine.optim import Adam
from mlpengine.step.step import TrainingStep


@dataclass(frozen=True)
class Check:
    """One check: whether it is `good`, the result in words, and its numbers."""

    name: str
    good: bool
    text: str
    numbers: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the check as JSON-able data."""
        return {name: finite(value) for name, value in vars(self).items()}


def preflight(network: Network, loss: Loss, rows: Rows) -> Iterator[Check]:
    """Yield the checks that need no training step; the network does not change."""
    network.need_one("preflight")
    yield check_start(network, loss, rows)
    yield from check_units(network, rows)
    yield check_few_rows(network, loss, rows)


def check_start(mlp: Network, loss: Loss, rows: Rows) -> Check:
    """Compare the loss of the initial network with the loss of a constant prediction."""
    x, y, weights = rows.sample(PREFLIGHT_ROWS).take(slice(None))
    value = loss(mlp.predict(x), y, None, weights)
    size = float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))
    outputs = mlp.outputs
    zeros = loss_of_zeros(loss, y, outputs, weights)
    constant = baseline_loss(loss, y, outputs, weights)
    good = value < START_TIMES * max(constant, 1e-12)
    text = (
        f"loss at initialization {two_digits(value)}; outputs of 0 have {two_digits(zeros)}, the "
        f"best constant prediction {two_digits(constant)}"
    )
    if not good:
        text += f" - {start_advice(size)}"
    return Check("start", good, text, {"loss": value, "zeros": zeros, "constant": constant})


def check_units(mlp: Network, rows: Rows) -> Iterator[Check]:
    """Count units that never fire, and saturated activations, before training."""
    x, _, _ = rows.sample(PREFLIGHT_ROWS).take(slice(None))
    net = mlp.without_dropout()
    scratch = net.scratch(len(x))
    net.gradients(len(x)).bind(scratch)
    net.forward(x, scratch)
    for layer, y in zip(NetworkFacts.of(net).layers, scratch.activations, strict=True):
        if rectifies(layer.activation):
            share = float(np.mean(y.max(axis=0) <= 0))
            text = f"{layer.name}: {percent(share)} of the units fire on no row"
            advice = " - look at the initial weights, biases and the features"
            good = share <= DEAD
            yield Check("dead", good, text + ("" if good else advice), {"share": share})
        elif isfinite(saturation(layer.activation)):
            share = float(np.mean(is_saturated(layer.activation, y)))
            text = f"{layer.name}: {percent(share)} of the activations are saturated"
            advice = " - make the initial weights or the features smaller"
            good = share <= SATURATED_SHARE
            yield Check("saturated", good, text + ("" if good else advice), {"share": share})


def check_few_rows(mlp: Network, loss: Loss, rows: Rows) -> Check:
    """Memorize 20 rows, on a clone without dropout."""
    x, y, _ = rows.sample(FEW).take(slice(None))
    constant = baseline_loss(loss, y, mlp.outputs)
    lowest = lowest_loss(loss, y, mlp.outputs)
    best, limit = nan, lowest + MEMORIZED_SHARE * max(constant - lowest, 1e-3)
    for rate in FEW_RATES:
        last = _memorize(mlp, loss, x, y, rate, limit)
        best = last if not best <= last else best
        if best < limit:
            break
    good = best < limit
    text = (
        f"{plural(len(x), 'row')} memorized: loss {two_digits(best)}, from {two_digits(constant)}"
    )
    if not good:
        text = (
            f"{plural(len(x), 'row')} cannot be memorized: loss {two_digits(best)} after "
            f"{TRIAL_STEPS} steps (wanted {two_digits(limit)}) - look for equal rows with "
            "different targets, or for units that pass nothing on; a larger network may help"
        )
    return Check("few_rows", good, text, {"loss": best, "constant": constant})


def _memorize(mlp: Network, loss: Loss, x: Array, y: Array, rate: float, limit: float) -> float:
    net = mlp.without_dropout()
    scratch, grads, adam = net.scratch(len(x)), net.gradients(len(x)), Adam(net, lr=rate)
    value = nan
    with np.errstate(all="ignore"):
        for _ in range(TRIAL_STEPS):
            value = loss(net.forward(x, scratch), y, grads.d_output)
            if not value >= limit:
                break
            net.backward(scratch, grads)
            adam.step(net, grads)
    return value


def probe(step: TrainingStep, rows: Rows, batch_size: int, steps: int, **known: Any) -> Diagnostics:
    """Train for some steps with diagnostics; everything is restored.

    `known` are further arguments of `Diagnostics`, as returned by
    `mlpengine.training.diagnose.diagnostic_inputs`.
    """
    diagnostics = Diagnostics(step.mlp, every=max(1, min(50, steps // 10)), **known)
    with restored(step), np.errstate(over="ignore", invalid="ignore"):
        batches, losses = rows.batches(batch_size, seed=1), []
        for number in range(1, steps + 1):
            chosen = next(batches)
            try:
                loss = step(*rows.take(chosen))
            except NumericalError as error:
                diagnostics.failure = str(error)
                break
            losses.append(loss)
            diagnostics.after_step(
                step.scratch,
                step.grads,
                number,
                loss=loss,
                norm=step.grad_norm,
                clipped_norm=step.clipped_norm,
                lr=step.optimizer.current_lr,
                rows=chosen,
            )
    if losses:
        diagnostics.close_epoch(float(np.mean(losses[-max(1, len(losses) // 4) :])))
    return diagnostics


def suggest_lr(step: TrainingStep, rows: Rows, batch_size: int) -> tuple[Check, LrRange]:
    """Sweep the learning rate, and compare the configured one with the result."""
    sweep, configured = lr_range(step, rows, batch_size), step.optimizer.lr
    numbers = {"suggestion": sweep.suggestion, "configured": configured}
    if isnan(sweep.suggestion):
        return Check("lr", True, f"no lr suggested: {sweep.reason}", numbers), sweep
    near = sweep.suggestion / TOO_SLOW <= configured <= TOO_FAST * sweep.lowest
    text = f"lr {configured:g}; {sweep.reason}: about {sweep.suggestion:g} suggested"
    return Check("lr", near, text, numbers), sweep
