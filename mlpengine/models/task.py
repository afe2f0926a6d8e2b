"""Tasks: from outputs of a network to predictions, probabilities and metrics."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from mlpengine.core.buffers import unmasked
from mlpengine.core.errors import DataError, ShapeError, UsageError
from mlpengine.core.fields import COUNT, Limits, NonNegative
from mlpengine.core.fork_locks import cached_property
from mlpengine.core.named import NamedRows, check_rows
from mlpengine.core.spec import Array
from mlpengine.core.wording import label_text, plural, quoted, suggestion
from mlpengine.data.features import (
    ClassTarget,
    MultiLabelTarget,
    NumberTarget,
    Preprocessor,
    TimeTarget,
)
from mlpengine.data.features.prepared import PreparedRows, Windows
from mlpengine.data.features.targets import Target
from mlpengine.data.tables import Table
from mlpengine.formula import evaluate
from mlpengine.models import censored, metrics
from mlpengine.ops import EntryLoss, KnownTargets, Loss, MeanSquaredError, losses_of

_log = logging.getLogger("mlpengine")

MAX_CLASSES = 10
"""Metrics of single classes, labels or targets are computed for at most this many."""

PROBABILITY_METRICS = ("roc_auc", "average_precision", "log_loss", "brier", "calibration_error")
"""Metrics of classes that do not depend on a threshold."""

PINBALL = "pinball_"
"""Prefix of the names of pinball losses; a level follows."""


OUT_OF_FOLD = "out_of_fold"
"""Name of the training rows, if no row is predicted by a network that was trained on the row."""

PART_PHRASES = {
    "data": "rows",
    "test": "test rows",
    "validation": "validation rows",
    "train": "training rows",
    OUT_OF_FOLD: "out-of-fold rows",
}


class RowOrigins(NamedTuple):
    """Origin of the rows and columns of a split, for messages."""

    rows: Table
    features: Sequence[str]
    targets: Sequence[str]

    def row(self, row: int) -> str:
        """Return source and position of a row, for messages."""
        return f"{self.rows.source}: {self.rows.place(row)}"

    def of(self, indices: Array) -> "RowOrigins":
        """Return the origins of the rows with these indices."""
        rows = self.rows
        origin = indices if rows.origin is None else rows.origin[indices]
        table = Table({}, rows.source, first_line=rows.first_line, origin=origin)
        return self._replace(rows=table)


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """The rows of one part of a table, ready for a network.

    Several inputs or targets are a mapping of names to arrays.  Data frames become arrays, and
    arrays that are not contiguous are copied.  `places` has the origin of rows of a table.  `x` may
    be `PreparedRows`, features in a file; `windows` then shuffle the rows in blocks.
    Shapes: x (rows, in_dim); y in the shape that the loss takes; truth (rows,) class indices, or
    (rows, outputs) in the target's own units, by default y; weights (rows,) or None.
    Dtype: x and y have the network's dtype; class indices in y are integers.
    """

    x: Any
    y: Any
    truth: Any = None
    weights: Array | None = None
    places: RowOrigins | None = None
    windows: Windows | None = None

    def __post_init__(self) -> None:
        given = {"x": self.x, "y": self.y, "truth": self.truth, "weights": self.weights}
        given["truth"] = self.y if self.truth is None else self.truth
        for name, array in given.items():
            if (array is None and name != "weights") or isinstance(array, list | tuple):
                raise UsageError(
                    f"Split: {name} must be an array (got {quoted(array)}); write "
                    "Split(np.asarray(x, 'float32'), np.asarray(y))"
                )
            given[name] = array = _compact(array, f"Split: {name}", labels=name == "y")
            object.__setattr__(self, name, array)
        for name, array in given.items():
            if isinstance(array, NamedRows):
                check_rows(array, len(self.x), f"Split: {name}")
            elif array is not None and len(array) != len(self.x):
                raise ShapeError(
                    f"Split: {name} needs {plural(len(self.x), 'row')}, as x has (got {len(array)})"
                )

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return f"Split({plural(len(self), 'row')}, x {quoted(self.x)}, y {quoted(self.y)})"

    def rows(self, indices: Array) -> "Split":
        """Return a copy of the rows with these indices."""
        weights = None if self.weights is None else self.weights[indices]
        places = None if self.places is None else self.places.of(indices)
        return Split(self.x[indices], self.y[indices], self.truth[indices], weights, places)


def _compact(rows: Any, where: str, *, labels: bool) -> Any:
    """Return arrays and data frames as contiguous arrays, labels as int64; do not change others."""
    if isinstance(rows, Mapping | NamedRows):
        named = NamedRows(rows) if isinstance(rows, Mapping) else rows
        return NamedRows({k: _compact(v, where, labels=labels) for k, v in named.items()})
    if not hasattr(rows, "__array__"):
        return rows
    array = unmasked(rows, where)
    return np.ascontiguousarray(array, np.int64 if labels and array.dtype.kind in "biu" else None)


@dataclass(frozen=True, eq=False)
class Scored:
    """The rows of a part and their predictions."""

    task: "Task"
    output: Array
    part: Split

    @property
    def weights(self) -> Array | None:
        """Weights of the rows, if any."""
        return self.part.weights

    @cached_property
    def predicted(self) -> Array:
        """Predicted class indices, 0 or 1 for each label, or numbers in the target's units."""
        return self.task.predict(self.output)

    @cached_property
    def probabilities(self) -> Array:
        """Probabilities by class or label."""
        return np.asarray(self.task.probabilities(self.output))

    @cached_property
    def truth(self) -> Array:
        """The targets in the form of `predicted`."""
        truth: Array = self.part.truth
        return truth if isinstance(self.task, Regression) else truth.astype(np.int64)

    def influences(self) -> dict[str, Array]:
        """Return `metrics.influences` of the headline metrics with known influences, by name."""
        known: dict[str, Array] = {}
        for name in filter(metrics.INFLUENCES.__contains__, self.task.headline):
            given = self.probabilities if name in PROBABILITY_METRICS else self.predicted
            if name == "log_loss":
                given = metrics.log_losses(self.truth, given)
            if name == "cost" and (rule := getattr(self.task, "threshold", None)):
                given = metrics.row_costs(self.truth, given, rule.positive, rule.costs)
            known[name] = metrics.influences(name, self.truth, given, self.weights)
        return known

    @cached_property
    def by_output(self) -> "dict[str, Scored]":
        """The output and the targets of each task in `OutputTasks`, by name."""
        assert isinstance(self.task, OutputTasks)
        part, truth = self.part, self.part.truth
        return {
            name: Scored(task, self.output[name], Split(part.x, y := truth[name], y, part.weights))
            for name, task in self.task.tasks.items()
        }


