"""Baselines of a model: scores of a constant and of a linear prediction on the same rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array
from mlpengine.models import censored, metrics
from mlpengine.models.evaluate import mean_error
from mlpengine.models.linear import fit_linear
from mlpengine.models.task import (
    CensoredTimes,
    Classification,
    Regression,
    Split,
    Task,
    Threshold,
    mean_targets,
)
from mlpengine.ops import (
    BinaryCrossEntropyWithLogits,
    EntryLoss,
    KnownTargets,
    Loss,
    MeanSquaredError,
    SoftmaxCrossEntropy,
)

METRICS: dict[str, Callable[[Array, Array, Array | None], float]] = {
    "accuracy": metrics.accuracy,
    "roc_auc": metrics.roc_auc,
    "cost": lambda _, costs, weights: float(np.average(costs, weights=weights)),
    "log_loss": lambda _, losses, weights: float(np.average(losses, weights=weights)),
    "pinball": lambda _, losses, weights: float(np.average(losses, weights=weights)),
    "macro_f1": metrics.f1,
    "r2": metrics.r2,
    "mae": metrics.mae,
    "rmse": metrics.rmse,
    "concordance": lambda truth, times, weights: censored.concordance(
        truth[:, 0], times[:, 0], weights, truth[:, 1]
    ),
}
"""Metrics that compare predictions: functions of targets, predictions and weights.

