"""Rows of losses: sums of `scipy.special` and NumPy formulas, entry by entry, in float64."""

import numpy as np
from case import Case, away_from, normal, positive
from scipy import special, stats
from sklearn import metrics

from mlpengine.ops import (
    BinaryCrossEntropyWithLogits,
    BinaryFocal,
    FormulaLoss,
    Gamma,
    GaussianNll,
    Huber,
    KnownTargets,
    LogCosh,
    MeanAbsoluteError,
    MeanOutput,
    MeanSquaredError,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Quantile,
    SoftmaxCrossEntropy,
    Survival,
    Tweedie,
)


def mean(entries, weight=None):
    """Weight rows, sum, and divide by the number of entries and by nothing else."""
    entries = np.asarray(entries)
    if weight is not None:
        entries = entries * weight.reshape(-1, *(1,) * (entries.ndim - 1))
    return np.sum(entries) / max(entries.size, 1)


def powers(output, target, weight=None):
    return mean(np.abs(output - target) ** 1.5, weight)


def huber(delta):
    return lambda output, target, weight=None: mean(special.huber(delta, output - target), weight)


def binary(positive_weight=1.0):
    def value(x, t, weight=None):
        losses = -positive_weight * t * special.log_expit(x) - (1 - t) * special.log_expit(-x)
        return mean(losses, weight)

    return value


def cross_entropy(class_weights=None, label_smoothing=0.0, ignore_index=None):
    def value(output, target, weight=None):
        classes = output.shape[1]
        total = 0.0
        for i, (logits, t) in enumerate(zip(output, target, strict=True)):
            if t.ndim == 0 and t == ignore_index:
                continue
            q = np.eye(classes)[t] if t.ndim == 0 else t
            q = (1 - label_smoothing) * q + label_smoothing / classes
            q = q if class_weights is None else q * np.array(class_weights)
            row = -np.sum(q * special.log_softmax(logits))
            total += row if weight is None else weight[i] * row
        return total / max(len(output), 1)

    return value


def distance_rows(name, op, formula, kinks, **fields):
    def make(n, *shape, weighted=False):
        target = normal(n, *shape)
        output = target + away_from(kinks, n, *shape, 1).reshape(n, *shape)
        return (output, target, positive(n)) if weighted else (output, target)

    rows = {
        "": lambda n: make(n, 3),
        " of one column": lambda n: make(n, 1),
        " of 4 axes, weighted": lambda n: make(n, 2, 1, 3, weighted=True),
        " of 0 axes": lambda n: (away_from(kinks, 1)[0] + normal(), normal()),
    }
    return [Case(name + k, op, m, formula, empty=False, **fields) for k, m in rows.items()]


def labels(classes, n):
    return np.random.default_rng(n).integers(0, classes, n)


def probabilities(classes, n):
    return special.softmax(normal(n, classes), axis=1)


def by_class(name, classes=4, *, weighted=False, soft=False, labels=labels, **options):
    """A row of the cross entropy with class indices, or with `soft` probabilities."""

    def make(n):
        target = probabilities(classes, n) if soft else labels(classes, n)
        operands = (3 * normal(n, classes), target)
        return (*operands, positive(n)) if weighted else operands

    return Case(
        f"softmax_cross_entropy {name}",
        SoftmaxCrossEntropy(**options),
        make,
        cross_entropy(**options),
        extremes=(1e-30, 1e30),
        scaled=1,
        empty=False,
        memory_rows=(16384, 32768) if classes < 100 else (256, 1024),
    )


def ignoring(index):
    def draw(classes, n):
        found = labels(classes, n)
        found[::2] = index
        return found

    return draw


def logits(name, op, formula, *shape, weighted=False):
    def make(n):
        target = special.expit(normal(n, *shape, 1))[..., 0]
        operands = (3 * normal(n, *shape), target)
        return (*operands, positive(n)) if weighted else operands

    return Case(name, op, make, formula, extremes=(1e-30, 1e30), scaled=1, empty=False)


def focal(gamma, alpha):
    def value(x, t, weight=None):
        p = special.expit(x)
        entropy = -t * special.log_expit(x) - (1 - t) * special.log_expit(-x)
        balance = 1 if alpha is None else alpha * t + (1 - alpha) * (1 - t)
        return mean(balance * (1 - (p * t + (1 - p) * (1 - t))) ** gamma * entropy, weight)

    return value


