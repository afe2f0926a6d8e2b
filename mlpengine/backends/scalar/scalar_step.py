"""Training steps and predictions on scalars, from the kernels of the compiled backend."""

from collections.abc import Iterable, Mapping, Sequence

from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.lower import lower, mark_stored
from mlpengine.backends.scalar.definitions import Functions
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.core.buffers import address_of
from mlpengine.core.placement import Storage, place
from mlpengine.core.spec import Array


def write_step(
    instructions: Iterable[InstructionLike],
    batch: int,
    functions: Functions,
    fixed: Mapping[int, str],
    inputs: Sequence[Array],
    outputs: Sequence[Array] = (),
    *,
    batched: bool = False,
    memory: str = "scratch",
) -> ScalarWriter:
    """Lower instructions, place their values and return the statements.

    `inputs` are arrays that the caller gives; they are placed before everything else.  `outputs`
    are arrays that the caller reads afterwards.  For the other arguments see `ScalarWriter`.
    Raises: UnsupportedError where something has no form on scalars.
    """
    kernels, values = lower(instructions, 1, {})
    ends = {address_of(array) for array in outputs}
    for value in values:
        value.final = value.final and value.address in ends
    mark_stored(kernels)
    writer = ScalarWriter(batch, batched or batch > 1, functions, fixed, memory)
    _find_lifetimes(kernels, writer, {address_of(a) for a in inputs} - {*fixed}, ends)
    writer.size = place(writer.storages.values(), 1)
    for kernel in kernels:
        writer.statements += kernel.emit_scalar(writer)
    return writer


def _find_lifetimes(
    kernels: Sequence[Kernel], writer: ScalarWriter, given: set[int], ends: set[int]
) -> None:
    """Find when values are needed; values that share memory with an end have places, too."""
    storages = writer.storages
    for time, kernel in enumerate(kernels):
        for value in kernel.writes:
            passing = value.address in ends and not value.final
            if value.stored and (passing or value.address not in writer.fixed):
                end = len(kernels) if value.final else time
                storages[value] = Storage(value.rows * value.columns, time, end)
        last = len(kernels) if kernel.sums_rows and not writer.batched else time
        for value in kernel.reads:
            if value not in storages and value.address in given:
                storages[value] = Storage(value.rows * value.columns, -1, time)
            if value in storages:
                storages[value].last = max(storages[value].last, last)
