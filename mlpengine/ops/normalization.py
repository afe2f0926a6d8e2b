"""Layer norm (each row over its features) and batch norm (each feature over the rows).

Both reshape x to a cube (rows, features, inner).  Sums are products with ones: `numpy.add.reduce`
takes 4 times as long as a product for rows of 512 entries, and 10 times for rows of 8.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from mlpengine.core.errors import ShapeError
from mlpengine.core.fields import Limits
from mlpengine.core.spec import Array, Calls, DTypeLike, Slots, Spec, call, floating
from mlpengine.formula.numpy_functions import constant_like
from mlpengine.ops._check import listing, need_floats
from mlpengine.ops._constant import ones
from mlpengine.ops.op import GradOp

Means = Callable[[Array, Array], Calls]
"""A function ``means(cube, column)`` that yields the calls for the means of a cube."""


_EPS, _MOMENTUM = Limits(at_least=0), Limits(at_least=0, at_most=1)


class _Normalization(GradOp):
    """y = xhat * scale + bias, where xhat = (x - mean) * rstd and rstd = 1 / sqrt(variance + eps).

    Forward stores xhat and rstd for backward.  Subclasses choose the axes of the means.
    """

    eps: float

    def infer(self, x: Spec, scale: Spec | None = None, bias: Spec | None = None) -> Spec:
        need_floats(self.name, x=x, scale=scale, bias=bias)
        _EPS.check(f"{self.name}: eps", self.eps)
        features = Spec(self._cube(x)[1:2], x.dtype)
        if not features.size or any(s not in (None, features) for s in (scale, bias)):
            raise ShapeError(
                f"{self.name}: x needs a feature, and scale and bias one entry per feature "
                f"({listing(x=x, scale=scale, bias=bias)})"
            )
        return x

    def work(self, x: Spec, scale: Spec | None = None, bias: Spec | None = None) -> dict[str, Spec]:
        shape = self._cube(x)
        cube, column = Spec(shape, x.dtype), Spec(self._column(shape), x.dtype)
        sums = Spec(shape[:2], x.dtype)
        shared = {"xhat": cube, "rstd": column, "mean": column, "sums": sums}
        return shared | {"product": cube, "dmean": column, "dsums": sums}

    def _cube(self, x: Spec) -> tuple[int, int, int]:
        """Return the shape (rows, features, inner) of x as a cube."""
        raise NotImplementedError

    def _column(self, cube: tuple[int, int, int]) -> tuple[int, ...]:
        """Return the shape of mean and variance; this shape broadcasts to the cube."""
        raise NotImplementedError

    def _means(self, sums: Array) -> Means:
        """Return the function that averages a cube; `sums` (rows, features) is a work buffer."""
        raise NotImplementedError

    def forward(
        self, x: Array, scale: Array | None, bias: Array | None, *,
        out: Array, xhat: Array, rstd: Array, mean: Array, sums: Array,
    ) -> Calls:  # fmt: skip
        y = out.reshape(xhat.shape)
        yield from self._centered(x.reshape(xhat.shape), y, xhat, rstd, mean, sums)
        yield call(np.add, rstd, constant_like(self.eps, rstd), rstd)
        yield call(np.sqrt, rstd, rstd)
        yield call(np.reciprocal, rstd, rstd)
        yield call(np.multiply, xhat, rstd, xhat)
        yield from _scaled(xhat, scale, bias, y)

    def backward(
        self, dy: Array, scale: Array | None, *,
        out: Slots, xhat: Array, rstd: Array, product: Array, dmean: Array, dsums: Array,
    ) -> Calls:  # fmt: skip
        dx, dscale, dbias = out
        dy = dy.reshape(xhat.shape)
        if dscale is not None:
            yield call(np.multiply, dy, xhat, product)
            yield from _feature_sums(product, dscale, dsums)
        if dbias is not None:
            yield from _feature_sums(dy, dbias, dsums)
        if dx is not None:
            h = dx.reshape(xhat.shape)
            yield from _scaled(dy, scale, None, h)
            yield from self._subtract_means(h, xhat, product, dmean, self._means(dsums))
            yield call(np.multiply, h, rstd, h)

    def _centered(
        self, x: Array, workspace: Array, xhat: Array, variance: Array, mean: Array, sums: Array
    ) -> Calls:
        """Yield the calls that write x - mean into `xhat`, and the mean and the variance."""
        means = self._means(sums)
        yield from means(x, mean)
        yield call(np.subtract, x, mean, xhat)
        yield call(np.multiply, xhat, xhat, workspace)
        yield from means(workspace, variance)

    def _subtract_means(
        self, h: Array, xhat: Array, product: Array, mean: Array, means: Means
    ) -> Calls:
        """Yield the calls that turn h into h - mean(h) - xhat * mean(h * xhat)."""
        yield call(np.multiply, h, xhat, product)
        yield from means(product, mean)
        yield call(np.multiply, xhat, mean, product)
        yield from means(h, mean)
        yield call(np.subtract, h, mean, h)
        yield call(np.subtract, h, product, h)


@dataclass(frozen=True)
class LayerNorm(_Normalization, name="layer_norm"):
    """Normalization over the last axis, y = (x - mean) / sqrt(variance + eps) * scale + bias.

    The variance is biased (divided by the number of features).  Below,
    rstd = 1 / sqrt(variance + eps) and xhat = (x - mean) * rstd.

    Shapes: x, y (..., features); scale and bias (features,), both optional.
    Backward: dx = (h - mean(h) - xhat * mean(h * xhat)) * rstd with h = dy * scale;
    dscale = dy * xhat and dbias = dy, both summed over the rows.
    Raises: ShapeError unless scale and bias have one entry per feature.
    Source: Ba, Kiros and Hinton 2016, equation 4.
    """

    eps: float = 1e-5

    def _cube(self, x: Spec) -> tuple[int, int, int]:
        features = x.shape[-1] if x.shape else 0
        return prod(x.shape[:-1]), features, 1

    def _column(self, cube: tuple[int, int, int]) -> tuple[int, ...]:
        return cube[0], 1, 1

    def _means(self, sums: Array) -> Means:
        return _row_means


class RunningStatistics:
    """Means and variances that `BatchNorm` updates in training and uses in evaluation.

    Shapes: mean, variance (features,); they start at 0 and 1.
    """

    def __init__(self, features: int, dtype: DTypeLike = "float32", momentum: float = 0.1) -> None:
        kind = floating(dtype, "batch_norm")
        self._use(np.zeros(features, kind), np.ones(features, kind), momentum)

    @classmethod
    def over(cls, mean: Array, variance: Array, momentum: float) -> "RunningStatistics":
        """Return statistics that use the caller's arrays themselves, not copies of them."""
        statistics = cls.__new__(cls)
        statistics._use(mean, variance, momentum)
        return statistics

    def _use(self, mean: Array, variance: Array, momentum: float) -> None:
        self.mean, self.variance = mean, variance
        self.momentum: float = _MOMENTUM.check("batch_norm: momentum", momentum)
        self._before = mean.copy(), variance.copy()

    def restore(self) -> None:
        """Undo the last update."""
        for running, before in zip((self.mean, self.variance), self._before, strict=True):
            running[...] = before

    def update(self, mean: Array, variance: Array, count: int, workspace: Array) -> Calls:
        """Yield the calls that update the statistics with a batch of `count` rows.

        `variance` is the biased variance of the batch; the update uses the unbiased variance.
        """
        unbiased = count / (count - 1)
        for running, before in zip((self.mean, self.variance), self._before, strict=True):
            yield call(np.copyto, before, running)
        for running, batch, factor in ((self.mean, mean, 1), (self.variance, variance, unbiased)):
            yield call(
                np.multiply, batch, constant_like(self.momentum * factor, workspace), workspace
            )
            yield call(np.multiply, running, constant_like(1 - self.momentum, workspace), running)
            yield call(np.add, running, workspace, running)


