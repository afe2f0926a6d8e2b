"""Reductions over all axes or over given axes."""

from dataclasses import dataclass, replace
from math import nan, prod
from typing import Any, ClassVar

import numpy as np

from mlpengine.core.errors import ShapeError
from mlpengine.core.spec import Array, Calls, Slots, Spec, call
from mlpengine.formula.numpy_functions import CONSTANT_LENGTH, clip, constant_like
from mlpengine.ops._check import listing, need_floats, normal_axis
from mlpengine.ops.broadcast import largest, unbroadcast
from mlpengine.ops.op import GradOp


@dataclass(frozen=True)
class Reduction(GradOp):
    """Base class of reductions; `axis` is one axis or several, or None for all axes.

    Shapes: x (...), y: x without the reduced axes or, with `keepdims`, with length 1 along them.
    Raises: ShapeError for an axis that does not exist or is given twice, and for a maximum, a
        minimum or a logsumexp of no entries.
    """

    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False

    needs_entries: ClassVar[bool] = False
    """Whether it is an error if there are no entries to reduce."""

    def infer(self, x: Spec) -> Spec:
        need_floats(self.name, x=x)
        axes = self.axes(x)
        if len(set(axes)) < len(axes):
            raise ShapeError(f"{self.name}: axes must differ (axis {self.axis}, {listing(x=x)})")
        kept = [1 if i in axes else n for i, n in enumerate(x.shape)]
        dropped = [n for i, n in enumerate(x.shape) if i not in axes]
        y = Spec(tuple(kept if self.keepdims else dropped), x.dtype)
        if self.needs_entries and y.size and not self.count(x):
            raise ShapeError(f"{self.name}: x needs an entry to reduce ({listing(x=x)})")
        return y

    def axes(self, x: Spec | Array) -> tuple[int, ...]:
        """Return the reduced axes of `x`, counted from the front, in ascending order."""
        if self.axis is None:
            return tuple(range(len(x.shape)))
        several = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        return tuple(sorted(normal_axis(self.name, i, Spec(x.shape, x.dtype)) for i in several))

    def count(self, x: Spec | Array) -> int:
        """Return the number of entries of `x` that are reduced to one entry of y."""
        return prod(x.shape[i] for i in self.axes(x))

    def kept(self, y: Array, x: Array) -> Array:
        """Return `y` with length 1 along the reduced axes of `x`."""
        axes = self.axes(x)
        return y.reshape([1 if i in axes else n for i, n in enumerate(x.shape)])


class Sum(Reduction, name="sum"):
    """Sum, y = sum(x) over `axis`.

    Backward: dx = dy, broadcast.
    """

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield from summed(x, self.kept(out, x))

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.copyto, dx, self.kept(dy, dx))


class Mean(Reduction, name="mean"):
    """Mean, y = sum(x) / n over `axis`; NaN where n is 0.

    Backward: dx = dy / n, broadcast.
    """

    def forward(self, x: Array, *, out: Array) -> Calls:
        n = self.count(x)
        yield from summed(x, self.kept(out, x))
        yield call(np.multiply, out, constant_like(1 / n if n else nan, x), out)

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            share = constant_like(1 / max(self.count(dx), 1), dx)
            yield call(np.multiply, self.kept(dy, dx), share, dx)


