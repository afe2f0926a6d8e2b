"""Locks that are free in a forked child, even if another thread of the parent uses them."""

import functools
import threading
from contextlib import nullcontext
from typing import TypeVar

from mlpengine.core.system import hold_at_fork

T = TypeVar("T")


def process_lock() -> threading.RLock:
    """Return a re-entrant lock for data that must be consistent in a forked child.

    A fork waits until no other thread holds the lock, so the lock is free in the child.  Make such
    locks at module level only, because Python never frees them.
    """
    lock = threading.RLock()
    hold_at_fork(lock)
    return lock


class cached_property(functools.cached_property[T]):  # noqa: N801
    """`functools.cached_property` without the lock of Python 3.11.

    All objects of a class share that lock.  If another thread computes a value during a fork, the
    lock stays locked in the child forever.  Without the lock, as in Python 3.12, two threads may
    compute the same value.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self.lock = nullcontext()
