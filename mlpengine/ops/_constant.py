"""Vectors of ones: a product with ones is a fast sum."""

from functools import lru_cache
from typing import Any

import numpy as np

from mlpengine.core.spec import Array

MAX_CACHED = 1 << 16
"""Maximum length of a cached vector."""


def ones(n: int, dtype: np.dtype[Any]) -> Array:
    """Return a read-only vector of ones."""
    return _cached_ones(n, dtype) if n <= MAX_CACHED else _ones(n, dtype)


def _ones(n: int, dtype: np.dtype[Any]) -> Array:
    row = np.ones(n, dtype)
    row.flags.writeable = False
    return row


_cached_ones = lru_cache(maxsize=64)(_ones)
