"""The kernels of a program as C functions.

Threads divide the work of a phase and synchronize after it; the sums do not depend on their number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from mlpengine.backends.compiled.embeddings import embedding_rows, embedding_sums
from mlpengine.backends.compiled.kernels import (
    ColumnSum,
    Draw,
    Embedding,
    EmbeddingSums,
    Kernel,
    LossRows,
    Map,
    Product,
    SoftmaxRows,
)
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.losses import class_weights, column_scale, loss_rows
from mlpengine.backends.compiled.packing import packing, panel_count, row_packing
from mlpengine.backends.compiled.products import (
    group_count,
    group_size,
    map_statements,
    product_statements,
    row_copy_size,
    tile_function,
    tile_tops,
)
from mlpengine.backends.compiled.rows import softmax_rows
from mlpengine.backends.compiled.statements import Function, Loop, Phase, Statement, store
from mlpengine.backends.compiled.tiling import Tiling, choose_tiling
from mlpengine.backends.compiled.values import UnsupportedError, Value, padded_length
from mlpengine.locks import cached_property

STREAM_BYTES = 1 << 20
"""Bytes of a batch's values above which rows are processed in chunks, each from the first op to the
last, so that operands stay in the second-level cache."""

CHUNK_BYTES = 160 << 10
"""Bytes of the values of one chunk."""

SMALL_WEIGHTS = 128 << 10
"""Bytes of weights and their gradients up to which chunks are used: every chunk reads them."""

SMALL_PRODUCT = 4096
"""Weights below which threads divide a product by rows in any case, as the loss before it is:
reading few weights twice takes less than a barrier."""

MIN_CLAIMABLE = 8
"""Tiles or panels for each thread from which threads claim them one after another."""

MAX_THREADS_TO_PACK = 2
"""Number of threads up to which each packs its own panels; more threads divide the work first."""

TERMS_PER_THREAD = 1 << 22
"""Multiplications of a step for each additional thread.

