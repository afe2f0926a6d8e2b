"""How many threads the matrix products get: by a rule on the shapes, so that bits repeat."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from threadpoolctl import threadpool_info, threadpool_limits

PRODUCTS_PER_THREAD = 2**22
"""Multiplications of the largest layer for each thread: with twice as many a second one gains some
40 % (`benchmarks/threads.py`), with fewer often nothing."""


def choose_threads(sizes: Sequence[int], batch_size: int) -> int:
    """Return the number of threads, BLAS's and a compiled step's, for a network of these sizes.

    It depends on the shapes and on the number of cores only, so a config gives the same bits twice
    on one machine.
    """
    largest = max(batch_size * in_dim * out_dim for in_dim, out_dim in pairwise(sizes))
    return max(1, min(cores(), largest // PRODUCTS_PER_THREAD))


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Hold BLAS, and NumExpr where it is loaded, to this many threads."""
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
