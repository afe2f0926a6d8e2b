"""Lowering of instructions to kernels."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mlpengine.backends.compiled.column_sum import ColumnSum
from mlpengine.backends.compiled.dropout import Draw
from mlpengine.backends.compiled.embeddings import EmbeddingSums, PeriodicForward
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.losses import CrossEntropyRows, EntryLossRows, LossRows
from mlpengine.backends.compiled.maps import Map
from mlpengine.backends.compiled.normalization import LayerNormRows
from mlpengine.backends.compiled.products import Product
from mlpengine.backends.compiled.softmax import SoftmaxRows
from mlpengine.backends.values import MatrixValue, UnsupportedError, Values
from mlpengine.common.buffers import address_of
from mlpengine.spec import Array

KERNELS: list[type[Kernel]] = [
    Product,
    ColumnSum,
    EntryLossRows,
    CrossEntropyRows,
    SoftmaxRows,
    LayerNormRows,
    Draw,
    PeriodicForward,
    EmbeddingSums,
    Map,
]
"""The table of kernels; the first one that takes an instruction lowers it."""


class Lowered(NamedTuple):
    """The kernels of a program in order, fused, and its values."""

    kernels: list[Kernel]
    values: list[MatrixValue]


def lower(instructions: Iterable[InstructionLike], lanes: int, names: Mapping[int, str]) -> Lowered:
    """Return the kernels of `instructions`; `names` gives C names to arrays by address.

    Raises: UnsupportedError where an instruction has no compiled rule.
    """
    values = Values(names)
    kernels = [k for instruction in instructions for k in _kernels(instruction, values)]
    values.finish()
    kernels = [*_draws(kernels), *fuse([k for k in kernels if not isinstance(k, Draw)])]
    mark_stored(kernels)
    values.place(lanes, _any_length(kernels, lanes))
    return Lowered(kernels, values.all)


def _kernels(instruction: InstructionLike, values: Values) -> Iterable[Kernel]:
    for kind in KERNELS:
        if (kernels := kind.lower(instruction, values)) is not None:
            return kernels
    op = instruction.op
    raise UnsupportedError(f"{op.name} {instruction.kind}" if op else instruction.kind)


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
            and not any(_overwrites(kernel, k) for k in fused[place:])
        ):
            host.fuse(kernel)
        else:
            fused.append(kernel)
    return fused


def _overwrites(kernel: Kernel, other: Kernel) -> bool:
    """Return whether `kernel` writes where another program has left what `other` reads."""
    return any(v.overlaps(w) for v in other.reads if not v.written for w in kernel.writes)


def need_batch_rows(
    kernels: Iterable[Kernel], batch: int, gathered: Sequence[Array | None]
) -> None:
    """Check that all kernels go over the rows of a batch, of which a program also takes fewer.

    `gathered` are the buffers that have these rows, if they are known: what does not come from them
    may have as many rows by chance, and so may sums over the rows, which are computed later.
    Raises: UnsupportedError.
    """
    buffers = {address_of(array) for array in gathered if array is not None}
    of_batch, sums = set[MatrixValue](), set[MatrixValue]()
    for kernel in kernels:
        values = {*kernel.reads, *kernel.writes}
        depends = any(v in of_batch or v.mask or v.address in buffers for v in values)
        over = kernel.reads[0] if kernel.sums_rows or not kernel.writes else kernel.writes[0]
        if over.rows != batch or values & sums or (buffers and not depends):
            raise UnsupportedError(f"{kernel.text}, in other rows than the batch's")
        (sums if kernel.sums_rows else of_batch).update(kernel.writes)


def mark_stored(kernels: list[Kernel]) -> None:
    """Mark the values that stay in registers: only the kernel that computes them reads them."""
    readers: dict[MatrixValue, set[int]] = {}
    for i, kernel in enumerate(kernels):
        for value in kernel.reads:
            readers.setdefault(value, set()).add(i)
    for i, kernel in enumerate(kernels):
        for value in kernel.writes:
            value.stored = value.final or bool(readers.get(value, set()) - {i})
