"""Reporting how much of a long piece of work is done."""

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

Item = TypeVar("Item")
OnProgress = Callable[[float], object]
"""A function that is called repeatedly with the share of the work that is done, from 0 to 1."""


def tracked(items: Collection[Item], progress: OnProgress | None) -> Iterator[Item]:
    """Yield the items, and report the share of them that is done."""
    for number, item in enumerate(items):
        if progress is not None:
            progress(number / len(items))
        yield item


def progress_within(progress: OnProgress | None, start: float, stop: float) -> OnProgress | None:
    """Return the progress function of the part of the work between shares `start` and `stop`."""
    if progress is None:
        return None
    return lambda share: progress(start + share * (stop - start))