In place of predictions, log loss, pinball loss and cost take the loss or cost of each row, and
ROC AUC takes probabilities."""

LINEAR_ROWS, LINEAR_FEATURES = 4_000, 600
"""Maximum training rows (evenly spaced) and maximum features of a linear model."""

ROUGH = 1e-4
"""Tolerance of the search for a linear prediction (see `linear.minimize`)."""

PASSES = 60
PENALTY = 1.0


class Guess(NamedTuple):
    """Predictions, probabilities, the threshold with its costs, and pinball losses of rows."""

    predicted: Array
    chances: Array | None = None
    threshold: Threshold | None = None
    losses: Array | None = None

    def decided(self, threshold: Threshold | None) -> "Guess":
        """Return the guess with classes chosen by `threshold`; unchanged if `threshold` is None."""
        if threshold is None or self.chances is None:
            return self
        return Guess(threshold.predict(self.chances), self.chances, threshold)

    def compared(self, metric: str, truth: Array) -> Array:
        """Return the second argument of a metric in `METRICS`, such as predictions or losses."""
        if metric == "roc_auc":
            return np.asarray(self.chances)
        if metric == "pinball":
            return np.asarray(self.losses)
        if metric == "cost" and self.threshold and self.threshold.costs:
            given = self.threshold.positive, self.threshold.costs
            return metrics.row_costs(truth, self.predicted, *given)
        if metric != "log_loss":
            return self.predicted
        with np.errstate(all="ignore"):
            return metrics.log_losses(truth, np.asarray(self.chances))


def compared_metrics(task: Task, truth: Array) -> list[str]:
    """Return the metrics that compare predictions of a task, the main metric first.

    For a task with costs, the main metric is the mean cost.  If all targets are equal, R2 is not
    defined, and the main metric is the mean absolute error.
    """
    known = METRICS.keys() - {"pinball"}  # not in a `Guess` of each baseline
    first, *others = (name for name in task.headline if name in known)
    if isinstance(task, Regression):
        return others if first == "r2" and not metrics.varies(truth).any() else [first, *others]
    is_binary = isinstance(task, Classification) and _classes(task) == 2
    has_costs = isinstance(task, Classification) and task.threshold and task.threshold.costs
    return [*["cost"] * bool(has_costs), first, "log_loss", *["roc_auc"] * is_binary, *others]


def by_pinball(tasks: Sequence[Task], truth: Array) -> bool:
    """Return whether two tasks predict the same quantiles, and no target is missing."""
    first, other = (task.levels for task in tasks)
    return bool(first and first == other and (truth == truth).all())


def constant_prediction(task: Task, train: Split, rows: int) -> Guess:
    """Return the best constant prediction, repeated for `rows` rows."""
    truth, weights = train.truth, train.weights
    if isinstance(task, Classification):
        counts = np.bincount(truth.astype(np.int64), weights, minlength=_classes(task))
        shares = np.broadcast_to(counts / counts.sum(), (rows, len(counts)))
        return Guess(np.full(rows, counts.argmax()), shares)
    if isinstance(task, CensoredTimes):
        best = task.loss.best_constant(train.y, task.outputs, weights)
        return Guess(task.predict(np.tile(best, (rows, 1))))
    repeated = np.tile(mean_targets(truth.astype(np.float64), weights), (rows, 1))
    return Guess(repeated) if isinstance(task, Regression) else _of_labels(repeated)


def linear_prediction(task: Task, train: Split, x: Array, work: float) -> Guess | None:
    """Return a linear model's predictions for features `x`, or None.

    The model is least squares for numbers, and logistic regression for classes and labels, with an
    L2 penalty of 1.  Training takes at most `LINEAR_ROWS` rows and about `work` multiplications.
    The result is None if the features are not finite, or too many for these limits.
    """
    width, outputs = x.shape[1] + 1, max(task.outputs, 2)
    passes = 1 if isinstance(task, Regression) else PASSES
    rows = min(LINEAR_ROWS, len(train), int(work / (width * (width + 2 * passes * outputs))))
    if width > LINEAR_FEATURES or rows < min(len(train), 2 * width):
        return None
    part = train.rows(evenly_spaced(len(train), rows))
    if not np.isfinite(part.x).all():
        return None
    if isinstance(task, CensoredTimes):
        return Guess(task.predict(_linear(task.loss, part, part.y, x, task.outputs)))
    if isinstance(task, Regression):
        truth = np.where(np.isnan(part.truth).all(axis=0), 0.0, part.truth)
        center, scale = np.nanmean(truth, axis=0), np.nanstd(truth, axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        standardized = (truth - center) / scale
        loss: EntryLoss = MeanSquaredError()
        if np.isnan(standardized).any():
            loss = KnownTargets(loss)
        return Guess(_linear(loss, part, standardized, x) * scale + center)
    if isinstance(task, Classification):
        classes, truth = _classes(task), part.truth.astype(np.int64)
        logits = _linear(SoftmaxCrossEntropy(), part, truth, x, classes)
        return Guess(logits.argmax(axis=1), Classification(classes).probabilities(logits))
    logits = _linear(BinaryCrossEntropyWithLogits(), part, part.truth.astype(np.float64), x)
    with np.errstate(over="ignore"):
        return _of_labels(1 / (1 + np.exp(-logits)))


def _linear(loss: Loss, part: Split, y: Array, x: Array, outputs: int = 0) -> Array:
    """Fit a linear model to the rows of `part`; return its outputs for features `x`."""
    columns = 1 if y.ndim == 1 else y.shape[1] // getattr(loss, "target_columns", 1)
    penalty = PENALTY / columns
    given = part.x.astype(np.float64), y, part.weights, outputs or columns
    ((weight, bias),) = fit_linear(loss, *given, [penalty], ROUGH)
    predicted: Array = x @ weight.T + bias
    return predicted


def out_of_fold(task: Task, train: Split, folds: Array, work: float) -> Guess | None:
    """Predict the rows of each fold by a linear model that was trained on the other folds."""
    names = np.unique(folds)
    guesses, places = [], []
    for fold in names:
        rows = np.flatnonzero(folds == fold)
        others = train.rows(np.flatnonzero(folds != fold))
        some = linear_prediction(task, others, train.x[rows], work / len(names))
        if some is None:
            return None
        guesses.append(some)
        places.append(rows)
    order = np.argsort(np.concatenate(places))
    chances = [guess.chances for guess in guesses if guess.chances is not None]
    return Guess(
        np.concatenate([guess.predicted for guess in guesses])[order],
        np.concatenate(chances)[order] if chances else None,
    )


def _classes(task: Task) -> int:
    return max(task.outputs, 2)  # a single output may stand for two classes


def _of_labels(chances: Array) -> Guess:
    return Guess((chances > 0.5).astype(np.int64), chances)


def baseline_scores(
    names: list[str],
    truth: Array,
    guesses: Mapping[str, Guess],
    weights: Array | None,
    blocks: Array | None = None,
) -> dict[str, dict[str, dict[str, float]]]:
    """Return value and standard error of each metric, for each of `guesses`.

    Each guess after the first also has ``ahead``: the first metric of the first guess, minus the
    first metric of this guess.  The standard error of this difference is from paired rows.
    """
    first, *others = guesses
    result: dict[str, dict[str, dict[str, float]]] = {who: {} for who in guesses}
    for name in names:
        given = {who: guess.compared(name, truth) for who, guess in guesses.items()}
        each = {w: metrics.influences(name, truth, own, weights) for w, own in given.items()}
        for who, own in given.items():
            with np.errstate(all="ignore"):
                value = metrics.on_known(METRICS[name], truth, own, weights)
            result[who][name] = {"value": value, "error": mean_error(each[who], weights, blocks)}
        for who in others if name == names[0] else ():
            result[who]["ahead"] = {
                "value": result[first][name]["value"] - result[who][name]["value"],
                "error": mean_error(each[first] - each[who], weights, blocks),
            }
    return result
