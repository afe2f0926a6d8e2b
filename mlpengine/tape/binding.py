"""Binding: a plan's steps on real memory, as a flat list of calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlpengine.backends import Backend
from mlpengine.buffers import Uncopyable, address_of
from mlpengine.ops import GradOp
from mlpengine.ops._broadcast import unbroadcast
from mlpengine.placement import ALIGNMENT
from mlpengine.spec import Array, Call, Calls, call
from mlpengine.tape.plan import Buffer, Slot, Step, StepKind


class Arena(Uncopyable):
    """A run of aligned bytes in which planned buffers are laid out."""

    def __init__(self, nbytes: int) -> None:
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -address_of(raw) % ALIGNMENT
        self.bytes: Array = raw[start : start + nbytes]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.bytes.size

    def array(self, buffer: Buffer) -> Array:
        """Return the planned buffer as an array; storage decides where, spec decides what."""
        assert buffer.storage is not None
        start = buffer.storage.offset
        part = self.bytes[start : start + buffer.spec.nbytes]
        return part.view(buffer.spec.dtype).reshape(buffer.spec.shape)


@dataclass(frozen=True, eq=False)
class Instruction(Uncopyable):
    """One bound step: the op and direction, the arrays it reads and writes, and its calls.

    `reads` and `writes` are in the order of the op's rule (see `GradOp`); None stands for an
    operand that was left out and for a gradient that nobody wants.
    """

    kind: StepKind
    op: GradOp | None
    reads: tuple[Array | tuple[Array | None, ...] | None, ...]
    writes: tuple[Array | None, ...]
    work: Mapping[str, Array]
    calls: tuple[Call, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.text}   [{len(self.calls)} calls]"


def bind(
    steps: Sequence[Step], resolve: Callable[[Buffer], Array], backend: Backend
) -> list[Instruction]:
    """Turn steps into instructions: arrays from `resolve`, calls from the ops' rules."""

    def array(slot: Slot) -> Array | None:
        return None if slot is None else resolve(slot)

    instructions = []
    for step in steps:
        reads = tuple(
            tuple(array(s) for s in r) if isinstance(r, tuple) else array(r) for r in step.reads
        )
        writes = tuple(array(w) for w in step.writes)
        work = {name: resolve(buffer) for name, buffer in step.work.items()}
        calls = tuple(_calls(step, reads, writes, work, backend))
        instructions.append(Instruction(step.kind, step.op, reads, writes, work, calls, str(step)))
    return instructions


def _calls(
    step: Step,
    reads: Sequence[Array | tuple[Array | None, ...] | None],
    writes: Sequence[Array | None],
    work: Mapping[str, Array],
    backend: Backend,
) -> Calls:
    if step.op is None:
        return _own_calls(step.kind, reads, writes)
    size = max((s.spec.size for s in step.writes if s is not None), default=0)
    if step.kind == "backward":
        return backend.rule(step.op, "backward", size)(*reads, out=writes, **work)
    out = writes[0] if len(writes) == 1 else writes
    return backend.rule(step.op, "forward", size)(*reads, out=out, **work)


def _own_calls(kind: StepKind, reads: Sequence[object], writes: Sequence[Array | None]) -> Calls:
    """The program's own work: clear a gradient, add one, undo broadcasting."""
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
