"""Parts of the softmax as bound calls, along the middle axis of an array reshaped to three axes."""

from math import prod

import numpy as np

from mlpengine.core.spec import Array, Calls, call
from mlpengine.ops._constant import ones

NARROW = 32
"""Number of columns up to which row maxima are computed as column maxima of a transposed copy.

NumPy reduces short rows one by one."""


def folded(x: Array, axis: int) -> Array:
    """Return `x` as (outer, n, inner), where n is the length of `axis`: a view if contiguous."""
    outer, n, inner = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    return x.reshape(prod(outer), n, prod(inner))


def row_max(x: Array, out: Array, workspace: Array) -> Calls:
    """Yield the maximum of each row of the matrix `x`; `workspace` is contiguous, as large as x."""
    rows, columns = x.shape
    if columns <= NARROW < rows:
        columnwise = workspace.reshape(columns, rows)
        yield call(np.copyto, columnwise, x.T)
        yield call(np.maximum.reduce, columnwise, 0, None, out)
    else:
        yield call(np.maximum.reduce, x, 1, None, out)


def largest(x: Array, out: Array, workspace: Array) -> Calls:
    """Yield the largest along the middle axis of `x` into the matrix `out`."""
    if x.shape[2] == 1:
        yield from row_max(x[:, :, 0], out[:, 0], workspace)
    else:
        yield call(np.maximum.reduce, x, 1, None, out)


def middle_sum(x: Array, out: Array) -> Calls:
    """Yield the sum along the middle axis of `x` into the matrix `out`."""
    outer, n, inner = x.shape
    if inner == 1:  # a product with ones is faster than np.add.reduce
        yield call(np.dot, x.reshape(outer, n), ones(n, x.dtype), out.reshape(outer))
    elif outer == 1:
        yield call(np.dot, ones(n, x.dtype), x.reshape(n, inner), out.reshape(inner))
    else:
        yield call(np.add.reduce, x, 1, None, out)


def inner_product(a: Array, b: Array, out: Array, workspace: Array) -> Calls:
    """Yield the sum of a * b along the middle axis into the matrix `out`."""
    if a.shape[2] == 1:
        yield call(np.vecdot, a[:, :, 0], b[:, :, 0], out[:, 0])
    else:
        yield call(np.multiply, a, b, workspace)
        yield from middle_sum(workspace, out)
