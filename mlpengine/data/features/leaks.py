"""Leaks: columns that are the target in another coding, explain it, or add up to it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.features.categories import codes_into
from mlpengine.data.features.copies import row_hashes
from mlpengine.data.features.sources import LIMIT
from mlpengine.data.tables.table import Column, Table
from mlpengine.settings.features import TaskName

ANSWER = 0.97
"""Share of the target that one column explains from which it is reported as a leak.

Most honest predictors explain less: carat explains 0.87 of a diamond's price, displacement 0.90 of
the number of cylinders. Some explain more: a yacht's speed explains 0.99 of its resistance. So the
column is reported and kept.
"""

SAMPLE_ROWS, MIN_LEAK_ROWS = 2_000, 20
"""Evenly spaced rows that are searched, and the number below which none are."""

SAMPLE_COLUMNS = 1_000
"""Columns that are searched; of wider tables the numbers that correlate most with the target."""

FEW_VALUES = 100
NEIGHBORS_EACH_SIDE = 10
MAX_SUMMANDS = 100
"""Number of numeric columns, the most correlated ones, in which an exact sum is searched."""

SUM_TOLERANCE = 1e-9
"""Relative difference up to which two sums are equal, because of rounding."""


class Leak(NamedTuple):
    """A column that explains the target, the share it explains, and how.

    `is_target` tells whether the column is the target in another coding and cannot be a feature.
    Any other leak may be an honest predictor: the user decides whether it is known in time.
    """

    column: str
    share: float
    reason: str
    is_target: bool = False


def find_leaks(table: Table, names: Sequence[str], target: Array, task: TaskName) -> list[Leak]:
    """Return the leaks of these columns of a table into the target.

    Args:
        table: the rows; `SAMPLE_ROWS` of them are searched.
        names: the columns to search.
        target: class numbers or, for regression, values (rows,).
        task: how the target is read.

    A column of an exact sum counts as the target unless no other column is left.  A column that is
    the only one is not expected to leave anything unexplained: it is reported only if it is the
    target.
    """
    rows = np.arange(0, len(target), -(-len(target) // SAMPLE_ROWS) or 1)
    columns = {name: table[name].take(rows) for name in names}
    target = target[rows]
    if len(rows) < MIN_LEAK_ROWS or np.ptp(target) == 0:
        return []
    searched = [*columns]
    if len(searched) > SAMPLE_COLUMNS:
        follows = [_share_of_line(column, target) for column in columns.values()]
        searched = [searched[k] for k in np.argsort(follows)[-SAMPLE_COLUMNS:]]
    each = [find_leak(name, columns[name], target, task) for name in searched]
    leaks = [leak for leak in each if leak]
    hashes = row_hashes([*columns.values(), Column(target)]) if leaks else rows
    once = np.sort(np.unique(hashes, return_index=True)[1])
    if MIN_LEAK_ROWS <= len(once) < len(rows):  # a unique number that is there twice is no coding
        each = [
            find_leak(leak.column, columns[leak.column].take(once), target[once], task)
            if leak.is_target
            else leak
            for leak in leaks
        ]
        leaks = [leak for leak in each if leak]
    if task == "regression":
        coded = {leak.column for leak in leaks if leak.is_target}
        signs = exact_sum({n: c for n, c in columns.items() if n not in coded}, target)
        left = len(names) > len(coded) + len(signs)  # else the table is the sum, and no more
        terms = " ".join(f"{'+' if sign > 0 else '-'} {name}" for name, sign in signs.items())
        reason = f"with other columns it adds up to the target ({terms.removeprefix('+ ')})"
        leaks = [leak for leak in leaks if leak.column not in signs]
        leaks += [Leak(name, 1.0, reason, left) for name in signs]
    return [leak for leak in leaks if leak.is_target or len(names) > 1]


def find_leak(name: str, column: Column, target: Array, task: TaskName) -> Leak | None:
    """Return the leak of a column into the target, or None.

    The share explained is the part of the error of the best constant prediction (wrong classes, or
    squared error) that a prediction from the column alone removes.  It comes from the other rows of
    the same value or, for numbers with many values, from the nearest rows or a straight line.
    """
    distinct = column.distinct()
    codes = codes_into(distinct, column)  # -1 where a cell is missing
    if (codes >= 0).sum() < MIN_LEAK_ROWS:
        return None
    if is_recoding_of_target(codes, target, ordered=column.kind != "text"):
        return Leak(name, 1.0, "it is the target in another coding, value for value", True)
    has_groups = column.kind == "text" or len(distinct) <= FEW_VALUES
    if task == "classification":
        share = share_of_classes(codes, target, has_groups=has_groups)
        reason = f"alone it avoids {100 * share:.1f} % of the errors of guessing"
    else:
        near = share_of_squares(codes, target, has_groups=has_groups)
        share = max(near, _share_of_line(column, target))
        reason = f"alone it explains {100 * share:.1f} % of the target (R2 {share:.3f})"
    return Leak(name, share, reason) if share >= ANSWER else None


def is_recoding_of_target(codes: Array, target: Array, *, ordered: bool) -> bool:
    """Return whether column and target determine each other: a one-to-one map of their values.

    The map may leave out missing cells, codes -1, if they are not the majority, or treat them as
    one more value.  If values rarely repeat, any two columns map one-to-one; then the map of an
    `ordered` column must be increasing or decreasing.
    """
    present = codes >= 0
    if present.mean() > 0.5 and _one_to_one(codes[present], target[present], ordered=ordered):
        return True
    return not present.all() and _one_to_one(codes, target, ordered=False)


def _one_to_one(codes: Array, target: Array, *, ordered: bool) -> bool:
    values, places = np.unique(target, return_inverse=True)
    kinds, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    if len(values) != len(kinds) or len(values) < 2:
        return False
    matched = places[first]  # the target of each code, by its first row
    if (matched[numbers] != places).any():
        return False
    if len(kinds) <= len(codes) / 2:
        return True
    steps = np.diff(matched)
    return ordered and bool((steps > 0).all() or (steps < 0).all())


def _neighbors(codes: Array, *, has_groups: bool) -> tuple[Array, Array, Array]:
    """Return rows ordered by code, and where the neighbors of each begin and end in that order.

    They are the rows of equal code or, without groups, the nearest.  Rows of equal code are in
    random order, so that the order of the file tells nothing.
    """
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    if has_groups:
        ordered = codes[order]
        start = np.searchsorted(ordered, ordered, "left")
        return order, start, np.searchsorted(ordered, ordered, "right")
    place = np.arange(len(codes))
    start = np.maximum(place - NEIGHBORS_EACH_SIDE, 0)
    return order, start, np.minimum(place + NEIGHBORS_EACH_SIDE + 1, len(codes))


def share_of_classes(codes: Array, classes: Array, *, has_groups: bool) -> float:
    """Return the share of the errors of the largest class that neighbors avoid.

    A row is right if half of its neighbors, without itself, or more are of its class.
    """
    order, start, stop = _neighbors(codes, has_groups=has_groups)
    _, own, counts = np.unique(classes[order], return_inverse=True, return_counts=True)
    by_class = np.lexsort((np.arange(len(own)), own))
    keys = own[by_class] * (len(own) + 1) + by_class  # rising, so that rows of a class are counted
    same = np.searchsorted(keys, own * (len(own) + 1) + stop)
    same -= np.searchsorted(keys, own * (len(own) + 1) + start)
    right = (2 * (same - 1) >= np.maximum(stop - start - 1, 1)).sum()
    return float((right - counts.max()) / (len(own) - counts.max()))


def share_of_squares(codes: Array, target: Array, *, has_groups: bool) -> float:
    """Return the R2 of predicting each value by the mean of its neighbors."""
    order, start, stop = _neighbors(codes, has_groups=has_groups)
    values = (target - target.mean())[order]
    values /= np.abs(values).max()
    sums = np.append(0.0, np.cumsum(values))
    means = (sums[stop] - sums[start] - values) / np.maximum(stop - start - 1, 1)
    return float(1 - ((values - means) ** 2).sum() / (values @ values))


def _share_of_line(column: Column, target: Array) -> float:
    """Return the R2 of the best straight line from a column, 0 if most cells are no numbers."""
    if column.kind == "text":
        return 0.0
    values = column.values.astype(np.float64)
    present = np.abs(values) <= LIMIT  # not NaN either
    if present.mean() <= 0.5:
        return 0.0
    x, y = values[present] - values[present].mean(), target[present] - target[present].mean()
    if not (x.any() and y.any()):
        return 0.0
    x, y = x / np.abs(x).max(), y / np.abs(y).max()
    return float((x @ y) ** 2 / ((x @ x) * (y @ y)))


def exact_sum(columns: Mapping[str, Column], target: Array) -> dict[str, int]:
    """Return the columns that add up to the target, each with its sign; empty if none do.

    In every row, up to rounding, target = constant + the sum of +column or -column.  Numeric
    columns without missing cells are examined.
    """
    values = {
        name: column.values.astype(np.float64)
        for name, column in columns.items()
        if column.kind in ("number", "boolean") and not column.missing.any()
    }
    few = slice(None, None, max(1, len(target) // (4 * MAX_SUMMANDS)))  # fits many, checks on all
    values = {n: v for n, v in values.items() if np.ptp(v[few]) and (np.abs(v) <= LIMIT).all()}
    follows = {name: _share_of_line(columns[name], target) for name in values}
    names = sorted(values, key=lambda name: -follows[name])[
        : min(MAX_SUMMANDS, len(target[few]) // 2)
    ]
    factors = _exact_fit({name: values[name][few] for name in names}, target[few])
    for name in sorted(factors, key=lambda name: abs(factors[name]) * values[name].std()):
        others = {n: values[n][few] for n in factors if n != name}
        factors = _exact_fit(others, target[few]) or factors
    signs = {name: round(factor, 6) for name, factor in factors.items()}
    if len(signs) < 2 or any(abs(sign) != 1 for sign in signs.values()):
        return {}
    remainder = target - sum(sign * values[name] for name, sign in signs.items())
    size = max(np.abs(target).max(), *(np.abs(values[name]).max() for name in signs))
    if np.ptp(remainder) > SUM_TOLERANCE * size:
        return {}
    return {name: int(signs[name]) for name in columns if name in signs}


def _exact_fit(columns: Mapping[str, Array], target: Array) -> dict[str, float]:
    """Return the factors of an exact linear fit with a constant; empty if there is none."""
    known = target - target.mean()
    if not columns or not known.any():
        return {}
    matrix = np.stack([*columns.values()], axis=1)
    centered = matrix - matrix.mean(axis=0)
    scale = np.abs(centered).max(axis=0)  # the squares of tiny numbers would be 0
    weights = np.linalg.lstsq(centered / scale, known, rcond=None)[0]
    errors = known - centered / scale @ weights
    if np.abs(errors).max() > 1e-7 * np.abs(known).max():
        return {}
    return dict(zip(columns, (weights / scale).tolist(), strict=True))
