"""Reports of the progress of long tasks."""

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

Item = TypeVar("Item")
OnProgress = Callable[[float], object]
"""Function that is called repeatedly with the completed share of the work, 0 to 1."""


def tracked(items: Collection[Item], progress: OnProgress | None) -> Iterator[Item]:
    """Yield the items; before each, report the share of items already yielded."""
    for number, item in enumerate(items):
        if progress is not None:
            progress(number / len(items))
        yield item
