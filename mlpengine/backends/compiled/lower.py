"""Conversion of a program's instructions to kernels ("lowering"), and fusion of kernels."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mlpengine.backends.compiled.batch_norm_rows import BatchNormRows
from mlpengine.backends.compiled.batch_products import BatchProduct
from mlpengine.backends.compiled.column_sum import ColumnSum
from mlpengine.backends.compiled.convolution_rows import ConvolutionRows
from mlpengine.backends.compiled.dropout import Draw
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.layer_norm_rows import LayerNormRows
from mlpengine.backends.compiled.loss_rows import CrossEntropyRows, EntryLossRows, LossRows
from mlpengine.backends.compiled.maps import Map
from mlpengine.backends.compiled.moves import Move
from mlpengine.backends.compiled.normals import NormalRows
from mlpengine.backends.compiled.products import Product
from mlpengine.backends.compiled.selected_entries import SelectedEntries
from mlpengine.backends.compiled.softmax_rows import SoftmaxRows
from mlpengine.backends.compiled.statements import PHASES
from mlpengine.backends.compiled.sums import RowSums
from mlpengine.backends.values import Batch, MatrixValue, Origin, UnsupportedError, Values
from mlpengine.core.spec import Array

KERNELS: list[type[Kernel]] = [
    Product,
    BatchProduct,
    ColumnSum,
    EntryLossRows,
    CrossEntropyRows,
    SoftmaxRows,
    LayerNormRows,
    BatchNormRows,
    ConvolutionRows,
    Draw,
    NormalRows,
    RowSums,
    SelectedEntries,
    Map,
    Move,
]
"""Classes of kernels; the first class that accepts an instruction makes its kernels."""


class Lowered(NamedTuple):
    """The kernels of a program in order, and its values."""

    kernels: list[Kernel]
    values: list[MatrixValue]


def lower(
    instructions: Iterable[InstructionLike],
    lanes: int,
    names: Mapping[int, str],
    batch: Batch | None = None,
    itemsize: int = 0,
    output: Array | None = None,
) -> Lowered:
    """Return the fused kernels of `instructions`; `names` are the C names of arrays by address.

    If `batch` is given, each kernel is assigned to a phase of a step, and floating-point numbers
    must have `itemsize` bytes.  If `output` is given, the program computes only this array.
    Raises: UnsupportedError if an instruction cannot be compiled.
    """
    values, kernels = Values(names, batch), list[Kernel]()
    for instruction in instructions:
        kernels += lower_instruction(instruction, values)
    values.finish(output)
    if batch is not None:
        reads = EarlierReads()
        for kernel in kernels:
            reads.add(kernel)
        need_one_dtype(values.all, itemsize)
    kernels = _needed(kernels)
    kernels = [*_draws(kernels), *fuse([k for k in kernels if not isinstance(k, Draw)])]
    mark_stored(kernels)
    values.place(lanes, _any_length(kernels, lanes))
    return Lowered(kernels, values.all)


def lower_instruction(instruction: InstructionLike, values: Values) -> list[Kernel]:
    """Return the kernels of an instruction; if ``values.batch`` is set, with their phases."""
    kernels = list[Kernel]()
    for kernel in _kernels(instruction, values):  # a later kernel may read results of this one
        if values.batch is not None:
            _find_phase(kernel, values.batch)
        kernels.append(kernel)
    return kernels


def need_one_dtype(values: Iterable[MatrixValue], itemsize: int) -> None:
    """Raise UnsupportedError unless all floating-point numbers have `itemsize` bytes."""
    if any(v.array.dtype.kind == "f" and v.array.itemsize != itemsize for v in values):
        raise UnsupportedError("numbers of several dtypes")


def _kernels(instruction: InstructionLike, values: Values) -> Iterator[Kernel]:
    """Yield the kernels that reshape operands of an instruction, then its own kernels."""
    known = len(values.reshaped)
    for kind in KERNELS:
        if (kernels := kind.lower(instruction, values)) is not None:
            for source, other in values.reshaped[known:]:
                yield Move.reshaped(source, other, values.count(other))
            yield from kernels
            return
    op = instruction.op
    raise UnsupportedError(f"{op.name} {instruction.kind}" if op else instruction.kind)


def _find_phase(kernel: Kernel, batch: Batch) -> None:
    """Set the phase of a kernel, and the origin of its results.

    Raises: UnsupportedError if the kernel's rows are not the rows of the batch, or if the kernel
    reads rows as well as sums over all rows.
    """
    kinds: set[Origin] = {value.kind for value in kernel.reads}
    made: Origin = "sums"
    # A kernel that reads both would need all rows again when the sums are complete.  By then, later
    # chunks of rows have overwritten the values of the first chunks.
    if {"rows", "sums"} <= kinds:
        raise UnsupportedError(f"{kernel.text}: reads rows and sums over all rows")
    if "sums" in kinds:
        kernel.called_in = "finish"
    # Values that do not depend on rows are computed once in each step, before the rows.
    elif kinds == {"parameters"} or not (kinds or kernel.draws):
        kernel.called_in, made = "prepare", "parameters"
    elif kernel.sums_rows:
        kernel.called_in = "reduce"
    else:
        made = "rows"
    over = kernel.reads if kernel.called_in == "reduce" else kernel.writes
    in_batch = kernel.called_in in ("rows", "reduce")
    allowed = kernel.any_phase
    if in_batch:
        allowed = not over or batch.times(over[0].rows) > 0
    if not allowed:
        raise UnsupportedError(f"{kernel.text}: its rows are not the rows of the batch")
    for value in kernel.writes:
        value.kind = made


class EarlierReads:
    """Checks that no kernel overwrites an input of the program before another kernel reads it."""

    def __init__(self) -> None:
        self._reads: list[tuple[Kernel, MatrixValue]] = []

    def add(self, kernel: Kernel) -> None:
        """Add the next kernel.

        Raises: UnsupportedError if the kernel may overwrite an input before an earlier kernel reads
        it.  This is possible if the new kernel runs in an earlier phase, or in the same phase on
        other rows, because some rows run through all kernels before other rows.
        """
        order = PHASES.index(kernel.called_in)
        for written in (value for value in kernel.writes if value.final):
            for reader, read in self._reads:
                if read.overlaps(written):
                    before = PHASES.index(reader.called_in)
                    ends = [(v.address, v.rows, v.columns) for v in (read, written)]
                    if order < before or (order == before and ends[0] != ends[1]):
                        raise UnsupportedError(f"{kernel.text}: overwrites input of {reader.text}")
        self._reads += [(kernel, value) for value in kernel.reads if not value.written]


def _needed(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels with results that the caller or other kernels read."""
    needed, read = list[Kernel](), set[MatrixValue]()
    for kernel in reversed(kernels):
        ends = isinstance(kernel, LossRows) or not kernel.writes
        if ends or any(value.final or value in read for value in kernel.writes):
            needed.append(kernel)
            read.update(kernel.reads)
    return needed[::-1]


