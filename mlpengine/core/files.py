"""Atomic writes of files, and errors that name the wrong file."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from errno import EISDIR, ENOENT, ENOSPC
from math import inf
from pathlib import Path
from time import monotonic

from mlpengine.core import system
from mlpengine.core.errors import MlpEngineError, RunError, UsageError
from mlpengine.core.wording import nearest, shortened

TEMPORARY = ".tmp-"
"""Prefix of incomplete files; a killed process may leave such a file behind."""

_flushed_from = ContextVar("flushed_from", default=-inf)


@contextmanager
def writing(path: str | Path, what: str = "written") -> Iterator[None]:
    """Turn an OSError into a RunError that names `path` and the cause."""
    try:
        yield
    except MlpEngineError:
        raise
    except OSError as error:
        advice = "; make room and start again" if error.errno == ENOSPC else ""
        if error.errno == ENOENT and what == "written":
            advice = "; make its directory first"
        cause = error.strerror or error
        raise RunError(f"{path}: cannot be {what} ({cause}){advice}") from error


def checked_path(path: object, where: str) -> Path:
    """Return the caller's value as a path.  Raises: UsageError if it is not a path."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"{where}: needs the path of a file (got {path!r:.60})")
    return Path(path)


def read_file(path: Path) -> bytes:
    """Return the bytes of a file.  Raises: RunError with the path and the cause."""
    with writing(path, "read"):
        return path.read_bytes()


def first_line(path: Path) -> str:
    """Return a text file's kind and first line for a message; "" for other files."""
    with suppress(OSError, UnicodeDecodeError):
        with path.open("rb") as file:
            start = file.read(200)
        line = start.partition(b"\n")[0].decode().strip("\ufeff\r ")
        if line.isprintable() and line and b"\0" not in start:  # model files begin with a number
            kind = "config" if path.suffix in (".yaml", ".yml") else "text"
            kind = "table" if path.suffix in (".csv", ".tsv") else kind
            return f"it begins with {line[:40]!r}: a {kind}, not a model"
    return ""


def similar_file(path: Path) -> str:
    """Return `` - did you mean 'x'?`` for the most similar file in this or a similar folder."""
    folder = path.parent
    with suppress(OSError):
        if not folder.is_dir():
            siblings = (other.name for other in folder.parent.iterdir() if other.is_dir())
            folder = folder.with_name(nearest(folder.name, siblings) or folder.name)
        names = [other.name for other in folder.iterdir()]
        near = path.name if path.name in names else nearest(path.name, names)
        return f" - did you mean {str(folder / near)!r}?" if near else ""
    return ""


def missing(path: Path, what: str) -> UsageError:
    """Return the error of a command whose path does not exist."""
    usual = Path("runs") / path.name
    near = f" - did you mean {str(usual)!r}?" if is_run(usual) else similar_file(path)
    near = near or f"; {_models_in(path.parent)}"
    return UsageError(shortened(f"{path}: there is no such {what}{near}"))


def keep_input(out: Path, source: str | Path, what: str) -> None:
    """Raise UsageError if the output would replace the input."""
    if out.exists() and os.path.exists(source) and out.samefile(source):
        raise UsageError(f"{out}: is {what}; name another file by --out")


def keep_other_kinds(out: Path, *suffixes: str) -> None:
    """Raise UsageError if the output would replace a file without one of these suffixes."""
    if out.suffix not in suffixes and out.is_file():
        raise UsageError(f"{out}: exists and does not end in {suffixes[0]}; name another file")


RESOLVED = "config.resolved.yaml"
"""The config of a run with all defaults and overrides."""

OWN_FOLDERS = frozenset({"checkpoints", "tensorboard"})
OWN_FILES = frozenset(
    {
        *("config.yaml", RESOLVED, "environment.json", "failure.json", "result.json", "run.lock"),
        *("metrics.csv", "timings.csv", "diagnostics.csv"),
        *("model.safetensors", "warm_start.safetensors"),
        *("sweep.yaml", "sweep.json", "best.yaml", "journal.log"),
    }
)
"""The files and folders that runs and sweeps need, so that no command writes others there."""


