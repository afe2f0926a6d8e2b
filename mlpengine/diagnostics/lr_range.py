"""Which learning rates work: the loss while the rate grows from step to step.

Source: Smith 2017, arXiv 1506.01186, section 3.3.
"""

from dataclasses import dataclass
from math import inf, isfinite, nan

import numpy as np

from mlpengine.diagnostics.twins import Rows, Step, restored
from mlpengine.diagnostics.verdicts import percent, power
from mlpengine.errors import NumericalError

LOWEST, HIGHEST = 1e-7, 10.0
STEPS = 160
KEPT = 0.9
"""Weight of the past in the running mean of the loss."""
DIVERGED = 4.0
"""The sweep ends where the mean is so many times its minimum."""
ONSET = 0.1
"""Share of the whole fall after which the loss counts as falling."""
LEAST_FALL = 0.1
"""Without this relative fall of the loss there is nothing to base a suggestion on."""


@dataclass(frozen=True)
class LrRange:
    """The curve, and the suggested learning rate, NaN if none can be given.

    `rates` and `losses` (running means) are of equal length; `lowest` is the rate of the lowest
    loss, beyond which nothing works; `reason` says why, in either case.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    suggestion: float
    lowest: float
    reason: str


def lr_range(step: Step, rows: Rows, batch_size: int, *, seed: int = 0) -> LrRange:
    """Train with a learning rate that grows exponentially, then put everything back."""
    rates, raw = [], []
    with restored(step), np.errstate(all="ignore"):
        step.optimizer.schedule = None
        lowest = inf
        batches = rows.batches(batch_size, seed)
        for rate in np.geomspace(LOWEST, HIGHEST, STEPS).tolist():
            step.optimizer.lr = rate
            try:
                loss = step(*rows.take(next(batches)))
            except NumericalError:
                break
            rates.append(rate)
            raw.append(loss)
            mean = running_mean(raw)[-1]
            lowest = min(lowest, mean)
            if not isfinite(mean) or mean > DIVERGED * lowest:
                break
    return judge(rates, running_mean(raw))


def running_mean(values: list[float]) -> list[float]:
    """Return the exponential running means, corrected for their start."""
    mean, weight, found = 0.0, 0.0, []
    for value in values:
        mean = KEPT * mean + (1 - KEPT) * value
        weight = KEPT * weight + (1 - KEPT)
        found.append(mean / weight)
    return found


def judge(rates: list[float], losses: list[float]) -> LrRange:
    """Suggest the rate of the steepest fall, or say why there is none.

    The steepest fall is that of the running mean over a third of a decade.
    """
    curve = tuple(rates), tuple(losses)
    wide = max(2, round(STEPS / np.log10(HIGHEST / LOWEST) / 3))
    if len(losses) < 3 * wide:
        return LrRange(*curve, nan, nan, f"the loss diverges already below lr {power(LOWEST * 10)}")
    lowest = int(np.argmin(losses))
    first = float(np.median(losses[: 2 * wide]))
    fall = first - losses[lowest]
    if not fall >= LEAST_FALL * abs(first):
        share = max(0.0, fall / abs(first)) if first else 0.0
        return LrRange(*curve, nan, nan, f"no rate lowered the loss by more than {percent(share)}")
    if lowest >= STEPS - 2:
        text = f"the loss still falls at the largest rate tried, {power(HIGHEST)}"
        return LrRange(*curve, nan, nan, text)
    # Before the loss begins to fall for good, a steep part is nothing but noise.
    high = np.flatnonzero(np.array(losses[: lowest + 1]) > first - ONSET * fall)
    onset = int(high[-1]) if high.size else 0
    ends = np.arange(onset, lowest + 1)
    falls = np.array(losses)[np.maximum(ends - wide, 0)] - np.array(losses)[ends]
    steepest = max(onset, int(ends[np.argmax(falls)]) - wide // 2)
    # The mean lags, and rates near the minimum are close to the edge: stay well below it.
    suggestion = min(rates[steepest], rates[lowest] / 4)
    reason = (
        f"the loss falls fastest at about {power(rates[steepest])} and is lowest at "
        f"{power(rates[lowest])}"
    )
    return LrRange(*curve, float(f"{suggestion:.1g}"), rates[lowest], reason)
