"""Opens data files as streams of UTF-8 bytes, and refuses files that cannot be read."""

import bz2
import gzip
import io
import logging
import os
import re
import zlib
from codecs import BOM_UTF8, IncrementalDecoder, getincrementaldecoder, lookup
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from mlpengine.core.errors import DataError, MlpEngineError, UsageError
from mlpengine.core.files import similar_file
from mlpengine.core.wording import quoted

_log = logging.getLogger("mlpengine")

Opener = Callable[[], BinaryIO]

BOMB_BYTES, BOMB_RATIO = 4 << 20, 400
"""Limits of unpacked bytes, and of unpacked / packed bytes; a file above both limits is refused.

Real tables have ratios of 5 to 50."""

BINARY_BYTES = 64 << 20
"""Limit of unpacked bytes for Parquet and Feather files, instead of `BOMB_BYTES`."""

_BLOCK = 1 << 20


def refuse_bomb(unpacked: int, packed: int, where: str, limit: int = BOMB_BYTES) -> None:
    """Raise DataError if `packed` bytes unpack into suspiciously many bytes."""
    if unpacked > limit and unpacked > BOMB_RATIO * max(packed, 1):
        raise DataError(
            f"{where}: {packed:,} compressed bytes unpack into {unpacked:,} or more; "
            "unpack it yourself if you expect this size"
        )


