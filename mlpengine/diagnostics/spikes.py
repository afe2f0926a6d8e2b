"""Steps whose gradient norm is far above what it was before."""

from math import exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np

from mlpengine.spec import Array

DOUBLE = log(2.0)


class Spike(NamedTuple):
    """A step whose gradient norm was `times` the usual; `row` has `share` of its rows' norms."""

    step: int
    norm: float
    times: float
    row: int
    share: float


class Spikes:
    """Watches the norm of each step.

    A step is a spike if its log norm lies above the running mean by four running standard
    deviations, and its norm is at least twice what the mean says.  A spike does not move the mean
    or the deviation, unless as many follow one another as it takes to call them usual.

    Source: Chen et al. 2018, arXiv 1804.09849, section 2; there without the second condition.

    Attributes:
        count: spikes so far.
        now: whether the last step was one.
        mean: running mean of the log norm.
    """

    DEVIATIONS = 4.0
    KEPT = 0.98
    """Weight of the past in the running mean and variance."""
    WARM_UP = 30
    """Steps before the first that can be a spike."""
    USUAL = 10
    """So many in a row are no spikes but how things are now."""

    def __init__(self) -> None:
        self.count = self.steps = self._in_row = 0
        self.mean = self._variance = 0.0
        self.now = False

    def met(self, norm: float) -> bool:
        """Take in the norm of a step; return whether it is a spike."""
        if not 0.0 < norm < inf:
            self.now = False
            return False
        away = log(norm) - self.mean
        self.steps += 1
        if self.steps <= self.WARM_UP:
            gain = 1.0 / self.steps
        else:
            gain = 1.0 - self.KEPT
            if (
                away > DOUBLE
                and away > self.DEVIATIONS * sqrt(self._variance)
                and self._in_row < self.USUAL
            ):
                self._in_row += 1
                self.count += 1
                self.now = True
                return True
        self.now = False
        self._in_row = 0
        self.mean += gain * away
        self._variance += gain * ((1.0 - gain) * away * away - self._variance)
        return False

    @property
    def usual(self) -> float:
        """The running mean as a norm."""
        return exp(self.mean)

    def state(self) -> Array:
        """Return what the next step depends on."""
        return np.array([self.count, self.steps, self._in_row, self.mean, self._variance])

    def load(self, state: Array) -> None:
        """Take over what `state` returned."""
        count, steps, in_row, self.mean, self._variance = state.tolist()
        self.count, self.steps, self._in_row = int(count), int(steps), int(in_row)
