"""Element-wise rules as C."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.statements import ForLoop, Statement, store
from mlpengine.backends.compiled.writer import Writer
from mlpengine.backends.rules import VectorRule, find_rule
from mlpengine.backends.scalar.functions import each
from mlpengine.backends.scalar.writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, UnsupportedError, Values
from mlpengine.ops import Add
from mlpengine.ops.op import Direction, GradOp


@dataclass(eq=False, repr=False)
class Map(Kernel):
    """An element-wise rule; ``names`` maps the rule's names to values.

    The values have one shape, but those it reads may also be vectors, the same for every row.
    """

    rule: VectorRule
    op: GradOp
    names: Mapping[str, MatrixValue]
    text: str

    whole_vectors = True

    def __post_init__(self) -> None:
        self.reads = [self.names[name] for name in self.rule.reads]
        self.writes = [self.names[name] for name in self.rule.writes]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> "list[Map] | None":
        op = Add() if instruction.kind == "add" else instruction.op
        backward = instruction.kind == "backward"
        direction: Direction = "backward" if backward else "forward"
        if op is None or (rule := find_rule(op, direction)) is None:
            return None
        labels = op.signature.residuals if backward else op.signature.operands
        arrays = {**instruction.work, **dict(zip(labels, instruction.reads, strict=True))}
        slots = [f"d{name}" for name in op.signature.operands] if backward else ["y"]
        written = {n: a for n, a in zip(slots, instruction.writes, strict=True) if a is not None}
        arrays |= written
        rule = rule.limited_to(arrays)
        shapes = {arrays[name].shape for name in rule.writes}
        shape = min(shapes)
        along_rows = {shape, shape[-1:]} if len(shape) == 2 else {shape}
        if len(shapes) != 1 or () in shapes or {arrays[n].shape for n in rule.reads} - along_rows:
            raise UnsupportedError(f"{op.name} {direction} of several shapes")
        names = {name: values.read(arrays[name]) for name in rule.reads}
        role = f"d_{op.name}_" if backward else f"{op.name}_"
        for name in rule.writes:
            names[name] = values.write(arrays[name], role)
        made = ", ".join(names[name].name for name in rule.writes)
        return [cls(rule, op, names, f"{made} = {op.name} {direction}")]

    def read_by_vectors(self, lanes: int) -> list[MatrixValue]:
        return self.reads

    def statements(
        self, layout: Layout, row: str, column: str, known: dict[MatrixValue, str]
    ) -> Sequence[Statement]:
        """Return the statements for one vector; `known` names the values in registers."""
        lines: list[Statement] = []
        for value in self.reads:
            if value not in known:
                known[value] = f"at_{value.name}"
                at = row if value.rows > 1 else "0"
                lines.append(f"const vec {known[value]} = {layout.load(value, at, column)};")
        known |= {value: f"at_{value.name}" for value in self.writes}
        names = {name: known[value] for name, value in self.names.items()}
        return [*lines, *self.rule.statements(names, layout.itemsize)]

    def emit(self, writer: Writer, name: str) -> None:
        known: dict[MatrixValue, str] = {}
        layout, (out, *_) = writer.layout, self.writes
        body = [
            *self.statements(layout, "i", "j", known),
            *(store(layout.at(v, "i", "j"), known[v]) for v in self.writes if v.stored),
        ]
        rows = [ForLoop("i", "first", "last", [ForLoop("j", 0, out.columns, body, step="LANES")])]
        writer.add(name, "rows", out.rows, self.text, rows, self.reads, self.writes)

    def emit_scalar(self, writer: ScalarWriter) -> list[str]:
        rule = self.rule.limited_to([n for n, v in self.names.items() if v.stored])
        function = each(writer.functions, rule, about=self.op.name)
        places = writer.places(*(self.names[name] for name in (*rule.reads, *rule.writes)))
        return [f"{function}({places}, {self.writes[0].rows * self.writes[0].columns});"]
