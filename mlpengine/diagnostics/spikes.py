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
        mean: running mean of the log norm.
    """

    DEVIATIONS = 4.0
    KEPT = 0.98
    """Weight of the past in the running mean and variance."""
    WARM_UP = 10
    """Steps before the first that can be a spike."""

    def __init__(self) -> None:
        self.count = self.steps = 0
        self.mean = self._variance = 0.0
        self.limit = inf
        self.pending: list[float] = []

    def settle(self) -> None:
        """Let mean and deviation follow the pending norms, and set the limit anew."""
        mean, variance, steps, ceiling = self.mean, self._variance, self.steps, self.limit
        for norm in self.pending:
            if 0.0 < norm < inf:
                away = log(min(norm, ceiling)) - mean
                steps += 1
                gain = max(1.0 / steps, 1.0 - self.KEPT)
                mean += gain * away
                variance += gain * ((1.0 - gain) * away * away - variance)
        self.pending.clear()
        self.mean, self._variance, self.steps = mean, variance, steps
        if steps >= self.WARM_UP:
            self.limit = exp(min(mean + max(DOUBLE, self.DEVIATIONS * sqrt(variance)), LARGEST))

    @property
    def usual(self) -> float:
        """The running mean as a norm."""
        return exp(self.mean)

    def state(self) -> Array:
        """Return what the next step depends on."""
        return np.array(
            [self.count, self.steps, self.mean, self._variance, self.limit, *self.pending]
        )

    def load(self, state: Array) -> None:
        """Take over what `state` returned."""
        count, steps, self.mean, self._variance, self.limit, *pending = state.tolist()
        self.count, self.steps, self.pending[:] = int(count), int(steps), pending
