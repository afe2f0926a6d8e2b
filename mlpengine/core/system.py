"""Differences between operating systems: files, locks, signals, cores.

No other module asks which operating system it runs on.  Windows has no descriptors of directories
and no signals between processes, and it can neither remove nor rename open files.
"""

import os
import shlex
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from errno import ELOOP
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

if sys.platform == "win32":
    import ctypes
    import msvcrt
    from multiprocessing import parent_process
    from multiprocessing.connection import Client, Listener
else:
    import fcntl

if sys.platform == "win32":
    EXIT_CODES = {signal.SIGINT: 130, signal.SIGBREAK: 130, signal.SIGTERM: 143}
else:
    EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
"""Exit codes of a command by signal: Ctrl-C, a closed terminal, or a request to end."""

START_METHOD = "fork" if sys.platform == "linux" else "spawn"
"""Start method of worker processes.  "fork" saves imports, but breaks some libraries of macOS."""

LOCKED_BYTE = 1 << 30
"""Offset of the byte that is locked on Windows, beyond the end of every lock file.

Other processes cannot read a locked byte."""

PATIENCE, PAUSE = 2.0, 0.01
"""Seconds to wait on Windows for a file that is in use: in total, and between two attempts."""


def open_file(path: Path, flags: int, *, follow: bool = True, directory: int | None = None) -> int:
    """Open a binary file that no child process inherits; without `follow`, a link is an OSError."""
    if sys.platform == "win32":
        if not follow and path.is_symlink():
            raise OSError(ELOOP, os.strerror(ELOOP))
        return os.open(path, flags | os.O_BINARY, 0o666)
    return os.open(path, flags | (0 if follow else os.O_NOFOLLOW), 0o666, dir_fd=directory)


@contextmanager
def opened_directory(path: Path, *, follow: bool = True) -> Iterator[tuple[Path, int | None]]:
    """Open a directory; yield a prefix for paths of its files, and the matching ``dir_fd``.

    Except on Windows, such a path stays in the opened directory even if the directory is renamed.
    Without `follow`, a symbolic link is an OSError.
    """
    if sys.platform == "win32":
        yield path, None
        return
    flags = os.O_RDONLY | os.O_DIRECTORY | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        yield Path(), descriptor
    finally:
        os.close(descriptor)


def replace(source: Path, target: Path, directory: int | None = None) -> None:
    """Rename a file; on Windows, wait up to `PATIENCE` seconds while `target` is open."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            os.replace(source, target, src_dir_fd=directory, dst_dir_fd=directory)
            return
        except PermissionError:
            if sys.platform != "win32" or time.monotonic() > end:
                raise
        time.sleep(PAUSE)


def remove_unused(path: Path) -> None:
    """Remove a file if it exists; on Windows, leave a file that is in use."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        if sys.platform != "win32":
            raise


def flush_to_disk(path: Path) -> None:
    """Flush a file or a directory to disk; on Windows, a directory needs no flush."""
    if sys.platform == "win32":
        if path.is_dir():
            return
        descriptor = os.open(path, os.O_RDWR)
    else:
        descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(descriptor: int, *, wait: bool = True) -> bool:
    """Lock a file until it is closed or the process ends; return whether the lock succeeded.

    Without `wait`, return False at once if another process holds the lock.
    Raises: OSError on a file system without locks.
    """
    if sys.platform == "win32":
        while not _lock_byte(descriptor):
            if not wait:
                return False
            time.sleep(PAUSE)
    else:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
    return True


def hold_at_fork(held: AbstractContextManager[object]) -> None:
    """Hold a lock during every fork, so that it is free in the child (Windows has no forks)."""
    if sys.platform != "win32":
        os.register_at_fork(
            before=held.__enter__,
            after_in_parent=lambda: held.__exit__(None, None, None),
            after_in_child=lambda: held.__exit__(None, None, None),
        )


def call_in_forks(action: Callable[[], None]) -> None:
    """Call `action` at the start of every forked child; Windows has no forks."""
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=action)


