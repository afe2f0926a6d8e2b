"""Baselines: errors of simple models on a sample of rows, and shifts between training and new rows.

The models are a linear model, a model of random relu units, and nearest neighbors.  A model
predicts each row from the other rows of the sample, so its errors are errors on new rows.
"""

from collections.abc import Sequence
from math import inf, log, nan, sqrt
from typing import NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.features.statistics import standardized
from mlpengine.diagnostics.thresholds import (
    BY_CHANCE,
    CHANCE_LINK,
    CODE_VALUES,
    COPY_DISTANCE,
    FAR_NEIGHBORS,
    MAX_FEATURES,
    MIN_BASELINE_ROWS,
    NEIGHBORS,
    ON_SCALE,
    RANDOM_UNITS,
    RIDGE,
    RIDGE_PENALTIES,
    SECONDS_PER_PAIR,
    SECONDS_PER_VALUE,
    SMALLEST_SPREAD,
    SURE,
    SURE_ROWS,
    SURE_SHARE,
)
from mlpengine.settings import Fix

Beside = tuple[Array, Array]
"""For each row, the target of an adjacent row, and whether there is an adjacent row (rows,)."""


class Baselines(NamedTuple):
    """Errors of the network and of simple models on a sample of the training rows.

    An "error" is the share of wrong classes, or the mean squared error, divided by the error of a
    constant prediction.

    Attributes:
        error: error of the network.
        best: lowest error of the simple models.
        best_name: "a linear model", "random features" or "nearest neighbors".
        deviation: standard error of the difference error - best.
        signal: largest r2 of a simple model; 0 or less if no model explains anything.
        related: largest lead of a simple model over a constant prediction, in squared error,
            divided by the standard error of the lead.
        contradicted: share of rows with another class than predicted, among the rows where the best
            simple model is surest.  This is about the share of wrong labels.
        contradicted_error: standard error of `contradicted`; NaN if every row has an equal row.
        doubtful: share of rows with another class than predicted, among all rows.
        contradicting_rows: the rows counted in `contradicted`, as indices in the training part.
        shifts: for each feature, the Kolmogorov-Smirnov distance between training and other rows.
        shift_limit: distance that chance hardly ever exceeds.
        target_shift: the same distance for the target.
        class_gain: for a target with few evenly spaced values, the accuracy of a classifier minus
            the accuracy of a regression; 1 for two values.
        linked: strongest correlation of a feature and the target, scaled; chance gives less than 1.
        moved: how much better the features of a row predict the target of an adjacent row than the
            target of the same row, in standard errors.
        beside: r2 for the same row, r2 for the adjacent row, and 1 (row below) or -1 (above).
        ranges: for the feature with the greatest shift, the ends of the middle 90 % of the training
            rows, then of the other rows.
    """

    error: float = nan
    best: float = nan
    best_name: str = ""
    deviation: float = nan
    signal: float = nan
    related: float = nan
    contradicted: float = nan
    contradicted_error: float = nan
    doubtful: float = nan
    contradicting_rows: tuple[int, ...] = ()
    shifts: tuple[float, ...] = ()
    shift_limit: float = inf
    target_shift: float = nan
    class_gain: float = nan
    linked: float = nan
    moved: float = nan
    beside: tuple[float, float, int] = (nan, nan, 1)
    ranges: tuple[float, ...] = (nan,) * 4


class BaselineScore(NamedTuple):
    """Scores of a network, a linear model and a constant prediction, on rows new to all three.

    Attributes:
        metric: name of the metric; higher is better.
        rows: a text that names the rows.
        value, linear, constant: scores of the network, the linear model and the constant.
        error: standard error of value - linear.
        fix: settings that make the model linear, or add a linear model to the ensemble.  For an
            ensemble with a linear model, `fix` is empty and all scores but `value` are NaN.
    """

    metric: str
    rows: str
    value: float
    linear: float
    constant: float
    error: float
    fix: Sequence[Fix] = ()


def rows_within(seconds: float, values: int) -> int:
    """Return how many rows `baselines` handles in `seconds`; a row has `values` numbers."""
    linear = SECONDS_PER_VALUE * values
    square = SECONDS_PER_PAIR
    return int((sqrt(linear**2 + 4 * square * seconds) - linear) / (2 * square))