With twice as many, a second thread makes a step one and a half times as fast; with a quarter it
makes it slower (`benchmarks/threads.py`)."""


def useful_threads(kernels: Sequence[Kernel], limit: int) -> int:
    """Return the number of threads, up to `limit`, for these kernels; it follows from the shapes.

    The result has the same bits for every number of threads.
    """
    terms = sum(k.rows * k.columns * k.depth for k in kernels if isinstance(k, Product))
    return max(1, min(limit, terms // TERMS_PER_THREAD + 1))


@dataclass(eq=False)
class Emitter:
    """Generates the functions of one program over `batch` rows and `threads` threads.

    Attributes:
        functions: in the order of their calls within a phase.
        chunk: number of rows that are processed together.
        claimable: the number of units of each list from which threads claim what they do.
        output: what the loss reads, if there is one.

    Threads divide the rows of the batch or, where the inputs of all layers have fewer numbers than
    the weights, the columns of the products, so that each reads, packs and updates its own weights
    only.
    """

    layout: Layout
    kernels: list[Kernel]
    values: list[Value]
    batch: int
    threads: int
    functions: list[Function] = field(default_factory=list)
    claimable: list[int] = field(default_factory=list)
    output: Value | None = None
    _trains: bool = False

    def emit(self) -> None:
        """Generate the functions of every kernel, and reserve their workspace."""
        self.layout.place(self.kernels, self.values)
        self.chunk = self._chunk()
        for value in self.values:
            if value.padded and not value.written:
                self._copy(value, "rows" if value.rows == self.batch else "prepare", incoming=True)
        for number, kernel in enumerate(self.kernels):
            name = f"kernel_{number}"
            if isinstance(kernel, LossRows):
                self.output = kernel.output
            self._trains = self.output is not None or isinstance(kernel, Draw)
            if isinstance(kernel, Product):
                self._product(kernel, name)
            elif isinstance(kernel, ColumnSum):
                self._column_sum(kernel, name)
            elif isinstance(kernel, Draw):
                self._draw(kernel, name)
            elif isinstance(kernel, LossRows):
                self._loss(kernel, name)
            elif isinstance(kernel, Embedding):
                self._row_kernel(name, kernel, embedding_rows(kernel, self.layout))
            elif isinstance(kernel, EmbeddingSums):
                reads, writes = _names(kernel.reads), _names(kernel.writes)
                body = embedding_sums(kernel, self.layout)
                self._add(name, "reduce", kernel.frequency.rows, kernel.text, body, reads, writes)
            elif isinstance(kernel, SoftmaxRows):
                self._row_kernel(name, kernel, softmax_rows(kernel, self.layout))
            else:
                self._row_kernel(name, kernel, self._map(kernel))
        self._trains = True
        for value in self.values:
            if value.padded and value.final:
                self._copy(value, "rows", incoming=False)

    def _chunk(self) -> int:
        """Return the number of rows that are processed together."""
        size = self.layout.itemsize
        of_rows = [v for v in self.values if v.rows == self.batch and v.stored]
        row_bytes = sum(self.layout.stride(v) * size for v in of_rows)
        products = [k for k in self.kernels if isinstance(k, Product)]
        weights = {k.c if k.form == "weight_gradient" else k.b for k in products}
        small = sum(v.array.nbytes for v in weights) <= SMALL_WEIGHTS
        if self.batch * row_bytes <= STREAM_BYTES or not small:
            return max(self.batch, 1)
        rows = min(self.batch, CHUNK_BYTES // row_bytes)
        return max(rows, min(self.batch, 8))  # a product of fewer rows reads weights too often

    @cached_property
    def _by_columns(self) -> bool:
        """Whether threads divide the columns of wide products."""
        products = [k for k in self.kernels if isinstance(k, Product) and k.form == "forward"]
        weights = sum(k.columns * k.depth for k in products)
        inputs = sum(k.rows * k.depth for k in products)
        return self.threads > 1 and self.chunk >= self.batch and weights >= inputs

    def slices(self, count: int) -> list[int]:
        """Return the different lengths of the shares of `count` things, of one thread or of all."""
        bounds = [count * t // self.threads for t in range(self.threads + 1)]
        return sorted({count, *(b - a for a, b in pairwise(bounds))})

    def _row_slices(self) -> list[int]:
        last = self.batch % self.chunk
        return sorted({*self.slices(self.chunk), *(self.slices(last) if last else [])})

    def _add(
        self,
        name: str,
        phase: Phase,
        count: int,
        text: str,
        body: Sequence[Statement],
        reads: Sequence[str],
        writes: Sequence[str],
        tile: Function | None = None,
        *,
        by_columns: bool = False,
        takes_part: bool = False,
        claims: Literal["", "before", "within"] = "",
        number: int = 0,
    ) -> None:
        if phase == "rows" and count != self.batch and not by_columns:
            raise UnsupportedError(f"row count {count} in a program over {self.batch}")
        parameters = ["const struct part part"] if takes_part else []
        parameters += ["const int64_t first, const int64_t last"] if claims != "within" else []
        parameters += ["const int64_t begin, const int64_t end"] if phase == "reduce" else []
        self.functions.append(
            Function(
                name,
                phase,
                [*reads, *(() if tile else writes)],  # a tile declares what it writes
                body,
                text,
                ", ".join(parameters),
                count=count,
                tile=tile,
                by_columns=by_columns,
                writes=writes,
                takes_part=takes_part,
                claims=claims,
                number=number,
                trains=self._trains,
            )
        )

    def _copy(self, value: Value, phase: Phase, *, incoming: bool) -> None:
        """Copy between the caller's array and the padded one."""
        name = f"{'import' if incoming else 'export'}_{value.name}"
        ends = [f"{value.name}, {self.layout.stride(value)}", f"{value.name}_np, {value.columns}"]
        to, origin = ends if incoming else ends[::-1]
        body = [f"copy_rows({to}, {origin}, {value.columns}, first, last);"]
        way = "from the caller's array" if incoming else "to the caller's array"
        text = f"{value.name} {way}"
        names = [f"{value.name}_np", value.name]
        reads, writes = (names[:1], names[1:]) if incoming else (names[1:], names[:1])
        self._add(name, phase, value.rows, text, body, reads, writes)

    def _row_kernel(self, name: str, kernel: Kernel, body: Sequence[Statement]) -> None:
        reads, writes = _names(kernel.reads), _names(kernel.writes)
        self._add(name, "rows", kernel.writes[0].rows, kernel.text, body, reads, writes)

    def _loss(self, kernel: LossRows, name: str) -> None:
        self.layout.add_array("loss_value", kernel.value)
        self.layout.reserve("row_loss", self.batch, "double", ("update",))
        buffers = ["row_loss"]
        if kernel.target.array.dtype.kind == "i":
            self.layout.reserve("bad_label", 1, "int64_t", ("prepare", "update"))
            buffers.append("bad_label")
        classes = len(class_weights(kernel.op))
        reads = _names(kernel.reads)
        if classes:
            self.layout.reserve("column_scale", padded_length(classes, self.layout.lanes))
            reads.append("column_scale")
            text, scale = "The share of each class in the mean", column_scale(kernel)
            self._add(
                f"{name}_scale",
                "prepare",
                classes,
                text,
                scale,
                [],
                ["column_scale"],
                takes_part=True,
            )
        body, writes = loss_rows(kernel, self.layout), [*_names(kernel.writes), *buffers]
        rows = kernel.output.rows
        self._add(name, "rows", rows, kernel.text, body, reads, writes, takes_part=True)

    def _map(self, kernel: Map) -> Sequence[Statement]:
        known: dict[Value, str] = {}
        body = [
            *map_statements(kernel, self.layout, "i", "j", known),
            *(store(self.layout.at(v, "i", "j"), known[v]) for v in kernel.writes if v.stored),
        ]
        columns = Loop("j", 0, kernel.writes[0].columns, body, step="LANES")
        return [Loop("i", "first", "last", [columns])]

    def _draw(self, kernel: Draw, name: str) -> None:
        rng, width = self.layout.add_generator(kernel.op.rng), self.layout.stride(kernel.out)
        if kernel.op.layer == 0:
            step = Loop("i", "first", "last", [f"{rng}[1]++;"])
            self._add(f"{name}_step", "prepare", 1, "The generator's next step", [step], [], [rng])
        span = f"before + first * {width}, before + last * {width}"
        body = [
            f"const int64_t before = {rng}[2] * {width}; // bytes of the batch's rows before these",
            f"draw_bytes({kernel.out.name} - before, {rng}, {kernel.op.layer}, {span});",
        ]
        self._add(name, "rows", kernel.out.rows, kernel.text, body, [rng], [kernel.out.name])

    def _column_sum(self, kernel: ColumnSum, name: str) -> None:
        x, out = kernel.x, kernel.out
        matrix = f"{x.name}, {self.layout.stride(x)}, {x.columns}"
        body = [f"sum_columns({out.name}, {matrix}, first, last, begin, end);"]
        count = -(-x.columns // self.layout.lanes)
        self._add(name, "reduce", count, kernel.text, body, [x.name], [out.name])

    def _product(self, kernel: Product, name: str) -> None:
        reduce = kernel.form == "weight_gradient"
        turned = self._turned(kernel, name) if reduce else None
        product = turned or kernel
        panels = -(-product.columns // (2 * self.layout.lanes))
        small = product.columns * product.depth < SMALL_PRODUCT
        by_columns = self._by_columns and not (reduce or small or panels < self.threads)
        each_packs = self.threads <= MAX_THREADS_TO_PACK or by_columns
        often = (self.chunk < self.batch and not reduce) or not each_packs
        depth = min(product.depth, self.chunk) if reduce else product.depth
        slices = self.slices(product.rows) if reduce else self._row_slices()
        if by_columns:
            slices = [product.rows]
        share = -(-(product.rows if reduce else self.chunk) // self.threads)
        if by_columns:
            share = product.rows
        tiling = choose_tiling(product, self.layout, depth, share, often=often)
        buffers = [product.a.name]
        if tiling.packing != "none":
            buffers.append(f"{name}_panels")
            if tiling.ahead:
                self._packing(product, tiling, name)
            else:
                size = group_size(product, tiling, self.layout)
                self.layout.reserve(f"{name}_panels", size * self.threads)
        if tiling.packing == "none" or not tiling.ahead:
            buffers.append(product.b.name)
        claims = self._claims(product, tiling, depth, by_columns=by_columns, whole=turned is None)
        claimed, number = claims == "within", len(self.claimable)
        if tiling.pack_rows:
            copies = self.threads if by_columns or claimed else 1
            size = row_copy_size(product, tiling, self.layout, claimed=claimed)
            self.layout.reserve(f"{name}_rows", size * copies)
            buffers.append(f"{name}_rows")
        if claimed:
            slices = [product.rows]
            count = len(tile_tops(product.rows, tiling.height)) - 1
            self.claimable += [count] * group_count(product, tiling, self.layout)
        elif claims:
            self.claimable.append(panels)
        tile = tile_function(product, tiling, name, self.layout)
        body = product_statements(
            product,
            tiling,
            name,
            self.layout,
            slices,
            by_columns=by_columns,
            claims=number if claimed else None,
        )
        if turned is not None:
            ld = self.layout.stride(turned.c)
            move = f"{kernel.c.name}[j * {kernel.columns} + i] = {turned.c.name}[i * {ld} + j];"
            body = [*body, Loop("i", "first", "last", [Loop("j", 0, kernel.rows, [move])])]
            buffers += [kernel.c.name, turned.c.name]
        text = "; ".join([kernel.text, *(m.text for m in kernel.epilogue)])
        phase: Phase = "reduce" if reduce else "rows"
        count = panels if by_columns else product.rows
        writes = _names(product.writes)
        self._add(
            name,
            phase,
            count,
            text,
            body,
            buffers,
            writes,
            tile,
            by_columns=by_columns,
            takes_part=True,
            claims=claims,
            number=number,
        )

    def _claims(
        self, product: Product, tiling: Tiling, depth: int, *, by_columns: bool, whole: bool
    ) -> Literal["", "before", "within"]:
        """Return how threads claim tiles or panels of a product, if there are many of them.

        The passes of a long sum add to what the same thread has computed, and rows are packed once
        for all panels, so that products of several passes or packed rows are divided statically.
        """
        if self.threads == 1 or not whole:
            return ""
        few = MIN_CLAIMABLE * self.threads
        if by_columns:
            panels = -(-product.columns // (2 * self.layout.lanes))
            return "before" if panels >= few and not tiling.pack_rows else ""
        tiles = -(-product.rows // tiling.height)
        across = product.form == "weight_gradient"
        return "within" if across and tiles >= few and depth <= tiling.depth_block else ""

    def _turned(self, kernel: Product, name: str) -> Product | None:
        """Return the product of a narrow weight gradient's transpose, whose vectors are full."""
        if not kernel.is_turned(self.layout.lanes):
            return None
        array = np.empty((kernel.columns, kernel.rows), kernel.c.array.dtype)
        c = Value(f"{name}_turned", array, written=True, padded=True)
        self.layout.reserve(c.name, c.rows * self.layout.stride(c))
        return Product(
            "weight_gradient", kernel.b, kernel.a, c, None, kernel.text, factor=kernel.factor
        )

    def _packing(self, kernel: Product, tiling: Tiling, name: str) -> None:
        panel = f"{name}_panels"
        self.layout.reserve(panel, panel_count(kernel, self.layout))
        reads, writes = [kernel.b.name], [panel]
        text = f"{kernel.b.name} in panels"
        if kernel.form == "weight_gradient":
            body = row_packing(kernel, panel, self.layout)
            self._add(f"{name}_pack", "rows", kernel.b.rows, text, body, reads, writes)
        else:
            vectors = -(-kernel.columns // self.layout.lanes)
            transposed = tiling.packing == "transposed"
            body = packing(kernel, panel, self.layout, transposed=transposed)
            self._add(f"{name}_pack", "prepare", -(-vectors // 2), text, body, reads, writes)


def _names(values: Sequence[Value]) -> list[str]:
    """Return the names of those that are in memory."""
    return [value.name for value in values if value.stored]
