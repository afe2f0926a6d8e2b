"""Kernels, and the instructions that they are made of."""

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
    """The attributes read from an instruction (see `mlpengine.tape.binding.Instruction`)."""

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
    """A bound loss as an instruction: reads output, target, weight; writes gradient and value.

    The value is a sum over rows divided by `mean_rows`, by default the rows of the output, times
    `weight`, and so is the gradient.
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

    A subclass has all rules of one kind of kernel; `KERNELS` in lower.py is the table of them.

    Attributes:
        text: a description, for comments and messages.
        reads: the values that it reads.
        writes: the values that it computes, stored or not.
        header: the header, without ``.h``, of functions that it calls beside the usual ones.
        whole_vectors: whether it writes whole vectors, beyond the end of a row.
        draws: whether its results are random, and differ from row to row.
        any_phase: whether it may also process the rows of parameters and of gradients.
        called_in: the phase of its functions, found by `lower`.
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
        """Return the kernels of an instruction, or None if it is for another kind of kernel.

        Raises: UnsupportedError if there is no compiled rule for these operands.
        """

    @property
    def sums_rows(self) -> bool:
        """Whether it sums over the rows of a batch, into the gradient of a parameter."""
        return False

    @abstractmethod
    def emit(self, writer: Writer, name: str) -> None:
        """Add its C functions, called `name`, and reserve their workspace."""

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        """Return its statements on scalars.

        Raises: UnsupportedError if it has none.
        """
        raise UnsupportedError(self.text)

    def read_by_vectors(self, lanes: int) -> list[MatrixValue]:
        """Return the values that it reads by whole vectors even if rows have any length."""
        return []

    def __repr__(self) -> str:
        return self.text


def present(*values: MatrixValue | None) -> list[MatrixValue]:
    """Return the values that are not None."""
    return [value for value in values if value is not None]
