"""How sure predictions are: prediction intervals, and probabilities that mean what they say."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, floor, log

import numpy as np

from mlpengine.errors import CheckpointError, UsageError
from mlpengine.spec import Array
from mlpengine.train.task import Task

MAX_RESIDUALS = 4_096
"""Largest number of residuals that a model keeps; of more, quantiles stand for them."""

ROWS = 1_024
"""Rows whose intervals are computed at once: some 32 MB."""

BINS = 15
"""Bins of `calibration_error`."""

TEMPERATURES = 0.2, 5.0
"""Lowest and highest temperature."""


@dataclass(frozen=True)
class Residuals:
    """Absolute errors of rows by the network that did not train on them, sorted by network.

    Shapes: values (errors, targets), in the units of the targets; counts: errors of each network.
    """

    values: Array
    counts: tuple[int, ...]

    @classmethod
    def of(cls, errors: Array, folds: Array) -> "Residuals":
        """Keep errors (rows, targets) of rows by their folds."""
        sizes = np.bincount(folds)
        share = min(1.0, MAX_RESIDUALS / len(errors))
        blocks = []
        for fold, size in enumerate(sizes):
            block = np.sort(np.abs(errors[folds == fold]), axis=0)
            count = ceil(size * share)
            if count < size:
                block = np.quantile(block, (np.arange(count) + 0.5) / count, axis=0)
            blocks.append(block)
        return cls(np.concatenate(blocks), tuple(len(block) for block in blocks))

    def interval(self, predictions: Array, level: float) -> tuple[Array, Array]:
        """Return lower and upper ends (rows, targets) for predictions (networks, rows, targets).

        New targets lie between them with about this probability if their rows are like those
        trained on, and with at least 2 `level` - 1.  The method is CV+.

        Source: Barber, Candes, Ramdas and Tibshirani 2021, arXiv 1905.02928, section 3.
        Raises: UsageError unless the level is between 0 and 1.
        """
        if not 0 < level < 1:
            raise UsageError(f"interval: the level must be between 0 and 1 (got {level:g})")
        count, miss = len(self.values), 1.0 - level
        lowest = max(0, floor(miss * (count + 1)) - 1)
        highest = min(count - 1, ceil((1.0 - miss) * (count + 1)) - 1)
        low, high = (np.empty(predictions.shape[1:]) for _ in range(2))
        for start in range(0, predictions.shape[1], ROWS):
            rows = slice(start, start + ROWS)
            centers = np.repeat(predictions[:, rows], self.counts, axis=0)
            spread = self.values[:, None, :]
            low[rows] = np.partition(centers - spread, lowest, axis=0)[lowest]
            high[rows] = np.partition(centers + spread, highest, axis=0)[highest]
        return np.minimum(low, high), np.maximum(low, high)


def checked_residuals(
    counts: object, values: Array | None, members: int, targets: int
) -> Residuals:
    """Return the residuals of a file.  Raises: CheckpointError unless they fit the model."""
    if (
        not isinstance(counts, list)
        or len(counts) != members
        or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in counts)
    ):
        raise CheckpointError(f"residuals: must be a count for each member (got {counts!r:.60})")
    shape = sum(counts), targets
    if values is None or values.shape != shape or not sum(counts) or values.dtype.kind != "f":
        raise CheckpointError(f"residuals: must be numbers of shape {shape}")
    if not (np.isfinite(values) & (values >= 0)).all():
        raise CheckpointError("residuals: must be finite, and 0 or more")
    return Residuals(values, tuple(counts))


def best_temperature(task: Task, output: Array, truth: Array, weights: Array | None) -> float:
    """Return by which logits are divided so that their log loss is least.

    Source: Guo, Pleiss, Sun and Weinberger 2017, section 4.2.
    """

    def loss(logarithm: float) -> float:
        chances = task.probabilities(output.astype(np.float64) / exp(logarithm))
        assert chances is not None
        return _log_loss(chances, truth, weights)

    low, high = map(log, TEMPERATURES)
    ratio = (5**0.5 - 1) / 2  # golden section: the loss is convex in 1 / temperature
    inner = [high - ratio * (high - low), low + ratio * (high - low)]
    losses = [loss(point) for point in inner]
    while high - low > 1e-3:
        if losses[0] < losses[1]:
            high, inner, losses = inner[1], [0.0, inner[0]], [0.0, losses[0]]
            inner[0] = high - ratio * (high - low)
            losses[0] = loss(inner[0])
        else:
            low, inner, losses = inner[0], [inner[1], 0.0], [losses[1], 0.0]
            inner[1] = low + ratio * (high - low)
            losses[1] = loss(inner[1])
    return exp((low + high) / 2)


def calibration_error(chances: Array, truth: Array, weights: Array | None = None) -> float:
    """Return the expected calibration error: how far confidence is from accuracy, on average.

    Rows are put into 15 bins by the probability of the predicted class; of several labels each
    counts as a row.  The mean over bins, by weight, of |accuracy - mean probability|.

    Source: Guo, Pleiss, Sun and Weinberger 2017, equation 3.
    """
    weights = np.ones(len(chances)) if weights is None else weights
    if truth.ndim == 1:
        predicted = chances.argmax(axis=1)
        confidence, right = chances[np.arange(len(chances)), predicted], predicted == truth
    else:
        weights = np.repeat(weights, truth.shape[1])
        confidence = np.maximum(chances, 1 - chances).ravel()
        right = ((chances > 0.5) == (truth > 0.5)).ravel()
    number = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(number, weights * (right - confidence), BINS)
    return float(np.abs(gaps).sum() / weights.sum())


def spread(predictions: Sequence[Array]) -> Array:
    """Return the standard deviation over networks of their predictions, of the first's shape."""
    deviation: Array = np.std(np.stack([*predictions]), axis=0, ddof=1)
    return deviation


def _log_loss(chances: Array, truth: Array, weights: Array | None) -> float:
    tiny = np.finfo(np.float64).tiny
    if truth.ndim == 1:
        losses = -np.log(np.maximum(chances[np.arange(len(truth)), truth], tiny))
    else:
        right = np.where(truth > 0.5, chances, 1 - chances)
        losses = -np.log(np.maximum(right, tiny)).mean(axis=1)
    return float(np.average(losses, weights=weights))
