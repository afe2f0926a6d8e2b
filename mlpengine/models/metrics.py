"""Metrics over all rows of a split, computed in float64.

Every function takes the targets and predictions of all rows, and optional row weights.  The values
equal scikit-learn's.  Docstrings state the result where scikit-learn warns or raises.

Shapes: class targets (rows,) of class indices; multi-label targets (rows, labels) of 0 and 1;
probabilities (rows, classes), (rows, labels) or (rows,) for the positive class alone; regression
targets and predictions (rows,) or (rows, outputs).
"""

from collections.abc import Callable, Iterable
from inspect import signature
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array
from mlpengine.core.wording import quoted
from mlpengine.models import censored

PredictionKind = Literal["labels", "probabilities", "numbers"]
"""Kind of predictions that a metric compares with targets.

"labels" are class indices, or 0 and 1 for each label; "numbers" are in the target's units.
"""

MetricFunction = Callable[[Array, Array, Array | None], float]

HIGHER_IS_BETTER = frozenset(
    {"accuracy", "balanced_accuracy", "macro_f1", "weighted_f1", "roc_auc", "average_precision"}
    | {"recall", "precision", "r2", "concordance", "quadratic_kappa", "deviance_explained"}
)
"""First words of the names of metrics that are better when higher."""

INFLUENCES = frozenset(
    {"accuracy", "macro_f1", "roc_auc", "log_loss", "cost", "mae", "rmse", "r2", "concordance"}
)
"""Metrics that `influences` knows."""

CALIBRATION_BINS = 15
"""Number of bins of `calibration_error`."""

OWN_METRICS: dict[str, "OwnMetric"] = {}
"""The metrics that `metric` registered, by name."""


class OwnMetric(NamedTuple):
    """A user's metric: a function of targets, predictions and weights."""

    function: MetricFunction
    of: PredictionKind
    higher_is_better: bool


def metric(
    function: None = None, /, *, of: PredictionKind = "numbers", higher_is_better: bool = False
) -> Callable[[MetricFunction], MetricFunction]:
    """Register a function as a metric, under the function's name, in this process.

    The function takes the targets of all rows, the predictions of the kind `of`, and the row
    weights (rows,) or None.  Shapes: numbers (rows, targets); classes are indices (rows,), and
    probabilities (rows, classes).  Evaluations show it, and early stopping may watch it.

    >>> @metric(of="numbers", higher_is_better=True)
    ... def within_a_tenth(target, predicted, weight=None):
    ...     return float(np.average(abs(predicted - target) < 0.1 * abs(target), weights=weight))

    Raises: UsageError for the name of another metric, or for a function with other arguments.
    """
    if function is not None:
        raise UsageError('metric: write @metric() or @metric(of="numbers"), with parentheses')
    if of not in (kinds := get_args(PredictionKind)):
        raise UsageError(f"metric: of must be one of {', '.join(kinds)} (got {of!r})")
    if not isinstance(higher_is_better, bool):
        text = f"must be True or False (got {quoted(higher_is_better)})"
        raise UsageError(f"metric: higher_is_better {text}")

    def register(function: MetricFunction) -> MetricFunction:
        name = getattr(function, "__name__", "")
        if not name.isidentifier():
            raise UsageError(f"metric: needs a function with a name (got {quoted(function)})")
        known = OWN_METRICS.get(name)
        same = known and known.function.__module__ == function.__module__
        if not same and (known or name in HIGHER_IS_BETTER or name in globals() or name == "loss"):
            raise UsageError(f"metric: another one has this name ({name!r})")
        try:
            signature(function).bind(None, None, None)
        except TypeError:
            text = f"must take targets, predictions and weights (got {name}{signature(function)})"
            raise UsageError(f"metric {name}: {text}") from None
        OWN_METRICS[name] = OwnMetric(function, of, higher_is_better)
        return function

    return register


def higher_is_better(name: str) -> bool:
    """Return whether a metric is better when higher."""
    name = name.split(" ")[0]  # such as "accuracy of class"
    own = OWN_METRICS.get(name)
    return own.higher_is_better if own else name in HIGHER_IS_BETTER


