"""Binding of a plan to memory: the steps of the plan become a flat list of calls on arrays."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from mlpengine.backends.backend import Backend, find_backend
from mlpengine.core.buffers import Uncopyable, address_of, quiet_runner, replay, second_call, zeros
from mlpengine.core.errors import NumericalError, TapeError
from mlpengine.core.placement import ALIGNMENT
from mlpengine.core.spec import Array, Call, Calls, call
from mlpengine.core.wording import quoted
from mlpengine.ops import GradOp
from mlpengine.ops.broadcast import unbroadcast
from mlpengine.tape.backward import BackwardPlan
from mlpengine.tape.forward import ForwardPlan
from mlpengine.tape.plan import Buffer, PlannedCall, Slot, StepKind
from mlpengine.tape.record import Value, as_tuple


class Arena(Uncopyable):
    """A block of aligned bytes that holds planned buffers."""

    def __init__(self, nbytes: int) -> None:
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -address_of(raw) % ALIGNMENT
        self.bytes: Array = raw[start : start + nbytes]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.bytes.size

    def array(self, buffer: Buffer) -> Array:
        """Return the array of a planned buffer: a view of the block at the buffer's offset."""
        assert buffer.storage is not None
        start = buffer.storage.offset
        part = self.bytes[start : start + buffer.spec.nbytes]
        return part.view(buffer.spec.dtype).reshape(buffer.spec.shape)


@dataclass(frozen=True, eq=False)
class Instruction(Uncopyable):
    """A step of a plan with its arrays and its calls.

    `reads` and `writes` are in the order of the parameters of `GradOp.forward` or
    `GradOp.backward`.  None is a missing operand, or a gradient that nobody needs.
    """

    kind: StepKind
    op: GradOp | None
    reads: tuple[Array | tuple[Array | None, ...] | None, ...]
    writes: tuple[Array | None, ...]
    work: Mapping[str, Array]
    calls: tuple[Call, ...]
    step: object

    def __str__(self) -> str:
        return f"{self.step}   [{len(self.calls)} calls]"


def bind(
    steps: Sequence[PlannedCall], resolve: Callable[[Buffer], Array], backend: Backend
) -> list[Instruction]:
    """Bind each step to arrays and calls; `resolve` returns the array of a buffer."""

    def array(slot: Slot) -> Array | None:
        return None if slot is None else resolve(slot)

    instructions = []
    for step in steps:
        reads = tuple(
            tuple(array(s) for s in r) if isinstance(r, tuple) else array(r) for r in step.reads
        )
        writes = tuple(array(w) for w in step.writes)
        work = {name: resolve(buffer) for name, buffer in step.work.items()}
        made = _calls(step, reads, writes, work, backend)
        calls = tuple(made) if isinstance(made, Iterable) else (made,)
        wrong = [one for one in calls if not callable(one)]
        if step.op is not None and wrong:
            text = f"{step.kind} must yield calls, such as call(np.tanh, x, out)"
            raise TapeError(f"{step.op.name}: {text} (got {quoted(wrong[0])})")
        instructions.append(Instruction(step.kind, step.op, reads, writes, work, calls, step))
    return instructions


def _calls(
    step: PlannedCall,
    reads: Sequence[Array | tuple[Array | None, ...] | None],
    writes: Sequence[Array | None],
    work: Mapping[str, Array],
    backend: Backend,
) -> Calls:
    if step.op is None:
        return _own_calls(step.kind, reads, writes)
    if step.kind == "backward":
        return backend.rule(step.op, "backward")(*reads, out=writes, **work)
    out = writes[0] if len(writes) == 1 else writes
    return backend.rule(step.op, "forward")(*reads, out=out, **work)


def _own_calls(kind: StepKind, reads: Sequence[object], writes: Sequence[Array | None]) -> Calls:
    """Yield the calls of a step without an op: zero, add, or reduce (undo broadcasting)."""
    (out,) = writes
    assert out is not None
    if kind == "zero":
        yield call(out.fill, 0)
    elif kind == "add":
        yield call(np.add, *reads, out)
    else:
        (wide,) = reads
        assert isinstance(wide, np.ndarray)
        yield from unbroadcast(wide, out)


class _Bound(Uncopyable):
    """Calls on fixed memory."""

    name: ClassVar[str]
    calls: tuple[Call, ...]
    _quietly: Callable[..., Any]

    def run(self) -> None:
        """Run the calls.  Raises: TapeError while another thread runs them."""
        try:
            self._quietly(replay, self.calls)
        except RuntimeError as error:
            if "already entered" in str(error):
                raise second_call(self.name) from error
            raise


