"""Sums over rows: gradients of vectors such as biases."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.statements import Statement
from mlpengine.backends.compiled.sums import RowSums
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, UnsupportedError, Values


@dataclass(eq=False, repr=False)
class ColumnSum(Kernel):
    """The sum of each column: the gradient of a vector that all rows share, such as a bias."""

    x: MatrixValue
    out: MatrixValue

    sums_rows = True

    def __post_init__(self) -> None:
        self.text = f"{self.out.name} = columns of {self.x.name} summed"
        self.reads, self.writes = [self.x], [self.out]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> Sequence[Kernel] | None:
        if instruction.kind != "reduce":
            return None
        (wide,), (out,) = instruction.reads, instruction.writes
        if out is None or wide.shape == out.shape:
            return None
        x = values.read(wide)
        shape = (1,) * (wide.ndim - out.ndim) + out.shape
        if x.kind != "rows" or (out.ndim == wide.ndim and out.shape[0] == wide.shape[0]):
            return [RowSums.of(x, wide.shape, shape, out, 1.0, values)]
        if out.shape == wide.shape[-1:]:
            return [cls(x, values.write(out, "d_vector_"))]
        sums = values.make((len(wide), out.size), x, "row_sums_")
        first = RowSums(x, sums, wide.shape, (len(wide), *shape[1:]), 1.0)
        return [first, cls(sums, values.write(out.reshape(-1), "d_vector_"))]

    def emit(self, writer: Writer, name: str) -> None:
        x, layout = self.x, writer.layout
        matrix = f"{x.name}, {layout.stride(x)}, {x.columns}"
        body = [f"sum_columns({self.out.name}, {matrix}, first, last, begin, end);"]
        count, times = -(-x.columns // layout.lanes), writer.times(x.rows)
        buffers = [x.name], [self.out.name]
        writer.add(name, "reduce", count, self.text, body, *buffers, times=times)

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        if not writer.trains:
            raise UnsupportedError(self.text)
        return []  # the sum of a single row is the row itself
