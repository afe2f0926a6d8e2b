"""The loss of networks that predict the distribution of the time until an event."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log1p, pi, sqrt
from statistics import NormalDist
from typing import Annotated, Literal, TypeAlias

import numpy as np

from mlpengine import formula as f
from mlpengine.core.spec import Array
from mlpengine.formula import Expr, exp, maximum, minimum, normal_cdf, softplus, where
from mlpengine.ops.entry_loss import EntryLoss, Prediction

Distribution: TypeAlias = Literal["lognormal", "weibull", "loglogistic"]

SHOWN_LEVELS = 0.1, 0.9
"""Levels of the quantiles that a network predicts besides the median."""

PAIRS = {
    "lognormal": (-1.0, 1.0),
    "weibull": (-1.7930997245749267, 0.6062575559405392),
    "loglogistic": (-1.5434046384182083, 1.5434046384182083),
}
"""Two values of z = (log(time) - location) / scale for each distribution.

For two observed events, one at each z, the sum of losses is lowest at location 0 and scale 1."""

WIDE = 40.0
"""Maximum distance (in scales) of a bound from the location or other bound, whichever is nearer.

A bound farther away is moved to this distance, which changes the probability of the interval by
less than 1e-16."""

FAR, LEVELS = 4.0, 20
"""For z of `FAR` or more, a continued fraction of `LEVELS` levels gives the normal tail.

