"""Planning: the buffer of each value, gradient and workspace, and its lifetime.

A plan consists of `Buffer`s and `PlannedCall`s and allocates no memory.  Time is the position in
the list of steps; a buffer lives from the step that writes it to the last that reads it, and
storages share bytes if their lifetimes do not overlap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from mlpengine.core.placement import Storage
from mlpengine.core.spec import Spec
from mlpengine.ops import GradOp
from mlpengine.tape.record import Record, Value

FOREVER = 1 << 60
"""The time of the last read of a buffer that outlives the replay."""

StepKind = Literal["forward", "recompute", "backward", "reduce", "add", "zero"]


@dataclass(eq=False)
class Buffer:
    """A typed array of the plan.  One without storage belongs to the caller (leaves, seeds)."""

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
    """One instruction before it is bound to memory.

    `reads` are in the order of the rule's positional parameters; an operand that was left out is
    None.  `writes` are the outputs (forward) or the gradient slots (backward).  The kinds ``add``,
    ``reduce`` and ``zero`` are the program's own: they accumulate, undo broadcasting and clear.
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
    """A forward that ran, for a `BackwardPlan`."""

    @property
    def outputs(self) -> Sequence[Value]:
        """The values with given gradients."""

    @property
    def records(self) -> Sequence[Record]:
        """The ops that ran, in order."""

    @property
    def saved(self) -> Mapping[int, Mapping[str, Buffer]]:
        """The work buffers that outlived forward, by the key of their record."""

    def buffer(self, value: Value) -> Buffer:
        """Return the buffer of a value."""

    def survives(self, value: Value) -> bool:
        """Return whether the value is in memory during backward."""
