"""The text of a CSV file in blocks of whole lines, its header, and where its records end."""

import csv
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.fork_locks import process_lock
from mlpengine.data.tables import cells as _cells
from mlpengine.data.tables._files import refuse_other_format
from mlpengine.data.tables.dialect import DELIMITERS
from mlpengine.data.tables.table import MAX_COLUMNS

MAX_LINE = 1 << 24
TEXT_BYTES = 1 << 17
"""Bytes that are cut into cells at once: a block fits into the second-level cache."""

PAD = 72
"""Bytes before and after a block, so that words near its ends lie within the buffer."""

_PADDING = b"\n" * PAD
_READ = 1 << 16  # bytes that are read at once: malloc asks the kernel for larger ones each time

_SAMPLE, _SAMPLE_CHARACTERS = 20, 1 << 16
_NEWLINE = ord("\n")
_START = 256  # bytes that tell whether a file is of another format

_limit_lock = process_lock()
_limits: list[int] = []


@contextmanager
def long_cells() -> Iterator[None]:
    """Let cells be as long as lines; the csv module has one limit for the process, often 131,072.

    It is put back when the last thread has left the context.
    """
    with _limit_lock:
        _limits.append(csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE)))
    try:
        yield
    finally:
        with _limit_lock:
            before = _limits.pop()  # the last to leave gets what the first has found
            if not _limits:
                csv.field_size_limit(before)


class EncodingError(DataError):
    """A file has another encoding than it should."""


class LineBlock:
    """Whole lines, `buffer[PAD:stop]`, between newlines; valid until the next but one is read."""

    __slots__ = "buffer", "stop"

    def __init__(self, buffer: bytearray, stop: int) -> None:
        self.buffer, self.stop = buffer, stop

    def __len__(self) -> int:
        return self.stop - PAD

    def __bytes__(self) -> bytes:
        return bytes(memoryview(self.buffer)[PAD : self.stop])

    def count(self, character: bytes) -> int:
        """Return how many times a character stands in the lines."""
        return self.buffer.count(character, PAD, self.stop)

    def has(self, character: bytes) -> bool:
        """Return whether a character stands in the lines."""
        return self.buffer.find(character, PAD, self.stop) >= 0


