"""Reads CSV files: the first rows by Python's csv module, all others by pyarrow.

The first rows determine the kind of each column.  Then pyarrow converts blocks of rows to these
kinds, so that memory never holds the text of the whole file.  If pyarrow cannot convert a column of
a block, or could read other numbers than Python, the column of this block is read again as text.
If later cells do not have the kind of the first rows, the column is read again from the start of
the file.
"""

import re
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.data.tables import parsing
from mlpengine.data.tables._arrow import array_of
from mlpengine.data.tables._files import Opener, readable, size_of
from mlpengine.data.tables._records import (
    MAX_RECORD,
    Header,
    Records,
    TextSource,
    csv_rows,
    lines_of,
    read_header,
)
from mlpengine.data.tables.column_reader import (
    DATES,
    NUMBERS,
    TEXT,
    ColumnReader,
    parsed_column,
    without_numbers,
    without_rare_gaps,
)
from mlpengine.data.tables.dialect import DELIMITERS, CsvOptions
from mlpengine.data.tables.progress import OnProgress
from mlpengine.data.tables.stored import Spill
from mlpengine.data.tables.table import Column, Table

_NO_ROWS = "has a header and no rows; add rows of data"

SMALL, FIRST = 1 << 19, 1 << 16
"""Sizes in bytes.  The csv module alone reads files up to `SMALL`, because importing pyarrow would
take longer.  Of larger files, the csv module reads the first rows, up to `FIRST`."""

# minimum size of a block for pyarrow: in bytes, and in rows of 8 bytes for each column
_BLOCK, _BLOCK_ROWS = 1 << 20, 256
# the same for a table of `read_csv_blocks`
_CHUNK, _CHUNK_ROWS = 1 << 23, 1024
_NULL = np.iinfo(np.int64).min
_SLICE = 1 << 17  # bytes; temporary arrays of this size stay in cache

_THREADS = 2
"""Number of threads that parse the next blocks while the main thread adds parsed blocks."""


class Parsed(NamedTuple):
    """A block that pyarrow has parsed.

    Attributes:
        steps: the assumed kind (`NUMBERS`, `DATES` or `TEXT`) of each column, by its position.
        table: the pyarrow table; None if a column did not have the assumed kind.
        has_codes: whether a cell may begin with a zero and another digit, such as 007.
    """

    steps: dict[int, int]
    table: Any
    has_codes: bool


def read_csv(
    open_file: Opener,
    where: str,
    options: CsvOptions,
    header: Header | None = None,
    spill: Spill | None = None,
    progress: OnProgress | None = None,
) -> Table:
    """Read a CSV with a header line, or the rows of a CSV after a known `header`.

    With `spill`, columns are written to the file of `spill`, and the table has no columns.
    `progress` is called with the share of the file that has been read.

    Raises: DataError with file, line and column.
    """
    with readable(where), open_file() as stream:
        source = TextSource(stream, where)
        known = header or read_header(source, options.reading.delimiter)
        source.line = known.first_line
        body = _Body(source, known, options, spill, progress)
        body.read()
    while body.is_broken:
        with readable(where), open_file() as stream:
            source = TextSource(stream, where)
            if header is None:
                read_header(source, known.delimiter)
            source.line = known.first_line
            body.read_again(source)
    return body.table()


def read_csv_blocks(stream: BinaryIO, where: str, options: CsvOptions) -> Iterator[Table]:
    """Yield the rows of a CSV as tables, one per block of rows, in bounded memory.

    Each table has its own kinds of columns: a column may be numbers in one and text in another.
    """
    with readable(where):
        source = TextSource(stream, where)
        header = read_header(source, options.reading.delimiter)
        is_empty = True
        size = _size(len(header.names), _CHUNK, _CHUNK_ROWS)
        while records := source.records(header.delimiter, size):
            if records.content.strip():
                part = header._replace(first_line=records.line)
                yield read_csv(partial(BytesIO, records.content), where, options, part)
                is_empty = False
        if is_empty:
            raise DataError(f"{where}: {_NO_ROWS}")


def _size(width: int, smallest: int, rows: int) -> int:
    """Return the size of a block in bytes; wide tables have larger blocks for fewer calls."""
    return min(MAX_RECORD, max(smallest, 8 * rows * width))


