"""Tables in memory: named columns of numbers or coded text, and their origin."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from unicodedata import normalize

import numpy as np

from mlpengine.core.buffers import with_missing
from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.core.wording import nearest, plural, quoted
from mlpengine.data.tables.dialect import DELIMITERS

ColumnKind = Literal["number", "boolean", "date", "text"]

MAX_COLUMNS = 100_000
"""Maximum number of columns; a wider file is damaged or hostile."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    If `kind` is "text", `values` are int32 codes into `levels`, with -1 for missing values.  For
    other kinds, `values` are numbers, with NaN for missing values: booleans are 0 and 1, and dates
    are seconds since 1970.
    """

    values: Array
    kind: ColumnKind = "number"
    levels: tuple[str, ...] = ()

    @property
    def missing(self) -> Array:
        """Mask of the missing values."""
        if self.kind == "text":
            return self.values < 0
        if self.values.dtype.kind == "f":
            return np.isnan(self.values)
        return np.zeros(len(self.values), bool)

    @property
    def is_integer(self) -> bool:
        """Whether all values are whole numbers."""
        if self.kind != "number":
            return False
        if self.values.dtype.kind != "f":
            return True
        present = self.values[np.isfinite(self.values)]
        return bool(len(present) and (present == np.floor(present)).all())

    @property
    def is_binary(self) -> bool:
        """Whether all values that are not missing are 0 or 1."""
        return self.kind != "text" and bool(np.isin(self.distinct(), (0, 1)).all())

    def distinct(self) -> Array:
        """Return the sorted distinct values (codes for text), without missing values."""
        if self.kind == "text":
            return np.flatnonzero(np.bincount(self.values[self.values >= 0])).astype(np.int32)
        ordered = np.sort(self.values[~self.missing])  # many times faster than np.unique
        distinct: Array = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
        return distinct

    def used_levels(self) -> list[str]:
        """Return the sorted levels, without levels that no row has."""
        return [self.levels[code] for code in self.distinct()]

    def take(self, rows: Array | slice) -> "Column":
        """Return the column with the given rows."""
        return Column(self.values[rows], self.kind, self.levels)

    def text(self, row: int) -> str:
        """Return a value as text; "" if it is missing."""
        value = self.values[row]
        if self.kind == "text":
            return self.levels[value] if value >= 0 else ""
        return "" if value != value else number_text(self.kind, value)


def shortest(value: Any) -> float:
    """Return a number as float64; a float32 is the number of its shortest decimal, such as 0.1."""
    return float(str(value) if isinstance(value, np.floating) else value)


def decimals(values: Array) -> Array:
    """Return numbers as float64, as `shortest` does."""
    if values.dtype.kind == "f" and values.dtype.itemsize < 8:
        return np.fromiter(map(float, map(str, values)), np.float64, len(values))
    return values.astype(np.float64)


def number_text(kind: ColumnKind, value: float) -> str:
    """Return a number, boolean or date as text, in the notation of CSV."""
    value = shortest(value)
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "date":
        moment = np.datetime64(round(value * 1e6), "us")
        return str(moment.astype("datetime64[s]") if value == round(value) else moment)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


class Table:
    """Ordered columns of equal length, read from `source`; a table never changes.

    `first_line` is the line of the first row in a text file.  `origin` has the row number of each
    row in the source, from 0; None if the rows are 0, 1, 2, ...  If `first_line` is known, `origin`
    counts lines after `first_line` instead of rows.

    Attributes:
        decimal_commas: whether a column of the file has numbers such as 1,5.
        delimiter: the delimiter of the file, if it is a CSV.
        number_texts: the columns of texts in memory that became numbers or booleans, each with two
            texts of one number, such as "3.1" and "3.10", if there are any.
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        source: str = "table",
        *,
        first_line: int | None = None,
        origin: Array | None = None,
    ) -> None:
        self.columns = dict(columns)
        self.source = source
        self.first_line = first_line
        self.origin = origin
        self.decimal_commas = False
        self.delimiter: str | None = None
        self.number_texts: dict[str, tuple[str, ...]] = {}
        if len(self.columns) > MAX_COLUMNS:
            raise DataError(
                f"{source}: at most {MAX_COLUMNS:,} columns are read ({len(self.columns):,})"
            )
        lengths = {name: len(column.values) for name, column in self.columns.items()}
        self.n_rows = next(iter(lengths.values()), 0)
        for name, length in lengths.items():
            if length != self.n_rows:
                raise DataError(
                    f"{source}: columns must have equal lengths "
                    f"({self.names[0]!r} has {self.n_rows}, {name!r} has {length})"
                )

    @property
    def names(self) -> list[str]:
        """The column names in order."""
        return list(self.columns)

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> Column:
        self.require([name])
        return self.columns[name]

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        size = f"{plural(self.n_rows, 'row')}, {plural(len(self.columns), 'column')}"
        return f"Table({self.source!r}, {size})"

    def require(
        self, names: Iterable[str], purpose: str = "", *, taken: Collection[str] = ()
    ) -> None:
        """Check that these columns exist.

        Raises: DataError with the first 20 missing columns.  The message suggests the nearest
            existing names, except for names in `names` and in `taken` (for example the target).
        """
        wanted = dict.fromkeys(names)
        if wanted.keys() <= self.columns.keys():
            return  # fast, even with many columns
        problems, ours = [], purpose.startswith(("the model", "--id"))
        free = [name for name in self.names if name not in wanted and name not in taken]
        absent = [name for name in wanted if name not in self.columns]
        for name in absent[:20]:
            near = None if self.header_hint() else nearest(name, free)
            if near and normalize("NFC", near) == normalize("NFC", name):  # both look alike
                problems.append(f"{name!a} (it has {near!a}, another Unicode form of it)")
                continue
            free = [other for other in free if other != near]
            told = f"the table has {near!r}" if ours else f"did you mean {near!r}?"
            problems.append(f"{name!r}" + (f" ({told})" if near else ""))
        problems += ["..."] * (len(absent) > 20)
        have = ", ".join(map(repr, self.names[:20])) + (", ..." if len(self.names) > 20 else "")
        hint = self.header_hint(trained=ours)
        what = f"{purpose} needs column" if purpose else "no column"
        what += "s" * (len(problems) > 1)
        raise DataError(f"{self.source}: {what} {', '.join(problems)}; it has {have}{hint}")

    def header_hint(self, *, trained: bool = False) -> str:
        """Return advice if the header of a text file is probably wrong, or "".

        `trained`: a model chose the delimiter.
        """
        if self.first_line is None:
            return ""
        first = self.names[0]
        marks = [mark for mark in DELIMITERS if mark in first]
        if len(self.names) == 1 and marks:
            hint = f"; its header is one cell, {quoted(first)}: "
            if trained:
                mark = "a delimiter" if self.delimiter is None else repr(self.delimiter)
                return f"{hint}the model was trained on files with {mark}; write this file so, too"
            return f"{hint}set data.delimiter: {marks[0]!r}"
        numbers = sum(name.lstrip("+-").replace(".", "", 1).isdigit() for name in self.names)
        if 2 * numbers < len(self.names):
            return ""
        return "; its first line looks like data: add a header line that names the columns"

    def select(self, names: Iterable[str]) -> "Table":
        """Return a table of the columns `names`, in this order."""
        wanted = list(names)
        self.require(wanted)
        columns = {name: self.columns[name] for name in wanted}
        return Table(columns, self.source, first_line=self.first_line, origin=self.origin)

    def drop(self, names: Iterable[str]) -> "Table":
        """Return a table without the columns `names`."""
        gone = set(names)
        self.require(gone)
        return self.select(name for name in self.columns if name not in gone)

    def rows(self, index: Array) -> "Table":
        """Return a table of the rows `index` (row numbers or a mask)."""
        columns = {name: column.take(index) for name, column in self.columns.items()}
        if self.origin is not None:
            origin = self.origin[index]
        else:  # row numbers may take much memory and are not copied
            origin = np.flatnonzero(index) if index.dtype == bool else index
        return Table(columns, self.source, first_line=self.first_line, origin=origin)

    @property
    def numbering(self) -> str:
        """Unit of `row_numbers`: "line" of the file, or "row" if lines are unknown."""
        return "row" if self.first_line is None else "line"

    def row_numbers(self) -> Array:
        """Return the line of each row in the file, or its number from 1 if lines are unknown."""
        rows = np.arange(self.n_rows) if self.origin is None else self.origin
        return rows + (1 if self.first_line is None else self.first_line)

    def place(self, row: int) -> str:
        """Return the position of a row for a message, such as "line 12"."""
        number = row if self.origin is None else int(self.origin[row])
        return f"{self.numbering} {number + (self.first_line or 1)}"

    def where(self, name: str, row: int | None = None) -> str:
        """Return the start of a message about a column, and optionally about a row."""
        place = "" if row is None else f"{self.place(row)}, "
        return f"{self.source}: {place}column {name!r}"

    @classmethod
    def from_arrays(
        cls,
        x: object,
        y: object = None,
        *,
        names: Sequence[str] | None = None,
        source: str = "array",
    ) -> "Table":
        """Return a table with the columns of `x`, then of `y`; numbers are not copied.

        By default, the columns of `x` are called "x0", "x1", ...  A 1-D `y` is called "y"; the
        columns of a 2-D `y` are called "y0", "y1", ...

        Raises: DataError unless `x` and `y` are 1-D or 2-D arrays of equal length.
        """
        columns = _matrix_columns(np.asarray(with_missing(x)), "x", names, source)
        if y is not None:
            array = np.asarray(with_missing(y))
            labels = ["y"] if array.ndim == 1 else None
            targets = _matrix_columns(array, "y", labels, source)
            for name in columns.keys() & targets.keys():
                raise DataError(f"{source}: names: must differ from columns of y (got {name!r})")
            columns |= targets
        return cls(columns, source)

    def join(self, other: "Table") -> "Table":
        """Return a table with the columns of both tables, side by side.

        Raises: DataError if the tables share a column name or have different lengths.
        """
        shared = sorted(set(self.names) & set(other.names))
        if shared:
            raise DataError(f"{self.source}, {other.source}: both have columns {shared}")
        columns = self.columns | other.columns
        return Table(columns, self.source, first_line=self.first_line, origin=self.origin)


