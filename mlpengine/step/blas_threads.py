"""Limits on the threads of BLAS and NumExpr.

The default is one thread.  On an idle machine, a second thread makes a large step faster.  On a
busy machine, each product takes as long as the slowest thread (docs/background/speed.md).
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from threadpoolctl import ThreadpoolController

from mlpengine.core.fork_locks import process_lock
from mlpengine.core.system import usable_cores

_pinned: ContextVar[int | None] = ContextVar("pinned", default=None)
"""Maximum number of threads that predict within `pinned`; None outside of it."""


def cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use; a quota of 1.5 cores counts as 1."""
    return max(1, int(min(len(usable_cores()), cpu_quota(root))))


def cpu_quota(root: Path = Path("/")) -> float:
    """Return the CPU quota of this process in cores, such as 1.5; infinity without a quota.

    Linux control groups (containers) set quotas.  The smallest quota (``cpu.max``) of the process's
    group and its parent groups counts.  Groups that the container hides are left out.
    """
    top, quotas = root / "sys/fs/cgroup", [inf]
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return inf
    for path in (line.removeprefix("0::") for line in lines if line.startswith("0::")):
        group = top if ".." in path else top / path.lstrip("/")
        folders = [one for one in (group, *group.parents) if one.is_relative_to(top)]
        quotas += [_quota(one / "cpu.max") for one in folders]
    return min(quotas)


def _quota(file: Path) -> float:
    """Return the quota of one control group, in cores."""
    try:
        quota, period = file.read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no file, or "max"
        return inf


@contextmanager
def pinned(blas: int, predicting: int = 0) -> Iterator[None]:
    """Limit BLAS and NumExpr to `blas` threads, predictions to `predicting` (0 means `blas`)."""
    numexpr: Any = sys.modules.get("numexpr")
    before = numexpr.set_num_threads(min(blas, numexpr.MAX_THREADS)) if numexpr else 0
    token = _pinned.set(predicting or blas)
    try:
        with _libraries().limit(limits=blas):
            yield
    finally:
        _pinned.reset(token)
        if numexpr:
            numexpr.set_num_threads(before)


def threads_allowed() -> int:
    """Return the maximum number of threads that predict: the limit of `pinned`, or all cores."""
    return _pinned.get() or cores()


def _libraries() -> ThreadpoolController:
    return _libraries_with(len(sys.modules))


@lru_cache(maxsize=1)
def _libraries_with(modules: int) -> ThreadpoolController:
    """Return the loaded BLAS libraries, cached until the number of imported modules changes."""
    return ThreadpoolController().select(user_api="blas")


class _OneBlasThread:
    """Limits BLAS to one thread while a thread of this process is in `one_blas_thread`."""

    def __init__(self) -> None:
        self._lock, self._users = process_lock(), 0

    def enter(self) -> None:
        with self._lock:
            if not self._users:
                blas = _libraries().lib_controllers
                self._before = [(library, library.num_threads) for library in blas]
                for library in blas:
                    library.set_num_threads(1)
            self._users += 1

    def leave(self) -> None:
        """Restore the number of threads after the last user."""
        with self._lock:
            self._users -= 1
            if not self._users:
                for library, threads in self._before:
                    library.set_num_threads(threads)


_one = _OneBlasThread()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread; several Python threads may enter at the same time."""
    if _pinned.get() == 1:  # already limited
        yield
        return
    _one.enter()
    try:
        yield
    finally:
        _one.leave()


def blas_name() -> str:
    """Return name and version of each loaded BLAS, such as "openblas 0.3.27"."""
    names = sorted(f"{pool['internal_api']} {pool['version']}" for pool in _libraries().info())
    return ", ".join(names) or "unknown"
