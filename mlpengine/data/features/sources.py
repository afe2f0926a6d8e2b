"""Reads a table's numeric features as float64, slice by slice."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.core.wording import quoted
from mlpengine.data.features.column_kinds import comma_text, gap_advice, odd_row, odd_texts
from mlpengine.data.features.thresholds import READ_ROWS, SLICE_NUMBERS
from mlpengine.data.tables.parsing import MISSING, WORDS
from mlpengine.data.tables.table import Table

LIMIT = np.float64(1e100)
"""Larger absolute values are refused, because statistics of their squares may overflow.

The type is np.float64: float32 arrays would convert a Python float to float32, and overflow.
"""

SMALLEST = np.float64(1e-150)
"""Features with a smaller range are scaled before squaring, because squares may underflow."""

EQUAL = np.float64(1e-300)
"""A feature with a smaller range counts as constant."""

_DAY = timedelta(days=1).total_seconds()
PERIODS = {"hour": (_DAY, 0.0), "weekday": (7 * _DAY, 3 * _DAY), "season": (365.2425 * _DAY, 0.0)}
"""Periods of dates: (length, time from the start of a period to the start of 1970), in seconds.
Hours repeat each day, weekdays each week, and seasons each year.  1970 starts on a Thursday, and
weeks start on Monday.  Exports use these numbers, too."""

DATE_PARTS = frozenset(f"{period} {wave}" for period in PERIODS for wave in ("sin", "cos"))
"""Parts of a date that a `Source` may read."""

Angles: TypeAlias = dict[tuple[str, str], Array]
"""Angles by column and period, cached for sine and cosine."""


@dataclass(frozen=True, slots=True)
class Source:
    """A numeric feature: a column, the time since another column, or a part of a date.

    A part is the sine or cosine of the position in a day, a week or a year.
    """

    column: str
    part: str = ""
    minus: str = ""

    @property
    def name(self) -> str:
        """The feature's name."""
        if self.minus:
            return f"{self.column} - {self.minus}"
        return f"{self.column} {self.part}".rstrip()

    @property
    def length(self) -> float:
        """Length of the part's period in seconds."""
        return PERIODS[self.part.split()[0]][0]

    def read(self, table: Table, rows: slice | Array, angles: Angles) -> Array:
        """Return the raw float64 values of the given rows; NaN for missing values.

        `angles` caches the last angles for further calls with the same rows.
        """
        if self.part:
            period, wave = self.part.split()
            key = self.column, period
            if key not in angles:
                length, start = PERIODS[period]
                angles.clear()
                values = _floats(table, self.column, rows)
                angles[key] = 2 * np.pi * (((values + start) % length) / length)
            return np.sin(angles[key]) if wave == "sin" else np.cos(angles[key])
        values = _floats(table, self.column, rows)
        if self.minus:
            return values - _floats(table, self.minus, rows)
        return values


def date_sources(table: Table, names: Sequence[str]) -> list[Source]:
    """Return the features of dates: time, position in periods, time since the previous column.

    A period is left out if all dates are in the same twelfth of the period.  The previous column of
    a time of day (all values on the first day of 1970) is another time of day.
    """
    sources: list[Source] = []
    before: dict[bool, str] = {}
    for name in names:
        sources.append(Source(name))
        values = table[name].values
        known = values[~np.isnan(values)]
        for period, (length, start) in PERIODS.items():
            steps = np.unique(((known + start) % length) // (length / 12))
            if len(steps) > 1:
                sources += [Source(name, f"{period} sin"), Source(name, f"{period} cos")]
        is_clock = bool(((known >= 0) & (known < _DAY)).all())
        if is_clock in before:
            sources.append(Source(name, minus=before[is_clock]))
        before[is_clock] = name
    return sources


def read_slices(
    table: Table, sources: Sequence[Source], strict: bool, rows: Array | None = None
) -> Iterator[tuple[int, Array, Array | None]]:
    """Yield (first row, float64 values, mask of missing values or None) for slices of the rows.

    Raises: DataError for a column that is not numeric, for an infinite value and, if `strict`, for
        a missing value.
    """
    for name in dict.fromkeys(source.column for source in sources):
        check_numeric(table, name)
    count = table.n_rows if rows is None else len(rows)
    size = max(1, SLICE_NUMBERS // max(1, len(sources)))
    at_once = size * -(-READ_ROWS // size)
    for start in range(0, count, size):
        if start % at_once == 0:
            part = slice(start, min(start + at_once, count))
            block = read_block(table, sources, part if rows is None else rows[part])
        values = np.ascontiguousarray(block[start % at_once :][:size])
        # with a NaN, the maximum is NaN, and the comparison is False
        if values.size and values.max() <= LIMIT and values.min() >= -LIMIT:
            yield start, values, None
            continue
        missing = np.isnan(values)
        wrong = np.abs(values) > LIMIT
        if strict:
            wrong |= missing
        if wrong.any():
            row, i = (int(place) for place in np.argwhere(wrong)[0])
            first = start + row if rows is None else int(rows[start + row])
            raise _cell_error(table, sources[i].column, first, values[row, i])
        yield start, values, missing


def read_block(table: Table, sources: Sequence[Source], rows: slice | Array) -> Array:
    """Return the given rows of all features as a float64 matrix (rows, features)."""
    count = len(range(table.n_rows)[rows]) if isinstance(rows, slice) else len(rows)
    values = np.empty((len(sources), count))
    angles: Angles = {}
    for column, source in zip(values, sources, strict=True):
        column[:] = source.read(table, rows, angles)
    return values.T


def _floats(table: Table, name: str, rows: slice | Array) -> Array:
    column = table.columns[name]
    values = column.values[rows].astype(np.float64)
    return np.full(len(values), np.nan) if column.kind == "text" else values


def check_numeric(table: Table, name: str, use: str = "") -> None:
    """Check that a column can be read as numbers.

    Raises: DataError for a column with texts; the message names the row of `odd_row` and the `use`.
    """
    column = table[name]
    if column.kind == "text" and not column.missing.all():
        row = odd_row(column)
        value = "" if row is None else column.text(row)
        shown = "other rows hold text" if row is None else quoted(value)
        comma = comma_text(column)
        if {t.lower() for t in {*column.used_levels()} - MISSING} <= {*WORDS, *"01", "yes", "no"}:
            comma = "write true and false in all values, or 1 and 0"
        if row is None and not odd_texts(column):
            shown = f"such as {quoted(column.levels[0])}"
            comma = (
                "all are numbers, in a column of texts or with another decimal mark; convert the "
                "column to numbers, or write the mark of the training rows"
            )
        raise DataError(
            f"{table.where(name, row)}: a number is needed{use} ({shown}); correct the value, or "
            f"leave it empty{gap_advice(value)}{f'; {comma}' if comma else ''}"
        )


def _cell_error(table: Table, name: str, row: int, value: float) -> DataError:
    if np.isnan(value):
        fix = "fill it in, or train with data.missing: mean, median or indicator"
        return DataError(f"{table.where(name, row)}: the value is missing; {fix}")
    return DataError(
        f"{table.where(name, row)}: must be finite and within {LIMIT:g} ({value}); correct the "
        "value, or leave it empty"
    )