Metric = Callable[[Scored], float]


class Task(ABC):
    """Turns the outputs (rows, out_dim) of a network into predictions and metrics of a target."""

    headline: tuple[str, ...]
    """Names of the metrics that are computed after every epoch."""

    levels: Sequence[float] = ()
    """Levels of the quantiles, if the loss predicts only quantiles."""

    kinds: ClassVar[tuple[metrics.PredictionKind, ...]]
    """Kinds of predictions for metrics that users register."""

    patterns: ClassVar[tuple[str, ...]] = ()
    """Texts for messages that describe metrics with a number in their name."""

    log_link: bool = False
    """Whether outputs are logarithms; `combine` then averages their exponentials."""

    def __init__(self, outputs: int) -> None:
        self.outputs: int = COUNT.check(f"{type(self).__name__}: outputs", outputs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.outputs})"

    def learning_target(self, target: Array, dtype: np.dtype[np.generic]) -> Array:
        """Return encoded targets in the form and dtype that the loss needs."""
        return np.ascontiguousarray(target, dtype)

    def truth(self, table: Table, target: Array) -> Array:
        """Return the values that predictions are compared with."""
        return target

    @abstractmethod
    def predict(self, output: Array) -> Array:
        """Return predictions: class indices, 0 or 1 for each label, or numbers in their units."""

    def probabilities(self, output: Array) -> Array | None:
        """Return float64 probabilities (rows, classes) or (rows, labels); None for regression."""
        return None

    def pinball_losses(self, truth: Array, output: Array) -> Array | None:
        """Return the mean pinball loss (rows,) over targets and `levels`; None without levels."""
        return None

    def predicted_numbers(self, output: Array) -> Array:
        """Return `probabilities`, or for regression all numbers that the loss predicts."""
        return np.asarray(self.probabilities(output))

    def combine(self, outputs: Array, shares: Array | None = None) -> Array:
        """Return one float64 output (rows, out_dim) for the outputs (networks, rows, out_dim).

        The result is the weighted mean of the outputs.  The probabilities of classes thus become
        geometric means, scaled to a sum of 1.  With a log link, the result is the logarithm of the
        mean prediction.  `shares` are the weights of the mean, with sum 1; by default equal.

        Source: Genest and Zidek 1986, "Combining probability distributions", for the geometric
        mean (logarithmic opinion pool).
        """
        weights = np.full(len(outputs), 1 / len(outputs)) if shares is None else shares
        used = weights.nonzero()[0]
        if len(used) < len(weights):
            outputs, weights = outputs[used], weights[used]
        if self.log_link:
            wide = outputs + np.log(weights)[:, None, None]
            total: Array = np.logaddexp.reduce(wide, axis=0)
            return total
        if outputs.shape[1] == 1:  # faster for one row, with the same order of summation
            terms = weights[:, None, None] * outputs
            return np.asarray(np.add.accumulate(terms, axis=0)[-1])
        mean = np.zeros(outputs.shape[1:])
        for weight, output in zip(weights, outputs, strict=True):
            mean += weight * output  # a matrix product would round rows differently
        return mean

    @abstractmethod
    def _own_metrics(self) -> dict[str, Metric]:
        """Return every metric of the task by name."""

    @property
    def all_metrics(self) -> dict[str, Metric]:
        """Every metric of the task by name, followed by the user's own metrics."""
        own = {n: _own(m) for n, m in metrics.OWN_METRICS.items() if m.of in self.kinds}
        return self._own_metrics() | own

    def watch(self, name: str) -> None:
        """Add a metric to `headline`.  Raises: UsageError for a metric that the task lacks."""
        known = ("loss", *self.all_metrics, *self.patterns)
        is_text = isinstance(name, str)
        if not is_text or not (name in ("loss", *self.all_metrics) or self._parsed_metric(name)):
            listed = ", ".join(known)
            why = suggestion(name, known)
            if name == "cost":
                why = "; cost needs a threshold, chosen after training by training.threshold.costs"
            raise UsageError(f"this task has {listed} (got {name!r}){why}")
        if name not in ("loss", *self.headline):
            self.headline = (*self.headline, name)

    def metrics(self, output: Array, part: Split, *, full: bool = False) -> dict[str, float]:
        """Return the metrics in `headline`, or with `full` all metrics, over all rows."""
        known = self.all_metrics
        known |= {n: m for n in self.headline if n not in known and (m := self._parsed_metric(n))}
        scored = Scored(self, output, part)
        return {name: known[name](scored) for name in (known if full else self.headline)}

    def metric(self, name: str, output: Array, part: Split) -> float:
        """Return one of `all_metrics` over all rows."""
        return self.all_metrics[name](Scored(self, output, part))

    def _parsed_metric(self, name: str) -> Metric | None:
        """Return the metric of a name with a number, such as "pinball_0.9", or None."""
        return None


