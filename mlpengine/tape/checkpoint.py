"""Balanced checkpointing: the fewest bytes that must outlive forward.

What backward reads is either kept or computed again by cheap ops.  The least that must be kept is
a minimum cut: water flows from what only dear ops make, along the cheap ops, to what backward
reads, and letting it through an item costs the item's bytes.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import pairwise

from mlpengine.ops._op import work_names
from mlpengine.spec import Spec
from mlpengine.tape.record import Record

Item = tuple[str, int]
"""A run of bytes: ("value", index), or ("work", key) for what a record's forward saves."""

UNLIMITED = 1 << 62


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
    needed: Iterable[Item],
    free: Collection[Item],
    alias: Mapping[int, int],
) -> set[Item]:
    """Return the items that must outlive forward so that backward can have all `needed`.

    Items in `free` outlive it anyhow.  `alias` maps a value to the one whose bytes it shares.  Of
    all sets with the fewest bytes this is the one nearest to backward: least is computed again.
    """
    flow = _Flow()
    items: set[Item] = set()
    for record in records:
        operands = [x for x in record.operands if x is not None and not x.is_leaf]
        sources = {("value", alias[x.index]) for x in operands}
        made = {("value", alias[y.index]): y.spec.nbytes for y in record.outputs}
        made["work", record.key] = sum(spec.nbytes for spec in shared_work(record).values())
        for item in made.keys() - sources - set(free):
            items.add(item)
            flow.add((item, "in"), (item, "out"), made[item])
            if record.op.cheap:
                for source in sources.difference(free):
                    flow.add((source, "out"), (item, "in"), UNLIMITED)
            else:
                flow.add("dear", (item, "in"), UNLIMITED)
    for item in set(needed).difference(free):
        flow.add((item, "out"), "backward", UNLIMITED)
    near = flow.side_of_sink("dear", "backward")
    return {item for item in items if (item, "in") not in near and (item, "out") in near}


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
