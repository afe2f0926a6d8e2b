"""Columns of a table in a file, for tables larger than memory.

A file of columns is written once from a CSV, Parquet or Feather file, and later runs use this file.
The file's name has a digest of the source's path, size, modification time and read options.
"""

import json
import mmap
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeAlias
from weakref import finalize

import numpy as np

from mlpengine.core import system
from mlpengine.core.files import (
    locked,
    make_directory,
    read_file,
    write_all,
    write_atomically,
    writing,
)
from mlpengine.core.spec import Array
from mlpengine.data.tables.table import Column, ColumnKind, Table

FILE_VERSION = 1
CHECKED_BYTES = 1 << 20
"""Bytes that are read at once to verify a file."""

MAP_GRANULARITY = mmap.ALLOCATIONGRANULARITY
COLUMNS, ROWS, DESCRIPTION, LOCK, PART = ".columns", ".rows", ".json", ".lock", ".part"
"""Suffixes of files: columns, prepared rows, descriptions, locks, unfinished files."""

Segment: TypeAlias = tuple[int, int]
"""Offset and number of bytes of values in a file."""


class OpenFile:
    """A file that stays open for reading while this object exists, even after its removal."""

    def __init__(self, path: Path) -> None:
        with writing(path, "read"):
            self.descriptor = system.open_file(path, os.O_RDONLY)
        self.path = path
        finalize(self, os.close, self.descriptor)

    def values(self, dtype: np.dtype[Any], offset: int, count: int) -> Array:
        """Return values of the file as a read-only, memory-mapped array.

        Raises: OSError if the file is too short.
        """
        if not count:
            return np.empty(0, dtype)
        before = offset % MAP_GRANULARITY
        size, start = before + count * dtype.itemsize, offset - before
        if start + size > os.fstat(self.descriptor).st_size:
            raise OSError(None, "the file is shorter than when it was written")
        mapped = mmap.mmap(self.descriptor, size, offset=start, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, dtype, offset=before)


