"""The parts of a computation: values, and records of the ops applied to values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mlpengine.core.errors import ShapeError, TapeError
from mlpengine.core.spec import Spec
from mlpengine.core.wording import quoted
from mlpengine.ops.op import GradOp

ValueKind = Literal["input", "parameter", "constant", "op"]


@dataclass(frozen=True, eq=False)
class Value:
    """A leaf (input, parameter, constant) or an output of an op.

    `index` counts values in the order of recording.  `wants_grad` tells whether the value has a
    gradient.
    """

    index: int
    name: str
    spec: Spec
    kind: ValueKind
    wants_grad: bool

    @property
    def is_leaf(self) -> bool:
        """Whether no op computes the value."""
        return self.kind != "op"


@dataclass(frozen=True, eq=False)
class Record:
    """One application of an op; a missing operand is None."""

    op: GradOp
    operands: tuple[Value | None, ...]
    outputs: tuple[Value, ...]

    @property
    def key(self) -> int:
        """Index of the first output, unique to the record."""
        return self.outputs[0].index

    @property
    def named_operands(self) -> Mapping[str, Any]:
        """The operands by their parameter names in the op's methods."""
        names = self.op.signature.operands
        if self.op.signature.is_variadic:
            return {names[0]: self.operands}
        return dict(zip(names, self.operands, strict=True))

    @property
    def work_specs(self) -> dict[str, Spec]:
        """The specs of the op's work buffers for these operands, by name.

        Raises: TapeError for a buffer of `forward` or `backward` that `work` does not define.
        """
        specs = self.op.work(*(None if x is None else x.spec for x in self.operands))
        for name in (name for names in self.op.signature.work.values() for name in names):
            if not isinstance(specs, dict) or not isinstance(specs.get(name), Spec):
                text = f"work must return the Spec of the buffer {name!r}"
                raise TapeError(f"{self.op.name}: {text} (got {quoted(specs)})")
        return specs

    @property
    def residuals(self) -> list[Value]:
        """The values that the op's `backward` reads."""
        operands = self.named_operands
        values: list[Value] = []
        for name in self.op.signature.residuals[1:]:
            if name not in ("y", *operands):
                known = ", ".join(("dy", "y", *operands))
                raise TapeError(f"{self.op.name}: backward takes {known} (got {name!r})")
            residual = self.outputs if name == "y" else operands[name]
            values += [x for x in as_tuple(residual) if x is not None]
        return values

    def __repr__(self) -> str:
        reads = ", ".join("-" if x is None else str(x.index) for x in self.operands)
        return f"{', '.join(str(y.index) for y in self.outputs)} = {self.op.name}({reads})"


def needed_records(records: Sequence[Record], outputs: Sequence[Value]) -> list[Record]:
    """Return the records that `outputs` depend on, in the order of recording."""
    wanted = {x.index for x in outputs}
    needed = []
    for record in reversed(records):
        if any(y.index in wanted for y in record.outputs):
            wanted |= {x.index for x in record.operands if x is not None}
            needed.append(record)
    return needed[::-1]


def dependents(records: Sequence[Record], values: Iterable[Value]) -> set[int]:
    """Return the indices of `values` and of all floating results that depend on them."""
    indices = {x.index for x in values}
    for record in records:
        if any(x is not None and x.index in indices for x in record.operands):
            indices |= {y.index for y in record.outputs if y.spec.is_float}
    return indices


def viewed(record: Record) -> Value | None:
    """Return the operand whose memory the output uses; None if the output has its own memory."""
    if not record.op.view or len(record.outputs) > 1:
        return None
    x, y = record.operands[0], record.outputs[0]
    same = x is not None and x.spec.nbytes == y.spec.nbytes and x.spec.dtype == y.spec.dtype
    return x if same and x is not None and not x.is_leaf else None


def aliases(records: Sequence[Record]) -> dict[int, int]:
    """Map the index of each output to the index of the value whose memory the output uses."""
    alias: dict[int, int] = {}
    for record in records:
        x = viewed(record)
        alias |= {y.index: y.index if x is None else alias[x.index] for y in record.outputs}
    return alias


def padded_operands(op: GradOp, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Return the operands, with None for each optional operand that is missing."""
    names, required = op.signature.operands, op.signature.required
    if op.signature.is_variadic:
        names, required = tuple(f"x{i}" for i in range(len(operands))), len(operands)
    padded = (*operands, *[None] * (len(names) - len(operands)))
    missing = [n for n, x in zip(names[:required], padded, strict=False) if x is None]
    if missing or len(operands) > len(names):
        got = f"no {missing[0]}" if missing else f"{len(operands)} operands"
        raise ShapeError(f"{op.name}: takes the operands {', '.join(names)} (got {got})")
    return padded


def inferred_specs(op: GradOp, operands: Iterable[Any]) -> Spec | tuple[Spec, ...]:
    """Return the specs of an op's outputs; a missing operand is None.

    Raises: ShapeError or DtypeError from the op; TapeError if its `infer` returns no `Spec`.
    """
    specs = op.infer(*(None if x is None else x.spec for x in operands))
    if not isinstance(specs, Spec) and not all(isinstance(one, Spec) for one in as_tuple(specs)):
        raise TapeError(f"{op.name}: infer must return Spec(shape, dtype) (got {quoted(specs)})")
    return specs


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return a tuple unchanged, any other value as a tuple of one."""
    return value if isinstance(value, tuple) else (value,)
