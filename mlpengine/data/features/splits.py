"""Split rows into training, validation and test parts by fractions; assign rows to folds."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.data.tables.table import Table

SPLIT_PARTS = ("train", "validation", "test")


class SplitRows(NamedTuple):
    """Sorted int64 row indices of each part; parts do not overlap."""

    train: Array
    validation: Array
    test: Array

    def parts(self) -> dict[str, Array]:
        """Return the parts by name, even empty ones."""
        return {name: getattr(self, name) for name in SPLIT_PARTS}


def split_rows(
    n_rows: int,
    fractions: Sequence[float] = (0.7, 0.15, 0.15),
    *,
    seed: int = 0,
    labels: Array | None = None,
    groups: Array | None = None,
    times: Array | None = None,
    duplicates: Array | None = None,
) -> SplitRows:
    """Split rows at random; equal seeds give equal splits (PCG64).

    With `labels`, the split is stratified: each part gets its fraction of every class, in
    whole rows.  A class with at least as many rows as parts is in every part; a class with a single
    row is only in training.
    With `groups`, the rows of a group stay together.  With `times`, the split is not random: the
    earliest rows are for training, the latest for testing, and rows with equal times stay together.
    Without `groups` and `times`, rows with equal values in `duplicates` are in one part and count
    as one row, unless there are fewer distinct rows than parts.

    Raises: DataError for invalid fractions, too few rows or groups, a missing group or time, or
        more than one of `labels`, `groups` and `times`.
    """
    shares = _shares(fractions)
    used = int((shares > 0).sum())
    _check_columns("split", n_rows, labels=labels, groups=groups, times=times)
    if duplicates is not None and groups is None and times is None:
        first, one = _distinct(duplicates)
        if len(first) >= used:
            own = None if labels is None else np.asarray(labels)[first]
            of_one = split_rows(len(first), fractions, seed=seed, labels=own)
            return SplitRows(*(np.flatnonzero(np.isin(one, rows)) for rows in of_one))
    if n_rows < used:
        raise DataError(f"split: {used} parts need at least {used} rows (got {n_rows})")
    generator = np.random.Generator(np.random.PCG64(seed))
    if times is not None:
        part = _by_time(np.asarray(times), shares)
    elif groups is not None:
        part = _by_group(np.asarray(groups), shares, generator)
    else:
        classes = np.zeros(n_rows, np.int64) if labels is None else np.asarray(labels)
        part = _by_class(classes, shares, generator)
    return SplitRows(*(np.flatnonzero(part == number) for number in range(3)))


def fold_rows(
    n_rows: int,
    folds: int,
    *,
    seed: int = 0,
    labels: Array | None = None,
    groups: Array | None = None,
    times: Array | None = None,
    duplicates: Array | None = None,
) -> Array:
    """Return the fold of each row, int64 from 0; equal seeds give equal folds (PCG64).

    The sizes of random folds differ by at most one row.  With `labels`, folds are stratified: the
    numbers of rows of a class also differ by at most one.  With `groups`, the rows of a group are
    in one fold, and the sizes of folds are balanced.  With `times`, the folds follow each other in
    time, and rows with equal times stay together.  Without `groups` and `times`, rows with equal
    values in `duplicates` are in one fold, and count as one row.

    Raises: DataError for fewer than 2 folds, too few rows, groups or times, a missing group or
        time, or more than one of `labels`, `groups` and `times`.
    """
    if folds < 2:
        raise DataError(f"folds: at least 2 are needed (got {folds})")
    _check_columns("folds", n_rows, labels=labels, groups=groups, times=times)
    if n_rows < folds:
        raise DataError(f"folds: {folds} folds need at least {folds} rows (got {n_rows})")
    if duplicates is not None and groups is None and times is None:
        first, one = _distinct(duplicates)
        if len(first) >= folds:
            own = None if labels is None else np.asarray(labels)[first]
            return fold_rows(len(first), folds, seed=seed, labels=own)[one]
    generator = np.random.Generator(np.random.PCG64(seed))
    if times is not None:
        return _folds_by_time(np.asarray(times), folds)
    if groups is not None:
        return _folds_by_group(np.asarray(groups), folds, generator)
    order = generator.permutation(n_rows)
    if labels is not None:
        order = order[np.argsort(np.asarray(labels)[order], kind="stable")]
    fold = np.empty(n_rows, np.int64)
    fold[order] = np.arange(n_rows) % folds
    return fold


def _distinct(duplicates: Array) -> tuple[Array, Array]:
    """Return the first row of each distinct value, and the index of each row's distinct value."""
    _, first, one = np.unique(duplicates, return_index=True, return_inverse=True)
    return first, one


