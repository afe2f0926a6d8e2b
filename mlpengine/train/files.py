"""What the operating system says when a file of a run cannot be written, with the file's name."""

from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path

from mlpengine.errors import MlpEngineError, RunError


def making(directory: Path) -> None:
    """Make a directory and those above it.  Raises: RunError naming it and the cause."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{directory}: cannot be made ({error.strerror})") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError without a name into a RunError that names `path` and the cause."""
    try:
        yield
    except MlpEngineError:
        raise
    except OSError as error:
        advice = "; make room and start again" if error.errno == ENOSPC else ""
        raise RunError(f"{path}: cannot be written ({error.strerror}){advice}") from error