@np.errstate(all="ignore")  # a diverged run may overflow
def baselines(
    x: Array,
    truth: Array,
    predicted: Array,
    rows: Array,
    validation_x: Array | None,
    validation_truth: Array | None = None,
    beside: Sequence[Beside] = (),
) -> Baselines:
    """Return the baselines of a sample of training rows and a sample of other rows.

    `beside` has the targets of the row below each row, and of the row above.

    Shapes: x (rows, in_dim); truth and predicted (rows,) class indices or (rows, outputs); rows
    (rows,) indices in the training part; validation_x (other rows, in_dim); validation_truth in the
    form of truth.
    """
    none = Baselines()
    if validation_truth is not None:
        pair = (np.sort(one.reshape(len(one), -1)[:, 0]) for one in (truth, validation_truth))
        none = none._replace(target_shift=largest_shift(*pair))
    if validation_x is not None and len(validation_x) > 1:
        shifts, limit = shifts_between(x, validation_x)
        most = int(np.argmax(shifts))
        ranges = *middle_range(x[:, most]), *middle_range(validation_x[:, most])
        none = none._replace(shifts=shifts, shift_limit=limit, ranges=ranges)
    known = np.isfinite(x).all(axis=1)
    if predicted.dtype.kind == "f":
        known &= np.isfinite(predicted.reshape(len(x), -1)).all(axis=1)
    x, truth, predicted, rows = x[known], truth[known], predicted[known], rows[known]
    if len(x) < MIN_BASELINE_ROWS or x.shape[1] > MAX_FEATURES or np.ptp(truth, axis=0).max() == 0:
        return none
    features, wide = standardized(x), truth.astype(np.float64)
    if truth.ndim == 2:  # errors are relative, so the scale does not matter
        scale = np.abs(wide).max()
        wide, predicted = wide / scale, predicted / scale
    own = _own_errors(predicted, truth if truth.ndim == 1 else wide)
    if not (np.isfinite(features).all() and np.isfinite(own).all()):
        return none
    units = RandomUnits(features)
    moved = moved_target(units, truth, [(one[known], has[known]) for one, has in beside])
    if truth.ndim == 1:
        kinds, truth = np.unique(truth, return_inverse=True)  # leave out classes without rows
        wide = np.eye(len(kinds))[truth]
    wide = wide - wide.mean(axis=0)
    near = nearest_rows(features)
    guesses = {
        "a linear model": linear_predictions(features, wide),
        "random features": units.predict(wide),
        "nearest neighbors": near @ wide / near.sum(axis=1, keepdims=True),
    }
    squares = np.square(wide).sum(axis=1)
    left = [np.square(wide - guess).sum(axis=1) for guess in guesses.values()]
    left[2] /= 1 + 1 / NEIGHBORS  # remove the error of a mean of NEIGHBORS rows
    gains = [squares - one for one in left]
    related = max(float(gain.mean() / (gain.std() or inf)) for gain in gains) * sqrt(len(x))
    errors = {name: _errors(guess, truth, wide) for name, guess in guesses.items()}
    best_name = min(errors, key=lambda name: float(errors[name].mean()))
    difference = own - errors[best_name]
    constant = _constant_error(truth, wide)
    contradicted, uncertain, doubtful, contradicting = nan, nan, nan, rows[:0]
    if truth.ndim == 1:
        contradicted, uncertain, places = contradictions(truth, guesses[best_name], alone(x))
        doubtful, contradicting = float(errors[best_name].mean()), rows[places]
    return Baselines(
        float(own.mean()) / constant,
        float(errors[best_name].mean()) / constant,
        best_name,
        float(difference.std()) / sqrt(len(x)) / constant,
        float(max(gain.sum() for gain in gains) / squares.sum()),
        related,
        contradicted,
        uncertain,
        doubtful,
        tuple(contradicting.tolist()),
        none.shifts,
        none.shift_limit,
        none.target_shift,
        class_gain(units, truth) if truth.ndim == 2 and truth.shape[1] == 1 else nan,
        strongest_link(features, wide),
        *moved,
        none.ranges,
    )