def brief(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


_EXCEL = "an Excel workbook", "save the sheet as CSV (UTF-8)"
_SHEET = "an OpenDocument file", "save the sheet as CSV"
_ZIPPED = (
    (rb"(\[Content_Types\]|_rels/|docProps/|xl/)", _EXCEL),
    (rb"mimetypeapplication/vnd\.oasis", _SHEET),
    (rb".{1,99}?\.npy", ("a NumPy archive", "save the table as CSV or Parquet")),
    (rb"", ("a zip archive", "unpack it")),
)
_PACKED = "unpack it, or pack it with gzip"
_NAMED = "give a file with a name that ends in {}, or unpack it"
_FORMATS = (
    (rb"\x1f\x8b", ("packed with gzip", _NAMED.format(".gz"))),
    *((rb"PK\x03\x04.{26}" + names, told) for names, told in _ZIPPED),
    (rb"PAR1[^ -~]", ("a Parquet file", "give a file with a name that ends in .parquet")),
    (rb"ARROW1\0", ("an Arrow (Feather) file", "give a file with a name that ends in .feather")),
    (rb"SQLite format 3\0", ("an SQLite database", "export the table as CSV")),
    (rb"\x93NUMPY", ("a NumPy array", "save the table as CSV or Parquet")),
    (rb"\x89HDF\r\n", ("an HDF5 file", "save the table as CSV or Parquet")),
    (rb"\xd0\xcf\x11\xe0", ("an old Office document (.xls)", _EXCEL[1])),
    (rb"BZh[1-9]1AY&SY", ("packed with bzip2", _NAMED.format(".bz2"))),
    (rb"\xfd7zXZ\0", ("packed with xz", _PACKED)),
    (rb"\x28\xb5\x2f\xfd", ("packed with zstd", _NAMED.format(".zst"))),
    (rb"7z\xbc\xaf", ("a 7-Zip archive", _PACKED)),
    (rb"\x80[\x02-\x05].*[\0-\x08]", ("a Python pickle", "save the table as CSV or Parquet")),
    (rb"%PDF-", ("a PDF document", "save the table as CSV")),
    (rb"\s*<(!doctype html|html)\b", ("a web page", "download the file itself")),
    (rb"\s*<\?xml\b", ("XML", "save the table as CSV")),
    (rb"\s*(\[\s*)?\{\s*(\"[^\"]*\"\s*:|\})", ("JSON", "save the table as CSV")),
)
"""Formats other than CSV: pattern of the first bytes, name of the format, and advice."""


def refuse_other_format(start: bytes, where: str) -> None:
    """Check that the first bytes of a file do not belong to another format than CSV."""
    for pattern, (name, advice) in _FORMATS:
        if re.match(pattern, start, re.DOTALL | re.IGNORECASE):
            packed = "unpack it; " * where.lower().endswith(tuple(_PACKINGS))
            raise DataError(f"{where}: is not CSV but {name}; {packed}{advice}")


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Turn errors of the operating system into a DataError that names the file."""
    try:
        yield
    except MlpEngineError:  # some are also an OSError
        raise
    except OSError as error:
        near = similar_file(Path(where)) if isinstance(error, FileNotFoundError) else ""
        raise DataError(f"{where}: cannot be read ({error.strerror or error}){near}") from error


def size_of(stream: BinaryIO) -> int:
    """Return the size of a stream in bytes; 0 if unknown."""
    if isinstance(stream, io.BytesIO):
        return stream.getbuffer().nbytes
    is_file = isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)
    return os.fstat(stream.fileno()).st_size if is_file else 0


class _Converted(io.RawIOBase):
    """A stream of the bytes that `read` returns; `close` closes the source `stream`."""

    def __init__(self, stream: BinaryIO, read: Callable[[int], bytes]) -> None:
        self._stream, self._read, self._ready = stream, read, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        ready = self._ready or self._read(_BLOCK)
        count = min(len(buffer), len(ready))
        buffer[:count], self._ready = ready[:count], ready[count:]
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def wide_encoding(content: bytes) -> str:
    """Return utf-16 or utf-32 by the byte order mark at the start of a file; "" without one."""
    if content.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return "utf-32"
    return "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else ""


def _is_utf8(content: bytes) -> bool:
    """Return whether a part of a file has UTF-8 characters beyond ASCII, and no other bytes."""
    try:
        getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError:
        return False
    return not content.isascii()


@cache  # a file is opened more than once
def _warn_of_utf8(where: str, encoding: str) -> None:
    text = "warning: %s: its bytes are UTF-8, but it is read as %s, as data.text_encoding says; "
    text += "save it as %s, or train with text_encoding: utf-8"
    _log.warning(text, where, encoding, encoding)


def transcoded(
    stream: BinaryIO, encoding: str, where: str | os.PathLike[str] = "standard input"
) -> BinaryIO:
    """Return a stream of text in `encoding` as UTF-8; a byte order mark overrides `encoding`."""
    if lookup(encoding).name in ("utf-8", "ascii"):
        return stream
    decoder: IncrementalDecoder | None = None

    def read(size: int) -> bytes:
        text = ""
        while not text and (block := stream.read(size)):
            text = decode(block)
        return (text or decode(b"", final=True)).encode()

    def decode(block: bytes, final: bool = False) -> str:
        nonlocal decoder, encoding
        if decoder is None:
            marked = "utf-8-sig" if block.startswith(BOM_UTF8) else wide_encoding(block)
            if not marked and not lookup(encoding).name.startswith("utf") and _is_utf8(block):
                _warn_of_utf8(os.fspath(where), encoding)
            encoding = marked or encoding
            decoder = getincrementaldecoder(encoding)()
        try:
            return decoder.decode(block, final=final)
        except UnicodeError as error:
            raise DataError(
                f"{os.fspath(where)}: text_encoding: the file is not {encoding} ({error}); "
                "save it in that encoding"
            ) from None

    return io.BufferedReader(_Converted(stream, read))


def _zstd(stream: BinaryIO) -> Any:
    import pyarrow  # a slow import for a rare format

    return pyarrow.CompressedInputStream(pyarrow.PythonFile(stream), "zstd")


_PACKINGS: dict[str, tuple[str, bytes, Callable[[BinaryIO], Any]]] = {
    ".gz": ("gzip", b"\x1f\x8b", lambda stream: gzip.GzipFile(fileobj=stream)),
    ".bz2": ("bzip2", b"BZh", bz2.BZ2File),
    ".zst": ("zstd", b"\x28\xb5\x2f\xfd", _zstd),
}
"""Compression formats by file suffix: name, first bytes, function that opens a stream."""


def _unpacked(packed: BinaryIO, where: str) -> BinaryIO:
    """Return the unpacked contents of a file; the suffix of `where` tells the format."""
    suffix = os.path.splitext(where)[1].lower()
    if suffix not in _PACKINGS:
        return packed
    name, magic, unpack = _PACKINGS[suffix]
    start = packed.read(len(magic))
    packed.seek(0)
    if start != magic:
        packed.close()
        text = f"{where}: is not packed with {name}, as its name says; rename it without {suffix}"
        raise DataError(text)
    stream, count = unpack(packed), 0

    def read(size: int) -> bytes:
        nonlocal count
        try:
            content: bytes = stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            text = f"{where}: the {name} data are damaged or cut short ({error})"
            raise DataError(text) from error
        count += len(content)
        refuse_bomb(count, packed.tell(), where)
        return content

    return io.BufferedReader(_Converted(packed, read))


def opener(path: str | os.PathLike[str], encoding: str = "utf-8") -> Opener:
    """Return a function that opens a file as UTF-8, unpacked if its suffix is in `_PACKINGS`."""
    if "\0" in os.fspath(path):
        raise DataError(f"{os.fspath(path)!r}: the name of a file cannot contain a null character")
    require_file(path)
    return lambda: transcoded(_unpacked(open(path, "rb"), os.fspath(path)), encoding, path)


def require_file(path: str | os.PathLike[str]) -> None:
    """Check that an existing path can be read more than once.  Raises: DataError."""
    if os.path.exists(path) and not os.path.isfile(path):
        kind = "a pipe or a device; predict, evaluate and explain read - from standard input"
        kind = "a directory" if os.path.isdir(path) else kind
        raise DataError(
            f"{os.fspath(path)}: must be a file, because it is read more than once (it is {kind})"
        )


def checked_stream(source: BinaryIO) -> BinaryIO:
    """Return a caller's open file.  Raises: UsageError if it cannot be read."""
    if not hasattr(source, "read"):
        frame = "; mlpengine.fit takes data frames" if hasattr(source, "columns") else ""
        raise UsageError(
            f"read: needs a path, a data set or an open file (got {quoted(source)}){frame}"
        )
    return source


def buffered(stream: BinaryIO, encoding: str = "utf-8") -> Opener:
    """Read a stream into memory; return a function that opens the contents any number of times."""
    content = transcoded(stream, encoding).read()
    return lambda: io.BytesIO(content)
