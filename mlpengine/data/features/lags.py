"""Lags and rolling windows of number columns, in the order of a time column.

The lags and windows of a row read only rows of the same series that are at least `ahead` rows
earlier.  `ahead` is at least 1, so they never read the row itself or a later row.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.data.features.sources import check_numeric
from mlpengine.data.features.splits import dividing_values
from mlpengine.data.features.thresholds import WINDOW_NUMBERS
from mlpengine.data.tables.table import Column, Table, decimals


def _mean(window: Array) -> Array:
    known = ~np.isnan(window)
    mean: Array = np.where(known, window, 0.0).sum(axis=1) / known.sum(axis=1)
    return mean


def _std(window: Array) -> Array:
    return np.sqrt(_mean((window - _mean(window)[:, None]) ** 2))


FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "mean": _mean,
    "std": _std,
    "min": lambda window: np.fmin.reduce(window, axis=1),
    "max": lambda window: np.fmax.reduce(window, axis=1),
}
"""Functions from windows (rows, length) to one number per window, by name.

Missing values are left out; a window with only missing values gives NaN.  `std` divides by the
number of values that are not missing.  `mlpengine.export._lags_c` has the same functions in C.
"""


class Derived(NamedTuple):
    """A derived column; `function` is "lag" or a name in `FUNCTIONS`, `length` a number of rows."""

    name: str
    source: str
    function: str
    length: int


class RowHistory(NamedTuple):
    """Computes lag and window columns from the settings `lags`, `rolling` and `ahead`."""

    lags: Mapping[str, Sequence[int]]
    rolling: Mapping[str, Mapping[str, Sequence[int]]]
    ahead: int = 1
    series: str | None = None
    time: str = ""

    @classmethod
    def of(cls, settings: Any, time: str | None) -> "RowHistory":
        """Return the history of `FeatureSettings`, for rows in the order of the column `time`."""
        return cls(settings.lags, settings.rolling, settings.ahead, settings.series, time or "")

    @property
    def columns(self) -> list[Derived]:
        """The derived columns in order."""
        lags = [
            Derived(f"{column}_lag_{n}", column, "lag", n)
            for column, steps in sorted(self.lags.items())  # saved files do not keep the order
            for n in steps
        ]
        return lags + [
            Derived(f"{column}_{function}_{n}", column, function, n)
            for column, functions in sorted(self.rolling.items())
            for function, lengths in sorted(functions.items())
            for n in lengths
        ]

    @property
    def names(self) -> list[str]:
        """The names of the derived columns; empty without lags and windows."""
        return [column.name for column in self.columns]

    @property
    def sources(self) -> list[str]:
        """The columns with lags or windows."""
        return list(dict.fromkeys(column.source for column in self.columns))

    @property
    def reads(self) -> list[str]:
        """The columns that the derived columns read; empty without derived columns."""
        order = [self.time, *filter(None, [self.series])]
        return list(dict.fromkeys([*order, *self.sources])) if self.columns else []

    def extended(self, table: Table, before: Table | None = None, by: str = "data.lags") -> Table:
        """Append the derived columns to a table, unless the table has all of them already.

        The rows of `before` and of the table are ordered together, by time.  `by` begins the
        message of missing columns.

        Raises: DataError for a column that is not there or holds no numbers, and for rows of one
            series with equal times.
        """
        if all(name in table for name in self.names):
            return table
        tables = [table] if before is None else [before, table]
        order = self._order(tables, tables, by)
        places = order.places[order.places.size - table.n_rows :]
        return table.join(self._derived(tables, order, places, table.source))

    def next_rows(self, before: Table, rows: Table) -> Table:
        """Append derived columns to rows, as if each was `ahead` rows after the end of its series.

        A series ends with its last row in `before`.  `rows` need no times.

        Raises: DataError as `extended`, and for a time that is not after the end of the series.
        """
        order, known = self._order([before], [before, rows], "data.lags"), before.n_rows
        if self.time in rows and not rows[self.time].missing.any():
            tables = before, rows
            times = [dividing_values(table, "time", self.time) for table in tables]
            every = _joined(tables, self.time, times)
            newest = np.full(len(order.ends), -np.inf)
            np.maximum.at(newest, order.codes[:known], every[:known])
            if (early := every[known:] <= newest[order.codes[known:]]).any():
                where = rows.where(self.time, int(np.flatnonzero(early)[0]))
                raise DataError(f"{where}: must be later than the last row of the history")
        ends = order.ends[order.codes[known:]] + self.ahead - 1
        return rows.join(self._derived([before], order, ends, rows.source))

    def early_rows(self, table: Table) -> Array | None:
        """Return the mask of rows with a lag from before the series begins; None without lags."""
        lags = [column.length for column in self.columns if column.function == "lag"]
        if not lags:
            return None
        order = self._order([table], [table], "data.lags")
        first = order.ends - np.bincount(order.codes, minlength=len(order.ends))
        early: Array = order.places - first[order.codes] < max(lags) + self.ahead - 1
        return early

    def _order(self, timed: Sequence[Table], every: Sequence[Table], by: str) -> "_Order":
        """Order the rows of the tables `timed` by series and time; `every` may have more tables."""
        for table in timed:
            table.require(self.reads, by)
        codes = np.zeros(sum(table.n_rows for table in every), np.int64)
        if self.series is not None:
            for table in every:
                table.require([self.series], "data.lags")
            kinds = [dividing_values(table, "series", self.series) for table in every]
            codes = np.unique(_joined(every, self.series, kinds), return_inverse=True)[1]
        times = _joined(timed, self.time, [dividing_values(t, "time", self.time) for t in timed])
        reach = max(column.length for column in self.columns) + self.ahead - 1
        own = codes[: len(times)]
        by_time = np.lexsort((times, own))
        same = (np.diff(own[by_time]) == 0) & (times[by_time][1:] == times[by_time][:-1])
        if same.any():
            row, table = int(by_time[1:][same].min()), timed[0]
            if row >= table.n_rows:
                row, table = row - table.n_rows, timed[-1]
            raise DataError(
                f"{table.where(self.time, row)}: data.lags needs one row for each time of a "
                "series, and another row has this time; delete one of them"
                + ("" if self.series else ", or name the column of series in data.series")
            )
        counts = np.bincount(own, minlength=int(codes.max(initial=0)) + 1)
        ends = np.cumsum(counts + reach)
        places = np.empty(len(times), np.int64)
        places[by_time] = np.arange(len(times)) + reach * (own[by_time] + 1)
        return _Order(codes, places, ends)

    def _derived(self, tables: Sequence[Table], order: "_Order", rows: Array, source: str) -> Table:
        """Return the derived columns of rows at the positions `rows` in the order of `tables`."""
        columns, latest = {}, rows - self.ahead
        for name in self.sources:
            values = np.full(int(order.ends[-1]), np.nan)
            values[order.places] = np.concatenate([_numbers(table, name) for table in tables])
            for one in (one for one in self.columns if one.source == name):
                first = latest - one.length + 1
                if one.function == "lag":
                    columns[one.name] = Column(values[first])
                    continue
                windows = sliding_window_view(values, one.length)
                size, derived = max(1, WINDOW_NUMBERS // one.length), np.empty(len(rows))
                with np.errstate(invalid="ignore", over="ignore"):
                    for start in range(0, len(rows), size):
                        part = slice(start, start + size)
                        derived[part] = FUNCTIONS[one.function](windows[first[part]])
                columns[one.name] = Column(derived)
        return Table({name: columns[name] for name in self.names}, source)


class _Order(NamedTuple):
    """Positions of rows that are sorted by series and time.

    Before each series, some positions hold no row (NaN), for the lags of its first rows.  `codes`
    has the number of each row's series.  `places` has the position of each row with a time.
    `ends` has the position after the last row of each series.
    """

    codes: Array
    places: Array
    ends: Array


def _joined(tables: Sequence[Table], name: str, values: Sequence[Array]) -> Array:
    """Return a column of several tables as one array; texts become ranks in alphabetical order."""
    columns = [table[name] for table in tables]
    if len({column.kind for column in columns}) > 1:
        kinds = " and ".join(column.kind for column in columns)
        raise DataError(f"{tables[-1].where(name)}: must be of one kind in both tables ({kinds})")
    if columns[0].kind == "text":
        values = [np.array(c.levels, object)[v] for c, v in zip(columns, values, strict=True)]
        return np.unique(np.concatenate(values), return_inverse=True)[1]
    return np.concatenate([decimals(v) if v.dtype.kind == "f" else v for v in values])


def _numbers(table: Table, name: str) -> Array:
    """Return a column of numbers or booleans as float64, NaN where a value is missing."""
    check_numeric(table, name, " by lags and windows")
    column = table[name]
    if column.kind == "date":
        raise DataError(f"{table.where(name)}: lags and windows need numbers (it holds dates)")
    if column.kind == "text":  # all are missing
        return np.full(table.n_rows, np.nan)
    return column.values.astype(np.float64)
