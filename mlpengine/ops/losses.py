"""Losses that are means over entries (see `Loss` and `EntryLoss`)."""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import log
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.fields import ConfigKey, Count, Given, Limits, NonNegative, Positive, Share
from mlpengine.core.spec import Array
from mlpengine.formula import (
    Expr,
    clip,
    equal,
    exp,
    maximum,
    minimum,
    parse_number,
    sigmoid,
    sign,
    softplus,
    softplus_tail,
    tanh,
    where,
)
from mlpengine.ops.entry_loss import EntryLoss, Prediction
from mlpengine.ops.loss import Loss

SMALLEST_MEAN = 1e-6
"""Lower bound of a mean or variance before `best_constant` takes the logarithm."""

MAX_LEVELS = 99
"""Maximum number of levels of `Quantile`."""


class MeanSquaredError(EntryLoss, name="mse"):
    """Mean squared error: (output - target)**2.

    Backward: d_output = dy * 2 (output - target) / entries; d_target = -d_output.
    """

    def formula(self, y: Expr, t: Expr) -> Expr:
        return (y - t) * (y - t)

    def gradient(self, y: Expr, t: Expr) -> tuple[Expr, Expr]:
        return (y - t) * 2, (y - t) * -2

    def best_constant(self, target: Array, outputs: int, weights: Array | None = None) -> Array:
        """Return the mean of each target."""
        mean: Array = np.average(target.astype(np.float64), 0, weights)
        return mean


@dataclass(frozen=True)
class KnownTargets(EntryLoss, name="known_targets"):
    """A loss that ignores missing targets: the loss and gradient of NaN targets are 0.

    The mean divides by the number of all entries, known and missing.
    """

    tasks = ()

    loss: EntryLoss = field(default_factory=MeanSquaredError)

    def __post_init__(self) -> None:
        """Check nothing, because any `EntryLoss` is valid."""

    @property
    def columns(self) -> int:
        return self.loss.columns

    def formula(self, *operands: Expr) -> Expr:
        return where(equal(operands[-1], operands[-1]), self.loss.formula(*operands), 0)

    def gradient(self, *operands: Expr) -> tuple[Expr, ...]:
        is_known = equal(operands[-1], operands[-1])
        return tuple(where(is_known, slope, 0) for slope in self.loss.gradient(*operands))

    @property
    def title(self) -> str:
        return f"{self.loss.name} of targets with gaps"

    def plain(self) -> Loss:
        """Return the loss for evaluation, on rows without missing targets."""
        return self.loss.plain()

    def best_constant(self, target: Array, outputs: int, weights: Array | None = None) -> Array:
        """Return the best constant of each target over its known entries."""
        best = []
        for column in target.T:
            known = ~np.isnan(column)
            some = None if weights is None else weights[known]
            best.append(self.loss.best_constant(column[known, None], self.columns, some))
        return np.concatenate(best)


class MeanAbsoluteError(EntryLoss, name="mae"):
    """Mean absolute error: abs(output - target).

    Backward: d_output = dy * sign(output - target) / entries, with sign(0) = 0;
    d_target = -d_output.
    """

    def formula(self, y: Expr, t: Expr) -> Expr:
        return abs(y - t)

    def gradient(self, y: Expr, t: Expr) -> tuple[Expr, Expr]:
        return sign(y - t), -sign(y - t)

    def best_constant(self, target: Array, outputs: int, weights: Array | None = None) -> Array:
        """Return the median of each target."""
        return _quantile(target, weights, 0.5)


@dataclass(frozen=True)
class Huber(EntryLoss, name="huber"):
    """Squared error d**2 / 2 where abs(d) <= delta, and delta (abs(d) - delta / 2) elsewhere.

    Here d = output - target.  With c = d clipped to -delta and delta, the loss is c (2 d - c) / 2.
    Backward: d_output = dy * c / entries; d_target = -d_output.

    Source: Huber 1964, section 1.
    """

    delta: Annotated[Positive, "Error above which the loss is linear, in standardized units."] = 1.0

    def formula(self, y: Expr, t: Expr) -> Expr:
        near = clip(y - t, -self.delta, self.delta)
        return ((y - t) + (y - t) - near) * near * 0.5

    def gradient(self, y: Expr, t: Expr) -> tuple[Expr, Expr]:
        near = clip(y - t, -self.delta, self.delta)
        return near, -near


