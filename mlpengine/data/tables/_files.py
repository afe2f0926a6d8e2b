"""Opening of data files as bytes, and the errors for files that cannot be read."""

import gzip
import io
import os
import re
import zlib
from codecs import getincrementaldecoder, lookup
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from mlpengine.core.errors import DataError, MlpEngineError, UsageError
from mlpengine.core.files import similar_file
from mlpengine.core.system import read_pipe
from mlpengine.core.wording import quoted
from mlpengine.data.tables.progress import OnProgress

Opener = Callable[[], BinaryIO]

BOMB_BYTES, BOMB_RATIO = 4 << 20, 400
"""Compressed data that exceed both are refused; real tables are compressed 5 to 50 times."""

BINARY_BYTES = 64 << 20
"""The limit for binary files, whose headers state the unpacked size."""

_BLOCK = 1 << 20

PIPE_SECONDS = 10.0
"""Seconds to wait for a writer of a pipe."""


class GuardedGzip(gzip.GzipFile):
    """A gzip file that raises DataError if it unpacks into far more bytes than a table."""

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` unpacked bytes."""
        block = super().read(size)
        refuse_bomb(self.tell(), self.fileobj.tell(), str(self.name))  # type: ignore[union-attr]
        return block


def refuse_bomb(unpacked: int, packed: int, where: str, limit: int = BOMB_BYTES) -> None:
    """Check how many bytes compressed data unpack into.

    Raises: DataError beyond both `limit` and BOMB_RATIO.
    """
    if unpacked > limit and unpacked > BOMB_RATIO * max(packed, 1):
        raise DataError(
            f"{where}: {packed:,} compressed bytes unpack into {unpacked:,} or more; "
            "unpack it yourself if that is meant"
        )


_EXCEL = "an Excel workbook", "save the sheet as CSV (UTF-8)"
_SHEET = "an OpenDocument file", "save the sheet as CSV"
_ZIPPED = (
    (rb"(\[Content_Types\]|_rels/|docProps/|xl/)", _EXCEL),
    (rb"mimetypeapplication/vnd\.oasis", _SHEET),
    (rb".{1,99}?\.npy", ("a NumPy archive", "let its name end in .npz")),
    (rb"", ("a zip archive", "unpack it")),
)
_PACKED = "unpack it, or pack it with gzip"
_FORMATS = (
    (rb"\x1f\x8b", ("packed with gzip", "let its name end in .gz, or unpack it")),
    *((rb"PK\x03\x04.{26}" + names, told) for names, told in _ZIPPED),
    (rb"PAR1[^ -~]", ("a Parquet file", "let its name end in .parquet")),
    (rb"ARROW1\0", ("an Arrow (Feather) file", "save the table as CSV or Parquet")),
    (rb"SQLite format 3\0", ("an SQLite database", "export the table as CSV")),
    (rb"\x93NUMPY", ("a NumPy array", "let its name end in .npy")),
    (rb"\x89HDF\r\n", ("an HDF5 file", "save the table as CSV or Parquet")),
    (rb"\xd0\xcf\x11\xe0", ("an old Office document (.xls)", _EXCEL[1])),
    (rb"BZh[1-9]1AY&SY", ("packed with bzip2", _PACKED)),
    (rb"\xfd7zXZ\0", ("packed with xz", _PACKED)),
    (rb"\x28\xb5\x2f\xfd", ("packed with zstd", _PACKED)),
    (rb"7z\xbc\xaf", ("a 7-Zip archive", _PACKED)),
    (rb"\x80[\x02-\x05].*[\0-\x08]", ("a Python pickle", "save the table as CSV or Parquet")),
    (rb"%PDF-", ("a PDF document", "save the table as CSV")),
    (rb"\s*<(!doctype html|html)\b", ("a web page", "download the file itself")),
    (rb"\s*<\?xml\b", ("XML", "save the table as CSV")),
    (rb"\s*(\[\s*)?\{\s*(\"[^\"]*\"\s*:|\})", ("JSON", "save the table as CSV")),
)
"""How files of other formats begin, what they are, and what to do."""


def refuse_other_format(start: bytes, where: str) -> None:
    """Check that the first bytes of a file are not those of another format than CSV.

    Raises: DataError that names the format and what to do.
    """
    for pattern, (name, advice) in _FORMATS:
        if re.match(pattern, start, re.DOTALL | re.IGNORECASE):
            raise DataError(f"{where}: is not CSV but {name}; {advice}")


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Turn errors of the operating system and of gzip into a DataError that names the file."""
    try:
        yield
    except MlpEngineError:  # such as a RunError, which is an OSError
        raise
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if "Not a gzipped file" in str(error):
            text = f"{where}: is not packed with gzip, as its name says; rename it without .gz"
            raise DataError(text) from error
        raise DataError(f"{where}: the gzip data are damaged or cut short ({error})") from error
    except OSError as error:
        near = similar_file(Path(where)) if isinstance(error, FileNotFoundError) else ""
        raise DataError(f"{where}: cannot be read ({error.strerror or error}){near}") from error


class _Watched(io.FileIO):
    """A file that reports how much of it is read."""

    def __init__(self, path: str | os.PathLike[str], progress: OnProgress) -> None:
        super().__init__(path)
        self.progress, self.size = progress, os.fstat(self.fileno()).st_size

    def readinto(self, buffer: Any) -> int | None:
        """Fill a buffer with the next bytes."""
        count = super().readinto(buffer)
        if self.size:
            self.progress(min(1.0, self.tell() / self.size))
        return count


class _Transcoded(io.RawIOBase):
    """A stream of text in another encoding, as UTF-8."""

    def __init__(self, stream: BinaryIO, encoding: str, where: str) -> None:
        self._stream, self._encoding, self._where = stream, encoding, where
        self._decoder = getincrementaldecoder(encoding)()
        self._ready = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes."""
        while not self._ready:
            block = self._stream.read(_BLOCK)
            try:
                self._ready = self._decoder.decode(block, final=not block).encode()
            except UnicodeError as error:
                raise DataError(
                    f"{self._where}: text_encoding: the file is not {self._encoding} ({error}); "
                    "save it in that encoding"
                ) from None
            if not block:
                break
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
        super().close()


def transcoded(
    stream: BinaryIO, encoding: str, where: str | os.PathLike[str] = "standard input"
) -> BinaryIO:
    """Return a stream of text in `encoding` as UTF-8."""
    if lookup(encoding).name in ("utf-8", "ascii"):
        return stream
    return io.BufferedReader(_Transcoded(stream, encoding, os.fspath(where)))


def opener(
    path: str | os.PathLike[str], progress: OnProgress | None = None, encoding: str = "utf-8"
) -> Opener:
    """Return a function that opens a file as UTF-8, and unpacks it if its name ends in .gz.

    A pipe is read to its end now, into memory.  Raises: DataError for a pipe that has no writer.
    """
    content = _read_pipe(os.fspath(path)) if Path(path).is_fifo() else None

    def open_file() -> BinaryIO:
        if content is not None:
            return io.BytesIO(content)
        return open(path, "rb") if progress is None else io.BufferedReader(_Watched(path, progress))

    is_packed = os.fspath(path).lower().endswith(".gz")
    return lambda: transcoded(_unpacked(open_file()) if is_packed else open_file(), encoding, path)


def _read_pipe(where: str) -> bytes:
    """Return all that is written into a pipe, such as that of a shell's <(...)."""
    with readable(where):
        content = read_pipe(where, PIPE_SECONDS)
    if content is None:
        raise DataError(f"{where}: nothing is written into this pipe ({PIPE_SECONDS:g} s)")
    return content


def require_file(path: str | os.PathLike[str]) -> None:
    """Check that a path that exists can be read more than once.  Raises: DataError."""
    if os.path.exists(path) and not os.path.isfile(path):
        kind = "a directory" if os.path.isdir(path) else "a pipe or a device"
        raise DataError(f"{os.fspath(path)}: must be a file, which is read more than once ({kind})")


def _unpacked(packed: BinaryIO) -> BinaryIO:
    """Return a gzip stream after a test that unpacks its start, so that no bomb is parsed."""
    stream = GuardedGzip(fileobj=packed, mode="rb")
    stream.myfileobj = packed  # type: ignore[assignment]  # closed with the stream
    try:
        while stream.tell() <= BOMB_BYTES and stream.read(_BLOCK):
            pass
        stream.seek(0)
    except BaseException:
        stream.close()
        raise
    return stream  # type: ignore[return-value]


def checked_stream(source: BinaryIO) -> BinaryIO:
    """Return an open file that a caller gave.  Raises: UsageError if it is none."""
    if not hasattr(source, "read"):
        frame = "; mlpengine.fit takes data frames" if hasattr(source, "columns") else ""
        raise UsageError(
            f"read: needs a path, a data set or an open file (got {quoted(source)}){frame}"
        )
    return source


def buffered(stream: BinaryIO, encoding: str = "utf-8") -> Opener:
    """Return a function that opens the contents of a stream repeatedly, from a copy in memory."""
    content = transcoded(stream, encoding).read()
    return lambda: io.BytesIO(content)
