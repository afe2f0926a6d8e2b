"""The meaning of a network's outputs: targets in the form of the loss, labels, units, metrics."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from mlpengine.data import ClassTarget, NumberTarget, Preprocessor, Table
from mlpengine.data.targets import Target
from mlpengine.errors import DataError
from mlpengine.formula import evaluate
from mlpengine.ops import EntryLoss, Gamma, GaussianNll, Loss, MeanSquaredError, Poisson, Quantile
from mlpengine.spec import Array
from mlpengine.train import metrics

LOSSES = {
    "classification": ("softmax_cross_entropy", "bce_with_logits", "binary_focal", "formula"),
    "multilabel": ("bce_with_logits", "binary_focal", "formula"),
    "regression": (
        "mse",
        "mae",
        "huber",
        "log_cosh",
        "quantile",
        "gaussian_nll",
        "poisson",
        "gamma",
        "formula",
    ),
}
"""The losses that suit a task; auto selects the first."""

HIGHER_IS_BETTER = ("accuracy", "balanced_accuracy", "macro_f1", "weighted_f1", "roc_auc", "r2")
"""Metrics that are better when they are higher; the others are better when they are lower."""


Averaged = Literal["mean", "exp", "softmax", "sigmoid"]
"""What of several networks is averaged: outputs, or this function of them."""


@dataclass(frozen=True)
class Places:
    """The origin of the rows and columns of a split, for messages."""

    rows: Table
    features: Sequence[str]
    targets: Sequence[str]

    def row(self, row: int) -> str:
        """Return the file and line of a row, or its number if it has no line."""
        return f"{self.rows.source}: {self.rows.place(row)}"

    def of(self, numbers: Array) -> "Places":
        """Return the places of the rows of these numbers."""
        rows = self.rows
        origin = numbers if rows.origin is None else rows.origin[numbers]
        table = Table({}, rows.source, first_line=rows.first_line, origin=origin)
        return replace(self, rows=table)


@dataclass(frozen=True)
class Split:
    """The rows of one split, ready for the network.

    `x` may be a `Stream`, from which rows are gathered as from an array larger than memory.
    Shapes: x (rows, in_dim) and y, as the loss takes it, both of the network's dtype unless y is
    class numbers; truth (rows,) class numbers, or (rows, outputs) in the target's own units;
    weights (rows,) or None.  `places` is None unless the rows come from a table.
    """

    x: Array
    y: Array
    truth: Array
    weights: Array | None = None
    places: Places | None = None

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, numbers: Array) -> "Split":
        """Return a copy of the rows of these numbers."""
        weights = None if self.weights is None else self.weights[numbers]
        places = None if self.places is None else self.places.of(numbers)
        return Split(
            np.ascontiguousarray(self.x[numbers]),
            self.y[numbers],
            self.truth[numbers],
            weights,
            places,
        )


class Task(ABC):
    """How to read the outputs (rows, out_dim) of a network trained for one kind of target."""

    headline: ClassVar[tuple[str, ...]]
    """The metrics that are computed after every epoch."""

    averaged: Averaged = "mean"
    """What of the outputs of several networks is averaged."""

    def __init__(self, outputs: int) -> None:
        self.outputs = outputs

    def learning_target(self, target: Array, dtype: np.dtype[np.generic]) -> Array:
        """Return encoded targets in the form and dtype that the loss takes."""
        return np.ascontiguousarray(target, dtype)

    def truth(self, table: Table, target: Array) -> Array:
        """Return the values with which predictions are compared."""
        return target

    @abstractmethod
    def predict(self, output: Array) -> Array:
        """Return predictions: class numbers, 0 and 1 per label, or values in their own units."""

    def probabilities(self, output: Array) -> Array | None:
        """Return float64 probabilities (rows, classes) or (rows, labels); None for regression."""
        return None

    def combine(self, outputs: Array) -> Array:
        """Return one output (rows, out_dim) for those of several networks, the first axis.

        Its prediction is the mean of theirs: of probabilities, or of numbers (of a variance the
        geometric mean).  float64.
        """
        wide = outputs.astype(np.float64)
        if self.averaged == "mean":
            return np.asarray(wide.mean(axis=0))
        if self.averaged == "exp":
            return _log_mean_exp(wide)
        if self.averaged == "softmax":
            return _log_mean_exp(wide - np.logaddexp.reduce(wide, axis=2, keepdims=True))
        return _log_mean_exp(-np.logaddexp(0, -wide)) - _log_mean_exp(-np.logaddexp(0, wide))

    @abstractmethod
    def metrics(self, output: Array, part: Split, *, full: bool = False) -> dict[str, float]:
        """Return the headline metrics over all rows; with `full` every metric of the task."""


class Classification(Task):
    """One class of several, by softmax over as many logits."""

    headline = ("accuracy", "macro_f1")
    averaged: Averaged = "softmax"

    def learning_target(self, target: Array, dtype: np.dtype[np.generic]) -> Array:
        return np.ascontiguousarray(target, np.int64)

    def predict(self, output: Array) -> Array:
        classes: Array = output.argmax(axis=1)
        return classes

    def probabilities(self, output: Array) -> Array:
        shifted = output.astype(np.float64)
        shifted -= shifted.max(axis=1, keepdims=True)
        np.exp(shifted, shifted)
        shifted /= shifted.sum(axis=1, keepdims=True)
        return shifted

    def metrics(self, output: Array, part: Split, *, full: bool = False) -> dict[str, float]:
        values = _label_metrics(part, self.predict(output))
        if full:
            predicted, chance = self.predict(output), self.probabilities(output)
            values |= _probability_metrics(part, predicted, chance)
        return values


class BinaryClassification(Classification):
    """One class of two, by a single logit for the second."""

    averaged: Averaged = "sigmoid"

    def learning_target(self, target: Array, dtype: np.dtype[np.generic]) -> Array:
        return np.ascontiguousarray(target[:, None], dtype)

    def predict(self, output: Array) -> Array:
        return (output[:, 0] > 0).astype(np.int64)

    def probabilities(self, output: Array) -> Array:
        second = _logistic(output[:, 0])
        return np.stack([1.0 - second, second], axis=1)


class MultiLabel(Task):
    """Several independent yes-or-no labels, with one logit for each."""

    headline = ("accuracy", "macro_f1")
    averaged: Averaged = "sigmoid"

    def predict(self, output: Array) -> Array:
        return (output > 0).astype(np.int64)

    def probabilities(self, output: Array) -> Array:
        return _logistic(output)

    def metrics(self, output: Array, part: Split, *, full: bool = False) -> dict[str, float]:
        predicted = self.predict(output)
        values = _label_metrics(part, predicted)
        if full:
            values |= _probability_metrics(part, predicted, self.probabilities(output))
            del values["balanced_accuracy"]
        return values


class Regression(Task):
    """Numbers in the units of the table: `target` scales them and `loss` says what is predicted."""

    headline = ("r2", "mae", "rmse")

    def __init__(self, target: NumberTarget, loss: EntryLoss | None = None) -> None:
        self.target, self.loss = target, loss or MeanSquaredError()
        super().__init__(target.n_outputs * self.loss.columns)
        self.averaged = "exp" if self.loss.log_link else "mean"
        self.scaled = bool((target.scale != 1.0).any() or target.center.any())

    def truth(self, table: Table, target: Array) -> Array:
        """Return the targets in their own units.  Raises: DataError for one the loss refuses."""
        names = self.target.columns
        values = np.stack([table[name].values.astype(np.float64) for name in names], axis=1)
        self.loss.check_targets(values, lambda row, column: table.where(names[column], row))
        return values

    def predict(self, output: Array) -> Array:
        """Return the predictions (rows, targets) that are compared with the targets."""
        return self._predictions(output)[self.loss.point]

    def columns(self, output: Array) -> dict[str, Array]:
        """Return everything that the loss predicts, by name, in the order of the targets."""
        values = np.stack(self._predictions(output), axis=2)
        flat = values.reshape(len(values), values.shape[1] * values.shape[2])
        return dict(zip(self.column_names, flat.T, strict=True))

    @property
    def column_names(self) -> list[str]:
        """The names of what is predicted: of each target, with the suffixes of the loss."""
        return [f"{n}{p.suffix}" for n in self.target.columns for p in self.loss.predictions]

    def _predictions(self, output: Array) -> list[Array]:
        """Return each prediction of the loss (rows, targets), in the units of the targets."""
        wide, count = output.astype(np.float64), self.loss.columns
        leaves = self.loss.formulas.outputs
        given = {str(o.leaf): wide[:, k::count] for k, o in enumerate(leaves)}
        values = [(p, evaluate(p.formula, given)) for p in self.loss.predictions]
        return [self.target.inverse(v) if p.location else v * self.target.scale for p, v in values]

    def metrics(self, output: Array, part: Split, *, full: bool = False) -> dict[str, float]:
        predictions = self._predictions(output)
        given = part.truth, predictions[self.loss.point], part.weights
        values = {
            "r2": metrics.r2(*given),
            "mae": metrics.mae(*given),
            "rmse": metrics.rmse(*given),
        }
        return values | self._own_metrics(part, predictions) if full else values

    def _own_metrics(self, part: Split, predictions: list[Array]) -> dict[str, float]:
        """Return the metrics that belong to the loss, in the units of the targets."""
        truth, weights = part.truth, part.weights
        match self.loss:
            case Poisson():
                return {"deviance": metrics.poisson_deviance(truth, predictions[0], weights)}
            case Gamma():
                return {"deviance": metrics.gamma_deviance(truth, predictions[0], weights)}
            case GaussianNll():
                mean, deviation = predictions
                return {"nll": metrics.gaussian_nll(truth, mean, deviation, weights)}
            case Quantile(levels):
                pairs = list(zip(predictions, levels, strict=True))
                losses = [metrics.pinball(truth, q, level, weights) for q, level in pairs]
                apart = [abs(metrics.share_below(truth, q, weights) - level) for q, level in pairs]
                return {"pinball": float(np.mean(losses)), "calibration_error": max(apart)}
        return {}


def task_for(target: Target | None, loss: Loss) -> Task:
    """Return the task of an encoded target under a loss.

    Raises: DataError if there is no target, or the loss does not suit it.
    """
    if target is None:
        raise DataError("task: the preprocessing was fitted without a target")
    if loss.name not in LOSSES[target.task]:
        raise DataError(f"task: {target.task} has no loss {loss.name!r}")
    if isinstance(target, NumberTarget):
        assert isinstance(loss, EntryLoss)
        return Regression(target, loss)
    if isinstance(target, ClassTarget):
        one = isinstance(loss, EntryLoss)
        return BinaryClassification(1) if one else Classification(target.n_outputs)
    return MultiLabel(target.n_outputs)


def part_of(
    table: Table,
    rows: Array | None,
    preprocessor: Preprocessor,
    task: Task,
    dtype: np.dtype[np.generic],
    *,
    stream: int | None = None,
) -> Split:
    """Return the given rows of a table as the network and its metrics take them.

    With `stream`, a batch size, features stay in the file until they are gathered.

    Raises: DataError if the table has no target, or for the first cell that cannot be used.
    """
    part = table
    if stream is not None:
        data = preprocessor.stream(table, rows, batch_size=stream)
        targets = preprocessor.target.columns if preprocessor.target else []
        part = table.select(targets)
    if rows is not None:
        part = part.rows(rows)
    if stream is None:
        data = preprocessor.transform(part)
    if data.target is None:
        wanted = ", ".join(preprocessor.target.columns) if preprocessor.target else "none"
        raise DataError(f"{table.source}: the target column is missing ({wanted})")
    weights = None if data.weights is None else np.ascontiguousarray(data.weights, dtype)
    features: Any = data.features
    if stream is None:
        features = np.ascontiguousarray(features, dtype)
    return Split(
        features,
        task.learning_target(data.target, dtype),
        task.truth(part, data.target),
        weights,
        Places(
            Table({}, part.source, first_line=part.first_line, origin=part.origin),
            preprocessor.feature_names,
            preprocessor.target.columns if preprocessor.target else (),
        ),
    )


def _log_mean_exp(values: Array) -> Array:
    mean: Array = np.logaddexp.reduce(values, axis=0) - np.log(len(values))
    return mean


def _logistic(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    small = np.exp(-np.abs(wide))
    return np.where(wide >= 0, 1.0, small) / (1.0 + small)


def _label_metrics(part: Split, predicted: Array) -> dict[str, float]:
    truth = part.truth.astype(np.int64)
    wanted: dict[str, Callable[..., float]] = {"accuracy": metrics.accuracy, "macro_f1": metrics.f1}
    return {name: metric(truth, predicted, part.weights) for name, metric in wanted.items()}


def _probability_metrics(part: Split, predicted: Array, chance: Array) -> dict[str, float]:
    truth, weights = part.truth.astype(np.int64), part.weights
    return {
        "balanced_accuracy": metrics.balanced_accuracy(truth, predicted, weights),
        "weighted_f1": metrics.f1(truth, predicted, weights, average="weighted"),
        "roc_auc": metrics.roc_auc(truth, chance, weights),
        "log_loss": metrics.log_loss(truth, chance, weights),
    }
