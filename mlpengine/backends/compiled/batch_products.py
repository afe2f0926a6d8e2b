"""Products of small matrices: each row of the batch has its own matrices."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.products import Product
from mlpengine.backends.compiled.row_loops import lane_loop
from mlpengine.backends.compiled.statements import (
    Assign,
    ForLoop,
    Statement,
    Variable,
    load_vector,
    store,
)
from mlpengine.backends.compiled.strides import index_of, nest
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, UnsupportedError, Values
from mlpengine.formula import constant, variable
from mlpengine.ops import BatchMatMul

ROWS_TOGETHER = 4
"""Number of rows of c that are computed together; one read of a row of b serves them all."""


@dataclass(eq=False, repr=False)
class BatchProduct(Kernel):
    """c[i] = a[i] b[i] for `count` matrices; `transposed` is "a", "b" or ""."""

    a: MatrixValue
    b: MatrixValue
    c: MatrixValue
    count: int
    transposed: str = ""

    def __post_init__(self) -> None:
        marks = ["^T" if name == self.transposed else "" for name in "ab"]
        of = f"{self.a.name}{marks[0]} {self.b.name}{marks[1]}"
        self.text = f"{self.c.name} = {of}, {self.count} times"
        self.reads, self.writes = [self.a, self.b], [self.c]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> Sequence[Kernel] | None:
        op, backward = instruction.op, instruction.kind == "backward"
        if not isinstance(op, BatchMatMul):
            return None
        lead, other = (array.shape[:-2] for array in instruction.reads[-2:])
        *slope, a, b = values.read_each(instruction.reads)
        count = prod(lead)
        if prod(other) == 1 and not (b.written and b.kind == "rows"):  # one matrix b for all rows
            return Product.of_matrices(instruction, values)
        if lead != other:
            raise UnsupportedError("batch_matmul of several shapes")
        if not backward:
            return [cls(a, b, values.write(instruction.writes[0], "batch_matmul_"), count)]
        (dy,), (da, db) = slope, instruction.writes
        kernels = list[Kernel]()
        if db is not None:
            kernels.append(cls(a, dy, values.write(db, "d_b_"), count, "a"))
        if da is not None:
            kernels.append(cls(dy, b, values.write(da, "d_a_"), count, "b"))
        return kernels

    def emit(self, writer: Writer, name: str) -> None:
        layout = writer.layout
        starts = [
            f"{'real' if v is self.c else 'const real'} *restrict {n} = "
            f"{v.name} + i * {v.rows // self.count * layout.stride(v)};"
            for n, v in zip("abc", (self.a, self.b, self.c), strict=True)
        ]
        rows = self.c.rows // self.count
        whole = rows // ROWS_TOGETHER * ROWS_TOGETHER
        body: list[Statement] = [*starts]
        if whole:
            some = self._rows(layout, ROWS_TOGETHER)
            body.append(ForLoop("r", 0, whole, some, step=ROWS_TOGETHER))
        if rows > whole:
            body.append(ForLoop("r", whole, rows, self._rows(layout, 1)))
        loop, buffers = [ForLoop("i", "first", "last", body)], (self.reads, self.writes)
        writer.add(name, "rows", self.count, self.text, loop, *buffers)

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        rows, columns = self.c.rows // self.count, self.c.columns
        depth = (self.a.rows // self.count) if self.transposed == "a" else self.a.columns
        strides = {  # along matrices, rows of c, columns of c, and terms of a sum
            "a": (rows * depth, *((1, 0, rows) if self.transposed == "a" else (depth, 0, 1))),
            "b": (columns * depth, *((0, depth, 1) if self.transposed == "b" else (0, 1, columns))),
            "c": (rows * columns, columns, 1),
        }
        a, b, c = (
            writer.element(value, index_of(0, strides[name]))
            for name, value in zip("abc", (self.a, self.b, self.c), strict=True)
        )
        total = variable("total")
        body: list[Statement] = [
            Variable("total", constant(0)),
            ForLoop("j_3", 0, depth, [Assign(total, a * b, "+")]),
            Assign(c, total),
        ]
        return [*nest([("j_0", self.count), ("j_1", rows), ("j_2", columns)], body)]

    def _rows(self, layout: Layout, together: int) -> Sequence[Statement]:
        """Return the statements that compute `together` rows of c, from row r."""
        a, b, c = (layout.stride(value) for value in (self.a, self.b, self.c))
        numbers = range(together)
        sums = f"vec {', '.join(f'sum_{q} = {{0}}' for q in numbers)};"
        if self.transposed == "b":
            line = load_vector(f"b + k * {b} + j", "n")
            terms: list[Statement] = [f"const vec v = {line};"]
            for q in numbers:
                at = load_vector(f"a + (r + {q}) * {a} + j", "n")
                terms.append(f"sum_{q} = multiply_add({at}, v, sum_{q});")
            ends = [f"c[(r + {q}) * {c} + k] = sum_lanes(sum_{q});" for q in numbers]
            over = lane_loop(self.b.columns, layout.lanes, terms)
            return [ForLoop("k", 0, self.b.rows // self.count, [sums, *over, *ends])]
        row, term = (1, a) if self.transposed == "a" else (a, 1)
        terms = [f"const vec v = {load_vector(f'b + k * {b} + j', 'n')};"]
        for q in numbers:
            at = f"splat(a[(r + {q}) * {row} + k * {term}])"
            terms.append(f"sum_{q} = multiply_add({at}, v, sum_{q});")
        ends = [store(f"c + (r + {q}) * {c} + j", f"sum_{q}", "n") for q in numbers]
        sum_up = ForLoop("k", 0, self.b.rows // self.count, terms)
        return lane_loop(self.c.columns, layout.lanes, [sums, sum_up, *ends])
