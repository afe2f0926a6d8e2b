"""Standard normal samples, row by row."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

from mlpengine.backends.compiled.dropout import draw
from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.maps import Map
from mlpengine.backends.compiled.statements import ForLoop, If, Statement
from mlpengine.backends.values import MatrixValue, Values
from mlpengine.ops import Normal
from mlpengine.ops.philox import padded_columns


@dataclass(eq=False, repr=False)
class NormalRows(Kernel):
    """Draws standard normal numbers z (of a `Normal` op) in training; z is 0 in predictions."""

    op: Normal
    out: MatrixValue

    header = "philox"
    draws = True

    def __post_init__(self) -> None:
        self.text = f"{self.out.name}, standard normal"
        self.reads, self.writes = [], [self.out]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> Sequence[Kernel] | None:
        op = instruction.op
        if not isinstance(op, Normal) or instruction.kind == "backward":
            return None
        sample = cls(op, values.write(instruction.work["z"], "z_"))
        return [sample, *(Map.lower(instruction, values) or ())]

    def emit(self, writer: Writer, name: str) -> None:
        op, out, layout = self.op, self.out, writer.layout
        draws, pairs = f"{name}_draws", -(-out.columns // 2)
        width = padded_columns(8 * pairs)
        layout.reserve(draws, out.rows * width, "uint8_t")
        rng, drawn = draw(writer, name, op, out, draws, width)
        second = f"z[{pairs} + j] = (real)(sin(angle) * radius);"
        pair: list[Statement] = [
            "uint32_t drawn[2];",
            f"memcpy(&drawn[0], {draws} + i * {width} + j * 4, 4);",
            f"memcpy(&drawn[1], {draws} + i * {width} + ({pairs} + j) * 4, 4);",
            "const double radius = sqrt(log((drawn[0] + 1.0) * 0x1p-32) * -2);",
            f"const double angle = drawn[1] * {pi * 2.0**-31!r};",
            "z[j] = (real)(cos(angle) * radius);",
            If(f"{pairs} + j < {out.columns}", [second]) if out.columns % 2 else second,
        ]
        row = f"real *restrict z = {layout.at(out, 'i', '0')};"
        rows = [ForLoop("i", "first", "last", [row, ForLoop("j", 0, pairs, pair)])]
        zeros: list[Statement] = [row, ForLoop("j", 0, out.columns, ["z[j] = 0;"])]
        otherwise = [ForLoop("i", "first", "last", zeros)]
        body: list[Statement] = [If("part.trains", [*drawn, *rows], otherwise)]
        reads: list[MatrixValue | str] = [rng, draws]
        writer.add(name, "rows", out.rows, self.text, body, reads, [out], takes_part=True)