class TextSource:
    """A stream of UTF-8 text, read in blocks of whole lines or line by line.

    Attributes:
        count: the number of line ends in the last block.
        total: the size of the stream in bytes, 0 if it is not known.
    """

    def __init__(self, stream: BinaryIO, where: str) -> None:
        self.stream, self.where = stream, where
        self.next_line = 1
        self.count = 0
        self.total = _size_of(stream)
        self.size = TEXT_BYTES
        start = stream.read(_START)
        refuse_other_format(start, where)
        self.is_utf16 = start[:2] in (b"\xff\xfe", b"\xfe\xff")
        self.unused = start.removeprefix(b"\xef\xbb\xbf")
        self.offset = len(start) - len(self.unused)
        self.text = io.StringIO()
        self._buffers = [bytearray(), bytearray()]  # new ones for each block are slow to allocate

    def block(self) -> LineBlock:
        """Return the next whole lines, about `size` bytes unless a line is longer."""
        limit, stop = self.size, PAD
        buffer = self._buffers.pop(0)
        while True:
            if len(buffer) < limit + 2 * PAD:
                buffer = buffer[:stop].ljust(limit + 2 * PAD, b"\n")
            limit_stop = PAD + limit
            while stop < limit_stop and (more := self._read(limit_stop - stop)):
                buffer[stop : stop + len(more)] = more
                stop += len(more)
            is_last = stop < limit_stop
            # a carriage return at the very end may be half of a line end
            end = max(buffer.rfind(b"\n", PAD, stop), buffer.rfind(b"\r", PAD, limit_stop - 1)) + 1
            if end or is_last or limit >= MAX_LINE:
                break
            limit = min(2 * limit, MAX_LINE)
        if not end and not is_last:
            raise DataError(
                f"{self.where}: line {self.next_line}: is longer than {MAX_LINE:,} characters"
            )
        if is_last:
            end = stop
        self.unused = bytes(memoryview(buffer)[end:stop]) + self.unused
        buffer[end : end + PAD] = _PADDING
        self._buffers.append(buffer)
        block = LineBlock(buffer, end)
        if not buffer.isascii():
            self._check_encoding(bytes(block))
        self.count = line_count(buffer, PAD, end)
        self.next_line += self.count
        self.offset += len(block)
        return block

    def _read(self, size: int) -> bytes:
        if not self.unused:
            return self.stream.read(min(size, _READ))
        content, self.unused = self.unused[:size], self.unused[size:]
        return content

    def _check_encoding(self, block: bytes) -> None:
        try:
            block.decode()
        except UnicodeDecodeError as error:
            line = self.next_line + line_count(block[: error.start])
            other, name = ("UTF-16", "utf-16") if self.is_utf16 else (
                "another encoding such as Latin-1", "cp1252"
            )  # fmt: skip
            raise EncodingError(
                f"{self.where}: line {line}: must be UTF-8 (byte 0x{block[error.start]:02x} at "
                f"offset {self.offset + error.start}); it looks like {other}: save it as UTF-8, "
                f"or set data.text_encoding: {name}"
            ) from None

    def widen(self, columns: int, smallest: int, largest: int, rows: int) -> None:
        """Make blocks as large as some rows of that many columns, between two sizes in bytes."""
        self.size = min(largest, max(smallest, 8 * rows * columns))

    def lines(self) -> Iterator[str]:
        """Yield the next lines with their ends."""
        while True:
            number = self.next_line
            block = bytes(self.block())
            if not block:
                return
            self.text = io.StringIO(block.decode(), newline="")
            for line in self.text:
                if "\0" in line:
                    other = wide_encoding(block)
                    if other:
                        raise EncodingError(
                            f"{self.where}: line {number}: must be UTF-8; it looks like UTF-16: "
                            f"save it as UTF-8, or set data.text_encoding: {other}"
                        )
                    raise DataError(
                        f"{self.where}: line {number}: holds a NUL byte; it is damaged or not a "
                        "text file"
                    )
                number += 1
                yield line

    def unread(self, content: bytes) -> None:
        """Put back the bytes that were read last."""
        self.unused = content + self.unused
        self.next_line -= line_count(content)
        self.offset -= len(content)

    def unread_lines(self) -> None:
        """Put back the lines that `lines` has read but not yielded."""
        self.unread(self.text.read().encode())


def wide_encoding(content: bytes) -> str:
    """Return the encoding of mostly Latin UTF-16 without a byte order mark, else nothing."""
    start = content[:_START]
    for name, high in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if start.count(0) == high.count(0) > 0.9 * len(high):
            return name
    return ""


def _size_of(stream: BinaryIO) -> int:
    if isinstance(stream, io.BytesIO):
        return stream.getbuffer().nbytes
    is_file = isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)
    return os.fstat(stream.fileno()).st_size if is_file else 0


def line_count(content: bytes | bytearray, start: int = 0, stop: int | None = None) -> int:
    """Return the number of line ends: newlines, carriage returns, or pairs of both."""
    characters = np.frombuffer(content, np.uint8)[start:stop]
    count = sum(
        int(np.count_nonzero(characters[first : first + _READ] == _NEWLINE))
        for first in range(0, len(characters), _READ)
    )
    if content.find(b"\r", start, stop) >= 0:
        count += content.count(b"\r", start, stop) - content.count(b"\r\n", start, stop)
    return count


class Header(NamedTuple):
    """The columns of a file, the delimiter, the line of the first row, and how many are empty.

    Those have no name, after the last one that has; their cells are to be empty.
    """

    names: list[str]
    delimiter: str
    first_line: int
    empty: int = 0


