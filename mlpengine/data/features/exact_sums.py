"""Columns that add up to the target, row by row."""

from collections.abc import Mapping

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.features.sources import LIMIT
from mlpengine.data.features.thresholds import MAX_SUMMANDS, SUM_TOLERANCE
from mlpengine.data.tables.table import Column


def share_of_line(column: Column, target: Array) -> float:
    """Return the R2 of the best straight line from a column, 0 if most values are no numbers."""
    if column.kind == "text":
        return 0.0
    values = column.values.astype(np.float64)
    present = np.abs(values) <= LIMIT  # not NaN either
    if present.mean() <= 0.5:
        return 0.0
    x, y = values[present], target[present]
    if not (np.ptp(x) and np.ptp(y)):
        return 0.0
    return float(np.corrcoef(x / np.abs(x).max(), y / np.abs(y).max())[0, 1] ** 2)


def exact_sum(columns: Mapping[str, Column], target: Array) -> dict[str, int]:
    """Return the columns that add up to the target, each with its sign; empty if none do.

    In every row, up to rounding, target = constant + the sum of +column or -column.  Numeric
    columns without missing values are examined.
    """
    values = {
        name: column.values.astype(np.float64)
        for name, column in columns.items()
        if column.kind in ("number", "boolean") and not column.missing.any()
    }
    values = {n: v for n, v in values.items() if np.ptp(v) and (np.abs(v) <= LIMIT).all()}
    ordered = sorted(values, key=lambda name: -share_of_line(columns[name], target))
    names = ordered[: min(MAX_SUMMANDS, len(target) // 2)]
    factors = _exact_fit({name: values[name] for name in names}, target)
    for name in sorted(factors, key=lambda name: abs(factors[name]) * values[name].std()):
        factors = _exact_fit({n: values[n] for n in factors if n != name}, target) or factors
    signs = {name: int(factors[name]) for name in columns if name in factors}
    return signs if len(signs) > 1 and {*map(abs, factors.values())} == {1} else {}


def _exact_fit(columns: Mapping[str, Array], target: Array) -> dict[str, float]:
    """Return the factors of an exact linear fit with a constant; empty if there is none."""
    if not columns:
        return {}
    matrix, known = np.stack([*columns.values()], axis=1), target - target.mean()
    centered = matrix - matrix.mean(axis=0)
    scale = np.abs(centered).max(axis=0)  # the squares of tiny numbers would be 0
    weights = np.linalg.lstsq(centered / scale, known, rcond=None)[0]
    if np.abs(known - centered / scale @ weights).max() > SUM_TOLERANCE * np.abs(known).max():
        return {}
    return dict(zip(columns, np.round(weights / scale, 6).tolist(), strict=True))
