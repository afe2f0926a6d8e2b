"""Leaks: columns that are the target in another coding, or explain nearly all of it."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.features.categories import codes_into
from mlpengine.data.features.copies import row_hashes
from mlpengine.data.features.sources import LIMIT
from mlpengine.data.tables.progress import OnProgress, tracked
from mlpengine.data.tables.table import Column, Table
from mlpengine.settings.features import TaskName

ANSWER = 0.97
"""Share of the target that one column explains from which it is reported as a leak.

Most honest predictors explain less: carat explains 0.87 of a diamond's price, displacement 0.90 of
the number of cylinders. Some explain more: a yacht's speed explains 0.99 of its resistance. So the
column is reported and kept.
"""

TOTAL_FROM = 0.9
"""From this one on, below ANSWER, a column is reported only if it is a total that contains the
target, or a summand of it: of similar size, almost never below (or above) it, and the difference is
an amount of its own.  Minimum and mean of a thing follow its maximum from below, too, as height
follows the span of the arms, and are honest predictors."""

PART_ROWS = 0.999
SAME = 0.1
"""Share of rows with exactly the same difference, mostly 0, from which column and target are taken
for a sum and its summand: rides without a tip, invoices that are paid in full."""

BY_CHANCE = 3.0
"""The same share, in units of that of equal differences of numbers rounded like these."""

SUMMED, HALVED = 0.95, 0.5
"""Share of the difference's variance that other columns, added or subtracted, make up; largest part
of the variance that each of them may leave."""
MIN_LEAK_ROWS = 20
FEW_VALUES = 100
NEIGHBORS_EACH_SIDE = 10
MAX_SUMMANDS = 100
"""Number of numeric columns, the most correlated ones, in which an exact sum is searched."""

SCREENED = 1 << 20
"""Number of values that are sorted at once to find the columns that may be leaks."""

ROUNDING_BOUND = 1e-6
"""Bound of the rounding difference between processing columns together and one by one."""

SUM_TOLERANCE = 1e-9
"""Relative difference up to which two sums are equal, because of rounding."""


class Leak(NamedTuple):
    """A column that explains the target, the share it explains, and how.

    `is_target` tells whether the column is the target in another coding and cannot be a feature.
    Any other leak may be an honest predictor: the user decides whether it is known in time.
    `is_sum` tells whether it is a sum with the target, or a part of it.
    """

    column: str
    share: float
    reason: str
    is_target: bool = False
    is_sum: bool = False


@dataclass(frozen=True, eq=False)
class Labels:
    """The values of a target as class numbers, (rows,), and how often each occurs."""

    classes: Array
    counts: Array

    @classmethod
    def of(cls, target: Array) -> "Labels":
        """Number the values in their order."""
        _, classes, counts = np.unique(target, return_inverse=True, return_counts=True)
        return cls(classes, counts)


def find_leaks(
    table: Table,
    names: Sequence[str],
    target: Array,
    task: TaskName,
    progress: OnProgress | None = None,
) -> list[Leak]:
    """Return the leaks of these columns of a table into the target.

    `target` holds class numbers or, for regression, values. Every column of an exact sum is
    reported; it counts as the target unless no other column is left.  A column that is the only one
    is not expected to leave anything unexplained: it is reported only if it is the target.
    """
    labels = Labels.of(target)
    suspects = _suspects(table, names, target, task, labels)
    columns = {name: table[name] for name in names}
    each = (
        find_leak(name, columns[name], target, task, columns, labels)
        for name in tracked(suspects, progress)
    )
    leaks = [leak for leak in each if leak]
    if any(leak.is_target for leak in leaks):
        leaks = _of_distinct_rows(leaks, columns, target, task)
    if task == "regression":
        coded = {leak.column for leak in leaks if leak.is_target}
        addends = _addends({n: c for n, c in columns.items() if n not in coded}, target)
        left = len(names) > len(coded) + len(addends)  # else the table is the sum, and no more
        leaks = [leak for leak in leaks if leak.column not in addends]
        leaks += [Leak(name, 1.0, why, left, is_sum=True) for name, why in addends.items()]
    return [leak for leak in leaks if leak.is_target or len(names) > 1]


def _of_distinct_rows(
    leaks: list[Leak], columns: Mapping[str, Column], target: Array, task: TaskName
) -> list[Leak]:
    """Return leaks without those that are the target only because whole rows are repeated.

    Of rows that are all there twice any column of different numbers maps one-to-one to the target.
    """
    hashes = row_hashes([*columns.values(), Column(target)])
    rows = np.sort(np.unique(hashes, return_index=True)[1])
    if not MIN_LEAK_ROWS <= len(rows) < len(target):
        return leaks
    distinct = {name: column.take(rows) for name, column in columns.items()}
    known, labels = target[rows], Labels.of(target[rows])
    again = (
        find_leak(leak.column, distinct[leak.column], known, task, distinct, labels)
        if leak.is_target
        else leak
        for leak in leaks
    )
    return [leak for leak in again if leak]


def _suspects(
    table: Table, names: Sequence[str], target: Array, task: TaskName, labels: Labels
) -> list[str]:
    """Return the columns that must be examined one by one, in order.

    The others are numeric columns without missing cells, examined many at once: they explain too
    little of the target and are not a coding of it.
    """
    kept = dict.fromkeys(names)
    if len(target) < MIN_LEAK_ROWS or np.ptp(target) == 0:
        return list(kept)
    numeric = [name for name in names if table[name].kind == "number"]
    size = max(1, SCREENED // len(target))
    for first in range(0, len(numeric), size):
        some = numeric[first : first + size]
        values = np.stack([table[name].values.astype(np.float64) for name in some])
        harmless = ~_is_suspect(values, target, task, labels)
        for name in itertools.compress(some, harmless.tolist()):
            del kept[name]
    return list(kept)


def _is_suspect(values: Array, target: Array, task: TaskName, labels: Labels) -> Array:
    """Return whether columns, given as the rows of a matrix, may be leaks."""
    bounded = np.asarray(np.abs(values).max(axis=1) <= LIMIT)  # not NaN either
    values = np.where(bounded[:, None], values, 0.0)
    shuffled = _shuffled(len(target))
    order = shuffled[np.argsort(values[:, shuffled], axis=1, kind="stable")]
    ordered = np.take_along_axis(values, order, axis=1)
    groups = np.zeros(ordered.shape, np.int64)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=groups[:, 1:])
    count = 1 + groups[:, -1]
    result: Array = ~bounded
    few = np.flatnonzero(count <= FEW_VALUES)
    if task == "classification":
        shares = _largest_shares(groups[few], labels.classes[order[few]], labels.counts)
        result[few] |= shares >= ANSWER - ROUNDING_BOUND
    else:
        result[few] = True
    steps = np.diff(target[order], axis=1)
    has_order = (steps > 0).all(axis=1) | (steps < 0).all(axis=1)
    result |= (count == len(labels.counts)) & ((count < len(target)) | has_order)
    others = np.flatnonzero(~result & (count > FEW_VALUES))
    if not len(others):
        return result
    if task == "classification":
        shares = _bounds_of_shares(labels.classes[order[others]], labels.counts)
        result[others] = shares >= ANSWER - ROUNDING_BOUND
        return result
    near = _nearest(order[others])
    result[others] = share_of_squares(near, target) >= ANSWER - ROUNDING_BOUND
    centered, known = values - values.mean(axis=1, keepdims=True), target - target.mean()
    size = np.abs(centered).max(axis=1, keepdims=True)
    centered /= np.where(size > 0, size, 1)
    known /= np.abs(known).max()
    squares = (centered**2).sum(axis=1) * (known @ known)
    result |= (centered @ known) ** 2 >= (TOTAL_FROM - ROUNDING_BOUND) * squares
    return result


def _largest_shares(groups: Array, classes: Array, counts: Array) -> Array:
    """Return at least `share_of_groups` of columns: a row is predicted from its whole group.

    Shapes: groups and classes (columns, rows), numbers from 0; counts (kinds,) of the classes.
    """
    kinds, base = len(counts), counts.max()
    height = int(groups.max(initial=0)) + 1
    right = np.full(len(groups), np.sort(counts)[-height:].sum())  # at most: a class for each group
    if right.max(initial=0) - base < (ANSWER - ROUNDING_BOUND) * (counts.sum() - base):
        groups = groups[:0]  # too many classes for so few groups
    size = max(1, SCREENED // (height * kinds))
    for first in range(0, len(groups), size):
        some = slice(first, first + size)
        starts = np.arange(len(groups[some])) * height
        cells = classes[some] * len(starts) * height + starts[:, None] + groups[some]
        table = np.bincount(cells.ravel(), minlength=kinds * len(starts) * height)
        largest = table.reshape(kinds, -1).max(axis=0)  # class of each group
        right[some] = largest.reshape(-1, height).sum(axis=1)
    share: Array = (right - base) / (counts.sum() - base)
    return share


def _bounds_of_shares(classes: Array, counts: Array) -> Array:
    """Return at least `share_of_classes` of columns, in a time that no number of classes changes.

    The largest of some classes has at least their mean of the neighbors, so a row that is predicted
    has as many of its own class.
    Shapes: classes (columns, rows), in the order of each column; counts (kinds,) of the classes.
    """
    own = np.zeros(classes.shape, np.uint8)
    for distance in range(1, NEIGHBORS_EACH_SIDE + 1):
        equal = classes[:, distance:] == classes[:, :-distance]
        own[:, distance:] += equal
        own[:, :-distance] += equal
    neighbors = np.diff(_window(classes.shape[1]), axis=0)[0] - 1
    right = (own >= np.maximum(neighbors / len(counts), 1)).sum(axis=1)
    base = counts.max()
    share: Array = (right - base) / (counts.sum() - base)
    return share


def find_leak(
    name: str,
    column: Column,
    target: Array,
    task: TaskName,
    others: Mapping[str, Column] | None = None,
    labels: "Labels | None" = None,
) -> Leak | None:
    """Return the leak of a column into the target, or None.

    `others` are columns that may add up to the target together with this one; `labels` are those
    of the target, if they are known.

    The share explained is the part of the error of the best constant prediction (wrong classes, or
    squared error) that the best prediction from this column alone removes. A prediction comes from
    the other rows of the same value or, for numbers with many values, from the nearest rows or a
    straight line.
    """
    present = ~column.missing
    if present.sum() < MIN_LEAK_ROWS or np.ptp(target) == 0:
        return None
    labels = labels or Labels.of(target)
    distinct = column.distinct()
    codes = codes_into(distinct, column)
    if is_recoding_of_target(column, codes, len(distinct), target, len(labels.counts)):
        reason = "it is the target in another coding, value for value"
        return Leak(name, 1.0, reason, is_target=True)
    if task == "classification":
        if has_groups(column, len(distinct)):
            share = share_of_groups(codes, labels)
        else:
            order = neighbors(column, codes, len(distinct)).order
            share = share_of_classes(labels.classes[order], labels.counts)
        reason = f"alone it avoids {_percent(share)} of the errors of guessing"
        return Leak(name, share, reason) if share >= ANSWER else None
    share = float(share_of_squares(neighbors(column, codes, len(distinct)), target))
    if column.kind == "number":
        present &= np.abs(column.values) <= LIMIT
        values, known = column.values[present].astype(np.float64), target[present]
        line = share_of_line(values, known) if present.mean() > 0.5 else 0.0
        share = max(share, line)
        if line >= TOTAL_FROM and is_beside(values, known):
            terms = {n: other for n, other in (others or {}).items() if n != name}
            if reason := summand(values, known, terms, np.flatnonzero(present)):
                return Leak(name, line, f"R2 {line:.3f}, {reason}", is_sum=True)
    reason = f"alone it explains {_percent(share)} of the target (R2 {share:.3f})"
    return Leak(name, share, reason) if share >= ANSWER else None


def _addends(columns: Mapping[str, Column], target: Array) -> dict[str, str]:
    """Return every column of an exact sum that is the target, and what the sum is.

    Of each sum the column that explains most is left out of the next search, so that a copy of it,
    or its own parts, are found too.
    """
    reasons: dict[str, str] = {}
    candidates = dict(columns)
    while signs := exact_sum(candidates, target):
        terms = " ".join(f"{'+' if sign > 0 else '-'} {name}" for name, sign in signs.items())
        reason = f"with other columns it adds up to the target ({terms.removeprefix('+ ')})"
        reasons = dict.fromkeys(signs, reason) | reasons
        del candidates[
            max(signs, key=lambda name: share_of_line(candidates[name].values * 1.0, target))
        ]
    return reasons


def is_recoding_of_target(
    column: Column, codes: Array, count: int, target: Array, values: int
) -> bool:
    """Whether column and target determine each other: a one-to-one map of their values.

    The column is given by its codes too, of which there are `count`, -1 left out; the target has
    so many `values`.
    The map may leave out missing cells, if they are not the majority, or treat them as one more
    value. If values rarely repeat, any two columns map one-to-one; then the map must be increasing
    or decreasing.
    """
    ordered = column.kind != "text"
    present = codes >= 0
    if present.all() and (count != values or count == len(codes)):
        if count != values or not ordered:
            return False
        by_rank = np.empty_like(target)
        by_rank[codes] = target
        steps = np.diff(by_rank)
        return len(codes) > 1 and bool((steps > 0).all() or (steps < 0).all())
    if count > values:
        return False
    if present.all():
        return _one_to_one(codes, target, ordered=ordered)
    if present.mean() > 0.5 and _one_to_one(codes[present], target[present], ordered=ordered):
        return True
    return _one_to_one(codes, target, ordered=False)


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


def exact_sum(columns: Mapping[str, Column], target: Array) -> dict[str, int]:
    """Return the columns that add up to the target, each with its sign; empty if none do.

    In every row, up to rounding, target = constant + the sum of +column or -column. Only numeric
    columns without missing cells are examined.
    """
    values = {name: _numeric(column) for name, column in columns.items()}
    usable = {name: v for name, v in values.items() if v is not None}
    if len(usable) < 2 or np.ptp(target) == 0:
        return {}
    rows = np.arange(0, len(target), max(1, len(target) // (4 * MAX_SUMMANDS)))
    limit = min(MAX_SUMMANDS, len(rows) // 2 - 1)
    follows = {name: share_of_line(v[rows], target[rows]) for name, v in usable.items()}
    names = sorted(usable, key=lambda name: -follows[name])[: max(limit, 0)]
    names = [name for name in names if np.ptp(usable[name][rows]) > 0]
    matrix = np.column_stack([usable[name][rows] for name in names]) if names else np.empty((0, 0))
    if matrix.shape[1] < 2 or (factors := _fit(matrix, target[rows])) is None:
        return {}
    kept = list(range(len(names)))
    for i in np.argsort(np.abs(factors * matrix.std(axis=0))).tolist():
        fewer = [j for j in kept if j != i]
        without = _fit(matrix[:, fewer], target[rows]) if fewer else None
        if without is not None:
            kept, factors = fewer, without
    signs = dict(zip([names[i] for i in kept], np.round(factors, 6), strict=True))
    if len(signs) < 2 or any(abs(sign) != 1 for sign in signs.values()):
        return {}
    remainder = target - sum(sign * usable[name] for name, sign in signs.items())
    size = max(np.abs(target).max(), *(np.abs(usable[name]).max() for name in signs))
    if np.ptp(remainder) > SUM_TOLERANCE * size:
        return {}
    return {name: int(signs[name]) for name in columns if name in signs}


def _numeric(column: Column) -> Array | None:
    if column.kind not in ("number", "boolean") or column.missing.any():
        return None
    values = column.values.astype(np.float64)
    return values if (np.abs(values) <= LIMIT).all() else None


def _fit(matrix: Array, target: Array) -> Array | None:
    """Return the factors of an exact linear fit with a constant, or None if there is none."""
    centered, known = matrix - matrix.mean(axis=0), target - target.mean()
    scale = np.abs(centered).max(axis=0)  # the squares of tiny numbers would be 0
    weights = np.linalg.lstsq(centered / scale, known, rcond=None)[0]
    errors = known - centered / scale @ weights
    if np.abs(errors).max() > 1e-7 * np.abs(known).max():
        return None
    factors: Array = weights / scale
    return factors


class Neighbors(NamedTuple):
    """Rows in an order in which rows of similar value are adjacent.

    The neighbors of row i in `order` are rows `start[i]` to `stop[i]` in `order`, without itself.
    Shapes: start, stop (rows,); order (rows,), or (columns, rows) for several columns at once.
    """

    order: Array
    start: Array
    stop: Array

    def totals(self, values: Array) -> Array:
        """Return the sum of a value (one per row) over the neighbors of each row in order."""
        ordered = values[self.order]
        sums = np.zeros((*ordered.shape[:-1], ordered.shape[-1] + 1))
        np.cumsum(ordered, axis=-1, out=sums[..., 1:])
        result: Array = sums[..., self.stop] - sums[..., self.start] - ordered
        return result


def has_groups(column: Column, count: int) -> bool:
    """Whether the neighbors by a column of `count` values are the rows of equal value."""
    return column.kind == "text" or count <= FEW_VALUES


def neighbors(column: Column, codes: Array, count: int) -> Neighbors:
    """Return the neighbors by a column: rows of equal value or, for many numbers, the nearest.

    The column is given by its codes too, of which there are `count`, -1 left out.
    """
    codes = np.where(codes < 0, np.iinfo(np.int32).max, codes)
    order = _shuffled(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    if has_groups(column, count):
        ordered = codes[order]
        start = np.searchsorted(ordered, ordered, "left")
        return Neighbors(order, start, np.searchsorted(ordered, ordered, "right"))
    return _nearest(order)


def _shuffled(rows: int) -> Array:
    """Return rows in random order, so that rows of equal value are not in the order of the file."""
    return np.random.Generator(np.random.PCG64(0)).permutation(rows)


def _nearest(order: Array) -> Neighbors:
    return Neighbors(order, *_window(order.shape[-1]))


def _window(rows: int) -> Array:
    """Return the first row near each row in an order, and the one after the last: (2, rows)."""
    place = np.arange(rows)
    start = np.maximum(place - NEIGHBORS_EACH_SIDE, 0)
    return np.stack([start, np.minimum(place + NEIGHBORS_EACH_SIDE + 1, rows)])


def share_of_classes(classes: Array, counts: Array) -> float:
    """Return the share of the errors of the largest class that the neighbors' largest class avoids.

    Of classes of equal size the first is the largest.
    Shapes: classes (rows,), numbers from 0, in an order of the rows; counts (kinds,) of the
    classes.
    """
    margin = np.full(NEIGHBORS_EACH_SIDE, -1)
    padded = np.concatenate([margin, classes, margin])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEIGHBORS_EACH_SIDE + 1)
    near = np.sort(np.delete(windows, NEIGHBORS_EACH_SIDE, axis=1), axis=1)
    guess, votes, run = np.zeros((3, len(classes)), np.int64)
    before = near[:, 0]
    for number in near.T:  # in their order
        run = np.where(number == before, run + 1, 1)
        more = (run > votes) & (number >= 0)
        guess[more], votes[more], before = number[more], run[more], number
    base = counts.max()
    return float(((guess == classes).sum() - base) / (len(classes) - base))


def share_of_groups(codes: Array, labels: Labels) -> float:
    """Return `share_of_classes` for neighbors of equal code, from how often code and class meet.

    A row is predicted correctly only if its class is the largest of its group, and it still is
    without that row; of classes of equal size the first is the largest.
    """
    counts = labels.counts
    base, kinds = int(counts.argmax()), len(counts)
    cells = (codes.astype(np.int64) + 1) * kinds + labels.classes
    cells, sizes = np.unique(cells, return_counts=True)
    order = np.lexsort((cells, -sizes, cells // kinds))  # in each group the largest class first
    groups, classes, sizes = *np.divmod(cells[order], kinds), sizes[order]
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    after = np.append(groups, -1)[first + 1] == groups[first]  # whether there is a second class
    largest, size = classes[first], sizes[first]
    second = np.where(after, np.append(classes, 0)[first + 1], 0)
    next_size = np.where(after, np.append(sizes, 0)[first + 1], 0)
    stays = np.where(largest < second, next_size <= size - 1, next_size < size - 1)
    stays = np.where(size == 1, (next_size == 0) & (largest == base), stays)
    return float((size[stays].sum() - counts[base]) / (len(codes) - counts[base]))


def share_of_squares(near: Neighbors, target: Array) -> Array:
    """Return the R2 of predicting each value by the mean of its neighbors."""
    values = target - target.mean()
    values /= np.abs(values).max()
    count = near.stop - near.start - 1
    errors = values[near.order] - near.totals(values) / np.maximum(count, 1)
    share: Array = 1 - (errors**2).sum(axis=-1) / (values @ values)
    return share


def share_of_line(values: Array, target: Array) -> float:
    """Return the R2 of the best straight line from values to target."""
    if np.ptp(values) == 0 or np.ptp(target) == 0:
        return 0.0
    values, target = values - values.mean(), target - target.mean()
    values, target = values / np.abs(values).max(), target / np.abs(target).max()
    return float((values @ target) ** 2 / ((values @ values) * (target @ target)))


def is_beside(values: Array, target: Array) -> bool:
    """Return whether almost all values are on one side of the target and of similar size.

    Only such a column can be a sum of positive amounts that contains the target, or one of them.
    """
    size = np.median(np.abs(target))
    if not size or not 0.5 <= np.median(np.abs(values)) / size <= 2:
        return False
    slack = SUM_TOLERANCE * np.abs(target).max()
    above, below = values >= target - slack, values <= target + slack
    return bool(max(above.mean(), below.mean()) >= PART_ROWS)


def summand(values: Array, target: Array, others: Mapping[str, Column], rows: Array) -> str:
    """Return why a column is a sum that contains the target or a summand of it; "" if it is not.

    In many rows their difference is exactly the same, or it is the sum of other columns, each added
    or subtracted as it is, but for a small remainder or one that is the same in many rows.  `rows`
    are the rows of `others` to which values and target belong.
    """
    step, slack = min(_step(values), _step(target)), SUM_TOLERANCE * float(np.abs(target).max())
    if amount := repeated(target - values, step, slack):
        return f"target = column {amount}"
    gap = max(1, len(rows) // (4 * MAX_SUMMANDS))
    numeric = {name: _numeric(column.take(rows[::gap])) for name, column in others.items()}
    usable = {name: v for name, v in numeric.items() if v is not None}
    if not usable:
        return ""
    names, matrix = list(usable), np.stack([*usable.values()])
    matrix -= matrix.mean(axis=1, keepdims=True)
    remainder = difference = (target - values)[::gap]
    terms, used = [], np.zeros(len(names), np.bool_)
    while not used.all():
        products = matrix @ (remainder - remainder.mean()) / len(remainder)
        left = remainder.var() + matrix.var(axis=1) - 2 * np.abs(products)
        chosen = int(np.where(used, np.inf, left).argmin())
        if not left[chosen] < HALVED * remainder.var():
            break
        sign = np.sign(products[chosen])
        remainder = remainder - sign * usable[names[chosen]]
        terms.append(f"{'+' if sign > 0 else '-'} {names[chosen]}")
        used[chosen] = True
    amount = repeated(remainder, step, slack) if terms else ""
    if amount or remainder.var() <= (1 - SUMMED) * difference.var():
        return f"target = column {' '.join(terms)} {amount or '+ little'}"
    return ""


def repeated(values: Array, step: float, slack: float) -> str:
    """Return the value that many rows have, as a term with its share of rows; "" if none do.

    `step` is the usual distance of the numbers of which these are differences, `slack` that of
    values that are equal but for rounding.
    """
    ordered = np.sort(values)
    starts = np.flatnonzero(np.diff(ordered, prepend=-np.inf) > slack)
    counts = np.diff(starts, append=len(ordered))
    largest = int(counts.argmax())
    value, share = float(ordered[starts[largest]]), float(counts[largest] / len(ordered))
    spread = float(np.abs(ordered - value).mean())
    if not share * spread >= max(SAME * spread, BY_CHANCE * step) > 0:
        return ""
    term = "" if abs(value) <= slack else f"{'+' if value > 0 else '-'} {abs(value):.4g} "
    return f"{term}in {_percent(share)} of rows"


def _step(values: Array) -> float:
    """Return the usual distance of neighboring values, which is that of rounding if many repeat."""
    return float(np.median(np.diff(np.unique(values))))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