def end_group(process: "subprocess.Popen[str]") -> None:
    """Kill the leader of a session and its children; on Windows, kill only the process itself."""
    if sys.platform == "win32":
        process.kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def other_writers(status: os.stat_result) -> str:
    """Return why other users could write to a path; "" if they cannot, and always on Windows."""
    if sys.platform == "win32":
        return ""
    if status.st_uid != os.getuid():
        return f"must belong to this user (owner {status.st_uid})"
    if status.st_mode & 0o022:
        return f"must not be writable by others (mode {stat.filemode(status.st_mode)})"
    return ""


def lets_others_replace(status: os.stat_result) -> bool:
    """Return whether other users can replace files in a directory; False on Windows."""
    if sys.platform == "win32":
        return False
    writable = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
    return bool(writable) or status.st_uid not in (0, os.getuid())


@contextmanager
def ends_within(seconds: int) -> Iterator[None]:
    """End the process if a ``with`` block takes longer than `seconds`; no limit on Windows."""
    if sys.platform == "win32":
        yield
        return
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def usable_cores() -> set[int]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        usable: set[int] = os.sched_getaffinity(0)
        return usable
    return set(range(os.cpu_count() or 1))


def processor_lines() -> list[str]:
    """Return the lines of /proc/cpuinfo; [] on other systems than Linux."""
    with suppress(OSError, UnicodeDecodeError):
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return []


def processor() -> str | None:
    """Return the name of the processor on Linux or Windows; None if unknown."""
    for line in processor_lines():
        key, _, name = line.partition(":")
        if key.strip() == "model name":
            return name.strip()
    return os.environ.get("PROCESSOR_IDENTIFIER")  # on Windows


def peak_bytes() -> int | None:
    """Return the peak memory of this process so far, in bytes; None if it is unknown."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def open_files() -> int:
    """Return the number of files and connections that this process may have open."""
    if sys.platform == "win32":
        return 512  # the limit of `select`
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def start_worker() -> None:
    """Ignore Ctrl-C in this worker process, because its parent handles it (see `interrupt`)."""
    if sys.platform == "win32":
        _kernel.SetConsoleCtrlHandler(_ignore_console, True)
        Thread(target=_raise_when_told, args=(Listener(_pipe(os.getpid())),), daemon=True).start()
    else:
        os.setsid()


def interrupt(pid: int) -> None:
    """Interrupt a process that has called `start_worker`, as Ctrl-C would."""
    if sys.platform == "win32":
        try:
            Client(_pipe(pid)).close()
        except FileNotFoundError:  # the process has not begun, or has ended
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)
    else:
        os.kill(pid, signal.SIGINT)


def words_of(command: str) -> list[str]:
    """Split a command line into words; a missing quotation mark is a ValueError."""
    if sys.platform == "win32":
        return [word.strip('"') for word in shlex.split(command, posix=False)]  # keep backslashes
    return shlex.split(command)


def is_orphan(parent: int) -> bool:
    """Return whether the parent of this process, with the id `parent`, has ended."""
    if sys.platform == "win32":
        process = parent_process()
        return process is not None and not process.is_alive()
    return os.getppid() != parent


if sys.platform == "win32":
    LOCK_VIOLATION = 33
    _kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    _ignore_console = ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_uint)(lambda _event: 1)

    def _lock_byte(descriptor: int) -> bool:
        """Try to lock the byte; return whether it worked (Wine's `msvcrt.locking` hides errors)."""
        handle = ctypes.c_void_p(msvcrt.get_osfhandle(descriptor))
        if _kernel.LockFile(handle, LOCKED_BYTE, 0, 1, 0):
            return True
        if (error := ctypes.get_last_error()) != LOCK_VIOLATION:
            raise ctypes.WinError(error)
        return False

    def _pipe(pid: int) -> str:
        return rf"\\.\pipe\mlpengine-{pid}"

    def _raise_when_told(listener: Listener) -> None:
        with listener:
            listener.accept().close()
        signal.raise_signal(signal.SIGINT)
