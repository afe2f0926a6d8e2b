"""Properties of losses, features and targets that do not need training."""

from collections.abc import Sequence
from math import nan
from typing import Any, NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.diagnostics.samples import median
from mlpengine.diagnostics.thresholds import FIFTH
from mlpengine.nn import Network
from mlpengine.ops import Loss
from mlpengine.ops.loss_sum import LossSum


@np.errstate(all="ignore")  # a diverged run may overflow
def feature_sizes(x: Array) -> Array:
    """Return the size of each feature of `x` (rows, in_dim): the 0.9 quantile of its magnitude.

    Unlike a root mean square, the size does not depend on a few outliers.
    """
    place = int(0.9 * (len(x) - 1))  # np.quantile would import numpy.ma in 9 ms
    return np.asarray(np.partition(np.abs(x), place, axis=0)[place])


class ExtremeValue(NamedTuple):
    """A value that is `times` the fifth largest value of `column` (-1 for a target)."""

    row: int
    column: int
    times: float


NO_EXTREME = ExtremeValue(-1, -1, 0.0)


@np.errstate(all="ignore")  # a diverged run may overflow
def extreme_feature(x: Array, sizes: Array) -> ExtremeValue:
    """Return the most extreme value of features (rows, in_dim) of about unit size.

    `sizes` (in_dim,) are from `feature_sizes`; sizes below 1 count as 1.
    """
    known = NO_EXTREME
    if len(x) < 2 * FIFTH:
        return known
    peaks = np.maximum(x.max(axis=0), -x.min(axis=0))
    usual = np.maximum(sizes, 1.0)
    for column in np.flatnonzero(peaks > 2 * FIFTH * usual).tolist():
        known = max(known, _extreme(np.abs(x[:, column]), usual[column], column), key=_times)
    return known


@np.errstate(all="ignore")  # a diverged run may overflow
def extreme_target(y: Array) -> ExtremeValue:
    """Return the most extreme target (rows, outputs), by its distance from the median."""
    known = NO_EXTREME
    y = y[:, ~np.isnan(y).all(axis=0)]
    if len(y) < 2 * FIFTH or not y.size:
        return known
    distances = np.nan_to_num(np.abs(y - np.nanmedian(y, axis=0)))
    usual = feature_sizes(distances)
    for distance, size in zip(distances.T, usual, strict=True):
        known = max(known, _extreme(distance, size, -1), key=_times)
    return known


def _extreme(magnitudes: Array, size: float, column: int) -> ExtremeValue:
    row = int(np.argmax(magnitudes))
    usual = max(float(size), float(np.partition(magnitudes, -FIFTH)[-FIFTH]))
    return ExtremeValue(row, column, float(magnitudes[row]) / usual) if usual > 0 else NO_EXTREME


def _times(extreme: ExtremeValue) -> float:
    return extreme.times


@np.errstate(all="ignore")  # a diverged run may overflow
def weight_scale(mlp: Network) -> float:
    """Return the median over weight matrices of root mean square * sqrt(number of inputs).

    Usual initializers give 1 to 1.5.  Without a weight matrix, the result is NaN.
    """
    weights = (mlp.params.views[name] for name in mlp.groups["weights"])
    scales = [float(np.sqrt(np.mean(np.square(w)) * (w.size // len(w)))) for w in weights]
    return median(np.array(scales))


def baseline_loss(loss: Loss, y: Array, outputs: int, weights: Array | None = None) -> float:
    """Return the loss of the best constant prediction; a network that learns has a lower loss.

    Shapes: y as in the loss, (rows,) class indices or (rows, outputs); weights (rows,).
    """
    return loss_of_constant(loss, y, loss.best_constant(y, outputs, weights), weights)


@np.errstate(all="ignore")  # a diverged run may overflow
def constant_losses(
    loss: Loss | LossSum, outputs: Any, parts: Sequence[tuple[Any, Array | None]]
) -> list[float]:
    """Return the loss, on each part, of the constant that is best on the first part.

    A part is a pair of targets and weights; `outputs` is the size of the output.  For a `LossSum`,
    targets and sizes are by name, and the result is NaN if an output has no target or a negative
    weight.
    """
    if isinstance(loss, LossSum):
        if loss.targets != [*loss.losses] or min(loss.weights.values()) < 0:
            return [nan] * len(parts)
        each = [
            np.multiply(
                loss.weights[name], constant_losses(one, outputs[name], _of_output(name, parts))
            )
            for name, one in loss.losses.items()
        ]
        return list(map(float, np.sum(each, axis=0)))
    y, weights = parts[0]
    constant = loss.best_constant(y, outputs, weights)
    return [loss_of_constant(loss, y, constant, weights) for y, weights in parts]


def _of_output(name: str, parts: Sequence[tuple[Any, Array | None]]) -> list[Any]:
    return [(y[name], weights) for y, weights in parts]


def loss_of_constant(loss: Loss, y: Array, constant: Array, weights: Array | None) -> float:
    """Return the loss of a constant output (outputs,).

    To save memory, all rows of a class are replaced by one row with the sum of their weights.
    """
    count, y = len(y), y if y.ndim == 1 else y.astype(np.float64)
    if y.ndim == 1:
        of_classes = np.bincount(y, weights)
        y = np.flatnonzero(of_classes)
        weights = of_classes[y]
    with np.errstate(all="ignore"):
        return loss(np.tile(constant, (len(y), 1)), y, None, weights) * len(y) / count