def accuracy(target: Array, predicted: Array, weight: Array | None = None) -> float:
    """Return the share of rows with a correct prediction: for multi-label, of all their labels."""
    right = target == predicted
    return _mean(right if right.ndim == 1 else right.all(axis=1), weight)


def balanced_accuracy(target: Array, predicted: Array, weight: Array | None = None) -> float:
    """Return the mean recall of the classes that the targets contain."""
    hits, _, actual = _counts(target, predicted, weight)
    known = actual > 0
    return float(np.mean(hits[known] / actual[known])) if known.any() else float("nan")


def f1(
    target: Array,
    predicted: Array,
    weight: Array | None = None,
    *,
    average: Literal["macro", "weighted"] = "macro",
) -> float:
    """Return the mean of 2 TP / (2 TP + FP + FN) over the classes in targets and predictions.

    The mean is plain (macro), or weighted by the rows of each class (weighted).  The score of a
    class without correct predictions, or only with rows of weight 0, is 0.  For a multi-label
    target, the mean is over all labels.
    """
    hits, predictions, actual = _counts(target, predicted, weight)
    total = predictions + actual
    scores = np.divide(2.0 * hits, total, out=np.zeros_like(hits), where=total > 0)
    if average == "weighted":
        return float(np.average(scores, weights=actual)) if actual.any() else 0.0
    if target.ndim == 1:
        known = np.zeros(len(scores), bool)
        known[target] = known[predicted] = True
        scores = scores[known]
    return float(scores.mean())


def confusion_matrix(
    target: Array, predicted: Array, classes: int, weight: Array | None = None
) -> Array:
    """Return the number, or weight, of rows of class i (axis 0) predicted as class j (axis 1)."""
    cell = target.astype(np.int64) * classes + predicted
    return np.bincount(cell, weight, minlength=classes * classes).reshape(classes, classes)


def log_loss(target: Array, probabilities: Array, weight: Array | None = None) -> float:
    """Return the mean negative log probability of the true class, in nats.

    Probabilities are clipped to [eps, 1 - eps] with eps = 2**-52, so that the value is finite.  For
    a multi-label target, the result is the mean of the labels' log losses.
    """
    return _mean(log_losses(target, probabilities), weight)


def log_losses(target: Array, probabilities: Array) -> Array:
    """Return the negative log probability (rows,) of each row's true class, as in `log_loss`."""
    eps, chance = np.finfo(np.float64).eps, np.asarray(probabilities)
    of_classes = target.ndim == 1 and chance.ndim == 2
    if of_classes:
        chance = np.take_along_axis(chance, target[:, None], axis=1)[:, 0]
    chance = np.clip(chance.astype(np.float64), eps, 1.0 - eps)
    if of_classes:
        return np.asarray(-np.log(chance))
    losses = -np.where(target > 0, np.log(chance), np.log1p(-chance))
    return losses if losses.ndim == 1 else np.asarray(losses.mean(axis=1))


def roc_auc(target: Array, probabilities: Array, weight: Array | None = None) -> float:
    """Return the area under the ROC curve: the plain mean over classes, each against the rest.

    Two classes have one ROC curve, by the probability of class 1.  A class or label without rows,
    or with all rows, is left out.  The result is NaN if no class is left.
    """
    return _mean_of_classes(_area, target, probabilities, weight)


def precision(target: Array, predicted: Array, weight: Array | None = None) -> Array:
    """Return, per class or label, the share of correct predictions; 0 if it is never predicted."""
    hits, predictions, _ = _counts(target, predicted, weight)
    return np.divide(hits, predictions, out=np.zeros_like(hits), where=predictions > 0)


def recall(target: Array, predicted: Array, weight: Array | None = None) -> Array:
    """Return, per class or label, the share of its rows predicted correctly; 0 if it has none."""
    hits, _, actual = _counts(target, predicted, weight)
    return np.divide(hits, actual, out=np.zeros_like(hits), where=actual > 0)


