"""Rows that stand for all rows of a table."""

import numpy as np

from mlpengine.core.spec import Array


def evenly_spaced(rows: int, count: int) -> Array:
    """Return the indices of up to `count` evenly spaced rows, the first and the last among them."""
    return np.linspace(0, rows - 1, min(count, rows)).astype(np.int64)