def pinball(output, target, weight=None):
    d = target[:, :, None] - output.reshape(*target.shape, 3)
    levels = np.array([0.1, 0.5, 0.9])
    return mean(np.where(d > 0, levels * d, (levels - 1) * d).sum(axis=2), weight)


def gaussian(output, target, weight=None):
    center, s = output.reshape(*target.shape, 2).transpose(2, 0, 1)
    return mean(-stats.norm.logpdf(target, center, np.exp(s / 2)) - np.log(2 * np.pi) / 2, weight)


def several(name, op, formula, columns, *, weighted=False):
    """A row of a loss with several columns of the output for each of two targets."""

    def make(n):
        operands = (normal(n, 2 * columns), 3 * normal(n, 2) + 0.01)
        return (*operands, positive(n)) if weighted else operands

    return Case(name, op, make, formula, rtol=1e-4, extremes=(1e-12, 1e3), scaled=0, empty=False)


def of_positive(name, op, formula):
    make = lambda n: (normal(n, 3), positive(n, 3))  # noqa: E731
    return Case(name, op, make, formula, extremes=(1e-12, 10), empty=False)


def ordered(name, classes, *, weighted=False):
    """A row of class indices as floats: binary cross-entropies of softmax sums."""

    def make(n):
        operands = (normal(n, classes), np.resize(np.arange(classes) * 1.0, (n, 1)))
        return (*operands, positive(n)) if weighted else operands

    def formula(y, t, w=None):
        below = np.cumsum(special.softmax(y, 1), 1)[:, :-1]
        sides = np.where(t <= np.arange(classes - 1), below, 1 - below)
        return mean(-np.log(sides).sum(1), w)

    return Case(name, Ordinal(classes), make, formula, extremes=(1e-12, 1e3), scaled=1, empty=False)


def tweedie(y, t, w=None, p=1.3):
    """Return half the deviance from the mean exp(y) without the terms of the target alone."""
    of_target = t ** (2 - p) / ((1 - p) * (2 - p))
    pairs = zip(np.ravel(t), np.exp(np.ravel(y)), strict=True)
    d = [metrics.mean_tweedie_deviance([a], [b], power=p) for a, b in pairs]
    return mean(np.reshape(d, np.shape(t)) / 2 - of_target, w)


def negative_binomial(y, t, w=None, r=1 / 0.4):
    """Return minus the log density without the binomial coefficient and r log(r)."""
    return mean((t + r) * np.log(r + np.exp(y)) - t * y - (t + r) * np.log(r), w)


TIMES = {
    "lognormal": lambda y, s: stats.lognorm(np.exp(s), scale=np.exp(y)),
    "weibull": lambda y, s: stats.weibull_min(np.exp(-s), scale=np.exp(y)),
    "loglogistic": lambda y, s: stats.fisk(np.exp(-s), scale=np.exp(y)),
}


def times(distribution, *, weighted=False):
    """Rows of times, seen, censored, between bounds: minus the log of density or of the chance."""

    def make(n):
        t = positive(n, 4) * np.where(np.arange(4 * n) % 3, 1, -1).reshape(n, 4)
        t[:, 1::2] = np.abs(t[:, ::2]) + np.abs(t[:, 1::2])
        t[::2, 3] = np.inf
        operands = (0.5 * normal(n, 4), t)
        return (*operands, positive(n)) if weighted else operands

    def formula(output, t, w=None):
        of = TIMES[distribution](output[:, ::2], output[:, 1::2])
        seen, t, last = t[:, ::2] > 0, np.abs(t[:, ::2]), t[:, 1::2]
        chances = np.where(of.sf(t) < 0.5, of.sf(t) - of.sf(last), of.cdf(last) - of.cdf(t))
        return mean(-np.where(seen, of.logpdf(t) + np.log(t), np.log(chances)), w)

    name, op = f"survival {distribution}{' weighted' * weighted}", Survival(distribution)
    return Case(name, op, make, formula, rtol=1e-4, extremes=(1e-3, 2.0), scaled=0, empty=False)


