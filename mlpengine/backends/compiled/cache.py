"""Compiled programs, kept per user: compiled once for each source, compiler, flags and processor.

Nothing is executed that another user could have written: the directory and each file must belong to
this user and be writable by nobody else.  A file ends in the SHA-256 of what stands before it (the
loader ignores what follows the sections it knows), so a damaged one is found and built again.
Files appear by renaming, whole or not at all.
"""

import ctypes
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path

from mlpengine.backends.compiled.target import (
    FLAGS,
    SECONDS,
    Target,
    compiler_stamp,
    environment,
    find_target,
)
from mlpengine.errors import CompileError

DIGEST_BYTES = 32


def load(source: str, target: Target, more_flags: Sequence[str] = ()) -> ctypes.CDLL:
    """Return the library of `source`, from the cache or compiled now.

    Raises: CompileError if it cannot be compiled, kept or loaded.
    """
    key = "\n".join([target.identity, *more_flags, source])
    name = hashlib.sha256(key.encode()).hexdigest()
    return _load(name, source, target, tuple(more_flags))


_loaded: dict[str, ctypes.CDLL] = {}
_targets: dict[str, Target] = {}


def remembered_target(command: tuple[str, ...]) -> Target:
    """Return what `command` compiles for, asking it only the first time that it is met.

    Asking takes two processes, which is longer than loading a program.
    Raises: CompileError if it does not answer.
    """
    stamp = hashlib.sha256(compiler_stamp(command).encode()).hexdigest()
    if stamp not in _targets:
        path = cache_directory() / f"{stamp}.json"
        _targets[stamp] = _read_target(path) or _ask_target(command, path)
    return _targets[stamp]


def _read_target(path: Path) -> Target | None:
    try:
        _require_private(path, os.lstat(path))
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Target(**{**fields, "command": tuple(fields["command"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _ask_target(command: tuple[str, ...], path: Path) -> Target:
    target = find_target(command)
    with suppress(OSError):  # it is only asked again
        handle, name = tempfile.mkstemp(prefix=".target-", dir=path.parent)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(target), file)
        os.replace(name, path)
    return target


def _load(name: str, source: str, target: Target, more_flags: tuple[str, ...]) -> ctypes.CDLL:
    if name not in _loaded:
        try:
            path = cache_directory() / f"{name}.so"
            if not is_sound(path):
                _build(path, source, target, more_flags)
            _loaded[name] = ctypes.CDLL(str(path))
        except OSError as error:
            raise CompileError(f"compiled program: must be kept and loaded ({error})") from error
    return _loaded[name]


def cache_directory() -> Path:
    """Return the directory of compiled programs, making it if need be.

    It is $MLPENGINE_CACHE, or ``mlpengine`` in $XDG_CACHE_HOME or in ~/.cache; without a home it is
    a directory that lasts as long as the process.
    Raises: CompileError if it belongs to somebody else or others can write to it.
    """
    named = os.environ.get("MLPENGINE_CACHE")
    if named:
        folder = Path(named)
    elif os.environ.get("XDG_CACHE_HOME"):
        folder = Path(os.environ["XDG_CACHE_HOME"]) / "mlpengine"
    else:
        try:
            folder = Path.home() / ".cache" / "mlpengine"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (OSError, RuntimeError):
            folder = _private_directory()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_private(folder, os.lstat(folder), stat.S_ISDIR)
    return folder


@cache
def _private_directory() -> Path:
    return Path(tempfile.mkdtemp(prefix="mlpengine-"))


def _require_private(path: Path, found: os.stat_result, kind: object = stat.S_ISREG) -> None:
    """Raise CompileError unless `path` is ours alone to write."""
    if not callable(kind) or not kind(found.st_mode):
        raise CompileError(f"cache: {path} must not be a link or another kind of file")
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise CompileError(f"cache: {path} must belong to this user (owner {found.st_uid})")
    if os.name == "posix" and found.st_mode & 0o022:
        mode = stat.filemode(found.st_mode)
        raise CompileError(f"cache: {path} must not be writable by others (mode {mode})")


def is_sound(path: Path) -> bool:
    """Return whether there is a file that ends in the digest of its contents.

    Raises: CompileError if it is not ours alone to write.
    """
    try:
        with open(path, "rb") as file:
            _require_private(path, os.lstat(path))
            content = file.read()
    except FileNotFoundError:
        return False
    body, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    return bool(body) and hashlib.sha256(body).digest() == digest


def _build(path: Path, source: str, target: Target, more_flags: tuple[str, ...]) -> None:
    """Compile into a directory of our own beside `path`, then rename."""
    folder = Path(tempfile.mkdtemp(prefix=".build-", dir=path.parent))
    try:
        text, built = folder / "program.c", folder / "program.so"
        text.write_text(source, encoding="utf-8")
        command = [*target.command, *FLAGS, *more_flags, str(text), "-o", str(built), "-lm"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            env=environment(),
            cwd=folder,
        )
        if done.returncode:
            lines = [ln for ln in done.stderr.splitlines() if "error" in ln] or ["no message"]
            raise CompileError(f"compiler: must accept the program ({lines[0].strip()})")
        _sign(built)
        os.replace(built, path)
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileError(f"compiled program: cannot be built in {folder} ({error})") from error
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)


def _sign(path: Path) -> None:
    """Append the digest, and make sure that all of it has reached the disk."""
    body = path.read_bytes()
    with open(path, "ab") as file:
        file.write(hashlib.sha256(body).digest())
        file.flush()
        os.fsync(file.fileno())
    os.chmod(path, 0o700)
    if path.stat().st_size != len(body) + DIGEST_BYTES:
        raise OSError(f"{path} was not written whole")