@dataclass(frozen=True)
class BatchNorm(_Normalization, name="batch_norm"):
    """Normalization of each feature over the batch, y = (x - mean) * rstd * scale + bias.

    Training uses the batch's mean and biased variance, and updates `running`.  Evaluation uses
    `running` unchanged.  The reciprocal standard deviation is rstd = 1 / sqrt(variance + eps).

    Shapes: x, y (batch, features, ...); means are over all axes except the second; scale and bias
    (features,), both optional.
    Backward: as in `LayerNorm`, but for each feature; in evaluation dx = dy * scale * rstd.
    Raises: ShapeError for a single row in training, or for parameters that do not fit x.
    Source: Ioffe and Szegedy 2015, algorithms 1 and 2.
    """

    running: RunningStatistics | None = None
    training: bool = True
    eps: float = 1e-5

    cheap = False  # a second forward would update the running statistics again

    def infer(self, x: Spec, scale: Spec | None = None, bias: Spec | None = None) -> Spec:
        super().infer(x, scale, bias)
        _check_running(self.running, self.training, x)
        return x

    def _cube(self, x: Spec) -> tuple[int, int, int]:
        features = x.shape[1] if len(x.shape) > 1 else 0
        return prod(x.shape[:1]), features, prod(x.shape[2:])

    def _column(self, cube: tuple[int, int, int]) -> tuple[int, ...]:
        return cube[1], 1

    def _means(self, sums: Array) -> Means:
        return partial(_feature_means, sums=sums)

    def _centered(
        self, x: Array, workspace: Array, xhat: Array, variance: Array, mean: Array, sums: Array
    ) -> Calls:
        if self.training:
            yield from super()._centered(x, workspace, xhat, variance, mean, sums)
            if self.running is not None:
                count = x.size // len(mean)
                yield from self.running.update(mean[:, 0], variance[:, 0], count, sums[0])
        elif self.running is not None:
            yield call(np.subtract, x, self.running.mean[:, None], xhat)
            yield call(np.copyto, variance[:, 0], self.running.variance)

    def _subtract_means(
        self, h: Array, xhat: Array, product: Array, mean: Array, means: Means
    ) -> Calls:
        if self.training:  # in evaluation the statistics are constants
            yield from super()._subtract_means(h, xhat, product, mean, means)


