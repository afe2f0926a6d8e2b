"""Constants that rules bind: scalars of the operand's dtype, rows of a value, rows of ones."""

from functools import lru_cache
from typing import Any

import numpy as np

from mlpengine.spec import Array, Calls, call

BLOCK = 16384
"""Longest row of a constant, in elements: 64 kB of float32 stay in the second-level cache.

A call over several rows costs 0.9 us more than over one, and some 0.4 us more for each: 65,536
elements take 8.4 us in rows of 4,096 and 4.8 us in rows of 16,384."""


def constant(value: float, like: Array) -> Array:
    """Return `value` as a 0-d array of the dtype of `like`.

    Multiplying by one costs 0.43 us a call, by a Python float 0.75 us.
    """
    return np.array(value, like.dtype)


REMEMBERED = 1 << 16
"""Longest vector of ones that is kept for the next op that asks for one."""


def ones(n: int, dtype: np.dtype[Any]) -> Array:
    """Return a read-only vector of ones, for sums as products."""
    return _kept_ones(n, dtype) if n <= REMEMBERED else _ones(n, dtype)


def _ones(n: int, dtype: np.dtype[Any]) -> Array:
    row = np.ones(n, dtype)
    row.flags.writeable = False
    return row


_kept_ones = lru_cache(maxsize=64)(_ones)


def bounded(extremum: np.ufunc, x: Array, bound: float, out: Array) -> Calls:
    """Yield the call of np.maximum or np.minimum that bounds `x`; NaN stays NaN.

    A float32 extremum with a 0-d bound is not vectorized by NumPy: 126 us for 262,144 elements
    against 56 us with a row of the bound, and 1.16 us against 0.73 us for 1,024.
    """
    n = _row_length(x.size)
    if x.dtype == np.float32 and n and x.flags.c_contiguous and out.flags.c_contiguous:
        shape = (n,) if n == x.size else (x.size // n, n)
        yield call(extremum, x.reshape(shape), _row(bound, n), out=out.reshape(shape))
    else:
        yield call(extremum, x, constant(bound, x), out=out)


def _row_length(size: int) -> int:
    """Return the longest row that divides `size`, or 0 if only short ones do."""
    if size <= BLOCK:
        return size
    return next((n for n in range(BLOCK, BLOCK // 16 - 1, -1) if size % n == 0), 0)


@lru_cache(maxsize=64)
def _row(value: float, n: int) -> Array:
    row = np.full(n, value, np.float32)
    row.flags.writeable = False
    return row
