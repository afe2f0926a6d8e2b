"""Properties of losses, features and targets that are known before training."""

import numpy as np

from mlpengine.ops import Loss
from mlpengine.spec import Array

RARE = 1e-6
"""Smallest distance of a class's share from 0 and 1."""


def feature_sizes(x: Array) -> Array:
    """Return the size of each feature of `x` (rows, in_dim): the 0.9 quantile of its magnitude.

    Unlike a root mean square, it does not depend on a few outliers.
    """
    sizes: Array = np.quantile(np.abs(x), 0.9, axis=0)
    return sizes


def loss_of_zeros(loss: Loss, y: Array, outputs: int, weights: Array | None = None) -> float:
    """Return the loss of outputs that are all 0: ln(classes), ln 2, or the mean of y**2."""
    zeros = np.zeros(outputs)
    return loss_of_constant(loss, y, zeros, weights)


def baseline_loss(loss: Loss, y: Array, outputs: int, weights: Array | None = None) -> float:
    """Return the loss of the best constant prediction, which a network that learns goes below.

    Shapes: y as the loss takes it, (rows,) class numbers or (rows, outputs); weights (rows,).
    """
    return loss_of_constant(loss, y, best_constant(loss, y, outputs, weights), weights)


def best_constant(loss: Loss, y: Array, outputs: int, weights: Array | None = None) -> Array:
    """Return the best output (outputs,) that does not depend on the features.

    Class frequencies for cross entropies, the median for mae, the mean for the others, each
    weighted as the rows are.
    """
    if y.ndim == 1:
        shares = np.bincount(y, weights, minlength=outputs).astype(np.float64)
        class_weights = getattr(loss, "class_weights", None)
        shares *= 1.0 if class_weights is None else np.array(class_weights)
        smoothing = getattr(loss, "label_smoothing", 0.0)
        shares = (1 - smoothing) * shares / max(shares.sum(), RARE) + smoothing / outputs
        logits: Array = np.log(np.maximum(shares, RARE))
        return logits
    wide = y.astype(np.float64)
    constant = np.average(wide, 0, weights)
    if loss.name == "mae":
        constant = _median(wide, np.ones(len(wide)) if weights is None else weights)
    if loss.name == "softmax_cross_entropy":
        constant = np.log(np.maximum(constant, RARE))
    if loss.name == "bce_with_logits":
        odds = getattr(loss, "positive_weight", 1.0) * constant
        shares = np.clip(odds / (odds + 1 - constant), RARE, 1 - RARE)
        constant = np.log(shares / (1 - shares))
    return np.asarray(constant)


def _median(values: Array, weights: Array) -> Array:
    """Return the median of each column, the middle of all medians where there are several."""
    order = np.argsort(values, axis=0)
    ascending = np.take_along_axis(values, order, 0)
    below = np.cumsum(weights[order], axis=0, dtype=np.float64)
    middle = below[-1] / 2
    columns = np.arange(values.shape[1])
    first = np.argmax(below >= middle, axis=0)
    last = np.argmax(below > middle, axis=0)
    medians: Array = (ascending[first, columns] + ascending[last, columns]) / 2
    return medians


def lowest_loss(loss: Loss, y: Array, outputs: int) -> float:
    """Return the lowest possible loss, that of the targets themselves: 0 without label smoothing.

    Shapes: as for `baseline_loss`.
    """
    if loss.name == "softmax_cross_entropy":
        target = np.eye(outputs)[y] if y.ndim == 1 else y.astype(np.float64)
        smoothing = getattr(loss, "label_smoothing", 0.0)
        class_weights = getattr(loss, "class_weights", None)
        shares = (1 - smoothing) * target + smoothing / outputs
        shares *= 1.0 if class_weights is None else np.array(class_weights)
        best = np.log(np.maximum(shares, RARE**2))
    elif loss.name == "bce_with_logits":
        odds = getattr(loss, "positive_weight", 1.0) * y.astype(np.float64)
        shares = np.clip(odds / (odds + 1 - y), RARE**2, 1 - RARE**2)
        best = np.log(shares / (1 - shares))
    else:
        best = y.astype(np.float64)
    return loss(best, y if y.ndim == 1 else y.astype(np.float64))


def loss_of_constant(loss: Loss, y: Array, constant: Array, weights: Array | None) -> float:
    """Return the loss of an output (outputs,) that is the same for every row."""
    output = np.tile(constant, (len(y), 1))
    target = y if y.ndim == 1 else y.astype(np.float64)
    bound = loss.bind(output, None, weighted=weights is not None)
    bound.target[...] = target
    if weights is not None and bound.sample_weight is not None:
        bound.sample_weight[...] = weights
    for run in bound.forward:
        run()
    return float(bound.value)
