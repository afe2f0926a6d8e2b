"""Duplicate rows: splits keep duplicates together, and training uses one row of each group."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.features.thresholds import (
    CHANCE_COLUMNS,
    CHANCE_ROWS,
    EQUAL_BY_CHANCE,
    FEWEST_DISTINCT,
    HASHED_ROWS,
)
from mlpengine.data.tables.table import Column, Table

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def hashed(values: Array, column: int) -> Array:
    """Return a 64-bit hash of each value in column number `column`; the hash of 0 is 0.

    `values` is float64 and contiguous.  The result has the same shape, and dtype uint64.
    """
    key = np.array([2 * column + 1], np.uint64) * _FACTOR  # a scalar would warn of overflow
    bits = (values + 0.0).view(np.uint64) * key  # -0.0 and 0.0 are equal
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    mixed: Array = bits ^ (bits >> np.uint64(31))
    return mixed


class DuplicateRows(NamedTuple):
    """Hashes of rows, and whether equal rows are duplicates.

    Attributes:
        hashes: hash of all columns of each row, uint64 (rows,).
        exist: whether rows with equal hashes are duplicates.
    """

    hashes: Array
    exist: bool

    @property
    def together(self) -> Array | None:
        """Numbers (rows,) for `fold_rows`, equal for duplicates; None without duplicates."""
        return self.hashes if self.exist else None

    def of(self, rows: Array) -> "DuplicateRows":
        """Return the hashes of the given rows."""
        return self._replace(hashes=self.hashes[rows])

    def learned_once(self, targets: Array, weights: Array | None) -> tuple[Array, Array] | None:
        """Return the rows to learn from, sorted by hash and targets, and their weights.

        `targets` are (rows,) or (rows, targets).  Duplicates with equal targets become one row with
        the sum of their weights.  Without `weights`, each row has weight 1.  The result is None if
        there are neither weights nor such duplicates; training then uses all rows as they are.
        """
        if weights is None and not self.exist:
            return None
        keys = targets.reshape(len(targets), -1).T
        order = np.lexsort((*keys, self.hashes))
        hashes, keys = self.hashes[order], keys[:, order]
        same = (hashes[1:] == hashes[:-1]) & (keys[:, 1:] == keys[:, :-1]).all(axis=0) & self.exist
        if weights is None and not same.any():
            return None
        starts = np.flatnonzero(np.append(True, ~same))
        each = np.ones(len(order)) if weights is None else weights[order]
        return order[starts], np.add.reduceat(each, starts)


def table_duplicates(table: Table, names: Sequence[str], rows: Array) -> DuplicateRows:
    """Find the duplicates among rows of a table, by the columns `names`.

    Equal rows are duplicates only if chance does not explain their number.
    """
    columns = [table[name].take(rows) for name in names]
    hashes = row_hashes(columns)
    ordered = np.sort(hashes)  # this test takes a tenth of the time of the search below
    repeated = np.count_nonzero(ordered[1:] == ordered[:-1])
    if not repeated or len(hashes) - repeated < FEWEST_DISTINCT * len(hashes):
        return DuplicateRows(hashes, False)
    _, first = np.unique(hashes, return_index=True)
    some = np.sort(first)[:: -(-len(first) // CHANCE_ROWS)]
    compared = range(0, len(columns), -(-len(columns) // CHANCE_COLUMNS))
    each = [hashed(_numbers(columns[k].take(some)), k) for k in compared]
    chance = _by_chance(hashes[some], each)
    return DuplicateRows(hashes, chance * len(first) / len(some) <= EQUAL_BY_CHANCE)


def row_hashes(columns: Iterable[Column]) -> Array:
    """Return a 64-bit hash of each row of one or more columns; missing values are equal."""
    columns = list(columns)
    hashes = np.zeros(len(columns[0].values), np.uint64)
    for start in range(0, len(hashes), HASHED_ROWS):
        rows = slice(start, start + HASHED_ROWS)
        for k, column in enumerate(columns):
            hashes[rows] += hashed(_numbers(column.take(rows)), k)
    return hashes


def count_copies(other: Table, table: Table, names: Sequence[str]) -> tuple[int, int]:
    """Count the rows of `other` that equal a row of `table` in the columns `names`.

    The second number is how many of them are expected by chance: as many as equal rows in `table`.
    """
    columns = [table[name] for name in names]
    hashes = row_hashes(columns)
    same = np.isin(row_hashes(map(_coded_as, columns, (other[name] for name in names))), hashes)
    _, counts = np.unique(hashes, return_counts=True)
    expected = other.n_rows * counts[counts > 1].sum() / max(1, table.n_rows)
    return int(np.count_nonzero(same)), round(expected)


def _coded_as(column: Column, other: Column) -> Column:
    """Return `other` with the codes of `column` for its texts."""
    if other.kind != "text":
        return other
    codes = {level: code for code, level in enumerate(column.levels)}
    known = [codes.get(level, len(codes) + k) for k, level in enumerate(other.levels)]
    return Column(np.array([*known, -1], np.int32)[other.values], "text", column.levels)


def count_duplicates(table: Table) -> int:
    """Return how many rows equal an earlier row in every column; missing values are equal.

    Rows are compared by a 64-bit hash of their values.
    """
    if not table.columns:
        return 0
    hashes = np.sort(row_hashes(table.columns.values()))
    return int((hashes[1:] == hashes[:-1]).sum())


def _numbers(column: Column) -> Array:
    values = column.values.astype(np.float64)
    values[column.missing] = np.nan
    return values


def _by_chance(hashes: Array, columns: list[Array]) -> float:
    """Estimate how many pairs of equal rows are due to chance, divided by the number of rows.

    `hashes` has the hashes of distinct rows, and `columns` the hashes of their values.  For each
    column, the estimate is the number of pairs that agree in all other columns, times the share of
    pairs that agree in this column, as if columns were independent.  The result is the largest one.
    """
    pairs = len(hashes) * (len(hashes) - 1) / 2
    shares = [(_equal_pairs(column) / max(pairs, 1), column) for column in columns]
    varied = [(share, column) for share, column in shares if share < 1]
    if len(varied) < 2:
        return 1.0  # at most one column varies
    return max(share * _equal_pairs(hashes - column) for share, column in varied) / len(hashes)


def _equal_pairs(values: Array) -> float:
    counts = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float((counts * (counts - 1)).sum() / 2)