def strongest_link(features: Array, wide: Array) -> float:
    """Return `Baselines.linked` of features (rows, in_dim) and centered targets (rows, outputs)."""
    spread = np.outer(features.std(axis=0), wide.std(axis=0))
    products = np.abs(features.T @ wide) / sqrt(len(features))
    z = np.where(spread > SMALLEST_SPREAD, products / spread, 0.0)
    return float(z.max()) / sqrt(2 * log(2 * z.size / CHANCE_LINK))


def class_gain(units: "RandomUnits", target: Array) -> float:
    """Return `Baselines.class_gain` for a target (rows, 1)."""
    values, codes = np.unique(target, return_inverse=True)
    codes, steps = codes.ravel(), np.diff(values)
    if len(values) > CODE_VALUES or not np.allclose(
        steps, np.rint(steps / steps.min()) * steps.min()
    ):
        return nan
    if len(values) == 2:
        return 1.0
    classes = np.eye(len(values))[codes]
    shares = classes.mean(axis=0)
    guess = (units.predict(classes - shares) + shares).argmax(axis=1)
    order = units.predict(target - target.mean())[:, 0].argsort()
    sums = np.cumsum(np.pad(classes[order], ((ON_SCALE + 1, ON_SCALE), (0, 0))), axis=0)
    near = sums[2 * ON_SCALE + 1 :] - sums[: -2 * ON_SCALE - 1] - classes[order]
    return float(np.mean(guess == codes) - np.mean(near.argmax(axis=1) == codes[order]))


def moved_target(
    units: "RandomUnits", truth: Array, beside: Sequence[Beside]
) -> tuple[float, tuple[float, float, int]]:
    """Return `Baselines.moved` and `beside` for targets `truth` and targets of adjacent rows.

    Ranks replace numbers, so that a few large numbers do not dominate.
    """
    moved: tuple[float, tuple[float, float, int]] = nan, (nan, nan, 1)
    if not all(has.any() for _, has in beside):
        return moved
    own, *others = (one if one.ndim == 1 else one[:, 0] for one in (truth, *(t for t, _ in beside)))
    if truth.ndim == 1:
        each = [np.equal.outer(one, np.unique(own)).astype(np.float64) for one in (own, *others)]
    else:
        each = [np.unique(one, return_inverse=True)[1][:, None] * 1.0 for one in (own, *others)]
    known = [np.ones(len(own), np.bool_), *(has for _, has in beside)]
    centered = [
        np.where(k[:, None], t - t[k].mean(axis=0), 0.0) for t, k in zip(each, known, strict=True)
    ]
    wide = np.concatenate(centered, axis=1)
    left = wide - units.predict(wide)
    errors, sizes = (
        np.square(one).reshape(len(own), len(each), -1).sum(axis=2) for one in (left, wide)
    )
    for number, (_, has) in enumerate(beside, 1):
        pair = errors[has][:, [0, number]] / sizes[has][:, [0, number]].mean(axis=0)
        gains, explained = pair[:, 0] - pair[:, 1], 1 - pair.mean(axis=0)
        times = float(gains.mean() / gains.std() * sqrt(len(gains)))
        if len(gains) >= MIN_BASELINE_ROWS and not times <= moved[0]:
            moved = times, (float(explained[0]), float(explained[1]), 3 - 2 * number)
    return moved


class Copies(NamedTuple):
    """Shares of the validation rows that repeat training rows.

    Attributes:
        near: share of rows nearer to a training row than chance allows, but not equal to it.
        equal: share of rows equal to a training row, minus the share of training rows that equal
            another training row.
    """

    near: float = nan
    equal: float = nan


