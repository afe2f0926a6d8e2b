"""The random bytes of dropout."""

from dataclasses import dataclass

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.maps import Map
from mlpengine.backends.compiled.statements import ForLoop
from mlpengine.backends.values import MatrixValue, Values
from mlpengine.ops import Dropout
from mlpengine.ops.philox import lines_per_row


@dataclass(eq=False, repr=False)
class Draw(Kernel):
    """Random bytes of a dropout; `out` is its mask."""

    op: Dropout
    out: MatrixValue

    header = "philox"
    draws = True

    def __post_init__(self) -> None:
        self.text = f"{self.out.name} of dropout"
        self.reads, self.writes = [], [self.out]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> list[Kernel] | None:
        op = instruction.op
        if not isinstance(op, Dropout) or instruction.kind == "backward":
            return None
        draw = cls(op, values.write(instruction.work["mask"], "mask_"))
        draw.out.mask = op
        return [draw, *(Map.lower(instruction, values) or ())]

    def emit(self, writer: Writer, name: str) -> None:
        op, out = self.op, self.out
        rng, width = writer.layout.add_generator(op.rng), writer.layout.stride(out)
        if op.layer == 0:
            add_next_step(writer, name, rng)
        pitch = lines_per_row(out.array.shape) * width
        span = f"before + first * {width}, before + last * {width}"
        body = [
            f"const int64_t before = {rng}[2] * {pitch}; // bytes of the batch's rows before these",
            f"draw_bytes({out.name} - before, {rng}, {op.layer}, {span});",
        ]
        writer.add(name, "rows", out.rows, self.text, body, [rng], [out.name], trains=True)


def add_next_step(writer: Writer, name: str, rng: str) -> None:
    """Add the function that moves a generator to its next step."""
    step = ForLoop("i", "first", "last", [f"{rng}[1]++;"])
    text = "The generator's next step"
    writer.add(f"{name}_step", "prepare", 1, text, [step], [], [rng], trains=True)
