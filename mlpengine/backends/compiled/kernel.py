"""Kernels, and the instructions that they implement."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.statements import Phase, Statement
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, UnsupportedError, Values
from mlpengine.core.spec import Array
from mlpengine.ops.op import GradOp


class InstructionLike(Protocol):
    """The attributes of an instruction that kernels read (see `mlpengine.tape.binding`)."""

    @property
    def kind(self) -> str: ...
    @property
    def op(self) -> GradOp | None: ...
    @property
    def reads(self) -> Sequence[Any]: ...
    @property
    def writes(self) -> Sequence[Array | None]: ...
    @property
    def work(self) -> Mapping[str, Array]: ...


@dataclass(frozen=True, eq=False, repr=False)
class LossInstruction:
    """A loss as an instruction that reads output, target and sample weights.

    It writes the gradient and the value.  The value is `weight` times the sum of the losses of the
    rows, divided by `mean_rows`.  By default, `mean_rows` is the number of rows of the output.
    """

    op: GradOp
    reads: tuple[Array | None, ...]
    writes: tuple[Array | None, ...]
    kind: str = "loss"
    work: Mapping[str, Array] = field(default_factory=dict)
    mean_rows: int | None = None
    weight: float = 1.0


class Kernel(ABC):
    """A part of a program: the values that it reads and writes, and its C.

    A subclass has all rules of a kind of kernel; `KERNELS` in lower.py lists the subclasses.

    Attributes:
        text: description for comments and messages.
        reads: values that the kernel reads.
        writes: values that the kernel computes, stored or not.
        header: name of a header that the kernel needs besides the common ones, without ``.h``.
        whole_vectors: whether the kernel writes whole vectors, beyond the end of a row.
        draws: whether the results are random numbers for each row.
        any_phase: whether the kernel can also run before or after the rows, once in a step.
        called_in: phase of the kernel's functions, set by `lower`.
    """

    text: str
    reads: list[MatrixValue]
    writes: list[MatrixValue]
    header: ClassVar[str] = ""
    whole_vectors: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    any_phase: ClassVar[bool] = False
    called_in: Phase = "rows"

    @classmethod
    @abstractmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> "Sequence[Kernel] | None":
        """Return the kernels of an instruction; None if another kind of kernel implements it."""

    @property
    def sums_rows(self) -> bool:
        """Whether the kernel sums over the rows of a batch, for the gradient of a parameter."""
        return False

    @abstractmethod
    def emit(self, writer: Writer, name: str) -> None:
        """Add the kernel's C functions, with names from `name`, and reserve their workspace."""

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        """Return the statements on single numbers; raise UnsupportedError if there are none."""
        raise UnsupportedError(self.text)

    def read_by_vectors(self, lanes: int) -> list[MatrixValue]:
        """Return the values that the kernel reads by whole vectors, even at the end of a row."""
        return []

    def __repr__(self) -> str:
        return self.text


def present(*values: MatrixValue | None) -> list[MatrixValue]:
    """Return the values that are not None."""
    return [value for value in values if value is not None]