def average_precision(target: Array, probabilities: Array, weight: Array | None = None) -> float:
    """Return the sum over all thresholds of precision times the rise of recall.

    The result is the plain mean over classes (each against the rest) or labels; for two classes,
    class 1 alone.  A class or label without rows is left out.  The result is NaN if none is left.
    """
    return _mean_of_classes(_average_precision, target, probabilities, weight)


def cost(
    target: Array,
    predicted: Array,
    weight: Array | None = None,
    *,
    positive: int = 1,
    costs: tuple[float, float] = (1.0, 1.0),
) -> float:
    """Return the mean cost per row; `costs` are for a false negative and a false positive."""
    return _mean(row_costs(target, predicted, positive, costs), weight)


def row_costs(target: Array, predicted: Array, positive: int, costs: tuple[float, float]) -> Array:
    """Return the cost (rows,) of each prediction, as in `cost`."""
    false_negative, false_positive = costs
    is_positive, taken = target == positive, predicted == positive
    each: Array = false_negative * (is_positive & ~taken) + false_positive * (~is_positive & taken)
    return each.astype(np.float64, copy=False)


def brier(target: Array, probabilities: Array, weight: Array | None = None) -> float:
    """Return the mean squared error of the probabilities.

    For two classes, this is the error of class 1; for more classes, the sum over the classes; for
    labels, the mean over the labels.
    """
    chance = np.asarray(probabilities, np.float64)
    if target.ndim == 1 and chance.ndim == 2:
        if chance.shape[1] == 2:
            return _mean((chance[:, 1] - target) ** 2, weight)
        hot = np.equal(target[:, None], np.arange(chance.shape[1]))
        return _mean(((chance - hot) ** 2).sum(axis=1), weight)
    return _mean(_columns((chance - target) ** 2).mean(axis=1), weight)


def calibration_error(target: Array, probabilities: Array, weight: Array | None = None) -> float:
    """Return the mean absolute difference of probability and frequency in bins of equal width.

    For two classes, the bins are of the probability of class 1; for labels, of each label's
    probability (the mean over the labels is returned); for more classes, of the probability of the
    predicted class.

    Source: Guo et al. 2017, arXiv 1706.04599, equation 3.
    """
    chance, happened = np.asarray(probabilities, np.float64), target > 0.5
    if target.ndim == 1 and chance.ndim == 2:
        if chance.shape[1] != 2:
            happened = chance.argmax(axis=1) == target
        chance = chance[:, 1] if chance.shape[1] == 2 else chance.max(axis=1)
    chance, gaps = _columns(chance), _columns(happened) - _columns(chance)
    mass = np.ones(len(chance)) if weight is None else np.asarray(weight, np.float64)
    bins = np.clip(np.ceil(chance * CALIBRATION_BINS).astype(np.int64) - 1, 0, None)
    sums = [np.bincount(k, mass * gap) for k, gap in zip(bins.T, gaps.T, strict=True)]
    return float(np.mean([np.abs(one).sum() for one in sums]) / mass.sum())


def on_known(function: Callable[..., float], target: Array, *others: Any) -> float:
    """Return ``function(target, *others)``, for targets (rows, targets) that may be missing (NaN).

    If a target is missing, `function` is computed for each column of targets, over the rows with a
    target, and the mean over columns is returned.  Without any target, the result is NaN.  `others`
    are predictions (rows, targets), weights (rows,) or options.
    """
    if target.ndim != 2 or target.dtype.kind != "f" or not (gaps := np.isnan(target)).any():
        return function(target, *others)
    values = []
    for k in np.flatnonzero(~gaps.all(axis=0)):
        rows = ~gaps[:, k]
        own = (x[rows, k] if np.ndim(x) == 2 else x[rows] if np.ndim(x) else x for x in others)
        values.append(function(target[rows, k], *own))
    return float(np.mean(values)) if values else float("nan")


