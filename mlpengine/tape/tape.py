"""Recording: which op reads which node.  Shapes are checked here; no array is computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from mlpengine.errors import DtypeError, ShapeError, TapeError
from mlpengine.ops._op import GradOp, is_variadic, operand_names
from mlpengine.spec import Array, Spec
from mlpengine.tape.expression import Expression
from mlpengine.tape.flat import Flat
from mlpengine.tape.operand import numeric

Kind = Literal["input", "parameter", "constant", "op"]


@dataclass(frozen=True, eq=False, repr=False)
class Node(Expression):
    """One value on a tape: a leaf (input, parameter, constant) or an output of an op.

    `wants_grad` says whether a gradient can flow to or through it.  Nodes of one tape combine by
    the operators and methods of `Expression`.
    """

    tape: "Tape"
    index: int
    name: str
    spec: Spec
    kind: Kind
    wants_grad: bool
    array: Array | None = None
    """The caller's array: of a parameter, or the value of a constant."""

    @property
    def is_leaf(self) -> bool:
        """Whether the value comes from outside."""
        return self.kind != "op"

    def __repr__(self) -> str:
        return f"Node({self.index} {self.name!r} {self.spec} {self.kind})"

    def _apply(self, op: GradOp, *operands: Any) -> Any:
        known = Node, NoneType
        nodes = [x if isinstance(x, known) else self._constant(x) for x in operands]
        return self.tape.apply(op, *nodes)

    def _constant(self, value: ArrayLike) -> "Node":
        return self.tape.constant(self._array(value))


@dataclass(frozen=True, eq=False)
class Record:
    """One application of an op.  An operand that was left out is None."""

    op: GradOp
    operands: tuple[Node | None, ...]
    outputs: tuple[Node, ...]

    def __repr__(self) -> str:
        reads = ", ".join("-" if x is None else str(x.index) for x in self.operands)
        return f"{', '.join(str(y.index) for y in self.outputs)} = {self.op.name}({reads})"


