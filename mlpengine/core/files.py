"""Atomic writes of files, and errors that name the file."""

import json
import os
import re
import secrets
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from errno import EINVAL, EISDIR, ENOENT, ENOSPC
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from mlpengine.core import system
from mlpengine.core.errors import MlpEngineError, RunError, UsageError
from mlpengine.core.wording import nearest, quoted, shortened

TEMPORARY = ".tmp-"
"""Prefix of the names of incomplete files; a killed process may leave such a file."""

_flushed_from = ContextVar("flushed_from", default=-inf)


@contextmanager
def writing(path: str | Path, what: str = "written") -> Iterator[None]:
    """Turn an OSError into a RunError that names `path` and the cause."""
    try:
        yield
    except MlpEngineError:
        raise
    except OSError as error:
        room = "; make room and start again (a run: with train --resume RUN)"
        advice = room if error.errno == ENOSPC else ""
        if error.errno == ENOENT and what == "written":
            advice = "; make its directory first"
        cause = error.strerror or error
        raise RunError(f"{path}: cannot be {what} ({cause}){advice}") from error


def checked_path(path: object, where: str) -> Path:
    """Return `path` as a `Path`.  Raises: UsageError for a value that is not a path."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"{where}: needs the path of a file (got {quoted(path)})")
    return Path(path)


def read_file(path: Path) -> bytes:
    """Return the bytes of a file.  Raises: RunError if the file cannot be read."""
    with writing(path, "read"):
        return path.read_bytes()


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping in a JSON file.  Raises: OSError or ValueError if it cannot be read."""
    if is_device(path):  # reading a pipe without a writer would never end
        raise OSError(EINVAL, "it is a pipe or a device")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"it must be a mapping of keys (got {quoted(value)})")
    return value


def first_line(path: Path) -> str:
    """Return a message for a text file that was given as a model; "" for other files."""
    with suppress(OSError, UnicodeDecodeError):
        with path.open("rb") as file:
            start = file.read(200)
        line = start.partition(b"\n")[0].decode().strip("\ufeff\r ")
        if line.isprintable() and line and b"\0" not in start:  # a model file has zero bytes here
            kind = "config" if path.suffix in (".yaml", ".yml") else "text"
            kind = "table" if path.suffix in (".csv", ".tsv") else kind
            return f"it begins with {line[:40]!r}: a {kind}, not a model"
    return ""


def similar_file(path: Path) -> str:
    """Return `` - did you mean 'x'?`` for a similar path, a note on a broken link, or ""."""
    folder = path.parent
    if str(path) == "-":
        return "; standard input cannot be read here: name a file"
    if re.search(r"(^|/)\w{2,}:/", str(path)):
        return "; an address cannot be read: download the file"
    if os.path.lexists(path):
        return " (the link leads nowhere)" if path.is_symlink() else ""
    with suppress(OSError):
        if not folder.is_dir():
            siblings = (other.name for other in folder.parent.iterdir() if other.is_dir())
            folder = folder.with_name(nearest(folder.name, siblings) or folder.name)
        names = [other.name for other in folder.iterdir()]
        near = path.name if path.name in names else nearest(path.name, names)
        return f" - did you mean {str(folder / near)!r}?" if near else ""
    return ""


def missing(path: Path, what: str) -> UsageError:
    """Return the error for a path that does not exist; the message suggests another path."""
    usual = Path("runs") / path.name
    near = f" - did you mean {str(usual)!r}?" if is_run(usual) else similar_file(path)
    near = near or f"; {_models_in(path.parent)}"
    return UsageError(shortened(f"{path}: there is no such {what}{near}"))


def pasted(path: str | Path) -> str:
    """Return a path for a printed command: quoted for the shell, and never read as an option.

    >>> pasted("my run/-a.csv"), pasted("-a.csv")
    ("'my run/-a.csv'", './-a.csv')
    """
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def keep_input(out: Path, source: str | Path, what: str) -> None:
    """Raise UsageError if `out` is the input file `source`; `what` describes the input."""
    if out.exists() and os.path.exists(source) and out.samefile(source):
        raise UsageError(f"{out}: is {what}; name another file by --out")