def _folds_by_group(groups: Array, folds: int, generator: np.random.Generator) -> Array:
    """Put each group, the largest first, into the smallest fold so far."""
    names, members, counts = np.unique(groups, return_inverse=True, return_counts=True)
    if len(names) < folds:
        raise DataError(
            f"folds: {folds} folds need at least {folds} groups (these rows have {len(names)}); "
            "take fewer folds, or a column with more groups"
        )
    sizes = np.zeros(folds, np.int64)
    fold_of = np.empty(len(names), np.int64)
    order = generator.permutation(len(names))
    for group in order[np.argsort(-counts[order], kind="stable")]:
        fold = int(np.argmin(sizes))
        fold_of[group] = fold
        sizes[fold] += counts[group]
    return fold_of[members]


def _folds_by_time(times: Array, folds: int) -> Array:
    distinct, place, counts = np.unique(times, return_inverse=True, return_counts=True)
    if len(distinct) < folds:
        raise DataError(
            f"folds: {folds} folds need at least {folds} different times (got {len(distinct)})"
        )
    number = np.arange(1, folds)  # cuts between folds, counted from 1
    first = np.searchsorted(np.cumsum(counts), len(times) * number / folds, "right")
    first = np.maximum.accumulate(first - number) + number  # no fold is empty
    first = np.clip(first, number, len(distinct) - folds + number)
    fold = np.searchsorted(first, np.arange(len(distinct)), "right")
    return fold[place]


def dividing_values(table: Table, key: str, name: str) -> Array:
    """Return the groups, series or times of rows; `key` is "group", "series" or "time".

    Times may be texts of equal length that begin with a year, such as 2024-W05.
    """
    column = table[name]
    if column.missing.any():
        row = int(np.flatnonzero(column.missing)[0])
        texts = f"; if a text such as NA is a {key}, train with data.na_values: []"
        raise DataError(
            f"{table.where(name, row)}: the {key} of a row is needed; fill it in, or delete the "
            f"row{texts * (column.kind == 'text')}"
        )
    in_order = key != "time" or column.kind != "text"
    levels = [] if in_order else column.used_levels()
    for level in levels:
        if not re.match(r"\d{4}", level) or len(level) != len(levels[0]):
            row = int(np.flatnonzero(column.values == column.levels.index(level))[0])
            raise DataError(
                f"{table.where(name, row)}: is text without an order in time ({level!r}); "
                "describe dates by data.date_format, or write them as 2024-12-31"
            )
    return column.values


def _check_columns(where: str, n_rows: int, **given: Array | None) -> None:
    """Check that at most one of the arrays is given, with an entry for each row."""
    named = {name: values for name, values in given.items() if values is not None}
    if len(named) > 1:
        raise DataError(
            f"{where}: at most one of labels, groups and times is allowed ({list(named)})"
        )
    for name, values in named.items():
        if np.shape(values) != (n_rows,):
            raise DataError(f"{where}: {name} needs one entry per row ({plural(n_rows, 'row')})")
        if name != "labels":
            check_known(where, name, np.asarray(values))