class LogCosh(EntryLoss, name="log_cosh"):
    """log(cosh(d)) with d = output - target: d**2 / 2 near d = 0, abs(d) - log(2) far from 0.

    Backward: d_output = dy * tanh(output - target) / entries; d_target = -d_output.
    """

    def formula(self, y: Expr, t: Expr) -> Expr:
        return softplus_tail((y - t) * 2) + abs(y - t) - log(2)

    def gradient(self, y: Expr, t: Expr) -> tuple[Expr, Expr]:
        return tanh(y - t), -tanh(y - t)


@dataclass(frozen=True)
class Quantile(EntryLoss, name="quantile"):
    """Pinball loss for quantiles: max(level * d, (level - 1) * d) with d = target - output.

    The losses of the levels are added for each entry of the target, then averaged over the entries.
    Shapes: output (batch, targets * levels), with the levels of a target in adjacent columns.  For
    a single level, output and target have the same shape (batch, ...).
    Backward: d_output = dy * (1 - level) / entries if the output is larger than the target,
    -dy * level / entries if it is smaller, and the mean of both values if they are equal.

    Source: Koenker and Bassett 1978, equation 2.1.
    """

    levels: Annotated[
        tuple[Annotated[float, Limits(above=0, below=1)], ...],
        "Share of targets below each predicted quantile; 0.5 is the median.",
    ] = (0.5,)

    def __post_init__(self) -> None:
        super().__post_init__()
        listed = ", ".join(map(str, self.levels))
        if not 1 <= len(self.levels) <= MAX_LEVELS:
            raise UsageError(f"{self.name}: levels must be 1 to {MAX_LEVELS} (got {listed})")
        if any(a >= b for a, b in pairwise(self.levels)):
            raise UsageError(f"{self.name}: levels must increase (got {listed})")

    @property
    def columns(self) -> int:
        """Number of output columns for each target."""
        return len(self.levels)

    @property
    def point(self) -> int:
        """Index of the level nearest to 0.5."""
        return min(range(len(self.levels)), key=lambda k: abs(self.levels[k] - 0.5))

    @property
    def predictions(self) -> Sequence[Prediction]:
        """The quantile of each level; if there are several levels, names end with the level."""
        suffixes = [f"_{level:.15g}" for level in self.levels] if self.columns > 1 else [""]
        quantiles = zip(suffixes, self.formulas.outputs, self.levels, strict=True)
        return [Prediction(suffix, y, level=level) for suffix, y, level in quantiles]

    def quantile(self, level: float) -> Expr | None:
        """Return the quantile for `level`, interpolated between the nearest of `levels`.

        Between two levels, the distribution is taken for normal.
        """
        ys, levels = self.formulas.outputs, self.levels
        if level in levels:
            return ys[levels.index(level)]
        k = bisect(levels, level)
        if not 0 < k < len(levels):
            return None
        low, high, own = map(NormalDist().inv_cdf, (levels[k - 1], levels[k], level))
        share = (own - low) / (high - low)
        return ys[k - 1] * (1 - share) + ys[k] * share

    def formula(self, *ys_and_t: Any) -> Any:
        *ys, t = ys_and_t
        terms = [
            maximum((t - y) * level, (t - y) * (level - 1))
            for y, level in zip(ys, self.levels, strict=True)
        ]
        return sum(terms[1:], terms[0])

    def best_constant(self, target: Array, outputs: int, weights: Array | None = None) -> Array:
        """Return the quantiles of each target."""
        return np.stack([_quantile(target, weights, level) for level in self.levels], 1).ravel()


def _quantile(target: Array, weights: Array | None, level: float) -> Array:
    """Return the weighted quantile of each column; if it is an interval, return its midpoint."""
    values = target.astype(np.float64)
    weights = np.ones(len(values)) if weights is None else weights
    order = np.argsort(values, axis=0)
    ascending = np.take_along_axis(values, order, 0)
    below = np.cumsum(weights[order], axis=0, dtype=np.float64)
    middle = below[-1] * level
    columns = np.arange(values.shape[1])
    first = np.argmax(below >= middle, axis=0)
    last = np.argmax(below > middle, axis=0)
    quantiles: Array = (ascending[first, columns] + ascending[last, columns]) / 2
    return quantiles


