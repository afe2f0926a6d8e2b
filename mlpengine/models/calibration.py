"""Calibration: prediction intervals from errors out of fold, and calibrated probabilities."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, exp, log, nan
from numbers import Real

import numpy as np

from mlpengine.errors import CheckpointError, UsageError
from mlpengine.models.task import Regression, Split, Task
from mlpengine.nn import TabularNetwork
from mlpengine.spec import Array

MAX_RESIDUALS = 4_096
"""Largest number of residuals that a model keeps; of more, quantiles stand for them."""

TEMPERATURES = 0.2, 5.0
"""Lowest and highest temperature."""


COMPARED_ROWS = 8_192
"""Largest number of rows by which `error_of_mean` compares networks with their mean."""


def error_of_mean(
    task: Task,
    outputs: Callable[[Array], Array],
    folds: Array,
    part: Split,
    mean_loss: Callable[[Array, Split], float],
) -> Array | None:
    """Return the error of the mean of all networks on new rows, as a share of that of one network.

    The error of one network is that out of fold.  By how much their mean is better depends on how
    far networks differ on rows that are new to all of them, and folds have none.  On a row that
    trained them networks err less, and differ less, by about the same factor: a network that moves
    by a share h towards each label keeps 1 - h of its error there, and two networks keep 1 - h of
    their difference.  So what averaging gains on rows that trained all networks of the mean,
    relative to the error of one there, is what it gains on new rows.

    `outputs` returns those (folds, rows, out_dim) of the networks of each fold for features, of at
    most `COMPARED_ROWS` rows.  Of numbers the error is the squared one; of classes `mean_loss`, of
    which averaging gains a share that is proportional to the error itself.

    Shape: (targets,) for numbers, (1,) for classes; None for two folds.
    Source: Krogh and Vedelsby 1995, "Neural network ensembles, cross validation, and active
    learning", equation 6, for the gain by averaging.
    """
    count = int(folds.max()) + 1
    if count < 3:
        return None

    def error(output: Array) -> Array:
        if not isinstance(task, Regression):
            return np.array([mean_loss(output, part)])
        squares = (task.predict(output) - part.truth) ** 2
        return np.asarray(np.average(squares, axis=0, weights=part.weights))

    some = np.arange(0, len(folds), -(-len(folds) // COMPARED_ROWS))
    part, folds = part.rows(some), folds[some]
    by_fold, rows = outputs(part.x), np.arange(len(some))
    own, *others = (by_fold[(folds + k) % count, rows] for k in range(count))
    one = np.mean([error(output) for output in others], axis=0)
    gain = 1 - error(task.combine(np.stack(others))) / np.where(one > 0, one, np.inf)
    if not isinstance(task, Regression):
        gain *= error(own) / np.where(one > 0, one, np.inf)
    gain *= (1 - 1 / count) / (1 - 1 / (count - 1))  # from the mean of count - 1 to that of count
    return np.clip(1 - np.nan_to_num(gain), 1 / count, 1)


@dataclass(frozen=True)
class Residuals:
    """Absolute errors out of fold, sorted: `values` (errors, targets), in the targets' units.

    They are those of the mean of all networks, as far as `error_of_mean` tells.
    """

    values: Array

    @classmethod
    def of(cls, errors: Array, share: Array | None = None) -> "Residuals":
        """Keep errors (rows, targets) of rows, each by networks that did not train on it.

        `share` (targets,) is what `error_of_mean` returns.
        """
        values = np.sort(np.abs(errors) * np.sqrt(1.0 if share is None else share), axis=0)
        if len(values) > MAX_RESIDUALS:
            shares = (np.arange(MAX_RESIDUALS) + 0.5) / MAX_RESIDUALS
            values = np.quantile(values, shares, axis=0)
        return cls(values)

    def interval(self, predictions: Array, level: float) -> tuple[Array, Array]:
        """Return lower and upper ends (rows, targets) for predictions (rows, targets).

        New targets lie between them with about this probability if their rows are like those
        trained on: the ends are as far from the prediction as that share of the errors.  CV+
        (Barber et al. 2021, arXiv 1905.02928) adds the errors out of fold to each network's
        prediction instead, which has a guarantee, and covered 92.5 % of new targets for 90 %:
        an error out of fold already holds the difference between networks.

        Raises: UsageError unless the level is between 0 and 1.
        """
        level = checked_level(level)
        count = len(self.values)
        half = self.values[min(count, ceil(level * (count + 1))) - 1]
        return predictions - half, predictions + half


def checked_level(level: object) -> float:
    """Return the share of targets of an interval.  Raises: UsageError unless it is in (0, 1)."""
    is_number = isinstance(level, Real) and not isinstance(level, bool)
    share = float(level) if is_number else nan  # type: ignore[arg-type]
    if not 0 < share < 1:
        percent = f"; write {share:g} % as {share / 100:g}" if 1 < share < 100 else ""
        raise UsageError(
            f"interval: the level must be a number between 0 and 1 (got {level!r:.60}){percent}"
        )
    return share


def checked_residuals(count: object, values: Array | None, targets: int) -> Residuals:
    """Return the residuals of a file.  Raises: CheckpointError unless they fit the model."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise CheckpointError(f"residuals: must be a whole number from 1 (got {count!r:.60})")
    shape = count, targets
    if values is None or values.shape != shape or values.dtype.kind != "f":
        raise CheckpointError(f"residuals: must be numbers of shape {shape}")
    if not (np.isfinite(values) & (values >= 0)).all() or (np.diff(values, axis=0) < 0).any():
        raise CheckpointError("residuals: must be finite, 0 or more, and sorted")
    return Residuals(values)