@long_cells()
def read_header(source: TextSource, delimiter: str | None) -> Header:
    """Read the header line; if the delimiter is None, infer it from the first lines.

    Raises: DataError for a file without one, and for names that are empty or repeated.
    """
    sample = _sample(source)
    delimiter = delimiter or sniff(sample)
    reader = parser(source, delimiter)
    names: list[str] = []
    while not names:
        try:
            names = next(reader)
        except StopIteration:
            raise DataError(f"{source.where}: is empty; a header and rows are needed") from None
        except csv.Error as error:
            raise DataError(f"{source.where}: line {reader.line_num}: {error}") from error
    source.unread_lines()
    names = [name.strip() for name in names]
    width = len(names)
    while len(names) > 1 and not names[-1]:
        names.pop()
    check_names(names, f"{source.where}: line {reader.line_num}")
    return Header(names, delimiter, reader.line_num + 1, width - len(names))


def parser(source: TextSource, delimiter: str) -> Any:
    """Return a reader of the csv module over the next lines."""
    return csv.reader(source.lines(), delimiter=delimiter, skipinitialspace=True, strict=True)


def _sample(source: TextSource) -> list[str]:
    sample: list[str] = []
    for line in source.lines():
        columns = 1 + max(map(line.count, DELIMITERS))
        if not sample and columns > MAX_COLUMNS:
            raise DataError(
                f"{source.where}: line 1: at most {MAX_COLUMNS:,} columns are read ({columns:,})"
            )
        sample.append(line)
        if len(sample) == _SAMPLE or sum(map(len, sample)) > _SAMPLE_CHARACTERS:
            break
    source.unread_lines()
    source.unread("".join(sample).encode())
    return sample


@long_cells()
def record_lines(source: TextSource, delimiter: str) -> list[int]:
    """Return the line in which each of the next records starts, counted from 0."""
    reader = parser(source, delimiter)
    starts, end = [], 0
    for row in reader:
        if row:
            starts.append(end)
        end = reader.line_num
    return starts


def whole_records(source: TextSource, delimiter: str, size: int) -> bytes:
    """Return the next lines, about `size` bytes, up to where a record ends; empty at the end."""
    parts, length = [], 0
    while block := bytes(source.block()):
        parts.append(block)
        length += len(block)
        if length < size:
            continue
        content = b"".join(parts)
        end = _end_of_records(content, delimiter) if b'"' in content else length
        if end:
            source.unread(content[end:])
            return content[:end]
        parts = [content]
    return b"".join(parts)


@long_cells()
def _end_of_records(content: bytes, delimiter: str) -> int:
    """Return the end of the last complete record, 0 if there is none."""
    lines = io.StringIO(content.decode(), newline="").readlines()
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    whole = 0
    try:
        for _ in reader:
            whole = reader.line_num
    except csv.Error:
        if reader.line_num < len(lines):  # not cut off but invalid: reading it raises the error
            return len(content)
    return len("".join(lines[:whole]).encode())


def sniff(lines: list[str]) -> str:
    """Return the delimiter that gives the most cells in the first lines, equally many in each."""
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
    if names[0].startswith("sep=") and len(names) <= 2:
        text = "names the delimiter for spreadsheets, not the columns; delete the line"
        raise DataError(f"{where}: {text} ({names[0]})")
    values = _cells.parse_numbers(names, frozenset())
    counted = values is not None and values[0] in (0, 1) and (np.diff(values) == 1).all()
    if values is not None and not counted:
        raise DataError(f"{where}: must name the columns, but holds only numbers; add a header")
    positions: dict[str, int] = {}
    for position, name in enumerate(names, 1):
        if not name and (position > 1 or len(names) == 1):
            raise DataError(f"{where}: column {position} has no name; name it or delete it")
        if name in positions:
            is_row = _cells.is_number(name)
            fix = "is it a row of the data? Then add a header" if is_row else "rename one of them"
            raise DataError(
                f"{where}: columns {positions[name]} and {position} are both called {name!r}; {fix}"
            )
        positions[name] = position
