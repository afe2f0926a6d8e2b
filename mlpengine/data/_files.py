"""Opening data files as bytes, and saying cleanly why one cannot be read."""

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from mlpengine.errors import DataError

Opener = Callable[[], BinaryIO]

BOMB_BYTES, BOMB_RATIO = 4 << 20, 400
"""Compressed data that grow beyond both are refused; real tables shrink 5 to 50 times."""

BINARY_BYTES = 64 << 20
"""Binary files that say how much they unpack into are refused from here on only."""

_BLOCK = 1 << 20


class GuardedGzip(gzip.GzipFile):
    """A gzip file that refuses to unpack into far more than a table ever would."""

    def read(self, size: int | None = -1) -> bytes:
        """Return that many unpacked bytes, fewer at the end."""
        block = super().read(size)
        refuse_bomb(self.tell(), self.fileobj.tell(), str(self.name))  # type: ignore[union-attr]
        return block


def refuse_bomb(unpacked: int, packed: int, where: str, limit: int = BOMB_BYTES) -> None:
    """Refuse compressed data that unpack into suspiciously many bytes.

    Raises: DataError beyond both `limit` and BOMB_RATIO.
    """
    if unpacked > limit and unpacked > BOMB_RATIO * max(packed, 1):
        raise DataError(
            f"{where}: {packed:,} compressed bytes unpack into {unpacked:,} or more; "
            "unpack it yourself if that is meant"
        )


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Turn what the operating system and gzip say into a DataError that names the file."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{where}: the gzip data are damaged or cut short ({error})") from error
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error.strerror or error})") from error


def opener(path: str | os.PathLike[str]) -> Opener:
    """Return how to open a file as bytes, unpacking it if its name ends in .gz."""
    if os.fspath(path).lower().endswith(".gz"):
        return lambda: _open_gzip(path)
    return lambda: open(path, "rb")


def _open_gzip(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a gzip file after unpacking its start once, which is cheaper than parsing a bomb."""
    stream = GuardedGzip(path, "rb")
    try:
        while stream.tell() <= BOMB_BYTES and stream.read(_BLOCK):
            pass
        stream.seek(0)
    except BaseException:
        stream.close()
        raise
    return stream  # type: ignore[return-value]


def buffered(stream: BinaryIO) -> Opener:
    """Return how to read an open stream more than once: by keeping its bytes."""
    content = stream.read()
    return lambda: io.BytesIO(content)
