"""The directory of a run; a process that uses the directory holds a lock."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from mlpengine.backends.compiled.cache import chosen_target
from mlpengine.core import system
from mlpengine.core.errors import RunError, UsageError
from mlpengine.core.files import RESOLVED as RESOLVED
from mlpengine.core.files import is_device, is_run, missing, not_a_run, write_atomically, writing
from mlpengine.step.blas_threads import blas_name, cores

GIVEN_CONFIG = "config.yaml"
"""The config of a run as the user wrote it."""

RESULT_FILE, ENVIRONMENT_FILE = "result.json", "environment.json"

FAILURE_FILE = "failure.json"
"""The error and the verdicts of a failed run."""
LOCK_FILE = "run.lock"
PACKAGES = ("numexpr", "numpy", "pyarrow", "safetensors", "threadpoolctl")
"""Packages that influence results: they compute, read tables or write weights."""

MAX_TRIES = 10_000


class RunDirectory:
    """The directory of a run, used by a single process while it is open.

    If processes create the same name at the same time, they get different directories: a directory
    belongs to the process that creates its lock file.  The lock is advisory, and the system
    releases it when the process ends.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock: int | None = lock

    @classmethod
    def create(cls, path: Path) -> "RunDirectory":
        """Create `path`, or `path`-002, -003, ... if it is in use.

        An existing directory is in use unless it is empty or has only a lock that no process holds.
        Raises: UsageError for a path that names no directory; RunError if none can be created.
        """
        here = not path.name and any(path.iterdir())  # a name beside it would surprise
        if here or path.absolute().name in ("", "..") or (path.exists() and not path.is_dir()):
            raise UsageError(f"{path}: must be a name for the run directory, such as runs/name")
        for candidate in _candidates(path.absolute()):
            try:
                candidate.mkdir(parents=True, exist_ok=True)
                names = os.listdir(candidate)
                if names not in ([], [LOCK_FILE]):
                    continue
                new = os.O_RDWR | os.O_CREAT | os.O_EXCL
                lock = system.open_file(candidate / LOCK_FILE, os.O_RDWR if names else new)
            except FileExistsError:
                continue
            except OSError as error:
                raise RunError(
                    f"{candidate}: cannot make the run directory ({error.strerror})"
                ) from error
            if _locked(lock, otherwise=not names):
                if os.listdir(candidate) == [LOCK_FILE]:  # not used in the meantime
                    return cls(candidate, lock)
                os.close(lock)
        raise RunError(f"{path}: {MAX_TRIES} runs of this name exist; remove some or give a name")

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """Open the directory of an earlier run, to resume it."""
        path = path.absolute()
        if not path.exists():
            raise missing(path, "run")
        if not (path / LOCK_FILE).is_file():
            raise UsageError(
                f"{path}: is not the directory of a run, such as runs/NAME (it has no {LOCK_FILE})"
            )
        refuse_devices(path)
        try:
            lock = system.open_file(path / LOCK_FILE, os.O_RDWR)
        except OSError as error:
            raise RunError(f"{path / LOCK_FILE}: cannot be opened ({error.strerror})") from error
        if not _locked(lock):
            raise RunError(f"{path}: another process is using this run; wait for it, or stop it")
        return cls(path, lock)

    def clear(self) -> None:
        """Remove everything but the lock."""
        for path in self.path.iterdir():
            with writing(path, "removed"):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != LOCK_FILE:
                    path.unlink()

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            lock, self._lock = self._lock, None
            with writing(self.path / LOCK_FILE, "closed"):
                os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file of the run, atomically."""
        data = content.encode() if isinstance(content, str) else content
        write_atomically(self.path / name, data)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a mapping as readable JSON."""
        text = json.dumps(content, indent=2, allow_nan=False)
        self.write(name, f"{text}\n")

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"


def environment(threads: int, backend: str) -> dict[str, Any]:
    """Return the versions and settings that determine the bits of a result, besides the config.

    A value is None for a package that is not installed and for an unknown processor; target and
    compiler are None unless the backend is compiled.
    """
    target = chosen_target() if "compiled" in backend else None
    return {
        "packages": {name: _version(name) for name in ("mlpengine", *PACKAGES)},
        "python": platform.python_version(),
        "platform": _platform(),
        "machine": platform.machine(),
        "processor": system.processor(),
        "cores": cores(),
        "blas": blas_name(),
        "threads": threads,
        "backend": backend,
        "target": target and target.level,
        "compiler": target and f"{target.version}, {target.flag}",
    }


def _version(package: str) -> str | None:
    """Return the version of a package without importing it; None if it is not installed."""
    version: str | None = getattr(sys.modules.get(package), "__version__", None)
    if version is None:
        from importlib import metadata  # slow

        with suppress(metadata.PackageNotFoundError):
            version = metadata.version(package)
    return version


def _platform() -> str:
    """Return `platform.platform()` without the processor, because that query starts a process."""
    system, library = platform.uname(), "".join(platform.libc_ver())
    parts = [system.system, system.release, system.machine]
    return "-".join([*parts, "with", library] if library else parts)


def _locked(lock: int, *, otherwise: bool = True) -> bool:
    """Take the lock if no other process holds it; return whether this process may continue."""
    with suppress(OSError):  # some file systems have no locks
        otherwise = system.lock(lock, wait=False)
    if not otherwise:
        os.close(lock)
    return otherwise


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    for number in range(2, MAX_TRIES):
        yield path.with_name(f"{path.name}-{number:03d}")


def refuse_devices(run: Path) -> None:
    """Raise RunError if a file of a run is a pipe or a device; reading it might never end."""
    with writing(run, "read"):
        for path in sorted(run.iterdir()):
            if is_device(path):
                raise RunError(f"{path}: must be a file (it is a pipe or a device); remove it")


def resolved_config(run: Path, advice: str = "") -> Path:
    """Return the config of a run directory.  Raises: UsageError, with advice, if there is none."""
    if is_run(run):
        refuse_devices(run)
        return run / RESOLVED
    if not run.exists():
        raise missing(run, "run")
    if advice:
        raise UsageError(f"{run}: holds no {RESOLVED}{advice}")
    if run.is_file() or any(run.glob("*.safetensors")):
        raise UsageError(f"{run}: the directory of a run is needed, with its {RESOLVED}")
    raise not_a_run(run, f"{RESOLVED}, so it is not a run directory")