@dataclass(eq=False)
class Tape:
    """A straight-line computation, recorded once and then bound to memory by `Program`.

    Example:
        >>> tape = Tape()
        >>> x = tape.input((32, 4), name="x")
        >>> w = tape.parameter(np.ones((4, 2), np.float32), name="w")
        >>> y = (x @ w).tanh()
        >>> y.shape
        (32, 2)
    """

    nodes: list[Node] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    _params: Flat | None = None
    _names: set[str] = field(default_factory=set)

    def input(
        self,
        shape: Sequence[int],
        dtype: DTypeLike = "float32",
        *,
        name: str | None = None,
        wants_grad: bool = False,
    ) -> Node:
        """Record external data.  Its leading axis is the batch where a program asks for one."""
        spec = Spec(tuple(shape), np.dtype(dtype))
        if wants_grad and not spec.is_float:
            raise DtypeError(f"input: only float32 and float64 have gradients (got {spec})")
        return self._leaf("input", spec, name, wants_grad=wants_grad)

    def parameter(self, array: ArrayLike, *, name: str | None = None) -> Node:
        """Record a trainable array, a copy of which goes into the tape's flat vector `params`.

        Raises: DtypeError unless it is float32 or float64; TapeError once `params` is in use.
        """
        value = numeric(array, "parameter")
        if not Spec.of(value).is_float:
            raise DtypeError(f"parameter: must be float32 or float64 (got {Spec.of(value)})")
        if self._params is not None and name not in self._params.views:
            raise TapeError(
                f"parameter: all parameters must be recorded before the first program is bound "
                f"(got {name!r} after that)"
            )
        return self._leaf("parameter", Spec.of(value), name, wants_grad=True, array=value)

    def constant(self, array: ArrayLike) -> Node:
        """Record an array that is fixed now and never gets a gradient."""
        value = np.array(numeric(array, "constant"), order="C")
        value.flags.writeable = False
        return self._leaf("constant", Spec.of(value), None, wants_grad=False, array=value)

    def apply(self, op: GradOp, *operands: Node | None) -> Any:
        """Record `op` on nodes of this tape and return its output node, or a tuple of them.

        Raises: ShapeError or DtypeError from the op; TapeError for a node of another tape.
        """
        for x in operands:
            if x is not None and x.tape is not self:
                raise TapeError(f"{op.name}: operands must be on one tape ({x!r} is on another)")
        padded = padded_operands(op, operands)
        inferred = op.infer(*(None if x is None else x.spec for x in padded))
        specs = inferred if isinstance(inferred, tuple) else (inferred,)
        wants = any(x is not None and x.wants_grad for x in padded)
        outputs = tuple(
            self._add(f"{op.name}_{len(self.nodes)}", spec, "op", wants and spec.is_float)
            for spec in specs
        )
        self.records.append(Record(op, padded, outputs))
        return outputs if isinstance(inferred, tuple) else outputs[0]

    @property
    def params(self) -> Flat:
        """The parameters as one flat vector; asking for it the first time packs them."""
        if self._params is None:
            self._params = Flat.pack({n.name: n.array for n in self.parameters})  # type: ignore[misc]
        return self._params

    @property
    def parameters(self) -> list[Node]:
        """The parameter nodes, in the order of recording."""
        return [n for n in self.nodes if n.kind == "parameter"]

    @property
    def inputs(self) -> list[Node]:
        """The input nodes, in the order of recording."""
        return [n for n in self.nodes if n.kind == "input"]

    @classmethod
    def over(cls, params: Flat) -> "Tape":
        """Return an empty tape whose parameters are the views of `params`, not copies."""
        return cls(_params=params)

    def rebatched(self, batch_size: int) -> "Tape":
        """Return the same computation with every input's leading axis set to `batch_size`.

        Nodes keep their indices; parameters are shared.  Raises: ShapeError from an op whose
        recorded numbers only fit the old batch size.
        """
        other = Tape.over(self.params)
        twin: dict[int, Node] = {}
        made_by = {record.outputs[0].index: record for record in self.records}
        for node in self.nodes:
            if node.index in twin:
                continue
            if node.index in made_by:
                record = made_by[node.index]
                nodes = other.apply(
                    record.op, *(x if x is None else twin[x.index] for x in record.operands)
                )
                for mine, theirs in zip(record.outputs, _as_tuple(nodes), strict=True):
                    twin[mine.index] = theirs
            else:
                shape = node.spec.shape
                if node.kind == "input" and shape:
                    shape = (batch_size, *shape[1:])
                spec = Spec(shape, node.spec.dtype)
                twin[node.index] = other._add(
                    node.name, spec, node.kind, node.wants_grad, node.array
                )
        return other

    def summary(self, *outputs: Node, checkpointing: Literal["keep", "balanced"] = "keep") -> str:
        """Return a table of the ops, shapes, parameters and planned bytes of a training program."""
        from mlpengine.tape.summary import summarize

        return summarize(self, outputs, checkpointing)

    def _leaf(
        self,
        kind: Kind,
        spec: Spec,
        name: str | None,
        *,
        wants_grad: bool,
        array: Array | None = None,
    ) -> Node:
        label = name or f"{kind}_{len(self.nodes)}"
        if label in self._names:
            raise TapeError(f"{kind}: names of leaves must differ (got {label!r} twice)")
        self._names.add(label)
        return self._add(label, spec, kind, wants_grad, array)

    def _add(
        self, name: str, spec: Spec, kind: Kind, wants_grad: bool, array: Array | None = None
    ) -> Node:
        node = Node(self, len(self.nodes), name, spec, kind, wants_grad, array)
        self.nodes.append(node)
        return node


def padded_operands(op: GradOp, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Return the operands with None for each optional one that was left out.

    Raises: ShapeError if there are more operands than the op declares.
    """
    if is_variadic(type(op)):
        return tuple(operands)
    names = operand_names(type(op))
    if len(operands) > len(names):
        raise ShapeError(
            f"{op.name}: takes the operands {', '.join(names)} (got {len(operands)} operands)"
        )
    return (*operands, *[None] * (len(names) - len(operands)))


def named_buffers(op: GradOp, operands: Sequence[Any]) -> Mapping[str, Any]:
    """Return the operands by the names that the op's rules use for them."""
    names = operand_names(type(op))
    if is_variadic(type(op)):
        return {names[0]: tuple(operands)}
    return dict(zip(names, operands, strict=True))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
