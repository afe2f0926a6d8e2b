"""Quantiles, and evenly spaced rows, of arrays of some hundred or thousand rows.

`np.quantile` is slower for them, and `np.quantile`, `np.median` and `np.unique` import `numpy.ma`
at their first call.
"""

from collections.abc import Sequence
from math import nan

import numpy as np

from mlpengine.core.spec import Array


def quantiles(values: Array, shares: Sequence[float]) -> Array:
    """Return quantiles (shares, ...) along the first axis, interpolated as by `np.quantile`.

    There must be a row, and no NaN.
    """
    last = len(values) - 1
    places = np.multiply(shares, last)
    below = places.astype(np.int64)
    above = np.minimum(below + 1, last)
    ordered = np.partition(values, np.concatenate([below, above]), axis=0)
    low = ordered[below]
    beyond = (places - below).reshape(-1, *(1,) * (values.ndim - 1))
    result: Array = low + (ordered[above] - low) * beyond
    return result


def median(values: Array) -> float:
    """Return the median of the numbers in a vector; NaN if there is none."""
    known = values[~np.isnan(values)]
    return float(quantiles(known, [0.5])[0]) if known.size else nan


def evenly_spaced(rows: int, count: int) -> Array:
    """Return the numbers of up to `count` of so many rows, from the first to the last."""
    return np.linspace(0, rows - 1, min(count, rows)).astype(np.int64)


def largest_shift(one: Array, other: Array) -> float:
    """Return the largest difference of the shares below any number of two samples, each sorted.

    It is the statistic of Kolmogorov and Smirnov.
    """
    points = np.concatenate([one, other])
    below, above = (np.searchsorted(part, points, "right") / len(part) for part in (one, other))
    return float(np.abs(below - above).max())
