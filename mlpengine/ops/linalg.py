"""Linear algebra: dense layers, matrix products, permutations of axes.

Products of matrices call `numpy.dot` with an output buffer.  For contiguous operands and their
transposes, `numpy.dot` allocates nothing.  On small matrices it is faster than `numpy.matmul`.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from mlpengine.core.errors import ShapeError
from mlpengine.core.spec import Array, Calls, Slots, Spec, call
from mlpengine.ops._check import listing, need_floats, normal_axis
from mlpengine.ops._constant import ones
from mlpengine.ops.broadcast import unbroadcast
from mlpengine.ops.op import GradOp


class Linear(GradOp, name="linear"):
    """Dense layer without its activation, y = x @ w.T + b.

    Shapes: x (..., in_dim), w (out_dim, in_dim), b (out_dim,) or None, y (..., out_dim).
    x has at least two axes; all axes except the last are the batch.
    Backward: dx = dy @ w, dw = dy.T @ x, db = dy summed over the batch.
    Raises: ShapeError if the inner dimensions or the length of b disagree.
    """

    cheap = False

    def infer(self, x: Spec, w: Spec, b: Spec | None = None) -> Spec:
        need_floats("linear", x=x, w=w, b=b)
        if len(x.shape) < 2 or len(w.shape) != 2 or x.shape[-1] != w.shape[1]:
            raise ShapeError(
                f"linear: x (..., in_dim) needs as many columns as w (out_dim, in_dim) has "
                f"({listing(x=x, w=w)})"
            )
        if b is not None and b.shape != w.shape[:1]:
            raise ShapeError(f"linear: b needs one entry per row of w ({listing(w=w, b=b)})")
        return Spec((*x.shape[:-1], w.shape[0]), x.dtype)

    def forward(self, x: Array, w: Array, b: Array | None, *, out: Array) -> Calls:
        y = _rows(out)
        yield call(np.dot, _rows(x), w.T, y)
        if b is not None:  # for a single column, adding a 0-d array is faster
            yield call(np.add, y, b.reshape(()) if b.size == 1 else b, y)

    def backward(self, dy: Array, x: Array, w: Array, *, out: Slots) -> Calls:
        (dx, dw, db), dy = out, _rows(dy)
        if dx is not None:
            yield call(np.dot, dy, w, _rows(dx))
        if dw is not None:
            yield call(np.dot, dy.T, _rows(x), dw)
        if db is not None:  # a product with ones is faster than np.sum
            yield call(np.dot, ones(len(dy), dy.dtype), dy, db)


class MatMul(GradOp, name="matmul"):
    """Matrix product, y = a @ b.

    Shapes: a (rows, inner), b (inner, columns), y (rows, columns).
    Backward: da = dy @ b.T, db = a.T @ dy.
    Raises: ShapeError unless a and b are matrices with the same inner length.
    """

    cheap = False

    def infer(self, a: Spec, b: Spec) -> Spec:
        need_floats("matmul", a=a, b=b)
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
            raise ShapeError(
                f"matmul: a must be a matrix with as many columns as the matrix b has rows "
                f"({listing(a=a, b=b)})"
            )
        return Spec((a.shape[0], b.shape[1]), a.dtype)

    def forward(self, a: Array, b: Array, *, out: Array) -> Calls:
        yield call(np.dot, a, b, out)

    def backward(self, dy: Array, a: Array, b: Array, *, out: Slots) -> Calls:
        da, db = out
        if da is not None:
            yield call(np.dot, dy, b.T, da)
        if db is not None:
            yield call(np.dot, a.T, dy, db)


class BatchMatMul(GradOp, name="batch_matmul"):
    """Matrix products over leading axes, y[i] = a[i] @ b[i]; the leading axes broadcast.

    Shapes: a (..., rows, inner), b (..., inner, columns), y (..., rows, columns).
    Backward: da = dy @ b.T and db = a.T @ dy (last two axes), summed over broadcast axes.
    Raises: ShapeError if the inner sizes differ or the leading axes do not broadcast.
    """

    cheap = False

    def infer(self, a: Spec, b: Spec) -> Spec:
        need_floats("batch_matmul", a=a, b=b)
        if min(len(a.shape), len(b.shape)) < 2 or a.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"batch_matmul: a (..., rows, inner) must fit b (..., inner, columns) "
                f"({listing(a=a, b=b)})"
            )
        try:
            lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            text = f"batch_matmul: leading axes must broadcast ({listing(a=a, b=b)})"
            raise ShapeError(text) from None
        return Spec((*lead, a.shape[-2], b.shape[-1]), a.dtype)

    def work(self, a: Spec, b: Spec) -> dict[str, Spec]:
        lead = self.infer(a, b).shape[:-2]
        return {"wide_da": _wide(a, lead, b), "wide_db": _wide(b, lead, b)}

    def forward(self, a: Array, b: Array, *, out: Array) -> Calls:
        if _is_single(b.shape):
            yield call(np.dot, _rows(a), _rows(b), _rows(out))
        else:
            yield call(np.matmul, a, b, out)

    def backward(
        self, dy: Array, a: Array, b: Array, *, out: Slots, wide_da: Array, wide_db: Array
    ) -> Calls:
        da, db = out
        if _is_single(b.shape):
            slots = [None if slot is None else _rows(slot) for slot in out]
            yield from MatMul().backward(_rows(dy), _rows(a), _rows(b), out=slots)
            return
        if da is not None:
            yield from _product(dy, b.swapaxes(-1, -2), wide_da, da)
        if db is not None:
            yield from _product(a.swapaxes(-1, -2), dy, wide_db, db)


@dataclass(frozen=True)
class Transpose(GradOp, name="transpose"):
    """A permutation of the axes; by default the reversed order.

    Shapes: x (...), y: axis i of y is axis axes[i] of x.
    Backward: the inverse permutation.
    Raises: ShapeError unless `axes` names every axis of x once.
    """

    axes: tuple[int, ...] | None = None

    def infer(self, x: Spec) -> Spec:
        rank = len(x.shape)
        for axis in self.axes or ():
            normal_axis("transpose", axis, x)
        axes = self._axes(rank)
        if sorted(axes) != list(range(rank)):
            raise ShapeError(
                f"transpose: axes must name each axis of x once (axes {self.axes}, x {x})"
            )
        return Spec(tuple(x.shape[i] for i in axes), x.dtype)

    def _axes(self, rank: int) -> tuple[int, ...]:
        if self.axes is None:
            return tuple(reversed(range(rank)))
        return tuple(i + rank if i < 0 else i for i in self.axes)

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.copyto, out, x.transpose(self._axes(x.ndim)))

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:  # dx.transpose(axes) is a view with the shape of dy
            yield call(np.copyto, dx.transpose(self._axes(dy.ndim)), dy)


def _rows(x: Array) -> Array:
    """Return a view of a contiguous buffer as a matrix (product of the leading axes, last axis)."""
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _is_single(shape: tuple[int, ...]) -> bool:
    """Return whether an operand of this shape is a single matrix."""
    return prod(shape[:-2]) == 1


def _wide(x: Spec, lead: tuple[int, ...], b: Spec) -> Spec:
    """Return the spec of dx before the sum over broadcast axes; empty if there is no such sum."""
    needed = x.shape[:-2] != lead and not _is_single(b.shape)
    return Spec((*lead, *x.shape[-2:]) if needed else (0,), x.dtype)


def _product(left: Array, right: Array, wide: Array, out: Array) -> Calls:
    """Yield the calls that write left @ right into `out`, summed over broadcast axes."""
    target = wide if wide.ndim > 1 else out
    yield call(np.matmul, left, right, target)
    if target is not out:
        yield from unbroadcast(wide, out)
