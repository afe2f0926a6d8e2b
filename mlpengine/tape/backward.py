"""The backward half of a plan: steps that write and add gradients and recompute values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mlpengine.core.fork_locks import cached_property
from mlpengine.core.placement import Storage, place
from mlpengine.core.spec import Spec
from mlpengine.tape.plan import FOREVER, Buffer, Computed, PlannedCall, Slot
from mlpengine.tape.record import Record, Value, as_tuple, dependents, viewed


@dataclass(eq=False)
class BackwardPlan:
    """The steps from gradients of the outputs to gradients of the `wanted` leaves.

    The caller allocates the gradients of the outputs (seeds) and of the leaves; the plan allocates
    all other gradients.  The gradients of nodes in `retain` stay in memory after the run.

    Every run overwrites every gradient.  In backward order, the first op that reads a value writes
    the gradient of the value.  Each further op writes a temporary buffer, and an "add" step adds
    this buffer.  The gradient of a wanted node that no output depends on is zero.  `like` holds
    the storages of the plan for a larger batch (see `place`).
    """

    forward: Computed
    wanted: Sequence[Value]
    retain: Sequence[Value] = ()
    like: Sequence[Storage] = ()
    steps: list[PlannedCall] = field(default_factory=list)
    gradients: dict[int, Buffer] = field(default_factory=dict)
    seeds: dict[int, Buffer] = field(default_factory=dict)
    storages: list[Storage] = field(default_factory=list)
    _recomputed: dict[int, Buffer] = field(default_factory=dict)
    _recomputed_work: dict[int, dict[str, Buffer]] = field(default_factory=dict)
    _dependent: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._retained = {n.index for n in self.retain}
        self._maker = {y.index: r for r in self.forward.records for y in r.outputs}
        flowing = [r for r in self.forward.records if not r.op.stops_gradient]
        self._dependent = dependents(flowing, (*self.wanted, *self.retain))
        self._plan_seeds()
        # The ops that read a value are recorded after the op that made the value.  So in reverse
        # order, the gradient of a value is complete before the op that made the value reads it.
        for record in reversed(self.forward.records):
            self._plan_record(record)
        for node in (*self.wanted, *self.retain):
            self._gradient_or_zero(node)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of memory for all storages; the first access places the storages."""
        return place(self.storages, like=self.like)

    def retains(self, node: Value) -> bool:
        """Return whether the gradient of `node` stays in memory after a run."""
        return node.index in self._retained or node.index in self.seeds

    @property
    def _now(self) -> int:
        return len(self.steps)

    def _emit(self, step: PlannedCall) -> None:
        for read in (*step.reads, *step.writes, *step.work.values()):
            for buffer in read if isinstance(read, tuple) else (read,):
                if buffer is not None:
                    buffer.read_at(self._now)
        self.steps.append(step)

    def _new(self, label: str, spec: Spec) -> Buffer:
        storage = Storage(spec.nbytes, self._now, self._now)
        self.storages.append(storage)
        return Buffer(label, spec, storage)

    def _plan_seeds(self) -> None:
        """Use the seed of an output as its gradient; copy the seed of a leaf or an operand."""
        consumed = {x.index for r in self.forward.records for x in r.operands if x is not None}
        for node in self.forward.outputs:
            if node.index in self.seeds or node.index not in self._dependent:
                continue
            seed = Buffer(f"seed_{node.name}", node.spec)
            self.seeds[node.index] = seed
            # Later steps add to the gradient of an operand, but must not change the caller's seed.
            if node.index in consumed or node.is_leaf:
                gradient = self._gradient_of(node)
                self._emit(PlannedCall("reduce", None, (seed,), (gradient,)))
            else:
                self.gradients[node.index] = seed

    def _gradient_of(self, node: Value) -> Buffer:
        """Register and return a new buffer for the gradient of `node`."""
        label = f"d_{node.name}"
        buffer = Buffer(label, node.spec) if node.is_leaf else self._new(label, node.spec)
        if node.index in self._retained:
            buffer.read_at(FOREVER)
        self.gradients[node.index] = buffer
        return buffer

    def _plan_record(self, record: Record) -> None:
        has_gradient = [y.index in self.gradients for y in record.outputs]
        wanted = [x is not None and x.index in self._dependent for x in record.operands]
        if not any(has_gradient) or not any(wanted):
            return
        dys = tuple(self._gradient_or_zero(y) for y in record.outputs)
        reads = self._residuals(record, dys if len(dys) > 1 else dys[0])
        work = self._work(record)
        slots: list[Slot] = []
        after: list[PlannedCall] = []
        for position, (x, wants) in enumerate(zip(record.operands, wanted, strict=True)):
            if x is None or not wants:
                slots.append(None)
                continue
            slot, steps = self._slot(record, position, x)
            slots.append(slot)
            after += steps
        node = record.outputs[0]
        self._emit(PlannedCall("backward", record.op, reads, tuple(slots), work, node))
        for step in after:
            self._emit(step)

    def _gradient_or_zero(self, node: Value) -> Buffer:
        """Return the gradient of a node; if there is none yet, plan a step that sets it to 0."""
        if node.index not in self.gradients:
            self._emit(PlannedCall("zero", None, (), (self._gradient_of(node),)))
        return self.gradients[node.index]

    def _slot(self, record: Record, position: int, x: Value) -> tuple[Buffer, list[PlannedCall]]:
        """Return the buffer for the gradient of operand `x`, and the steps to run after the op."""
        y = record.outputs[0]
        full = y.spec.shape if record.op.broadcasts else x.spec.shape
        label = f"d_{x.name}.addend"
        first = x.index not in self.gradients
        if first and full == x.spec.shape:
            return self._in_place(record, position, x) or self._gradient_of(x), []
        slot = self._new(label, Spec(full, x.spec.dtype))
        if full == x.spec.shape:
            return slot, [self._add(x, slot)]
        if first:
            return slot, [PlannedCall("reduce", None, (slot,), (self._gradient_of(x),))]
        reduced = self._new(f"{label}.reduced", x.spec)
        return slot, [PlannedCall("reduce", None, (slot,), (reduced,)), self._add(x, reduced)]

    def _add(self, x: Value, slot: Buffer) -> PlannedCall:
        gradient = self.gradients[x.index]
        return PlannedCall("add", None, (gradient, slot), (gradient,))

    def _in_place(self, record: Record, position: int, x: Value) -> Buffer | None:
        """Return a buffer for dx in the storage of dy, or None if dx needs its own storage."""
        op, y = record.op, record.outputs[0]
        dy = self.gradients[y.index]
        if position or len(record.outputs) > 1 or x.is_leaf or dy.storage is None:
            return None
        same_size = dy.storage.nbytes == x.spec.nbytes and dy.spec.dtype == x.spec.dtype
        # All gradients have been added to dy.  Only this op still reads dy, unless dy is retained.
        retained = dy.storage.last == FOREVER
        if not same_size or retained or not (op.view or "backward" in op.in_place):
            return None
        self.gradients[x.index] = Buffer(f"d_{x.name}", x.spec, dy.storage)
        if x.index in self._retained:
            self.gradients[x.index].read_at(FOREVER)
        return self.gradients[x.index]

    def _residuals(
        self, record: Record, dy: Buffer | tuple[Slot, ...]
    ) -> tuple[Slot | tuple[Slot, ...], ...]:
        """Return the buffers that `backward` of the op reads; recompute values not in memory."""
        values = {**record.named_operands, "y": record.outputs}
        reads: list[Slot | tuple[Slot, ...]] = [dy]
        for name in record.op.signature.residuals[1:]:
            buffers = tuple(None if x is None else self._value(x) for x in as_tuple(values[name]))
            several = isinstance(values[name], tuple) and (name != "y" or len(buffers) > 1)
            reads.append(buffers if several else buffers[0])
        return tuple(reads)

    def _value(self, node: Value) -> Buffer:
        """Return the buffer of a value; plan to recompute a value that is not in memory."""
        if self.forward.survives(node):
            return self.forward.buffer(node)
        if node.index not in self._recomputed:
            self._recompute(self._maker[node.index])
        return self._recomputed[node.index]

    def _recompute(self, record: Record) -> None:
        """Plan to run the forward of a record again, with new buffers for outputs and work."""
        reads = tuple(None if x is None else self._value(x) for x in record.operands)
        x = viewed(record)
        for y in record.outputs:
            label = f"{y.name}.recomputed"
            view = None if x is None else Buffer(label, y.spec, self._value(x).storage)
            self._recomputed[y.index] = view or self._new(label, y.spec)
        writes = tuple(self._recomputed[y.index] for y in record.outputs)
        work = self._new_work(record, record.op.signature.work["forward"])
        self._recomputed_work[record.key] = work
        self._emit(PlannedCall("recompute", record.op, reads, writes, work, record.outputs[0]))

    def _new_work(self, record: Record, names: Iterable[str]) -> dict[str, Buffer]:
        names = list(names)
        specs = record.work_specs if names else {}
        return {name: self._new(f"{record.outputs[0].name}.{name}", specs[name]) for name in names}

    def _work(self, record: Record) -> dict[str, Buffer]:
        """Return the work buffers of the op's `backward`: kept, recomputed or new."""
        names = record.op.signature.work["backward"]
        shared = set(names) & set(record.op.signature.work["forward"])
        saved = self.forward.saved.get(record.key, {})
        if shared - set(saved) and record.key not in self._recomputed_work:
            # Rematerialization did not keep the work buffers of forward; fill new buffers.
            self._recompute(record)
        available = {**self._recomputed_work.get(record.key, {}), **saved}
        own = self._new_work(record, [name for name in names if name not in shared])
        return {name: own[name] if name in own else available[name] for name in names}