class _Body:
    """The rows of a file; some columns may be read more than once."""

    def __init__(
        self,
        source: TextSource,
        header: Header,
        options: CsvOptions,
        spill: Spill | None,
        progress: OnProgress | None,
    ) -> None:
        self.source, self.header, self.options, self.spill = source, header, options, spill
        self.progress = progress
        names = header.names
        skipped = options.skipped(names) if spill is None else spill.skipped
        self.readers = {
            place: ColumnReader(name, options, spill=spill)
            for place, name in enumerate(names)
            if name not in skipped
        }
        nameless = range(len(names), len(names) + header.empty)
        self.readers |= {place: ColumnReader("", options, TEXT) for place in nameless}
        self.width = len(names) + header.empty

    @property
    def is_broken(self) -> bool:
        return any(reader.broken for reader in self.readers.values())

    def read_again(self, source: TextSource) -> None:
        self.source, whole = source, self.readers
        names = self.header.names
        broken = {
            place: ColumnReader(names[place], self.options, reader.step, self.spill)
            for place, reader in whole.items()
            if reader.broken
        }
        self.readers = broken
        self.read()
        self.readers = whole | broken

    def read(self) -> None:
        self.n_rows = 0
        self.blocks: list[tuple[int, int, Array | None]] = []
        self.source.fill(SMALL)
        if self.source.at_end and len(self.source.waiting) <= SMALL:
            self._read_by_python(SMALL)
        else:
            self._read_by_python(FIRST, stop=1)
            size = _size(self.width, _BLOCK, _BLOCK_ROWS)
            try:
                blocks = _ArrowBlocks(self)
            except ImportError:  # pyarrow does not run on every system
                self._read_by_python(size)
            else:
                self._read_by_pyarrow(blocks, size)
        if not self.n_rows:
            raise DataError(f"{self.source.where}: {_NO_ROWS}")

    def _records(self, size: int) -> Iterator[Records]:
        total = size_of(self.source.stream)
        while records := self.source.records(self.header.delimiter, size):
            yield records
            if self.progress is not None and total:
                self.progress(min(1.0, self.source.offset / total))

    def _read_by_python(self, size: int, stop: int | None = None) -> None:
        for records in islice(self._records(size), stop):
            self._add_rows(records)

    def _read_by_pyarrow(self, blocks: "_ArrowBlocks", size: int) -> None:
        """Read the next blocks; threads parse blocks while this thread adds parsed blocks."""
        waiting: deque[tuple[Records, Future[Parsed] | None]] = deque()
        threads = 0 if self.spill is not None else _THREADS  # no threads: less address space
        with ThreadPoolExecutor(_THREADS) as pool:  # starts threads only for tasks
            for records in self._records(size):
                is_parsed = threads and records.rows is None
                future = pool.submit(blocks.parse, records.content) if is_parsed else None
                waiting.append((records, future))
                if len(waiting) > threads:
                    self._add(blocks, *waiting.popleft())
            while waiting:
                self._add(blocks, *waiting.popleft())

    def _add(
        self, blocks: "_ArrowBlocks", records: Records, future: "Future[Parsed] | None"
    ) -> None:
        """Add the records of a block; `future` is the result of a thread that parses the block."""
        if records.rows is not None:
            self._add_rows(records)
            return
        parsed = future.result() if future else blocks.parse(records.content)
        count = blocks.add(records.content, parsed)
        if count is None:
            self._add_rows(records)
        else:
            self._note(records, count)

    def _note(self, records: Records, count: int) -> None:
        lines = records.lines(count, self.header.delimiter)
        self.blocks.append((records.line, count, lines))
        self.n_rows += count

    def _add_rows(self, records: Records) -> None:
        rows = records.rows or csv_rows(lines_of(records.content), self.header.delimiter)
        for number, (row, start) in enumerate(zip(rows.cells, rows.lines, strict=True)):
            if len(row) != self.width:
                raise DataError(
                    f"{self.source.where}: line {records.line + start}: "
                    f"{plural(self.width, 'cell is', 'cells are')} needed, as in the header "
                    f"({len(row)} found); {self._advice(row, is_first=not self.n_rows + number)}"
                )
        for place, cells in enumerate(zip(*rows.cells, strict=True)):
            if place in self.readers:
                self.readers[place].add(cells)
        self._note(records, len(rows.cells))

    def _advice(self, row: list[str], *, is_first: bool) -> str:
        delimiter = self.header.delimiter
        others = [mark for mark in DELIMITERS if mark in self.header.names[0] and mark != delimiter]
        if self.width == 1 and others and self.options.reading.delimiter:
            return (
                f"cells are separated by {delimiter!r}, but the header has {others[0]!r}: change "
                "data.delimiter, or the file"
            )
        if self.width == 1 and (is_first or self.header.names[0].startswith("#")):
            return "delete lines above the header"
        if len(row) < self.width:
            footer = "delete the line if it is a comment or a total, else " * (len(row) == 1)
            return f"{footer}add the cells that are missing, empty ones too"
        if not any(row[self.width :]):
            return f"delete {delimiter!r} at the end of the line"
        advice = f"quote cells that hold {delimiter!r}, or delete lines above the header"
        if len(row) == self.width + 1 and is_first:
            advice = f"name each column in the header, or quote cells that hold {delimiter!r}"
        whole = re.search(r"(?<!\d)\d+,\d+(?!\d)", ",".join(row))
        points = any(re.fullmatch(r"[+-]?\d*\.(?!\d{3}$)\d+", cell) for cell in row)
        if whole and delimiter == "," and not points:
            advice += f"; if {whole[0]} is a number with a decimal comma, separate cells by ';'"
        return advice

    def table(self) -> Table:
        where, names, spill = self.source.where, self.header.names, self.spill
        table = Table({}, where, first_line=self.header.first_line, origin=self._origin())
        for place in range(len(names), self.width):
            filled = np.flatnonzero(~self.readers[place].column().missing)
            if len(filled):
                raise DataError(
                    f"{where}: column {place + 1} has no name, but {table.place(int(filled[0]))} "
                    "has a value there; name or delete the column, or delete lines above the header"
                )
        table.delimiter = self.header.delimiter
        columns: dict[str, Column] = {}
        for place, name in enumerate(names):
            if place not in self.readers:
                if spill is not None:
                    spill.skip(name)
                continue
            column = self.readers.pop(place).column()
            if not name:
                _check_index(column, where, alone=len(names) == 1)
                continue
            parsed = parsed_column(column, table, name, self.options)
            if name not in self.options.text | self.options.labels:
                parsed = without_rare_gaps(parsed, self.options.reading.missing)
            parsed = without_numbers(parsed, self.options.reading.missing_numbers)
            is_read = column.kind == "text" and parsed.kind == "number"
            table.decimal_commas |= is_read and any("," in level for level in column.levels)
            if spill is None:
                columns[name] = parsed
            else:
                spill.keep(name, parsed)
        table.columns, table.n_rows = columns, self.n_rows if columns else 0
        return table

    def _origin(self) -> Array | None:
        """Return the line of each row, relative to the first row; None if each row is one line."""
        if all(lines is None for _, _, lines in self.blocks):
            return None
        return np.concatenate(
            [
                (line - self.header.first_line) + (np.arange(count) if lines is None else lines)
                for line, count, lines in self.blocks
            ]
        )