_DATE_RANGE = np.array([-290_000, 290_000], "datetime64[Y]").astype("datetime64[us]")
"""First and last date that can be read, within the range of microseconds in 64 bits."""


def column_of(values: Array, where: str) -> Column:
    """Return a 1-D array of numbers, booleans, text or dates as a column."""
    kind = values.dtype.kind
    if kind == "b":
        return Column(values.astype(np.float64), "boolean")
    if kind in "iuf":
        return Column(values)
    if kind == "M":
        in_range = ~np.isnat(values)
        seconds = np.where(in_range, np.inf, np.nan)
        if np.can_cast(values.dtype, _DATE_RANGE.dtype, "safe"):  # finer units hold fewer years
            first, last = _DATE_RANGE.astype(values.dtype)
            in_range = (values >= first) & (values <= last)
        seconds[in_range] = values[in_range].astype(_DATE_RANGE.dtype).astype(np.float64) / 1e6
        return date_column(seconds, where)
    if kind in "UT" or (kind == "O" and all(isinstance(value, str) for value in values)):
        levels, codes = np.unique(values, return_inverse=True)
        return Column(codes.astype(np.int32), "text", tuple(map(str, levels)))
    raise DataError(f"{where}: numbers, booleans, dates or text are needed (dtype {values.dtype})")


