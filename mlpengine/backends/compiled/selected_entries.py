"""Embedding, gather and index_select, for exports only; NumPy runs them in training."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.statements import (
    Assign,
    If,
    Let,
    Place,
    Return,
    Statement,
    element,
    floor,
    not_finite,
    vselect,
    whole,
)
from mlpengine.backends.compiled.strides import LoopAxis, contiguous, index_of, nest
from mlpengine.backends.scalar.definitions import Functions
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, Origin, UnsupportedError, Values
from mlpengine.formula import Expr, constant, equal, variable
from mlpengine.ops import Embedding, Gather, IndexSelect

EXACT = {4: 1 << 24, 8: 1 << 53}
"""Integers up to this number are exact in a float of 4 or 8 bytes."""


@dataclass(eq=False, repr=False)
class SelectedEntries(Kernel):
    """Entries of x at indices that are stored as floating-point numbers (`Batch.scalar`).

    Each index is below `entries`; consecutive indices select entries of x that are `pitch` numbers
    apart.  `axes` are the axes of the result, with strides in the result, in x and in the index.
    """

    x: MatrixValue
    index: MatrixValue
    out: MatrixValue
    entries: int
    pitch: int
    axes: Sequence[LoopAxis]
    text: str

    any_phase = True

    def __post_init__(self) -> None:
        self.reads, self.writes = [self.x, self.index], [self.out]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> "list[SelectedEntries] | None":
        op = instruction.op
        scalar = values.batch is not None and values.batch.scalar
        if not isinstance(op, Embedding | Gather | IndexSelect) or not scalar:
            return None
        if instruction.kind != "forward":
            return None
        (x, index), (out,) = instruction.reads, instruction.writes
        assert out is not None
        axis = 0 if isinstance(op, Embedding) else op.axis % x.ndim
        if x.shape[axis] > EXACT[x.itemsize]:
            raise UnsupportedError(f"{op.name}: {x.shape[axis]} entries, too many for {x.dtype}")
        x_strides, index_strides = [*contiguous(x.shape)], [*contiguous(index.shape)]
        pitch, x_strides[axis] = x_strides[axis], 0
        if isinstance(op, Gather):  # axes of length 1 repeat
            x_strides = [s * (n > 1) for s, n in zip(x_strides, x.shape, strict=True)]
            index_strides = [s * (n > 1) for s, n in zip(index_strides, index.shape, strict=True)]
        else:  # the axes of the index replace the axis of x
            after = x.ndim - axis - 1
            index_strides = [0] * axis + index_strides + [0] * after
            x_strides[axis : axis + 1] = [0] * index.ndim
        strides = zip(contiguous(out.shape), x_strides, index_strides, strict=True)
        axes = [LoopAxis(n, s) for n, s in zip(out.shape, strides, strict=True) if n > 1]
        operands = values.read(x), values.read(index)
        kind: Origin | None = "rows" if any(v.kind == "rows" for v in operands) else None
        made = values.write(out, f"{op.name}_", kind)
        text = f"{made.name} = {op.name} forward"
        return [cls(*operands, made, x.shape[axis], pitch, axes, text)]

    def emit(self, writer: Writer, name: str) -> None:
        raise UnsupportedError(self.text)

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        to, x, index = (index_of(0, [axis.strides[k] for axis in self.axes]) for k in range(3))
        function = entry_function(writer.functions)
        place = variable(f"{writer.places(self.x)} + {x}")
        sizes = variable(str(self.entries)), variable(str(self.pitch))
        value = Expr(function, (place, writer.element(self.index, index), *sizes))
        loops = [(f"j_{i}", axis.length) for i, axis in enumerate(self.axes)]
        return [*nest(loops, [Assign(writer.element(self.out, to), value)])]


def entry_function(functions: Functions) -> str:
    """Define ``f(x, index, entries, pitch)``; return its name.  A wrong index gives NaN."""
    index, place, entries = variable("index"), variable("place"), whole("entries")
    exists = (place >= 0) & (place < entries) & equal(index, floor(index))
    return functions.add(
        "entry",
        {"x": "reads", "index": "number", "entries": "count", "pitch": "count"},
        [
            If(not_finite(index), [Return(constant(nan))]),
            Let("place", vselect(index < 0, index + entries, index)),
            If(~exists, [Return(constant(nan))]),
            Place("row", place),
            Return(element("x", "row * pitch")),
        ],
        about="The entry at an index, from the end if it is negative; NaN if there is none",
        result="real",
    )