def keep_own_files(out: str | Path) -> None:
    """Raise UsageError if an output would be one of the files that a run or a sweep needs."""
    folder, name = os.path.split(out)
    folder = os.path.realpath(folder)
    parent, inside = os.path.split(folder)
    run = parent if inside in OWN_FOLDERS else folder
    is_own = inside in OWN_FOLDERS or name in OWN_FILES
    if is_own and os.path.exists(os.path.join(run, "run.lock")):
        raise UsageError(f"{out}: is a file of the run; name another file")


def is_run(directory: Path) -> bool:
    """Return whether a directory belongs to a run that has begun."""
    return os.path.isfile(directory / RESOLVED)  # Path.is_file raises where a name is too long


def not_a_run(directory: Path, lacks: str = "model and no checkpoint") -> UsageError:
    """Return the error of a command for a directory without a run; the text lists runs inside."""
    inside = next((one for one in (directory, directory / "runs") if _models(one)), directory)
    right = "".join(f"; write {inside / name}" for name in _models(inside)[:1])
    text = f"holds no {lacks}; {_models_in(inside)}{right}"
    return UsageError(f"{directory}: {text}")


def _models(directory: Path) -> list[str]:
    """Return the names of runs and model files in a directory."""
    with suppress(OSError):
        return [
            one.name
            for one in sorted(directory.iterdir())
            if one.suffix == ".safetensors" or is_run(one)
        ]
    return []


def _models_in(directory: Path) -> str:
    """Return a text that lists runs and model files of a directory, or how to make a run."""
    if names := _models(directory):
        more = ", ..." * (len(names) > 8)
        return f"{directory} has {', '.join(names[:8])}{more}"
    return f"{directory} holds no runs; `mlpengine train CONFIG.yaml` makes runs/CONFIG"


def make_directory(directory: Path) -> None:
    """Make a directory and its parents.  Raises: RunError naming it and the cause."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{directory}: cannot be created ({error.strerror})") from error


@contextmanager
def unflushed(seconds: float) -> Iterator[None]:
    """Write files without flushing them to disk in the first `seconds` of this context.

    It is for files that the process can quickly write again: a power cut may leave some of them
    empty or missing, but a killed process loses none.
    """
    token = _flushed_from.set(monotonic() + seconds)
    try:
        yield
    finally:
        _flushed_from.reset(token)


def sync(descriptor: int) -> None:
    """Flush an open file to disk, except within `unflushed`."""
    if monotonic() >= _flushed_from.get():
        os.fsync(descriptor)


def flush(path: Path) -> None:
    """Flush a file and its name to disk, even within `unflushed`; an error is a RunError."""
    with writing(path):
        system.flush_to_disk(path)
        system.flush_to_disk(path.parent)


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write a file whole or not at all, and flush it to disk.

    The function first writes a new file with a random name into the opened directory, then renames
    it.  So neither a link at the new name nor a renamed directory redirects the bytes.  A device or
    a pipe is written directly.

    Raises: RunError with the path and the cause.
    """
    path = Path(path)
    with writing(path):
        if not path.name:
            raise IsADirectoryError(EISDIR, "it is a directory")
        if is_device(path):
            path.write_bytes(data)
            return
        with system.opened_directory(path.parent) as (start, directory):
            _replace(start / path.name, directory, data)
            if directory is not None:
                sync(directory)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file within a ``with`` block; a file system without locks gives no lock."""
    with writing(path):
        descriptor = system.open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        with suppress(OSError):
            system.lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def remove_unfinished(directory: Path) -> None:
    """Remove the temporary files of killed processes; no other process may use the directory."""
    for path in directory.glob(f"{TEMPORARY}*"):
        with writing(path):
            path.unlink(missing_ok=True)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte; on a full disk one system call may write fewer and report success."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _replace(path: Path, directory: int | None, data: bytes) -> None:
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        descriptor = system.open_file(temporary, flags, follow=False, directory=directory)
        try:
            write_all(descriptor, data)
            sync(descriptor)
        finally:
            os.close(descriptor)
        system.replace(temporary, path, directory)
    except BaseException:
        with suppress(OSError):  # report the first error
            os.unlink(temporary, dir_fd=directory)
        raise


def is_device(path: Path) -> bool:
    """Return whether a path is a pipe or a device, which has no size."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