def _draws(kernels: list[Kernel]) -> Iterator[Draw]:
    """Yield the kernels that draw dropout masks; masks stay within the program."""
    reads = [value for kernel in kernels for value in kernel.reads]
    has_loss = any(isinstance(kernel, LossRows) for kernel in kernels)
    for kernel in kernels:
        if isinstance(kernel, Draw):
            need_backward(kernel, reads, has_loss=has_loss)
            kernel.out.final = False
            yield kernel


def need_backward(draw: Draw, reads: Sequence[MatrixValue], *, has_loss: bool) -> None:
    """Raise UnsupportedError if backward of a dropout is in another program than the mask."""
    if not has_loss and reads.count(draw.out) < len(("forward", "backward")):
        raise UnsupportedError("dropout: its backward is in another program")


def _any_length(kernels: list[Kernel], lanes: int) -> list[MatrixValue]:
    """Return the written values that no kernel reads or writes in whole vectors."""
    written = [v for kernel in kernels if not kernel.whole_vectors for v in kernel.writes]
    vectors = {v for kernel in kernels for v in kernel.read_by_vectors(lanes)}
    return [v for v in written if v not in vectors]


def fuse(kernels: list[Kernel]) -> list[Kernel]:
    """Fuse element-wise kernels (`Map`) into products, in order.

    A map is fused into the last kernel that computes an operand of the map, if this is a product,
    and if neither this kernel nor a later kernel reads memory that the map overwrites.
    """
    fused: list[Kernel] = []
    for kernel in kernels:
        read = {*kernel.reads}
        place = next((i for i in reversed(range(len(fused))) if read & {*fused[i].writes}), None)
        host = None if place is None else fused[place]
        if (
            isinstance(kernel, Map)
            and isinstance(host, Product)
            and not host.sums_rows
            and kernel.called_in == "rows"
            and not any(_overwrites(kernel, k) for k in fused[place:])
        ):
            host.fuse(kernel)
        else:
            fused.append(kernel)
    return fused


def _overwrites(kernel: Kernel, other: Kernel) -> bool:
    """Return whether `kernel` overwrites an input of the program that `other` reads."""
    return any(v.overlaps(w) for v in other.reads if not v.written for w in kernel.writes)


def mark_stored(kernels: list[Kernel]) -> None:
    """Set `stored` of all values; values that only their own kernel reads stay in registers."""
    readers: dict[MatrixValue, set[int]] = {}
    for i, kernel in enumerate(kernels):
        for value in kernel.reads:
            readers.setdefault(value, set()).add(i)
    for i, kernel in enumerate(kernels):
        for value in kernel.writes:
            value.stored = value.final or bool(readers.get(value, set()) - {i})