def _check_index(index: Column, source: str, *, alone: bool) -> None:
    """Check that a column without a name numbers the rows.  Raises: DataError."""
    counts = index.is_integer and bool((np.diff(index.values) == 1).all())
    if not counts or alone:
        raise DataError(
            f"{source}: column 1 has no name; name it or delete it (only a column of row numbers "
            "may have no name)"
        )


class _ArrowBlocks:
    """Parses blocks of records with pyarrow, and adds them to the columns of a body."""

    def __init__(self, body: _Body) -> None:
        import pyarrow  # a slow import that small files do not need
        from pyarrow import csv

        self.body, self.pyarrow, self.csv = body, pyarrow, csv
        self.types = {
            NUMBERS: pyarrow.float64(),
            DATES: pyarrow.string(),
            TEXT: pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        }
        missing = body.options.reading.missing
        self.missing = sorted(missing)
        known = [parsing.parse_numbers([text], frozenset()) for text in missing]
        self.missing_numbers = [v[0] for v in known if v is not None and v[0] == v[0]]
        self.odd: set[int] = set()  # number columns with texts that only Python reads

    def _parse(self, content: bytes, steps: Mapping[int, int]) -> Any:
        """Return the columns in `steps` as a pyarrow table, with positions as names."""
        csv, delimiter = self.csv, self.body.header.delimiter
        names = list(map(str, range(self.body.width)))
        if content.startswith(BOM_UTF8):  # pyarrow would skip the mark
            content = b"\n" + content
        return csv.read_csv(
            self.pyarrow.py_buffer(content),
            read_options=csv.ReadOptions(
                column_names=names,
                block_size=len(content) + 1,
                use_threads=False,
            ),
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in content),
            convert_options=csv.ConvertOptions(
                include_columns=list(map(str, steps)) or names[:1],
                column_types={str(place): self.types[step] for place, step in steps.items()}
                or {names[0]: self.types[TEXT]},
                null_values=self.missing,
                check_utf8=False,  # `TextSource` has checked the content
            ),
        )

    def parse(self, content: bytes) -> Parsed:
        """Parse a block; each column is read as its current kind."""
        readers = self.body.readers
        active = {place: reader.step for place, reader in readers.items() if not reader.broken}
        steps = {place: TEXT if place in self.odd else step for place, step in active.items()}
        try:
            table = self._parse(content, steps)
        except self.pyarrow.ArrowInvalid:
            table = None
        return Parsed(steps, table, _has_codes(content, self.body.header.delimiter))

    def add(self, content: bytes, parsed: Parsed) -> int | None:
        """Add the rows of a block; return their number, or None if only Python can read them."""
        steps, table, has_codes = parsed
        readers = {place: self.body.readers[place] for place in steps}
        if table is None:
            steps = dict.fromkeys(steps, TEXT)
            try:
                table = self._parse(content, steps)
            except self.pyarrow.ArrowInvalid:
                return None
            self._note_odd(table, readers)
        if not table.num_rows:
            return 0
        again = {}
        for place, step in steps.items():
            cells, reader = table.column(str(place)).chunk(0), readers[place]
            if step == TEXT:
                _add_texts(reader, cells)
            elif step != reader.step:  # the kind changed while the block was parsed
                again[place] = TEXT
            elif step == NUMBERS:
                values = array_of(cells, np.float64, np.nan)
                if self._is_doubtful(values, cells, has_codes and not reader.padded):
                    again[place] = TEXT
                else:
                    reader.append(values)
            elif (seconds := self._iso_seconds(cells)) is not None:
                reader.append(seconds)
            else:
                _add_texts(reader, cells)
        if again:
            table = self._parse(content, again)
            for place in again:
                _add_texts(readers[place], table.column(str(place)).chunk(0))
        return int(table.num_rows)

    def _note_odd(self, table: Any, readers: Mapping[int, ColumnReader]) -> None:
        """Note the number columns with texts that pyarrow cannot convert to numbers."""
        for place, reader in readers.items():
            if reader.step == NUMBERS:
                try:
                    table.column(str(place)).chunk(0).dictionary.cast(self.types[NUMBERS])
                except self.pyarrow.ArrowInvalid:
                    self.odd.add(place)

    def _is_doubtful(self, values: Array, cells: Any, has_codes: bool) -> bool:
        """Return whether the texts are needed: numbers may be codes, inexact or missing."""
        return bool(
            (np.abs(values) >= parsing.FIRST_INEXACT).any()
            or (has_codes and (values == np.floor(values)).any())
            or (self.missing_numbers and np.isin(values, self.missing_numbers).any())
            or np.count_nonzero(np.isnan(values)) > cells.null_count  # nan(1) is a text
        )

    def _iso_seconds(self, texts: Any) -> Array | None:
        """Return ISO 8601 dates as seconds since 1970; None if a text is not a date."""
        from pyarrow import compute

        pyarrow = self.pyarrow
        is_date = compute.match_substring_regex(texts, f"^(?:{parsing.ISO_DATE})$")
        if not compute.all(is_date).as_py():
            is_gap = compute.is_in(texts, pyarrow.array(self.missing, pyarrow.string()))
            if not compute.all(compute.or_(is_date, is_gap)).as_py():
                return None
            texts = compute.if_else(is_date, texts, None)
        # pyarrow refuses digits beyond microseconds
        texts = compute.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
        known = texts.drop_null()
        if not len(known):
            return np.full(len(texts), np.nan)
        zone = "UTC" if re.search(r"(?:Z|:[\d.]*[+-]\d\d(?::?\d\d)?)$", known[0].as_py()) else None
        try:
            moments = texts.cast(pyarrow.timestamp("us", zone)).cast(pyarrow.int64())
        except pyarrow.ArrowInvalid:  # such as the 30th of February
            return None
        ticks = array_of(moments, np.int64, _NULL)
        seconds = np.where(ticks == _NULL, np.nan, ticks / 1e6)
        return None if (seconds < parsing.FIRST_SECOND).any() else seconds


