"""Steps whose gradient norm is far above what it was before."""

from math import exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np

from mlpengine.spec import Array

DOUBLE = log(2.0)
LARGEST = 700.0
"""Of what exp can be taken."""


class Spike(NamedTuple):
    """A step whose gradient norm was `times` the usual; `row` has `share` of its rows' norms."""

    step: int
    norm: float
    times: float
    row: int
    share: float


class Spikes:
    """Tells which norms are unusual.

    A step is a spike if its log norm lies above the running mean by four running standard
    deviations, and its norm is at least twice what the mean says.  Mean and deviation follow the
    norms whenever `settle` is called, not at each step, and a spike moves them no further than
    the limit.

    Source: Chen et al. 2018, arXiv 1804.09849, section 2; there without the second condition.

    Attributes:
        limit: norms above it are spikes.
        pending: norms since the last `settle`; whoever looks at them appends here.
        count: spikes so far.
    """

    DEVIATIONS = 4.0
    KEPT = 0.98
    """Weight of the past in the running mean and variance."""
    WARM_UP = 10
    """Steps before the first that can be a spike."""

    def __init__(self) -> None:
        self.count = self.steps = 0
        self.limit = inf
        self.pending: list[float] = []
        self._sums = np.zeros(3)
        """Of 1, log norm and its square, the newer the heavier."""

    def settle(self) -> None:
        """Let mean and deviation follow the pending norms, and set the limit anew.

        All at once, because cold Python takes 1 us for each.
        """
        norms = np.minimum(self.pending, self.limit)
        self.pending.clear()
        norms = norms[(norms > 0.0) & (norms < inf)]
        logs = np.log(norms)
        weights = self.KEPT ** np.arange(len(logs) - 1, -1, -1.0)
        self._sums *= self.KEPT ** len(logs)
        self._sums += weights.sum(), np.dot(weights, logs), np.dot(weights, logs * logs)
        self.steps += len(logs)
        if self.steps >= self.WARM_UP:
            away = max(DOUBLE, self.DEVIATIONS * self._deviation)
            self.limit = exp(min(self.mean + away, LARGEST))

    @property
    def mean(self) -> float:
        """The running mean of the log norm."""
        weight, total, _ = self._sums.tolist()
        return float(total / weight) if weight else 0.0

    @property
    def _deviation(self) -> float:
        weight, _, square = self._sums.tolist()
        return sqrt(max(0.0, square / weight - self.mean**2)) if weight else 0.0

    @property
    def usual(self) -> float:
        """The running mean as a norm."""
        return exp(self.mean)

    def state(self) -> Array:
        """Return what the next step depends on."""
        return np.array([self.count, self.steps, self.limit, *self._sums, *self.pending])

    def load(self, state: Array) -> None:
        """Take over what `state` returned."""
        count, steps, self.limit = state[:3].tolist()
        self.count, self.steps = int(count), int(steps)
        self._sums[:], self.pending[:] = state[3:6], state[6:].tolist()
