"""Element-wise ops as C."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.moves import Move
from mlpengine.backends.compiled.statements import ForLoop, Let, Statement, store
from mlpengine.backends.scalar.layer_functions import each
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, Origin, UnsupportedError, Values
from mlpengine.backends.vector_rules import VectorRule, find_rule
from mlpengine.ops import Add
from mlpengine.ops.op import Direction, GradOp


@dataclass(eq=False, repr=False)
class Map(Kernel):
    """An element-wise op; variables of `rule` have one shape, or are vectors for every row."""

    rule: VectorRule
    op: GradOp
    names: Mapping[str, MatrixValue]
    text: str

    whole_vectors = any_phase = True

    def __post_init__(self) -> None:
        self.reads = [self.names[name] for name in self.rule.reads]
        self.writes = [self.names[name] for name in self.rule.writes]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> list[Kernel] | None:
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
        shape, *others = {arrays[name].shape for name in rule.writes}
        if others:
            raise UnsupportedError(f"{op.name} {direction} of several shapes")
        kernels: list[Kernel] = []
        names = {name: values.read(arrays[name]) for name in rule.reads}
        kind: Origin | None = "rows" if any(v.kind == "rows" for v in names.values()) else None
        wide = (*shape, 1) if kind == "rows" and len(shape) == 1 else shape
        for name, value in names.items():
            given = arrays[name].shape
            if len(given) == 1 and value.array.ndim > 1:
                given = value.array.shape
            names[name] = _spread(value, given, wide, values, kernels)
        role = f"d_{op.name}_" if backward else f"{op.name}_"
        for name in rule.writes:
            names[name] = values.write(arrays[name], role, kind)
        made = ", ".join(names[name].name for name in rule.writes)
        return [*kernels, cls(rule, op, names, f"{made} = {op.name} {direction}")]

    @classmethod
    def of(cls, op: GradOp, operands: Sequence[MatrixValue], out: MatrixValue) -> "Map":
        """Return the map out = op(*operands)."""
        rule = find_rule(op, "forward")
        assert rule is not None
        names = {**dict(zip(op.signature.operands, operands, strict=True)), "y": out}
        return cls(rule, op, names, f"{out.name} = {op.name} forward")

    def read_by_vectors(self, lanes: int) -> list[MatrixValue]:
        return self.reads

    def statements(
        self,
        layout: Layout,
        row: str,
        column: str,
        known: dict[MatrixValue, str],
        lanes: str = "",
    ) -> Sequence[Statement]:
        """Return the statements for one vector; `known` maps values in registers to their names.

        `lanes` is the number of entries in the vector if rows may end within a vector.
        """
        lines: list[Statement] = []
        for value in self.reads:
            if value not in known:
                known[value] = f"at_{value.name}"
                at = row if value.rows > 1 else "0"
                load = layout.load(value, at, column, lanes)
                lines.append(f"const vec {known[value]} = {load};")
        known |= {value: f"at_{value.name}" for value in self.writes}
        names = {name: known[value] for name, value in self.names.items()}
        return [*lines, *(Let(*step) for step in self.rule.steps(names))]

    def emit(self, writer: Writer, name: str) -> None:
        known: dict[MatrixValue, str] = {}
        layout, (out, *_) = writer.layout, self.writes
        body = [
            *self.statements(layout, "i", "j", known),
            *(store(layout.at(v, "i", "j"), known[v]) for v in self.writes if v.stored),
        ]
        rows = [ForLoop("i", "first", "last", [ForLoop("j", 0, out.columns, body, step="LANES")])]
        writer.add(name, self.called_in, out.rows, self.text, rows, self.reads, self.writes)

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        rule = self.rule.limited_to([n for n, v in self.names.items() if v.stored])
        function = each(writer.functions, rule, about=self.op.name)
        values = [self.names[name] for name in (*rule.reads, *rule.writes)]
        rows, columns = self.writes[0].rows, self.writes[0].columns
        if all(value.rows == rows for value in values):
            return [f"{function}({writer.places(*values)}, {rows * columns});"]
        return [writer.each_row(function, rows, *values, str(columns))]


def _spread(
    value: MatrixValue,
    given: tuple[int, ...],
    shape: tuple[int, ...],
    values: Values,
    kernels: list[Kernel],
) -> MatrixValue:
    """Return an operand of shape `given`, broadcast to `shape` or to a vector that all rows share.

    If entries must be repeated, a kernel is added to `kernels`.
    Raises: UnsupportedError if rows of the batch would be combined with other rows.
    """
    if given == shape or (value.rows == 1 and (value.columns,) == shape[-1:]):
        return value
    lead = len(shape) - len(given)
    if any(n not in (1, m) for n, m in zip(given, shape[lead:], strict=True)):
        raise UnsupportedError(f"{value!r}: cannot be broadcast along the rows of the batch")
    if value.kind == "rows" and lead:
        raise UnsupportedError(f"{value!r}: cannot be broadcast to {shape}")
    alike = value.rows == value.columns == 1 and value.kind != "rows"
    if alike:  # a single number becomes a vector that all rows share
        given, shape = (1,), shape[-1:]
    spread = values.make(shape, value, "spread_")
    kernels.append(Move.spread(value, given, spread, values.count(spread)))
    return spread
