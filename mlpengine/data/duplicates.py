"""Rows and columns of a table that say the same twice."""

from hashlib import sha256

import numpy as np

from mlpengine.data.categories import codes_into
from mlpengine.data.table import Table
from mlpengine.spec import Array


def duplicate_rows(table: Table) -> int:
    """Return how many rows equal an earlier row in every column, missing cells included.

    Rows are compared by a 64-bit hash of their values.
    """
    if not table.n_rows:
        return 0
    hashes = np.zeros(table.n_rows, np.uint64)
    for column in table.columns.values():
        values = column.values.astype(np.float64) + 0.0  # -0.0 and 0.0 are equal
        values[column.missing] = np.nan
        hashes ^= values.view(np.uint64)
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
        hashes *= np.uint64(0xBF58476D1CE4E5B9)
        hashes ^= hashes >> np.uint64(32)
    return table.n_rows - len(np.unique(hashes))


def same_columns(table: Table) -> dict[str, str]:
    """Return the columns that tell the same as an earlier one, each with that column.

    Two columns tell the same if their cells are equal in the same pairs of rows, under whatever
    names, and values repeat: columns with more distinct values than half the rows are left out.
    """
    earlier: dict[bytes, str] = {}
    same: dict[str, str] = {}
    for name, column in table.columns.items():
        distinct = column.distinct()
        count = len(distinct) + bool(column.missing.any())
        if not 1 < count <= table.n_rows / 2:
            continue
        digest = sha256(_pattern(codes_into(distinct, column)).tobytes()).digest()
        twin = earlier.setdefault(digest, name)
        if twin != name:
            same[name] = twin
    return same


def _pattern(codes: Array) -> Array:
    """Return codes renumbered in order of first appearance, whatever they stand for."""
    shifted = codes + 1
    first = np.full(int(shifted.max()) + 1, len(codes))
    first[shifted[::-1]] = np.arange(len(codes))[::-1]  # the last assignment remains
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    pattern: Array = rank[shifted]
    return pattern