def _check_running(running: RunningStatistics | None, training: bool, x: Spec) -> None:
    """Raise ShapeError if the running statistics do not fit x, or if training has only one row."""
    rows = x.size // x.shape[1]
    if training and rows < 2:
        raise ShapeError(
            f"batch_norm: training needs two rows or more per feature (x {x}); Loop(..., "
            "drop_last=True) leaves out a last batch of one row"
        )
    if not training and running is None:
        raise ShapeError(f"batch_norm: evaluation needs running statistics (x {x})")
    needed = Spec(x.shape[1:2], x.dtype)
    if running is not None and Spec.of(running.mean) != needed:
        raise ShapeError(
            f"batch_norm: running statistics must be {needed} ({Spec.of(running.mean)}, x {x})"
        )


def _scaled(cube: Array, scale: Array | None, bias: Array | None, out: Array) -> Calls:
    """Yield the calls that write cube * scale + bias; `scale` and `bias` may be None."""
    if scale is not None:
        yield call(np.multiply, cube, scale[:, None], out)
        cube = out
    if bias is not None:
        yield call(np.add, cube, bias[:, None], out)
    elif scale is None:
        yield call(np.copyto, out, cube)


def _row_means(cube: Array, out: Array) -> Calls:
    """Yield the calls for the mean over the features; the inner axis has length 1."""
    features = cube.shape[1]
    yield call(np.dot, cube.reshape(-1, features), ones(features, cube.dtype), out.reshape(-1))
    yield call(np.divide, out, constant_like(features, out), out)


def _feature_means(cube: Array, out: Array, sums: Array) -> Calls:
    """Yield the calls for the mean over rows and the inner axis."""
    yield from _feature_sums(cube, out.reshape(-1), sums)
    yield call(np.divide, out, constant_like(cube.shape[0] * cube.shape[2], out), out)


def _feature_sums(cube: Array, out: Array, sums: Array) -> Calls:
    """Yield the calls for the sum over rows and inner axis; `sums` is a work buffer."""
    rows, features, inner = cube.shape
    if inner == 1:
        sums = cube.reshape(rows, features)
    else:
        matrix = cube.reshape(rows * features, inner)
        yield call(np.dot, matrix, ones(inner, cube.dtype), sums.reshape(-1))
    yield call(np.dot, ones(rows, cube.dtype), sums, out)
