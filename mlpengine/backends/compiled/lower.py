"""Lowering of instructions to kernels."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from mlpengine.backends.compiled.kernels import (
    ColumnSum,
    Draw,
    Embedding,
    EmbeddingSums,
    Kernel,
    LossRows,
    Map,
    Product,
    SoftmaxRows,
    fuse,
    mark_stored,
    read_by_vectors,
)
from mlpengine.backends.compiled.losses import has_rows
from mlpengine.backends.compiled.rules import find_rule
from mlpengine.backends.compiled.values import UnsupportedError, Value, Values
from mlpengine.ops import Dropout
from mlpengine.ops._op import Direction, GradOp
from mlpengine.ops.softmax import AlongAxis
from mlpengine.spec import Array


class InstructionLike(Protocol):
    """The attributes read from an instruction (see `mlpengine.tape.binding.Instruction`)."""

    @property
    def kind(self) -> str: ...
    @property
    def op(self) -> GradOp | None: ...
    @property
    def reads(self) -> Sequence[Any]: ...
    @property
    def writes(self) -> Sequence[Array | None]: ...
    @property
    def work(self) -> Mapping[str, Array]: ...


@dataclass(frozen=True, eq=False)
class LossInstruction:
    """A bound loss as an instruction: reads output, target, weight; writes gradient and value.

    The value is a sum over rows divided by `mean_rows`, by default the rows of the output.
    """

    op: GradOp
    reads: tuple[Array | None, ...]
    writes: tuple[Array | None, ...]
    kind: str = "loss"
    work: Mapping[str, Array] = field(default_factory=dict)
    mean_rows: int | None = None


class Lowered(NamedTuple):
    """The kernels of a program in order, fused, and its values."""

    kernels: list[Kernel]
    values: list[Value]


def lower(instructions: Iterable[InstructionLike], lanes: int, names: Mapping[int, str]) -> Lowered:
    """Return the kernels of `instructions`; `names` gives C names to arrays by address.

    Raises: UnsupportedError where an instruction has no compiled rule.
    """
    values = Values(names)
    kernels: list[Kernel] = []
    for instruction in instructions:
        kernels += _kernels(instruction, values)
    values.finish()
    kernels = [*_draws(kernels), *fuse([k for k in kernels if not isinstance(k, Draw)])]
    mark_stored(kernels)
    values.place(lanes, _any_length(kernels, lanes))
    return Lowered(kernels, values.all)


def _draws(kernels: list[Kernel]) -> Iterator[Draw]:
    """Yield the draws; another program cannot read the mask of a dropout, only its bytes."""
    reads = [value for kernel in kernels for value in kernel.reads]
    for kernel in kernels:
        if isinstance(kernel, Draw):
            alone = not any(isinstance(k, LossRows) for k in kernels)
            if alone and reads.count(kernel.out) < len(("forward", "backward")):
                raise UnsupportedError("dropout without its backward")
            kernel.out.final = False
            yield kernel


def _any_length(kernels: list[Kernel], lanes: int) -> list[Value]:
    """Return the values that are written and read as rows of any length."""
    written = [v for kernel in kernels if not isinstance(kernel, Map) for v in kernel.writes]
    vectors = {v for kernel in kernels for v in read_by_vectors(kernel, lanes)}
    return [v for v in written if v not in vectors]


def _kernels(instruction: InstructionLike, values: Values) -> list[Kernel]:
    op = instruction.op
    if op is None:
        return [_column_sum(instruction, values)]
    direction: Direction = "backward" if instruction.kind == "backward" else "forward"
    if isinstance(instruction, LossInstruction):
        return [_loss(instruction, values)]
    if op.name == "linear":
        rule = _linear_backward if direction == "backward" else _linear_forward
        return rule(instruction, values, op.factor)  # type: ignore[attr-defined]
    if isinstance(op, AlongAxis):
        return [_softmax(instruction, op, values)]
    if isinstance(op, Dropout) and direction == "forward":
        draw = Draw(op, values.write(instruction.work["mask"], "mask_"), "")
        draw.out.mask, draw.text = op, f"{draw.out.name} of dropout"
        return [draw, _map(instruction, op, direction, values)]
    if op.name == "periodic_embedding":
        return [_embedding(instruction, values, direction)]
    return [_map(instruction, op, direction, values)]


def _loss(instruction: LossInstruction, values: Values) -> LossRows:
    op = instruction.op
    if not has_rows(op):
        raise UnsupportedError(op.name)
    output, target, weight = (
        None if array is None else values.read(array) for array in instruction.reads
    )
    slot, total = instruction.writes
    assert output is not None
    assert target is not None
    assert total is not None
    if len(output.array.shape) != 2:
        raise UnsupportedError("losses of anything but rows of outputs")
    d_output = None if slot is None else values.write(slot, "d_output")
    rows = output.rows if instruction.mean_rows is None else instruction.mean_rows
    text = f"{op.name}, and its gradient"
    return LossRows(op, output, target, weight, d_output, total, max(rows, 1), text)


def _column_sum(instruction: InstructionLike, values: Values) -> ColumnSum:
    """Return the sum over rows that undoes the broadcast of a vector along them."""
    arrays = [*instruction.reads, *instruction.writes]
    if (
        instruction.kind != "reduce"
        or arrays[0].ndim != 2
        or arrays[0].shape[1:] != arrays[1].shape
    ):
        raise UnsupportedError(instruction.kind)
    x, y = values.read(arrays[0]), values.write(arrays[1], "d_vector_")
    return ColumnSum(x, y, f"{y.name} = columns of {x.name} summed")


def _embedding(
    instruction: InstructionLike, values: Values, direction: Direction
) -> Embedding | EmbeddingSums:
    given: list[Any] = [None if r is None else values.read(r) for r in instruction.reads]
    writes = instruction.writes
    if direction == "backward":
        mixes = given[-1] is not None
        if [w is not None for w in writes] != [False, True, True, mixes, mixes]:
            raise UnsupportedError("the gradient of embedded numbers")
    made: list[Any] = [None if w is None else values.write(w, "embedding_") for w in writes]
    if direction == "forward":
        x, frequency, phase, weight, bias = given
        text = f"{made[0].name} = {x.name} embedded"
        return Embedding(x, frequency, phase, weight, bias, made[0], text)
    dy, x, frequency, phase, weight = given
    _, d_frequency, d_phase, d_weight, d_bias = made
    return EmbeddingSums(
        dy, x, frequency, phase, weight, d_frequency, d_phase, d_weight, d_bias, "embedding, summed"
    )


def _linear_forward(instruction: InstructionLike, values: Values, factor: float) -> list[Kernel]:
    x, w, b = (None if r is None else values.read(r) for r in instruction.reads)
    (out,) = instruction.writes
    assert out is not None
    assert x is not None
    assert w is not None
    y = values.write(out, "linear_")
    return [Product("forward", x, w, y, b, f"{y.name} = {x.name} {w.name}^T", factor=factor)]


def _linear_backward(instruction: InstructionLike, values: Values, factor: float) -> list[Kernel]:
    dy, x, w = (values.read(r) for r in instruction.reads)
    dx, dw, db = instruction.writes
    kernels: list[Kernel] = []
    if dw is not None:
        c = values.write(dw, "d_weight_")
        kernels.append(
            Product(
                "weight_gradient", dy, x, c, None, f"{c.name} = {dy.name}^T {x.name}", factor=factor
            )
        )
    if db is not None:
        out = values.write(db, "d_bias_")
        kernels.append(ColumnSum(dy, out, f"{out.name} = columns of {dy.name} summed"))
    if dx is not None:
        c = values.write(dx, "d_x_")
        text = f"{c.name} = {dy.name} {w.name}"
        kernels.append(Product("input_gradient", dy, w, c, None, text, factor=factor))
    return kernels


def _softmax(instruction: InstructionLike, op: AlongAxis, values: Values) -> SoftmaxRows:
    (out,) = instruction.writes
    assert out is not None
    if op.axis % out.ndim != out.ndim - 1 or op.name not in ("softmax", "log_softmax"):
        raise UnsupportedError(f"{op.name} along axis {op.axis}")
    *dy, x = (values.read(array) for array in instruction.reads)
    backward = instruction.kind == "backward"
    y = values.write(out, f"{'d_' if backward else ''}{op.name}_")
    text = f"{y.name} = {op.name} {'backward' if backward else 'forward'}"
    return SoftmaxRows(x, dy[0] if dy else None, y, op.name == "log_softmax", text)


def _map(instruction: InstructionLike, op: GradOp, direction: Direction, values: Values) -> Map:
    rule = find_rule(op, direction)
    if rule is None:
        raise UnsupportedError(f"{op.name} {direction}")
    backward = direction == "backward"
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
    return Map(rule, op, names, f"{made} = {op.name} {direction}")
