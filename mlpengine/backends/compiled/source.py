"""The C text of a whole program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from textwrap import indent

import numpy as np

from mlpengine.backends.compiled.emitter import SIGNATURE, Emitter, useful_threads
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.lower import InstructionLike, lower
from mlpengine.backends.compiled.runs import RUN, emit_gather
from mlpengine.backends.compiled.target import Target
from mlpengine.backends.compiled.updates import Update, emit_flush, emit_update
from mlpengine.spec import Array

NUMBERS = ("loss", "norm", "lr", "steps", "clip_norm", "weight_decay", "status", "most_norm")
"""What stands first in the table of doubles; the hyper-parameters of the optimizer follow."""

CHUNK = 8192
"""Gradients whose squares are summed in their own type (see norm.h)."""


@dataclass(frozen=True, eq=False)
class Source:
    """A program as C.

    Attributes:
        text: the whole file.
        arrays: whose addresses make up the table, in order.
        nbytes: of the workspace.
        gathers: whether it has `mlpengine_run`, which fills buffers from whole data sets.
    """

    text: str
    arrays: Sequence[Array]
    nbytes: int
    gathers: bool


def emit_program(
    instructions: Sequence[InstructionLike],
    *,
    target: Target,
    dtype: "np.dtype[np.floating]",
    batch: int,
    threads: int = 1,
    update: Update | None = None,
    gathered: Sequence[Array | None] = (),
    names: Mapping[int, str] | None = None,
) -> Source:
    """Return the C text of `instructions` and, after them, of the optimizer.

    `gathered` are up to three buffers that the loop over many steps fills by rows; `threads` the
    most that share the work, fewer where another would not pay.
    Raises: UnsupportedError if an instruction has no compiled rule.
    """
    layout = Layout(target, dtype.itemsize)
    lowered = lower(instructions, layout.lanes, names or {})
    threads = useful_threads(lowered.kernels, threads)
    emitter = Emitter(layout, lowered.kernels, lowered.values, batch, threads)
    emitter.emit()
    if update is not None:
        for name, array in update.vectors.items():
            layout.external(name, array)
        layout.room("chunk_sums", -(-max(update.params.size, 1) // CHUNK), "double")
    parts = [
        _preamble(target, dtype, threads, batch),
        *emitter.functions,
        _rows_phase(emitter),
        _update_functions(update, layout) if update else "",
        emit_gather(layout, gathered) if gathered else "",
        _part(emitter, update, gathers=bool(gathered)),
        ENTRY,
        RUN if gathered else "",
    ]
    return Source("\n".join(parts), layout.arrays, layout.nbytes, bool(gathered))


def _preamble(target: Target, dtype: "np.dtype[np.floating]", threads: int, batch: int) -> str:
    single = dtype.itemsize == 4
    info = np.finfo(dtype)
    lines = [
        "#define _GNU_SOURCE",
        "#include <stdint.h>",
        f"typedef {'float' if single else 'double'} real;",
        f"typedef {'int32_t' if single else 'int64_t'} bits;",
        "#define REAL_IS_FLOAT" if single else "",
        f"#define BYTES {target.vector_bytes}",
        f"#define TILE_ROWS {target.tile_rows}",
        f"#define THREADS {threads}",
        f"#define BATCH {batch}",
        f"#define EXP_LIMIT {float(np.floor(np.log(info.max)))!r}",
        f"#define LARGEST_SUM {float(info.max)!r}",
        f"#define CHUNK {CHUNK}",
    ]
    parts = [
        "prelude",
        "float_math" if single else "double_math",
        "rules",
        "product",
        "step_loop",
        "norm",
    ]
    parts.append("thread_pool" if threads > 1 else "single_thread")
    folder = files(__package__)
    headers = [folder.joinpath(f"{part}.h").read_text(encoding="utf-8") for part in parts]
    return "\n".join([line for line in lines if line] + headers)


def _rows_phase(emitter: Emitter) -> str:
    calls = indent("\n".join(emitter.phases["rows"]), "  ")
    return (
        "/* Forward, loss and backward of some rows. */\n"
        f"static void rows{SIGNATURE} {{\n{calls}\n}}\n"
    )


def _part(emitter: Emitter, update: Update | None, *, gathers: bool) -> str:
    """Return what one thread does in a step."""
    layout, chunk, batch = emitter.layout, emitter.chunk, emitter.batch
    loss = "row_loss" in layout.declarations
    names = ["row_loss", "bad_label", "loss_value"] if loss else []
    names += ["grads", "chunk_sums"] if update else []
    lines = list(emitter.phases["prepare"])
    lines += ["if (thread == 0) bad_label[0] = 0;"] if loss else []
    lines += ["barrier();", f"for (long begin = 0; begin < {batch}; begin += {chunk}) {{"]
    lines += [f"  const long end = MIN(begin + {chunk}, {batch}), length = end - begin;"]
    lines += ["  const long first = begin + length * thread / THREADS;"]
    lines += ["  const long last = begin + length * (thread + 1) / THREADS;"]
    if gathers:
        lines += ["  if (order) gather(table, workspace, order, job->data, first, last);"]
    lines += ["  rows(table, workspace, first, last);", "  barrier();"]
    lines += [f"  {call}" for call in emitter.phases["reduce"]]
    lines += ["  barrier();" if emitter.phases["reduce"] else "", "}"]
    if loss:
        lines.append("if (bad_label[0]) return BAD_LABEL;")
        lines.append(f"const double loss = sum_in_order(row_loss, {batch});")
        lines.append("if (thread == 0) numbers[0] = loss_value[0] = loss;")
    lines += _apply(update, loss=loss) if update else []
    body = "\n".join([*[line for line in lines if line], "return 0;"])
    return PART.format(declared=layout.declare(names, body), body=indent(body, "  "))


def _update_functions(update: Update, layout: Layout) -> str:
    signature = (
        "(void *const *table, char *workspace, const double *numbers, const long first,\n"
        "    const long last)"
    )
    body, flush = emit_update(update, len(NUMBERS)), emit_flush(update, layout.itemsize)
    start = (
        f"{layout.declare(update.vectors, body)}  (void)workspace;\n"
        "  const double lr = numbers[2], t = numbers[3] + 1;\n"
        "  const real keep = (real)(1.0 - lr * numbers[5]);\n"
        "  (void)t, (void)keep;\n"
    )
    return (
        f"/* {update.rule}, on some of the parameters. */\n"
        f"static void update{signature} {{\n{start}"
        f"{indent(body, '  ')}\n}}\n\n"
        "/* What is nearly zero becomes zero, or the floor. */\n"
        f"static void flush{signature} {{\n{layout.declare(update.vectors, flush)}"
        "  (void)table, (void)workspace, (void)numbers, (void)first, (void)last;\n"
        f"{indent(flush, '  ')}\n}}\n"
    )


def _apply(update: Update, *, loss: bool) -> list[str]:
    """Return norm, finite check, clipping and update, as one thread does its share of them."""
    size, info = update.params.size, np.finfo(update.params.dtype)
    least = float(info.tiny) * CHUNK / float(info.eps)
    checked = "isfinite(loss) && isfinite(norm)" if loss else "isfinite(norm)"
    return [
        f"for (long c = thread; c * CHUNK < {size}; c += THREADS)",
        f"  chunk_sums[c] = chunk_squares(grads + c * CHUNK, MIN(CHUNK, {size} - c * CHUNK));",
        "barrier();",
        f"const double norm = norm_of(grads, {size}, chunk_sums, {least!r});",
        "const double clip = numbers[4], steps = numbers[3];",
        "if (thread == 0) numbers[1] = norm;",
        f"if (!({checked})) return NOT_FINITE;",
        "if (norm > numbers[7]) return LARGE_NORM;",
        f"const long from = {size}L * thread / THREADS / 64 * 64;",
        f"const long to = thread == THREADS - 1 ? {size}L",
        f"                                      : {size}L * (thread + 1) / THREADS / 64 * 64;",
        "if (norm + 1e-6 > clip) scale(grads, (real)(clip / (norm + 1e-6)), from, to);",
        f"if (steps > 0 && (long)steps % {update.flush_every} == 0)",
        "  flush(table, workspace, numbers, from, to);",
        "update(table, workspace, numbers, from, to);",
    ]


PART = """\
/* What one thread does in a step. */
static long part(const struct job *job, const long thread, const int64_t *order) {{
  void *const *table = job->table;
  char *const workspace = job->workspace;
  double *const numbers = job->numbers;
  (void)table, (void)workspace, (void)numbers, (void)thread, (void)order;
{declared}
{body}
}}
"""

ENTRY = """\
static long at_work(const struct job job) {
  enter();
  const unsigned long old = flush_denormals();
  const long done = run(job);
  restore_denormals(old);
  leave();
  return done;
}

/* One step.  Returns FINISHED, or why nothing was updated. */
long mlpengine_step(void *const *table, char *workspace, double *numbers) {
  at_work((struct job){.table = table, .workspace = workspace, .numbers = numbers, .count = 1});
  return (long)numbers[6];
}
"""
