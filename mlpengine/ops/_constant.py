"""Rows of ones, which sums as products take."""

from functools import lru_cache
from typing import Any

import numpy as np

from mlpengine.spec import Array

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