def mape(target: Array, predicted: Array, weight: Array | None = None) -> float:
    """Return the mean absolute error as a share of the target; NaN if a target is 0."""
    target, predicted = _columns(target), _columns(predicted)
    if not target.all():
        return float("nan")
    return _mean(np.abs((target - predicted) / target).mean(axis=1), weight)


def rmsle(target: Array, predicted: Array, weight: Array | None = None) -> float:
    """Return the root mean squared difference of log(1 + value), averaged over outputs.

    NaN if a target or a prediction is -1 or less.
    """
    target, predicted = _columns(target), _columns(predicted)
    if min(target.min(initial=0), predicted.min(initial=0)) <= -1:
        return float("nan")
    return rmse(np.log1p(target), np.log1p(predicted), weight)


def class_mae(target: Array, predicted: Array, weight: Array | None = None) -> float:
    """Return the mean absolute difference of predicted and true class indices (ordered classes)."""
    return _mean(np.abs(target - predicted).astype(np.float64), weight)


def quadratic_kappa(target: Array, predicted: Array, weight: Array | None = None) -> float:
    """Return Cohen's kappa of ordered classes with squared distances; NaN for a single class.

    1 is perfect; 0 is the expected agreement if the predictions are put into a random order.

    Source: Cohen 1968, "Weighted kappa".
    """
    rows = np.ones(len(target)) if weight is None else np.asarray(weight, np.float64)
    shift = np.average(target, weights=rows) - np.average(predicted, weights=rows)
    spread = np.average((target - np.average(target, weights=rows)) ** 2, weights=rows)
    spread += np.average((predicted - np.average(predicted, weights=rows)) ** 2, weights=rows)
    apart = np.average((target - predicted) ** 2, weights=rows)
    by_chance = spread + shift**2
    kappa = float(1 - apart / by_chance) if by_chance > 0 else float("nan")
    return 0.0 if abs(kappa) < 1e-12 else kappa  # rounding, if all targets are equal


def r2(target: Array, predicted: Array, weight: Array | None = None) -> float:
    """Return 1 - residual / total sum of squares, as a plain mean over outputs.

    Outputs with equal targets in all rows are left out.  The result is NaN if none is left.
    """
    target, predicted = _columns(target), _columns(predicted)
    rows = np.ones(len(target)) if weight is None else np.asarray(weight, np.float64)
    used = varies(target, weight)
    if not used.any():
        return float("nan")
    target, predicted = target[:, used], predicted[:, used]
    total = rows @ (target - np.average(target, axis=0, weights=rows)) ** 2
    return float((1.0 - rows @ (target - predicted) ** 2 / total).mean())


def varies(target: Array, weight: Array | None = None) -> Array:
    """Return for each column whether it has several values, besides NaN and rows of weight 0."""
    used = target if weight is None else target[weight > 0]
    return np.asarray(np.fmin.reduce(used, initial=np.nan) < np.fmax.reduce(used, initial=np.nan))


def mae(target: Array, predicted: Array, weight: Array | None = None) -> float:
    """Return the mean absolute error, in the target's units."""
    return _mean(np.abs(_columns(target) - _columns(predicted)).mean(axis=1), weight)


def rmse(target: Array, predicted: Array, weight: Array | None = None) -> float:
    """Return the root mean squared error in the target's units, as a plain mean over outputs."""
    squares = (_columns(target) - _columns(predicted)) ** 2
    return float(np.sqrt(np.average(squares, axis=0, weights=weight)).mean())


def gaussian_nll(
    target: Array, mean: Array, deviation: Array, weight: Array | None = None
) -> float:
    """Return the mean negative log density of normal distributions, in nats."""
    t, m, s = _columns(target), _columns(mean), _columns(deviation)
    with np.errstate(all="ignore"):
        losses = ((t - m) / s) ** 2 / 2 + np.log(s) + np.log(2 * np.pi) / 2
    return _mean(losses.mean(axis=1), weight)


def pinball(target: Array, predicted: Array, level: float, weight: Array | None = None) -> float:
    """Return the mean of max(level * d, (level - 1) * d), where d is target minus prediction."""
    d = _columns(target) - _columns(predicted)
    return _mean(np.maximum(level * d, (level - 1) * d).mean(axis=1), weight)


