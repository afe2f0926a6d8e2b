"""Random bytes for dropout masks."""

from dataclasses import dataclass

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.maps import Map
from mlpengine.backends.compiled.statements import ForLoop
from mlpengine.backends.values import MatrixValue, Values
from mlpengine.ops import Dropout, Normal
from mlpengine.ops.philox import lines_per_row


@dataclass(eq=False, repr=False)
class Draw(Kernel):
    """Draws the mask `out` of a dropout: a random byte for each entry."""

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
        out = self.out
        rng, body = draw(writer, name, self.op, out, out.name, writer.layout.stride(out))
        writer.add(name, "rows", out.rows, self.text, body, [rng], [out.name], trains=True)


def draw(
    writer: Writer, name: str, op: Dropout | Normal, out: MatrixValue, into: str, width: int
) -> tuple[str, list[str]]:
    """Return the C name of the generator, and statements that draw bytes into the array `into`.

    For the first random op of a network, also add the function that advances the generator.
    """
    rng = writer.layout.add_generator(op.rng)
    if op.layer == 0:
        step = ForLoop("i", "first", "last", [f"{rng}[1]++;"])
        text = "The generator's next step"
        writer.add(f"{name}_step", "prepare", 1, text, [step], [], [rng], trains=True)
    pitch = lines_per_row(out.array.shape) * width
    return rng, [
        f"const int64_t before = {rng}[2] * {pitch}; // bytes of the rows before this shard",
        f"draw_bytes({into} - before, {rng}, {op.layer}, before + first * {width}, "
        f"before + last * {width});",
    ]
