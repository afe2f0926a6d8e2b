"""Reading CSV: quickly where the cells are numbers, exactly everywhere, cleanly refused otherwise.

Blocks of whole lines are cut into cells and converted all at once (`_scan`) where nothing in them
needs a parser, and by Python's csv module elsewhere, so the text of the whole file is never in
memory. A column starts as numbers, then dates, then text; a column whose later cells are not of
the kind that its first block implied makes the file be read again with that known.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

import numpy as np

from mlpengine.data import _cells
from mlpengine.data._files import Opener, encoding_error, readable
from mlpengine.data._scan import Cells, Cutter, Distinct, numbers
from mlpengine.data.table import MAX_COLUMNS, Column, Table
from mlpengine.errors import DataError
from mlpengine.spec import Array
from mlpengine.wording import plural

DELIMITERS = (",", ";", "\t")
MAX_LINE = 1 << 24
_BLOCK = 1 << 18  # bytes that are cut at once: small enough for the second-level cache
_WIDE_BLOCK, _WIDE_ROWS = 1 << 21, 64  # more, for that many rows, where lines are long
_CELLS = 1 << 15  # cells in a slice for the csv module: 2 MB of text objects
_SAMPLE, _SAMPLE_CHARACTERS = 20, 1 << 16


@dataclass(frozen=True)
class CsvOptions:
    """How to read a CSV; None means: found out from the file."""

    delimiter: str | None = None
    decimal: str | None = None
    missing: frozenset[str] = _cells.MISSING
    text: frozenset[str] = frozenset()


class _Source:
    """A stream of UTF-8, given out in blocks of whole lines or line by line."""

    def __init__(self, stream: BinaryIO, where: str) -> None:
        self.stream, self.where = stream, where
        self.next_line = 1
        self.size = _BLOCK
        self.buffer = stream.read(3).removeprefix(b"\xef\xbb\xbf")
        self.text = io.StringIO()

    def block(self) -> bytes:
        """Return the next whole lines, about `size` bytes unless a line is longer."""
        content, limit = self.buffer, self.size
        while True:
            while len(content) < limit and (more := self.stream.read(limit - len(content))):
                content += more
            is_last = len(content) < limit
            # a carriage return at the very end may be half of a line end
            end = max(content.rfind(b"\n", 0, limit), content.rfind(b"\r", 0, limit - 1)) + 1
            if end or is_last or limit >= MAX_LINE:
                break
            limit = min(2 * limit, MAX_LINE)
        if not end and not is_last:
            raise DataError(
                f"{self.where}: line {self.next_line}: is longer than {MAX_LINE:,} characters"
            )
        if is_last:
            end = len(content)
        block, self.buffer = content[:end], content[end:]
        if not block.isascii():
            block.decode()  # raises where it is not UTF-8
        self.next_line += _line_count(block)
        return block

    def lines(self) -> Iterator[str]:
        """Yield the next lines with their ends."""
        while True:
            number = self.next_line
            block = self.block()
            if not block:
                return
            self.text = io.StringIO(block.decode(), newline="")
            for line in self.text:
                if "\0" in line:
                    raise DataError(
                        f"{self.where}: line {number}: holds a NUL byte; it is damaged or not a "
                        "text file"
                    )
                number += 1
                yield line

    def unread(self, content: bytes) -> None:
        """Take back bytes that were given out last."""
        self.buffer = content + self.buffer
        self.next_line -= _line_count(content)

    def unread_lines(self) -> None:
        """Take back what `lines` has read and not yielded."""
        self.unread(self.text.read().encode())


def _line_count(content: bytes) -> int:
    count = content.count(b"\n")
    if b"\r" in content:
        count += content.count(b"\r") - content.count(b"\r\n")
    return count


class _ColumnReader:
    """One column being read: numbers, or dates, or text, whichever its first block allows."""

    def __init__(self, step: int, missing: frozenset[str]) -> None:
        self.missing = missing
        self.codes = _cells.Codes(missing)
        self.n_rows = 0
        self.broken = False
        self._begin(step)

    def _begin(self, step: int) -> None:
        self.step = step
        dtype: type[np.generic] = np.int32 if step == 2 else np.float64
        self.values: Array = np.empty(0, dtype)
        self.distinct = Distinct(self.convert, dtype)

    def next_step(self) -> None:
        """Give up the kind of cells; without rows so far go on with the next one."""
        if self.n_rows:
            self.step += 1
            self.broken = True
        else:
            self._begin(self.step + 1)

    def append(self, values: Array) -> None:
        """Store the values of further rows."""
        end = self.n_rows + len(values)
        if end > len(self.values):
            self.values.resize(end + end // 8, refcheck=False)
        self.values[self.n_rows : end] = values
        self.n_rows = end

    def add(self, cells: Sequence[str]) -> None:
        """Convert and store the cells of further rows."""
        values = None
        while not self.broken and (values := self.convert(cells)) is None:
            self.next_step()
        if values is not None:
            self.append(values)

    def convert(self, cells: Sequence[str]) -> Array | None:
        """Return the values of cells as the current step reads them, None if it cannot."""
        if self.step == 0:
            return _cells.numbers(cells, self.missing)
        return _cells.dates(cells, self.missing) if self.step == 1 else self.codes(cells)

    def column(self) -> Column:
        """Return the finished column."""
        self.values.resize(self.n_rows, refcheck=False)
        if self.step == 0:
            return Column(self.values)
        if self.step == 1:
            return Column(self.values, "date")
        codes, levels = _cells.sorted_levels(self.values, list(self.codes.levels))
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
        with self.open_file() as stream:
            source = _Source(stream, self.where)
            self.delimiter = self.options.delimiter or sniff(self._sample(source))
            self._header(source)
            steps = steps or [2 * (name in self.options.text) for name in self.names]
            readers = [_ColumnReader(step, self.options.missing) for step in steps]
            self._body(source, readers)
        if not self.records:
            raise DataError(f"{self.where}: has a header and no rows; add rows of data")
        return readers

    def _sample(self, source: _Source) -> list[str]:
        sample: list[str] = []
        for line in source.lines():
            columns = 1 + max(map(line.count, DELIMITERS))
            if not sample and columns > MAX_COLUMNS:
                raise DataError(
                    f"{self.where}: line 1: at most {MAX_COLUMNS:,} columns are read ({columns:,})"
                )
            sample.append(line)
            if len(sample) == _SAMPLE or sum(map(len, sample)) > _SAMPLE_CHARACTERS:
                break
        source.unread_lines()
        source.unread("".join(sample).encode())
        return sample

    def _header(self, source: _Source) -> None:
        reader = self._csv(source)
        names: list[str] = []
        while not names:
            try:
                names = next(reader)
            except StopIteration:
                raise DataError(f"{self.where}: is empty; a header and rows are needed") from None
            except csv.Error as error:
                raise DataError(f"{self.where}: line {reader.line_num}: {error}") from error
        source.unread_lines()
        source.size = min(_WIDE_BLOCK, max(_BLOCK, 8 * _WIDE_ROWS * len(names)))
        self.names = [name.strip() for name in names]
        self.first_line = reader.line_num + 1
        check_names(self.names, f"{self.where}: line {reader.line_num}")

    def _csv(self, source: _Source) -> Any:
        return csv.reader(
            source.lines(), delimiter=self.delimiter, skipinitialspace=True, strict=True
        )

    def _body(self, source: _Source, readers: list[_ColumnReader]) -> None:
        cutter = Cutter(self.delimiter, len(readers))
        while block := source.block():
            cells = cutter.cut(block)
            if cells is not None:
                rows = cells.start.shape[1]
                self.regular &= rows - _line_count(block) == (block[-1:] not in b"\r\n")
                self._add_cells(cells, readers)
                del cells  # before the next ones are there
            else:
                source.unread(block)
                self._parse(source, _line_count(block), readers)

    def _add_cells(self, cells: Cells, readers: list[_ColumnReader]) -> None:
        self.records += cells.start.shape[1]
        numeric = [i for i, reader in enumerate(readers) if not reader.step]
        results = numbers(cells, numeric, self.options.missing)
        for i, reader in enumerate(readers):
            values = None if reader.step or reader.broken else results[i]
            if not reader.step and values is None:
                reader.next_step()
            while not reader.broken and values is None:
                values = reader.distinct(cells, i)
                if values is None:
                    reader.next_step()
            if values is not None:
                reader.append(values)

    def _parse(self, source: _Source, lines: int, readers: list[_ColumnReader]) -> None:
        """Read at least this many lines with the csv module."""
        start = source.next_line
        reader = self._csv(source)
        size = max(1, _CELLS // len(readers))
        while reader.line_num < max(lines, 1):
            before = reader.line_num
            try:
                rows = list(islice(reader, size))
            except csv.Error as error:
                line = start + reader.line_num - 1
                raise DataError(f"{self.where}: near line {line}: {_advice(error)}") from error
            if not rows:
                break
            filled = [row for row in rows if row]
            self.regular &= len(filled) == len(rows) == reader.line_num - before
            if filled:
                self._add_rows(filled, readers)
        source.unread_lines()

    def _add_rows(self, rows: list[list[str]], readers: list[_ColumnReader]) -> None:
        width = len(readers)
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
        for reader, cells in zip(readers, zip(*rows, strict=True), strict=True):
            reader.add(cells)


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
            f"{table.where(name, row)}: {values!r} can mean {values.replace(',', '')} or "
            f"{values.replace(',', '.')}; write the numbers of this column without a comma"
        )
    if values is None:
        return column
    lookup = np.array([*values, np.nan])
    return Column(lookup[column.values], "number" if words is None else "boolean")


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
    positions: dict[str, int] = {}
    for position, name in enumerate(names, 1):
        if not name:
            raise DataError(f"{where}: column {position} has no name; name it or delete it")
        if name in positions:
            raise DataError(
                f"{where}: columns {positions[name]} and {position} are both called {name!r}; "
                "rename one of them"
            )
        positions[name] = position
    values = _cells.numbers(names, frozenset())
    counted = values is not None and values[0] in (0, 1) and (np.diff(values) == 1).all()
    if values is not None and not counted:
        raise DataError(f"{where}: must name the columns, but holds only numbers; add a header")


def _advice(error: csv.Error) -> str:
    text = str(error)
    if "unexpected end" in text:
        return "a quoted cell is never closed; close it or double the quote inside it"
    if "expected after" in text:
        return "text follows a closing quote; double a quote that belongs to a cell"
    return f"{text}; a quote may be missing"