class Threshold(NamedTuple):
    """A rule of two classes: predict the positive class if its probability is above `value`.

    Attributes:
        value: probability from 0 to 1.
        positive: index of the positive class, 0 or 1.
        costs: costs of a false negative and of a false positive, if costs determined the value.
    """

    value: Annotated[float, Limits(at_least=0, at_most=1)] = 0.5
    positive: Literal[0, 1] = 1
    costs: tuple[NonNegative, NonNegative] | None = None

    def predict(self, probabilities: Array) -> Array:
        """Return class indices (rows,) for probabilities (rows, 2)."""
        above = probabilities[:, self.positive] > self.value
        return np.where(above, self.positive, 1 - self.positive)


class Classification(Task):
    """Classification into two or more classes, with a logit for each class (softmax).

    The likeliest class is predicted or, with two classes, the class that a `threshold` chooses.
    Use `BinaryClassification` for a single logit.
    """

    headline: tuple[str, ...] = ("accuracy", "macro_f1")
    kinds = ("labels", "probabilities")
    predicts_median: ClassVar[bool] = False
    """Whether the median of the probabilities is predicted instead of the likeliest class."""

    def __init__(
        self, outputs: int, labels: Sequence[object] = (), threshold: Threshold | None = None
    ) -> None:
        super().__init__(outputs)
        if outputs == 1 and type(self) is Classification:
            raise UsageError(
                "Classification: needs 2 or more outputs; write BinaryClassification(1)"
            )
        self.labels, self.threshold = [*map(label_text, labels)], threshold

    def with_threshold(self, threshold: Threshold | None) -> Self:
        """Return a copy that predicts by a threshold."""
        task = copy(self)
        task.threshold = threshold
        return task

    def learning_target(self, target: Array, dtype: np.dtype[np.generic]) -> Array:
        return np.ascontiguousarray(target, np.int64)

    def predict(self, output: Array) -> Array:
        if self.threshold is not None:
            return self.threshold.predict(self.probabilities(output))
        return self._likeliest(output)

    def _likeliest(self, output: Array) -> Array:
        classes: Array = output.argmax(axis=1)
        return classes

    def probabilities(self, output: Array) -> Array:
        shifted = output.astype(np.float64)
        shifted -= shifted.max(axis=1, keepdims=True)
        np.exp(shifted, shifted)
        shifted /= shifted.sum(axis=1, keepdims=True)
        return shifted

    @property
    def decision_metrics(self) -> list[str]:
        """The names of the metrics that depend on predicted classes, not on probabilities."""
        own = [name for name, one in metrics.OWN_METRICS.items() if one.of == "labels"]
        known = _class_metrics(tuple(self.labels))
        return [*(name for name in known if name not in PROBABILITY_METRICS), *own]

    def _own_metrics(self) -> dict[str, Metric]:
        known = _class_metrics(tuple(self.labels)).copy()
        if self.threshold is not None and self.threshold.positive == 0:
            precision = metrics.average_precision
            known["average_precision"] = lambda s: precision(
                1 - s.truth, s.probabilities[:, ::-1], s.weights
            )
        if self.threshold is not None and self.threshold.costs is not None:
            positive, costs = self.threshold.positive, self.threshold.costs
            known["cost"] = _on_predictions(partial(metrics.cost, positive=positive, costs=costs))
        return known