class Forward(_Bound):
    """A forward plan bound to memory: the values, and the calls that compute them.

    `leaves` maps node indices to the caller's arrays; this class allocates all other leaves.  The
    values lie in `arena` if it is large enough, else in a new arena.  With `check_finite`, `run`
    raises NumericalError for a value that is not finite.
    """

    name = "forward"

    def __init__(
        self,
        plan: ForwardPlan,
        leaves: Mapping[int, Array],
        backend: str,
        arena: Arena | None = None,
        *,
        check_finite: bool = False,
    ) -> None:
        self.plan = plan
        self.backend = find_backend(backend)
        self.check_finite = check_finite
        self.arena = arena if arena and arena.nbytes >= plan.nbytes else Arena(plan.nbytes)
        self._arrays: dict[Buffer, Array] = {}
        for node in plan.tape.nodes:
            if node.is_leaf:
                array = leaves.get(node.index)
                self._arrays[plan.buffer(node)] = zeros(node.spec) if array is None else array
        self.instructions = bind(plan.steps, self.resolve, self.backend)
        plain = (c for i in self.instructions for c in i.calls)
        checked = _checked_forward(self.instructions)
        self.calls = tuple(checked if check_finite else plain)
        self._quietly = quiet_runner()

    def resolve(self, buffer: Buffer) -> Array:
        """Return the array of a buffer."""
        if buffer not in self._arrays:
            self._arrays[buffer] = self.arena.array(buffer)
        return self._arrays[buffer]

    def value(self, node: Value) -> Array:
        """Return the array that holds the value of `node` after `run`."""
        if not self.plan.survives(node):
            raise TapeError(f"value: {node!r} is not kept; ask for it with keep=[...]")
        return self.resolve(self.plan.buffer(node))


class Backward(_Bound):
    """A backward plan bound to memory, for one `Forward`.

    `gradients` maps indices of leaves to the caller's arrays for their gradients.  `seeds` maps
    indices of outputs to the caller's arrays with their gradients.
    """

    name = "backward"

    def __init__(
        self,
        plan: BackwardPlan,
        forward: Forward,
        gradients: Mapping[int, Array],
        seeds: Mapping[int, Array],
        arena: Arena | None = None,
    ) -> None:
        self.plan = plan
        self.forward = forward
        self.arena = arena if arena and arena.nbytes >= plan.nbytes else Arena(plan.nbytes)
        self._arrays: dict[Buffer, Array] = {plan.seeds[i]: seeds[i] for i in plan.seeds}
        for index, array in gradients.items():
            if index in plan.gradients:
                self._arrays[plan.gradients[index]] = array
        self._planned = {id(s) for s in plan.storages}
        self.instructions = bind(plan.steps, self.resolve, forward.backend)
        plain = (c for i in self.instructions for c in i.calls)
        leaves = [(n.name, self.gradient(n)) for n in plan.wanted]
        checked = _checked_backward(self.instructions, leaves)
        self.calls = tuple(checked if forward.check_finite else plain)
        self._quietly = quiet_runner()

    def resolve(self, buffer: Buffer) -> Array:
        """Return the array of a buffer of this plan or of the forward plan."""
        if buffer not in self._arrays:
            planned = buffer.storage is not None and id(buffer.storage) in self._planned
            self._arrays[buffer] = (
                self.arena.array(buffer) if planned else self.forward.resolve(buffer)
            )
        return self._arrays[buffer]

    def gradient(self, node: Value) -> Array:
        """Return the array that holds the gradient of `node` after `run`."""
        kept = self.plan.gradients.get(node.index)
        if kept is None or not (node.is_leaf or self.plan.retains(node)):
            raise TapeError(f"gradient: {node!r} has none; ask for it with retain=[...]")
        return self.resolve(kept)


def _require_finite(array: Array, what: str) -> None:
    """Raise NumericalError for the first entry that is not finite; `what` names the array."""
    if isfinite(np.add.reduce(array, None)):
        return
    nonfinite = ~np.isfinite(array)  # a sum of finite entries may overflow
    if nonfinite.any():
        place = tuple(int(i) for i in np.argwhere(nonfinite)[0])
        raise NumericalError(f"{what} must be finite ({array[place]} at {place})")


def _checked_forward(instructions: Iterable[Instruction]) -> Calls:
    """Yield the calls of all steps; check the outputs after each step."""
    for one in instructions:
        yield from one.calls
        for y in one.writes:
            if y is not None and y.dtype.kind == "f":
                yield call(_require_finite, y, f"forward: the value of {one.step}")


def _checked_backward(
    instructions: Sequence[Instruction], gradients: Iterable[tuple[str, Array]]
) -> Calls:
    """Yield the calls of all steps; check dy before each op, and `gradients` at the end."""
    for one in instructions:
        if one.kind == "backward":
            what = f"backward: the gradient that reaches {one.step}"
            for dy in as_tuple(one.reads[0]):
                if dy is not None:
                    yield call(_require_finite, dy, what)
        yield from one.calls
    for name, gradient in gradients:
        yield call(_require_finite, gradient, f"backward: the gradient of {name}")
