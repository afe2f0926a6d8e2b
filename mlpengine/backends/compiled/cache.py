"""The cache of compiled programs of a user.  The key is source, compiler, flags and processor.

The cache never loads a file that another user could have written.  The directory and its files must
belong to this user, and no other user may write to them or replace a parent directory.  A
``.sha256`` file beside each library holds the SHA-256 of the key and the library.  If the hash does
not match, the library is built again.  The hash is in a file of its own, because a signature by
macOS would change a library after the hash is known.  Writes are atomic.
"""

import atexit
import ctypes
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path

from mlpengine.backends.compiled.target import (
    LEVEL_NAMES,
    SECONDS,
    CompileTarget,
    chosen_level,
    compiler_command,
    compiler_stamp,
    find_target,
    run_compilers,
)
from mlpengine.core import system
from mlpengine.core.errors import CompileError, UsageError, install_line

LIBRARY, DIGEST = ".so", ".sha256"
"""Suffixes of a library and of its hash; Linux, macOS and Windows load libraries of any suffix."""

UNITS = "#if IN_UNIT(1)"
"""A source with this text has two translation units, compiled in parallel (see prelude.h)."""

STALE_SECONDS = 10 * SECONDS
"""Temporary files that are older than this were left by a killed process."""

_loaded: dict[str, ctypes.CDLL] = {}
_targets: dict[str, CompileTarget] = {}


def load_library(
    source: str,
    target: CompileTarget,
    functions: Sequence[str] = (),
) -> ctypes.CDLL:
    """Return the library of `source`; compile it unless the cache has it with all `functions`."""
    text = "\n".join([target.identity, source])
    key = hashlib.sha256(text.encode()).hexdigest()
    if key in _loaded:
        return _loaded[key]
    folder = cache_directory()
    try:
        library = _load_kept(folder, key, functions)
        if library is None:
            _build(folder, key, source, target)
            library = _load_kept(folder, key, functions)
    except OSError as error:
        raise CompileError(f"compiled program: cannot be stored or loaded ({error})") from error
    if library is None:
        raise CompileError(f"compiled program: was built, but cannot be loaded ({folder / key})")
    _loaded[key] = library
    return library


def chosen_target() -> CompileTarget:
    """Return the target for the installed compiler and the level in $MLPENGINE_TARGET."""
    return known_target(compiler(), chosen_level())


def available_targets() -> list[CompileTarget]:
    """Return a target for each level that this processor has, the highest level first."""
    targets, command = [], compiler()
    for level in LEVEL_NAMES:
        with suppress(UsageError):
            targets.append(known_target(command, level))
    return targets


def compiler() -> tuple[str, ...]:
    """Return the command of the installed compiler.  Raises: CompileError if there is none."""
    command = compiler_command()
    if command is None:
        named = os.environ.get("CC")
        raise CompileError(
            f"compiler: $CC must be the command of a C compiler (CC={named!r})"
            if named
            else "compiler: a C compiler must be on PATH or named by $CC; "
            f"{install_line('compiled')} brings one"
        )
    return command


def known_target(command: tuple[str, ...], level: str) -> CompileTarget:
    """Return the target for the compiler `command` and a level.

    The target is cached, because running the compiler takes longer than loading a program.
    Raises: CompileError if the compiler fails; UsageError if the processor lacks the level.
    """
    stamp = hashlib.sha256(f"{compiler_stamp(command)}\n{level}".encode()).hexdigest()
    if stamp not in _targets:
        path = cache_directory() / f"{stamp}.json"
        _targets[stamp] = _read_target(command, path) or _ask_target(command, level, path)
    return _targets[stamp]


def _read_target(command: tuple[str, ...], path: Path) -> CompileTarget | None:
    try:
        fields = json.loads(_read(path).decode())
        target = CompileTarget(**{**fields, "command": tuple(fields["command"])})
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return target if target.command == command else None


def _ask_target(command: tuple[str, ...], level: str, path: Path) -> CompileTarget:
    target = find_target(command, level)
    with suppress(OSError):  # without this file, the next process asks the compiler again
        handle, name = tempfile.mkstemp(prefix=".target-", dir=path.parent)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(target), file)
        os.replace(name, path)
    return target


def cache_directory() -> Path:
    """Return the directory of compiled programs; create it if it does not exist.

    The directory is the first that is available: $MLPENGINE_CACHE, $XDG_CACHE_HOME/mlpengine (if
    absolute), ~/.cache/mlpengine, a temporary directory of this process.
    Raises: CompileError if a directory from the environment cannot be created or is not private.
    """
    named, shared = (os.environ.get(name, "") for name in ("MLPENGINE_CACHE", "XDG_CACHE_HOME"))
    if named:
        return _private(Path(named).absolute())
    if os.path.isabs(shared):
        return _private(Path(shared) / "mlpengine")
    try:
        return _private(Path.home() / ".cache" / "mlpengine")
    except (CompileError, RuntimeError):
        return _temporary_directory()


