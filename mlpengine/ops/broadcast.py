"""Undoing a broadcast: the one place that sums a gradient back to its operand's shape."""

from math import prod

import numpy as np

from mlpengine.core.spec import Array, Calls, call
from mlpengine.ops._constant import ones


def unbroadcast(wide: Array, out: Array) -> Calls:
    """Yield the calls that sum `wide` over the axes along which `out` was broadcast to its shape.

    Shapes: `out` broadcasts to `wide` as NumPy does, aligned at the right; both are contiguous.
    A sum over only leading or only trailing axes is a product with ones, which is several times
    as fast as a reduction.
    """
    lead = wide.ndim - out.ndim
    small = (1,) * lead + out.shape
    axes = tuple(i for i, (n, m) in enumerate(zip(small, wide.shape, strict=True)) if n != m)
    kept = [i for i, n in enumerate(small) if n != 1]
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
