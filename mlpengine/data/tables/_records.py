"""Divides a CSV file into a header and whole records, at the same places as the csv module.

`_csv.py` then parses the records, with pyarrow if all quotes enclose whole cells.
"""

import csv
import io
from typing import BinaryIO, NamedTuple

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.data.tables import parsing
from mlpengine.data.tables._files import refuse_other_format, wide_encoding
from mlpengine.data.tables.dialect import DELIMITERS
from mlpengine.data.tables.table import MAX_COLUMNS

MAX_RECORD = 1 << 24
"""Maximum bytes of a record."""

_SAMPLE, _SAMPLE_CHARACTERS = 20, 1 << 16  # maximum lines and characters to infer the delimiter
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
_START = 256  # number of first bytes that are compared with other formats


class EncodingError(DataError):
    """A file has another encoding than expected."""


def _allow_long_cells() -> None:
    """Allow cells as long as a record; the limit of the csv module is global."""
    if csv.field_size_limit() < MAX_RECORD:
        csv.field_size_limit(MAX_RECORD)


class CsvRows(NamedTuple):
    """Rows that the csv module reads from a text, without blank rows.

    Attributes:
        cells: the cells of each row.
        lines: the line in which each row starts, from 0.
        stop: number of lines up to the end of the last whole row.
        error: the error at which reading stopped, or None.
    """

    cells: list[list[str]]
    lines: list[int]
    stop: int
    error: csv.Error | None


def csv_rows(lines: list[str], delimiter: str) -> CsvRows:
    """Return the rows in `lines`; lines include their line ends."""
    _allow_long_cells()
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    cells, starts, stop = [], [], 0
    try:
        for row in reader:
            if row:
                cells.append(row)
                starts.append(stop)
            stop = reader.line_num
    except csv.Error as error:
        return CsvRows(cells, starts, stop, error)
    return CsvRows(cells, starts, stop, None)


def is_cut_off(error: csv.Error) -> bool:
    """Return whether the text ends within a quoted cell."""
    return "unexpected end" in str(error)


def lines_of(content: bytes) -> list[str]:
    """Return the lines of a text in UTF-8, with line ends."""
    return io.StringIO(content.decode(), newline="").readlines()


class Records(NamedTuple):
    """Whole records of a file.

    Attributes:
        content: bytes of the records, in UTF-8.
        line: number of the first line in the file, from 1.
        n_lines: number of lines.
        rows: rows from the csv module if a quote does not enclose a whole cell, else None.
    """

    content: bytes
    line: int
    n_lines: int
    rows: CsvRows | None

    def lines(self, n_rows: int, delimiter: str) -> Array | None:
        """Return the line of each row, from 0 within `content`; None if each row is one line."""
        if self.rows is not None:
            starts = self.rows.lines
        elif n_rows == self.n_lines:
            return None
        else:
            starts = csv_rows(lines_of(self.content), delimiter).lines
        return np.array(starts, np.int64)


