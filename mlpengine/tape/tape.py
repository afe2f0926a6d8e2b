"""A tape records ops on nodes; shapes are checked, but nothing is computed."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from operator import index
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from mlpengine.core.errors import DtypeError, ShapeError, TapeError
from mlpengine.core.spec import Array, ArrayLike, DTypeLike, Spec
from mlpengine.core.wording import quoted, suggestion
from mlpengine.ops import BatchNorm, Dropout, GradOp, Normal, Philox, RunningStatistics
from mlpengine.tape.expression import Expression
from mlpengine.tape.flat import Flat
from mlpengine.tape.gradient import record_gradient
from mlpengine.tape.operand import cast_scalars, numeric
from mlpengine.tape.record import (
    Record,
    Value,
    ValueKind,
    as_tuple,
    inferred_specs,
    needed_records,
    padded_operands,
)


@dataclass(frozen=True, eq=False, repr=False)
class Node(Value, Expression):
    """A value on a tape, with the operators and methods of `Expression`."""

    tape: "Tape"
    array: Array | None = None
    """The array of a constant, or of a parameter before `Tape.params` exists."""

    def __repr__(self) -> str:
        return f"Node({self.index} {self.name!r} {self.spec} {self.kind})"

    def __bool__(self, *_: object) -> bool:
        raise TapeError(
            f"{self.name}: has no truth value and no order, because its numbers are not known "
            f"while it is recorded (got {self!r}); write where(mask, a, b), or a formula: "
            "FormulaActivation('where(x > 0, x, 0)')"
        )

    __lt__ = __le__ = __gt__ = __ge__ = __bool__
    __hash__ = Value.__hash__

    def __eq__(self, other: object) -> bool:
        return other is not None and self.__bool__()

    def _apply(self, op: GradOp, *operands: Any) -> Any:
        accepted = Node, NoneType
        nodes = [x if isinstance(x, accepted) else self._constant(x) for x in operands]
        return self.tape.apply(op, *cast_scalars(op, nodes))

    def _constant(self, value: ArrayLike) -> "Node":
        return self.tape.constant(self._array(value))


class RecordedLayer(NamedTuple):
    """A named layer of a tape (see `Tape.layer`)."""

    name: str
    output: Node
    pre_activation: Node
    parameters: tuple[str, ...]


@dataclass(eq=False, repr=False)
class Tape:
    """A computation without control flow: recorded once, then bound to memory by `Program`.

    Example:
        >>> tape = Tape()
        >>> x = tape.input((32, 4), name="x")
        >>> w = tape.parameter(np.ones((4, 2), np.float32), name="w")
        >>> y = (x @ w).tanh()
        >>> y.shape
        (32, 2)

    Attributes:
        rng: generator for dropout; if None, dropout returns its operand.
        layers: the layers recorded by the method `layer`, in order.
    """

    nodes: list[Node] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    layers: list[RecordedLayer] = field(default_factory=list)
    rng: Philox | None = None
    _params: Flat | None = None
    _leaves: dict[str, Node] = field(default_factory=dict)

    def input(
        self,
        shape: Sequence[int],
        dtype: DTypeLike = "float32",
        *,
        name: str | None = None,
        wants_grad: bool = False,
    ) -> Node:
        """Record an input.  The leading axis is the batch; a program may change the batch size."""
        try:
            sizes = tuple(map(index, shape))
        except TypeError:
            sizes = (-1,)
        if min(sizes, default=0) < 0:
            raise ShapeError(
                "input: shape must be a tuple of whole numbers from 0, such as (32, 4) "
                f"(got {quoted(shape)})"
            )
        try:
            kind = np.dtype(dtype).newbyteorder("=")
        except TypeError:
            kind = np.dtype(object)
        if kind.kind not in "biuf":
            raise DtypeError(
                f"input: dtype must be numeric, such as float32 (got {dtype!r}); to give a name, "
                f"write input({sizes}, name='x')"
            )
        spec = Spec(sizes, kind)
        if wants_grad and not spec.is_float:
            raise DtypeError(f"input: only float32 and float64 have gradients (got {spec})")
        return self._leaf("input", spec, name, wants_grad=wants_grad)

    def parameter(self, array: ArrayLike | str, *, name: str | None = None) -> Node:
        """Record a trainable array, and copy it into the tape's flat vector `params`.

        On a tape made by `over`, the parameter is already in `params`: its name is enough, and the
        numbers in `array` are ignored.
        Raises: DtypeError unless the dtype is float32 or float64; TapeError if a program already
            uses `params`, or if the name is not in `params`; ShapeError if its shape differs.
        """
        if isinstance(array, str):
            return self._parameter_of(array)
        value = numeric(array, "parameter")
        if not Spec.of(value).is_float:
            raise DtypeError(f"parameter: must be float32 or float64 (got {Spec.of(value)})")
        if self._params is not None:
            expected = self._params.specs.get(name or "")
            if expected is None:
                raise TapeError(
                    f"parameter: all parameters must be recorded before the first program is bound "
                    f"(got {name!r} after that)"
                )
            if expected != Spec.of(value):
                raise ShapeError(f"parameter: {name} must be {expected} (got {Spec.of(value)})")
        unpacked = value if self._params is None else None
        return self._leaf("parameter", Spec.of(value), name, wants_grad=True, array=unpacked)

    def _parameter_of(self, name: str) -> Node:
        specs = self._params.specs if self._params is not None else {}
        if name not in specs:
            raise TapeError(
                f"parameter: must be one of {', '.join(specs) or 'none'} (got {name!r})"
                f"{suggestion(name, specs)}"
            )
        if name in self._leaves:
            return self._leaves[name]
        return self._leaf("parameter", specs[name], name, wants_grad=True)

    def dropout(self, x: Node, rate: float) -> Node:
        """Record dropout with `rng`; return `x` if `rng` is None or the rate is 0."""
        if self.rng is None or not rate:
            return x
        y: Node = self.apply(Dropout(rate, self.rng, self._draws), x)
        return y

    def normal(self, mean: Node, deviation: Node) -> Node:
        """Record a normal sample drawn with `rng`; return `mean` if `rng` is None."""
        if self.rng is None:
            return mean
        y: Node = self.apply(Normal(self.rng, self._draws), mean, deviation)
        return y

    def batch_norm(
        self,
        x: Node,
        scale: Node | None = None,
        bias: Node | None = None,
        *,
        running: str,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Node:
        """Record batch norm with batch statistics or, if `rng` is None, with running averages.

        With ``running="norm"``, the tape needs parameters ``norm.mean`` and ``norm.variance`` for
        the averages.  Training sets them to (1 - momentum) * average + momentum * batch statistic.
        """
        names = [f"{running}.mean", f"{running}.variance"]
        if self._params is not None and not {*names} <= self._params.specs.keys():
            wanted = f"{{{names[0]!r}: 8, {names[1]!r}: np.ones(8)}}"
            raise TapeError(f"batch_norm: the constructor must have buffers={wanted}")
        parts = [self.parameter(name) for name in names]
        mean, variance = (self.params.views[node.name] for node in parts)
        statistics = RunningStatistics.over(mean, variance, momentum)
        y: Node = self.apply(BatchNorm(statistics, self.rng is not None, eps), x, scale, bias)
        return y

    def gradient(self, y: Node, *xs: Node) -> Any:
        """Record the gradient of the sum of `y` with respect to one node, or to each of several.

        The gradient is differentiable, so a loss may contain it, as a gradient penalty does.
        Raises: TapeError if `y` does not depend on `xs`, or for an op without a gradient rule.
        """
        self._need_nodes("gradient", [y, *xs])
        if integers := [x for x in (y, *xs) if not x.spec.is_float]:
            raise DtypeError(f"gradient: only floats have gradients (got {integers[0]!r})")
        slopes = record_gradient(y, xs)
        return slopes[0] if len(xs) == 1 else tuple(slopes)

    @property
    def _draws(self) -> int:
        """Number of recorded ops that draw random numbers."""
        return sum(isinstance(record.op, Dropout | Normal) for record in self.records)

    def layer(
        self, name: str, output: Node, *, pre_activation: Node | None = None, alone: bool = False
    ) -> Node:
        """Name the layer that computes `output`; return `output`.

        The layer gets the parameters that no earlier layer has; with `alone`, it gets only
        parameters that `output` depends on.  Messages and diagnostics use the name.  Diagnostics
        read the gradient of `pre_activation`, by default the gradient of the output.
        Raises: TapeError if another layer has the name.
        """
        if any(layer.name == name for layer in self.layers):
            raise TapeError(f"layer: names must differ (got {name!r} twice)")
        before = {n for layer in self.layers for n in layer.parameters}
        own = tuple(n.name for n in self.parameters if n.name not in before)
        if alone:
            records = needed_records(self.records, [output])
            read = {x.name for record in records for x in record.operands if x is not None}
            own = tuple(name for name in own if name in read)
        start = output if pre_activation is None else pre_activation
        self.layers.append(RecordedLayer(name, output, start, own))
        return output

    def constant(self, array: ArrayLike) -> Node:
        """Record a copy of an array as a node without a gradient."""
        value = np.array(numeric(array, "constant"), order="C")
        value.flags.writeable = False
        return self._leaf("constant", Spec.of(value), None, wants_grad=False, array=value)

    def apply(self, op: GradOp, *operands: Node | None) -> Any:
        """Record `op` on nodes of this tape; return its output, or a tuple of outputs.

        Raises: ShapeError or DtypeError from the op; TapeError for a node of another tape.
        """
        if not isinstance(op, GradOp):
            raise TapeError(f"apply: op must be an op such as Relu() (got {quoted(op)})")
        self._need_nodes(op.name, [x for x in operands if x is not None])
        padded = padded_operands(op, operands)
        inferred = inferred_specs(op, padded)
        wants = any(x is not None and x.wants_grad for x in padded)
        outputs = tuple(
            self._add(f"{op.name}_{len(self.nodes)}", spec, "op", wants and spec.is_float)
            for spec in as_tuple(inferred)
        )
        self.records.append(Record(op, padded, outputs))
        return outputs if isinstance(inferred, tuple) else outputs[0]

    def _need_nodes(self, where: str, given: Iterable[object]) -> None:
        """Raise TapeError if any of `given` is not a node of this tape."""
        for x in given:
            if not isinstance(x, Node) or x.tape is not self:
                what = f"{x!r} is on another" if isinstance(x, Node) else f"got {quoted(x)}"
                raise TapeError(f"{where}: operands must be nodes on one tape ({what})")

    @property
    def params(self) -> Flat:
        """The parameters as one flat vector; the first access makes the vector."""
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
    def over(cls, params: Flat, rng: Philox | None = None) -> "Tape":
        """Return an empty tape with the parameters `params`."""
        return cls(rng=rng, _params=params)

    def rebatched(self, batch_size: int) -> "Tape":
        """Return the same computation with `batch_size` as the leading axis of every input.

        Nodes keep their indices; both tapes share the parameters.
        Raises: ShapeError if the options of an op fit only the old batch size.
        """
        other = Tape.over(self.params)
        made_by = {record.key: record for record in self.records}
        for node in self.nodes:
            if node.index < len(other.nodes):
                continue  # an op with several outputs made this node with its first output
            record = made_by.get(node.index)
            if record is not None:
                operands = (x if x is None else other.nodes[x.index] for x in record.operands)
                other.apply(record.op, *operands)
                continue
            shape = node.spec.shape
            if node.kind == "input" and shape:
                shape = (batch_size, *shape[1:])
            spec = Spec(shape, node.spec.dtype)
            other._add(node.name, spec, node.kind, node.wants_grad, node.array)
        return other

    def __copy__(self) -> "Tape":
        """Return a tape with the same ops that shares the parameters and constants."""
        shared = [self._params, *(n.array for n in self.nodes), *(r.op for r in self.records)]
        return deepcopy(self, {id(x): x for x in shared})

    def __repr__(self) -> str:
        return f"Tape({len(self.nodes)} nodes, {len(self.records)} ops)"

    def _leaf(
        self,
        kind: ValueKind,
        spec: Spec,
        name: str | None,
        *,
        wants_grad: bool,
        array: Array | None = None,
    ) -> Node:
        label = name or f"{kind}_{len(self.nodes)}"
        if label in self._leaves:
            raise TapeError(f"{kind}: names of leaves must differ (got {label!r} twice)")
        self._leaves[label] = node = self._add(label, spec, kind, wants_grad, array)
        return node

    def _add(
        self, name: str, spec: Spec, kind: ValueKind, wants_grad: bool, array: Array | None = None
    ) -> Node:
        node = Node(len(self.nodes), name, spec, kind, wants_grad, self, array)
        self.nodes.append(node)
        return node