class BinaryClassification(Classification):
    """Classification into two classes, with a single logit for class 1."""

    def learning_target(self, target: Array, dtype: np.dtype[np.generic]) -> Array:
        return np.ascontiguousarray(target[:, None], dtype)

    def _likeliest(self, output: Array) -> Array:
        return (output[:, 0] > 0).astype(np.int64)

    def probabilities(self, output: Array) -> Array:
        second = _logistic(output[:, 0])
        return np.stack([1.0 - second, second], axis=1)


class OrderedClasses(Classification):
    """Classification into ordered classes; the median of the probabilities is predicted."""

    headline = ("accuracy", "quadratic_kappa", "class_mae")
    predicts_median = True

    def learning_target(self, target: Array, dtype: np.dtype[np.generic]) -> Array:
        return np.ascontiguousarray(target[:, None], dtype)

    def predict(self, output: Array) -> Array:
        if self.threshold is not None:
            return super().predict(output)
        below = np.cumsum(self.probabilities(output), axis=1)[:, :-1]
        classes: Array = (below < 0.5).sum(axis=1)
        return classes

    def _own_metrics(self) -> dict[str, Metric]:
        names = ("quadratic_kappa", "class_mae")
        own = {name: _on_predictions(getattr(metrics, name)) for name in names}
        return super()._own_metrics() | own


class MultiLabel(Task):
    """Classification of several independent yes-or-no labels, with a logit for each."""

    headline = ("accuracy", "macro_f1")
    kinds = ("labels", "probabilities")

    def __init__(self, outputs: int, labels: Sequence[str] = ()) -> None:
        super().__init__(outputs)
        self.labels = list(labels)

    def predict(self, output: Array) -> Array:
        return (output > 0).astype(np.int64)

    def probabilities(self, output: Array) -> Array:
        return _logistic(output)

    def _own_metrics(self) -> dict[str, Metric]:
        known = _class_metrics(tuple(self.labels)).copy()
        del known["balanced_accuracy"]
        return known


