"""Balanced checkpointing: the fewest bytes that must outlive forward.

What backward reads is either kept or computed again by cheap ops.  The least that must be kept is
a minimum cut: water flows from what only dear ops make, along the cheap ops, to what backward
reads, and letting it through an item costs the item's bytes.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mlpengine.ops._op import work_names
from mlpengine.spec import Spec
from mlpengine.tape.record import Record

Item = tuple[str, int]
"""A run of bytes: ("value", index), or ("work", key) for what a record's forward saves."""

UNLIMITED = 1 << 62

GAIN = 1.05
"""A longer run is computed again only if keeping it would take so many times the bytes."""


def shared_work(record: Record) -> dict[str, Spec]:
    """Return the work buffers that forward fills for backward."""
    op = type(record.op)
    names = set(work_names(op, "forward")) & set(work_names(op, "backward"))
    if not names:
        return {}
    specs = record.work_specs
    return {name: specs[name] for name in sorted(names)}


def items_to_keep(
    records: Sequence[Record],
    needed: Collection[Item],
    free: Collection[Item],
    alias: Mapping[int, int],
) -> set[Item]:
    """Return the items that must outlive forward so that backward can have all `needed`.

    Items in `free` outlive it anyhow.  `alias` maps a value to the one whose bytes it shares.
    What is computed again in one go fills memory too, so a run of cheap ops that is so long that
    nothing would be gained keeps what is needed of it.
    """
    steps = [_Step.of(record, alias) for record in records]
    sizes = {item: nbytes for step in steps for item, nbytes in step.made.items()}

    def total(items: Collection[Item]) -> int:
        return sum(sizes[item] for item in items)

    def beyond(room: int) -> set[Item]:
        """Return what is needed of the runs that do not fit into `room` bytes."""
        return {i for nbytes, run in runs if nbytes > room for i in run}.intersection(needed)

    kept, near = _cheapest_cut(steps, set(needed), set(free))
    runs = [(total(run), run) for run in _connected(steps, near - kept)]
    costs = {room: room + total(kept | beyond(room)) for room, _ in runs}
    costs[0] = total(set(needed).difference(free))
    limit = min(room for room, cost in costs.items() if cost <= GAIN * min(costs.values()))
    if not beyond(limit):
        return kept
    return beyond(limit) | items_to_keep(
        records, set(needed) - beyond(limit), {*free, *beyond(limit)}, alias
    )


@dataclass(frozen=True)
class _Step:
    """A record as the cut sees it: the items that it reads, and the bytes of those it makes."""

    sources: set[Item]
    made: dict[Item, int]
    cheap: bool

    @classmethod
    def of(cls, record: Record, alias: Mapping[int, int]) -> "_Step":
        """Return the step of a record; a view makes nothing."""
        operands = [x for x in record.operands if x is not None and not x.is_leaf]
        sources = {("value", alias[x.index]) for x in operands}
        made = {("value", alias[y.index]): y.spec.nbytes for y in record.outputs}
        made["work", record.key] = sum(spec.nbytes for spec in shared_work(record).values())
        made = {item: nbytes for item, nbytes in made.items() if item not in sources}
        return cls(sources, made, record.op.cheap)


def _cheapest_cut(
    steps: Sequence[_Step], needed: set[Item], free: set[Item]
) -> tuple[set[Item], set[Item]]:
    """Return the items to keep, and with them all that are computed again from those.

    Of all sets with the fewest bytes it is the one nearest to backward: least runs again.
    """
    flow = _Flow()
    for step in steps:
        for item in step.made.keys() - free:
            flow.add((item, "in"), (item, "out"), step.made[item])
            if not step.cheap:
                flow.add("dear", (item, "in"), UNLIMITED)
            for source in step.sources - free if step.cheap else ():
                flow.add((source, "out"), (item, "in"), UNLIMITED)
    for item in needed - free:
        flow.add((item, "out"), "backward", UNLIMITED)
    reaching = flow.side_of_sink("dear", "backward")
    near = {item for step in steps for item in step.made if (item, "out") in reaching}
    return {item for item in near if (item, "in") not in reaching}, near


def _connected(steps: Sequence[_Step], items: set[Item]) -> list[set[Item]]:
    """Return `items` in groups that steps connect."""
    groups: list[set[Item]] = []
    for step in steps:
        touched = (step.sources | step.made.keys()) & items
        if touched:
            joined = [group for group in groups if group & touched]
            groups = [group for group in groups if not group & touched]
            groups.append(touched.union(*joined))
    return groups


class _Flow:
    """A network of pipes; pushing as much through as it takes leaves the cheapest cut dry."""

    def __init__(self) -> None:
        self._room: defaultdict[Hashable, dict[Hashable, int]] = defaultdict(dict)
        self._into: defaultdict[Hashable, set[Hashable]] = defaultdict(set)

    def add(self, start: Hashable, end: Hashable, capacity: int) -> None:
        """Lay a pipe."""
        self._room[start][end] = capacity
        self._room[end].setdefault(start, 0)
        self._into[end].add(start)
        self._into[start].add(end)

    def side_of_sink(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """Return what can still reach `sink` once no more flows from `source`.

        Source: Edmonds and Karp 1972, augmentation along shortest paths.
        """
        while path := self._path(source, sink):
            pipes = list(pairwise(path))
            amount = min(self._room[a][b] for a, b in pipes)
            for a, b in pipes:
                self._room[a][b] -= amount
                self._room[b][a] += amount
        return set(self._reaching(sink))

    def _path(self, source: Hashable, sink: Hashable) -> list[Hashable]:
        """Return a shortest path that has room, or nothing."""
        onward = self._reaching(sink)
        if source not in onward:
            return []
        path = [source]
        while path[-1] != sink:
            path.append(onward[path[-1]])
        return path

    def _reaching(self, sink: Hashable) -> dict[Hashable, Hashable]:
        """Return the next node on a shortest path with room, for each node that has one."""
        onward, queue = {sink: sink}, deque([sink])
        while queue:
            end = queue.popleft()
            for start in self._into[end]:
                if start not in onward and self._room[start][end] > 0:
                    onward[start] = end
                    queue.append(start)
        return onward
