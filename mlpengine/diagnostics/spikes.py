"""Steps with an unusually large gradient norm."""

from collections.abc import Mapping
from math import exp, inf, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.diagnostics.samples import median
from mlpengine.diagnostics.thresholds import (
    LARGEST_EXPONENT,
    SPIKE_DECAY,
    SPIKE_DEVIATIONS,
    SPIKE_WARM_UP,
    WEIGHED,
)

DOUBLE = log(2.0)


class Spike(NamedTuple):
    """A step with `times` the usual gradient norm; `row` has the batch's largest row gradient.

    `share` is the gradient norm of this row divided by the sum over all rows.
    """

    step: int
    norm: float
    times: float
    row: int
    share: float


class Spikes:
    """Decides which gradient norms are unusually large.

    A step is a spike if its log norm exceeds the running mean of log norms by four running standard
    deviations, and by at least log(2).  `update` adds all pending norms to mean and deviation; a
    spike counts as if its norm were the limit.  In the first `update`, the limit is computed from
    the median and the median deviation of the pending norms.

    Source: Chen et al. 2018, arXiv 1804.09849, section 2 (there without log(2)).

    Attributes:
        limit: larger norms are spikes.
        pending: norms since the last `update`; the caller appends norms.
        count: number of spikes so far.
        steps: number of norms in mean and deviation.
    """

    WEIGHTS = SPIKE_DECAY ** np.arange(WEIGHED)[::-1]
    """The weights of the last norms, the newest last."""

    def __init__(self) -> None:
        self.count = self.steps = 0
        self.limit = inf
        self.pending: list[float] = []
        self._sums = [0.0] * 3
        """Weighted sums of 1, the log norm and its square; old norms have small weights."""

    def update(self) -> None:
        """Add the pending norms to mean and deviation, and set the limit.

        One call handles many norms, because a call per norm would slow down small steps.
        """
        if self.steps + len(self.pending) < SPIKE_WARM_UP:
            return
        norms = np.array(self.pending, np.float64)
        self.pending.clear()
        logs = np.log(np.minimum(norms[(norms > 0.0) & (norms < inf)], self.limit))
        if self.limit == inf and len(logs):
            logs = np.minimum(logs, _highest(logs))
        self.steps += len(logs)
        logs = logs[-WEIGHED:]
        weights, past = self.WEIGHTS[WEIGHED - len(logs) :], SPIKE_DECAY ** len(logs)
        weighted = weights * logs
        recent = (1.0 - past) / (1.0 - SPIKE_DECAY), float(weighted.sum()), float(weighted @ logs)
        self._sums = [past * old + new for old, new in zip(self._sums, recent, strict=True)]
        if self.steps >= SPIKE_WARM_UP:
            distance = max(DOUBLE, SPIKE_DEVIATIONS * self._deviation)
            self.limit = exp(min(self.mean + distance, LARGEST_EXPONENT))

    @property
    def mean(self) -> float:
        """The running mean of the log norm."""
        weight, total, _ = self._sums
        return total / weight if weight else 0.0

    @property
    def _deviation(self) -> float:
        weight, _, square = self._sums
        return sqrt(max(0.0, square / weight - self.mean**2)) if weight else 0.0

    @property
    def usual(self) -> float:
        """The exponential of the running mean."""
        return exp(self.mean)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all state that later steps need."""
        return {
            "count": self.count,
            "steps": self.steps,
            "limit": self.limit,
            "sums": np.array(self._sums),
            "pending": np.array(self.pending),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.count, self.steps = int(state["count"]), int(state["steps"])
        self.limit = float(state["limit"])
        self._sums, self.pending[:] = state["sums"].tolist(), state["pending"].tolist()


def _highest(logs: Array) -> float:
    """Return the limit for the first log norms, as a log norm; outliers hardly affect it."""
    middle = median(logs)
    deviation = 1.4826 * median(np.abs(logs - middle))
    return middle + max(DOUBLE, SPIKE_DEVIATIONS * deviation)
