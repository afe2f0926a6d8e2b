"""The graph behind eager tensors: the ops that ran, and the arrays saved for backward.

As in a program, a `BackwardPlan` plans the steps.  But each step is bound and run by itself, and an
array is freed after the last step that reads the array.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from mlpengine.backends.backend import NUMPY
from mlpengine.core.buffers import replay
from mlpengine.core.errors import TapeError
from mlpengine.core.placement import Storage
from mlpengine.core.spec import Array, Spec
from mlpengine.ops.op import GradOp
from mlpengine.tape.backward import BackwardPlan
from mlpengine.tape.binding import Arena, bind
from mlpengine.tape.plan import Buffer
from mlpengine.tape.record import Record, Value, ValueKind
from mlpengine.tape.rematerialization import shared_work

_numbers = count()


@dataclass(eq=False)
class Computation:
    """An op that ran, with the `arrays` (by value index) and `work` that its `backward` reads."""

    record: Record
    parents: tuple["Computation", ...]
    arrays: dict[int, Array]
    work: dict[str, Array]
    retained: set[int] = field(default_factory=set)
    consumed: bool = False

    def consume(self) -> None:
        """Release the saved arrays, so that no further backward is possible."""
        self.consumed = True
        self.parents = ()
        self.arrays.clear()
        self.work.clear()


def new_value(spec: Spec, name: str, kind: ValueKind, *, wants_grad: bool) -> Value:
    """Return a value with the next index, which is higher than the indices of its operands."""
    return Value(next(_numbers), name, spec, kind, wants_grad)


def run_forward(
    op: GradOp, arrays: Sequence[Array | None], specs: Sequence[Spec]
) -> tuple[tuple[Array, ...], dict[str, Array]]:
    """Run an op; return its outputs, which have `specs`, and its work buffers, as new arrays."""
    outputs = tuple(np.empty(y.shape, y.dtype) for y in specs)
    names = op.signature.work["forward"]
    needed = op.work(*(None if x is None else Spec.of(x) for x in arrays)) if names else {}
    work = {name: np.empty(needed[name].shape, needed[name].dtype) for name in names}
    out = outputs if len(outputs) > 1 else outputs[0]
    with np.errstate(all="ignore"):
        replay(list(op.forward(*arrays, out=out, **work)))
    return outputs, work


def save_for_backward(
    record: Record,
    arrays: Iterable[tuple[Value | None, Array | None]],
    work: dict[str, Array],
    parents: Iterable[Computation | None],
) -> Computation:
    """Return a computation that holds the arrays and work buffers that `backward` reads."""
    read = {x.index for x in record.residuals}
    saved = {x.index: a for x, a in arrays if x is not None and a is not None and x.index in read}
    saved_work = {name: work[name] for name in shared_work(record)}
    distinct = dict.fromkeys(p for p in parents if p is not None)
    return Computation(record, tuple(distinct), saved, saved_work)


def computations_behind(root: Computation | None) -> list[Computation]:
    """Return `root` and the computations that it depends on, in the order in which they ran."""
    reached: set[Computation] = set()
    stack = [root] if root is not None else []
    while stack:
        computation = stack.pop()
        if computation in reached:
            continue
        if computation.consumed:
            raise TapeError(
                f"backward: the graph of {computation.record.op.name} was consumed by an earlier "
                f"backward; keep it with retain_graph=True"
            )
        reached.add(computation)
        stack += computation.parents
    return sorted(reached, key=lambda c: c.record.key)


class _Trace:
    """The computations of an eager forward as a `Computed`, for a `BackwardPlan`."""

    def __init__(self, computations: Sequence[Computation], root: Value) -> None:
        self.outputs = (root,)
        self.records = [c.record for c in computations]
        self.arrays: dict[Buffer, Array] = {}
        self.saved: dict[int, dict[str, Buffer]] = {}
        self._buffers: dict[int, Buffer] = {}
        self._values: dict[int, Array] = {}
        for c in computations:
            self._values |= c.arrays
            named = {n: Buffer(f"{c.record.op.name}.{n}", Spec.of(a)) for n, a in c.work.items()}
            self.saved[c.record.key] = named
            self.arrays |= {named[n]: a for n, a in c.work.items()}

    def survives(self, value: Value) -> bool:
        """Return True, because the graph keeps every value that backward reads."""
        return True

    def buffer(self, value: Value) -> Buffer:
        if value.index not in self._buffers:
            buffer = self._buffers[value.index] = Buffer(value.name, value.spec)
            self.arrays[buffer] = self._values[value.index]
        return self._buffers[value.index]


def leaf_gradients(computations: Sequence[Computation], root: Value) -> dict[int, Array]:
    """Return the gradients of `root` for tracked leaves and retained values."""
    operands = [x for c in computations for x in c.record.operands if x is not None]
    leaves = {x.index: x for x in (*operands, root) if x.is_leaf and x.wants_grad}
    retained = [y for c in computations for y in c.record.outputs if y.index in c.retained]
    trace = _Trace(computations, root)
    plan = BackwardPlan(trace, list(leaves.values()), retained)
    arrays = trace.arrays
    arrays |= {b: np.ones(b.spec.shape, b.spec.dtype) for b in plan.seeds.values()}
    results = {x.index: plan.gradients[x.index] for x in (*leaves.values(), *retained)}
    for buffer in results.values():
        if buffer.storage is None and buffer not in arrays:
            arrays[buffer] = np.empty(buffer.spec.shape, buffer.spec.dtype)
    memory = _Memory(plan, arrays)
    with np.errstate(all="ignore"):
        for time, step in enumerate(plan.steps):
            replay(bound for i in bind([step], memory.resolve, NUMPY) for bound in i.calls)
            memory.release(time)
    return {index: memory.resolve(buffer) for index, buffer in results.items()}


class _Memory:
    """Memory of a plan: each storage is allocated at its first use and freed after its last use."""

    def __init__(self, plan: BackwardPlan, arrays: dict[Buffer, Array]) -> None:
        self._arrays = arrays
        self._arenas: dict[Storage, Arena] = {}
        self._ends: defaultdict[int, list[Storage]] = defaultdict(list)
        for storage in plan.storages:
            storage.offset = 0
            self._ends[storage.last].append(storage)

    def resolve(self, buffer: Buffer) -> Array:
        """Return the array of a buffer."""
        if buffer.storage is None:
            return self._arrays[buffer]
        arena = self._arenas.get(buffer.storage)
        if arena is None:
            arena = self._arenas[buffer.storage] = Arena(buffer.storage.nbytes)
        return arena.array(buffer)

    def release(self, time: int) -> None:
        """Free the storages that the step at `time` uses last."""
        for storage in self._ends.pop(time, ()):
            self._arenas.pop(storage, None)