@dataclass(frozen=True)
class BinaryCrossEntropyWithLogits(EntryLoss, name="bce_with_logits"):
    """Binary cross-entropy for two classes, or for several labels.

    The loss is the mean over all entries of -(1 - t) log(1 - p) - positive_weight t log(p), with
    p = sigmoid(output).  A target t is 0, 1 or a probability.  Both logarithms are computed from
    log(1 + exp(-abs(output))), so nothing overflows or cancels.
    Backward: d_output = dy * (p - t + (positive_weight - 1) (p - 1) t) / entries;
    d_target = -dy * (output + (positive_weight - 1) log(p)) / entries.
    Raises: IndexRangeError in forward for a target outside 0 to 1, with its row and value.
    """

    tasks = ("classification", "multilabel")
    training_options = ("positive_weight",)
    target_range = (0.0, 1.0)

    positive_weight: Annotated[Positive, "Weight of positive targets."] = 1.0

    def formula(self, y: Expr, t: Expr) -> Expr:
        log_p, minus_log_q = _log_probabilities(y)
        return (1 - t) * minus_log_q - t * log_p * self.positive_weight

    def gradient(self, y: Expr, t: Expr) -> tuple[Expr, Expr]:
        log_p, _ = _log_probabilities(y)
        p, extra = exp(log_p), self.positive_weight - 1
        if not extra:
            return p - t, -y
        return p - t + (p - 1) * t * extra, -(log_p * extra + y)