def keep_other_kinds(out: Path, *suffixes: str) -> None:
    """Raise UsageError if `out` is an existing file with a suffix other than `suffixes`."""
    if out.suffix not in suffixes and out.is_file():
        raise UsageError(f"{out}: exists and does not end in {suffixes[0]}; name another file")


RESOLVED = "config.resolved.yaml"
"""Name of the file that holds the config of a run, including all defaults and overrides."""

OWN_FOLDERS = frozenset({"checkpoints", "tensorboard"})
OWN_FILES = frozenset(
    {
        *("config.yaml", RESOLVED, "environment.json", "failure.json", "result.json", "run.lock"),
        *("metrics.csv", "timings.csv", "diagnostics.csv"),
        *("model.safetensors", "warm_start.safetensors"),
        *("sweep.yaml", "sweep.json", "best.yaml", "journal.log"),
    }
)
"""Files of runs and sweeps that no other command may overwrite."""


def keep_own_files(out: str | Path) -> None:
    """Raise UsageError if `out` is one of a run's `OWN_FILES` or lies in its `OWN_FOLDERS`."""
    folder, name = os.path.split(out)
    folder = os.path.realpath(folder) if os.path.isdir(folder or os.curdir) else folder
    parent, inside = os.path.split(folder)
    run = parent if inside in OWN_FOLDERS else folder
    is_own = inside in OWN_FOLDERS or name in OWN_FILES
    if is_own and os.path.exists(os.path.join(run, "run.lock")):
        raise UsageError(f"{out}: is a file of the run; name another file")


def is_run(directory: Path) -> bool:
    """Return whether a directory belongs to a run that has begun."""
    return os.path.isfile(directory / RESOLVED)  # Path.is_file raises for a name that is too long


def not_a_run(directory: Path, lacks: str = "model and no checkpoint") -> UsageError:
    """Return the error for a directory that is not a run; the message lists runs in it."""
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
    """Return text that lists a directory's runs and models, or tells how to make a run."""
    if names := _models(directory):
        more = ", ..." * (len(names) > 8)
        return f"{directory} has {', '.join(names[:8])}{more}"
    if (trials := directory / "trials").is_dir():
        return f"it is a sweep; {_models_in(trials)}"
    return f"{directory} holds no runs; `mlpengine train CONFIG.yaml` makes runs/CONFIG"


def make_directory(directory: Path) -> None:
    """Make a directory and its parents.  Raises: RunError with the path and the cause."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{directory}: cannot be created ({error.strerror})") from error


@contextmanager
def unflushed(seconds: float) -> Iterator[None]:
    """Let `sync` do nothing in the first `seconds` of the ``with`` block.

    Use this for files that are quick to write again.  A power cut, but not a killed process, may
    leave such files empty or missing.
    """
    token = _flushed_from.set(monotonic() + seconds)
    try:
        yield
    finally:
        _flushed_from.reset(token)


def sync(descriptor: int) -> None:
    """Flush an open file to disk, unless `unflushed` is active."""
    if monotonic() >= _flushed_from.get():
        os.fsync(descriptor)


def flush(path: Path) -> None:
    """Flush a file and its name to disk, even within `unflushed`.  Raises: RunError."""
    with writing(path):
        system.flush_to_disk(path)
        system.flush_to_disk(path.parent)


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write a file completely or not at all, and flush the file to disk.

    The function opens the directory, writes a file with a random name into it, and renames this
    file to `path`.  A link at `path` or a renamed directory therefore cannot redirect the bytes.
    A device or a pipe is written directly.

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
    """Lock a file within a ``with`` block; on a file system without locks, lock nothing."""
    with writing(path):
        descriptor = system.open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        with suppress(OSError):
            system.lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def remove_unfinished(directory: Path) -> None:
    """Remove incomplete files of killed processes; call this while nobody writes to `directory`."""
    for path in directory.glob(f"{TEMPORARY}*"):
        with writing(path):
            path.unlink(missing_ok=True)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes; a single call of `os.write` may write fewer bytes without an error."""
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
        with suppress(OSError):  # raise the first error, not this one
            os.unlink(temporary, dir_fd=directory)
        raise


def is_device(path: Path) -> bool:
    """Return whether a path is a pipe, a device or another special file."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