@dataclass(frozen=True)
class Var(Reduction, name="var"):
    """Variance, y = sum((x - mean(x))**2) / (n - ddof) over `axis`.

    Backward: dx = dy * 2 * (x - mean(x)) / (n - ddof).
    Raises: ShapeError unless n is above `ddof`.
    """

    ddof: int = 0

    def infer(self, x: Spec) -> Spec:
        y = super().infer(x)
        if y.size and self.count(x) <= self.ddof:
            listed = f"ddof {self.ddof}, {listing(x=x)}"
            raise ShapeError(f"{self.name}: x needs more entries to reduce than ddof ({listed})")
        return y

    def work(self, x: Spec) -> dict[str, Spec]:
        mean = replace(self, keepdims=True).infer(x)
        return {"centered": x, "square": x, "mean": mean, "share": mean}

    def forward(
        self, x: Array, *, out: Array, centered: Array, square: Array, mean: Array
    ) -> Calls:
        total = self.kept(out, x)
        yield from summed(x, mean)
        yield call(np.multiply, mean, constant_like(1 / max(self.count(x), 1), x), mean)
        yield call(np.subtract, x, mean, centered)
        yield call(np.multiply, centered, centered, square)
        yield from summed(square, total)
        yield call(np.multiply, total, constant_like(self.factor(x), x), total)

    def backward(self, dy: Array, *, out: Slots, centered: Array, share: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            factor = constant_like(2 * self.factor(dx), dx)
            yield call(np.multiply, dy.reshape(share.shape), factor, share)
            yield call(np.multiply, centered, share, dx)

    def factor(self, x: Array) -> float:
        """Return 1 / (n - ddof), or 1 if y is empty."""
        return 1 / max(self.count(x) - self.ddof, 1)


class Extreme(Reduction):
    """Base class of `Max` and `Min`."""

    needs_entries = True
    ufunc: ClassVar[Any]

    def work(self, x: Spec) -> dict[str, Spec]:
        axes, rank = self.axes(x), len(x.shape)
        are_last = axes == tuple(range(rank - len(axes), rank))
        moved = Spec((0,) if are_last else x.shape, x.dtype)
        return {"moved": moved, "winner": Spec(self.infer(x).shape, np.dtype(np.int64))}

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(self.ufunc.reduce, x, self.axes(x), None, self.kept(out, x), True)

    def backward(self, dy: Array, x: Array, *, out: Slots, moved: Array, winner: Array) -> Calls:
        """Yield the calls that write dy at the first of the extreme entries, and 0 elsewhere.

        If the reduced axes are not the last axes of x, the calls work on `moved`, a copy with the
        reduced axes last.  Otherwise NumPy would allocate such a copy in each call.
        """
        (dx,) = out
        if dx is None:
            return
        axes = self.axes(x)
        order = [i for i in range(x.ndim) if i not in axes] + list(axes)
        n = self.count(x)
        winner, lines, target = winner.reshape(-1), x, dx
        if moved.size:
            target = lines = moved.reshape([x.shape[i] for i in order])
            yield call(np.copyto, lines, x.transpose(order))
        lines = lines.reshape(winner.size, n)
        yield call(lines.argmax if self.ufunc is np.maximum else lines.argmin, 1, winner)
        yield call(np.add, winner, np.arange(winner.size) * n, winner)
        yield call(target.fill, 0)
        yield call(target.reshape(-1).put, winner, dy.reshape(-1), "clip")
        if moved.size:
            yield call(np.copyto, dx.transpose(order), moved.reshape(target.shape))


class Max(Extreme, name="max"):
    """Maximum, y = max(x) over `axis`; NaN if an entry is NaN.

    Backward: dx = dy at the first of the largest entries, 0 elsewhere.
    """

    ufunc = np.maximum


class Min(Extreme, name="min"):
    """Minimum, y = min(x) over `axis`; NaN if an entry is NaN.

    Backward: dx = dy at the first of the smallest entries, 0 elsewhere.
    """

    ufunc = np.minimum


class LogSumExp(Reduction, name="logsumexp"):
    """Logarithm of a sum of exponentials, y = m + log(sum(exp(x - m))) over `axis`, m = max(x).

    y is -inf if every x is -inf, and inf if any x is inf: m is limited to finite numbers.

    Backward: dx = dy * exp(x - m) / sum(exp(x - m)), the softmax.
    """

    needs_entries = True

    def work(self, x: Spec) -> dict[str, Spec]:
        y = self.infer(x)
        return {"terms": x, "total": y, "logs": y, "share": y}

    def forward(self, x: Array, *, out: Array, terms: Array, total: Array, logs: Array) -> Calls:
        y, total, logs = (self.kept(v, x) for v in (out, total, logs))
        bound = float(np.finfo(x.dtype).max)
        yield from largest(x, y, terms)
        yield from clip(y, -bound, bound, y)
        yield call(np.subtract, x, y, terms)
        yield call(np.exp, terms, terms)
        yield from summed(terms, total)
        yield call(np.log, total, logs)
        yield call(np.add, y, logs, y)

    def backward(self, dy: Array, *, out: Slots, terms: Array, total: Array, share: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.divide, dy, total, share)
            yield call(np.multiply, terms, self.kept(share, terms), dx)


def summed(x: Array, out: Array) -> Calls:
    """Yield the calls that sum `x` over the axes with length 1 in `out`.

    A long sum to a single number uses NumPy's pairwise summation, which is accurate in float32.
    """
    if out.size == 1 and x.size > CONSTANT_LENGTH:
        yield call(np.add.reduce, x, None, None, out.reshape(()))
    else:
        yield from unbroadcast(x, out)