@np.errstate(all="ignore")  # all rows may be equal
def copies_of(x: Array, other: Array) -> Copies:
    """Return the shares of rows of `other` that repeat a row of `x`.

    A row is a near copy if the distance to its nearest row is less than a share of the distance to
    its tenth nearest row.  The share is `COPY_DISTANCE`, or less in few dimensions: by chance, at
    most `BY_CHANCE` of the rows may be near copies.  The distances to the tenth and the fortieth
    nearest row give the number of dimensions.

    Source: Levina and Bickel 2004, Maximum likelihood estimation of intrinsic dimension.

    Shapes: (rows, features), (other rows, features); both are finite.
    """
    if len(x) <= FAR_NEIGHBORS or not len(other):
        return Copies()
    both = standardized(np.concatenate([x, other]))
    x, other = both[: len(x)], both[len(x) :]
    squares, nearest = distances_to(x, other, ())
    places = NEIGHBORS - 1, FAR_NEIGHBORS - 1
    tenth, far = np.sqrt(np.partition(squares, places, axis=1)[:, places].clip(0)).T
    ratios = np.log(far / tenth)[(far > tenth) & (tenth > SMALLEST_SPREAD)]
    share = COPY_DISTANCE
    if ratios.size:
        dimensions = log(FAR_NEIGHBORS / NEIGHBORS) / float(np.median(ratios))
        share = min(share, (1 - (1 - BY_CHANCE) ** (1 / (NEIGHBORS - 1))) ** (1 / dimensions))
    some = np.arange(0, len(x), -(-len(x) // len(other)))
    usual = float(np.mean(distances_to(x, x[some], some)[1] == 0))
    near = float(np.mean((nearest > 0) & (nearest < share * tenth)))
    return Copies(near, float(np.mean(nearest == 0)) - usual)


def distances_to(x: Array, other: Array, own: Sequence[int] | Array) -> tuple[Array, Array]:
    """Return squared distances (other rows, rows), and the distance to the nearest row of `x`.

    If the rows of `other` are from `x`, `own` has their indices in `x`; else it is empty.
    """
    squares = np.vecdot(x, x) - 2 * (other @ x.T) + np.vecdot(other, other)[:, None]
    squares[np.arange(len(own)), own] = np.inf
    return squares, np.linalg.norm(other - x[squares.argmin(axis=1)], axis=1)


def error_beside_constant(predicted: Array, truth: Array) -> tuple[float, int]:
    """Return error / (error of a constant), and the number of rows that the constant misses."""
    if truth.ndim == 1:
        missed = len(truth) - int(np.bincount(truth).max())
        return float((predicted != truth).sum()) / max(missed, 1), missed
    wide = truth.astype(np.float64)
    squares = np.square(wide - wide.mean(axis=0)).sum()
    return float(np.square(predicted - wide).sum() / (squares or 1.0)), len(truth)


def nearest_rows(features: Array) -> Array:
    """Return a float64 matrix (rows, rows) with 1 at [i, j] if row j is near row i, else 0.

    Near rows are the `NEIGHBORS` nearest rows, and further rows as near as the last of these.
    """
    narrow = features.astype(np.float32)
    squares = np.vecdot(narrow, narrow)
    distances = narrow @ narrow.T
    distances *= -2
    distances += squares
    np.fill_diagonal(distances, np.inf)
    last = np.partition(distances, NEIGHBORS - 1, axis=1)[:, NEIGHBORS - 1, None]
    near: Array = (distances <= last).astype(np.float64)
    return near


def linear_predictions(features: Array, wide: Array) -> Array:
    """Return the prediction of each row by a ridge regression on the other rows.

    Its residual is the residual of the fit to all rows, divided by 1 - leverage of the row.
    """
    rows, size = features.shape
    if size > rows:  # a smaller matrix gives the same numbers
        products = features @ features.T
        hat = np.linalg.solve(products + RIDGE * rows * np.eye(rows), products)
        leverage, fitted = np.diagonal(hat), hat @ wide
    else:
        squares = features.T @ features + RIDGE * rows * np.eye(size)
        factors = np.linalg.solve(squares, features.T)
        leverage, fitted = np.vecdot(features, factors.T), features @ (factors @ wide)
    leverage = np.minimum(leverage + 1 / rows, 0.999)
    predictions: Array = wide - (wide - fitted) / (1 - leverage)[:, None]
    return predictions


class RandomUnits:
    """A ridge regression on relu units with random weights, a nonlinear model.

    Args:
        features: (rows, features), standardized.
    """

    def __init__(self, features: Array) -> None:
        rng, (rows, size) = np.random.default_rng(0), features.shape
        planes = rng.standard_normal((size, RANDOM_UNITS)) / sqrt(size)
        units = np.maximum(features @ planes + rng.uniform(-1, 1, RANDOM_UNITS), 0.0)
        units -= units.mean(axis=0)
        self._sizes, vectors = np.linalg.eigh(units.T @ units / rows)
        self._left = units @ vectors
        self._squares = np.square(self._left)

    def predict(self, wide: Array) -> Array:
        """Predict each row of centered targets (rows, outputs) from the other rows.

        The penalty with the lowest squared error is used.
        """
        sizes, rows, products = self._sizes, len(wide), self._left.T @ wide
        best, lowest = np.zeros_like(wide), inf
        for penalty in RIDGE_PENALTIES:
            damped = np.maximum(sizes, 0.0) + penalty * sizes[-1] + RIDGE * penalty
            factors = 1.0 / (rows * damped)
            leverage = np.minimum(self._squares @ factors + 1 / rows, 0.999)
            fitted = self._left @ (factors[:, None] * products)
            residuals = (wide - fitted) / (1 - leverage)[:, None]
            error = float(np.square(residuals).sum())
            if error < lowest:
                best, lowest = wide - residuals, error
        return best


def contradictions(classes: Array, guess: Array, candidates: Array) -> tuple[float, float, Array]:
    """Return the contradicted rows among the surest rows: share, standard error, and row indices.

    A row is contradicted if a model predicts another class.  Only rows in the mask `candidates`
    (rows,) count; without candidates, share and standard error are NaN.  `guess` (rows, classes)
    has the predicted probabilities minus the shares of the classes.
    """
    shares = guess + np.bincount(classes, minlength=guess.shape[1]) / len(classes)
    ordered = np.sort(shares, axis=1)
    margins = ordered[:, -1] - ordered[:, -2]
    count = min(len(classes), max(SURE_ROWS, round(SURE_SHARE * len(classes))))
    sure = candidates & (margins >= np.sort(margins)[-count])
    other = sure & (shares.argmax(axis=1) != classes)
    if not sure.any():
        return nan, nan, np.flatnonzero(other)
    share, number = float(other.sum() / sure.sum()), int(sure.sum())
    return share, sqrt(share * (1 - share) / number), np.flatnonzero(other)


def alone(x: Array) -> Array:
    """Return, for each row of `x` (rows, features), whether no other row has the same features."""
    _, place, counts = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    one: Array = counts[place.ravel()] == 1  # NumPy 2.0.0 returns (rows, 1)
    return one


def largest_shift(one: Array, other: Array) -> float:
    """Return the Kolmogorov-Smirnov statistic of two sorted samples.

    This is the largest difference between their distribution functions.
    """
    points = np.concatenate([one, other])
    below, above = (np.searchsorted(part, points, "right") / len(part) for part in (one, other))
    return float(np.abs(below - above).max())


def middle_range(values: Array) -> tuple[float, float]:
    """Return the ends of the middle 90 % of the values (rows,)."""
    ordered, tail = np.sort(values), len(values) // 20
    return float(ordered[tail]), float(ordered[-1 - tail])


def shifts_between(x: Array, other: Array) -> tuple[tuple[float, ...], float]:
    """Return the Kolmogorov-Smirnov distance between two samples for each feature, and its limit.

    The limit is from the asymptotic test, corrected for the number of features.
    """
    pairs = zip(np.sort(x, axis=0).T, np.sort(other, axis=0).T, strict=True)
    shifts = tuple(largest_shift(*pair) for pair in pairs)
    rows = len(x) * len(other) / (len(x) + len(other))
    return shifts, sqrt(log(2 * x.shape[1] / SURE) / 2 / rows)


def _errors(guess: Array, truth: Array, wide: Array) -> Array:
    """Return each row's error of the prediction `guess`."""
    if truth.ndim == 1:
        shares = np.bincount(truth) / len(truth)
        return np.asarray((guess + shares).argmax(axis=1) != truth, np.float64)
    return np.asarray(np.square(guess - wide).sum(axis=1))


def _own_errors(predicted: Array, truth: Array) -> Array:
    if truth.ndim == 1:
        return np.asarray(predicted != truth, np.float64)
    return np.asarray(np.square(predicted - truth.astype(np.float64)).sum(axis=1))


def _constant_error(truth: Array, wide: Array) -> float:
    if truth.ndim == 1:
        return max(1.0 - float(np.bincount(truth).max()) / len(truth), 1 / len(truth))
    return float(np.square(wide).sum(axis=1).mean())
