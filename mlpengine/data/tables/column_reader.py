"""Reads columns from blocks of texts; the texts determine the kind of each column.

A column is read as numbers, else as dates, else as text.  At the end, a text column may become
booleans, numbers such as 1,5, or times in nanoseconds.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.data.tables import parsing
from mlpengine.data.tables.dialect import CsvOptions
from mlpengine.data.tables.stored import Segment, Spill
from mlpengine.data.tables.table import Column, ColumnKind, Table

NUMBERS, DATES, TEXT = 0, 1, 2
"""Kinds of a column, in the order in which a `ColumnReader` tries these kinds."""


class AmbiguousError(DataError):
    """The numbers of a column can be read in two ways."""


class Growing:
    """Collects the values of a column block by block, in memory or in the file of `spill`."""

    def __init__(self, dtype: type[np.generic], spill: Spill | None = None) -> None:
        self._spill = spill
        self._segments: list[Segment] = []
        self._values = np.empty(0, dtype)
        self.n_rows = self._expected = 0

    def expect(self, n_rows: int) -> None:
        """Note an estimate of the number of rows, for the size of the array."""
        self._expected = n_rows

    def append(self, values: Array) -> None:
        """Store the values of further rows."""
        start, self.n_rows = self.n_rows, self.n_rows + len(values)
        if self._spill is not None:
            self._segments.append(self._spill.write(values.astype(self._values.dtype, copy=False)))
            return
        if self.n_rows > len(self._values):
            size = max(self.n_rows, self._expected, 3 * len(self._values) // 2)
            before, self._values = self._values, np.empty(size, self._values.dtype)
            self._values[:start] = before[:start]
        self._values[start : self.n_rows] = values

    def values(self) -> Array:
        """Return the values of all rows."""
        if self._spill is not None:
            return self._spill.read(self._segments, self._values.dtype)
        return self._values[: self.n_rows]


class ColumnReader:
    """Reads a column as numbers if possible, else as dates if possible, else as text.

    Attributes:
        step: current kind: `NUMBERS`, `DATES` or `TEXT`.
        broken: whether a later text did not have the kind of the values before it.  The whole
            column must then be read again, as the kind `step`.
    """

    def __init__(
        self, name: str, options: CsvOptions, step: int | None = None, spill: Spill | None = None
    ) -> None:
        self.padded = name in options.numbers
        self.broken = False
        self._missing = options.reading.missing
        self._pattern = options.reading.date_pattern(name)
        self._missing_texts = options.reading.missing_texts
        self._codes = parsing.Codes(self._missing_texts)
        self._spill, self._expected = spill, 0
        self._begin(options.first_step(name) if step is None else step, 0)

    def _begin(self, step: int, n_missing: int) -> None:
        """Start as the kind `step`, with `n_missing` rows of missing values."""
        self.step, self._is_empty = step, True
        self._gap = np.array([-1], np.int32) if step == TEXT else np.array([np.nan])
        self._grown = Growing(self._gap.dtype.type, self._spill)
        self._grown.expect(self._expected)
        if n_missing:
            self._grown.append(np.broadcast_to(self._gap, n_missing))

    def expect(self, n_rows: int) -> None:
        """Note the estimated number of rows."""
        self._expected = n_rows
        self._grown.expect(n_rows)

    def append(self, values: Array) -> None:
        """Store the values of further rows; NaN for missing values."""
        # a NaN may be a text such as NA, and a text column would keep this text
        self._is_empty &= self._missing == self._missing_texts and bool(np.isnan(values).all())
        self._grown.append(values)

    def add(self, texts: Sequence[str], places: Array | None = None) -> None:
        """Convert and store further rows: `texts`, or `texts[places]` with place -1 as missing."""
        while not self.broken:
            values = self._convert(texts)
            if values is not None:
                self._is_empty = self._is_empty and all(
                    text.strip() in self._missing_texts for text in texts
                )
                self._grown.append(
                    values if places is None else np.append(values, self._gap)[places]
                )
                return
            self._next_step()

    def _convert(self, texts: Sequence[str]) -> Array | None:
        """Return texts as values of the current kind; None if a text has another kind."""
        if self.step == NUMBERS:
            return parsing.parse_numbers(
                texts, self._missing, padded=self.padded, rounded=self.padded
            )
        if self.step == DATES:
            return parsing.dates(texts, self._missing, self._pattern)
        return self._codes(texts)

    def _next_step(self) -> None:
        """Try the next kind; the column is broken unless all values so far are missing."""
        if self._is_empty:
            self._begin(self.step + 1, self._grown.n_rows)
        else:
            self.step += 1
            self.broken = True

    def column(self) -> Column:
        """Return the finished column."""
        values = self._grown.values()
        if self.step == NUMBERS:
            return Column(values)
        if self.step == DATES:
            return Column(values, "date")
        codes, levels = parsing.sorted_levels(values, self._codes.levels)
        return Column(codes, "text", levels)


def without_numbers(column: Column, missing: Sequence[float]) -> Column:
    """Return a column of numbers without the numbers `missing`, compared in its own dtype."""
    if not missing or column.kind != "number":
        return column
    values = column.values
    with np.errstate(over="ignore"):
        known = np.array(missing, values.dtype if values.dtype.kind == "f" else np.float64)
    known = known[np.isfinite(known) == np.isfinite(missing)]  # without numbers beyond float16
    return Column(np.where(np.isin(values, known), np.nan, values))


def text_column(
    texts: Sequence[str], name: str, source: str, options: CsvOptions, as_text: bool = False
) -> Column:
    """Convert texts to a column as if they were in a CSV; with `as_text`, keep the column as text.

    Raises: DataError that begins with `source`.
    """
    reader = ColumnReader(name, options, TEXT if as_text else options.first_step(""))
    reader.add(texts)
    table = Table({name: reader.column()}, source)
    return table[name] if as_text else parsed_column(table[name], table, name, options)


def parsed_column(column: Column, table: Table, name: str, options: CsvOptions) -> Column:
    """Return a text column as booleans, numbers or nanosecond times, if all levels allow it."""
    if column.kind != "text" or name in options.text:
        return column
    if name in options.codes:
        return _numbers_of_codes(column, table, name, options)
    reading = options.reading
    known = _without(column.levels, reading.missing)
    if (answers := parsing.booleans(known)) is not None:
        return _by_level(column, dict(zip(known, answers, strict=True)), "boolean")
    values = parsing.formatted_numbers(known, reading.decimal, reading.thousands)
    if isinstance(values, str):
        row = int(np.flatnonzero(column.values == column.levels.index(values))[0])
        raise AmbiguousError(
            f"{table.where(name, row)}: {values!r} can mean {values.replace(',', '')} or "
            f"{values.replace(',', '.')}; say which with data.decimal"
        )
    if values is None:
        return times_of(column)
    return _by_level(column, dict(zip(known, values, strict=True)))


def _numbers_of_codes(column: Column, table: Table, name: str, options: CsvOptions) -> Column:
    """Return a text column as numbers or booleans, unless a number has several spellings."""
    options = options._replace(codes=options.codes - {name})
    reader = ColumnReader(name, options, options.first_number_step)
    reader.add(column.levels)
    each = reader.column()
    if each.kind == "date":
        return column
    if each.kind == "text":
        parsed = parsed_column(column, table, name, options)
    else:
        parsed = of_levels(column, each)
    spellings = len(_without(column.levels, options.reading.missing))
    return column if parsed.kind == "number" and len(parsed.distinct()) < spellings else parsed


def of_levels(column: Column, each: Column) -> Column:
    """Return a text column as the values `each` of its levels; unchanged if these are texts."""
    if each.kind == "text":
        return column
    return Column(np.append(each.values, np.nan)[column.values], each.kind)


def times_of(column: Column) -> Column:
    """Return a text column as numbers if all levels are times in nanoseconds since 1970."""
    levels, filled = column.levels, int((column.values >= 0).sum())
    if (times := parsing.nanoseconds(levels, repeat=len(levels) <= filled / 2)) is None:
        return column
    return _by_level(column, dict(zip(levels, times, strict=True)))


def without_rare_gaps(column: Column, missing: frozenset[str]) -> Column:
    """Return a text column without the levels in `missing` that have at most FEW_GAPS rows."""
    gaps = _codes_of(missing, column.levels) if column.kind == "text" else []
    rare = [code for code in gaps if (column.values == code).sum() <= parsing.FEW_GAPS]
    if not rare:
        return column
    kept = np.ones(len(column.levels) + 1, bool)
    kept[[*rare, -1]] = False
    codes = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    levels = tuple(level for level, is_kept in zip(column.levels, kept, strict=False) if is_kept)
    return Column(codes[column.values], "text", levels)


def _codes_of(texts: Iterable[str], levels: Sequence[str]) -> list[int]:
    """Return the codes of those texts that are levels; `levels` are sorted."""
    codes = [(bisect_left(levels, text), text) for text in texts]
    return [code for code, text in codes if code < len(levels) and levels[code] == text]


def _without(levels: Sequence[str], texts: frozenset[str]) -> Sequence[str]:
    if not _codes_of(texts, levels):
        return levels
    return [level for level in levels if level not in texts]


def of_texts(column: Column, path: str, name: str, options: CsvOptions) -> Column:
    """Return a text column of a file as the kind that all its texts allow, as in CSV."""
    if name not in options.numbers and not _without(column.levels, options.reading.missing):
        return column
    if name not in options.codes:
        reader = ColumnReader(name, options, options.first_number_step)
        reader.add(column.levels)
        if (each := reader.column()).kind != "text":
            return of_levels(column, each)
    return parsed_column(column, Table({name: column}, path), name, options)


def _by_level(column: Column, values: Mapping[str, float], kind: ColumnKind = "number") -> Column:
    """Replace each level of a text column by its value in `values`, or else by NaN."""
    each = np.array([*(values.get(level, np.nan) for level in column.levels), np.nan])
    return Column(each[column.values], kind)
