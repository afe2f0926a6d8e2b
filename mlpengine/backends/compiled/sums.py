"""Sums, means and variances within rows of a batch, or of parameters."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.maps import Map
from mlpengine.backends.compiled.moves import Move
from mlpengine.backends.compiled.row_loops import lane_loop
from mlpengine.backends.compiled.statements import (
    Assign,
    ForLoop,
    Scope,
    Statement,
    Variable,
    load_vector,
    store,
)
from mlpengine.backends.compiled.strides import (
    LoopAxis,
    address_in,
    contiguous,
    fit_axes,
    index_of,
    nest,
)
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, UnsupportedError, Values
from mlpengine.core.spec import Array
from mlpengine.formula import constant, variable
from mlpengine.ops import Mean, Mul, Sub, Sum, Var


@dataclass(eq=False, repr=False)
class RowSums(Kernel):
    """Sums of x times `factor`; `kept` is the `shape` of x with length 1 of the summed axes."""

    x: MatrixValue
    out: MatrixValue
    shape: Sequence[int]
    kept: Sequence[int]
    factor: float

    any_phase = True

    def __post_init__(self) -> None:
        self.text = f"{self.out.name} = sums of {self.x.name}"
        self.reads, self.writes = [self.x], [self.out]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> Sequence[Kernel] | None:
        op, backward = instruction.op, instruction.kind == "backward"
        if not isinstance(op, Sum | Mean | Var):
            return None
        (given,), (array,) = instruction.reads, instruction.writes
        if array is None:
            return []
        wide, value = (array, values.read(given)) if backward else (given, values.read(given))
        axes, count = op.axes(wide), max(op.count(wide), 1)
        factor = 1.0 if isinstance(op, Sum) else 1 / count
        kept = [1 if i in axes else n for i, n in enumerate(wide.shape)]
        if value.kind == "rows" and 0 in axes:
            raise UnsupportedError(f"{op.name} of a column")
        if not isinstance(op, Var):
            if not backward:
                return [cls.of(value, wide.shape, kept, array, factor, values)]
            out = values.write(array, f"d_{op.name}_", value.kind)
            return [Move.spread(value, kept, out, values.count(out), factor)]
        spread = values.make(wide.shape, value, "spread_")
        if backward:
            centered = values.read(instruction.work["centered"])
            share = Move.spread(value, kept, spread, values.count(spread), 2 * op.factor(wide))
            out = values.write(array, "d_var_", value.kind)
            return [share, Map.of(Mul(), [centered, spread], out)]
        mean = cls.of(value, wide.shape, kept, instruction.work["mean"], factor, values)
        centered = values.write(instruction.work["centered"], "centered_", value.kind)
        square = values.make(wide.shape, value, "square_")
        return [
            mean,
            Move.spread(mean.out, kept, spread, values.count(spread)),
            Map.of(Sub(), [value, spread], centered),
            Map.of(Mul(), [centered, centered], square),
            cls.of(square, wide.shape, kept, array, op.factor(wide), values),
        ]

    @classmethod
    def of(
        cls,
        x: MatrixValue,
        shape: Sequence[int],
        kept: Sequence[int],
        out: Array,
        factor: float,
        values: Values,
    ) -> "RowSums":
        """Return the kernel that writes the sums into `out`, which may lack axes of length 1."""
        return cls(x, values.write(out, "sums_", x.kind), (*shape,), (*kept,), factor)

    def emit(self, writer: Writer, name: str) -> None:
        layout = writer.layout
        count = writer.batch if self.called_in == "rows" else 1
        strides = zip(contiguous(self.shape), contiguous(self.kept), strict=True)
        axes = [
            LoopAxis(n, (of_x, of_out if m == n else 0))
            for n, m, (of_x, of_out) in zip(self.shape, self.kept, strides, strict=True)
        ]
        first, *others = axes
        pitches = (0, 0)
        if count > 1:
            times = first.length // count
            pitches = times * first.strides[0], times * first.strides[1]
            axes = [LoopAxis(times, first.strides), *others]
        axes = fit_axes(axes, [self.x, self.out])
        in_rows = [a for a in axes if a.strides[0] == 1 < self.x.columns]
        along = in_rows[0] if in_rows else LoopAxis(1, (1, 1))
        kept = [a for a in axes if a is not along and a.strides[1]]
        summed = [a for a in axes if a is not along and not a.strides[1]]
        names = {id(a): f"{role}_{i}" for role, of in (("k", kept), ("s", summed))
                 for i, a in enumerate(of)}  # fmt: skip
        steps = [[("i", pitches[k])] for k in (0, 1)]
        for k in (0, 1):
            steps[k] += [(names[id(a)], a.strides[k]) for a in (*kept, *summed)]
        x = f"{address_in(layout, self.x, steps[0], 0)} + j"
        out = address_in(layout, self.out, steps[1], 0)
        over = [(names[id(a)], a.length) for a in summed]
        add: list[Statement] = [f"total += {load_vector(x, 'n')};"]
        scaled = "" if self.factor == 1 else f" * (real){self.factor!r}"
        if along.strides[1] or along.length == 1:
            value = "total" if self.factor == 1 else f"total * splat((real){self.factor!r})"
            body = ["vec total = {0};", *nest(over, add), store(f"{out} + j", value, "n")]
            body = [*lane_loop(along.length, layout.lanes, body)]
        else:
            lanes = lane_loop(along.length, layout.lanes, add)
            body = ["vec total = {0};", *nest(over, lanes), f"*({out}) = sum_lanes(total){scaled};"]
        rows = [ForLoop("i", "first", "last", nest([(names[id(a)], a.length) for a in kept], body))]
        writer.add(name, self.called_in, count, self.text, rows, self.reads, self.writes)

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        given, made = contiguous(self.shape), contiguous(self.kept)
        axes = [*zip(self.shape, self.kept, given, made, strict=True)]
        kept = [(n, x, y) for n, m, x, y in axes if n == m]
        summed = [(n, x) for n, m, x, _ in axes if n != m]
        total = variable("total")
        place = index_of(0, [y for *_, y in kept], "k")
        of_x = index_of(0, [x for _, x, _ in kept], "k") + index_of(0, [x for _, x in summed])[1:]
        add = Assign(total, writer.element(self.x, of_x), "+")
        value = total if self.factor == 1 else total * self.factor
        body = [
            Variable("total", constant(0)),
            *nest([(f"j_{i}", n) for i, (n, _) in enumerate(summed)], [add]),
            Assign(writer.element(self.out, place), value),
        ]
        return [*nest([(f"k_{i}", n) for i, (n, *_) in enumerate(kept)], [Scope(body)])]