def share_below(target: Array, predicted: Array, weight: Array | None = None) -> float:
    """Return the share of targets that are below or equal to the prediction."""
    return _mean((_columns(target) <= _columns(predicted)).mean(axis=1), weight)


def _mean(values: Array, weight: Array | None) -> float:
    if len(values) == 0:
        return float("nan")
    return float(values.mean() if weight is None else np.average(values, weights=weight))


def _columns(values: Array) -> Array:
    values = np.asarray(values, np.float64)
    return values.reshape(len(values), -1)


def commonest_mistakes(target: Array, predicted: Array, count: int) -> list[tuple[int, int, int]]:
    """Return (class, predicted class, number of rows) of the `count` commonest mistakes.

    Equally common mistakes are in the order of class indices.
    """
    wrong, classes = target != predicted, int(predicted.max(initial=0)) + 1
    cells, rows = np.unique(target[wrong] * classes + predicted[wrong], return_counts=True)
    order = np.argsort(-rows, kind="stable")[:count]
    pairs = zip(cells[order].tolist(), rows[order].tolist(), strict=True)
    return [(*divmod(cell, classes), number) for cell, number in pairs]


def _counts(target: Array, predicted: Array, weight: Array | None) -> tuple[Array, Array, Array]:
    """Return the weights of correct predictions, predictions and rows of each class or label."""
    if target.ndim == 2:
        rows = np.ones(len(target)) if weight is None else np.asarray(weight, np.float64)
        return rows @ ((target > 0) & (predicted > 0)), rows @ (predicted > 0), rows @ (target > 0)
    size = int(max(target.max(initial=-1), predicted.max(initial=-1))) + 1
    rows = np.ones(len(target)) if weight is None else np.asarray(weight, np.float64)
    right = target == predicted
    hits = np.bincount(target[right], rows[right], minlength=size).astype(np.float64)
    predictions = np.bincount(predicted, rows, minlength=size)
    return hits, predictions, np.bincount(target, rows, minlength=size)


def _mean_of_classes(
    measure: Callable[[Array, Array], float],
    target: Array,
    probabilities: Array,
    weight: Array | None,
) -> float:
    """Apply `measure` to `counts_above` of each class or label; return the mean without NaN."""
    pairs = _pairs(target, np.asarray(probabilities))
    values = [measure(*counts_above(is_own, score, weight)) for is_own, score in pairs]
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _pairs(target: Array, scores: Array) -> Iterable[tuple[Array, Array]]:
    """Return, for each class or label, the mask of its rows, and the scores of all rows."""
    if target.ndim == 2:
        return zip(target.T > 0, scores.T, strict=True)
    if scores.ndim == 1:  # the positive class
        return [(target > 0, scores)]
    first = 1 if scores.shape[1] == 2 else 0
    return ((target == k, scores[:, k]) for k in range(first, scores.shape[1]))


def counts_above(positive: Array, score: Array, weight: Array | None) -> tuple[Array, Array]:
    """Return the weights of true and of false positives, from the highest threshold down."""
    score = score.astype(np.float64)
    order = np.argsort(-score)
    weights = np.ones(len(order)) if weight is None else np.asarray(weight, np.float64)[order]
    is_last = np.diff(score[order], append=-np.inf) != 0  # last of equal scores
    hits = positive[order]
    return np.cumsum(weights * hits)[is_last], np.cumsum(weights * ~hits)[is_last]


def _average_precision(true: Array, false: Array) -> float:
    if not len(true) or true[-1] == 0:
        return float("nan")
    rise = np.diff(true, prepend=0.0)
    return float(
        np.divide(rise * true, true + false, where=rise > 0, out=rise * 0).sum() / true[-1]
    )


