"""The base class of kernels, and the instructions that kernels implement."""

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
    """A loss as an instruction: it reads output, target and sample weights.

    It writes the gradient and the value of the loss: `weight` * (sum of the rows' losses) /
    `mean_rows`.  By default, `mean_rows` is the number of rows of the output.
    """

    op: GradOp
    reads: tuple[Array | None, ...]
    writes: tuple[Array | None, ...]
    kind: str = "loss"
    work: Mapping[str, Array] = field(default_factory=dict)
    mean_rows: int | None = None
    weight: float = 1.0


class Kernel(ABC):
    """A part of a program: the values that it reads and writes, and its C code.

    `KERNELS` in lower.py lists the subclasses.

    Attributes:
        text: description for comments and messages.
        reads: values that the kernel reads.
        writes: values that the kernel computes, in memory or in registers.
        header: name (without ``.h``) of a header that this kind of kernel needs; "" for none.
        whole_vectors: whether the kernel writes whole vectors, even beyond the end of a row.
        draws: whether the results are random numbers for each row.
        any_phase: whether the kernel can also run in the phases ``prepare`` and ``finish``.
        called_in: phase of the kernel's functions (see `PHASES`), set by `lower`.
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
        """Return the kernels that implement an instruction; None if it is of another kind."""

    @property
    def sums_rows(self) -> bool:
        """Whether the kernel sums over the batch's rows, as for the gradient of a parameter."""
        return False

    @abstractmethod
    def emit(self, writer: Writer, name: str) -> None:
        """Add the kernel's C functions, with names that begin with `name`, and reserve memory."""

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        """Return scalar statements for exports; raise UnsupportedError if there are none."""
        raise UnsupportedError(self.text)

    def read_by_vectors(self, lanes: int) -> list[MatrixValue]:
        """Return the values that the kernel reads in whole vectors, even beyond a row's end."""
        return []

    def __repr__(self) -> str:
        return self.text


def present(*values: MatrixValue | None) -> list[MatrixValue]:
    """Return the values that are not None."""
    return [value for value in values if value is not None]
