"""Random computations, and a naive way to run them that shares no memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mlpengine.core.spec import Array
from mlpengine.ops.broadcast import unbroadcast
from mlpengine.tape import Node, Tape, cat, where
from mlpengine.tape.record import Record, as_tuple

UNARY: list[Callable[[Node], Any]] = [
    lambda x: x.tanh(),
    lambda x: x.relu(),
    lambda x: x.silu(),
    lambda x: -x,
    lambda x: x * 0.5,
    lambda x: x + 1,
    lambda x: x.sigmoid() ** 2,
    lambda x: x.reshape(-1),
    lambda x: x.reshape(*x.shape, 1).reshape(x.shape),
    lambda x: x.reshape(2, x.size // 2) if x.size % 2 == 0 else x.reshape(x.size, 1),
    lambda x: x.T,
    lambda x: x[:1] if x.ndim else x[None],
    lambda x: x.sum(axis=-1, keepdims=True) if x.ndim else x.sin(),
    lambda x: x.mean(),
    lambda x: x.chunk(2, axis=-1) if x.ndim and x.shape[-1] % 2 == 0 else x.cos(),
    lambda x: x.layer_norm() if x.ndim and x.shape[-1] else x.abs(),
    lambda x: x.softmax() if x.ndim and x.shape[-1] else x.exp(),
    lambda x: x.dropout(0.4, np.random.default_rng(7)),
]
UNARY_OF_ROWS: list[Callable[[Node], Any]] = [
    lambda x: x.tanh(),
    lambda x: x.silu(),
    lambda x: x * 0.5,
    lambda x: x.abs(),
    lambda x: x.softmax() if x.ndim else x.exp(),
    lambda x: x.layer_norm() if x.ndim > 1 else x.sigmoid(),
    lambda x: x[..., ::-1] if x.ndim > 1 else -x,
    lambda x: x[..., 1:2] if x.ndim > 1 and x.shape[-1] > 1 else x.sin(),
    lambda x: x.reshape(x.shape[0], x.size // x.shape[0]) if x.ndim else x.reshape(1),
    lambda x: x.reshape(*x.shape[:-1], 2, -1) if x.ndim > 1 and x.shape[-1] == 4 else x + 1,
    lambda x: x.transpose(0, 2, 1) if x.ndim == 3 else x.cos(),
    lambda x: x @ x.transpose(0, 2, 1) if x.ndim == 3 else x.tanh(),
    lambda x: x.sum(axis=1, keepdims=True) if x.ndim > 1 else x * x,
    lambda x: x.mean(axis=-1, keepdims=True) if x.ndim > 1 else x - 1,
    lambda x: x.sum(axis=1) if x.ndim > 2 else x.relu(),
    lambda x: x.chunk(2, axis=-1) if x.ndim > 1 and x.shape[-1] % 2 == 0 else x.silu(),
    lambda x: cat([x, x * x], axis=-1) if x.ndim > 1 and x.shape[-1] < 3 else x.exp() / 8,
]
"""Of those on arrays of a batch of rows, the ones that keep the rows apart."""

BINARY: list[Callable[[Node, Node], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / (b * b + 1),
    lambda a, b: a.maximum(b),
    lambda a, b: where(np.ones((), bool), a, b),
]


@st.composite
def dags(draw: st.DrawFn, batch: int | None = None) -> tuple[Tape, list[Node]]:
    """Draw a tape of up to 14 steps over shapes that broadcast, and one to three outputs.

    With a `batch` they are over so many rows of an input, which no step mixes, and parameters.
    """
    tape = Tape()
    rows, columns = batch or draw(st.integers(0, 3)), draw(st.sampled_from([1, 2, 4]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    height = columns if batch else rows
    nodes = [
        tape.parameter(rng.standard_normal((height, columns)), name="w"),
        tape.parameter(rng.standard_normal(columns), name="b"),
        tape.parameter(rng.standard_normal(()), name="s"),
        tape.input((rows, columns), "float64", name="x"),
    ]
    for _ in range(draw(st.integers(1, 14))):
        a, b = (nodes[-1 - draw(st.integers(0, min(5, len(nodes) - 1)))] for _ in range(2))
        if b is nodes[0] and a.ndim > 1 and a.shape[0] == batch:
            made = a.linear(b) if a.shape[-1] == columns else a * 2
        elif draw(st.booleans()) and _broadcast(a, b):
            made = draw(st.sampled_from(BINARY[:-1] if batch else BINARY))(a, b)
        else:
            made = draw(st.sampled_from(UNARY_OF_ROWS if batch else UNARY))(a)
        nodes += as_tuple(made)
    tail = nodes[4:]
    count = draw(st.integers(1, min(3, len(tail))))
    return tape, draw(st.permutations(tail))[:count]


def _broadcast(a: Node, b: Node) -> bool:
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return False
    return a.size + b.size < 200


class Naive:
    """Runs records one by one, each value and gradient in an array of its own."""

    def __init__(self, tape: Tape, leaves: dict[str, Array]) -> None:
        self.tape = tape
        self.values = {n.index: leaves.get(n.name, n.array) for n in tape.nodes if n.is_leaf}
        self.work: dict[int, dict[str, Array]] = {}
        for record in tape.records:
            self._forward(record)

    def gradients(self, outputs: list[Node], seeds: list[Array]) -> dict[int, Array]:
        """Return the gradients of all nodes: set by the first consumer, added by the others."""
        found = {n.index: np.array(seed) for n, seed in zip(outputs, seeds, strict=True)}
        for record in reversed(self.tape.records):
            if any(y.index in found for y in record.outputs):
                self._backward(record, found)
        return found

    def _forward(self, record: Record) -> None:
        operands = [None if x is None else self.values[x.index] for x in record.operands]
        outputs = tuple(np.full(y.spec.shape, np.nan, y.spec.dtype) for y in record.outputs)
        specs = record.work_specs
        self.work[record.key] = {n: np.zeros(s.shape, s.dtype) for n, s in specs.items()}
        names = record.op.signature.work["forward"]
        work = {n: self.work[record.key][n] for n in names}
        out = outputs if len(outputs) > 1 else outputs[0]
        for call in list(record.op.forward(*operands, out=out, **work)):
            call()
        self.values |= {y.index: a for y, a in zip(record.outputs, outputs, strict=True)}

    def _backward(self, record: Record, found: dict[int, Array]) -> None:
        zeros = [np.zeros(y.spec.shape) for y in record.outputs]
        dys = tuple(found.get(y.index, z) for y, z in zip(record.outputs, zeros, strict=True))
        given = record.named_operands.items()
        named = {n: None if x is None else self.values[x.index] for n, x in given}
        named |= {"y": self.values[record.key], "dy": dys if len(dys) > 1 else dys[0]}
        residuals = [named[name] for name in record.op.signature.residuals]
        names = record.op.signature.work["backward"]
        work = {n: self.work[record.key][n] for n in names}
        shape = record.outputs[0].spec.shape
        slots = [
            np.full(shape if record.op.broadcasts else x.spec.shape, np.nan)
            if x is not None and x.wants_grad
            else None
            for x in record.operands
        ]
        for call in list(record.op.backward(*residuals, out=slots, **work)):
            call()
        for x, slot in zip(record.operands, slots, strict=True):
            if x is None or slot is None:
                continue
            part = np.empty(x.spec.shape)
            for call in unbroadcast(slot, part):
                call()
            before = found.get(x.index)
            found[x.index] = part if before is None else np.asarray(before + part)
