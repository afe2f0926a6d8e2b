"""Reading of CSV files: fast for numbers, exact for all cells, with an error for invalid files.

Blocks of whole lines are cut into cells and converted at once (`_scan`), or parsed by Python's csv
module if they need it, so the text of the whole file is never in memory. A column is tried as
numbers, then dates, then text; if later cells of a column are not of the kind of its first block,
the file is read again with the right kind.
"""

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from itertools import islice
from typing import BinaryIO, NamedTuple

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.data.tables import cells as _cells
from mlpengine.data.tables._files import Opener, readable
from mlpengine.data.tables._lines import (
    Header,
    LineBlock,
    TextSource,
    line_count,
    long_cells,
    parser,
    read_header,
    record_lines,
    whole_records,
)
from mlpengine.data.tables._scan import (
    Cells,
    Cutter,
    Distinct,
    moments,
    native_numbers,
    parse_columns,
)
from mlpengine.data.tables.dialect import DEFAULT, CsvDialect
from mlpengine.data.tables.stored import Segment, Spill
from mlpengine.data.tables.table import Column, Table

_WIDE_BLOCK, _WIDE_ROWS = 1 << 21, 64  # for long lines: maximum bytes of a block, and its rows
_CELLS = 1 << 15  # cells in a slice for the csv module: 2 MB of text objects
_NO_ROWS = "has a header and no rows; add rows of data"
_FAST_BLOCK = 1 << 20  # bytes that are cut at once where cells are cut in C,
_FAST_WIDE_BLOCK, _FAST_ROWS = 1 << 24, 256  # and for long lines: maximum bytes, and rows
# where rows are read in blocks: bytes of one, and for long lines: maximum bytes, and rows
_CHUNK, _WIDE_CHUNK, _CHUNK_ROWS = 1 << 23, 1 << 26, 1024


class CsvOptions(NamedTuple):
    """How to read a CSV.

    Attributes:
        missing: spellings of missing cells.
        text: columns that stay text.
        numbers: columns in which whole numbers with leading zeros are numbers, not codes.
        kept: the columns to read; all of them if it is empty, or if the file lacks one of them.
    """

    reading: CsvDialect = DEFAULT
    missing: frozenset[str] = _cells.MISSING
    text: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        reading: CsvDialect,
        text: Iterable[str] = (),
        numbers: Iterable[str] = (),
        kept: Iterable[str] = (),
    ) -> "CsvOptions":
        """Return the options for these spellings."""
        return cls(reading, reading.missing, frozenset(text), frozenset(numbers), frozenset(kept))

    def skipped(self, names: Iterable[str]) -> frozenset[str]:
        """Return the columns of a file that are not read."""
        known = frozenset(names)
        return known - self.kept if self.kept and self.kept <= known else frozenset()

    def first_step(self, name: str) -> int:
        """Return the kind that a column is tried as first: 0 numbers, 1 dates, 2 text."""
        if name in self.text:
            return 2
        # 1.234 would be read as a number, but means 1234
        return 1 if self.reading.thousands == "." else 0


class AmbiguousError(DataError):
    """Numbers of a column can be read in two ways."""