The relative error is 1e-13."""


@dataclass(frozen=True)
class Survival(EntryLoss, name="survival"):
    """Predicts the time until an event from times that may be censored (accelerated failure time).

    An entry has two target columns, a time and a bound.  A positive time is the time of an observed
    event.  Any other time means that the event came after abs(time) and before the bound (interval
    censoring); an infinite bound means right censoring.

    An entry has two outputs: the location y of log(time), and s, the logarithm of its scale.  Let
    z = (log(abs(time)) - y) exp(-s) and end = (log(bound) - y) exp(-s).  The loss of an observed
    event is s - log(density(z)).  The loss of a censored event is -log(cdf(end) - cdf(z)).  The
    density of z is normal for `lognormal`, exp(z - exp(z)) for `weibull`, and logistic for
    `loglogistic`.  The mean is over all entries.
    Shapes: output (batch, 2 * entries); target (batch, 2 * entries).

    Source: Kalbfleisch and Prentice 2002, "The statistical analysis of failure time data", section
    2.3; Abramowitz and Stegun 1964, 26.2.14, for the continued fraction.
    """

    tasks = ("survival",)
    initial_divisor = 10.0
    target_columns = 2

    distribution: Annotated[Distribution, "Distribution of the time until the event."] = (
        "loglogistic"
    )

    def formula(self, y: Expr, s: Expr, t: Expr, bound: Expr) -> Expr:
        z, first, last = _standardized(y, s, t, bound)
        return where(t > 0, self._observed(z) + s, self._censored(first, last))

    def gradient(self, y: Expr, s: Expr, t: Expr, bound: Expr) -> tuple[Expr, ...]:
        z, first, last = _standardized(y, s, t, bound)
        seen = {"lognormal": z, "weibull": f.expm1(z)}.get(self.distribution, f.tanh(z * 0.5))
        (low, high), narrow = self._slopes(first, last), exp(-s)
        low, high = where(t > 0, seen, low), where(t > 0, 0.0, -high)
        by_s = where(t > 0, 1 - seen * z, -(low * first + high * last))
        return -((low + high) * narrow), by_s, low * narrow / t, high * narrow / bound

    def _observed(self, z: Expr) -> Expr:
        """Return -log(density(z))."""
        match self.distribution:
            case "lognormal":
                return z * z * 0.5 + log(2 * pi) / 2
            case "weibull":
                return exp(z) - z
            case _:
                return softplus(z) * 2 - z

    def _censored(self, z: Expr, end: Expr) -> Expr:
        """Return -log(cdf(end) - cdf(z))."""
        match self.distribution:
            case "lognormal":
                low, high = map(_upper_tail, _mirrored(z, end))
                return low - f.log(-f.expm1(low - high))
            case "weibull":
                return exp(z) - f.log(-f.expm1(-_rise(z, end)))
            case _:
                return softplus(z) + softplus(-end) - f.log(-f.expm1(z - end))

    def _slopes(self, z: Expr, end: Expr) -> tuple[Expr, Expr]:
        """Return density(z) and density(end), divided by cdf(end) - cdf(z)."""
        match self.distribution:
            case "lognormal":
                near, far = _mirrored(z, end)
                fall = _upper_tail(near) - _upper_tail(far)
                at_near = _hazard(near) / -f.expm1(fall)
                at_far = _hazard(far) * exp(fall) / -f.expm1(fall)
                return where(z > 0, at_near, at_far), where(z > 0, at_far, at_near)
            case "weibull":
                rise = _rise(z, end)
                return exp(z) / -f.expm1(-rise), exp(end - rise) / -f.expm1(-rise)
            case _:
                low, high = softplus(-end) - softplus(-z), softplus(z) - softplus(end)
                return exp(low) / -f.expm1(z - end), exp(high) / -f.expm1(z - end)

    def quantile(self, level: float) -> Expr:
        (y, s), z = self.formulas.outputs, self._standard(level)
        return exp(y + exp(s) * z) if z else exp(y)

    def _standard(self, level: float) -> float:
        """Return the quantile of z for a level."""
        match self.distribution:
            case "lognormal":
                return NormalDist().inv_cdf(level)
            case "weibull":
                return log(-log1p(-level))
            case _:
                return log(level / (1 - level))

    @property
    def predictions(self) -> Sequence[Prediction]:
        """The median, and the quantiles for `SHOWN_LEVELS`; their names end with the level."""
        quantiles = [Prediction(f"_{level:g}", self.quantile(level)) for level in SHOWN_LEVELS]
        return [Prediction("", self.quantile(0.5)), *quantiles]

    def drawn(self, predictions: Array, rng: np.random.Generator) -> Array:
        """Return random targets; `predictions` (rows, 1, 3) have the lowest expected loss on them.

        Each time is one of two times with equal probability.  The sum of the losses of both times
        is lowest at the distribution that has these predictions (see `PAIRS`).
        """
        median, low, high = np.moveaxis(np.log(predictions), -1, 0)
        middle, first, last = (self._standard(level) for level in (0.5, *SHOWN_LEVELS))
        z = rng.choice(PAIRS[self.distribution], median.shape)
        times = np.exp(median + (high - low) / (last - first) * (z - middle))
        return np.hstack([times, 2 * times])  # an event ignores its bound


def _standardized(y: Expr, s: Expr, t: Expr, bound: Expr) -> tuple[Expr, Expr, Expr]:
    """Return z of the time, then z of the time and z of the bound, both limited by `WIDE`."""
    z, end = ((f.log(value) - y) * exp(-s) for value in (abs(t), bound))
    return z, maximum(z, minimum(end, 0) - WIDE), minimum(end, maximum(z, 0) + WIDE)


def _rise(z: Expr, end: Expr) -> Expr:
    """Return exp(end) - exp(z)."""
    return exp(end) * -f.expm1(z - end)


def _mirrored(z: Expr, end: Expr) -> tuple[Expr, Expr]:
    """Return (z, end) if z > 0, else the mirrored interval (-end, -z) of the same probability."""
    return where(z > 0, z, -end), where(z > 0, end, -z)


def _upper_tail(z: Expr) -> Expr:
    """Return -log(1 - Phi(z)) of a normal distribution."""
    near = -f.log(normal_cdf(-minimum(z, FAR)))
    return where(z < FAR, near, z * z * 0.5 + f.log(_far_hazard(z)) + log(2 * pi) / 2)


def _hazard(z: Expr) -> Expr:
    """Return density(z) / (1 - Phi(z)) of a normal distribution."""
    near = minimum(z, FAR)
    hazard = exp(near * near * -0.5) / (normal_cdf(-near) * sqrt(2 * pi))
    return where(z < FAR, hazard, _far_hazard(z))


def _far_hazard(z: Expr) -> Expr:
    """Return `_hazard` for z of `FAR` or more."""
    z, fraction = maximum(z, FAR), maximum(z, FAR)
    for level in range(LEVELS, 0, -1):
        fraction = z + level / fraction
    return fraction
