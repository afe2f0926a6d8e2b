"""The C source of a whole program."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlpengine.backends.compiled.emitter import emit, useful_threads
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.lower import lower
from mlpengine.backends.compiled.printing import print_function, print_head, vector_c
from mlpengine.backends.compiled.products import Product
from mlpengine.backends.compiled.sharing import find_shared
from mlpengine.backends.compiled.statements import CFunction, If, Phase, Statement
from mlpengine.backends.compiled.target import CompileTarget
from mlpengine.backends.compiled.tiling import highest_tile
from mlpengine.backends.compiled.update_loops import update_functions, update_vectors
from mlpengine.backends.update_rules import Update, largest_step
from mlpengine.backends.values import Batch, MatrixValue, UnsupportedError
from mlpengine.core.buffers import address_of
from mlpengine.core.spec import Array

OTHER_COST, POOL_COST = 5, 2
"""Compile times of all code except products, and of the thread pool; 1 is the time of a product.

Measured with GCC 12 on an EPYC with AVX-512, November 2026."""

MAX_GATHERED = 8
"""Maximum number of arrays of inputs, targets and sample weights: length of `data` in call.h."""

MAX_HYPER = 8
"""Maximum number of hyper-parameters of an optimizer: length of `hyper` in call.h."""

NORM_CHUNK = 8192
"""Number of gradients in a chunk; within a chunk, squares are summed in their dtype (norm.h)."""


class CSource(NamedTuple):
    """A program as C.

    Attributes:
        text: the whole file.
        arrays: the arrays, in the order of their addresses in the table.
        nbytes: size of the workspace.
        gathers: whether the program can copy the rows of a batch from arrays of a data set.
        limits: indices of dropout limits in `arrays`.
        columns: number of outputs of a row, or 0 if the program has no function for predictions.
        rows: number of rows of a full batch; the program also accepts fewer rows.
        mean_rows: number of rows over which the loss is a mean.
        threads: maximum number of threads of a step, including the calling thread.
    """

    text: str
    arrays: Sequence[Array]
    nbytes: int
    gathers: bool
    limits: Sequence[int]
    columns: int
    rows: int
    mean_rows: int
    threads: int


def make_source(
    instructions: Sequence[InstructionLike],
    *,
    target: CompileTarget,
    dtype: "np.dtype[np.floating]",
    batch: int,
    threads: int = 1,
    update: Update | None = None,
    grads: Array | None = None,
    gathered: Sequence[Array | None] = (),
    parameters: Array | None = None,
    output: Array | None = None,
    names: Mapping[int, str] | None = None,
) -> CSource:
    """Return the C source of `instructions`, followed by the optimizer's `update`.

    `gathered` are the buffers of a batch, up to `MAX_GATHERED`; a run of many steps copies rows of
    a data set into them.  Without `gathered`, the vector `parameters` tells which arrays do not
    depend on rows.  A program without a loss may compute only `output`.  `threads` is a maximum.
    Raises: UnsupportedError if an instruction cannot be compiled.
    """
    if len(gathered) > MAX_GATHERED:
        raise UnsupportedError(f"{len(gathered)} arrays of inputs and targets")
    layout = Layout(target, dtype.itemsize)
    rows = Batch(batch, gathered, parameters)
    lowered = lower(instructions, layout.lanes, names or {}, rows, dtype.itemsize, output)
    threads = useful_threads(lowered.kernels, threads)
    writer = emit(lowered, layout, batch, threads)
    if output is not None:
        (writer.output,) = (value for value in lowered.values if value.final)
    functions = [*writer.functions]
    chunked = writer.chunk < batch
    in_turn = threads == 1 and not chunked
    phases: list[Phase] = ["prepare", "rows", "reduce"]
    if any(function.phase == "finish" for function in functions):
        phases.insert(1, "finish")
    functions += [_phase(writer.functions, phase, in_turn=in_turn) for phase in phases]
    for number, buffer in enumerate(gathered):
        if buffer is not None:
            layout.add_array(f"batch_{number}", buffer)
    if update is not None and grads is not None:
        if len(update.hyper) > MAX_HYPER:
            raise UnsupportedError(f"{len(update.hyper)} hyper-parameters of optimizers")
        vectors = update_vectors(update, grads)
        for name, array in vectors.items():
            layout.add_array(name, array)
        layout.reserve("chunk_sums", -(-max(grads.size, 1) // NORM_CHUNK), "double", ("update",))
        functions += update_functions(update, vectors, dtype.itemsize)
    layout.plan(functions, in_turn=in_turn, chunked=chunked)
    parts = [
        *_defines(target, dtype),
        f"#define THREADS {threads}",
        f"#define BATCH INT64_C({batch})",
        f"#define CHUNK_ROWS INT64_C({writer.chunk})",
        f"#define CLAIMS {len(writer.claimable)}",
        f"#define CLAIMABLE {{{', '.join(map(str, writer.claimable))}}} /* units of each list */",
        *_step_defines(layout, update, dtype, gathered, writer.losses),
        *_output_defines(layout, writer.output, gathered),
        *map(_header, _headers(layout, threads, lowered.kernels)),
        *_in_first_unit(_ranges(lowered.kernels, grads, threads)),
        *_in_first_unit(map(_header, ("update", "norm") if update else ())),
        *_in_units(
            functions,
            layout,
            {v.name for v in lowered.values},
            OTHER_COST + POOL_COST * (threads > 1),
        ),
        *_in_first_unit(map(_header, _last_headers(threads, gathers=bool(gathered)))),
    ]
    return CSource(
        "\n".join(parts),
        layout.arrays,
        layout.nbytes,
        bool(gathered),
        layout.limits,
        writer.output.columns if writer.output and gathered else 0,
        batch,
        writer.mean_rows or batch,
        threads,
    )


def _defines(target: CompileTarget, dtype: "np.dtype[np.floating]") -> Iterator[str]:
    single, info = dtype.itemsize == 4, np.finfo(dtype)
    yield "#define _GNU_SOURCE"
    yield "#include <stdint.h>"
    yield f"typedef {'float' if single else 'double'} real;"
    yield f"typedef {'int32_t' if single else 'int64_t'} bits;"
    if single:
        yield "#define REAL_IS_FLOAT"
    yield f"#define BYTES {target.vector_bytes}"
    yield f"#define TILE_ROWS {highest_tile(target)}"
    yield f"#define LARGEST_SUM {float(info.max)!r}"
    yield f"#define CHUNK {NORM_CHUNK}"


def _step_defines(
    layout: Layout,
    update: Update | None,
    dtype: "np.dtype[np.floating]",
    gathered: Sequence[Array | None],
    losses: int,
) -> Iterator[str]:
    """Yield the macros that gather.h, step.h and norm.h require."""
    if gathered:
        yield "#define GATHERS"
    present = [number for number, buffer in enumerate(gathered) if buffer is not None]
    for number, buffer in enumerate(gathered):
        if buffer is not None:
            yield f"#define BUFFER_{number} ({layout.pointer(f'batch_{number}')})"
            yield f"#define ROW_BYTES_{number} INT64_C({prod(buffer.shape[1:]) * buffer.itemsize})"
    if present:
        yield f"#define EACH_BUFFER(X) {' '.join(f'X({number})' for number in present)}"
    if losses:
        suffixes = ["", *(f"_{k}" for k in range(1, losses))]
        places = (
            (layout.pointer(f"row_loss{s}"), layout.pointer(f"loss_value{s}")) for s in suffixes
        )
        yield f"#define EACH_LOSS(X) {' '.join(f'X({rows}, {value})' for rows, value in places)}"
    if layout.knows("bad_label"):
        yield f"#define LABEL_ERROR ({layout.pointer('bad_label')})"
    if update is not None:
        info, (largest_update, largest_norm) = np.finfo(dtype), largest_step(update)
        yield f"#define PARAMETERS INT64_C({update.params.size})"
        yield f"#define GRADS ({layout.pointer('grads')})"
        yield f"#define CHUNK_SUMS ({layout.pointer('chunk_sums')})"
        yield f"#define SMALLEST_SUM {float(info.tiny) * NORM_CHUNK / float(info.eps)!r}"
        yield f"#define LARGEST_UPDATE {largest_update!r}"
        yield f"#define LARGEST_NORM {largest_norm!r}"
        yield f"#define FLUSH_EVERY {update.flush_every}"
        yield f"#define TINY {float(info.tiny)!r}"
        yield f"#define PARAMS ({layout.pointer('params')})"


def _output_defines(
    layout: Layout, output: MatrixValue | None, gathered: Sequence[Array | None]
) -> Iterator[str]:
    """Yield the macros that entry.h requires for predictions."""
    if output is not None and gathered:
        yield f"#define OUTPUT ({layout.pointer(output.name)})"
        yield f"#define OUTPUT_COLUMNS INT64_C({output.columns})"
        yield f"#define OUTPUT_STRIDE INT64_C({layout.stride(output)})"


def _ranges(kernels: Sequence[Kernel], grads: Array | None, threads: int) -> Iterator[str]:
    """Yield the array of parameter ranges; update.h divides each range between the threads.

    So a thread updates the weights for which it has computed the gradients.  It reads these weights
    in the next step, too, so that they stay in the cache of its core.
    """
    if grads is None:
        return
    ranges, end = [], 0
    weights = {
        (address_of(k.c.array) - address_of(grads)) // grads.itemsize: k.c
        for k in kernels
        if threads > 1 and isinstance(k, Product) and k.sums_rows
    }
    for start, c in sorted(weights.items(), key=lambda item: item[0]):
        if end <= start <= grads.size - c.array.size:
            ranges += [(end, start - end, 1), (start, c.rows, c.columns)]
            end = start + c.array.size
    ranges.append((end, grads.size - end, 1))
    parts = ", ".join(f"{{{start}, {n}, {length}}}" for start, n, length in ranges if n)
    yield f"static const int64_t RANGES[][3] = {{{parts or '{0, 0, 1}'}}};"


def _headers(layout: Layout, threads: int, kernels: Sequence[Kernel]) -> Iterator[str]:
    """Yield the names of the headers that come before the functions."""
    yield from ("prelude", "float_math" if layout.itemsize == 4 else "double_math")
    yield from ("rules", "transpose", "product")
    yield from dict.fromkeys(kernel.header for kernel in kernels if kernel.header)
    yield "call"
    yield from ("system", "thread_pool") if threads > 1 else ("single_thread",)


def _last_headers(threads: int, *, gathers: bool) -> Iterator[str]:
    """Yield the names of the headers that come after the functions."""
    if gathers:
        yield "gather"
    yield from ("step", "step_loop")
    if threads > 1:
        yield "thread_steps"
    yield "entry"


@cache
def _header(name: str) -> str:
    return Path(__file__).with_name(f"{name}.h").read_text(encoding="utf-8")


def _phase(functions: Sequence[CFunction], phase: Phase, *, in_turn: bool) -> CFunction:
    """Return the function that calls all functions of a phase.

    If `in_turn`, the phase ``rows`` includes the phase ``reduce``: a value is summed over rows
    right after it is computed, while it is in the cache.  Its memory can then be used again.
    """
    parameters = {
        "prepare": "const struct part part",
        "rows": "const struct part part, const int64_t first, const int64_t last",
        "reduce": "const struct part part, const int64_t begin, const int64_t end",
        "finish": "const struct part part",
    }[phase]
    merged = {"rows": ("rows", "reduce"), "reduce": ()} if in_turn else {}
    called = [f for f in functions if f.phase in merged.get(phase, (phase,))]
    calls: list[Statement] = []
    since = 0  # the first function after the last barrier
    for trains, group in groupby(enumerate(called), key=lambda each: each[1].trains):
        block: list[Statement] = []
        for i, function in group:
            if phase != "reduce" and any(map(function.waits_for, called[since:i])):
                block.append("barrier(part);")
                since = i
            block.append(function.call)
        calls += [If("part.trains", block)] if trains and phase != "reduce" else block
    text = {
        "prepare": "Runs once in a step: packing, and values that depend on parameters only",
        "rows": "Forward, loss and backward for the rows first to last",
        "reduce": "Sums over the rows begin to end",
        "finish": "Runs once in a step: values that depend on sums over all rows",
    }[phase]
    if phase == "rows":
        rows_of_part = "const int64_t stop = MIN(last, part.rows), begin = first, end = stop;"
        calls = [rows_of_part, "(void)stop, (void)begin, (void)end;", *calls]
    last = "rows" if in_turn else "reduce"
    if phase == last and any(function.phase == "finish" for function in functions):
        finish: list[Statement] = ["barrier(part);", "finish(table, workspace, part);"]
        calls.append(If("part.trains" if in_turn else "end == part.rows", finish))
    return CFunction(phase, phase, (), calls, text, parameters)


def _in_units(
    functions: Sequence[CFunction], layout: Layout, values: Container[str], others: int
) -> Iterator[str]:
    """Yield the functions in two translation units that take equal time to compile.

    The second unit has the first products.  The first unit has the other products and all other
    code, which takes as long to compile as `others` products.
    """
    shared = find_shared(functions, layout, values)
    own = [f for f in functions if f not in shared or shared[f].function is f]
    products = [function for function in own if function.tile is not None]
    second = products[: (len(products) + others) // 2]
    for function in functions:
        one = shared.get(function)
        table = one.table if one else ()
        printed = replace(function, name=one.name) if one else function
        if function in second:
            printed = replace(printed, qualifiers="ACROSS")
            yield "#if IN_UNIT(1)"
            yield from _printed(printed, layout, table)
            yield f"#else\n{print_head(printed)};\n#endif"
        elif function in own:
            yield from _in_first_unit(_printed(printed, layout, table))
        if one:
            calls = replace(
                function, body=one.call(layout), buffers=(), tile=None, qualifiers="INLINE"
            )
            yield from _in_first_unit(_printed(calls, layout))


def _in_first_unit(parts: Iterable[str]) -> Iterator[str]:
    yield "#if IN_UNIT(0)"
    yield from parts
    yield "#endif"


def _printed(function: CFunction, layout: Layout, table: Sequence[str] = ()) -> Iterator[str]:
    """Yield the text of the function's tile function, then of the function."""
    if function.tile is not None:
        yield from _printed(function.tile, layout, table)
    declarations = layout.declare(function.buffers, table)
    yield print_function(function, declarations, vector_c(layout.itemsize))