class Regression(Task):
    """Regression of one or more numbers.

    `target` converts outputs to the units of the targets, or is the number of targets.  `loss`
    defines the predictions, such as a mean, or quantiles; by default it is mse, and in a `Loop` the
    loss of the step.  Several quantiles (`orders`) are sorted.

    Source: Chernozhukov, Fernandez-Val and Galichon 2010, "Quantile and probability curves without
    crossing": sorted quantiles are never farther from the true quantiles.
    """

    headline: tuple[str, ...] = ("r2", "mae", "rmse")
    kinds: ClassVar[tuple[metrics.PredictionKind, ...]] = ("numbers",)
    patterns = (f"{PINBALL}LEVEL (such as {PINBALL}0.9)",)

    has_errors: ClassVar[bool] = True
    """Whether prediction minus target is known; False for censored times."""

    def __init__(self, target: NumberTarget | int, loss: EntryLoss | None = None) -> None:
        if not isinstance(target, NumberTarget):
            count = COUNT.check("Regression: target", target)
            names = [f"y{i}" for i in range(count)]
            target = NumberTarget(names, [0.0] * count, [1.0] * count)
        self.target, self.loss = target, loss or MeanSquaredError()
        self.has_loss = loss is not None
        super().__init__(target.n_outputs * self.loss.columns)
        (first, *others), leaves = self.loss.predictions, self.loss.formulas.outputs
        levels = [p.level for p in self.loss.predictions if p.level is not None]
        if self.has_errors and len(levels) == 1 + len(others):
            self.levels = levels
        self.orders = bool(others) and all(p.level is not None for p in self.loss.predictions)
        self._is_plain = not others and first.location and [first.formula] == list(leaves)
        self.log_link = self.loss.log_link
        self.scaled = bool((target.scale != 1.0).any() or target.center.any())

    @property
    def target_range(self) -> tuple[float, float]:
        """Range of possible targets; from 0 if logarithms are learned."""
        return (0.0, np.inf) if self.target.log else self.loss.target_range

    def truth(self, table: Table, target: Array) -> Array:
        """Return the targets in their own units.  Raises: DataError for a target out of range."""
        names = self.target.columns
        values = self.target.values(table)
        self.loss.check_targets(values, lambda row, column: table.where(names[column], row))
        return values

    def predict(self, output: Array) -> Array:
        """Return the predictions (rows, targets) that are compared with the targets."""
        if self._is_plain:  # formulas would be slow for a single row
            return self.target.inverse(output)
        return self._predictions(output)[self.loss.point]

    def predicted_numbers(self, output: Array) -> Array:
        values = np.stack(self._predictions(output), axis=2)
        return values.reshape(len(values), values.shape[1] * values.shape[2])

    def columns(self, output: Array) -> dict[str, Array]:
        """Return all predictions of the loss by name, in the order of the targets."""
        return dict(zip(self.column_names, self.predicted_numbers(output).T, strict=True))

    @property
    def column_names(self) -> list[str]:
        """Names of the predictions: each target with each suffix of the loss."""
        return [f"{n}{p.suffix}" for n in self.target.names for p in self.loss.predictions]

    def _predictions(self, output: Array) -> list[Array]:
        """Return the loss's predictions, each (rows, targets) in the targets' units."""
        wide, count = output.astype(np.float64), self.loss.columns
        leaves = self.loss.formulas.outputs
        given = {str(o.leaf): wide[:, k::count] for k, o in enumerate(leaves)}
        values = [(p, evaluate(p.formula, given)) for p in self.loss.predictions]
        scale = self.target.scale
        own = [self.target.inverse(v) if p.location else v * scale for p, v in values]
        return list(np.sort(own, axis=0)) if self.orders else own

    def quantile(self, output: Array, level: float) -> Array | None:
        """Return the quantile (rows, targets) of a level, or None if the loss cannot predict it."""
        if (formula := self.loss.quantile(level)) is None:
            return None
        wide = output.astype(np.float64).reshape(len(output), -1, self.loss.columns)
        wide = np.sort(wide, axis=2) if self.orders else wide
        given = {str(o.leaf): wide[:, :, k] for k, o in enumerate(self.loss.formulas.outputs)}
        return self.target.inverse(evaluate(formula, given))

    def _parsed_metric(self, name: str) -> Metric | None:
        """Return the pinball loss at a level: of the predicted quantile, or else of `predict`."""
        level = _level(name)
        if level is None:
            return None
        levels = [prediction.level for prediction in self.loss.predictions]

        def pinball(scored: Scored) -> float:
            predicted = scored.predicted
            if level in levels:
                predicted = self._predictions(scored.output)[levels.index(level)]
            given = scored.truth, predicted, level, scored.weights
            return metrics.on_known(metrics.pinball, *given)

        return pinball

    def _own_metrics(self) -> dict[str, Metric]:
        names = ("r2", "mae", "rmse", "mape", "rmsle")
        known = {name: _on_predictions(getattr(metrics, name)) for name in names}
        targets = self.target.columns
        if 1 < len(targets) <= MAX_CLASSES:
            known |= {
                f"{name} of {target}": _on_column(getattr(metrics, name), k)
                for name in ("r2", "mae", "rmse")
                for k, target in enumerate(targets)
            }
        return known | self._loss_metrics()

    def _loss_metrics(self) -> dict[str, Metric]:
        """Return the metrics that belong to the loss, in the units of the targets."""
        known: dict[str, Metric] = {}
        if type(self.loss).deviance is not EntryLoss.deviance:
            known["deviance"] = self._deviance
            known["deviance_explained"] = self._deviance_explained
        if [one.location for one in self.loss.predictions] == [True, False]:
            known["nll"] = self._nll  # such a loss predicts mean and deviation
        if levels := self.levels:
            known["pinball"] = lambda s: float(np.mean(self._pinballs(s, levels)))
            if len(levels) > 1:
                known["crps"] = lambda s: self._crps(s, levels)
            known["calibration_error"] = lambda s: self._quantile_error(s, levels)
        return known

    def _deviance(self, scored: Scored, predicted: Array | None = None) -> float:
        """Return the mean deviance of `predicted` (rows, targets), or of `scored.predicted`."""
        predicted = scored.predicted if predicted is None else predicted

        def mean(truth: Array, predicted: Array, weights: Array | None) -> float:
            with np.errstate(all="ignore"):
                each = self.loss.deviance(truth, predicted)
            rows = each.mean(axis=1) if each.ndim == 2 else each
            return float(np.average(rows, weights=weights))

        return metrics.on_known(mean, scored.truth, predicted, scored.weights)

    def _deviance_explained(self, scored: Scored) -> float:
        """Return 1 - a / b: a is the deviance, b the deviance if the mean target is predicted.

        The result is NaN if all targets are equal.
        """
        if not metrics.varies(scored.truth, scored.weights).any():
            return float("nan")
        constant = np.broadcast_to(mean_targets(scored.truth, scored.weights), scored.truth.shape)
        return 1 - self._deviance(scored) / self._deviance(scored, constant)

    def _nll(self, scored: Scored) -> float:
        mean, deviation = self._predictions(scored.output)
        given = scored.truth, mean, deviation, scored.weights
        return metrics.on_known(metrics.gaussian_nll, *given)

    def pinball_losses(self, truth: Array, output: Array) -> Array | None:
        pairs = zip(self._predictions(output), self.levels, strict=False)
        losses = [np.maximum(q * (truth - p), (q - 1) * (truth - p)) for p, q in pairs]
        return np.asarray(np.mean(losses, axis=(0, 2))) if self.levels else None

    def _pinballs(self, scored: Scored, levels: Sequence[float]) -> list[float]:
        pairs = zip(self._predictions(scored.output), levels, strict=True)
        truth, weights = scored.truth, scored.weights
        return [metrics.on_known(metrics.pinball, truth, q, level, weights) for q, level in pairs]

    def _crps(self, scored: Scored, levels: Sequence[float]) -> float:
        """Return the continuous ranked probability score, an integral over levels from 0 to 1.

        The pinball loss of a level stands for all levels that are nearest to this level.

        Source: Gneiting and Ranjan 2011, "Comparing density forecasts", equation 8.
        """
        ends = [0.0, *((a + b) / 2 for a, b in pairwise(levels)), 1.0]
        return 2 * float(np.dot(self._pinballs(scored, levels), np.diff(ends)))

    def _quantile_error(self, scored: Scored, levels: Sequence[float]) -> float:
        """Return the largest difference between level and share of targets below the quantile."""
        pairs, truth = zip(self._predictions(scored.output), levels, strict=True), scored.truth
        return max(
            abs(metrics.on_known(metrics.share_below, truth, q, scored.weights) - level)
            for q, level in pairs
        )