def check_known(where: str, name: str, values: Array) -> None:
    """Check that the groups or times of all rows are known."""
    missing = np.zeros(len(values), bool)
    if values.dtype.kind == "O":
        gaps = {"None", "nan", "NaT", "<NA>"}
        missing[:] = [not isinstance(one, str) and str(one) in gaps for one in values]
    elif values.dtype.kind in "fM":
        missing = np.isnat(values) if values.dtype.kind == "M" else np.isnan(values)
    if missing.any():
        one, row = name.removesuffix("s"), int(np.flatnonzero(missing)[0]) + 1
        raise DataError(f"{where}: a {one} is missing (row {row}); fill it or drop the row")


def _shares(fractions: Sequence[float]) -> Array:
    shares = np.asarray(fractions, np.float64)
    if shares.shape not in ((2,), (3,)) or not (shares >= 0).all() or shares[0] == 0:
        raise DataError(
            "split: fractions must be train, validation and test, none of them negative and "
            f"train above 0 (got {list(fractions)})"
        )
    if abs(shares.sum() - 1) > 1e-6:
        raise DataError(f"split: the fractions must add up to 1 ({shares.sum():g})")
    result: Array = np.append(shares, 0.0)[:3] / shares.sum()
    return result


def part_sizes(count: int, shares: Array) -> Array:
    """Divide `count` rows into parts with these shares; return the number of rows of each part.

    Every part with a share gets at least one row.  If rows are too few, the last parts get none.
    """
    sizes = np.floor(count * shares + 1e-9).astype(np.int64)
    remainders = count * shares - sizes
    for part in np.argsort(-remainders, kind="stable")[: count - sizes.sum()]:
        sizes[part] += 1
    for part in np.flatnonzero(shares > 0)[:count]:
        if sizes[part] == 0:
            sizes[len(sizes) - 1 - np.argmax(sizes[::-1])] -= 1  # the last of the largest parts
            sizes[part] = 1
    return sizes


def _by_class(labels: Array, shares: Array, generator: np.random.Generator) -> Array:
    part = np.empty(len(labels), np.int64)
    _, classes = np.unique(labels, return_inverse=True)
    order = np.argsort(classes, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(classes))[:-1]):
        part[generator.permutation(rows)] = np.repeat(np.arange(3), part_sizes(len(rows), shares))
    return part


def _by_group(groups: Array, shares: Array, generator: np.random.Generator) -> Array:
    names, members, counts = np.unique(groups, return_inverse=True, return_counts=True)
    wanted = np.flatnonzero(shares > 0)
    if len(names) < len(wanted):
        raise DataError(
            f"split: {len(wanted)} parts need at least {len(wanted)} groups (got {len(names)})"
        )
    filled = np.zeros(3)
    part_of = np.empty(len(names), np.int64)
    for position, group in enumerate(generator.permutation(len(names))):
        short = shares * len(groups) - filled
        # if only as many groups as empty parts remain, each empty part gets a group
        empty = wanted[filled[wanted] == 0]
        choice = empty if len(empty) == len(names) - position else wanted
        part = choice[np.argmax(short[choice])]
        part_of[group] = part
        filled[part] += counts[group]
    return part_of[members]


def _by_time(times: Array, shares: Array) -> Array:
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    cuts = np.cumsum(part_sizes(len(times), shares))[:2]
    moved = [
        int(np.searchsorted(ordered, ordered[min(cut, len(times) - 1)], "left"))
        if 0 < cut < len(times)
        else int(cut)
        for cut in cuts
    ]
    part = np.repeat(np.arange(3), np.diff([0, *moved, len(times)]))
    sizes = np.bincount(part, minlength=3)
    if (sizes[shares > 0] == 0).any():
        raise DataError(
            "split: too many rows have the same time (train, validation and test would get "
            f"{sizes.tolist()} rows); use finer times, or other shares"
        )
    result = np.empty(len(times), np.int64)
    result[order] = part
    return result