def influences(name: str, target: Array, given: Array, weight: Array | None = None) -> Array:
    """Return the derivatives (rows,) of a metric in `INFLUENCES` by the weights of rows.

    `given` are predictions, or probabilities for ROC AUC, or the cost or log loss of each row.  The
    result is the derivatives times the sum of the weights, plus a constant.  If the metric is a
    mean over rows, the result is the value of each row.

    Sources: Efron 1982, "The jackknife, the bootstrap and other resampling plans", chapter 6;
    DeLong, DeLong and Clarke-Pearson 1988 for ROC AUC.
    """
    if name == "concordance":
        return censored.concordance_influences(target[:, 0], given[:, 0], weight, target[:, 1])
    rows = np.ones(len(target)) if weight is None else np.asarray(weight, np.float64)
    with np.errstate(all="ignore"):
        if name in ("cost", "log_loss", "pinball"):
            return given
        if name == "accuracy":
            return np.asarray(_columns(target == given).min(axis=1))
        if name == "roc_auc":
            each = [_area_influences(*pair, rows) for pair in _pairs(target, given)]
            known = [one for one in each if not np.isnan(one).all()]
            return np.asarray(np.mean(known or each, axis=0))
        if name == "macro_f1":
            return _f1_influences(target, given, rows)
        return _error_influences(name, _columns(target), _columns(given), rows)


def _f1_influences(target: Array, predicted: Array, rows: Array) -> Array:
    hits, predictions, actual = _counts(target, predicted, rows)
    total = predictions + actual
    by_row = np.where(total > 0, 1 / total, 0.0) * rows.sum()
    scores = np.where(total > 0, 2 * hits / total, 0.0)
    if target.ndim == 2:
        labels, chosen = target > 0, predicted > 0
        change = by_row * (labels.astype(int) + chosen) * ((labels & chosen) - scores)
        return np.asarray(change.mean(axis=1))
    right, change = target == predicted, np.zeros(len(target))
    for classes in (target, predicted):  # exactly 0 if all scores are 1
        change += by_row[classes] * (right - scores[classes])
    return np.asarray(change / len(np.union1d(target, predicted)))


def _area_influences(positive: Array, score: Array, rows: Array) -> Array:
    """Return, for each row, the scaled share of correctly ordered pairs with the other class."""
    result = np.empty(len(rows))
    for own, sign in ((positive, 1.0), (~positive, -1.0)):
        order = np.argsort(others := sign * score[~own].astype(np.float64))
        below = np.append(0.0, np.cumsum(rows[~own][order]))
        mine = sign * score[own].astype(np.float64)
        sides = [below[np.searchsorted(others[order], mine, side)] for side in ("left", "right")]
        share = sum(sides) / 2 / below[-1]
        weight = rows[own].sum()
        result[own] = (share - rows[own] @ share / weight) / weight * rows.sum()
    return result


def _error_influences(name: str, target: Array, predicted: Array, rows: Array) -> Array:
    known = ~np.isnan(target)
    used = varies(target, rows) if name == "r2" else rows @ known > 0
    if not used.any():
        return np.full(len(target), np.nan)
    counted = rows[:, None] * known
    share = counted.sum(axis=0) / rows.sum()

    def mean(values: Array) -> Array:
        return np.asarray((counted * values).sum(axis=0) / rows.sum() / share)

    target = np.where(known, target, 0.0)
    error = np.where(known, np.abs(target - predicted), 0.0)
    square = error**2
    if name == "mae":
        each = error
    elif name == "rmse":
        level = mean(square)
        each = np.divide(square, 2 * np.sqrt(level), out=square * 0, where=level > 0)
    else:
        spread = (target - mean(target)) ** 2
        level = mean(spread)
        change = mean(square) * spread / level - square
        each = np.divide(change, level, out=square * 0, where=level > 0)
    each = np.where(known, (each - mean(each)) / share, 0.0)
    return np.asarray(each[:, used].mean(axis=1))


def _area(true: Array, false: Array) -> float:
    if not len(true) or true[-1] == 0 or false[-1] == 0:
        return float("nan")
    area = np.diff(false, prepend=0.0) @ (true + np.append(0.0, true[:-1])) / 2
    return float(area / (true[-1] * false[-1]))
