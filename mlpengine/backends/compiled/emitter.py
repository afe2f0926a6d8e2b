"""The C functions of a program, and the division of rows into chunks and threads.

Threads divide the work of a phase and wait for each other at the end of the phase.  The order of
additions does not depend on the number of threads.
"""

from collections.abc import Sequence

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import Kernel
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.lower import Lowered
from mlpengine.backends.compiled.products import Product
from mlpengine.backends.compiled.statements import Phase
from mlpengine.backends.values import MatrixValue

STREAM_BYTES = 1 << 20
"""If the values of a batch take more bytes, the batch is processed in chunks of rows.

All ops run on one chunk before the next chunk, so that values stay in the second-level cache."""

CHUNK_BYTES = 160 << 10
"""Maximum bytes of the values of a chunk."""

SMALL_WEIGHTS = 128 << 10
"""If weights and gradients take more bytes, there are no chunks: each chunk reads all weights."""

STEP_TERMS_PER_THREAD = 1 << 22
"""Minimum multiplications of a step for each thread after the first.

A step with twice this number is 1.5 times as fast on two threads as on one thread.  A step with
a quarter of it is slower (`benchmarks/peers.py --threads 1 2`)."""


def useful_threads(kernels: Sequence[Kernel], limit: int) -> int:
    """Return the number of threads, up to `limit`, that make the program faster."""
    terms = sum(k.rows * k.columns * k.depth for k in kernels if isinstance(k, Product))
    return max(1, min(limit, terms // STEP_TERMS_PER_THREAD + 1))


def emit(lowered: Lowered, layout: Layout, batch: int, threads: int) -> Writer:
    """Return a writer with the functions of all kernels, for `batch` rows and `threads` threads.

    Threads usually divide the rows of the batch.  If the layers' inputs have fewer entries than
    their weights, threads divide the columns of the products instead.  Each thread then reads,
    packs and updates only its own weights.
    """
    kernels, values = lowered
    layout.place(values, {v for kernel in kernels for v in kernel.read_by_vectors(layout.lanes)})
    chunk = _chunk(lowered, layout, batch)
    products = [k for k in kernels if isinstance(k, Product) and k.form == "forward"]
    weights = sum(k.columns * k.depth for k in products)
    by_columns = chunk >= batch and weights >= sum(k.rows * k.depth for k in products)
    writer = Writer(layout, batch, threads, chunk, threads > 1 and by_columns)
    for value in values:
        if value.padded and not value.written:
            phase: Phase = "rows" if value.kind == "rows" else "prepare"
            _copy(writer, value, phase, incoming=True)
    for number, kernel in enumerate(kernels):
        kernel.emit(writer, f"kernel_{number}")
    for value in values:
        if value.padded and value.final:
            ends: dict[str, Phase] = {"parameters": "prepare", "rows": "rows", "sums": "finish"}
            _copy(writer, value, ends[value.kind], incoming=False)
    return writer


def _chunk(lowered: Lowered, layout: Layout, batch: int) -> int:
    of_rows = [v for v in lowered.values if v.kind == "rows" and v.rows % max(batch, 1) == 0]
    entries = [v.rows // max(batch, 1) * layout.stride(v) for v in of_rows if v.stored]
    row_bytes = sum(entries) * layout.itemsize
    products = [k for k in lowered.kernels if isinstance(k, Product)]
    weights = {k.c if k.sums_rows else k.b for k in products}
    small = sum(v.array.nbytes for v in weights) <= SMALL_WEIGHTS
    if batch * row_bytes <= STREAM_BYTES or not small:
        return max(batch, 1)
    rows = min(batch, CHUNK_BYTES // row_bytes)
    return max(rows, min(batch, 8))  # smaller chunks would read the weights too often


def _copy(writer: Writer, value: MatrixValue, phase: Phase, *, incoming: bool) -> None:
    """Add the function that copies the caller's array to a padded copy (`incoming`), or back."""
    mine, caller = value.name, f"{value.name}_np"
    ends = [f"{mine}, {writer.layout.stride(value)}", f"{caller}, {value.columns}"]
    to, origin = ends if incoming else ends[::-1]
    body = [f"copy_rows({to}, {origin}, {value.columns}, first, last);"]
    name = f"{'import' if incoming else 'export'}_{mine}"
    text = f"{mine} {'from' if incoming else 'to'} the caller's array"
    reads, writes = ([caller], [mine]) if incoming else ([mine], [caller])
    trains = not incoming
    writer.add(name, phase, value.rows, text, body, reads, writes, trains=trains)