def date_column(seconds: Array, where: str) -> Column:
    """Return seconds since 1970, NaN where missing, as a column of dates."""
    wrong = np.flatnonzero(np.abs(seconds) >= 2.0**63 / 1e6)
    if len(wrong):
        raise DataError(f"{where}: row {wrong[0] + 1}: dates must lie within 290,000 years of 1970")
    return Column(seconds, "date")


def _matrix_columns(
    matrix: Array, prefix: str, names: Sequence[str] | None, source: str
) -> dict[str, Column]:
    if matrix.ndim not in (1, 2) or 0 in matrix.shape[1:]:
        raise DataError(f"{source}: {prefix} must be 1-D, or 2-D with columns ({matrix.shape})")
    columns = matrix[:, None] if matrix.ndim == 1 else matrix
    if columns.shape[1] > MAX_COLUMNS:
        raise DataError(
            f"{source}: at most {MAX_COLUMNS:,} columns are read ({columns.shape[1]:,})"
        )
    labels = [f"{prefix}{i}" for i in range(columns.shape[1])] if names is None else list(names)
    if len(labels) != columns.shape[1] or len(set(labels)) != len(labels):
        raise DataError(
            f"{source}: one distinct name per column is needed "
            f"({len(set(labels))} distinct names for {plural(columns.shape[1], 'column')})"
        )
    return {
        name: column_of(columns[:, i], f"{source}: column {name!r}")
        for i, name in enumerate(labels)
    }