class CensoredTimes(Regression):
    """Times until an event, some of them censored; targets are rows of `TimeTarget`."""

    headline = ("concordance", "nll")
    kinds = ()
    patterns = ("brier_TIME (such as brier_365)",)
    has_errors = False

    def __init__(self, target: TimeTarget, loss: EntryLoss) -> None:
        super().__init__(target, loss)
        self.event = target.event
        self.log_link = False  # networks average locations and scales, not times

    def survival(self, output: Array, times: Array) -> Array:
        """Return the probabilities (rows, times) that the event has not happened by each time.

        The negative logarithm of such a probability is the loss of a row censored at this time.
        """
        y, s = np.hsplit(output.astype(np.float64), 2)
        given = -times[None] / self.target.scale, np.full((1, len(times)), np.inf)
        return np.exp(-self.loss.formulas.values([y, s], given))

    def _parsed_metric(self, name: str) -> Metric | None:
        try:
            time = float(name.removeprefix("brier_"))
        except ValueError:
            return None
        known = self.event is not None and name.startswith("brier_") and 0 < time < np.inf
        return (lambda s: float(self._brier(s, np.array([time]))[0])) if known else None

    def _own_metrics(self) -> dict[str, Metric]:
        known: dict[str, Metric] = {
            "concordance": lambda s: censored.concordance(
                s.truth[:, 0], s.predicted[:, 0], s.weights, s.truth[:, 1]
            ),
            "nll": self._nll,
        }
        if self.event is None:  # the curves of Kaplan and Meier need times, not bounds
            return known
        return known | {
            "integrated_brier": self._integrated_brier,
            "calibration_error": self._calibration_error,
        }

    def row_losses(self, output: Array, truth: Array) -> Array:
        """Return the negative log-likelihood (rows,) of times and bounds (rows, 2)."""
        wide, times = output.astype(np.float64), truth[:, 0]
        losses = self.loss.formulas.values([*wide.T], [*self.target.scaled(truth).T])
        return losses + np.log(np.where(times > 0, times, 1.0))

    def _nll(self, scored: Scored) -> float:
        losses = self.row_losses(scored.output, scored.truth)
        return float(np.average(losses, weights=scored.weights))

    def _brier(self, scored: Scored, times: Array) -> Array:
        chances = self.survival(scored.output, times)
        return censored.brier(scored.truth[:, 0], chances, times, scored.weights)

    def _integrated_brier(self, scored: Scored) -> float:
        if not (scored.truth[:, 0] > 0).any():
            return float("nan")
        times = censored.grid(scored.truth[:, 0])
        return censored.integrated(self._brier(scored, times), times)

    def _calibration_error(self, scored: Scored) -> float:
        """Return the mean calibration error at the quartiles of the times of seen events."""
        truth = scored.truth[:, 0]
        if not (truth > 0).any():
            return float("nan")
        times = np.quantile(truth[truth > 0], (0.25, 0.5, 0.75))
        columns = zip(self.survival(scored.output, times).T, times, strict=True)
        errors = [censored.calibration_error(truth, c, t, scored.weights) for c, t in columns]
        return float(np.mean(errors))


