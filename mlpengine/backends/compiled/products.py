"""Matrix products: the ops `Linear` and `MatMul`, and their gradients."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from mlpengine.backends.compiled.column_sum import ColumnSum
from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel, present
from mlpengine.backends.compiled.matrix import MatrixProduct
from mlpengine.backends.compiled.panels import packing, panel_count, row_packing
from mlpengine.backends.compiled.statements import ForLoop, Statement
from mlpengine.backends.compiled.tile_loops import (
    group_count,
    group_size,
    product_statements,
    row_copy_size,
    tile_function,
    tile_tops,
)
from mlpengine.backends.compiled.tiling import Tiling, choose_tiling
from mlpengine.backends.scalar.layer_functions import (
    back_dense,
    dense_function,
)
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, UnsupportedError, Values, is_short
from mlpengine.ops import Linear, MatMul

SMALL_PRODUCT = 4096
"""Minimum number of weights for which threads divide the columns of a product.

If threads divide rows, each thread reads all weights.  For few weights, this is faster than the
barrier that must separate a product divided by columns from a product divided by rows."""

MIN_CLAIMABLE = 8
"""Threads claim tiles or panels one by one if there are at least this many per thread."""

READ_ONCE = 8
"""A weight gradient with at most this many rows reads its operands so rarely that padding them
does not pay."""

MAX_THREADS_TO_PACK = 2
"""Up to this number of threads, each thread packs all panels; more threads share one copy."""


class Product(MatrixProduct, Kernel):
    """A matrix product, computed in tiles (see `tile_loops`)."""

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> Sequence[Kernel] | None:
        op = instruction.op
        if isinstance(op, MatMul):
            return cls.of_matrices(instruction, values)
        if not isinstance(op, Linear):
            return None
        if instruction.kind != "backward":
            (x, w, b), (out,) = values.read_each(instruction.reads), instruction.writes
            y = values.write(out, "linear_")
            _need_leaf(values, w, b)
            return [cls("forward", x, w, y, b, f"{y.name} = {x.name} {w.name}^T")]
        dy, x, w = values.read_each(instruction.reads)
        dx, dw, db = instruction.writes
        _need_leaf(values, w)
        kernels: list[Kernel] = []
        if dw is not None:
            c = values.write(dw, "d_weight_")
            text = f"{c.name} = {dy.name}^T {x.name}"
            kernels.append(cls("weight_gradient", dy, x, c, None, text))
        if db is not None:
            kernels.append(ColumnSum(dy, values.write(db, "d_bias_")))
        if dx is not None:
            c = values.write(dx, "d_x_")
            text = f"{c.name} = {dy.name} {w.name}"
            kernels.append(cls("input_gradient", dy, w, c, None, text))
        return kernels

    @classmethod
    def of_matrices(cls, instruction: InstructionLike, values: Values) -> Sequence[Kernel]:
        """Return the product of a `MatMul` c = a b with a single matrix b, or of its gradients.

        All axes of `a` except the last are merged into rows, so that products have the forms of
        `Linear`.
        """
        if instruction.kind != "backward":
            (a, b), (out,) = values.read_each(instruction.reads), instruction.writes
            y = values.write(out, "matmul_")
            _need_leaf(values, b)
            return [cls("input_gradient", a, b, y, None, f"{y.name} = {a.name} {b.name}")]
        dy, a, b = values.read_each(instruction.reads)
        da, db = instruction.writes
        _need_leaf(values, b)
        kernels: list[Kernel] = []
        if db is not None:
            c = values.write(db, "d_b_")
            text = f"{c.name} = {a.name}^T {dy.name}"
            kernels.append(cls("weight_gradient", a, dy, c, None, text))
        if da is not None:
            c = values.write(da, "d_a_")
            kernels.append(cls("forward", dy, b, c, None, f"{c.name} = {dy.name} {b.name}^T"))
        return kernels

    def _is_transposed(self, lanes: int) -> bool:
        """Return whether the transpose of c is computed, because c is narrower than a vector."""
        return self.sums_rows and self.columns <= lanes and self.rows >= 2 * lanes

    def read_by_vectors(self, lanes: int) -> list[MatrixValue]:
        vectors = [v for m in self.epilogue for v in m.reads] + present(self.bias)
        # A weight gradient reads the rows of this operand in whole vectors, often without packing.
        # If the product reads them only once or twice, copying them with padding does not pay.
        if self.sums_rows and self.rows > READ_ONCE:
            vectors.append(self.a if self._is_transposed(lanes) else self.b)
        return [value for value in vectors if not is_short(value.columns, lanes)]

    def emit(self, writer: Writer, name: str) -> None:
        layout, reduce = writer.layout, self.sums_rows
        transposed = self._transpose(writer, name)
        product = transposed or self
        panels = -(-product.columns // (2 * layout.lanes))
        small = product.columns * product.depth < SMALL_PRODUCT
        by_columns = writer.by_columns and not (reduce or small or panels < writer.threads)
        # If threads divide columns, each thread packs and reads only its own panels.  If threads
        # divide rows, all threads read all panels.  Then one packed copy for all needs a barrier.
        each_packs = writer.threads <= MAX_THREADS_TO_PACK or by_columns
        often = (writer.chunk < writer.batch and not reduce) or not each_packs
        times = writer.times(product.a.rows)
        depth = min(product.depth, writer.chunk * times) if reduce else product.depth
        slices = [rows * times for rows in writer.row_slices()]
        share = -(-writer.chunk // writer.threads) * times
        if reduce:
            slices, share = writer.slices(product.rows), -(-product.rows // writer.threads)
        if by_columns:
            slices, share = [product.rows], product.rows
        tiling = choose_tiling(product, layout, depth, share, often=often)
        buffers = [product.a.name]
        if tiling.packing != "none":
            buffers.append(f"{name}_panels")
            if tiling.ahead:
                _pack_ahead(product, tiling, writer, name)
            else:
                size = group_size(product, tiling, layout)
                layout.reserve(f"{name}_panels", size * writer.threads)
        if tiling.packing == "none" or not tiling.ahead:
            buffers.append(product.b.name)
        claims: Literal["", "before", "within"] = ""
        if writer.threads > 1 and transposed is None:
            claims = _claims(product, tiling, depth, panels if by_columns else 0, writer.threads)
        claimed, number = claims == "within", len(writer.claimable)
        if tiling.pack_rows:
            copies = writer.threads if by_columns or claimed else 1
            size = row_copy_size(product, tiling, layout, claimed=claimed)
            layout.reserve(f"{name}_rows", size * copies)
            buffers.append(f"{name}_rows")
        if claimed:
            slices = [product.rows]
            count = len(tile_tops(product.rows, tiling.height)) - 1
            writer.claimable += [count] * group_count(product, tiling, layout)
        elif claims:
            writer.claimable.append(panels)
        body = product_statements(
            product,
            tiling,
            name,
            layout,
            slices,
            times=times,
            by_columns=by_columns,
            claimed=claimed,
        )
        if transposed is not None:
            ld = layout.stride(transposed.c)
            place = f"{self.c.name}[j * {layout.stride(self.c)} + i]"
            move = f"{place} = {transposed.c.name}[i * {ld} + j];"
            body = [*body, ForLoop("i", "first", "last", [ForLoop("j", 0, self.rows, [move])])]
            buffers += [self.c.name, transposed.c.name]
        writer.add(
            name,
            "reduce" if reduce else "rows",
            panels if by_columns else product.rows,
            "; ".join([self.text, *(m.text for m in self.epilogue)]),
            body,
            buffers,
            product.writes,
            tile_function(product, tiling, name, layout),
            by_columns=by_columns,
            takes_part=True,
            claims=claims,
            number=number,
            times=times,
        )

    def _transpose(self, writer: Writer, name: str) -> MatrixProduct | None:
        """Return the product that computes the transpose of c, if `_is_transposed`; else None."""
        if not self._is_transposed(writer.layout.lanes):
            return None
        array = np.empty((self.columns, self.rows), self.c.array.dtype)
        c = MatrixValue(f"{name}_transposed", array, written=True, padded=True)
        writer.layout.reserve(c.name, c.rows * writer.layout.stride(c))
        return MatrixProduct(self.form, self.b, self.a, c, None, self.text)

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        if self.form == "forward":
            return self._scalar_forward(writer)
        if self.form == "input_gradient":
            return self._scalar_input_gradient(writer)
        if not writer.trains or self.a.rows > 1:
            raise UnsupportedError(self.text)
        writer.factors[self.c.address] = writer.places(self.a), writer.places(self.b)
        return []

    def _scalar_forward(self, writer: ScalarWriter) -> list[Statement]:
        names: dict[MatrixValue, str] = {}
        for k, step in enumerate(self.epilogue):
            for name, value in step.names.items():
                is_argument = name in ("w", "b")
                names.setdefault(value, f"{name}{k}" if k or is_argument else name)
        operand = names.setdefault(self.c, "x")
        made = {self.c, *(value for step in self.epilogue for value in step.writes)}
        reads = [value for value in names if value not in made]
        stored = [value for value in names if value in made and value.stored]
        steps, needed = [], {*stored}
        for step in reversed(self.epilogue):
            kept = [name for name, v in step.names.items() if v in step.writes and v in needed]
            rule = step.rule.limited_to(kept)
            needed |= {step.names[name] for name in rule.reads}
            steps.append((rule, {name: names[value] for name, value in step.names.items()}))
        given = present(self.bias)
        function = dense_function(
            writer.functions,
            steps[::-1],
            [names[value] for value in stored],
            in_dim=self.depth,
            operand=operand,
            reads=[names[value] for value in reads],
            biased=bool(given),
            about=" of ".join(step.op.name for step in self.epilogue[::-1]),
        )
        weights, sizes = writer.places(self.b, *given), f"{self.depth}, {self.columns}"
        return [writer.each_row(function, self.rows, self.a, weights, *reads, *stored, sizes)]

    def _scalar_input_gradient(self, writer: ScalarWriter) -> list[Statement]:
        rule, out, read = None, self.c, dict[str, MatrixValue]()
        about = "dx = dy w"
        if self.epilogue:
            (step,) = self.epilogue
            rule, (out,) = step.rule, step.writes
            read = {n: v for n in rule.reads if (v := step.names[n]) is not self.c}
            about = f"dx = dy w, and the gradient of {step.op.name}"
        function = back_dense(writer.functions, rule, [*read], about=about)
        sizes = f"{self.columns}, {self.depth}"
        weight, rows = writer.places(self.b), self.rows
        return [writer.each_row(function, rows, self.a, weight, out, *read.values(), sizes)]


def _need_leaf(values: Values, *operands: MatrixValue | None) -> None:
    """Raise UnsupportedError if a weight depends on rows, because packing comes before the rows."""
    gathers = values.batch is not None and any(a is not None for a in values.batch.gathered)
    for value in present(*operands):
        if value.kind != "parameters" and (value.written or gathers):
            raise UnsupportedError(f"a product with {value.name}: it is computed from rows")


def _claims(
    product: MatrixProduct, tiling: Tiling, depth: int, panels: int, threads: int
) -> Literal["", "before", "within"]:
    """Return how threads divide tiles or, if `panels` is not 0, panels (see `CFunction.claims`).

    The division is static ("") in three cases: there are few tiles or panels; tiles have several
    passes, so that a thread must add to the sums that it stored; or rows are packed, so that a
    thread packs them once for all its panels.
    """
    few = MIN_CLAIMABLE * threads
    if panels:
        return "before" if panels >= few and not tiling.pack_rows else ""
    tiles = -(-product.rows // tiling.height)
    whole = product.sums_rows and depth <= tiling.depth_block
    return "within" if whole and tiles >= few else ""


def _pack_ahead(product: MatrixProduct, tiling: Tiling, writer: Writer, name: str) -> None:
    """Add the function that packs all panels before the product runs."""
    b, panel, layout = product.b, f"{name}_panels", writer.layout
    layout.reserve(panel, panel_count(product, layout))
    function, text = f"{name}_pack", f"{b.name} in panels"
    reads = [each.name for each in present(b, product.bias if tiling.joined > 1 else None)]
    if product.sums_rows:
        body = row_packing(product, panel, layout)
        writer.add(function, "rows", b.rows, text, body, [b.name], [panel])
    else:
        count = -(-product.columns // (2 * layout.lanes))
        body = packing(product, panel, layout, tiling)
        writer.add(function, "prepare", count, text, body, reads, [panel])
