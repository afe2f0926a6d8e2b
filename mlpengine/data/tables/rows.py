"""The rows of a table that training can use, and remarks on the other rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.data.tables.table import Table


class UsableRows(NamedTuple):
    """Indices of usable rows (None for all), and a line for each remark on other rows."""

    rows: Array | None
    remarks: list[str]


def usable_rows(
    table: Table, target: Sequence[str], in_use: Array | None, early: Array | None = None
) -> UsableRows:
    """Return the rows that a filter keeps and that have a target and all lags.

    `in_use` is the mask of the rows that the filter keeps; None without a filter.  `early` is the
    mask of the rows without all lags; None if the table has no lags.
    """
    kept = np.ones(table.n_rows, bool) if in_use is None else in_use
    names = [name for name in target if name in table]
    used = kept & has_target(table, names)
    remarks = _remark(table, ~kept, "left out: data.where does not hold")
    remarks += _remark(table, kept & ~used, "left out: the target is missing")
    if early is not None:
        text = "left out: their lags reach before the first row of the series"
        remarks += _remark(table, used & early, text)
        used &= ~early
    partly = used & np.logical_or.reduce([table[name].missing for name in names], initial=False)
    remarks += _remark(table, partly, "lack some of the targets")
    if used.all():
        return UsableRows(None, remarks)
    if not used.any():
        raise DataError(f"{table.source}: no row can be used ({'; '.join(remarks)})")
    return UsableRows(np.flatnonzero(used), remarks)


def has_target(table: Table, target: Sequence[str]) -> Array:
    """Return the mask of rows with a target: all targets if they are binary, else any target."""
    if not target:
        return np.ones(table.n_rows, bool)
    known = np.stack([~table[name].missing for name in target])
    needs_all = all(table[name].is_binary for name in target)
    return np.asarray(known.all(axis=0) if needs_all else known.any(axis=0))


def _remark(table: Table, rows: Array, why: str) -> list[str]:
    count = int(rows.sum())
    text = f"{table.source}: {plural(count, 'row')} of {table.n_rows:,} {why}"
    return [text] if count else []
