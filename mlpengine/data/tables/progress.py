"""Reports of how much of a long task is done."""

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

Item = TypeVar("Item")
OnProgress = Callable[[float], object]
"""A function that is called repeatedly with the share of the work done so far, 0 to 1."""


def tracked(items: Collection[Item], progress: OnProgress | None) -> Iterator[Item]:
    """Yield the items, and report the share of items so far."""
    for number, item in enumerate(items):
        if progress is not None:
            progress(number / len(items))
        yield item
