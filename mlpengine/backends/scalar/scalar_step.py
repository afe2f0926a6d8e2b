"""Scalar code of a training step or a prediction for one row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mlpengine.backends.compiled.kernel import InstructionLike, Kernel, LossInstruction
from mlpengine.backends.compiled.lower import lower, mark_stored
from mlpengine.backends.compiled.products import Product
from mlpengine.backends.scalar.definitions import Constants, Functions
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import Batch
from mlpengine.core.buffers import address_of
from mlpengine.core.placement import Storage, place
from mlpengine.core.spec import Array


def write_step(
    instructions: Sequence[InstructionLike],
    functions: Functions,
    fixed: Mapping[int, str],
    inputs: Sequence[Array],
    outputs: Sequence[Array] = (),
    *,
    memory: str = "scratch",
) -> ScalarWriter:
    """Return a writer with scalar statements that run `instructions` on one row.

    `inputs` are the arrays of the row, and `outputs` the arrays that the caller reads afterwards.
    For the other arguments see `ScalarWriter`.  All further arrays that are only read become
    constants.  Integers are stored as real numbers.
    Raises: UnsupportedError if an instruction has no scalar code.
    """
    batch = Batch(1, inputs, scalar=True)
    itemsize = next(a.itemsize for a in (*inputs, *outputs) if a.dtype.kind == "f")
    lowered, values = lower(instructions, 1, {}, batch, itemsize)
    ends = {address_of(array) for array in outputs}
    for value in values:
        value.final = value.final and value.address in ends
    mark_stored(lowered)
    kernels = [*_apart(lowered)]
    mark_stored(kernels)
    given, texts = {address_of(a) for a in inputs} - {*fixed}, dict(fixed)
    for value in {value: None for kernel in kernels for value in kernel.reads}:
        if not value.written and value.address not in given | {*texts}:
            texts[value.address] = functions.names.add("constants")
            functions.definitions.append(Constants(texts[value.address], value.array.ravel()))
    trains = any(isinstance(instruction, LossInstruction) for instruction in instructions)
    writer = ScalarWriter(functions, texts, memory, trains=trains)
    _find_lifetimes(kernels, writer, given, ends)
    writer.size = place(writer.storages.values(), 1)
    for kernel in kernels:
        writer.statements += kernel.emit_scalar(writer)
    return writer


def _apart(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Yield the kernels, and most of the ops that are fused into input gradients dx = dy w.

    A fused op stays in its product if it is the first one, and if only this op reads dx.
    """
    for kernel in kernels:
        yield kernel
        if isinstance(kernel, Product) and kernel.form == "input_gradient":
            steps, kept = kernel.epilogue, 0
            if steps and not kernel.c.stored:
                kept = int(steps[0].names.get("dy") is kernel.c and len(steps[0].writes) == 1)
            kernel.epilogue = []
            kernel.__post_init__()
            for step in steps[:kept]:
                kernel.fuse(step)
            yield from steps[kept:]


def _find_lifetimes(
    kernels: Sequence[Kernel], writer: ScalarWriter, given: set[int], ends: set[int]
) -> None:
    """Add each value that needs memory to ``writer.storages``, with first and last use."""
    storages = writer.storages
    for time, kernel in enumerate(kernels):
        for value in () if kernel.sums_rows else kernel.writes:
            passing = value.address in ends and not value.final
            if value.stored and (passing or value.address not in writer.fixed):
                end = len(kernels) if value.final else time
                storages[value] = Storage(value.rows * value.columns, time, end)
        last = len(kernels) if kernel.sums_rows else time
        for value in kernel.reads:
            if value not in storages and value.address in given:
                storages[value] = Storage(value.rows * value.columns, -1, time)
            if value in storages:
                storages[value].last = max(storages[value].last, last)
