"""Locks that a forked child finds free, whatever the threads of its parent were doing."""

import functools
import threading
from contextlib import nullcontext
from typing import TypeVar

from mlpengine.core.system import hold_at_fork

T = TypeVar("T")


def process_lock() -> threading.RLock:
    """Return a re-entrant lock for a whole process, free and its data whole in a forked child.

    A fork waits until no other thread holds the lock.  Only a module makes one: it stays forever.
    """
    lock = threading.RLock()
    hold_at_fork(lock)
    return lock


class cached_property(functools.cached_property[T]):  # noqa: N801
    """That of `functools`, without the lock that it has in Python 3.11.

    That lock belongs to the class, and a fork would leave it locked where another thread computes
    the value for any of its objects.  As in later versions, two threads may both compute a value.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self.lock = nullcontext()