@dataclass(frozen=True)
class BinaryFocal(EntryLoss, name="binary_focal"):
    """Focal loss for two classes, or for several labels.

    The loss is binary cross-entropy times (1 - c)**gamma.  c is the probability of the true class:
    p = sigmoid(output) for target 1, and 1 - p for target 0.  So confident correct predictions
    count less.  `alpha` multiplies the loss of target 1, and 1 - alpha the loss of target 0.
    Raises: IndexRangeError in forward for a target outside 0 to 1, with its row and value.

    Source: Lin et al. 2017, equation 5.
    """

    tasks = ("classification", "multilabel")
    target_range = (0.0, 1.0)

    gamma: Annotated[
        NonNegative, "Exponent of (1 - probability of the true class): 0, or at least 1."
    ] = 2.0
    alpha: Annotated[Share | None, "Weight of positive targets; negative ones get 1 - alpha."] = (
        0.25
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.gamma < 1:
            raise UsageError(f"{self.name}: gamma must be 0 or at least 1 (got {self.gamma:g})")

    def formula(self, y: Expr, t: Expr) -> Expr:
        log_p, minus_log_q = _log_probabilities(y)
        wrong = sigmoid(y) * (1 - t) + sigmoid(-y) * t
        loss = ((1 - t) * minus_log_q - t * log_p) * wrong**self.gamma
        if self.alpha is None:
            return loss
        return loss * (t * (2 * self.alpha - 1) + (1 - self.alpha))


@dataclass(frozen=True)
class Ordinal(EntryLoss, name="ordinal"):
    """Cross-entropy of ordered classes, summed over the thresholds between adjacent classes.

    Threshold k separates the classes up to k from the classes above k.  Its loss is
    -log(probability of the side with the target).  The probability of a side is the sum of the
    softmax probabilities of its classes.  So a prediction of a distant class costs more.
    Shapes: output (batch, classes), target (batch, 1) with class indices from 0 as floats.

    Source: McCullagh 1980, "Regression models for ordinal data" (cumulative logits); Frank and
    Hall 2001, "A simple approach to ordinal classification" (one binary problem per threshold).
    """

    tasks = ("classification",)

    classes: Annotated[Count, Given, "Number of classes."] = 2

    @property
    def columns(self) -> int:
        """Number of output columns, one for each class."""
        return self.classes

    @property
    def target_range(self) -> tuple[float, float]:  # type: ignore[override]
        """Range of targets that round to a class."""
        return -0.5, self.classes - 0.5

    @property
    def _limits(self) -> str:
        return f"lie in 0 to {self.classes - 1}"

    def of_classes(self, count: int) -> "Ordinal":
        return Ordinal(count)

    def formula(self, *ys_and_t: Any) -> Any:
        *ys, t = ys_and_t
        below = [*accumulate(ys[:-1], _logaddexp)]
        above = [*accumulate(ys[:0:-1], _logaddexp)][::-1]
        every = _logaddexp(below[-1], ys[-1])
        terms = [
            every - where(t < k + 0.5, low, high)
            for k, (low, high) in enumerate(zip(below, above, strict=True))
        ]
        return sum(terms, t - t)  # a missing target gives NaN

    def best_constant(self, target: Array, outputs: int, weights: Array | None = None) -> Array:
        """Return the logarithms of the classes' shares."""
        return _log(np.bincount(target[:, 0].astype(np.int64), weights, self.classes) / len(target))


def _logaddexp(a: Expr, b: Expr) -> Expr:
    """Return log(exp(a) + exp(b))."""
    return maximum(a, b) + softplus_tail(a - b)


def _log_probabilities(y: Expr) -> tuple[Expr, Expr]:
    """Return log(p) and -log(1 - p) for the logit y."""
    return minimum(y, 0) - softplus_tail(y), maximum(y, 0) + softplus_tail(y)


class MeanLoss(EntryLoss):
    """Base class of losses for outputs that are the logarithm of a mean."""

    target_range = (0.0, np.inf)

    def best_constant(self, target: Array, outputs: int, weights: Array | None = None) -> Array:
        """Return the logarithm of the mean of each target."""
        return _log(np.average(target.astype(np.float64), 0, weights))


class Poisson(MeanLoss, name="poisson"):
    """Predicts the mean of counts, or of other numbers that are at least 0.

    The loss is, up to a constant, the negative log-likelihood of a Poisson distribution:
    exp(output) - target * output, averaged over all entries.  The output is the logarithm of the
    mean.
    Backward: d_output = dy * (exp(output) - target) / entries.
    Raises: IndexRangeError in forward for a target below 0, with its row and value.
    """

    def formula(self, y: Expr, t: Expr) -> Expr:
        return exp(y) - t * y

    def deviance(self, target: Array, mean: Array) -> Array:
        deviance: Array = _xlog(target, mean) - 2 * (target - mean)
        return deviance


class Gamma(MeanLoss, name="gamma"):
    """Predicts the mean of positive numbers; penalizes relative errors.

    The loss is, up to a constant, the negative log-likelihood of a gamma distribution:
    output + target * exp(-output), averaged over all entries.  The output is the logarithm of the
    mean.
    Backward: d_output = dy * (1 - target * exp(-output)) / entries.
    Raises: IndexRangeError in forward for a target that is not positive, with its row and value.
    """

    open_below = True

    def formula(self, y: Expr, t: Expr) -> Expr:
        return y + t * exp(-y)

    def deviance(self, target: Array, mean: Array) -> Array:
        deviance: Array = 2 * (np.log(mean / target) + target / mean - 1)
        return deviance


@dataclass(frozen=True)
class Tweedie(MeanLoss, name="tweedie"):
    """Predicts the mean of amounts that are often exactly 0, such as claims or rainfall.

    The target is modeled as the sum of a Poisson number of gamma amounts, with variance
    mean**power.  The loss is, up to a constant, the negative log-likelihood:
    exp((2 - power) output) / (2 - power) + target exp((1 - power) output) / (power - 1), averaged
    over all entries.  The output is the logarithm of the mean.
    Raises: IndexRangeError in forward for a target below 0, with its row and value.

    Source: Jorgensen 1987, "Exponential dispersion models".
    """

    power: Annotated[
        float,
        Limits(above=1, below=2),
        "Exponent of the mean in the variance: near 1 for counts, near 2 for amounts.",
    ] = 1.5

    def formula(self, y: Expr, t: Expr) -> Expr:
        p = self.power
        return exp(y * (2 - p)) * (1 / (2 - p)) + t * exp(y * (1 - p)) * (1 / (p - 1))

    def deviance(self, target: Array, mean: Array) -> Array:
        p = self.power
        of_target: Array = target ** (2 - p) / ((1 - p) * (2 - p))
        return 2 * (of_target - target * mean ** (1 - p) / (1 - p) + mean ** (2 - p) / (2 - p))


@dataclass(frozen=True)
class NegativeBinomial(MeanLoss, name="negative_binomial"):
    """Predicts the mean of counts that vary more than Poisson counts.

    The variance is mean + dispersion * mean**2.  The loss is, up to a constant, the negative
    log-likelihood, averaged over all entries:
    (target + 1 / dispersion) log(1 + dispersion exp(output)) - target * output.
    The output is the logarithm of the mean.
    Backward: d_output = dy * ((target + 1 / dispersion) p - target) / entries, with
    p = sigmoid(output + log(dispersion)).
    Raises: IndexRangeError in forward for a target below 0, with its row and value.

    Source: Hilbe 2011, "Negative binomial regression", section 8.2 (NB2).
    """

    dispersion: Annotated[Positive, "(variance - mean) / mean**2."] = 1.0

    def formula(self, y: Expr, t: Expr) -> Expr:
        return (t + 1 / self.dispersion) * softplus(y + log(self.dispersion)) - t * y

    def deviance(self, target: Array, mean: Array) -> Array:
        wide, a = target + 1 / self.dispersion, self.dispersion
        beyond: Array = 2 * wide * np.log((1 + a * target) / (1 + a * mean))
        return _xlog(target, mean) - beyond


def _xlog(target: Array, mean: Array) -> Array:
    """Return 2 target log(target / mean), with 0 log 0 = 0."""
    positive = np.where(target > 0, target, 1)
    terms: Array = 2 * target * np.log(positive / mean)
    return terms


def _log(mean: Array) -> Array:
    """Return log(max(mean, SMALLEST_MEAN))."""
    logarithm: Array = np.log(np.maximum(mean, SMALLEST_MEAN))
    return logarithm


class GaussianNll(EntryLoss, name="gaussian_nll"):
    """Predicts the mean and the standard deviation of the target.

    The loss is, up to a constant, the negative log-likelihood of a normal distribution:
    (s + (mean - target)**2 exp(-s)) / 2, averaged over all entries of the target.
    Shapes: output (batch, 2 * targets), with mean and s = log(variance) for each target; target
    (batch, targets).
    Source: Nix and Weigend 1994, equation 2.
    """

    def formula(self, mean: Expr, s: Expr, t: Expr) -> Expr:
        return (s + (mean - t) * (mean - t) * exp(-s)) * 0.5

    def best_constant(self, target: Array, outputs: int, weights: Array | None = None) -> Array:
        """Return the mean and the logarithm of the variance of each target."""
        wide = target.astype(np.float64)
        mean = np.average(wide, 0, weights)
        return np.stack([mean, _log(np.average(np.square(wide - mean), 0, weights))], 1).ravel()

    @property
    def predictions(self) -> Sequence[Prediction]:
        """The mean and the standard deviation."""
        mean, s = self.formulas.outputs
        return [Prediction("", mean), Prediction("_std", exp(s * 0.5), location=False)]

    def quantile(self, level: float) -> Expr:
        mean, s = self.formulas.outputs
        return mean + exp(s * 0.5) * NormalDist().inv_cdf(level)


@dataclass(frozen=True)
class FormulaLoss(EntryLoss, name="formula"):
    """The mean over entries of a formula of output y and target t, such as ``abs(y - t) ** 1.5``.

    Backward: d_output = dy * (derivative by y) / entries, d_target = dy * (derivative by t) /
    entries.
    Raises: FormulaError if the text is not a formula or does not depend on y.
    """

    tasks = ("classification", "multilabel", "regression")

    text: Annotated[
        str,
        ConfigKey("formula"),
        "Loss as a formula of output y (standardized, or a logit) and target t: abs(y - t) ** 1.5.",
    ]

    def __post_init__(self) -> None:
        parse_number(self.text, ["y", "t"])

    def formula(self, y: Expr, t: Expr) -> Expr:
        return parse_number(self.text, [str(y.leaf), str(t.leaf)])


class MeanOutput(EntryLoss, name="mean_output"):
    """The mean of an output that is itself a loss, such as a penalty; there is no target.

    A `TrainingStep` needs at least one other loss beside this loss.
    Backward: d_output = dy / entries.
    """

    tasks = ()
    takes_target = False

    def formula(self, y: Expr, t: Expr) -> Expr:
        return y * 1