def _has_codes(content: bytes, delimiter: str) -> bool:
    """Return whether a cell of a block may begin with a zero and another digit, such as 007."""
    edges = [ord(delimiter), ord("\n"), *(mark for mark in b'\r"' if mark in content)]
    blanks = [mark for mark in b" \t" if mark in content and mark != ord(delimiter)]
    characters = np.frombuffer(b"\n\n" + content, np.uint8)
    for first in range(0, len(content), _SLICE):
        part = characters[first : first + _SLICE + 3]
        before = _among(part[1:-2], edges)
        if blanks:  # blanks inside a cell, as between date and time, do not count
            before |= _among(part[1:-2], blanks) & _among(part[:-3], [*edges, *blanks])
        before &= part[2:-1] == ord("0")
        before &= part[3:] - np.uint8(ord("0")) < 10
        if before.any():
            return True
    return False


def _among(characters: Array, marks: Sequence[int]) -> Array:
    values: Array = characters == marks[0]
    for mark in marks[1:]:
        values |= characters == mark
    return values


def _add_texts(reader: ColumnReader, cells: Any) -> None:
    if not hasattr(cells, "dictionary"):
        reader.add(["" if cell is None else cell for cell in cells.to_pylist()])
        return
    reader.add(cells.dictionary.to_pylist(), array_of(cells.indices, np.int32, -1))
