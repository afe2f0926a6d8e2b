"""Locks that are free in a forked child, even if a thread of the parent held them."""

import functools
import threading
from contextlib import nullcontext
from typing import TypeVar

from mlpengine.core.system import hold_at_fork

T = TypeVar("T")


def process_lock() -> threading.RLock:
    """Return a re-entrant lock for data that must be consistent in a forked child.

    A fork waits until no other thread holds the lock, so the child finds it free.  Make such locks
    at module level only: they are never removed.
    """
    lock = threading.RLock()
    hold_at_fork(lock)
    return lock


class cached_property(functools.cached_property[T]):  # noqa: N801
    """`functools.cached_property` without the lock of Python 3.11.

    That lock belongs to the class: a fork would leave it locked while another thread computes the
    value for any object of the class.  As in later versions, two threads may compute a value.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self.lock = nullcontext()
