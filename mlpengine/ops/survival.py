"""The loss of censored times: a distribution of the time until an event."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log1p, pi, sqrt
from statistics import NormalDist
from typing import Annotated, Literal, TypeAlias

import numpy as np

from mlpengine import formula as f
from mlpengine.core.spec import Array
from mlpengine.formula import Expr, exp, maximum, minimum, normal_cdf, sigmoid, softplus, where
from mlpengine.ops.entry_loss import EntryLoss, Prediction

Distribution: TypeAlias = Literal["lognormal", "weibull", "loglogistic"]

SHOWN_LEVELS = 0.1, 0.9
"""Levels of the quantiles that are predicted beside the median."""

BEYOND = 20.0
"""Distance, in scales, beyond which a censored time costs nothing."""

PAIRS = {
    "lognormal": (-1.0, 1.0),
    "weibull": (-1.7930997245749267, 0.6062575559405392),
    "loglogistic": (-1.5434046384182083, 1.5434046384182083),
}
"""Two z whose losses together are lowest at the location 0 and the scale 1."""

FAR, LEVELS = 4.0, 20
"""From this z on the normal tail is a continued fraction of this many levels, to 1e-13."""


@dataclass(frozen=True)
class Survival(EntryLoss, name="survival"):
    """Predicts the time until an event from times that may be censored (accelerated failure time).

    A target is a time, negative where it is censored: the event had not happened by then.  The
    outputs of a target are y, the location of the logarithm of the time, and s, the logarithm of
    its scale.  With z = (log(abs(target)) - y) exp(-s), the loss of a seen event is s -
    log(density(z)), and the loss of a censored time is -log(1 - distribution(z)).  The densities
    are: normal for `lognormal`, exp(z - exp(z)) for `weibull`, logistic for `loglogistic`.  The
    mean is over all entries.
    Shapes: output (batch, 2 * targets); target (batch, targets).

    Source: Kalbfleisch and Prentice 2002, "The statistical analysis of failure time data", section
    2.3; Abramowitz and Stegun 1964, 26.2.14, for the continued fraction.
    """

    tasks = ("survival",)
    initial_divisor = 10.0

    distribution: Annotated[Distribution, "Distribution of the time until the event."] = (
        "loglogistic"
    )

    def formula(self, y: Expr, s: Expr, t: Expr) -> Expr:
        z = (f.log(abs(t)) - y) * exp(-s)
        match self.distribution:
            case "lognormal":
                near = -f.log(normal_cdf(-minimum(z, FAR)))
                far = z * z * 0.5 + f.log(_hazard(z)) + log(2 * pi) / 2
                seen, censored = z * z * 0.5 + log(2 * pi) / 2, where(z < FAR, near, far)
            case "weibull":
                seen, censored = exp(z) - z, exp(z)
            case _:
                seen, censored = softplus(z) * 2 - z, softplus(z)
        return where(t > 0, seen + s, censored)

    def gradient(self, y: Expr, s: Expr, t: Expr) -> tuple[Expr, Expr, Expr]:
        narrow = exp(-s)
        z = (f.log(abs(t)) - y) * narrow
        match self.distribution:
            case "lognormal":
                near = minimum(z, FAR)
                hazard = exp(near * near * -0.5) / (normal_cdf(-near) * sqrt(2 * pi))
                seen, censored = z, where(z < FAR, hazard, _hazard(z))
            case "weibull":
                seen, censored = f.expm1(z), exp(z)
            case _:
                seen, censored = f.tanh(z * 0.5), sigmoid(z)
        slope = where(t > 0, seen, censored)
        return -(slope * narrow), where(t > 0, 1.0, 0.0) - slope * z, slope * narrow / t

    def quantile(self, level: float) -> Expr:
        (y, s), z = self.formulas.outputs, self._standard(level)
        return exp(y + exp(s) * z) if z else exp(y)

    def _standard(self, level: float) -> float:
        """Return the quantile of a level of z."""
        match self.distribution:
            case "lognormal":
                return NormalDist().inv_cdf(level)
            case "weibull":
                return log(-log1p(-level))
            case _:
                return log(level / (1 - level))

    @property
    def predictions(self) -> Sequence[Prediction]:
        """The median, and two quantiles, named by their level."""
        quantiles = [Prediction(f"_{level:g}", self.quantile(level)) for level in SHOWN_LEVELS]
        return [Prediction("", self.quantile(0.5)), *quantiles]

    def drawn(self, predictions: Array, rng: np.random.Generator) -> Array:
        """Return one of two times (...), at random, for which these predictions (..., 3) are best.

        The loss of both together is lowest at the distributions of the `predictions`.
        """
        median, low, high = np.moveaxis(np.log(predictions), -1, 0)
        middle, first, last = (self._standard(level) for level in (0.5, *SHOWN_LEVELS))
        z = rng.choice(PAIRS[self.distribution], median.shape)
        return np.asarray(np.exp(median + (high - low) / (last - first) * (z - middle)))

    def best_outputs(self, target: Array, outputs: int) -> Array:
        """Return the time of each event, and a time far beyond each censored one."""
        wide, constant = target.astype(np.float64), self.best_constant(target, outputs)
        y, s = np.log(np.abs(wide)), np.broadcast_to(constant[1::2], wide.shape)
        y += np.where(wide > 0, 0.0, BEYOND * np.exp(s))
        return np.stack([y, s], axis=2).reshape(len(wide), -1)


def _hazard(z: Expr) -> Expr:
    """Return density(z) / (1 - Phi(z)) of a normal distribution for z of `FAR` or more."""
    z, fraction = maximum(z, FAR), maximum(z, FAR)
    for level in range(LEVELS, 0, -1):
        fraction = z + level / fraction
    return fraction