class _Values:
    """An array that grows by the values of further rows, without copies of those before."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self.chunks: list[Array] = []
        self.chunk: Array = np.empty(0, dtype)
        self.offered = self.chunk
        self.count = self.filled = 0

    def reserve(self, rows: int, further: int) -> Array:
        """Return an array for the values of further rows, after which some more are expected."""
        if self.filled + rows > len(self.chunk):
            if self.filled:
                self.chunks.append(self.chunk[: self.filled])
            size = rows + (further + further // 64 or self.count // 8)
            self.chunk = np.empty(size, self.chunk.dtype)
            self.filled = 0
        self.offered = self.chunk[self.filled : self.filled + rows]
        return self.offered

    def append(self, values: Array, further: int) -> None:
        """Store the values of further rows; nothing is copied if they are in `reserve`."""
        if values is not self.offered:
            self.reserve(len(values), further)[:] = values
        self.filled += len(values)
        self.count += len(values)

    def joined(self) -> Array:
        """Return all values, and forget them."""
        last = self.chunk[: self.filled]
        is_close = self.filled == self.count and len(self.chunk) - self.filled <= self.count // 16
        values = last if is_close else np.concatenate([*self.chunks, last])
        self.chunks.clear()  # a reader refers to itself and is freed late
        self.chunk = self.offered = self.chunk[:0].copy()
        return values


class _ColumnReader:
    """A column that is being read, as numbers, dates or text: the first that its cells allow.

    Attributes:
        rows_left: about how many rows follow those that are being added, if that is known.
    """

    def __init__(self, name: str, step: int, options: CsvOptions) -> None:
        self.missing = options.missing
        self.padded, self.dates = name in options.numbers, options.reading.date_pattern(name)
        self.codes = _cells.Codes(self.missing)
        self.n_rows = 0
        self.rows_left = 0
        self.broken = False
        self.spill: Spill | None = None
        self.segments: list[Segment] = []
        self._begin(step)

    def _begin(self, step: int) -> None:
        self.step = step
        dtype: type[np.generic] = np.int32 if step == 2 else np.float64
        self.values = _Values(dtype)
        self.distinct = Distinct(self.convert, dtype)

    def next_step(self) -> None:
        """Reject the current kind; if no rows are stored yet, continue with the next kind."""
        if self.n_rows:
            self.step += 1
            self.broken = True
        else:
            self._begin(self.step + 1)

    def append(self, values: Array) -> None:
        """Store the values of further rows."""
        if self.spill is not None:
            self.segments.append(self.spill.write(values))
        else:
            self.values.append(values, self.rows_left)
        self.n_rows += len(values)

    def add(self, cells: Sequence[str]) -> None:
        """Convert and store the cells of further rows."""
        values = None
        while not self.broken and (values := self.convert(cells)) is None:
            self.next_step()
        if values is not None:
            self.append(values)

    def of_block(
        self, cells: Cells, column: int, known: Mapping[int, Array | None]
    ) -> Array | None:
        """Return the values of a column of a block as the current step reads them, or None.

        `known` are those of the columns of numbers, unless cells are converted in C.
        """
        if self.step == 0 and cells.loops is None:
            return known[column]
        out = self.values.reserve(cells.start.shape[1], self.rows_left)
        if self.step == 0:
            fits = native_numbers(cells, column, self.missing, out, padded=self.padded)
            return out if fits else None
        values = moments(cells, column, out) if self.step == 1 else None
        return self.distinct(cells, column, out) if values is None else values

    def convert(self, cells: Sequence[str]) -> Array | None:
        """Return the values of cells as the current step reads them, None if it cannot."""
        if self.step == 0:
            return _cells.parse_numbers(cells, self.missing, padded=self.padded)
        if self.step == 1:
            return _cells.dates(cells, self.missing, self.dates)
        return self.codes(cells)

    def column(self) -> Column:
        """Return the finished column."""
        if self.spill is not None:
            values = self.spill.read(self.segments, self.values.chunk.dtype)
        else:
            values = self.values.joined()
        if self.step == 0:
            return Column(values)
        if self.step == 1:
            return Column(values, "date")
        codes, levels = _cells.sorted_levels(values, self.codes.levels)
        return Column(codes, "text", levels)


class _Skipped(_ColumnReader):
    """A column whose cells are not kept, such as names of rows that would fill the memory."""

    def append(self, values: Array) -> None:
        """Keep nothing."""

    def add(self, cells: Sequence[str]) -> None:
        """Keep nothing."""

    def of_block(
        self, cells: Cells, column: int, known: Mapping[int, Array | None]
    ) -> Array | None:
        """Return no values."""
        return np.empty(0, np.int32)


class _Empty(_ColumnReader):
    """A column without a name, of which it is known only in which row there is a first value."""

    first: int | None = None

    def append(self, values: Array) -> None:
        """Keep the row of the first value."""
        if self.first is None and len(filled := np.flatnonzero(values >= 0)):
            self.first = self.n_rows + int(filled[0])
        self.n_rows += len(values)


class _Pass:
    """One reading of the file from its first line, or from its first row, to its last."""

    def __init__(self, where: str, options: CsvOptions, spill: Spill | None = None) -> None:
        self.where, self.options, self.spill = where, options, spill
        self.regular = True
        self.records = 0

    def read(
        self, stream: BinaryIO, header: Header | None, steps: Sequence[int] = ()
    ) -> list[_ColumnReader]:
        """Return one filled reader per column, starting each at its step if steps are given.

        The stream starts with a header line, or after it if `header` is given.
        """
        source = TextSource(stream, self.where)
        self.header = header or read_header(source, self.options.reading.delimiter)
        source.next_line = self.header.first_line
        names = self.header.names
        source.widen(len(names), source.size, _WIDE_BLOCK, _WIDE_ROWS)
        steps = steps or list(map(self.options.first_step, names))
        skipped = self.options.skipped(names) if self.spill is None else self.spill.skipped
        readers = [
            _Skipped(name, 2, self.options)
            if name in skipped
            else _ColumnReader(name, step, self.options)
            for name, step in zip(names, steps, strict=True)
        ]
        options = self.options._replace(missing=frozenset([""]))
        empty = [_Empty("", 2, options) for _ in range(self.header.empty)]
        if self.spill is not None:
            self.spill.restart()
        for reader in readers:
            reader.spill = self.spill
        self._body(source, [*readers, *empty])
        if not self.records:
            raise DataError(f"{self.where}: {_NO_ROWS}")
        for number, column in enumerate(empty, len(names) + 1):
            if column.first is not None:
                raise DataError(
                    f"{self.where}: column {number} has no name, but {self._place(column.first)} "
                    "has a value there; name the column or delete it"
                )
        return readers

    def _place(self, row: int) -> str:
        """Return the place of a row, by its line unless records and lines differ."""
        return f"line {row + self.header.first_line}" if self.regular else f"record {row + 1}"

    def _body(self, source: TextSource, readers: list[_ColumnReader]) -> None:
        cutter = Cutter(self.header.delimiter, len(readers))
        begin = source.offset

        def next_block() -> tuple[LineBlock, Cells | None]:
            block = source.block()
            return block, cutter.cut(block, source.count) if block else None

        with ThreadPoolExecutor(1) as helper:  # its thread begins with its first task
            block, cells = next_block()
            while block:
                if cells is None:
                    lines = source.count
                    source.unread(bytes(block))
                    self._parse(source, lines, readers)
                    block, cells = next_block()
                    continue
                rows = cells.start.shape[1]
                self.records += rows
                self.regular &= rows - source.count == (block.buffer[block.stop - 1] not in b"\r\n")
                self._expect(source, source.offset - begin, readers)
                convert = partial(self._convert, cells, readers, deque(enumerate(readers)))
                if cutter.is_fast:
                    source.widen(len(readers), _FAST_BLOCK, _FAST_WIDE_BLOCK, _FAST_ROWS)
                if not cutter.is_fast or self.spill is not None:
                    convert()
                    del cells, convert  # before the next ones are there
                    block, cells = next_block()
                    continue
                # a thread takes address space, of which there is little where rows go to a file
                converted = helper.submit(convert)
                try:
                    block, cells = next_block()
                finally:
                    convert()
                    converted.result()

    def _expect(self, source: TextSource, size: int, readers: list[_ColumnReader]) -> None:
        """Tell the columns how many rows follow those so far, which take so many bytes."""
        if self.spill is not None:  # which keeps rows in a file
            return
        bytes_left = max(0, source.total - source.offset)
        rows_left = bytes_left * self.records // size
        for reader in readers:  # most cells have four bytes and more
            reader.rows_left = min(rows_left, bytes_left // (4 * len(readers)))

    def _convert(
        self, cells: Cells, readers: list[_ColumnReader], left: deque[tuple[int, _ColumnReader]]
    ) -> None:
        """Convert the columns that are left, of which another thread may take some."""
        known: Mapping[int, Array | None] = {}
        if cells.loops is None:
            numeric = [i for i, reader in left if not reader.step]
            padded = {i for i in numeric if readers[i].padded}
            known = parse_columns(cells, numeric, self.options.missing, padded)
        while left:
            try:
                column, reader = left.popleft()
            except IndexError:  # the other thread has taken it
                break
            values = None
            while not reader.broken and values is None:
                values = reader.of_block(cells, column, known)
                if values is None:
                    reader.next_step()
            if values is not None:
                reader.append(values)

    @long_cells()
    def _parse(self, source: TextSource, lines: int, readers: list[_ColumnReader]) -> None:
        """Read at least this many lines with the csv module."""
        start = source.next_line
        reader = parser(source, self.header.delimiter)
        size = max(1, _CELLS // len(readers))
        while reader.line_num < max(lines, 1):
            before = reader.line_num
            rows: list[list[str]] = []
            try:
                rows += islice(reader, size)
            except csv.Error as error:
                place = f"near line {start + reader.line_num - 1}"
                if "unexpected end" in str(error):  # that of the file: say where the record begins
                    breaks = sum(cell.count("\n") for row in rows for cell in row)
                    place = f"line {start + before + len(rows) + breaks}"
                raise DataError(f"{self.where}: {place}: {_advice(error)}") from error
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
            delimiter = self.header.delimiter
            advice = f"quote cells that hold {delimiter!r}"
            whole = re.search(r"(?<!\d)\d+,\d+(?!\d)", ",".join(rows[first]))
            points = any(re.fullmatch(r"[+-]?\d*\.(?!\d{3}$)\d+", cell) for cell in rows[first])
            if whole and delimiter == "," and not points:
                advice += f"; if {whole[0]} is a number with a decimal comma, separate cells by ';'"
            if len(rows[first]) < width:
                advice = "add the cells that are missing, empty ones too"
            if width == 1 and (not row or self.header.names[0].startswith("#")):
                advice = "delete lines above the header"
            raise DataError(
                f"{self.where}: {self._place(row)}: "
                f"{plural(width, 'cell is', 'cells are')} needed, "
                f"as in the header ({len(rows[first])} found); {advice}"
            )
        self.records += len(rows)
        for reader, cells in zip(readers, zip(*rows, strict=True), strict=True):
            reader.add(cells)


def read_csv(
    open_file: Opener,
    where: str,
    options: CsvOptions,
    header: Header | None = None,
    spill: Spill | None = None,
) -> Table:
    """Read a CSV with a header line, or one whose header was read before.

    With `spill` the columns go there, one after the other, and the table has none.

    Raises: DataError naming file, line and column of whatever is wrong with it.
    """
    with readable(where):
        steps: list[int] = []
        while True:
            reading = _Pass(where, options, spill)
            with open_file() as stream:
                readers = reading.read(stream, header, steps)
            if not any(reader.broken for reader in readers):
                break
            steps = [reader.step for reader in readers]
    origin = None
    if not reading.regular:
        with readable(where), open_file() as stream:
            source = TextSource(stream, where)
            delimiter = (header or read_header(source, options.reading.delimiter)).delimiter
            origin = np.array(record_lines(source, delimiter))
    columns: dict[str, Column] = {}
    if spill is not None:
        table = Table(columns, where, first_line=reading.header.first_line, origin=origin)
        for name, reader in zip(reading.header.names, readers, strict=True):
            if name in spill.skipped:
                spill.skip(name)
                continue
            column = reader.column()
            if name:
                spill.keep(name, _read_as(column, table, name, options))
            else:
                _check_index(column, where, alone=len(readers) == 1)
        return table
    skipped = options.skipped(reading.header.names)
    for name, reader in zip(reading.header.names, readers, strict=True):
        if name not in skipped:
            columns[name] = reader.column()
    table = Table(columns, where, first_line=reading.header.first_line, origin=origin)
    if "" in columns:
        table = _without_index(table)
    for name, column in table.columns.items():
        table.columns[name] = _read_as(column, table, name, options)
    return table


def _read_as(column: Column, table: Table, name: str, options: CsvOptions) -> Column:
    """Return a column as its spellings say; note in the table where that is by decimal commas."""
    spelled = _spelled(column, table, name, options)
    table.decimal_commas |= column.kind == "text" and spelled.kind == "number"
    return spelled


def _without_index(table: Table) -> Table:
    """Return a table without its first column, which has no name.

    Raises: DataError unless that numbers the rows by one.
    """
    _check_index(table.columns[""], table.source, alone=len(table.columns) == 1)
    return table.drop([""])


def _check_index(index: Column, source: str, *, alone: bool) -> None:
    counts = index.is_integer and bool((np.diff(index.values) == 1).all())
    if not counts or alone:
        raise DataError(
            f"{source}: column 1 has no name; name it or delete it (one that numbers the rows "
            "would be left out)"
        )


def text_column(
    cells: Sequence[str], name: str, where: str, options: CsvOptions, as_text: bool = False
) -> Column:
    """Return a column of text cells as `read_csv` reads them; `as_text` keeps them text.

    Raises: DataError, beginning with `where`.
    """
    reader = _ColumnReader(name, 2 if as_text else options.first_step(""), options)
    reader.add(cells)
    table = Table({where: reader.column()}, where)
    if as_text:
        return table[where]
    return _spelled(table[where], table, where, options)


def read_csv_blocks(stream: BinaryIO, where: str, options: CsvOptions) -> Iterator[Table]:
    """Yield the rows of a CSV as tables of some rows each, in bounded memory.

    Kinds of columns are those of the rows of each table.

    Raises: DataError as `read_csv`.
    """
    with readable(where):
        source = TextSource(stream, where)
        header = read_header(source, options.reading.delimiter)
        is_empty = True
        # each block takes calls for each column
        size = min(_WIDE_CHUNK, max(_CHUNK, 8 * _CHUNK_ROWS * len(header.names)))
        while content := whole_records(source, header.delimiter, size):
            if content.strip():
                yield read_csv(partial(BytesIO, content), where, options, header)
                is_empty = False
            line = header.first_line + line_count(content)
            header = header._replace(first_line=line)
        if is_empty:
            raise DataError(f"{where}: {_NO_ROWS}")


def _spelled(column: Column, table: Table, name: str, options: CsvOptions) -> Column:
    """Return a text column as booleans or numbers if its few spellings say so."""
    if column.kind != "text" or name in options.text:
        return column
    if (answers := answers_of(column)) is not None:
        return answers
    levels = column.levels
    reading = options.reading
    values = _cells.spelled_numbers(levels, reading.decimal, reading.thousands)
    if isinstance(values, str):
        row = int(np.flatnonzero(column.values == levels.index(values))[0])
        raise AmbiguousError(
            f"{table.where(name, row)}: {values!r} can mean {values.replace(',', '')} or "
            f"{values.replace(',', '.')}; say which with data.decimal"
        )
    if values is None:
        return column
    return Column(np.array([*values, np.nan])[column.values])


def answers_of(column: Column) -> Column | None:
    """Return a text column as booleans if all its texts spell true and false, else None."""
    words = _cells.booleans(column.levels)
    return None if words is None else Column(np.array([*words, np.nan])[column.values], "boolean")


def dates_of(column: Column, name: str, options: CsvOptions) -> Column | None:
    """Return a text column as dates if all its texts that are not missing spell one, else None."""
    pattern = options.reading.date_pattern(name)
    seconds = _cells.dates(column.levels, options.missing, pattern)
    if seconds is None or np.isnan(seconds).all():
        return None
    return Column(np.array([*seconds, np.nan])[column.values], "date")


def _advice(error: csv.Error) -> str:
    text = str(error)
    if "unexpected end" in text:
        return "a quoted cell is never closed; close it or double the quote inside it"
    if "expected after" in text:
        return "text follows a closing quote; double a quote that belongs to a cell"
    return f"{text}; a quote may be missing before it, or the cell must be shortened"
