"""Per-row gradients (per-sample gradients), computed from the buffers of a backward pass.

For the weight of a dense layer or a matrix product, the gradient of one row is an outer product of
two vectors.  For a parameter of an element-wise op or of layer norm, this gradient is a vector.
"""

from collections.abc import Mapping
from math import prod
from typing import NamedTuple, NoReturn

import numpy as np

from mlpengine.core.buffers import zeros
from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array, Call, Calls, Spec, call
from mlpengine.core.tuned import tuned
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.scratch import Scratch
from mlpengine.ops import BatchNorm, Elementwise, LayerNorm, Linear, MatMul
from mlpengine.tape.record import Record, Value, as_tuple, dependents

MAX_TOKENS = tuned(256, "vectors", "most tokens of a row for per-row gradients")


class RowGradient(NamedTuple):
    """The gradient of each row from one op: outer(left, right), or left if `right` is None.

    Shapes: left (batch, m), right (batch, n).  With left (batch, tokens, m) and right (batch,
    tokens, n), the gradients are sums of outer products over the tokens.
    """

    left: Array
    right: Array | None = None


class RowGradients:
    """The per-row gradients of the parameters named in `wanted`, except frozen parameters.

    `before` holds the parameters' values in the backward pass, by name.

    Attributes:
        calls: the calls that compute the arrays in `places` from the buffers.
        places: for each parameter name, a `RowGradient` of each op that reads the parameter.

    Raises: UsageError if an op that reads a parameter has no rule.
    """

    def __init__(
        self, scratch: Scratch, grads: Gradients, wanted: set[str], before: Mapping[str, Array]
    ) -> None:
        self.calls: list[Call] = []
        self.places: dict[str, list[RowGradient]] = {}
        self._scratch, self._backward, self._before = scratch, grads.bind(scratch), before
        tape, more = scratch.recording.tape, scratch.batch_size + 1
        self._longer = scratch.mlp.recorded(more, training=True).tape.nodes
        trained = [n for n in tape.parameters if n.name in wanted - scratch.mlp.params.frozen]
        self._trained = dependents(tape.records, trained)
        self._rows = dependents(tape.records, tape.inputs)
        self._places: dict[int, list[RowGradient]] = {}
        for record in reversed(scratch.program.plan.records):
            if isinstance(record.op, BatchNorm) and record.op.training:
                raise UsageError("batch_norm averages over the rows of a batch")
            self._add(record)
        for node in trained:
            self.places[node.name] = places = self._places.get(node.index, [])
            if len({place.right is None for place in places}) > 1:
                raise UsageError(f"{node.name!r} is read by ops of two kinds")

    def _add(self, record: Record) -> None:
        """Add the gradients of operands that are parameters, or are computed from parameters."""
        positions = [
            position
            for position, x in enumerate(record.operands)
            if x is not None and x.index in self._trained and x.index not in self._rows
        ]
        if not positions:
            return
        if record.key in self._rows:
            slopes = [self._slope(record)]
        else:  # a function of parameters alone
            slopes = [self._vector(one, record) for one in self._places.get(record.key, [])]
        for slope in slopes:
            for position in positions:
                node = record.operands[position]
                assert node is not None
                gradients = self._places.setdefault(node.index, [])
                gradients.append(self._gradient(record, position, slope))

    def _slope(self, record: Record) -> Array:
        """Return the gradient with respect to the op's output, (batch, ...)."""
        y = record.outputs[0]
        self._need_rows(record, y)
        if not self._backward.plan.retains(y):
            self._refuse(record, "has an output that is no pre-activation of a layer, and reads")
        return self._backward.gradient(y)

    def _vector(self, gradient: RowGradient, record: Record) -> Array:
        if gradient.right is not None or len(record.outputs[0].spec.shape) != 1:
            self._refuse(record, "computes a matrix from")
        return gradient.left

    def _gradient(self, record: Record, position: int, slope: Array) -> RowGradient:
        op, x = record.op, record.operands[position]
        if isinstance(op, Linear) and position == 1:
            rows = self._value(record, record.operands[0])
            return RowGradient(_by_token(slope), _by_token(rows))
        if isinstance(op, MatMul) and position == 1:
            return RowGradient(self._value(record, record.operands[0]), slope)
        if isinstance(op, Linear | LayerNorm) and position == 2:
            return self._summed(slope, slope.shape[-1:])
        assert x is not None
        out = np.zeros_like(slope)
        if isinstance(op, LayerNorm) and position == 1:
            xhat = self._work(record, {})["xhat"].reshape(slope.shape)
            self.calls.append(call(np.multiply, slope, xhat, out))
        elif isinstance(op, Elementwise):
            self.calls += self._entries(record, position, slope, out)
        else:
            self._refuse(record, "has no rule for single rows of")
        return self._summed(out, x.spec.shape)

    def _summed(self, slope: Array, shape: tuple[int, ...]) -> RowGradient:
        """Return the gradient of an operand with `shape` that the op broadcasts to each row."""
        own = (*[1] * slope.ndim, *shape)[1 - slope.ndim :]  # aligned at the right
        axes = tuple(n for n in range(1, slope.ndim) if own[n - 1] != slope.shape[n])
        if not axes:
            return RowGradient(slope.reshape(len(slope), -1))
        total = np.zeros((len(slope), *own), slope.dtype)
        kept = tuple(n for n in range(slope.ndim) if n not in axes)
        narrow = total.reshape([slope.shape[n] for n in kept])
        self.calls.append(call(np.add.reduce, slope, axes, None, narrow))
        return RowGradient(total.reshape(len(slope), -1))

    def _entries(self, record: Record, position: int, slope: Array, out: Array) -> Calls:
        """Yield the calls that compute an element-wise op's gradient for each row."""
        op, slots = record.op, [None] * len(record.operands)
        values = {**record.named_operands, "y": record.outputs}
        names = op.signature.residuals[1:]
        reads = [self._value(record, x) for name in names for x in as_tuple(values[name])]
        work = self._work(record, op.work(*(Spec.of(slope) for _ in slots)))
        yield from op.backward(
            slope, *reads, out=(*slots[:position], out, *slots[position + 1 :]), **work
        )

    def _work(self, record: Record, specs: Mapping[str, Spec]) -> dict[str, Array]:
        """Return the op's work buffers: the buffers that forward filled, and new buffers."""
        program, new = self._scratch.program, set(record.op.signature.work["backward"])
        saved = {n: program.resolve(b) for n, b in program.plan.saved.get(record.key, {}).items()}
        own = {n: zeros(spec) for n, spec in specs.items() if n in new - saved.keys()}
        return saved | own

    def _value(self, record: Record, x: Value | None) -> Array:
        """Return the array of the operand `x`."""
        if x is None or not self._scratch.program.plan.survives(x):
            self._refuse(record, "does not keep the operand that it multiplies with")
        if x.kind == "parameter":
            return self._before[x.name]
        if x.index in self._rows:
            self._need_rows(record, x)
        return self._scratch.program.value(x)

    def _need_rows(self, record: Record, x: Value) -> None:
        """Raise UsageError unless the first axis of `x` is the rows of the batch."""
        shape, longer = x.spec.shape, self._longer[x.index].spec.shape
        batch = self._scratch.batch_size
        if len(shape) < 2 or (shape[0], longer[0]) != (batch, batch + 1):
            self._refuse(record, "mixes the rows of a batch, and reads")
        if prod(shape[1:-1]) > MAX_TOKENS:
            self._refuse(record, f"acts on more than {MAX_TOKENS} tokens of a row, and reads")

    def _refuse(self, record: Record, what: str) -> NoReturn:
        names = (x.name for x in record.operands if x is not None and x.index not in self._rows)
        raise UsageError(f"{record.op.name} {what} {next(names)!r}")


def _by_token(array: Array) -> Array:
    """Return (batch, n) unchanged, and (batch, ..., n) as (batch, tokens, n)."""
    return array if array.ndim == 2 else array.reshape(len(array), -1, array.shape[-1])