class LossOnly(Task):
    """A task without metrics besides the loss; predictions are the outputs.

    >>> LossOnly().headline
    ()
    """

    headline = ()
    kinds = ()

    def __init__(self) -> None:
        super().__init__(1)

    def predict(self, output: Array) -> Array:
        return output

    def _own_metrics(self) -> dict[str, Metric]:
        return {}


class OutputTasks(Task):
    """Tasks of several outputs, by name; metrics have names such as ``accuracy of class``.

    >>> OutputTasks({"class": Classification(3), "kl": LossOnly()}).headline
    ('accuracy of class', 'macro_f1 of class')
    """

    kinds = ()

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        super().__init__(1)
        self.tasks = dict(tasks)
        self.headline = tuple(f"{m} of {n}" for n, task in tasks.items() for m in task.headline)

    def predict(self, output: Array) -> Array:
        predicted: Any = NamedRows({n: t.predict(output[n]) for n, t in self.tasks.items()})
        return predicted  # type: ignore[no-any-return]

    def _own_metrics(self) -> dict[str, Metric]:
        return {
            f"{metric} of {output}": _of_output(output, measure)
            for output, task in self.tasks.items()
            for metric, measure in task.all_metrics.items()
        }

    def _parsed_metric(self, name: str) -> Metric | None:
        for output, task in self.tasks.items():
            metric = task._parsed_metric(name.removesuffix(f" of {output}"))
            if metric and name.endswith(f" of {output}"):
                return _of_output(output, metric)
        return None


def _of_output(output: str, metric: Metric) -> Metric:
    """Return a metric of `OutputTasks` that applies `metric` to one output."""
    return lambda scored: metric(scored.by_output[output])


def task_for(target: Target | None, loss: Loss, threshold: Threshold | None = None) -> Task:
    """Return the task of a fitted target with a loss; `threshold` is for two classes."""
    if target is None:
        raise DataError("task: the preprocessing was fitted without a target")
    if loss.name not in losses_of(target.task):
        raise DataError(f"task: {target.task} has no loss {loss.name!r}")
    if isinstance(target, TimeTarget):
        assert isinstance(loss, EntryLoss)
        return CensoredTimes(target, loss)
    if isinstance(target, NumberTarget):
        assert isinstance(loss, EntryLoss)
        return Regression(target, loss)
    if isinstance(target, ClassTarget):
        if isinstance(loss, EntryLoss) and loss.columns > 1:
            return OrderedClasses(target.n_outputs, target.classes, threshold)
        if isinstance(loss, EntryLoss):
            return BinaryClassification(1, target.classes, threshold)
        return Classification(target.n_outputs, target.classes, threshold)
    assert isinstance(target, MultiLabelTarget)
    return MultiLabel(target.n_outputs, target.columns)


