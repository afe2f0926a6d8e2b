"""Lowering of instructions to kernels."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mlpengine.backends.compiled.batch_norm import BatchNormRows
from mlpengine.backends.compiled.batch_products import BatchProduct
from mlpengine.backends.compiled.column_sum import ColumnSum
from mlpengine.backends.compiled.convolution import ConvolutionRows
from mlpengine.backends.compiled.dropout import Draw
from mlpengine.backends.compiled.elementwise import Map
from mlpengine.backends.compiled.embeddings import EmbeddingSums, PeriodicForward
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.loss_rows import CrossEntropyRows, EntryLossRows, LossRows
from mlpengine.backends.compiled.moves import Move
from mlpengine.backends.compiled.normalization import LayerNormRows
from mlpengine.backends.compiled.normals import NormalRows
from mlpengine.backends.compiled.products import Product
from mlpengine.backends.compiled.softmax import SoftmaxRows
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
    PeriodicForward,
    EmbeddingSums,
    RowSums,
    Map,
    Move,
]
"""The table of kernels; the first one that takes an instruction lowers it."""


class Lowered(NamedTuple):
    """The kernels of a program in order, fused, and its values."""

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
    """Return the kernels of `instructions`; `names` gives C names to arrays by address.

    With a `batch` each kernel is placed in a phase of a step, and the numbers have `itemsize`
    bytes.  With an `output` the program computes that array alone.
    Raises: UnsupportedError where an instruction has no compiled rule.
    """
    values, kernels = Values(names, batch), list[Kernel]()
    for instruction in instructions:
        for kernel in _kernels(instruction, values):
            if batch is not None:
                _find_phase(kernel, batch)
            kernels.append(kernel)
    values.finish(output)
    if batch is not None:
        _need_order(kernels)
        if any(v.array.dtype.kind == "f" and v.array.itemsize != itemsize for v in values.all):
            raise UnsupportedError("numbers of several dtypes")
    kernels = _needed(kernels)
    kernels = [*_draws(kernels), *fuse([k for k in kernels if not isinstance(k, Draw)])]
    mark_stored(kernels)
    values.place(lanes, _any_length(kernels, lanes))
    return Lowered(kernels, values.all)


def _kernels(instruction: InstructionLike, values: Values) -> Iterator[Kernel]:
    """Yield the kernels of an instruction, after those that give another shape to what it reads."""
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
    """Set the phase of a kernel, and what its results follow from.

    Raises: UnsupportedError if it can only go over the rows of a batch, and these are others, or
        if it needs sums that are known when the rows are through.
    """
    kinds: set[Origin] = {value.kind for value in kernel.reads}
    made: Origin = "sums"
    if {"rows", "sums"} <= kinds:
        raise UnsupportedError(f"{kernel.text}, rows with sums over all of them")
    if "sums" in kinds:
        kernel.called_in = "finish"
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
        raise UnsupportedError(f"{kernel.text}, in other rows than the batch's")
    for value in kernel.writes:
        value.kind = made


def _need_order(kernels: Sequence[Kernel]) -> None:
    """Raise UnsupportedError if a kernel overwrites too early what one before it reads.

    Another program has left that there.  Too early is in an earlier phase, or in that of the rows
    if these lie elsewhere: some rows are through all kernels before others.
    """
    order = [PHASES.index(kernel.called_in) for kernel in kernels]
    for i, kernel in enumerate(kernels):
        for written in (value for value in kernel.writes if value.final):
            for j in range(i):
                for read in kernels[j].reads:
                    if read.written or not read.overlaps(written):
                        continue
                    ends = [(v.address, v.rows, v.columns) for v in (read, written)]
                    alike = ends[0] == ends[1]
                    if order[i] < order[j] or (order[i] == order[j] and not alike):
                        raise UnsupportedError(f"{kernel.text}, where {kernels[j].text} reads")


def _needed(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels without those whose results nothing reads, and nobody sees."""
    needed, read = list[Kernel](), set[MatrixValue]()
    for kernel in reversed(kernels):
        ends = isinstance(kernel, LossRows) or not kernel.writes
        if ends or any(value.final or value in read for value in kernel.writes):
            needed.append(kernel)
            read.update(kernel.reads)
    return needed[::-1]


def _draws(kernels: list[Kernel]) -> Iterator[Draw]:
    """Yield the draws; another program cannot read the mask of a dropout, only its bytes."""
    reads = [value for kernel in kernels for value in kernel.reads]
    for kernel in kernels:
        if isinstance(kernel, Draw):
            alone = not any(isinstance(k, LossRows) for k in kernels)
            if alone and reads.count(kernel.out) < len(("forward", "backward")):
                raise UnsupportedError("dropout without its backward")
            kernel.out.final = False
            yield kernel


def _any_length(kernels: list[Kernel], lanes: int) -> list[MatrixValue]:
    """Return the values that are written and read as rows of any length."""
    written = [v for kernel in kernels if not kernel.whole_vectors for v in kernel.writes]
    vectors = {v for kernel in kernels for v in kernel.read_by_vectors(lanes)}
    return [v for v in written if v not in vectors]


def fuse(kernels: list[Kernel]) -> list[Kernel]:
    """Move each map into the last pass of the product that computes the last of its operands.

    A map is moved only if no kernel between the two computes another of its operands, or reads what
    is in memory that the map writes.
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
    """Return whether `kernel` writes where another program has left what `other` reads."""
    return any(v.overlaps(w) for v in other.reads if not v.written for w in kernel.writes)


def mark_stored(kernels: list[Kernel]) -> None:
    """Mark the values that stay in registers: only the kernel that computes them reads them."""
    readers: dict[MatrixValue, set[int]] = {}
    for i, kernel in enumerate(kernels):
        for value in kernel.reads:
            readers.setdefault(value, set()).add(i)
    for i, kernel in enumerate(kernels):
        for value in kernel.writes:
            value.stored = value.final or bool(readers.get(value, set()) - {i})
