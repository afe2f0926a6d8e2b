"""Limits on the threads of BLAS and NumExpr.

The default is one: a second thread makes a large step about 40 % faster on an idle machine, but on
a busy one each product takes as long as the slower of the two.  Ten epochs of 40,000 rows through
26-256-128-1 took 5.0 s with one thread and 27.6 s with two on two shared cores of a Xeon, and
15.6 s and 64.7 s beside two busy loops (November 2026).
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_info, threadpool_limits


def usable_cores() -> set[int]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(usable_cores())


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Limit BLAS, and NumExpr where it is loaded, to this many threads."""
    numexpr: Any = sys.modules.get("numexpr")
    before = numexpr.set_num_threads(threads) if numexpr else 0
    try:
        with threadpool_limits(limits=threads, user_api="blas"):
            yield
    finally:
        if numexpr:
            numexpr.set_num_threads(before)


def blas_name() -> str:
    """Return name and version of the BLAS in use."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return ", ".join(f"{pool['internal_api']} {pool['version']}" for pool in pools) or "unknown"
