"""The memory that a call takes, as Python and NumPy report it."""

import tracemalloc
from collections.abc import Callable
from typing import Any


def traced(call: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """Return the result of a call, and the bytes that it holds at its peak."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        result = call(*arguments)
        return result, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def least_peak(call: Callable[..., Any], *arguments: Any) -> int:
    """Return the bytes that a call holds at its peak, the least of three times.

    Other threads and a measurement of coverage allocate now and then, too.
    """
    return min(traced(call, *arguments)[1] for _ in range(3))
