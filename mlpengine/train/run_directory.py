"""The directory of one run: made by one process, never used by another run."""

import json
import os
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mlpengine.errors import RunError
from mlpengine.nn.tensors import write_atomically
from mlpengine.train.files import writing
from mlpengine.train.threads import blas_name, cores

LOCK_FILE = "run.lock"
PACKAGES = ("mlpengine", "numexpr", "numpy", "safetensors", "threadpoolctl")
MAX_TRIES = 10_000


class RunDirectory:
    """A directory that belongs to one run.

    Several processes may ask for the same name at once: each gets a directory of its own, because
    a directory belongs to whoever makes its lock file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> "RunDirectory":
        """Make `path`, or `path`-002, -003, ... if that one is taken.

        An existing directory is taken unless it is empty.
        Raises: RunError if no directory can be made.
        """
        for candidate in _candidates(path.absolute()):
            try:
                candidate.mkdir(parents=True, exist_ok=True)
                if any(candidate.iterdir()):
                    continue
                os.close(os.open(candidate / LOCK_FILE, os.O_CREAT | os.O_EXCL, 0o666))
            except FileExistsError:
                continue
            except OSError as error:
                raise RunError(
                    f"{candidate}: cannot make the run directory ({error.strerror})"
                ) from error
            return cls(candidate)
        raise RunError(f"{path}: {MAX_TRIES} runs of this name exist; remove some or give a name")

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file of the run, whole or not at all."""
        data = content.encode() if isinstance(content, str) else content
        with writing(self.path / name):
            write_atomically(self.path / name, data)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a mapping as readable JSON."""
        self.write(name, json.dumps(content, indent=2, allow_nan=False) + "\n")

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"


def environment(threads: int) -> dict[str, Any]:
    """Return what besides the config decides the bits of a result."""
    return {
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": cores(),
        "blas": blas_name(),
        "threads": threads,
    }


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    for number in range(2, MAX_TRIES):
        yield path.with_name(f"{path.name}-{number:03d}")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
