"""The C text of a whole program: every kernel a function, and the phases of a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from textwrap import indent

import numpy as np

from mlpengine.backends.compiled.kernels import ColumnSum, Kernel, LossRows, Map, Product
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.losses import emit_loss
from mlpengine.backends.compiled.lower import InstructionLike, lower
from mlpengine.backends.compiled.products import (
    Tiling,
    choose_tiling,
    emit_packing,
    emit_product,
    emit_row_packing,
    emit_tile,
    map_lines,
    panel_count,
)
from mlpengine.backends.compiled.runs import emit_run
from mlpengine.backends.compiled.target import Target
from mlpengine.backends.compiled.updates import Update, emit_flush, emit_update
from mlpengine.backends.compiled.values import UnsupportedError, Value
from mlpengine.spec import Array

NUMBERS = ("loss", "norm", "lr", "steps", "clip_norm", "weight_decay", "status")
"""What stands first in the table of doubles; the hyper-parameters of the optimizer follow."""

SIGNATURE = "(void *const *table, char *workspace, const long first, const long last)"


@dataclass(eq=False)
class Source:
    """A program as C.

    Attributes:
        text: the whole file.
        arrays: whose addresses make up the table, in order.
        nbytes: of the workspace.
        gathers: whether it has `run`, which fills buffers from whole data sets.
    """

    text: str
    arrays: list[Array]
    nbytes: int
    gathers: bool


@dataclass(eq=False)
class Emitter:
    """Collects the functions of one program."""

    layout: Layout
    kernels: list[Kernel]
    values: list[Value]
    batch: int
    functions: list[str] = field(default_factory=list)
    phases: dict[str, list[str]] = field(
        default_factory=lambda: {"prepare": [], "rows": [], "reduce": []}
    )

    def emit(self) -> None:
        """Write every kernel and note in which phase it is called."""
        self.layout.place(self.kernels, self.values)
        for value in self.values:
            if value.padded and not value.written:
                self._copy(value, "prepare" if value.rows != self.batch else "rows", incoming=True)
        for number, kernel in enumerate(self.kernels):
            name = f"kernel_{number}"
            if isinstance(kernel, Product):
                self._product(kernel, name)
            elif isinstance(kernel, ColumnSum):
                self._column_sum(kernel, name)
            elif isinstance(kernel, LossRows):
                self.layout.external("loss_value", kernel.value)
                self.layout.room("row_loss", self.batch, "double")
                self.layout.room("bad_label", 1, "int64_t")
                body = emit_loss(kernel, self.layout)
                self._row_kernel(name, kernel, body, ["row_loss", "bad_label"])
            else:
                self._row_kernel(name, kernel, self._map(kernel))
        for value in self.values:
            if value.padded and value.final:
                self._copy(value, "rows", incoming=False)

    def _function(self, name: str, text: str, body: str, names: Sequence[str]) -> None:
        declared = "\n".join(self.layout.declare(names))
        self.functions.append(
            f"/* {text} */\nstatic void {name}{SIGNATURE} {{\n{declared}\n{indent(body, '  ')}\n}}\n"
        )

    def _copy(self, value: Value, phase: str, *, incoming: bool) -> None:
        """Copy between the caller's array and the padded one."""
        name = f"{'import' if incoming else 'export'}_{value.name}"
        ends = [f"{value.name}, {self.layout.stride(value)}", f"{value.name}_np, {value.columns}"]
        to, origin = ends if incoming else ends[::-1]
        body = f"copy_rows({to}, {origin}, {value.columns}, first, last);"
        self._function(
            name, "rows to or from whole vectors", body, [value.name, f"{value.name}_np"]
        )
        self._call(phase, name, value.rows)

    def _call(self, phase: str, name: str, rows: int, note: str = "") -> None:
        span = "first, last" if phase == "rows" and rows == self.batch else f"0, {rows}"
        if phase == "rows" and rows != self.batch:
            raise UnsupportedError(f"{rows} rows in a program over {self.batch}")
        self.phases[phase].append(f"{name}(table, workspace, {span});")

    def _row_kernel(self, name: str, kernel: Kernel, body: str, more: Sequence[str] = ()) -> None:
        names = [v.name for v in (*kernel.reads, *kernel.writes) if v.stored]
        rows = kernel.reads[0].rows
        self._function(name, kernel.text, body, [*names, *more])
        self._call("rows", name, rows)

    def _map(self, kernel: Map) -> str:
        lines = map_lines(kernel, self.layout, "i", "j", known := {})
        for value in kernel.writes:
            if value.stored:
                at = f"{value.name} + i * {self.layout.stride(value)} + j"
                lines.append(f"store({at}, {known[value]});")
        inner = indent("\n".join(lines), "    ")
        columns = kernel.writes[0].columns
        return (
            "for (long i = first; i < last; i++)\n"
            f"  for (long j = 0; j < {columns}; j += LANES) {{\n{inner}\n  }}"
        )

    def _column_sum(self, kernel: ColumnSum, name: str) -> None:
        x, out = kernel.x, kernel.out
        body = (
            "(void)first, (void)last;\n"
            f"sum_columns({out.name}, {x.name}, {self.layout.stride(x)}, {x.rows}, {x.columns});"
        )
        self._function(name, kernel.text, body, [x.name, out.name])
        self._call("reduce", name, 1)

    def _product(self, kernel: Product, name: str) -> None:
        tiling = choose_tiling(kernel, self.layout)
        panel = f"{name}_panels"
        if tiling.packing != "none":
            self._packing(kernel, tiling, name, panel)
        if tiling.pack_rows:
            self.layout.room(f"{name}_rows", kernel.rows * tiling.depth_block)
        self.functions.append(emit_tile(kernel, tiling, name, self.layout))
        body = emit_product(kernel, tiling, name, panel, self.layout, [kernel.rows])
        names = [kernel.a.name, kernel.b.name, panel, f"{name}_rows"]
        text = "; ".join([kernel.text, *(m.text for m in kernel.epilogue)])
        self._function(name, text, body, names)
        self._call("reduce" if kernel.form == "weight_gradient" else "rows", name, kernel.rows)

    def _packing(self, kernel: Product, tiling: Tiling, name: str, panel: str) -> None:
        self.layout.room(panel, panel_count(kernel, self.layout))
        names = [kernel.b.name, panel]
        vectors = -(-kernel.columns // self.layout.lanes)
        if kernel.form == "weight_gradient":
            body = emit_row_packing(kernel, panel, self.layout)
            self._function(f"{name}_pack", f"{kernel.b.name} in panels", body, names)
            self._call("rows", f"{name}_pack", kernel.b.rows)
        else:
            body = emit_packing(kernel, tiling, panel, self.layout)
            self._function(f"{name}_pack", f"{kernel.b.name} in panels", body, names)
            self._call("prepare", f"{name}_pack", -(-vectors // 2))


def emit_program(
    instructions: Sequence[InstructionLike],
    *,
    target: Target,
    dtype: "np.dtype[np.floating]",
    batch: int,
    update: Update | None = None,
    gathered: Sequence[Array | None] = (),
    names: Mapping[int, str] | None = None,
) -> Source:
    """Return the C text of `instructions` and, after them, of the optimizer.

    `gathered` are up to three buffers that the loop over many steps fills by rows.
    Raises: UnsupportedError if an instruction has no compiled rule.
    """
    layout = Layout(target, dtype.itemsize)
    lowered = lower(instructions, layout.lanes, names or {})
    emitter = Emitter(layout, lowered.kernels, lowered.values, batch)
    emitter.emit()
    if update is not None:
        for name, array in update.vectors.items():
            layout.external(name, array)
        layout.room("chunk_sums", -(-max(update.params.size, 1) // 8192), "double")
    phases = "".join(_phase(name, calls) for name, calls in emitter.phases.items())
    text = "\n".join(
        [
            _preamble(target, dtype),
            *emitter.functions,
            phases,
            _step(emitter, update),
            emit_run(layout, gathered, batch) if gathered else "",
        ]
    )
    return Source(text, layout.arrays, layout.nbytes, bool(gathered))


def _preamble(target: Target, dtype: "np.dtype[np.floating]") -> str:
    single = dtype.itemsize == 4
    info = np.finfo(dtype)
    lines = [
        "#include <stdint.h>",
        f"typedef {'float' if single else 'double'} real;",
        f"typedef {'int32_t' if single else 'int64_t'} bits;",
        "#define REAL_IS_FLOAT" if single else "",
        f"#define BYTES {target.vector_bytes}",
        f"#define TILE_ROWS {target.tile_rows}",
        f"#define EXP_LIMIT {float(np.floor(np.log(info.max)))!r}",
        f"#define LARGEST_SUM {float(info.max)!r}",
        "#define EACH UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < wide; v++)",
    ]
    parts = ["prelude", "float_math" if single else "double_math", "rules", "product", "norm"]
    folder = files(__package__)
    headers = [folder.joinpath(f"{part}.h").read_text(encoding="utf-8") for part in parts]
    return "\n".join([line for line in lines if line] + headers)


def _phase(name: str, calls: Sequence[str]) -> str:
    body = indent("\n".join(calls), "  ")
    return f"static void {name}{SIGNATURE} {{\n  (void)first, (void)last;\n{body}\n}}\n"


def _step(emitter: Emitter, update: Update | None) -> str:
    layout, loss = emitter.layout, "row_loss" in emitter.layout.declarations
    lines = ["prepare(table, workspace, 0, 0);", f"rows(table, workspace, 0, {emitter.batch});"]
    names = []
    if loss:
        lines.insert(0, "bad_label[0] = 0;")
        lines.append("if (bad_label[0]) return 2;")
    lines.append("reduce(table, workspace, 0, 0);")
    if loss:
        names += ["row_loss", "bad_label", "loss_value"]
        lines += [
            "double total = 0;",
            f"for (long i = 0; i < {emitter.batch}; i++) total += row_loss[i];",
            "numbers[0] = loss_value[0] = total;",
        ]
    text = ""
    if update is not None:
        names += ["grads", "chunk_sums"]
        text = _update_functions(update, layout)
        lines += _apply(update)
    body = indent("\n".join([*layout.declare(names), *lines, "return 0;"]), "  ")
    return (
        f"{text}static long step(void *const *table, char *workspace, double *numbers) {{\n{body}\n}}\n\n"
        "long mlpengine_step(void *const *table, char *workspace, double *numbers) {\n"
        "  const unsigned long old = flush_denormals();\n"
        "  const long status = step(table, workspace, numbers);\n"
        "  restore_denormals(old);\n"
        "  return status;\n}\n"
    )


def _update_functions(update: Update, layout: Layout) -> str:
    declared = "\n".join(layout.declare(update.vectors))
    signature = (
        "(void *const *table, char *workspace, const double *numbers, const long first,\n"
        "    const long last)"
    )
    start = (
        f"{declared}\n  (void)workspace;\n"
        "  const double lr = numbers[2], t = numbers[3] + 1;\n"
        "  const real keep = (real)(1.0 - lr * numbers[5]);\n"
        "  (void)t, (void)keep;\n"
    )
    return (
        f"static void update{signature} {{\n{start}"
        f"{indent(emit_update(update, len(NUMBERS)), '  ')}\n}}\n"
        f"static void flush{signature} {{\n{declared}\n  (void)workspace, (void)numbers;\n"
        f"{indent(emit_flush(update, layout.itemsize), '  ')}\n}}\n"
    )


def _apply(update: Update) -> list[str]:
    size, dtype = update.params.size, update.params.dtype
    info = np.finfo(dtype)
    least = float(info.tiny) * 8192 / float(info.eps)
    return [
        f"for (long c = 0; c * CHUNK < {size}; c++)",
        f"  chunk_sums[c] = chunk_squares(grads + c * CHUNK, MIN(CHUNK, {size} - c * CHUNK));",
        f"const double norm = norm_of(grads, {size}, chunk_sums, {least!r});",
        "numbers[1] = norm;",
        "if (!(isfinite(numbers[0]) && isfinite(norm))) return 1;",
        "if (norm + 1e-6 > numbers[4]) {",
        "  const real factor = (real)(numbers[4] / (norm + 1e-6));",
        f"  for (long i = 0; i < {size}; i++) grads[i] *= factor;",
        "}",
        f"if (numbers[3] > 0 && (long)numbers[3] % {update.flush_every} == 0)",
        f"  flush(table, workspace, numbers, 0, {size});",
        f"update(table, workspace, numbers, 0, {size});",
        "numbers[3] += 1;",
    ]
