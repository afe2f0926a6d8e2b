"""A test with a small model: should networks learn the logarithm of a target?"""

from collections.abc import Callable

import numpy as np

from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array
from mlpengine.data.features.statistics import standardized
from mlpengine.data.features.thresholds import (
    FEWEST_ROWS,
    GAIN,
    PARTS,
    PROBE_PENALTIES,
    PROBED_ROWS,
    RANDOM_UNITS,
    SKEW,
)


def suits_log(y: Array, features: Callable[[Array], Array]) -> bool:
    """Return whether a small model predicts targets (rows,) better by learning their logarithm.

    `features` maps row indices to the features (some rows, features) of these rows.
    """
    some = evenly_spaced(len(y), PROBED_ROWS)
    return can_be_log(y[some]) and log_is_better(features(some), y[some])


def can_be_log(y: Array) -> bool:
    """Return whether targets (rows,) are positive and skewed to the right."""
    if len(y) < FEWEST_ROWS or not (y > 0).all():
        return False
    apart = y - y.mean()
    deviation = float(apart.std())
    return deviation > 0 and float(np.mean((apart / deviation) ** 3)) > SKEW


def log_is_better(x: Array, y: Array) -> bool:
    """Return whether learning log(y) instead of y (rows,) lowers the RMSE by the share `GAIN`.

    Both models are ridge regressions on the features `x` (rows, features) and on random units
    max(0, weighted sum of features).  Errors are out-of-fold, in the target's units.

    Source: Rahimi and Recht 2008, "Weighted sums of random kitchen sinks", for the model.
    """
    rng = np.random.Generator(np.random.PCG64(0))
    x = standardized(x)
    weight = rng.standard_normal((x.shape[1], RANDOM_UNITS)) / np.sqrt(x.shape[1])
    units = 5 * np.maximum(x @ weight + rng.standard_normal(RANDOM_UNITS), 0)  # a lower penalty
    x, folds = np.hstack([x, units]), rng.permutation(len(y)) % PARTS
    learned = np.stack([y, np.log(y)], axis=1)
    squares = np.zeros((len(PROBE_PENALTIES), 2))
    for k in range(PARTS):
        rows, held = folds != k, folds == k
        low, high = learned[rows].min(axis=0), learned[rows].max(axis=0)
        for i, output in enumerate(_ridge(x[rows], learned[rows], x[held])):
            predicted = np.clip(output, low, high)
            predicted[:, 1] = np.exp(predicted[:, 1])
            squares[i] += ((predicted - y[held, None]) ** 2).sum(axis=0)
    itself, log = np.sqrt(squares.min(axis=0))
    return bool(log < (1 - GAIN) * itself)


def _ridge(x: Array, y: Array, new: Array) -> list[Array]:
    """Return the outputs (new rows, targets) of a linear model for each penalty."""
    mean, center = x.mean(axis=0), y.mean(axis=0)
    x, new = x - mean, new - mean
    if len(x) < x.shape[1]:
        gram, right, left = x @ x.T, y - center, new @ x.T
    else:
        gram, right, left = x.T @ x, x.T @ (y - center), new
    diagonal = np.eye(len(gram))
    return [left @ np.linalg.solve(gram + p * diagonal, right) + center for p in PROBE_PENALTIES]