SHARE_ROUNDS = 20
"""Choices of `best_shares`, by which shares are multiples of 1/20."""


def best_shares(
    task: Task, outputs: Array, mean_loss: Callable[[Array], float]
) -> tuple[float, ...]:
    """Return the shares of several kinds of networks in a mean with a low loss.

    `outputs` (kinds, rows, out_dim) are out of fold, and `mean_loss` is the loss of such an output.
    The best kind comes first; then the one that makes the mean best is added, again and again, and
    may be added again.

    Source: Caruana et al. 2004, "Ensemble selection from libraries of models", section 2.
    """
    counts = np.zeros(len(outputs))
    for _ in range(SHARE_ROUNDS):
        trials = counts + np.eye(len(outputs))
        losses = [mean_loss(task.combine(outputs, one / one.sum())) for one in trials]
        counts = trials[int(np.argmin(losses))]
    return tuple((counts / SHARE_ROUNDS).tolist())


def fit_temperature(task: Task, output: Array, truth: Array, weights: Array | None) -> float:
    """Return by which logits are divided so that their log loss is minimal.

    One more row, whose class is any with equal probability, keeps the temperature of few rows from
    0 where all of them are right.

    Sources: Guo, Pleiss, Sun and Weinberger 2017, section 4.2; Platt 1999, "Probabilistic outputs
    for support vector machines", section 2.1, for such targets.
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


def apply_temperature(
    networks: Iterable[TabularNetwork], task: Task, output: Array, rows: Split
) -> float:
    """Divide last layers by the best temperature of their `output` for rows, and return it."""
    temperature = fit_temperature(task, output, rows.truth, rows.weights)
    for network in networks:
        network.divide_outputs(temperature)
    return temperature


def spread(predictions: Sequence[Array]) -> Array:
    """Return the standard deviation over networks of their predictions, of the first's shape."""
    deviation: Array = np.std(np.stack([*predictions]), axis=0, ddof=1)
    return deviation


def _log_loss(chances: Array, truth: Array, weights: Array | None) -> float:
    """Return the mean log loss of the rows, and of one more whose classes are equally likely."""
    tiny = np.finfo(np.float64).tiny
    logs = np.log(np.maximum(chances, tiny))
    if truth.ndim == 1:
        right, each = logs[np.arange(len(truth)), truth], logs.mean(axis=1)
    else:
        others = np.log(np.maximum(1 - chances, tiny))
        right = np.where(truth > 0.5, logs, others).mean(axis=1)
        each = (logs + others).mean(axis=1) / 2
    losses = -(len(truth) * right + each) / (len(truth) + 1)
    return float(np.average(losses, weights=weights))