WEIGHTS = (0.5, 2.0, 1.0, 0.25)

CASES = [
    *distance_rows("mse", MeanSquaredError(), lambda y, t, w=None: mean((y - t) ** 2, w), []),
    *distance_rows(
        "mae",
        MeanAbsoluteError(),
        lambda y, t, w=None: mean(np.abs(y - t), w),
        [0],
        rtol=1e-4,
    ),
    *distance_rows("huber", Huber(), huber(1.0), [-1, 1], rtol=1e-4),
    *distance_rows("formula: a power", FormulaLoss("abs(y - t) ** 1.5"), powers, [0], rtol=1e-4),
    *distance_rows("known targets", KnownTargets(Huber()), huber(1.0), [-1, 1], rtol=1e-4),
    logits("formula of logits", FormulaLoss("softplus(y) - t * y"), binary(), 3),
    logits("bce_with_logits", BinaryCrossEntropyWithLogits(), binary(), 3),
    logits("bce_with_logits of a vector", BinaryCrossEntropyWithLogits(), binary()),
    logits("bce_with_logits weighted", BinaryCrossEntropyWithLogits(), binary(), 3, weighted=True),
    logits("bce_with_logits of rare positives", BinaryCrossEntropyWithLogits(2.5), binary(2.5), 3),
    *distance_rows(
        "log_cosh",
        LogCosh(),
        lambda y, t, w=None: mean(np.logaddexp(y - t, t - y) - np.log(2), w),
        [],
        gradient_tolerance=1e-3,
    ),
    *distance_rows(
        "quantile",
        Quantile((0.9,)),
        lambda y, t, w=None: mean(np.where(t > y, 0.9 * (t - y), 0.1 * (y - t)), w),
        [0],
        rtol=1e-4,
    ),
    several("quantile of 3 levels", Quantile((0.1, 0.5, 0.9)), pinball, 3),
    several("quantile of 3 levels, weighted", Quantile((0.1, 0.5, 0.9)), pinball, 3, weighted=True),
    several("gaussian_nll", GaussianNll(), gaussian, 2),
    several("gaussian_nll weighted", GaussianNll(), gaussian, 2, weighted=True),
    logits("mean_output", MeanOutput(), lambda y, t, w=None: mean(y, w), 3),
    logits("mean_output weighted", MeanOutput(), lambda y, t, w=None: mean(y, w), 3, weighted=True),
    of_positive("poisson", Poisson(), lambda y, t, w=None: mean(np.exp(y) - t * y, w)),
    of_positive("gamma", Gamma(), lambda y, t, w=None: mean(y + t / np.exp(y), w)),
    ordered("ordinal", 4),
    ordered("ordinal weighted", 3, weighted=True),
    *map(times, TIMES),
    times("lognormal", weighted=True),
    of_positive("tweedie", Tweedie(1.3), tweedie),
    of_positive("negative_binomial", NegativeBinomial(0.4), negative_binomial),
    logits("binary_focal", BinaryFocal(), focal(2.0, 0.25), 3),
    logits("binary_focal weighted", BinaryFocal(1.0, None), focal(1.0, None), 3, weighted=True),
    logits("binary_focal of gamma 0", BinaryFocal(0.0, 0.6), focal(0.0, 0.6), 2),
    by_class("of classes"),
    by_class("of 40 classes", 40),
    by_class("of 300 classes", 300, label_smoothing=0.1, class_weights=(0.5, 2.0, 1.0) * 100),
    by_class("smoothed", label_smoothing=0.1),
    by_class("by class weights", class_weights=WEIGHTS),
    by_class(
        "smoothed by class weights", class_weights=WEIGHTS, label_smoothing=0.2, weighted=True
    ),
    by_class("without class 2", ignore_index=2),
    by_class("without -100", ignore_index=-100, labels=ignoring(-100), class_weights=WEIGHTS),
    by_class("without 300 of 300", 300, ignore_index=300, labels=ignoring(300), weighted=True),
    by_class("of probabilities", soft=True),
    by_class("of probabilities, weighted", soft=True, weighted=True),
    by_class("of smoothed probabilities", soft=True, label_smoothing=0.1, class_weights=WEIGHTS),
]
