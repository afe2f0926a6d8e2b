"""Placement of buffers in one block of memory; buffers in use at different times may overlap."""

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

ALIGNMENT = 64
"""Size in bytes of a cache line and of the widest vector register."""


@dataclass(eq=False)
class Storage:
    """A range of bytes that is in use from the step `first` to the step `last`."""

    nbytes: int
    first: int
    last: int
    offset: int = -1


def place(
    storages: Iterable[Storage], alignment: int = ALIGNMENT, like: Sequence[Storage] = ()
) -> int:
    """Set the offset of every storage; return the size of the memory block in bytes.

    Offsets are multiples of `alignment`.  `like` are storages with known offsets.  The offsets are
    reused if every ``storages[i]`` has the lifetime of ``like[i]`` and is not larger.

    Otherwise storages are placed by size, the largest first.  Each storage gets the lowest offset
    at which it shares no bytes with storages that are in use at the same time.
    Source: Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference",
    arXiv 2001.03288, section 5.2 (greedy by size).
    """
    storages = [*storages]
    # A short last batch gets the offsets of a whole batch, so that one compiled program runs both.
    if _fit(storages, like):
        for storage, model in zip(storages, like, strict=True):
            storage.offset = model.offset
        return max((-(-s.nbytes // alignment) * alignment + s.offset for s in like), default=0)
    placed: list[tuple[int, int, Storage]] = []  # start, end; sorted
    for storage in sorted(storages, key=lambda s: -s.nbytes):
        size = -(-storage.nbytes // alignment) * alignment
        offset, first, last = 0, storage.first, storage.last
        for start, end, other in placed:
            if other.first > last or first > other.last:
                continue  # their lifetimes do not overlap
            # `placed` is sorted by offset, so this finds the lowest gap that is wide enough.
            if start - offset >= size:
                break
            offset = max(offset, end)
        storage.offset = offset
        insort(placed, (offset, offset + size, storage), key=itemgetter(0))
    return max((end for _, end, _ in placed), default=0)


def _fit(storages: Sequence[Storage], like: Sequence[Storage]) -> bool:
    """Return whether each storage has the lifetime of its counterpart and is not larger."""
    return len(storages) == len(like) and all(
        s.nbytes <= model.nbytes and (s.first, s.last) == (model.first, model.last)
        for s, model in zip(storages, like, strict=True)
    )
