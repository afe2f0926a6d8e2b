"""Learning rate range test: training with a learning rate that grows in every step.

Source: Smith 2017, arXiv 1506.01186, section 3.3.
"""

from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from mlpengine.core.errors import NumericalError
from mlpengine.core.spec import Array
from mlpengine.diagnostics.samples import median
from mlpengine.diagnostics.thresholds import (
    DIVERGED,
    HIGHEST_RATE,
    LOWEST_RATE,
    MEASURED_ROWS,
    MIN_FALL,
    SAFETY_FACTOR,
    SMOOTHING_STEPS,
    STEPS,
    SWEEPS,
)
from mlpengine.diagnostics.trial import Rows, restored
from mlpengine.diagnostics.verdict import percent, two_digits
from mlpengine.optim import FullBatch
from mlpengine.step.step import TrainingStep


@dataclass(frozen=True)
class LrRange:
    """The result of a range test; `suggestion` is the suggested learning rate or NaN.

    `rates` and smoothed `losses` have equal lengths; `lowest` is the rate with the lowest loss.
    `reason` explains the suggestion or the lack of a suggestion.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    suggestion: float
    lowest: float
    reason: str


def lr_range(step: TrainingStep, rows: Rows, batch_size: int, *, seed: int = 0) -> LrRange:
    """Train several times with an exponentially growing rate; restore all state afterwards."""
    if isinstance(step.optimizer, FullBatch):
        return LrRange((), (), nan, nan, f"{step.optimizer.name} has no learning rate")
    measured = rows.sample(MEASURED_ROWS).take(slice(None))
    sweeps = [_sweep(step, rows, batch_size, measured, seed + number) for number in range(SWEEPS)]
    length = min(map(len, sweeps))
    losses = np.mean([losses[:length] for losses in sweeps], axis=0)
    return suggest_rate(
        np.geomspace(LOWEST_RATE, HIGHEST_RATE, STEPS)[:length].tolist(), smoothed(losses).tolist()
    )


def _sweep(
    step: TrainingStep,
    rows: Rows,
    batch_size: int,
    measured: tuple[Array, Array, Array | None],
    seed: int,
) -> list[float]:
    """Train with growing rates until the loss diverges; return the loss after each step."""
    x, y, weights = measured
    losses: list[float] = []
    with restored(step), np.errstate(all="ignore"):
        step.optimizer.schedule = None
        start = step.loss(step.mlp.predict(x), y, None, weights)
        batches = rows.batches(batch_size, seed)
        for rate in np.geomspace(LOWEST_RATE, HIGHEST_RATE, STEPS).tolist():
            step.optimizer.lr = rate
            try:
                step(*rows.take(next(batches)))
            except NumericalError:
                break
            loss = step.loss(step.mlp.predict(x), y, None, weights)
            if not isfinite(loss) or loss > DIVERGED * start:
                break
            losses.append(loss)
    return losses


def smoothed(values: Array) -> Array:
    """Return the values smoothed by a Gaussian window; the end values are repeated as padding."""
    if not values.size:
        return values
    offsets = np.arange(-3 * SMOOTHING_STEPS, 3 * SMOOTHING_STEPS + 1)
    window = np.exp(-0.5 * (offsets / SMOOTHING_STEPS) ** 2)
    padded = np.pad(values, 3 * SMOOTHING_STEPS, mode="edge")
    averages: Array = np.convolve(padded, window / window.sum(), "valid")
    return averages


def suggest_rate(rates: list[float], losses: list[float]) -> LrRange:
    """Suggest a learning rate from a smoothed curve, or none with a reason."""
    curve = tuple(rates), tuple(losses)
    decade = round(STEPS / np.log10(HIGHEST_RATE / LOWEST_RATE))
    if len(losses) < decade:
        return LrRange(
            *curve, nan, nan, f"the loss diverges already below lr {two_digits(LOWEST_RATE * 10)}"
        )
    lowest, start = int(np.argmin(losses)), median(np.array(losses[:decade]))
    fall = start - losses[lowest]
    if not fall >= MIN_FALL * abs(start):
        share = max(0.0, fall / abs(start)) if start else 0.0
        return LrRange(*curve, nan, nan, f"no rate lowered the loss by more than {percent(share)}")
    if lowest >= STEPS - 2:
        text = f"the loss still falls at the largest rate tried, {two_digits(HIGHEST_RATE)}"
        return LrRange(*curve, nan, nan, text)
    halfway = int(np.argmax(np.array(losses) <= start - fall / 2))
    # Below the halfway rate the loss hardly falls, so suggest no lower rate.
    suggestion = max(rates[lowest] / SAFETY_FACTOR, rates[halfway])
    reason = (
        f"the loss has fallen halfway at about {two_digits(rates[halfway])} and is lowest at "
        f"{two_digits(rates[lowest])}"
    )
    return LrRange(*curve, float(f"{suggestion:.1g}"), rates[lowest], reason)
