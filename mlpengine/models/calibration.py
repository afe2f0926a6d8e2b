"""Calibration: intervals and prediction sets from out-of-fold rows, calibrated probabilities."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from math import ceil, exp, log, nan
from numbers import Real
from typing import NamedTuple

import numpy as np

from mlpengine.core.errors import CheckpointError, UsageError
from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array
from mlpengine.core.wording import quoted
from mlpengine.models.task import Regression, Split, Task

_warn_once = cache(logging.getLogger("mlpengine").warning)

RESIDUALS = "residuals"
"""Prefix of the names of the arrays of `Residuals` in a file."""

SET_CHANCES, SET_CLASSES = "set_chances", "set_classes"
"""Names of the arrays of `ClassSets` in a file."""

MAX_RESIDUALS = 4_096
"""Maximum number of residuals in a model; more residuals are replaced by their quantiles."""

MAX_PLACES, ROWS_OF_PLACE = 10, 80
"""Maximum number of `Residuals.places`, and minimum number of rows for each place."""

CHANCE_OF_RANGE = 1.5
"""Factor c.  Two ranges hold a fraction `level` of n errors: the shortest one, and the one that is
symmetric about 0.  Even if the errors are symmetric, the shortest one is by chance shorter, by a
fraction of up to c / (level * sqrt(n)) of the other.
"""

SMALLEST_SCALE = 0.01
"""Smallest of `Residuals.scales`, as a share of the largest scale."""

TEMPERATURES = 0.2, 5.0
"""Smallest and largest temperature that `fit_temperature` returns."""


COMPARED_ROWS = 8_192
"""Maximum number of rows on which `error_of_mean` compares networks with their mean."""


def error_of_mean(
    task: Task,
    outputs: Callable[[Array], Array],
    folds: Array,
    part: Split,
    mean_loss: Callable[[Array, Split], float],
) -> Array | None:
    """Estimate how much averaging the networks reduces the error on new rows.

    The result is the error of the networks' mean prediction, divided by the error of one network.
    One network's error is known from out-of-fold rows.  With folds, no rows are new to all
    networks, so the gain of averaging must be estimated on rows that trained the networks.  On
    these rows, errors are smaller, and networks differ less, by about the same factor: if training
    moves each output a fraction h of the way to its label, 1 - h of each error and of each
    difference remains.  The relative gain of averaging is thus about the same as on new rows.

    `outputs` maps the features of at most `COMPARED_ROWS` rows to outputs (folds, rows, out_dim),
    by the networks of each fold.  The error is the squared error for numbers, and `mean_loss` for
    classes and censored times.

    Shape: (targets,) for numbers, (1,) for classes; None for two folds.
    Source: Krogh and Vedelsby 1995, "Neural network ensembles, cross validation, and active
    learning", equation 6, for the gain by averaging.
    """
    count, squared = int(folds.max()) + 1, isinstance(task, Regression) and task.has_errors
    if count < 3:
        return None

    def error(output: Array) -> Array:
        if not squared:
            return np.array([mean_loss(output, part)])
        squares = np.nan_to_num((task.predict(output) - part.truth) ** 2)  # missing targets
        return np.asarray(np.average(squares, axis=0, weights=part.weights))

    some = np.arange(0, len(folds), -(-len(folds) // COMPARED_ROWS))
    part, folds = part.rows(some), folds[some]
    by_fold, rows = outputs(part.x), np.arange(len(some))
    own, *others = (by_fold[(folds + k) % count, rows] for k in range(count))
    one = np.mean([error(output) for output in others], axis=0)
    gain = 1 - error(task.combine(np.stack(others))) / np.where(one > 0, one, np.inf)
    if not squared:
        gain *= error(own) / np.where(one > 0, one, np.inf)
    gain *= (1 - 1 / count) / (1 - 1 / (count - 1))  # from count - 1 networks to count
    return np.clip(1 - np.nan_to_num(gain), 1 / count, 1)


@dataclass(frozen=True)
class Residuals:
    """Out-of-fold errors for intervals; the width of an interval depends on the prediction.

    An error is target minus prediction.  Stored errors are multiplied by the square root of
    `error_of_mean`, because the mean of all networks has smaller errors.  Then each is divided by
    the usual size of errors at its prediction.  `places` are some predictions, and `scales` are the
    usual sizes of errors at these predictions, in the units of the targets.  Between places, scales
    are interpolated linearly.

    Shapes: `errors` (errors, targets), sorted; `places` (places, targets), increasing, and
        `scales`.
    """

    errors: Array
    places: Array
    scales: Array

    @classmethod
    def of(cls, errors: Array, predictions: Array, share: Array | None = None) -> "Residuals":
        """Return the residuals for out-of-fold errors and predictions, each (rows, targets).

        `share` (targets,) is the result of `error_of_mean`.  Errors may be NaN for missing targets;
        every target then keeps as many errors as the target with the fewest known errors.
        """
        if (gaps := np.isnan(errors)).any():
            known = [np.flatnonzero(~missing) for missing in gaps.T]
            fewest = min(map(len, known))
            rows = np.stack([some[evenly_spaced(len(some), fewest)] for some in known], axis=1)
            errors, predictions = (np.take_along_axis(a, rows, 0) for a in (errors, predictions))
        errors = errors * np.sqrt(1.0 if share is None else share)
        parts = max(1, min(MAX_PLACES, len(errors) // ROWS_OF_PLACE))
        order = np.array_split(np.argsort(predictions, axis=0, kind="stable"), parts)
        places, scales = (
            np.stack([about(np.take_along_axis(values, rows, axis=0)) for rows in order])
            for about, values in (
                (lambda some: some.mean(axis=0), predictions),
                (lambda some: np.quantile(np.abs(some), 0.8, axis=0), errors),
            )
        )
        scales = np.maximum(scales, SMALLEST_SCALE * scales.max(axis=0))
        scales[:, scales.max(axis=0) == 0] = 1.0
        kept = cls(errors, places, scales)
        return replace(kept, errors=_sorted_quantiles(errors / kept._scale(predictions)))

    def interval(self, predictions: Array, level: float) -> tuple[Array, Array]:
        """Return lower ends and upper ends (rows, targets) for predictions (rows, targets).

        If a new row is like the training rows, its target is in the interval with a probability of
        about `level`.  Usually both ends are equally far from the prediction.  If the shortest
        range that holds a fraction `level` of the errors is shorter than chance explains, this
        range is used instead.

        CV+ (Barber et al. 2021, arXiv 1905.02928) adds the out-of-fold errors to each network's
        prediction.  CV+ has a guarantee, but its intervals are wider than needed, because an
        out-of-fold error already contains the difference between networks.

        Source: Lei et al. 2018, "Distribution-free predictive inference for regression", section
        5.2, for errors divided by a scale.  Raises: UsageError unless the level is between 0 and 1.
        """
        low, high = self.ends(level)
        if ceil(level * (len(self.errors) + 1)) > len(self.errors):
            _warn_once(
                "warning: intervals of %g need %d out-of-fold rows (there are %d); these intervals "
                "hold a smaller share of new targets",
                *(level, ceil(level / (1 - level) - 1e-9), len(self.errors)),
            )
        scale = self._scale(predictions)
        return predictions + low * scale, predictions + high * scale

    def ends(self, level: float) -> tuple[Array, Array]:
        """Return (end - prediction) / scale for both ends of `interval`, each (targets,)."""
        level, count = checked_level(level), len(self.errors)
        inside = min(count, ceil(level * (count + 1)))
        half = np.sort(np.abs(self.errors), axis=0)[inside - 1]
        first, last = self.errors[: count - inside + 1], self.errors[inside - 1 :]
        shortest = np.argmin(last - first, axis=0), np.arange(len(half))
        gain = 1 - (last - first)[shortest] / np.where(half > 0, 2 * half, 1)
        is_skewed = gain > CHANCE_OF_RANGE / (level * count**0.5)
        low, high = np.where(is_skewed, (first[shortest], last[shortest]), (-half, half))
        return low, high

    def quantile(self, predictions: Array, level: float) -> Array:
        """Return a quantile of new targets (rows, targets) with these predictions."""
        if min(level, 1 - level) * (len(self.errors) + 1) < 1 - 1e-9:
            _warn_once(
                "warning: the quantile %g needs %d out-of-fold rows (there are %d); it is too near "
                "the middle",
                *(level, ceil(1 / min(level, 1 - level) - 1e-9) - 1, len(self.errors)),
            )
        errors = np.quantile(self.errors, level, axis=0)
        return np.asarray(predictions + errors * self._scale(predictions))

    def drawn(self, predictions: Array, rng: np.random.Generator) -> Array:
        """Return random targets (rows, targets) for new rows with these predictions."""
        errors = np.stack([rng.choice(one, len(predictions)) for one in self.errors.T], axis=1)
        return np.asarray(predictions + errors * self._scale(predictions))

    def _scale(self, predictions: Array) -> Array:
        """Return the usual size of errors at predictions (rows, targets), in the same shape."""
        columns = zip(predictions.T, self.places.T, self.scales.T, strict=True)
        return np.stack([np.interp(*column) for column in columns], axis=1)

    def to_arrays(self) -> dict[str, Array]:
        """Return the arrays, with their names in a file as keys."""
        return {f"{RESIDUALS}.{one.name}": getattr(self, one.name) for one in fields(self)}

    @classmethod
    def taken_from(cls, arrays: dict[str, Array], targets: int) -> "Residuals | None":
        """Remove the residuals from the arrays of a file and return them, or None."""
        names = [f"{RESIDUALS}.{one.name}" for one in fields(cls)]
        given = [arrays.pop(name, None) for name in names]
        values = [one for one in given if one is not None]
        if not values:
            return None
        if len(values) < len(names):
            raise CheckpointError(f"residuals: needs all of {', '.join(names)}")
        for name, value in zip(names, values, strict=True):
            if value.ndim != 2 or not len(value) or value.shape[1] != targets:
                raise CheckpointError(f"{name}: must be numbers of shape (1 or more, {targets})")
            if value.dtype.kind != "f" or not np.isfinite(value).all():
                raise CheckpointError(f"{name}: must be finite numbers")
        errors, places, scales = values
        if places.shape != scales.shape or (scales <= 0).any():
            raise CheckpointError("residuals: scales must be above 0, and one for each place")
        if any((np.diff(one, axis=0) < 0).any() for one in (errors, places)):
            raise CheckpointError("residuals: errors and places must be sorted")
        return cls(errors, places, scales)


class ClassSets(NamedTuple):
    """Out-of-fold probabilities of the true classes, for prediction sets.

    A prediction set has the classes with a probability above a threshold, a quantile of the
    out-of-fold probabilities.  Over all rows, the requested share of the sets contains the true
    class; for the rows of a rare class, this share may be much lower.  Sets by class have a
    threshold for each class.  The share is then right for each class, but the sets are larger.

    Adaptive sets (Romano et al. 2020, arXiv 2006.02544) sum the probabilities of likelier classes.
    On three tables with 4 to 15 classes, adaptive sets had about twice as many classes as these
    sets, and contained the true class more often than asked for.

    Shapes: `chances` (rows,), sorted, and their `classes` (rows,).
    Sources: Sadinle, Lei and Wasserman 2019, "Least ambiguous set-valued classifiers with bounded
    error levels", section 3, for the threshold; Vovk 2012, "Conditional validity of inductive
    conformal predictors", section 3, for sets by class (Mondrian).
    """

    chances: Array
    classes: Array

    @classmethod
    def of(cls, chances: Array, truth: Array) -> "ClassSets":
        """Keep the probability of the true class from out-of-fold `chances` (rows, classes)."""
        return cls.kept(chances[np.arange(len(truth)), truth], truth)

    @classmethod
    def kept(cls, chances: Array, truth: Array) -> "ClassSets":
        """Keep the probabilities (rows,) of true classes, at most `MAX_RESIDUALS`."""
        order = np.argsort(chances, kind="stable")
        if len(order) > MAX_RESIDUALS:
            order = order[
                (np.arange(MAX_RESIDUALS) + 0.5).astype(int) * len(order) // MAX_RESIDUALS
            ]
        return cls(chances[order], truth[order].astype(np.int64))

    def drawn(self, classes: Array, rng: np.random.Generator) -> Array:
        """Draw a probability for each of the true `classes` (rows,), from rows of this class."""
        chances = rng.choice(self.chances, len(classes))  # final for classes without stored rows
        for k in np.unique(self.classes):
            alike = classes == k
            chances[alike] = rng.choice(self.chances[self.classes == k], int(alike.sum()))
        return chances

    def contain(self, chances: Array, level: float, *, by_class: bool = False) -> Array:
        """Return which classes are in each row's set, bool, for chances (rows, classes).

        If rows are like the training rows, a set contains the true class with a probability of
        about `level`; with `by_class`, this holds for the rows of each class.  A set is empty if no
        class is likely enough.  Empty sets occur if the likeliest class is right more often than
        `level`.
        """
        if not by_class:
            return np.asarray(chances >= self.lowest(level))
        each = [self.chances[self.classes == k] for k in range(chances.shape[1])]
        return np.asarray(chances >= [_lowest(own, level) for own in each])

    def lowest(self, level: float) -> float:
        """Return the threshold at this level: the lowest probability of a class in a set."""
        return _lowest(self.chances, level)

    @classmethod
    def taken_from(cls, arrays: dict[str, Array], classes: int) -> "ClassSets | None":
        """Remove the prediction sets from the arrays of a file and return them, or None."""
        chances, numbers = (arrays.pop(name, None) for name in (SET_CHANCES, SET_CLASSES))
        if chances is None and numbers is None:
            return None
        if chances is None or chances.ndim != 1 or not len(chances) or chances.dtype.kind != "f":
            raise CheckpointError(f"{SET_CHANCES}: must be numbers of shape (1 or more,)")
        if not (chances >= 0).all() or chances[-1] > 1 or (np.diff(chances) < 0).any():
            raise CheckpointError(f"{SET_CHANCES}: must be sorted probabilities")
        if numbers is None or numbers.shape != chances.shape or numbers.dtype.kind != "i":
            raise CheckpointError(f"{SET_CLASSES}: must be a class index for each probability")
        if numbers.min() < 0 or numbers.max() >= classes:
            raise CheckpointError(f"{SET_CLASSES}: must be indices of {classes} classes")
        return cls(chances, numbers)

    def to_arrays(self) -> dict[str, Array]:
        """Return the arrays, with their names in a file as keys."""
        return {SET_CHANCES: self.chances, SET_CLASSES: self.classes}


def _lowest(chances: Array, level: float) -> float:
    """Return the conformal quantile of sorted chances; 0 if there are too few chances."""
    outside = len(chances) - ceil(checked_level(level, "set") * (len(chances) + 1))
    return float(chances[outside]) if outside >= 0 else 0.0


def _sorted_quantiles(values: Array) -> Array:
    """Sort values along axis 0; more than `MAX_RESIDUALS` values are replaced by quantiles."""
    if len(values) <= MAX_RESIDUALS:
        return np.sort(values, axis=0)
    shares = (np.arange(MAX_RESIDUALS) + 0.5) / MAX_RESIDUALS
    return np.asarray(np.quantile(values, shares, axis=0))


def checked_level(level: object, where: str = "interval") -> float:
    """Return the level as a float.  Raises: UsageError unless the level is in (0, 1)."""
    is_number = isinstance(level, Real) and not isinstance(level, bool)
    share = float(level) if is_number else nan  # type: ignore[arg-type]
    if not 0 < share < 1:
        percent = f"; write {share:g} % as {share / 100:g}" if 1 < share < 100 else ""
        raise UsageError(
            f"{where}: the level must be a number above 0 and below 1 "
            f"(got {quoted(level)}){percent}"
        )
    return share


def fit_temperature(task: Task, output: Array, truth: Array, weights: Array | None) -> float:
    """Return the temperature T for the lowest log loss of output / T.

    The loss includes one more row, with average outputs and a label that is spread equally over all
    classes (as in label smoothing).  This row keeps the temperature above 0 if there are few rows
    and all are predicted correctly.

    Sources: Guo, Pleiss, Sun and Weinberger 2017, section 4.2; Platt 1999, "Probabilistic outputs
    for support vector machines", section 2.1, for the further row.
    """

    def loss(logarithm: float) -> float:
        chances = task.predicted_numbers(output.astype(np.float64) / exp(logarithm))
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


def _log_loss(chances: Array, truth: Array, weights: Array | None) -> float:
    """Return the mean log loss of the rows together with the further row of `fit_temperature`."""
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
