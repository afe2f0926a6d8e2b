"""Leaks: columns that recode the target, or from which alone the target can be predicted."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.features.categories import codes_into
from mlpengine.data.features.duplicate_rows import row_hashes
from mlpengine.data.features.sources import LIMIT
from mlpengine.data.features.thresholds import (
    ANSWER,
    EACH_SIDE,
    MAX_DATES,
    MIN_LEAK_ROWS,
    ORDER,
    SAMPLE_COLUMNS,
    SAMPLE_ROWS,
)
from mlpengine.data.tables.table import Column, Table
from mlpengine.settings.features import TaskName


class Leak(NamedTuple):
    """A leak: the column, the share of the target that it explains (0 to 1), and the reason.

    If `is_target` is True, the column is the target in another coding, and cannot be a feature.
    Else, the column is an honest predictor if its values are known before the target.
    """

    column: str
    share: float
    reason: str
    is_target: bool = False


class Goal(NamedTuple):
    """The target: values, their codes, the number of rows per code, and shuffled row indices."""

    values: Array
    codes: Array
    counts: Array
    shuffled: Array
    task: TaskName

    @classmethod
    def of(cls, target: Array, task: TaskName) -> "Goal":
        """Prepare a target (rows,) for the search."""
        _, codes, counts = np.unique(target, return_inverse=True, return_counts=True)
        shuffled = np.random.Generator(np.random.PCG64(0)).permutation(len(target))
        return cls(target, codes, counts, shuffled, task)


DETERMINES = "each of its values stands for one value of the target"


def find_leaks(table: Table, names: Sequence[str], target: Array, task: TaskName) -> list[Leak]:
    """Return the columns that leak the target, an array (rows,) of class indices or numbers.

    If every column is a recoding of the target, no leak has `is_target`, so that features remain.
    """
    rows = np.arange(0, len(target), -(-len(target) // SAMPLE_ROWS) or 1)
    columns = {name: table[name].take(rows) for name in names}
    target = target[rows]
    once = np.unique(row_hashes([*columns.values(), Column(target)]), return_index=True)[1]
    if MIN_LEAK_ROWS <= len(once) < len(rows):  # copies of rows look like leaks
        columns = {name: column.take(np.sort(once)) for name, column in columns.items()}
        target = target[np.sort(once)]
    if len(rows) < MIN_LEAK_ROWS or np.ptp(target) == 0:
        return []
    searched = [*columns]
    if len(searched) > SAMPLE_COLUMNS:
        follows = [share_of_line(column, target) for column in columns.values()]
        searched = [searched[k] for k in np.argsort(follows)[-SAMPLE_COLUMNS:]]
    goal = Goal.of(target, task)
    leaks = [one for n in searched if (one := find_leak(n, columns[n], goal))]
    dates = [name for name in searched if columns[name].kind == "date"][:MAX_DATES]
    for first, last in combinations(dates, 2):
        between = Column(columns[last].values - columns[first].values)
        if (one := find_leak(last, between, goal)) and last not in (leak.column for leak in leaks):
            reason = f"the time from {first!r} to {last!r}: {one.reason}"
            leaks.append(Leak(last, one.share, reason))
    if sum(leak.is_target for leak in leaks) == len(names):
        return [one._replace(is_target=False, reason=DETERMINES) for one in leaks if one.is_target]
    return leaks


def find_leak(name: str, column: Column, goal: Goal) -> Leak | None:
    """Return a leak if a column alone explains the target, else None.

    The explained share is 1 - error / (error of the best constant prediction).  The error is the
    number of wrong classes, or the sum of squares.  A row is predicted from the other rows with the
    same value.  If the column has many different numbers, a row is predicted from the nearest rows
    or, in regression, also by a straight line.  The ranks of the target are predicted, too, because
    a few large values may dominate squared errors.
    """
    distinct = column.distinct()
    codes = codes_into(distinct, column)  # -1 where a value is missing
    if (codes >= 0).sum() < MIN_LEAK_ROWS:
        return None
    if is_recoding_of_target(codes, goal, ordered=column.kind != "text"):
        return Leak(name, 1.0, DETERMINES, True)
    filled = goal.codes[codes >= 0]
    if goal.task == "classification" and (filled == filled[0]).all():
        share = len(filled) / goal.counts[filled[0]]
        if share > 0.5 and len(filled) < len(codes):
            return Leak(name, share, "it has values in rows of one class only")
    has_groups = column.kind == "text" or 2 * EACH_SIDE * len(distinct) <= len(codes)
    if goal.task == "classification":
        share = share_of_classes(codes, goal, has_groups=has_groups)
        reason = f"it alone avoids {100 * share:.1f} % of the errors of a constant prediction"
    else:
        near = share_of_squares(codes, goal, has_groups=has_groups)
        share = max(near, share_of_line(column, goal.values))
        part = " in the rows that have a value" if near < share and (codes < 0).any() else ""
        reason = f"it alone explains {100 * share:.1f} % of the target{part} (R2 {share:.3f})"
        ranks = (np.cumsum(goal.counts) - (goal.counts + 1) / 2)[goal.codes]
        ordered = share_of_squares(codes, goal._replace(values=ranks), has_groups=has_groups)
        if share < ANSWER and ordered >= ORDER:
            reason = f"it alone predicts the order of target values (R2 of ranks {ordered:.3f})"
            return Leak(name, ordered, reason)
    return Leak(name, share, reason) if share >= ANSWER else None


def is_recoding_of_target(codes: Array, goal: Goal, *, ordered: bool) -> bool:
    """Return whether the values of column and target map one-to-one.

    Missing values (code -1) are left out.  If half or more are missing, the result is False.
    Columns with hardly any repeated values always map one-to-one.  For such a column, the result is
    True only if the column is `ordered`, and the map increases or decreases throughout.
    """
    present = codes >= 0
    if present.all() and codes.max() + 1 != len(goal.counts):
        return False
    values, places = np.unique(goal.codes[present], return_inverse=True)
    kinds, first, numbers = np.unique(codes[present], return_index=True, return_inverse=True)
    if present.mean() <= 0.5 or len(values) != len(kinds) or len(values) < 2:
        return False
    matched = places[first]  # the target of each code, by its first row
    if (matched[numbers] != places).any():
        return False
    if len(kinds) <= len(numbers) / 2:
        return True
    steps = np.diff(matched)
    return ordered and bool((steps > 0).all() or (steps < 0).all())


def share_of_classes(codes: Array, goal: Goal, *, has_groups: bool) -> float:
    """Return 1 - errors / (errors of always predicting the most frequent class).

    With `has_groups`, the neighbors of a row are the other rows with the same code.  Else, they are
    the `EACH_SIDE` next rows on both sides in the order of codes.  A row is an error if less than
    half of its neighbors have its class.
    """
    own, counts = goal.codes, goal.counts
    if has_groups:
        pairs = (codes + 1) * len(counts) + own
        same, number = np.bincount(pairs)[pairs] - 1, np.bincount(codes + 1)[codes + 1] - 1
    else:
        own = own[in_order(codes, goal.shuffled)]
        same, number = np.zeros((2, len(own)), np.int64)
        for distance in range(1, EACH_SIDE + 1):
            equal = own[distance:] == own[:-distance]
            same[distance:] += equal
            same[:-distance] += equal
            number[distance:] += 1
            number[:-distance] += 1
    right = (2 * same >= np.maximum(number, 1)).sum()
    return float((right - counts.max()) / (len(own) - counts.max()))


def share_of_squares(codes: Array, goal: Goal, *, has_groups: bool) -> float:
    """Return the R2 of predicting each value by the mean of its neighbors (`share_of_classes`)."""
    values = goal.values - goal.values.mean()
    values /= np.abs(values).max()
    if has_groups:
        groups = codes + 1
        total, number = np.bincount(groups, values)[groups], np.bincount(groups)[groups]
    else:
        values = values[in_order(codes, goal.shuffled)]
        sums, place = np.append(0.0, np.cumsum(values)), np.arange(len(values))
        start = np.maximum(place - EACH_SIDE, 0)
        stop = np.minimum(place + EACH_SIDE + 1, len(values))
        total, number = sums[stop] - sums[start], stop - start
    means = (total - values) / np.maximum(number - 1, 1)
    return float(1 - ((values - means) ** 2).sum() / (values @ values))


def share_of_line(column: Column, target: Array) -> float:
    """Return the R2 of a straight line in a column; 0 unless most values are numbers."""
    if column.kind == "text":
        return 0.0
    values = column.values.astype(np.float64)
    present = np.abs(values) <= LIMIT  # false for NaN
    if present.mean() <= 0.5:
        return 0.0
    x, y = values[present], target[present]
    if not (np.ptp(x) and np.ptp(y)):
        return 0.0
    return float(np.corrcoef(x / np.abs(x).max(), y / np.abs(y).max())[0, 1] ** 2)


def in_order(codes: Array, shuffled: Array) -> Array:
    """Return rows sorted by code; within a code, a random order hides the order of the file."""
    return shuffled[np.argsort(codes[shuffled], kind="stable")]
