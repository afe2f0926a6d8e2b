"""Linear models with minimal penalized loss, and networks that are linear models."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter

import numpy as np

from mlpengine.core.spec import Array, Spec
from mlpengine.models.task import Split
from mlpengine.nn import Mlp, TabularNetwork
from mlpengine.ops.loss import Loss

PENALTIES = (1000.0, 100.0, 10.0, 1.0, 0.1)
"""L2 penalties of the sum of losses; the penalty with the lowest out-of-fold loss is used."""

FLOAT64_ROWS = 4_096
"""Number of rows of a block of features in float64."""

NO_SIZE = 1e-12
"""Squared singular values below this share of the largest one count as 0."""

ITERATIONS, MEMORY, TOLERANCE = 100, 10, 1e-7
"""Limits of `minimize`: number of steps, number of stored pairs, and tolerance.

The search ends when the expected fall of the value is below the tolerance times the value.
"""

MEMBER_TOLERANCE = 3e-4
"""Tolerance for the members of an ensemble; smaller tolerances do not change their test errors."""


def linear_network(projection: Array, weight: Array, bias: Array, like: TabularNetwork) -> Mlp:
    """Return a network that computes x @ projection @ weight.T + bias.

    The network has the features and the dtype of `like`.  `projection` is as in `of_features`.
    """
    network = Mlp([like.in_dim, len(bias)], initializer="zeros", dtype=like.dtype)
    network.weights[0][...] = of_features(weight, projection, like.in_dim)
    network.biases[0][...] = bias
    return network


def of_features(weight: Array, projection: Array, features: int) -> Array:
    """Return w (rows, features) with x @ w.T equal to x @ projection @ weight.T.

    `projection` is a matrix (features, columns), or the indices (columns,) of columns of x.
    """
    if projection.ndim == 2:
        product: Array = weight @ projection.T
        return product
    spread = np.zeros((len(weight), features))
    spread[:, projection] = weight
    return spread


def linear_networks(
    mlp: TabularNetwork,
    loss: Loss,
    train: Split,
    folds: Array,
    projections: Sequence[Array],
    mean_loss: Callable[[Array], float],
    *,
    threads: int = 1,
) -> tuple[list[TabularNetwork], Array]:
    """Return a linear network for each fold, and the out-of-fold outputs (rows, outputs).

    Networks have the features, outputs and dtype of `mlp` and read the columns x @ projection.  A
    projection is a matrix, or an array of indices, to save memory (see `of_features`).
    All networks have the projection and the penalty with the lowest `mean_loss` of out-of-fold
    outputs.  Folds are fitted in `threads` threads.
    """
    each = []
    for projection in projections:
        chunks = (
            train.x[k : k + FLOAT64_ROWS].astype(np.float64)
            for k in range(0, len(train), FLOAT64_ROWS)
        )
        picks = projection.ndim == 1
        columns = np.concatenate(
            [rows[:, projection] if picks else rows @ projection for rows in chunks]
        )
        fits, outputs = _fits(loss, columns, train, folds, mlp.sizes[-1], threads)
        losses = [mean_loss(output) for output in outputs]
        k = int(np.argmin(losses))
        each.append((losses[k], projection, [fit[k] for fit in fits], outputs[k]))
    _, projection, best, output = min(each, key=itemgetter(0))
    return [linear_network(projection, *one, mlp) for one in best], output


def _fits(
    loss: Loss, columns: Array, train: Split, folds: Array, outputs: int, threads: int
) -> tuple[list[list[tuple[Array, Array]]], Array]:
    """Return the models by fold and penalty, and out-of-fold outputs (penalties, rows, outputs)."""
    held_out = np.zeros((len(PENALTIES), len(train), outputs))

    def fit(k: int) -> list[tuple[Array, Array]]:
        held, rows = np.flatnonzero(folds == k), np.flatnonzero(folds != k)
        weights = None if train.weights is None else train.weights[rows]
        part = columns[rows], train.y[rows], weights
        models = [*fit_linear(loss, *part, outputs, tolerance=MEMBER_TOLERANCE)]
        for output, (weight, bias) in zip(held_out, models, strict=True):
            output[held] = columns[held] @ weight.T + bias
        return models

    with ThreadPoolExecutor(threads) as pool:
        return [*pool.map(fit, range(int(folds.max()) + 1))], held_out


def fit_linear(
    loss: Loss,
    x: Array,
    y: Array,
    weights: Array | None,
    outputs: int,
    penalties: Sequence[float] = PENALTIES,
    tolerance: float = TOLERANCE,
) -> Iterator[tuple[Array, Array]]:
    """For each penalty, yield the weight (outputs, features) and bias (outputs,) of least loss.

    The minimized value is the mean loss over the float64 rows `x` (rows, features), plus
    penalty / (2 rows) times the sum of squared weights.  The search uses the coordinates of the
    singular vectors of `x`, scaled so that one step minimizes the squared error of one output.
    """
    rows, mean = len(x), x.mean(axis=0)
    x = x - mean
    sizes, inputs, weight_of = _singular(x)
    inputs = np.column_stack([inputs, np.ones(rows)])  # the last weight is the bias
    target = y.astype(np.float64) if y.dtype.kind == "f" else y
    output, slope = np.zeros((rows, outputs)), np.empty((rows, outputs))
    bound = loss.bind(output, slope, weighted=weights is not None, target=Spec.of(target))
    bound.target[...] = target
    if bound.sample_weight is not None:
        bound.sample_weight[...] = weights
    values = np.zeros((inputs.shape[1], outputs))
    for penalty in penalties:
        scale = np.sqrt(np.append((2 * sizes**2 + penalty) / rows, 2.0))[:, None]
        decay = np.append(np.full(len(sizes), penalty / rows), 0.0)[:, None]

        def value(z: Array, scale: Array = scale, decay: Array = decay) -> tuple[float, Array]:
            w = z.reshape(scale.shape[0], -1) / scale
            np.matmul(inputs, w, out=output)
            loss, decayed = bound.run(), decay * w
            gradient = (inputs.T @ slope + decayed) / scale
            return loss + 0.5 * float(np.vdot(decayed, w)), gradient.ravel()

        end = minimize(value, (values * scale).ravel(), tolerance)
        values = end.reshape(values.shape) / scale
        weight = weight_of(values[:-1]).T
        yield weight, values[-1] - weight @ mean


def _singular(x: Array) -> tuple[Array, Array, Callable[[Array], Array]]:
    """Return the singular values of `x`, and its rows in coordinates of right singular vectors.

    The third result is a function from weights (vectors, outputs) of these coordinates to weights
    of the columns.  Eigenvectors of x.T @ x, or of x @ x.T if it is smaller, take less time than a
    singular value decomposition, but small singular values are less exact.  With fewer rows than
    columns, vectors with a singular value near 0 are left out.
    """
    if len(x) >= x.shape[1]:
        squares, vectors = np.linalg.eigh(x.T @ x)
        return np.sqrt(np.maximum(squares, 0.0)), x @ vectors, vectors.__matmul__
    squares, left = np.linalg.eigh(x @ x.T)
    kept = squares > NO_SIZE * squares[-1]
    sizes, left = np.sqrt(squares[kept]), left[:, kept]
    return sizes, left * sizes, lambda values: x.T @ (left @ (values / sizes[:, None]))


@np.errstate(over="ignore", invalid="ignore")  # a step to an infinite value is halved
def minimize(
    function: Callable[[Array], tuple[float, Array]], start: Array, tolerance: float = TOLERANCE
) -> Array:
    """Return a minimum near `start` of `function`, which returns value and gradient.

    A step is halved until the value falls by at least a small share of the fall that the slope
    predicts.

    Source: Nocedal and Wright 2006, algorithms 7.5 (L-BFGS) and 3.1 (halving).
    """
    x = start
    value, gradient = function(x)
    pairs: deque[tuple[Array, Array, float]] = deque(maxlen=MEMORY)
    for _ in range(ITERATIONS):
        direction = -_product(pairs, gradient)
        slope = float(direction @ gradient)
        if not slope < -tolerance * max(abs(value), tolerance):
            break
        step = 1.0
        while True:
            ahead = x + step * direction
            lower, other = function(ahead)
            if lower <= value + 1e-4 * step * slope:
                break
            step *= 0.5
            if step < 1e-8:
                return x
        moved, turned = ahead - x, other - gradient
        product = float(moved @ turned)
        if product > 1e-12 * float(turned @ turned):
            pairs.append((moved, turned, product))
        x, value, gradient = ahead, lower, other
    return x


def _product(pairs: Sequence[tuple[Array, Array, float]], gradient: Array) -> Array:
    """Return the estimated inverse Hessian times the gradient.

    Each of `pairs` has a step, the change of the gradient in this step, and the product of both.
    """
    q, shares = gradient.copy(), []
    for moved, turned, product in reversed(pairs):
        share = float(moved @ q) / product
        q -= share * turned
        shares.append(share)
    if pairs:
        _, turned, product = pairs[-1]
        q *= product / float(turned @ turned)
    for (moved, turned, product), share in zip(pairs, reversed(shares), strict=True):
        q += (share - float(turned @ q) / product) * moved
    return q
