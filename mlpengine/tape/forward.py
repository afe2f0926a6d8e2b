"""The forward half of a plan: values, what backward will need of them, and their storage."""

from collections.abc import Iterable, Sequence
from typing import Literal

from mlpengine.errors import TapeError
from mlpengine.ops._op import residual_names, work_names
from mlpengine.tape.plan import FOREVER, Buffer, Step, Storage, place
from mlpengine.tape.tape import Node, Record, Tape, named_buffers

Checkpointing = Literal["keep", "balanced"]
"""What backward finds in memory: every residual, or only what is dear to compute again."""


class ForwardPlan:
    """The steps that compute `outputs`, and the buffers of every value on the way.

    With `differentiable` False nothing is kept for backward.  `keep` names further nodes whose
    values must survive the replay.  `nbytes` is the size of the arena in bytes.
    """

    def __init__(
        self,
        tape: Tape,
        outputs: Sequence[Node],
        *,
        differentiable: bool = True,
        checkpointing: Checkpointing = "keep",
        keep: Iterable[Node] = (),
    ) -> None:
        if not outputs:
            raise TapeError("program: needs at least one output node")
        self.tape = tape
        self.outputs = tuple(outputs)
        self.records = needed_records(tape, outputs)
        self.kept = {n.index for n in (*outputs, *keep)}
        self.recomputed: set[int] = set()
        if differentiable:
            needed = needed_residuals(self.records)
            self.kept |= residuals_to_keep(self.records, needed, self.kept, checkpointing)
            self.recomputed = set(needed) - self.kept
        self.differentiable = differentiable
        self.buffers: dict[int, Buffer] = {}
        self.saved: dict[int, dict[str, Buffer]] = {}
        self.steps: list[Step] = []
        self._last_use = self._last_uses()
        self._storages: list[Storage] = []
        for time, record in enumerate(self.records):
            self._plan_record(time, record)
        self.nbytes = place(self._storages)

    def buffer(self, node: Node) -> Buffer:
        """Return the buffer of a value; a leaf's belongs to the caller."""
        if node.index not in self.buffers:
            self.buffers[node.index] = Buffer(node.name, node.spec)
        return self.buffers[node.index]

    def survives(self, node: Node) -> bool:
        """Return whether backward finds the value in memory."""
        return node.is_leaf or node.index in self.kept

    def _last_uses(self) -> dict[int, int]:
        uses: dict[int, int] = {}
        for time, record in enumerate(self.records):
            for x in record.operands:
                if x is not None:
                    uses[x.index] = time
        return uses | dict.fromkeys(self.kept, FOREVER)

    def _plan_record(self, time: int, record: Record) -> None:
        operands = tuple(None if x is None else self.buffer(x) for x in record.operands)
        for y in record.outputs:
            last = self._last_use.get(y.index, time)
            storage = self._shared_storage(time, record)
            if storage is None:
                storage = Storage(y.spec.nbytes, time, last)
                self._storages.append(storage)
            storage.last = max(storage.last, last)
            self.buffers[y.index] = Buffer(y.name, y.spec, storage)
        work = self._work(time, record)
        writes = tuple(self.buffers[y.index] for y in record.outputs)
        self.steps.append(Step("forward", record.op, operands, writes, work, record.outputs[0]))

    def _shared_storage(self, time: int, record: Record) -> Storage | None:
        """Return the first operand's storage where the op may write over or view it."""
        op, x = record.op, record.operands[0] if record.operands else None
        if x is None or len(record.outputs) > 1:
            return None
        storage = self.buffer(x).storage
        y = record.outputs[0]
        if storage is None or storage.nbytes != y.spec.nbytes or x.spec.dtype != y.spec.dtype:
            return None
        if op.view:
            return storage
        once = sum(x is other for other in record.operands) == 1
        over = self._last_use.get(x.index) == time and storage.last <= time
        return storage if once and over and "forward" in op.in_place else None

    def _work(self, time: int, record: Record) -> dict[str, Buffer]:
        """Plan the work buffers of forward; those that backward names too are saved for it."""
        op = record.op
        specs = op.work(*(x and x.spec for x in record.operands))
        later = set(work_names(type(op), "backward")) if self.differentiable else set()
        again = any(y.index in self.recomputed for y in record.outputs)
        chosen: dict[str, Buffer] = {}
        for name in work_names(type(op), "forward"):
            last = FOREVER if name in later and not again else time
            storage = Storage(specs[name].nbytes, time, last)
            self._storages.append(storage)
            chosen[name] = Buffer(f"{record.outputs[0].name}.{name}", specs[name], storage)
            if last == FOREVER:
                self.saved.setdefault(record.outputs[0].index, {})[name] = chosen[name]
        return chosen


def needed_records(tape: Tape, outputs: Sequence[Node]) -> list[Record]:
    """Return the records on which `outputs` depend, in order."""
    wanted = {n.index for n in outputs}
    needed = []
    for record in reversed(tape.records):
        if any(y.index in wanted for y in record.outputs):
            wanted |= {x.index for x in record.operands if x is not None}
            needed.append(record)
    return needed[::-1]


def residuals(record: Record) -> list[Node]:
    """Return the nodes whose values the op's `backward` reads."""
    operands = named_buffers(record.op, record.operands)
    nodes: list[Node] = []
    for name in residual_names(type(record.op))[1:]:
        found = record.outputs if name == "y" else operands[name]
        nodes += [n for n in (found if isinstance(found, tuple) else (found,)) if n is not None]
    return nodes


def needed_residuals(records: Sequence[Record]) -> dict[int, Node]:
    """Return the values that some backward rule reads and that are not leaves, by index."""
    return {
        n.index: n
        for r in records
        if any(y.wants_grad for y in r.outputs)
        for n in residuals(r)
        if not n.is_leaf
    }


def residuals_to_keep(
    records: Sequence[Record],
    needed: dict[int, Node],
    kept: set[int],
    checkpointing: Checkpointing,
) -> set[int]:
    """Return the indices of the values that must survive forward.

    Balanced: a residual made by a cheap op is computed again in backward, unless that would keep
    other values alive which together are no smaller.
    """
    if checkpointing == "keep":
        return set(needed)
    maker = {y.index: r for r in records for y in r.outputs}
    chosen = kept | {i for i in needed if not can_recompute(maker[i])}
    for index in sorted(needed):
        if index in chosen:
            continue
        sources = _sources(needed[index], maker, chosen)
        if sum(n.spec.nbytes for n in sources) >= needed[index].spec.nbytes:
            chosen.add(index)
        else:
            chosen |= {n.index for n in sources}
    return chosen


def can_recompute(record: Record) -> bool:
    """Return whether balanced checkpointing may run the op twice."""
    return record.op.cheap and len(record.outputs) == 1


def _sources(node: Node, maker: dict[int, Record], chosen: set[int]) -> list[Node]:
    """Return the values beyond `chosen` that computing `node` again would have to keep."""
    missing: dict[int, Node] = {}
    stack, seen = [node], {node.index}
    while stack:
        for x in maker[stack.pop().index].operands:
            if x is None or x.is_leaf or x.index in chosen or x.index in seen:
                continue
            seen.add(x.index)
            if can_recompute(maker[x.index]):
                stack.append(x)
            else:
                missing[x.index] = x
    return list(missing.values())
