"""The rows of a table that can be used in training, and remarks on the others."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.data.tables.table import Table


class UsableRows(NamedTuple):
    """Indices of the usable rows, None for all, and a line for each reason why others are not."""

    rows: Array | None
    remarks: list[str]


def usable_rows(table: Table, target: Sequence[str], in_use: Array | None) -> UsableRows:
    """Return the rows that a filter keeps and that have every target.

    `in_use` is a bool for each row, None where there is no filter.

    Raises: DataError if no row is left.
    """
    kept = np.ones(table.n_rows, bool) if in_use is None else in_use
    remarks = _remark(table, ~kept, "data.where does not hold")
    missing = np.zeros(table.n_rows, bool)
    for name in target:
        if name in table:
            missing |= table[name].missing
    missing &= kept
    remarks += _remark(table, missing, "the target is missing")
    if not remarks:
        return UsableRows(None, [])
    if not (kept & ~missing).any():
        raise DataError(f"{table.source}: no row can be used ({'; '.join(remarks)})")
    return UsableRows(np.flatnonzero(kept & ~missing), remarks)


def _remark(table: Table, rows: Array, why: str) -> list[str]:
    count = int(rows.sum())
    text = f"{table.source}: {plural(count, 'row')} of {table.n_rows:,} left out: {why}"
    return [text] if count else []