class StoredColumn(Column):
    """A column in a file; each access to `values` maps the file into memory."""

    __slots__ = ("_count", "_dtype", "_offset", "file")
    file: OpenFile
    _offset: int
    _count: int
    _dtype: np.dtype[Any]

    def __init__(
        self,
        file: OpenFile,
        offset: int,
        count: int,
        dtype: str,
        kind: ColumnKind,
        levels: Sequence[str],
    ) -> None:
        for name, value in (
            ("file", file), ("_offset", offset), ("_count", count), ("_dtype", np.dtype(dtype)),
            ("kind", kind), ("levels", tuple(levels)),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def values(self) -> Array:
        """The values, mapped from the file."""
        return self.file.values(self._dtype, self._offset, self._count)


def stored_file(table: Table) -> OpenFile | None:
    """Return the file of a table's columns; None for a table in memory."""
    files = (one.file for one in table.columns.values() if isinstance(one, StoredColumn))
    return next(files, None)


class Spill:
    """Writes the values of columns to a temporary file while blocks of rows are read.

    Finished columns are written to the file `path`, one after another.  Values of `skipped` columns
    are not kept.
    """

    def __init__(self, path: Path, skipped: frozenset[str] = frozenset()) -> None:
        self.path, self.skipped = path, skipped
        with writing(path):
            self._columns = system.open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            self._values = TemporaryFile(dir=path.parent)  # noqa: SIM115
        self._written, self._end, self.rows = 0, 0, 0
        self.described: dict[str, dict[str, Any]] = {}

    def write(self, values: Array) -> Segment:
        """Write values of a column to the temporary file; return their offset and size."""
        data = np.ascontiguousarray(values).view(np.uint8).data
        with writing(self.path):
            self._values.seek(self._written)
            self._values.write(data)
        segment = self._written, len(data)
        self._written += len(data)
        return segment

    def read(self, segments: Sequence[Segment], dtype: np.dtype[Any]) -> Array:
        """Return the values in segments of the temporary file, as one array."""
        out = np.empty(sum(size for _, size in segments) // dtype.itemsize, dtype)
        view, start = out.view(np.uint8).data, 0
        with writing(self.path, "read"):
            for offset, size in segments:
                self._values.seek(offset)
                self._values.readinto(view[start : start + size])
                start += size
        return out

    def keep(self, name: str, column: Column) -> None:
        """Write a finished column to the file `path`."""
        values = np.ascontiguousarray(column.values)
        start = -(-self._end // MAP_GRANULARITY) * MAP_GRANULARITY
        with writing(self.path):
            os.lseek(self._columns, start, os.SEEK_SET)
            write_all(self._columns, values.view(np.uint8).data)
        self._end, self.rows = start + values.nbytes, len(values)
        self.described[name] = {
            "offset": start,
            "count": len(values),
            "dtype": values.dtype.str,
            "kind": column.kind,
            "levels": column.levels,
        }

    def skip(self, name: str) -> None:
        """Record a column without its values."""
        self.described[name] = {}

    def close(self) -> None:
        """Write the finished columns to disk and close the files."""
        with writing(self.path):
            self._values.close()
        if self._columns >= 0:
            descriptor, self._columns = self._columns, -1
            with writing(self.path):
                os.fsync(descriptor)
                os.close(descriptor)


Reader: TypeAlias = Callable[[str, Spill], Table]
"""Function that reads a file into a spill; it returns a table without columns."""


def stored_table(
    path: Path, directory: Path, how: Mapping[str, Any], read: Reader, skip: frozenset[str]
) -> Table:
    """Return a table with its columns in a file below `directory`; write the file if it is missing.

    `how` has every option that changes the result of `read`.  All values of the columns `skip` are
    missing.

    Raises: DataError as the reader; RunError if the file cannot be written.
    """
    state = path.stat()
    given = {
        "version": FILE_VERSION,
        "source": os.path.abspath(path),
        "size": state.st_size,
        "changed": state.st_mtime_ns,
        "skipped": sorted(skip),
        **how,
    }
    target = directory / f"{path.stem[:60]}-{short_digest(given)}{COLUMNS}"
    with preparing(target):
        if not is_complete(target):
            _write(path, target, given, read, skip)
        return _opened(target, str(path))


def _write(
    path: Path, target: Path, given: Mapping[str, Any], read: Reader, skip: frozenset[str]
) -> None:
    """Read a file block by block and write its columns, atomically."""
    spill = Spill(part_of(target), skip)
    try:
        table = read(str(path), spill)
        if table.origin is not None:
            spill.keep("", Column(table.origin))  # a name that no column has
        spill.close()
        description = {
            "columns": spill.described,
            "rows": spill.rows,
            "first_line": table.first_line,
            "decimal_commas": table.decimal_commas,
            "given": given,
        }
        complete_file(target, description)
    finally:
        spill.close()
        part_of(target).unlink(missing_ok=True)


def _opened(target: Path, source: str) -> Table:
    description = json.loads(read_file(target.with_suffix(DESCRIPTION)))
    file = OpenFile(target)
    gaps = Column(np.broadcast_to(np.nan, description["rows"]))
    columns = {
        name: StoredColumn(
            file, one["offset"], one["count"], one["dtype"], one["kind"], one["levels"]
        )
        if one
        else gaps
        for name, one in description["columns"].items()
    }
    origin = columns.pop("", None)
    table = Table(
        columns,
        source,
        first_line=description["first_line"],
        origin=None if origin is None else origin.values,
    )
    table.decimal_commas = description["decimal_commas"]
    return table


def short_digest(given: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits of the hash of JSON data."""
    return sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]


def part_of(target: Path) -> Path:
    """Return the path of the unfinished file that becomes `target`."""
    return target.with_name(target.name + PART)


def complete_file(target: Path, description: Mapping[str, Any]) -> None:
    """Rename a finished file to `target`, then make it valid by writing its description."""
    with writing(target):
        system.replace(part_of(target), target)
        description = {**description, "crc32": _checksum(target, description)}
    write_atomically(target.with_suffix(DESCRIPTION), json.dumps(description).encode())


def is_complete(target: Path) -> bool:
    """Return whether a file and its description are as they were written."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        description: dict[str, Any] = json.loads(target.with_suffix(DESCRIPTION).read_bytes())
        return bool(description.pop("crc32") == _checksum(target, description))
    return False


def _checksum(target: Path, description: Mapping[str, Any]) -> int:
    """Return the CRC-32 of a description and a file."""
    total = zlib.crc32(json.dumps(description).encode())
    with target.open("rb") as file:
        while block := file.read(CHECKED_BYTES):
            total = zlib.crc32(block, total)
    return total


@contextmanager
def preparing(target: Path) -> Iterator[None]:
    """Lock a file within the context, so that no other process writes the file."""
    make_directory(target.parent)
    with locked(target.with_name(target.name + LOCK)):
        yield