class TextSource:
    """A stream of UTF-8 text, read in whole records.

    Attributes:
        line: number of the next line, from 1.
        offset: number of bytes before the next line.
        waiting: bytes that were read from the stream but are not in a record yet.
        at_end: whether the stream has no bytes after `waiting`.
    """

    def __init__(self, stream: BinaryIO, where: str) -> None:
        self.stream, self.where, self.line = stream, where, 1
        self.waiting, self.at_end = b"", False
        self.fill(_START)
        self._wide = wide_encoding(self.waiting)
        start = self.waiting
        self.waiting = start.removeprefix(b"\xef\xbb\xbf")
        self.offset = len(start) - len(self.waiting)

    def fill(self, size: int) -> None:
        """Read until `size` bytes are waiting, or to the end of the stream."""
        parts, length = [self.waiting], len(self.waiting)
        while length < size and not self.at_end:
            parts.append(self.stream.read(size - length))
            length += len(parts[-1])
            self.at_end = not parts[-1]
        self.waiting = b"".join(parts)

    def skip(self, lines: list[str]) -> None:
        """Skip `lines`, which are the first waiting bytes."""
        self._take(len("".join(lines).encode()))

    def records(self, delimiter: str, size: int) -> Records | None:
        """Return the next whole records, about `size` bytes; None at the end of the stream."""
        while True:
            self.fill(size)
            at_end = self.at_end and len(self.waiting) <= size
            content = self.waiting[:size]
            if not at_end:
                content = content[: _last_line(content)]
            self._check(content)
            rows = None
            whole, is_regular = _whole(content, delimiter, at_end)
            if not is_regular:
                rows, whole = self._by_csv(content, delimiter, at_end)
            if whole or at_end:
                break
            if size >= MAX_RECORD:
                raise DataError(
                    f"{self.where}: line {self.line}: is longer than {MAX_RECORD:,} characters; a "
                    "quote may be missing"
                )
            size = min(2 * size, MAX_RECORD)
        line = self.line
        content = self._take(whole)
        if not content:
            return None
        n_lines = self.line - line + (content[-1] not in b"\r\n")
        return Records(content, line, n_lines, rows)

    def _by_csv(self, content: bytes, delimiter: str, at_end: bool) -> tuple[CsvRows, int]:
        """Return the whole rows of a text as the csv module reads them, and their size in bytes."""
        lines = lines_of(content)
        rows = csv_rows(lines, delimiter)
        if rows.error and (at_end or not is_cut_off(rows.error)):
            raise DataError(
                f"{self.where}: line {self.line + rows.stop}: {_advice(rows.error)}"
            ) from rows.error
        return rows, len("".join(lines[: rows.stop]).encode())

    def _take(self, size: int) -> bytes:
        content, self.waiting = self.waiting[:size], self.waiting[size:]
        self.line += line_count(content)
        self.offset += size
        return content

    def _check(self, content: bytes) -> None:
        """Check that a text is UTF-8 without NUL bytes.  Raises: DataError."""
        if (nul := content.find(b"\0")) >= 0:
            line = self.line + line_count(content[:nul])
            if not self._wide:
                raise DataError(
                    f"{self.where}: line {line}: holds a NUL byte; it is damaged or not a text file"
                )
        if content.isascii():
            return
        try:
            content.decode()
        except UnicodeDecodeError as error:
            line = self.line + line_count(content[: error.start])
            name = self._wide or "cp1252"
            other = self._wide.upper() or "another encoding such as Latin-1"
            raise EncodingError(
                f"{self.where}: line {line}: must be UTF-8 (byte 0x{content[error.start]:02x} at "
                f"offset {self.offset + error.start}); it looks like {other}: save it as UTF-8; "
                f"to train on it as it is, set data.text_encoding: {name}"
            ) from None

    def first_lines(self, size: int) -> list[str]:
        """Return the whole lines in the next `size` bytes; the bytes stay waiting."""
        self.fill(size)
        content = self.waiting if self.at_end else self.waiting[: _last_line(self.waiting)]
        first = content.partition(b"\n")[0]
        columns = 1 + max(first.count(mark.encode()) for mark in DELIMITERS)
        if columns > MAX_COLUMNS:
            raise DataError(
                f"{self.where}: line 1: at most {MAX_COLUMNS:,} columns are read ({columns:,})"
            )
        self._check(content)
        return lines_of(content)


def _last_line(content: bytes) -> int:
    """Return the position after the last whole line."""
    # a carriage return at the very end may be the first half of \r\n
    return (content.rfind(b"\n") + 1) or (content.rfind(b"\r", 0, max(0, len(content) - 1)) + 1)