def _private(folder: Path) -> Path:
    """Create `folder` if needed; raise CompileError if other users could write to or replace it.

    The path must be UTF-8.  Otherwise threadpoolctl, a dependency of scikit-learn, would fail in a
    process that has loaded a library from this path.
    """
    try:
        os.fsencode(folder).decode()
    except UnicodeDecodeError:
        shown = os.fsencode(folder).decode(errors="backslashreplace")
        raise CompileError(f"cache: the path must be UTF-8 ({shown})") from None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_private(folder, os.lstat(folder), stat.S_IFDIR)
        for parent in {*folder.parents, *folder.resolve().parents}:
            _require_firm(folder, parent, os.stat(parent))
    except OSError as error:
        reason = error.strerror or error
        raise CompileError(f"cache: {folder} must be a directory of this user ({reason})") from None
    return folder


@cache
def _temporary_directory() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mlpengine-"))
    atexit.register(_remove_own, folder, os.getpid())
    return folder


def _remove_own(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a forked child
        shutil.rmtree(folder, ignore_errors=True)


def _require_private(path: Path, status: os.stat_result, kind: int) -> None:
    """Raise CompileError unless `path` belongs to this user and no other user may write to it."""
    if stat.S_IFMT(status.st_mode) != kind:
        raise CompileError(f"cache: {path} must be a regular file or directory, not a link")
    if problem := system.other_writers(status):
        raise CompileError(f"cache: {path} {problem}")


def _require_firm(folder: Path, parent: Path, status: os.stat_result) -> None:
    """Raise CompileError if another user could replace an entry of `parent`, such as `folder`."""
    if system.lets_others_replace(status):
        raise CompileError(
            f"cache: {folder} must not lie where others can replace it ({parent} has mode "
            f"{stat.filemode(status.st_mode)}, owner {status.st_uid}); set $MLPENGINE_CACHE to "
            "a private directory"
        )


def _read(path: Path) -> bytes:
    """Return the contents of a file; raise CompileError unless only this user may write to it."""
    _require_private(path, os.lstat(path), stat.S_IFREG)
    return path.read_bytes()


def _load_kept(folder: Path, key: str, functions: Sequence[str]) -> ctypes.CDLL | None:
    """Return the cached library for `key`, or None if it must be built."""
    library = folder / f"{key}{LIBRARY}"
    try:
        digest, content = _read(folder / f"{key}{DIGEST}"), _read(library)
    except FileNotFoundError:
        return None
    exported = all(f"{function}\0".encode() in content for function in functions)
    if digest_of(key, content).encode() != digest or not exported:
        return None
    try:
        return ctypes.CDLL(str(library))
    except OSError:
        return None


def digest_of(key: str, content: bytes) -> str:
    """Return the SHA-256 of a key and its library."""
    return hashlib.sha256(key.encode() + content).hexdigest()


def _build(kept: Path, key: str, source: str, target: CompileTarget) -> None:
    """Compile `source` in a temporary directory, then move library and hash to `kept`."""
    _remove_stale(kept)
    folder = Path(tempfile.mkdtemp(prefix=".build-", dir=kept))
    try:
        text, built = folder / "program.c", folder / f"program{LIBRARY}"
        text.write_text(source, encoding="utf-8")
        compiler = [*target.command, *target.flags]
        parts = [str(text)]
        if UNITS in source:
            parts = [str(folder / f"{unit}.o") for unit in (0, 1)]
            _run(
                [
                    [*compiler, "-c", f"-DUNIT={unit}", str(text), "-o", part]
                    for unit, part in enumerate(parts)
                ],
                folder,
            )
        _run([[*compiler, "-shared", *parts, "-o", str(built), "-lm"]], folder)
        note = folder / f"program{DIGEST}"
        note.write_text(digest_of(key, built.read_bytes()), encoding="ascii")
        with suppress(PermissionError):  # Windows cannot replace a loaded library
            _keep(built, kept / f"{key}{LIBRARY}")
        _keep(note, kept / f"{key}{DIGEST}")
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileError(f"compiled program: cannot be built in {folder} ({error})") from error
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)


def _run(commands: Sequence[list[str]], folder: Path) -> None:
    for done in run_compilers(commands, folder):
        if done.returncode:
            lines = [ln for ln in done.stderr.splitlines() if "error" in ln] or ["no message"]
            raise CompileError(f"compiler: cannot compile the program ({lines[0].strip()})")


def _remove_stale(folder: Path) -> None:
    """Remove the temporary files of processes that were killed while compiling."""
    with suppress(OSError):
        for entry in folder.iterdir():
            if not entry.name.startswith((".build-", ".target-")):
                continue
            with suppress(OSError):
                if time.time() - entry.lstat().st_mtime > STALE_SECONDS:
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _keep(built: Path, path: Path) -> None:
    """Make the file `built` private, flush it to disk and rename it to `path`."""
    os.chmod(built, 0o700)
    system.flush_to_disk(built)
    system.replace(built, path)
