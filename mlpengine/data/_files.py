"""Opening of data files as bytes, and the errors for files that cannot be read."""

import gzip
import io
import os
import zlib
from codecs import getincrementaldecoder, lookup
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from mlpengine.data.progress import Progress
from mlpengine.errors import DataError, MlpEngineError, UsageError
from mlpengine.files import similar_file

Opener = Callable[[], BinaryIO]

BOMB_BYTES, BOMB_RATIO = 4 << 20, 400
"""Compressed data that exceed both are refused; real tables are compressed 5 to 50 times."""

BINARY_BYTES = 64 << 20
"""The limit for binary files, whose headers state the unpacked size."""

_BLOCK = 1 << 20


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


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Turn errors of the operating system and of gzip into a DataError that names the file."""
    try:
        yield
    except MlpEngineError:  # such as a RunError, which is an OSError
        raise
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{where}: the gzip data are damaged or cut short ({error})") from error
    except OSError as error:
        near = similar_file(Path(where)) if isinstance(error, FileNotFoundError) else ""
        raise DataError(f"{where}: cannot be read ({error.strerror or error}){near}") from error


class _Watched(io.FileIO):
    """A file that reports how much of it is read."""

    def __init__(self, path: str | os.PathLike[str], progress: Progress) -> None:
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

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        self._stream, self._encoding = stream, encoding
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
                    f"text_encoding: the file is not {self._encoding} ({error})"
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


def transcoded(stream: BinaryIO, encoding: str) -> BinaryIO:
    """Return a stream of text in `encoding` as UTF-8."""
    if lookup(encoding).name in ("utf-8", "ascii"):
        return stream
    return io.BufferedReader(_Transcoded(stream, encoding))


def opener(
    path: str | os.PathLike[str], progress: Progress | None = None, encoding: str = "utf-8"
) -> Opener:
    """Return a function that opens a file as UTF-8, and unpacks it if its name ends in .gz."""

    def open_file() -> BinaryIO:
        return open(path, "rb") if progress is None else io.BufferedReader(_Watched(path, progress))

    is_packed = os.fspath(path).lower().endswith(".gz")
    return lambda: transcoded(_unpacked(open_file()) if is_packed else open_file(), encoding)


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
        raise UsageError(f"read: needs a path, a data set or an open file (got {source!r:.60})")
    return source


def buffered(stream: BinaryIO, encoding: str = "utf-8") -> Opener:
    """Return a function that opens the contents of a stream repeatedly, from a copy in memory."""
    content = transcoded(stream, encoding).read()
    return lambda: io.BytesIO(content)
