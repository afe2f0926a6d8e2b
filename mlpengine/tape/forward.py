"""The forward half of a plan: steps, the storage of values, and the values kept for backward."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mlpengine.core.errors import TapeError, UsageError
from mlpengine.core.placement import Storage, place
from mlpengine.tape.plan import FOREVER, Buffer, PlannedCall
from mlpengine.tape.record import Record, Value, aliases, needed_records, viewed
from mlpengine.tape.rematerialization import Rematerialization, items_to_keep, shared_work
from mlpengine.tape.tape import Tape

if TYPE_CHECKING:
    from mlpengine.tape.backward import BackwardPlan


class ForwardPlan:
    """The steps that compute `outputs`, and the buffers of all values.

    Unless `differentiable`, no value is kept for backward.  The values of the nodes `keep` stay in
    memory after the run.  `nbytes` is the number of bytes for all storages.  `like` are the
    storages of the plan for a larger batch (see `place`).  `backward` are backward plans, shared by
    equal networks.
    """

    def __init__(
        self,
        tape: Tape,
        outputs: Sequence[Value],
        *,
        differentiable: bool = True,
        rematerialization: Rematerialization = "keep",
        keep: Iterable[Value] = (),
        like: Sequence[Storage] = (),
    ) -> None:
        if rematerialization not in ("keep", "balanced"):
            raise UsageError(
                f"rematerialization: must be keep or balanced (got {rematerialization!r})"
            )
        if not outputs:
            raise TapeError("program: needs at least one output node")
        wanted = (*outputs, *keep)
        self.tape = tape
        self.outputs = tuple(outputs)
        self.differentiable = differentiable
        self.records = needed_records(tape.records, wanted)
        self._alias = aliases(self.records)
        self._kept = {self._root(x) for x in wanted}
        self._kept_work: set[int] = set()
        if differentiable:
            self._keep_for_backward(rematerialization)
        self.buffers: dict[int, Buffer] = {}
        self.saved: dict[int, dict[str, Buffer]] = {}
        self.steps: list[PlannedCall] = []
        self._last_use = self._last_uses()
        self.storages: list[Storage] = []
        for time, record in enumerate(self.records):
            self._plan_record(time, record)
        self.nbytes = place(self.storages, like=like)
        self.backward: dict[tuple[Any, ...], BackwardPlan] = {}

    def buffer(self, value: Value) -> Buffer:
        """Return the buffer of a value; buffers of leaves are the caller's memory."""
        if value.index not in self.buffers:
            self.buffers[value.index] = Buffer(value.name, value.spec)
        return self.buffers[value.index]

    def survives(self, value: Value) -> bool:
        """Return whether the value is in memory during backward."""
        return value.is_leaf or self._root(value) in self._kept

    def _root(self, value: Value) -> int:
        """Return the index of the value whose memory `value` uses (see `aliases`)."""
        return self._alias.get(value.index, value.index)

    def _keep_for_backward(self, rematerialization: Rematerialization) -> None:
        records = [r for r in self.records if any(y.wants_grad for y in r.outputs)]
        # Only values that backward reads are kept; later steps may overwrite all other values.
        read = [x for r in records for x in r.residuals if not x.is_leaf]
        needed = {("value", self._root(x)) for x in read}
        needed |= {("work", r.key) for r in records if shared_work(r)}
        if rematerialization == "balanced":
            # Outputs stay in memory anyway, so keeping them for backward costs nothing.
            free = {("value", index) for index in self._kept}
            needed = items_to_keep(self.records, needed, free, self._alias)
        self._kept |= {index for kind, index in needed if kind == "value"}
        self._kept_work = {key for kind, key in needed if kind == "work"}

    def _last_uses(self) -> dict[int, int]:
        uses: dict[int, int] = {}
        for time, record in enumerate(self.records):
            # later steps replace earlier steps
            uses |= {x.index: time for x in record.operands if x is not None}
        for record in self.records:
            uses |= {y.index: FOREVER for y in record.outputs if self.survives(y)}
        return uses

    def _plan_record(self, time: int, record: Record) -> None:
        operands = tuple(None if x is None else self.buffer(x) for x in record.operands)
        for y in record.outputs:
            last = self._last_use.get(y.index, time)
            storage = self._shared_storage(time, record)
            if storage is None:
                storage = Storage(y.spec.nbytes, time, last)
                self.storages.append(storage)
            # A shared storage must live until the last use of the operand and of the output.
            storage.last = max(storage.last, last)
            self.buffers[y.index] = Buffer(y.name, y.spec, storage)
        work = self._work(time, record)
        writes = tuple(self.buffers[y.index] for y in record.outputs)
        self.steps.append(
            PlannedCall("forward", record.op, operands, writes, work, record.outputs[0])
        )

    def _shared_storage(self, time: int, record: Record) -> Storage | None:
        """Return the first operand's storage, or None if the output must not use it, too."""
        x, y = viewed(record), record.outputs[0]
        if x is not None:
            return self.buffer(x).storage
        x = record.operands[0] if record.operands else None
        if x is None or x.is_leaf or len(record.outputs) > 1 or "forward" not in record.op.in_place:
            return None
        storage = self.buffer(x).storage
        assert storage is not None
        # An in-place op overwrites x.  No later step may read x or a view of x (`storage.last`).
        # No other operand may share the storage, because the op may read that operand later.
        same_size = storage.nbytes == y.spec.nbytes and x.spec.dtype == y.spec.dtype
        others = [self.buffer(other).storage for other in record.operands[1:] if other is not None]
        last_use = storage.last <= time and self._last_use[x.index] == time
        return storage if same_size and last_use and storage not in others else None

    def _work(self, time: int, record: Record) -> dict[str, Buffer]:
        """Return new work buffers; buffers that backward reads are kept until then."""
        saved = set(shared_work(record)) if record.key in self._kept_work else set()
        names = record.op.signature.work["forward"]
        specs = record.work_specs if names else {}
        buffers: dict[str, Buffer] = {}
        for name in names:
            last = FOREVER if name in saved else time
            storage = Storage(specs[name].nbytes, time, last)
            self.storages.append(storage)
            buffers[name] = Buffer(f"{record.outputs[0].name}.{name}", specs[name], storage)
        if saved:
            self.saved[record.key] = {name: buffers[name] for name in saved}
        return buffers
