"""Sums of columns over the rows, the gradients of vectors."""

from dataclasses import dataclass

from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.writer import Writer
from mlpengine.backends.scalar.writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, Values


@dataclass(eq=False, repr=False)
class ColumnSum(Kernel):
    """The gradient of a bias, or of a vector that is broadcast along rows: each column summed."""

    x: MatrixValue
    out: MatrixValue

    sums_rows = True

    def __post_init__(self) -> None:
        self.text = f"{self.out.name} = columns of {self.x.name} summed"
        self.reads, self.writes = [self.x], [self.out]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> "list[ColumnSum] | None":
        if instruction.kind != "reduce":
            return None
        (x,), (out,) = instruction.reads, instruction.writes
        if out is None or x.ndim != 2 or x.shape[1:] != out.shape:
            return None
        return [cls(values.read(x), values.write(out, "d_vector_"))]

    def emit(self, writer: Writer, name: str) -> None:
        x, layout = self.x, writer.layout
        matrix = f"{x.name}, {layout.stride(x)}, {x.columns}"
        body = [f"sum_columns({self.out.name}, {matrix}, first, last, begin, end);"]
        count = -(-x.columns // layout.lanes)
        writer.add(name, "reduce", count, self.text, body, [x.name], [self.out.name])

    def emit_scalar(self, writer: ScalarWriter) -> list[str]:
        return []  # the gradient of a bias is summed with that of its weight
