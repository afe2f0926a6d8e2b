"""Reading CSV: quickly where the cells are numbers, exactly everywhere, cleanly refused otherwise.

Cells are split by Python's csv module (or, while a file is nothing but numbers, parsed by
`numpy.loadtxt`) and turned into columns a slice at a time, so the text of the whole file is never
in memory. A column starts as numbers, then dates, then text; one that turns out late not to be
what its first rows promised makes the file be read again with that known.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from mlpengine.data import _cells
from mlpengine.data._files import Opener, encoding_error, readable
from mlpengine.data.table import MAX_COLUMNS, Column, Table
from mlpengine.errors import DataError
from mlpengine.spec import Array
from mlpengine.wording import plural

DELIMITERS = (",", ";", "\t")
MAX_LINE = 1 << 24
_CELLS = (
    1 << 15
)  # cells in a slice: 2 MB of text objects, and converting costs no more than in bulk
_SAMPLE, _SAMPLE_CHARACTERS = 20, 1 << 16


@dataclass(frozen=True)
class CsvOptions:
    """How to read a CSV; None means: found out from the file."""

    delimiter: str | None = None
    decimal: str | None = None
    missing: frozenset[str] = _cells.MISSING
    text: frozenset[str] = frozenset()


class _ColumnReader:
    """One column being read: numbers, or dates, or text, whichever its first slice allows."""

    def __init__(self, step: int, missing: frozenset[str]) -> None:
        self.step = step
        self.missing = missing
        self.parts: list[Array] = []
        self.codes = _cells.Codes(missing)
        self.broken = False

    def add(self, cells: Sequence[str]) -> None:
        if self.broken:
            return
        values = self.convert(cells)
        while values is None:
            self.step += 1
            if self.parts:
                self.broken = True
                return
            values = self.convert(cells)
        self.parts.append(values)

    def convert(self, cells: Sequence[str]) -> Array | None:
        if self.step == 0:
            return _cells.numbers(cells, self.missing)
        return _cells.dates(cells, self.missing) if self.step == 1 else self.codes(cells)

    def column(self) -> Column:
        values = np.concatenate(self.parts)
        self.parts.clear()
        if self.step == 0:
            return Column(values)
        if self.step == 1:
            return Column(values, "date")
        codes, levels = _cells.sorted_levels(values, list(self.codes.levels))
        return Column(codes, "text", levels)


class _Pass:
    """One reading of the file, from its first line to its last."""

    def __init__(self, open_file: Opener, where: str, options: CsvOptions) -> None:
        self.open_file, self.where, self.options = open_file, where, options
        self.names: list[str] = []
        self.first_line = 2
        self.regular = True
        self.records = 0

    def read(self, steps: list[int]) -> list[_ColumnReader]:
        """Return one filled reader per column, starting each at its step if steps are given."""
        with io.TextIOWrapper(self.open_file(), "utf-8-sig", newline="") as stream:
            lines = _lines(stream, self.where)
            sample = self._sample(lines)
            self.delimiter = self.options.delimiter or sniff(sample)
            source = chain(sample, lines)
            self._header(source)
            steps = steps or [2 * (name in self.options.text) for name in self.names]
            readers = [_ColumnReader(step, self.options.missing) for step in steps]
            self._body(source, readers)
        if not self.records:
            raise DataError(f"{self.where}: has a header and no rows; add rows of data")
        return readers

    def _sample(self, lines: Iterator[str]) -> list[str]:
        sample: list[str] = []
        for line in lines:
            columns = 1 + max(map(line.count, DELIMITERS))
            if not sample and columns > MAX_COLUMNS:
                raise DataError(
                    f"{self.where}: line 1: at most {MAX_COLUMNS:,} columns are read ({columns:,})"
                )
            sample.append(line)
            if len(sample) == _SAMPLE or sum(map(len, sample)) > _SAMPLE_CHARACTERS:
                break
        return sample

    def _header(self, source: Iterator[str]) -> None:
        reader = self._csv(source)
        names: list[str] = []
        while not names:
            try:
                names = next(reader)
            except StopIteration:
                raise DataError(f"{self.where}: is empty; a header and rows are needed") from None
            except csv.Error as error:
                raise DataError(f"{self.where}: line {reader.line_num}: {error}") from error
        self.names = [name.strip() for name in names]
        self.first_line = reader.line_num + 1
        check_names(self.names, f"{self.where}: line {reader.line_num}")

    def _csv(self, source: Iterator[str]) -> Any:
        return csv.reader(source, delimiter=self.delimiter, skipinitialspace=True, strict=True)

    def _body(self, source: Iterator[str], readers: list[_ColumnReader]) -> None:
        size = max(1, _CELLS // len(readers))
        plain = self.options.missing == _cells.MISSING
        while plain and not any(reader.step for reader in readers):
            lines = list(islice(source, size))
            matrix = number_lines(lines, self.delimiter, len(readers))
            if matrix is None:
                source = chain(lines, source)
                break
            self.records += len(lines)
            for reader, values in zip(readers, matrix, strict=True):
                reader.parts.append(values)
            if len(lines) < size:
                return
        reader = self._csv(source)
        while rows := self._rows(reader, size):
            for column, cells in zip(readers, zip(*rows, strict=True), strict=True):
                column.add(cells)

    def _rows(self, reader: Any, size: int) -> list[list[str]]:
        start, before = self.first_line + self.records, reader.line_num
        rows: list[list[str]] = []
        while not rows:
            try:
                rows = list(islice(reader, size))
            except csv.Error as error:
                line = start + reader.line_num - before - 1
                raise DataError(f"{self.where}: near line {line}: {_advice(error)}") from error
            if not rows:
                return rows
            filled = [row for row in rows if row]
            self.regular &= len(filled) == len(rows) == reader.line_num - before
            rows = filled
        width = len(self.names)
        if set(map(len, rows)) != {width}:
            first = next(i for i, row in enumerate(rows) if len(row) != width)
            row = self.records + first
            place = f"line {row + self.first_line}" if self.regular else f"record {row + 1}"
            raise DataError(
                f"{self.where}: {place}: {plural(width, 'cell is', 'cells are')} needed, "
                f"as in the header ({len(rows[first])} found); "
                f"quote cells that hold {self.delimiter!r}"
            )
        self.records += len(rows)
        return rows


def read_csv(open_file: Opener, where: str, options: CsvOptions) -> Table:
    """Read a CSV with a header line.

    Raises: DataError naming file, line and column of whatever is wrong with it.
    """
    reading = _Pass(open_file, where, options)
    with readable(where):
        try:
            readers = reading.read([])
            while any(reader.broken for reader in readers):
                reading = _Pass(open_file, where, options)
                readers = reading.read([reader.step for reader in readers])
        except UnicodeDecodeError:
            raise encoding_error(open_file, where) from None
    first_line = reading.first_line if reading.regular else None
    columns = {}
    for name, reader in zip(reading.names, readers, strict=True):
        columns[name] = reader.column()
    table = Table(columns, where, first_line=first_line)
    for name, column in columns.items():
        table.columns[name] = _spelled(column, table, name, options)
    return table


def _spelled(column: Column, table: Table, name: str, options: CsvOptions) -> Column:
    """Return a text column as booleans or numbers if its few spellings say so."""
    if column.kind != "text" or name in options.text:
        return column
    levels = column.levels
    words = _cells.booleans(levels)
    values = _cells.decimal_commas(levels, options.decimal) if words is None else words
    if isinstance(values, str):
        row = int(np.flatnonzero(column.values == levels.index(values))[0])
        raise DataError(
            f"{table.where(name, row)}: {values!r} can mean two numbers; say which with "
            "decimal ',' or '.'"
        )
    if values is None:
        return column
    lookup = np.array([*values, np.nan])
    return Column(lookup[column.values], "number" if words is None else "boolean")


def number_lines(lines: list[str], delimiter: str, width: int) -> Array | None:
    """Return lines of plain numbers as one row per column, or None if anything else is in them."""
    if not lines:
        return np.empty((width, 0))
    if any('"' in line or line.isspace() for line in lines):
        return None
    try:
        rows = np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2)
    except ValueError:
        return None
    if rows.shape != (len(lines), width) or (np.abs(rows) >= _cells.EXACT).any():
        return None
    return np.ascontiguousarray(rows.T)


def sniff(lines: list[str]) -> str:
    """Return the delimiter that cuts the first lines into the most cells, equally many in each."""
    best, cells = ",", 1
    for delimiter in DELIMITERS:
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:
            continue
        # the last record may be cut off in the middle of a quoted cell
        counts = {len(row) for row in (rows[:-1] if len(rows) > 2 else rows)}
        if len(counts) == 1 and (count := counts.pop()) > cells:
            best, cells = delimiter, count
    if cells == 1 and lines:
        best = max(DELIMITERS, key=lines[0].count)
    return best


def check_names(names: list[str], where: str) -> None:
    """Check the names in a header.

    Raises: DataError for an empty or repeated name, or a header that is a row of numbers.
    """
    seen: dict[str, int] = {}
    for position, name in enumerate(names, 1):
        if not name:
            raise DataError(f"{where}: column {position} has no name; name it or delete it")
        if name in seen:
            raise DataError(
                f"{where}: columns {seen[name]} and {position} are both called {name!r}; "
                "rename one of them"
            )
        seen[name] = position
    values = _cells.numbers(names, frozenset())
    counted = values is not None and values[0] in (0, 1) and (np.diff(values) == 1).all()
    if values is not None and not counted:
        raise DataError(f"{where}: must name the columns, but holds only numbers; add a header")


def _lines(stream: io.TextIOWrapper, where: str) -> Iterator[str]:
    number = 0
    while line := stream.readline(MAX_LINE):
        number += 1
        if "\0" in line:
            raise DataError(
                f"{where}: line {number}: holds a NUL byte; it is damaged or not a text file"
            )
        if len(line) == MAX_LINE:
            raise DataError(f"{where}: line {number}: is longer than {MAX_LINE:,} characters")
        yield line


def _advice(error: csv.Error) -> str:
    text = str(error)
    if "unexpected end" in text:
        return "a quoted cell is never closed; close it or double the quote inside it"
    if "expected after" in text:
        return "text follows a closing quote; double a quote that belongs to a cell"
    return f"{text}; a quote may be missing"
