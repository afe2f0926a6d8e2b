"""Duplicate rows and columns of a table."""

from hashlib import sha256

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.features.categories import codes_into
from mlpengine.data.features.copies import row_hashes
from mlpengine.data.tables.table import Column, Table

DUPLICATE_ROWS = 10_000


def duplicate_rows(table: Table) -> int:
    """Return how many rows equal an earlier row in every column, missing cells included.

    Rows are compared by a 64-bit hash of their values.
    """
    if not table.columns:
        return 0
    hashes = np.sort(row_hashes(table.columns.values()))
    return int((hashes[1:] == hashes[:-1]).sum())


def same_columns(table: Table) -> dict[str, str]:
    """Return the columns that duplicate an earlier one, each with that column.

    Two columns are duplicates if there is a one-to-one map of their values and values repeat:
    columns with more distinct values than half the rows are left out.
    """
    rows = slice(None, None, max(1, table.n_rows // DUPLICATE_ROWS))
    by_sample: dict[bytes, list[str]] = {}
    for name, column in table.columns.items():  # columns that differ in a sample differ
        by_sample.setdefault(_digest(column.take(rows)), []).append(name)
    candidates = {name for names in by_sample.values() if len(names) > 1 for name in names}
    earlier: dict[bytes, str] = {}
    same: dict[str, str] = {}
    for name, column in table.columns.items():
        if name not in candidates:
            continue
        distinct = len(column.distinct()) + bool(column.missing.any())
        if 1 < distinct <= table.n_rows / 2:
            first = earlier.setdefault(_digest(column), name)
            if first != name:
                same[name] = first
    return same


def _digest(column: Column) -> bytes:
    """Return a hash that is equal for duplicate columns."""
    return sha256(_pattern(codes_into(column.distinct(), column)).tobytes()).digest()


def _pattern(codes: Array) -> Array:
    """Return codes renumbered in the order of their first appearance."""
    shifted = codes + 1
    first = np.full(int(shifted.max()) + 1, len(codes))
    first[shifted[::-1]] = np.arange(len(codes))[::-1]  # the last assignment remains
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    pattern: Array = rank[shifted]
    return pattern
