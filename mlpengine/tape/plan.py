"""Planning: the buffer and the lifetime of each value, gradient and workspace.

A plan consists of `Buffer`s and `PlannedCall`s; it allocates no memory.  Time is the position in
the list of steps.  A buffer lives from the step that writes it to the last step that reads it.
Storages may share bytes if their lifetimes do not overlap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from mlpengine.core.placement import Storage
from mlpengine.core.spec import Spec
from mlpengine.ops import GradOp
from mlpengine.tape.record import Record, Value

FOREVER = 1 << 60
"""Time of the last read of a buffer that stays valid after the last step."""

StepKind = Literal["forward", "recompute", "backward", "reduce", "add", "zero"]


@dataclass(eq=False)
class Buffer:
    """An array of a plan; a buffer without storage (leaf or seed) is the caller's memory."""

    label: str
    spec: Spec
    storage: Storage | None = None

    def read_at(self, time: int) -> None:
        """Keep the storage alive until `time`."""
        if self.storage is not None:
            self.storage.last = max(self.storage.last, time)


Slot = Buffer | None


@dataclass(eq=False)
class PlannedCall:
    """A step of a plan, not yet bound to memory.

    `reads` are in the order of the op's positional parameters; None is a missing operand.
    `writes` are the outputs (forward) or the gradients of the operands (backward).  Three kinds of
    steps have no op: ``add`` adds buffers, ``reduce`` undoes broadcasting, ``zero`` clears.
    """

    kind: StepKind
    op: GradOp | None
    reads: tuple[Slot | tuple[Slot, ...], ...]
    writes: tuple[Slot, ...]
    work: Mapping[str, Buffer] = field(default_factory=dict)
    node: Value | None = None

    def __str__(self) -> str:
        name = self.op.name if self.op else self.kind
        reads = ", ".join(_label(r) for r in self.reads)
        return f"{self.kind:<9} {name}({reads}) -> {', '.join(_label(w) for w in self.writes)}"


def _label(slot: Slot | tuple[Slot, ...]) -> str:
    if isinstance(slot, tuple):
        return "(" + ", ".join(_label(s) for s in slot) + ")"
    return slot.label if slot else "-"


class Computed(Protocol):
    """The interface of a forward computation that a `BackwardPlan` reads."""

    @property
    def outputs(self) -> Sequence[Value]:
        """The values for which the caller gives gradients."""

    @property
    def records(self) -> Sequence[Record]:
        """The ops that ran, in order."""

    @property
    def saved(self) -> Mapping[int, Mapping[str, Buffer]]:
        """The work buffers that are kept for backward, by the key of their record."""

    def buffer(self, value: Value) -> Buffer:
        """Return the buffer of a value."""

    def survives(self, value: Value) -> bool:
        """Return whether the value is in memory during backward."""