def _whole(content: bytes, delimiter: str, at_end: bool) -> tuple[int, bool]:
    """Return the position after the last whole record, and whether each quote encloses a cell."""
    if b'"' not in content:
        return len(content), True
    characters = np.frombuffer(content, np.uint8)
    quotes = np.flatnonzero(characters == _QUOTE)
    before, after = quotes[::2] - 1, quotes[1::2] + 1
    edges = np.zeros(256, bool)
    edges[[ord(delimiter), _NEWLINE, _RETURN, _QUOTE]] = True
    opens = edges[characters[before]] | (before < 0)
    closes = edges[characters[np.minimum(after, len(content) - 1)]] | (after == len(content))
    if not (opens.all() and closes.all()) or (at_end and len(quotes) % 2):
        return 0, False
    if len(quotes) % 2 == 0:
        return len(content), True
    ends = np.flatnonzero((characters == _NEWLINE) | (characters == _RETURN))
    outside = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return int(outside[-1]) + 1 if len(outside) else 0, True


def line_count(content: bytes) -> int:
    """Return the number of line ends: newlines, carriage returns, or pairs of both."""
    count = int(np.count_nonzero(np.frombuffer(content, np.uint8) == _NEWLINE))
    if b"\r" in content:
        count += content.count(b"\r") - content.count(b"\r\n")
    return count


def _advice(error: csv.Error) -> str:
    text = str(error)
    if is_cut_off(error):
        return "a quoted cell is never closed; close it or double the quote inside it"
    if "expected after" in text:
        return "text follows a closing quote; double a quote that belongs to a cell"
    return f"{text}; a quote may be missing before it, or the cell must be shortened"


class Header(NamedTuple):
    """Column names, delimiter, line of the first row, and number of empty columns of a file.

    Empty columns follow the last column with a name, and have neither a name nor values.
    """

    names: list[str]
    delimiter: str
    first_line: int
    empty: int = 0


def read_header(source: TextSource, delimiter: str | None) -> Header:
    """Read the header line; a `delimiter` of None is inferred from the first lines."""
    refuse_other_format(source.waiting[:_START], source.where)
    size = _SAMPLE_CHARACTERS
    names: list[str] = []
    while not names:
        lines = source.first_lines(size)
        mark = delimiter or sniff(_sample(lines))
        reader = csv.reader(lines, delimiter=mark, skipinitialspace=True, strict=True)
        try:
            _allow_long_cells()
            names = next((row for row in reader if row), [])
        except csv.Error as error:
            if source.at_end or size >= MAX_RECORD or not is_cut_off(error):
                line = source.line + reader.line_num - 1
                raise DataError(f"{source.where}: line {line}: {error}") from error
        if not names and (source.at_end or size >= MAX_RECORD):
            raise DataError(f"{source.where}: is empty; a header and rows are needed")
        size *= 2
    line = source.line + reader.line_num - 1
    source.skip(lines[: reader.line_num])
    names = [name.strip() for name in names]
    width = len(names)
    while len(names) > 1 and not names[-1]:
        names.pop()
    check_names(names, f"{source.where}: line {line}")
    return Header(names, mark, line + 1, width - len(names))


def _sample(lines: list[str]) -> list[str]:
    sample, length = [], 0
    for line in lines[:_SAMPLE]:
        sample.append(line)
        length += len(line)
        if length > _SAMPLE_CHARACTERS:
            break
    return sample


def sniff(lines: list[str]) -> str:
    """Return the delimiter that gives the most cells per line, and equally many in all lines."""
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
    """Check the names in a header."""
    if names[0].startswith("sep=") and len(names) <= 2:
        text = "names the delimiter for spreadsheets, not the columns; delete the line"
        raise DataError(f"{where}: {text} ({names[0]})")
    values = parsing.parse_numbers(names, frozenset())
    counted = values is not None and values[0] in (0, 1) and (np.diff(values) == 1).all()
    if values is not None and not counted:
        raise DataError(f"{where}: must name the columns, but holds only numbers; add a header")
    positions: dict[str, int] = {}
    for position, name in enumerate(names, 1):
        if not name and (position > 1 or len(names) == 1):
            raise DataError(f"{where}: column {position} has no name; name it or delete it")
        if name in positions:
            is_row = parsing.is_number(name)
            fix = "is it a row of the data? Then add a header" if is_row else "rename one of them"
            raise DataError(
                f"{where}: columns {positions[name]} and {position} are both called {name!r}; {fix}"
            )
        positions[name] = position
