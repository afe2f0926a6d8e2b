"""Vectors of ones, for sums that are computed as products."""

from functools import lru_cache
from typing import Any

import numpy as np

from mlpengine.core.spec import Array

REMEMBERED = 1 << 16
"""Maximum length of the vectors of ones that are cached."""


def ones(n: int, dtype: np.dtype[Any]) -> Array:
    """Return a read-only vector of ones."""
    return _kept_ones(n, dtype) if n <= REMEMBERED else _ones(n, dtype)


def _ones(n: int, dtype: np.dtype[Any]) -> Array:
    row = np.ones(n, dtype)
    row.flags.writeable = False
    return row


_kept_ones = lru_cache(maxsize=64)(_ones)
