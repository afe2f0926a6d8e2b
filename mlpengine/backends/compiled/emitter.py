"""Every kernel as a C function, and the phases in which a step calls them.

``prepare`` packs parameters; ``rows`` runs forward, loss and backward for some rows of the batch;
``reduce`` sums over those rows into the gradients of the parameters.  Threads share the work of a
phase and meet after it; the sums are the same however many there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from textwrap import indent

import numpy as np

from mlpengine.backends.compiled.kernels import ColumnSum, Kernel, LossRows, Map, Product
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.losses import emit_loss
from mlpengine.backends.compiled.packing import emit_packing, emit_row_packing, panel_count
from mlpengine.backends.compiled.products import emit_product, emit_tile, map_lines
from mlpengine.backends.compiled.tiling import Tiling, choose_tiling
from mlpengine.backends.compiled.values import UnsupportedError, Value

SIGNATURE = "(void *const *table, char *workspace, const long first, const long last)"

REDUCE_SIGNATURE = (
    "(void *const *table, char *workspace, const long first, const long last,\n"
    "    const long begin, const long end)"
)

STREAM_BYTES = 1 << 20
"""Values of a batch that take more than this run through in chunks, from the first op to the last,
so that each finds its operands in the second-level cache."""

CHUNK_BYTES = 160 << 10
"""Bytes of the values of one chunk."""

SMALL_WEIGHTS = 128 << 10
"""Bytes of weights and their gradients up to which meeting them in every chunk costs little."""

TURN_BACK = """\
for (long i = first; i < last; i++)
  for (long j = 0; j < {rows}; j++) {to}[j * {columns} + i] = {origin}[i * {ld} + j];"""


MOST_THAT_PACK = 2
"""Threads that each pack what they need; more of them share the work and meet after it."""

TERMS_PER_THREAD = 1 << 22
"""Multiplications of a step for each further thread: with twice as many a second one gains a half,
with a quarter it costs more than it computes (`benchmarks/threads.py`)."""


def useful_threads(kernels: Sequence[Kernel], most: int) -> int:
    """Return how many threads, up to `most`, are to share these kernels: by a rule on the shapes.

    The bits are the same for every number.
    """
    terms = sum(k.rows * k.columns * k.depth for k in kernels if isinstance(k, Product))
    return max(1, min(most, terms // TERMS_PER_THREAD + 1))


@dataclass(eq=False)
class Emitter:
    """Collects the functions of one program over `batch` rows and `threads` threads."""

    layout: Layout
    kernels: list[Kernel]
    values: list[Value]
    batch: int
    threads: int
    functions: list[str] = field(default_factory=list)
    phases: Mapping[str, list[str]] = field(
        default_factory=lambda: {"prepare": [], "rows": [], "reduce": []}
    )

    def emit(self) -> None:
        """Write every kernel and note in which phase it is called."""
        self.layout.place(self.kernels, self.values)
        self.chunk = self._chunk()
        for value in self.values:
            if value.padded and not value.written:
                self._copy(value, "rows" if value.rows == self.batch else "prepare", incoming=True)
        for number, kernel in enumerate(self.kernels):
            name = f"kernel_{number}"
            if isinstance(kernel, Product):
                self._product(kernel, name)
            elif isinstance(kernel, ColumnSum):
                self._column_sum(kernel, name)
            elif isinstance(kernel, LossRows):
                self._loss(kernel, name)
            else:
                self._row_kernel(name, kernel, self._map(kernel))
        for value in self.values:
            if value.padded and value.final:
                self._copy(value, "rows", incoming=False)

    def _chunk(self) -> int:
        """Return how many rows run through the program together."""
        size = self.layout.itemsize
        of_rows = [v for v in self.values if v.rows == self.batch and v.stored]
        row_bytes = sum(self.layout.stride(v) * size for v in of_rows)
        products = [k for k in self.kernels if isinstance(k, Product)]
        weights = {k.c if k.form == "weight_gradient" else k.b for k in products}
        small = sum(v.array.nbytes for v in weights) <= SMALL_WEIGHTS
        if self.batch * row_bytes <= STREAM_BYTES or not small:
            return max(self.batch, 1)
        return max(self.layout.target.tile_rows, min(self.batch, CHUNK_BYTES // row_bytes))

    def slices(self, count: int) -> list[int]:
        """Return the lengths into which threads share `count`."""
        bounds = [count * t // self.threads for t in range(self.threads + 1)]
        return sorted({b - a for a, b in pairwise(bounds)})

    def _row_slices(self) -> list[int]:
        rest = self.batch % self.chunk
        return sorted({*self.slices(self.chunk), *(self.slices(rest) if rest else [])})

    def _function(
        self, name: str, text: str, body: str, names: Sequence[str], *, reduce: bool = False
    ) -> None:
        signature = REDUCE_SIGNATURE if reduce else SIGNATURE
        lines = indent(f"(void)table, (void)workspace;\n{body}", "  ")
        declared = self.layout.declare(names, body)
        self.functions.append(
            f"/* {text} */\nstatic void {name}{signature} {{\n{declared}{lines}\n}}\n"
        )

    def _call(self, phase: str, name: str, count: int) -> None:
        if phase == "rows":
            if count != self.batch:
                raise UnsupportedError(f"row count {count} in a program over {self.batch}")
            call = f"{name}(table, workspace, first, last);"
        else:
            more = ", begin, end" if phase == "reduce" else ""
            call = f"{name}(table, workspace, PART({count}){more});"
        self.phases[phase].append(call)

    def _copy(self, value: Value, phase: str, *, incoming: bool) -> None:
        """Copy between the caller's array and the padded one."""
        name = f"{'import' if incoming else 'export'}_{value.name}"
        ends = [f"{value.name}, {self.layout.stride(value)}", f"{value.name}_np, {value.columns}"]
        to, origin = ends if incoming else ends[::-1]
        body = f"copy_rows({to}, {origin}, {value.columns}, first, last);"
        names = [value.name, f"{value.name}_np"]
        way = "from the caller's array" if incoming else "to the caller's array"
        self._function(name, f"{value.name} {way}", body, names)
        self._call(phase, name, value.rows)

    def _row_kernel(self, name: str, kernel: Kernel, body: str, more: Sequence[str] = ()) -> None:
        names = [v.name for v in (*kernel.reads, *kernel.writes) if v.stored]
        self._function(name, kernel.text, body, [*names, *more])
        self._call("rows", name, kernel.reads[0].rows)

    def _loss(self, kernel: LossRows, name: str) -> None:
        self.layout.external("loss_value", kernel.value)
        self.layout.room("row_loss", self.batch, "double")
        self.layout.room("bad_label", 1, "int64_t")
        self._row_kernel(name, kernel, emit_loss(kernel, self.layout), ["row_loss", "bad_label"])

    def _map(self, kernel: Map) -> str:
        known: dict[Value, str] = {}
        lines = map_lines(kernel, self.layout, "i", "j", known)
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
            f"sum_columns({out.name}, {x.name}, {self.layout.stride(x)}, {x.columns}, first, last, "
            "begin, end);"
        )
        self._function(name, kernel.text, body, [x.name, out.name], reduce=True)
        self._call("reduce", name, -(-x.columns // self.layout.lanes))

    def _product(self, kernel: Product, name: str) -> None:
        reduce = kernel.form == "weight_gradient"
        turned = self._turned(kernel, name) if reduce else None
        product = turned or kernel
        often = self.chunk < self.batch or self.threads > MOST_THAT_PACK
        tiling = choose_tiling(product, self.layout, min(product.depth, self.chunk), often=often)
        panel = f"{name}_panels"
        if tiling.packing != "none" and tiling.ahead:
            self._packing(product, tiling, name, panel)
        if tiling.pack_rows:
            self.layout.room(f"{name}_rows", product.rows * tiling.depth_block)
        self.functions.append(emit_tile(product, tiling, name, self.layout))
        slices = self.slices(product.rows) if reduce else self._row_slices()
        body = emit_product(product, tiling, name, panel, self.layout, slices)
        names = [product.a.name, product.b.name, panel, f"{name}_rows"]
        if turned is not None:
            body += "\n" + TURN_BACK.format(
                rows=kernel.rows,
                columns=kernel.columns,
                to=kernel.c.name,
                origin=turned.c.name,
                ld=self.layout.stride(turned.c),
            )
            names += [kernel.c.name, turned.c.name]
        text = "; ".join([kernel.text, *(m.text for m in kernel.epilogue)])
        self._function(name, text, body, names, reduce=reduce)
        self._call("reduce" if reduce else "rows", name, product.rows)

    def _turned(self, kernel: Product, name: str) -> Product | None:
        """Return the product of a narrow weight gradient's transpose, whose vectors are full."""
        if not kernel.is_turned(self.layout.lanes):
            return None
        array = np.empty((kernel.columns, kernel.rows), kernel.c.array.dtype)
        c = Value(f"{name}_turned", array, written=True, padded=True)
        self.layout.room(c.name, c.rows * self.layout.stride(c))
        return Product("weight_gradient", kernel.b, kernel.a, c, None, kernel.text)

    def _packing(self, kernel: Product, tiling: Tiling, name: str, panel: str) -> None:
        self.layout.room(panel, panel_count(kernel, self.layout))
        names = [kernel.b.name, panel]
        title = f"{kernel.b.name} in panels"
        if kernel.form == "weight_gradient":
            body = emit_row_packing(kernel, panel, self.layout)
            self._function(f"{name}_pack", title, body, names)
            self._call("rows", f"{name}_pack", kernel.b.rows)
        else:
            vectors = -(-kernel.columns // self.layout.lanes)
            transposed = tiling.packing == "transposed"
            body = emit_packing(kernel, panel, self.layout, transposed=transposed)
            self._function(f"{name}_pack", title, body, names)
            self._call("prepare", f"{name}_pack", -(-vectors // 2))


def _reduces(kernel: Kernel) -> bool:
    """Return whether the kernel sums over the rows of the batch."""
    return isinstance(kernel, ColumnSum) or (
        isinstance(kernel, Product) and kernel.form == "weight_gradient"
    )
