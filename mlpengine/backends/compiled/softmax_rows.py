"""Softmax and its logarithm, row by row."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel, present
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.row_loops import lane_loop, mask_lanes
from mlpengine.backends.compiled.statements import ForLoop, Statement, load_vector, store
from mlpengine.backends.scalar.layer_functions import softmax_function
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, UnsupportedError, Values
from mlpengine.ops import LogSoftmax, Softmax


@dataclass(eq=False, repr=False)
class SoftmaxRows(Kernel):
    """Softmax of each row of x, or its `logarithm`; with `dy`, the gradient (x is the output)."""

    x: MatrixValue
    dy: MatrixValue | None
    out: MatrixValue
    logarithm: bool
    text: str

    any_phase = True

    def __post_init__(self) -> None:
        self.reads, self.writes = present(self.x, self.dy), [self.out]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> "list[SoftmaxRows] | None":
        op = instruction.op
        if not isinstance(op, Softmax | LogSoftmax):
            return None
        axes = instruction.reads[0].ndim
        *dy, x = values.read_each(instruction.reads)
        if op.axis % axes != axes - 1:
            raise UnsupportedError(f"{op.name} along axis {op.axis}")
        y = values.write(instruction.writes[0], f"{'d_' if dy else ''}{op.name}_")
        text = f"{y.name} = {op.name} {'backward' if dy else 'forward'}"
        return [cls(x, dy[0] if dy else None, y, isinstance(op, LogSoftmax), text)]

    def emit(self, writer: Writer, name: str) -> None:
        row = self._gradient(writer.layout, self.dy) if self.dy else self._value(writer.layout)
        body = [ForLoop("i", "first", "last", row)]
        writer.add(name, self.called_in, self.out.rows, self.text, body, self.reads, self.writes)

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        if self.dy:
            return super().emit_scalar(writer)
        function = softmax_function(writer.functions, log_of=self.logarithm)
        return [writer.each_row(function, self.x.rows, self.x, self.out, str(self.out.columns))]

    def _value(self, layout: Layout) -> Sequence[Statement]:
        x, y = (layout.at(value, "i", "j") for value in (self.x, self.out))
        entry: list[Statement] = [f"vec x = {load_vector(x, 'n')};", mask_lanes("x", "-INFINITY")]
        power = ["const vec e = v_exp(x - splat(top));", "sum += e;"]
        if self.logarithm:
            power.append(store(y, "x - splat(top)", "n"))
            last = [store(y, f"{load_vector(y, 'n')} - splat(shift)", "n")]
            shift = "const real shift = v_log(splat(sum_lanes(sum)))[0];"
        else:
            power.append(store(y, "e", "n"))
            last = [store(y, f"{load_vector(y, 'n')} / splat(total)", "n")]
            shift = "const real total = sum_lanes(sum);"
        return [
            "vec highest = splat(-INFINITY), sum = {0};",
            *self._loop(layout, [*entry, "highest = vmax(x, highest);"]),
            "const real top = max_lanes(highest);",
            *self._loop(layout, [*entry, *power]),
            shift,
            *self._loop(layout, last),
        ]

    def _gradient(self, layout: Layout, slope: MatrixValue) -> Sequence[Statement]:
        y, dy, dx = (layout.at(value, "i", "j") for value in (self.x, slope, self.out))
        entry = [f"const vec y = {load_vector(y, 'n')}, dy = {load_vector(dy, 'n')};"]
        if self.logarithm:
            add, product = [f"sum += {load_vector(dy, 'n')};"], "dy - v_exp(y) * splat(total)"
        else:
            add, product = [*entry, "sum = multiply_add(dy, y, sum);"], "(dy - splat(total)) * y"
        return [
            "vec sum = {0};",
            *self._loop(layout, add),
            "const real total = sum_lanes(sum);",
            *self._loop(layout, [*entry, store(dx, product, "n")]),
        ]

    def _loop(self, layout: Layout, body: Sequence[Statement]) -> Sequence[Statement]:
        return lane_loop(self.out.columns, layout.lanes, body)
