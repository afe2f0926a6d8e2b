"""Standard streams that handle a lost terminal, a closed pipe and a full disk."""

import codecs
import io
import os
import stat
import sys
from contextlib import suppress
from errno import EINVAL, EIO, ENOSPC, EPIPE
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


CLOSED = "is closed, so the printed lines are lost"
"""End of the error message if a command has started with stdout closed."""

ESCAPE = "mlpengine.escape"
"""Name of the error handler `escape`, which stdout uses."""


def escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return the escape of a character that an encoding lacks, and the position after it.

    A surrogate character, which Python uses for an undecodable byte of a path, becomes this byte.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character, end = error.object[error.start], error.start + 1
    if "\udc80" <= character <= "\udcff":
        return os.fsencode(character), end
    return character.encode("ascii", "backslashreplace").decode(), end


class Messages(io.FileIO):
    """Standard error; text that cannot be written is dropped, and the command continues."""

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write, and return the number of bytes; if writing fails, return the size of `data`."""
        size = memoryview(data).nbytes
        with suppress(OSError):
            return super().write(data) or size  # None if the write would block
        return size


class Results(io.FileIO):
    """Standard output; the first failure raises an error, and later text is dropped.

    Raises: BrokenPipeError if the reader or the terminal has gone; OSError for other failures.
    """

    _failed = False
    is_closed = False

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write, unless an earlier write failed."""
        if self._failed:
            return memoryview(data).nbytes
        if self.is_closed:
            self._failed = True
            raise BrokenPipeError(EPIPE, CLOSED, "stdout")
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True
            mode = os.fstat(self.fileno()).st_mode
            terminal = error.errno == EIO and stat.S_ISCHR(mode)
            pipe = error.errno == EINVAL and stat.S_ISFIFO(mode)  # a closed pipe on Windows
            number = EPIPE if terminal or pipe else error.errno
            raise OSError(number, error.strerror, "stdout") from None


def keep_streams() -> None:
    """Replace stdout and stderr, and open the null device for each standard stream that is closed.

    Without the null device, the next opened file would get the number of the closed stream, and
    messages would go into this file.
    """
    closed = set()
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, `number`
            closed.add(number)
    sys.stdin = sys.stdin or open(0, closefd=False, encoding="utf-8")  # noqa: SIM115
    codecs.register_error(ESCAPE, escape)
    results = Results(1, "w", False)
    results.is_closed = 1 in closed
    for name, raw in (("stdout", results), ("stderr", Messages(2, "w", False))):
        before = getattr(sys, name)
        if not _takes_bytes(before):
            before.reconfigure(errors="backslashreplace")
            continue
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=getattr(before, "encoding", "utf-8"),
            errors=ESCAPE if name == "stdout" else "backslashreplace",
            line_buffering=name == "stderr" or raw.isatty(),
            write_through=getattr(before, "write_through", False),
        )
        setattr(sys, name, stream)


def _takes_bytes(stream: object) -> bool:
    """Return whether a stream writes bytes; only the streams of a Windows console do not."""
    binary = getattr(stream, "buffer", None)
    return isinstance(getattr(binary, "raw", binary), io.FileIO | None)


def write_file(text: str) -> None:
    """Write the content of a file to stdout, in UTF-8 and with its line ends unchanged.

    If stdout is a terminal, control characters are escaped.
    """
    click.echo((_printable_lines(text) if sys.stdout.isatty() else text).encode(), nl=False)


def say(text: str, *, err: bool = False) -> None:
    """Print lines, without passwords and with control characters in names escaped.

    On a terminal, long lines are broken between words.  Messages on stderr are shortened.
    """
    from mlpengine.core.redaction import redacted
    from mlpengine.core.wording import shortened

    stream = sys.stderr if err else sys.stdout
    text = _printable_lines(shortened(redacted(text)) if err else redacted(text))
    # not click.echo, which would write UTF-8 to an ASCII stream
    stream.write((_wrapped(text) if stream.isatty() else text) + "\n")
    stream.flush()


def _wrapped(text: str) -> str:
    from shutil import get_terminal_size
    from textwrap import TextWrapper

    width = get_terminal_size().columns
    wrapper = TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    lines = []
    for line in text.split("\n"):
        wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines += [line] if len(line) <= width else wrapper.wrap(line)
    return "\n".join(lines)


def complain(text: str) -> None:
    """Print lines to stderr if it can be written."""
    with suppress(OSError, ValueError):
        say(text, err=True)


def explain(error: Exception) -> int:
    """Print an expected error and return its exit code; raise other errors."""
    from mlpengine.core.errors import MlpEngineError

    if isinstance(error, MlpEngineError):
        complain(f"error: {error}")
        return error.exit_code
    if isinstance(error, OSError):
        full = " - make room and start again" if error.errno == ENOSPC else ""
        place = f"{error.filename}: " if error.filename else ""
        complain(f"error: {place}{error.strerror or error}{full}")
        return 1
    if isinstance(error, MemoryError):
        complain("error: not enough memory for this network, batch size or data")
        return 1
    raise error


def _printable_lines(text: str) -> str:
    from mlpengine.core.wording import printable

    return "\n".join(map(printable, text.split("\n")))
