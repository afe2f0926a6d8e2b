"""Checks of network, loss and data before a long run; the checks restore all state."""

from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

import numpy as np

from mlpengine.core.errors import NumericalError
from mlpengine.core.spec import Array
from mlpengine.core.structure import finite
from mlpengine.core.wording import plural
from mlpengine.diagnostics.constant_loss import baseline_loss, lowest_loss
from mlpengine.diagnostics.lr_range import LrRange, lr_range
from mlpengine.diagnostics.monitor import Diagnostics
from mlpengine.diagnostics.thresholds import (
    FEW,
    FEW_RATES,
    MEMORIZED_SHARE,
    TOO_FAST,
    TOO_SLOW,
    TRIAL_STEPS,
)
from mlpengine.diagnostics.trial import Rows, restored
from mlpengine.diagnostics.verdict import two_digits
from mlpengine.nn import Network
from mlpengine.ops import Loss
from mlpengine.optim import Adam
from mlpengine.step.step import TrainingStep


@dataclass(frozen=True)
class Check:
    """The result of a check: whether it is `good`, a text, and numbers."""

    name: str
    good: bool
    text: str
    numbers: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the check as JSON-able data."""
        return {name: finite(value) for name, value in vars(self).items()}


def check_few_rows(mlp: Network, loss: Loss, rows: Rows) -> Check:
    """Check that a copy of the network without dropout can memorize 20 rows."""
    mlp.need_one("diagnose")
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
    """Train for some steps with diagnostics, then restore everything.

    `known` are further arguments of `Diagnostics`, from
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
    """Test a range of learning rates, and compare the configured rate with the result."""
    sweep, configured = lr_range(step, rows, batch_size), step.optimizer.lr
    numbers = {"suggestion": sweep.suggestion, "configured": configured}
    if isnan(sweep.suggestion):
        return Check("lr", True, f"no lr suggested: {sweep.reason}", numbers), sweep
    near = sweep.suggestion / TOO_SLOW <= configured <= TOO_FAST * sweep.lowest
    text = f"lr {configured:g}; {sweep.reason}: about {sweep.suggestion:g} suggested"
    return Check("lr", near, text, numbers), sweep
