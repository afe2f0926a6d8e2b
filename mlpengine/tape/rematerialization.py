"""Rematerialization: the choice between keeping values for backward and computing them again.

A value that backward reads is kept, or cheap ops compute the value again from kept values.  The
choice with the fewest bytes is a minimum cut of a flow network.  The nodes are the values; the
capacity of a node is the size of the value in bytes, and to cut a node means to keep the value.
The edges have unlimited capacity.  They lead from the source to the results of expensive ops, from
operands of cheap ops to their results, and from the values that backward reads to the sink.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from mlpengine.core.spec import Spec
from mlpengine.tape.record import Record

Rematerialization = Literal["keep", "balanced"]
"""Which values stay in memory until backward.

``keep``: all values that backward reads.  ``balanced``: the smallest set from which cheap ops can
compute these values."""

StoredItem = tuple[str, int]
"""Memory that can be kept: ("value", index), or ("work", record key) for work buffers."""

UNLIMITED = 1 << 62
"""Capacity of edges that no minimum cut contains."""

TOLERATED = 1.05
"""Memory may be up to this multiple of the minimum if fewer values are then recomputed."""


def shared_work(record: Record) -> dict[str, Spec]:
    """Return the specs of the work buffers that forward fills for backward."""
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
    """Return the items to keep until backward, so that backward gets all of `needed`.

    Items in `free` are kept anyway.  `alias` maps a value to the value whose memory it uses (see
    `aliases`).  Computing a chain of cheap ops again takes memory for all values of the chain.  If
    a chain is too long to save memory, the items that backward needs from the chain are kept.
    """
    steps = [_Step.of(record, alias) for record in records]
    sizes = {item: nbytes for step in steps for item, nbytes in step.made.items()}

    def total(items: Collection[StoredItem]) -> int:
        return sum(sizes[item] for item in items)

    def needed_of_longer(limit: int) -> set[StoredItem]:
        """Return the needed items of chains with more than `limit` bytes."""
        return {i for nbytes, chain in chains if nbytes > limit for i in chain}.intersection(needed)

    # The cut counts kept bytes only, but recomputed values also take memory.  Backward recomputes
    # one chain at a time, so the longest chain determines this memory.  Try each length as a limit,
    # and keep the needed items of longer chains.
    kept, sink_side = _minimum_cut(steps, set(needed), set(free))
    chains = [(total(chain), chain) for chain in _connected(steps, sink_side - kept)]
    costs = {limit: limit + total(kept | needed_of_longer(limit)) for limit, _ in chains}
    costs[0] = total(set(needed).difference(free))
    # Of limits with about equal memory, take the lowest, because it recomputes least.
    limit = min(n for n, cost in costs.items() if cost <= TOLERATED * min(costs.values()))
    longer = needed_of_longer(limit)
    if not longer:
        return kept
    # These items also shorten other chains, so compute the cut again.
    return longer | items_to_keep(records, set(needed) - longer, {*free, *longer}, alias)


class _Step(NamedTuple):
    """A record as items: `sources` are read; `made` are written, with their sizes in bytes."""

    sources: set[StoredItem]
    made: dict[StoredItem, int]
    cheap: bool

    @classmethod
    def of(cls, record: Record, alias: Mapping[int, int]) -> "_Step":
        """Return the step of a record; a view makes no item."""
        operands = [x for x in record.operands if x is not None and not x.is_leaf]
        sources = {("value", alias[x.index]) for x in operands}
        made = {("value", alias[y.index]): y.spec.nbytes for y in record.outputs}
        made["work", record.key] = sum(spec.nbytes for spec in shared_work(record).values())
        made = {item: nbytes for item, nbytes in made.items() if item not in sources}
        return cls(sources, made, record.op.cheap)


def _minimum_cut(
    steps: Sequence[_Step], needed: set[StoredItem], free: set[StoredItem]
) -> tuple[set[StoredItem], set[StoredItem]]:
    """Return the items to keep, and the sink's side: these items and the items to recompute.

    Of several sets with the fewest bytes, return the set that needs the least recomputation.
    """
    network = _FlowNetwork()
    for step in steps:
        # A node with a capacity is written as an edge with this capacity between two nodes.  All
        # other edges are unlimited, so no minimum cut contains them.
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
    """Split `items` into the sets that are connected by steps."""
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
        """Return the sink's side of the minimum cut nearest to the sink (Edmonds and Karp 1972)."""
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
