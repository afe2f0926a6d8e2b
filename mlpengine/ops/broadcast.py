"""Fast sums and maxima over axes."""

from math import prod

import numpy as np

from mlpengine.core.spec import Array, Calls, call
from mlpengine.ops._constant import ones

NARROW = 32
"""Maximum length of rows that `largest` transposes before it takes their maxima.

NumPy would reduce short rows slowly, one by one."""


def unbroadcast(wide: Array, out: Array) -> Calls:
    """Yield the calls that sum `wide` over the axes along which `out` would broadcast to `wide`.

    Shapes: `out` broadcasts to `wide` as in NumPy; both are contiguous.
    A sum over only leading or only trailing axes is a product with ones, which is several times as
    fast as `np.add.reduce`.
    """
    small = (1,) * (wide.ndim - out.ndim) + out.shape
    axes, kept = _axes(wide.shape, small)
    if not axes:
        yield call(np.copyto, out.reshape(small), wide)
    elif not kept or max(axes) < min(kept):
        rows = prod(wide.shape[: max(axes) + 1])
        yield call(np.dot, ones(rows, wide.dtype), wide.reshape(rows, out.size), out.reshape(-1))
    elif min(axes) > max(kept):
        columns = prod(wide.shape[min(axes) :])
        yield call(
            np.dot, wide.reshape(out.size, columns), ones(columns, wide.dtype), out.reshape(-1)
        )
    else:
        yield call(np.add.reduce, wide, axes, None, out.reshape(small), True)


def largest(x: Array, out: Array, workspace: Array) -> Calls:
    """Yield the calls that write into `out` the maxima of `x` along the axes of length 1 in `out`.

    Shapes: `out` has as many axes as `x` and broadcasts to `x`; `workspace` has the size of `x`.
    All arrays are contiguous.
    """
    if not x.size:
        return
    axes, kept = _axes(x.shape, out.shape)
    lines, length, top = out.size, x.size // out.size, out.reshape(-1)
    if not axes:
        yield call(np.copyto, out, x)
    elif not kept or min(axes) > max(kept):
        rows = x.reshape(lines, length)
        if length <= NARROW < lines:
            columnwise = workspace.reshape(length, lines)
            yield call(np.copyto, columnwise, rows.T)
            yield call(np.maximum.reduce, columnwise, 0, None, top)
        else:
            yield call(np.maximum.reduce, rows, 1, None, top)
    elif max(axes) < min(kept) and lines <= NARROW < length:
        columnwise = workspace.reshape(lines, length)
        yield call(np.copyto, columnwise, x.reshape(length, lines).T)
        yield call(np.maximum.reduce, columnwise, 1, None, top)
    else:
        yield call(np.maximum.reduce, x, axes, None, out, True)


def _axes(wide: tuple[int, ...], small: tuple[int, ...]) -> tuple[tuple[int, ...], list[int]]:
    """Return the axes that are reduced, and the other axes longer than 1."""
    axes = tuple(i for i, (n, m) in enumerate(zip(small, wide, strict=True)) if n != m)
    return axes, [i for i, n in enumerate(small) if n != 1]
