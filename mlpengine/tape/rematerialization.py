"""Rematerialization: the choice between keeping values for backward and computing them again.

A value that backward reads is kept, or cheap ops compute it again from kept values.  The fewest
bytes to keep are a minimum s-t cut.  The source leads to results of expensive ops, and the values
that backward reads lead to the sink.  Edges follow cheap ops, and an item's capacity is its size in
bytes.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from mlpengine.core.spec import Spec
from mlpengine.tape.record import Record

Rematerialization = Literal["keep", "balanced"]
"""The values that outlive forward.

``keep``: all values that backward reads.  ``balanced``: the fewest bytes that give them back."""

StoredItem = tuple[str, int]
"""What can be kept: ("value", index), or ("work", key) for the work buffers of a record."""

UNLIMITED = 1 << 62
"""Capacity of edges that no minimum cut contains."""

MIN_GAIN = 1.05
"""Longer chains are recomputed only if keeping them takes more than this multiple of the bytes."""


def shared_work(record: Record) -> dict[str, Spec]:
    """Return the work buffers that forward fills for backward."""
    op = record.op
    names = set(op.signature.work["forward"]) & set(op.signature.work["backward"])
    if not names:
        return {}
    specs = record.work_specs
    return {name: specs[name] for name in sorted(names)}


def items_to_keep(
    records: Sequence[Record],
    needed: Collection[StoredItem],
    free: Collection[StoredItem],
    alias: Mapping[int, int],
) -> set[StoredItem]:
    """Return the items that must outlive forward, so that backward gets all of `needed`.

    Items in `free` outlive forward in any case.  `alias` maps a value to the owner of its bytes.
    Recomputing a chain of cheap ops takes memory, too.  If a chain is too long to save memory, the
    items that backward needs from the chain are kept.
    """
    steps = [_Step.of(record, alias) for record in records]
    sizes = {item: nbytes for step in steps for item, nbytes in step.made.items()}

    def total(items: Collection[StoredItem]) -> int:
        return sum(sizes[item] for item in items)

    def needed_of_longer(limit: int) -> set[StoredItem]:
        """Return the needed items of chains with more than `limit` bytes."""
        return {i for nbytes, chain in chains if nbytes > limit for i in chain}.intersection(needed)

    # The cut counts kept bytes only.  Recomputed values also take memory while backward is in
    # their chain.  Backward is in one chain at a time, so the longest chain counts.  Try each limit
    # of length; keep the items of longer chains.
    kept, sink_side = _minimum_cut(steps, set(needed), set(free))
    chains = [(total(chain), chain) for chain in _connected(steps, sink_side - kept)]
    costs = {limit: limit + total(kept | needed_of_longer(limit)) for limit, _ in chains}
    costs[0] = total(set(needed).difference(free))
    # Several limits may cost about the same; the lowest limit recomputes least.
    limit = min(n for n, cost in costs.items() if cost <= MIN_GAIN * min(costs.values()))
    longer = needed_of_longer(limit)
    if not longer:
        return kept
    # The kept items also shorten other chains, so compute the cut again.
    return longer | items_to_keep(records, set(needed) - longer, {*free, *longer}, alias)


class _Step(NamedTuple):
    """The items that a record reads; the items that it writes, with their bytes."""

    sources: set[StoredItem]
    made: dict[StoredItem, int]
    cheap: bool

    @classmethod
    def of(cls, record: Record, alias: Mapping[int, int]) -> "_Step":
        """Return the step of a record; a view writes no item."""
        operands = [x for x in record.operands if x is not None and not x.is_leaf]
        sources = {("value", alias[x.index]) for x in operands}
        made = {("value", alias[y.index]): y.spec.nbytes for y in record.outputs}
        made["work", record.key] = sum(spec.nbytes for spec in shared_work(record).values())
        made = {item: nbytes for item, nbytes in made.items() if item not in sources}
        return cls(sources, made, record.op.cheap)


def _minimum_cut(
    steps: Sequence[_Step], needed: set[StoredItem], free: set[StoredItem]
) -> tuple[set[StoredItem], set[StoredItem]]:
    """Return the items to keep, and all items on the sink's side: kept or computed from them.

    If several sets have the fewest bytes, the set nearest to backward is returned: it recomputes
    least.
    """
    network = _FlowNetwork()
    for step in steps:
        # An item is two nodes; the edge between them has the item's bytes as capacity, and cutting
        # it means keeping the item.  All other edges have unlimited capacity, so no minimum cut
        # contains them.
        for item in step.made.keys() - free:
            network.add_edge((item, "in"), (item, "out"), step.made[item])
            if not step.cheap:
                network.add_edge("expensive", (item, "in"), UNLIMITED)
            for source in step.sources - free if step.cheap else ():
                network.add_edge((source, "out"), (item, "in"), UNLIMITED)
    for item in needed - free:
        network.add_edge((item, "out"), "backward", UNLIMITED)
    reached = network.sink_side("expensive", "backward")
    sink_side = {item for step in steps for item in step.made if (item, "out") in reached}
    return {item for item in sink_side if (item, "in") not in reached}, sink_side


def _connected(steps: Sequence[_Step], items: set[StoredItem]) -> list[set[StoredItem]]:
    """Split `items` into groups; steps connect the items of a group."""
    groups: list[set[StoredItem]] = []
    for step in steps:
        connected = (step.sources | step.made.keys()) & items
        if connected:
            joined = [group for group in groups if group & connected]
            groups = [group for group in groups if not group & connected]
            groups.append(connected.union(*joined))
    return groups


class _FlowNetwork:
    """A directed graph with capacities, for the minimum cut between two of its nodes."""

    def __init__(self) -> None:
        self._residual: defaultdict[Hashable, dict[Hashable, int]] = defaultdict(dict)
        self._predecessors: defaultdict[Hashable, set[Hashable]] = defaultdict(set)

    def add_edge(self, start: Hashable, end: Hashable, capacity: int) -> None:
        """Add an edge, and a reverse edge with capacity 0."""
        self._residual[start][end] = capacity
        self._residual[end].setdefault(start, 0)
        self._predecessors[end].add(start)
        self._predecessors[start].add(end)

    def sink_side(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """Return the sink's side of the last minimum cut (Edmonds and Karp 1972)."""
        while path := self._augmenting_path(source, sink):
            edges = list(pairwise(path))
            amount = min(self._residual[a][b] for a, b in edges)
            for a, b in edges:
                self._residual[a][b] -= amount
                self._residual[b][a] += amount
        return set(self._successors_toward(sink))

    def _augmenting_path(self, source: Hashable, sink: Hashable) -> list[Hashable]:
        """Return a shortest path with residual capacity, or []."""
        successors = self._successors_toward(sink)
        if source not in successors:
            return []
        path = [source]
        while path[-1] != sink:
            path.append(successors[path[-1]])
        return path

    def _successors_toward(self, sink: Hashable) -> dict[Hashable, Hashable]:
        """Return the next node on a shortest residual path to `sink`, for each node with a path."""
        successors, queue = {sink: sink}, deque([sink])
        while queue:
            end = queue.popleft()
            for start in self._predecessors[end]:
                if start not in successors and self._residual[start][end] > 0:
                    successors[start] = end
                    queue.append(start)
        return successors