def make_split(
    table: Table,
    rows: Array | None,
    preprocessor: Preprocessor,
    task: Task,
    dtype: np.dtype[np.generic],
    *,
    weights: Array | None = None,
    stream: int | None = None,
    window: int = 64,
    on_demand: bool = False,
) -> Split:
    """Return the given rows of a table in the form that networks and metrics need.

    `weights` (rows,) replace the table's weights.  Weights are scaled to the mean 1.  `stream` is a
    batch size: features are then in a file, and `window` blocks of features are in memory and
    shuffled together.  With `on_demand`, features are computed each time that rows are read.
    """
    part = table
    if stream is not None:
        data = preprocessor.stream(table, rows, batch_size=stream, window=window)
        part = table.select(preprocessor.target_columns(table))
    if rows is not None:
        part = part.rows(rows)
    if stream is None:
        data = preprocessor.on_demand(part) if on_demand else preprocessor.transform(part)
    if data.target is None:
        reads = preprocessor.target.reads if preprocessor.target else ()
        wanted = ", ".join(name for name in reads if name not in table)
        raise DataError(f"{table.source}: the target column is missing ({wanted or 'none'})")
    name = preprocessor.options.weight
    if weights is None and name is not None and name not in table:
        text = "warning: %s: rows are not weighted by %r (data.weight); there is no such column"
        _log.warning(text, table.source, name)
    weights = data.weights if weights is None else weights
    if weights is not None:
        weights = weights / np.mean(weights, dtype=np.float64)
    features: Any = data.features
    if stream is None and not on_demand:
        features = np.ascontiguousarray(features, dtype)
    return Split(
        features,
        task.learning_target(data.target, dtype),
        task.truth(part, data.target),
        None if weights is None else np.ascontiguousarray(weights, dtype),
        RowOrigins(
            Table({}, part.source, first_line=part.first_line, origin=part.origin),
            preprocessor.feature_names,
            preprocessor.target.columns if preprocessor.target else (),
        ),
        features.windows if isinstance(features, PreparedRows) else None,
    )


def mean_targets(truth: Array, weights: Array | None) -> Array:
    """Return the mean of each target (rows, targets), over the rows without NaN."""
    return KnownTargets(MeanSquaredError()).best_constant(truth, truth.shape[1], weights)


def _level(name: str) -> float | None:
    try:
        level = float(name.removeprefix(PINBALL))
    except ValueError:
        return None
    return level if name.startswith(PINBALL) and 0 < level < 1 else None


def _logistic(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    small = np.exp(-np.abs(wide))
    return np.where(wide >= 0, 1.0, small) / (1.0 + small)


@lru_cache(maxsize=8)  # called in each epoch, and for each column of `importances`
def _class_metrics(labels: tuple[str, ...]) -> dict[str, Metric]:
    """Return metrics of classes or labels by name; for few classes, add metrics of each class."""
    known: dict[str, Metric] = {
        "accuracy": _on_predictions(metrics.accuracy),
        "macro_f1": _on_predictions(metrics.f1),
        "balanced_accuracy": _on_predictions(metrics.balanced_accuracy),
        "weighted_f1": _on_predictions(partial(metrics.f1, average="weighted")),
        **{name: _on_probabilities(getattr(metrics, name)) for name in PROBABILITY_METRICS},
    }
    if len(labels) <= MAX_CLASSES:
        known |= {
            f"{name} of {label}": _of_class(getattr(metrics, name), k)
            for name in ("recall", "precision")
            for k, label in enumerate(labels)
        }
    return known


def _on_predictions(function: Callable[..., float]) -> Metric:
    return lambda s: metrics.on_known(function, s.truth, s.predicted, s.weights)


def _on_probabilities(function: Callable[..., float]) -> Metric:
    return lambda scored: function(scored.truth, scored.probabilities, scored.weights)


def _on_column(function: Callable[..., float], k: int) -> Metric:
    column = slice(k, k + 1)
    return lambda s: metrics.on_known(
        function, s.truth[:, column], s.predicted[:, column], s.weights
    )


def _of_class(function: Callable[..., Array], k: int) -> Metric:
    def score(scored: Scored) -> float:
        values = function(scored.truth, scored.predicted, scored.weights)
        return float(values[k]) if k < len(values) else 0.0

    return score


def _read_only(array: Array) -> Array:
    """Return a read-only view, because other metrics read the same targets."""
    view = array.view()
    view.flags.writeable = False
    return view


def _own(metric: metrics.OwnMetric) -> Metric:
    def score(scored: Scored) -> float:
        predicted = scored.probabilities if metric.of == "probabilities" else scored.predicted
        weights = None if scored.weights is None else _read_only(scored.weights)
        name, truth = metric.function.__name__, _read_only(scored.truth)
        try:
            value: object = metric.function(truth, _read_only(predicted), weights)
        except Exception as error:
            raise UsageError(f"metric {name}: raises {type(error).__name__}: {error}") from error
        try:
            if isinstance(value, np.ndarray) and value.ndim == 0:
                value = value[()]
            if isinstance(value, Real) and not isinstance(value, np.timedelta64):
                return float(value)
        except OverflowError:
            value = "a whole number beyond the range of floats"
        raise UsageError(f"metric {name}: must return a number (got {quoted(value)})")

    return score
