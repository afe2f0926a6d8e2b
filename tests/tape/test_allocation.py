"""A replay allocates nothing that grows with the batch, whatever the program."""

from collections.abc import Callable

import numpy as np
import pytest
from traced import least_peak

from mlpengine.core.spec import Spec, call
from mlpengine.ops import GradOp
from mlpengine.tape import Node, Program, Tape, apply

ROWS = 4096, 65536
RNG = np.random.default_rng(0)


def weights(tape: Tape, *shape: int) -> Node:
    name = f"w{len(tape.nodes)}"
    return tape.parameter(RNG.standard_normal(shape).astype(np.float32) / 3, name=name)


def dense(tape: Tape, x: Node) -> Node:
    h = x.linear(weights(tape, 8, 4), weights(tape, 8)).layer_norm(weights(tape, 8)).gelu()
    h = h.dropout(0.1, np.random.default_rng(1)) + h.linear(weights(tape, 8, 8)).silu()
    return h.linear(weights(tape, 3, 8)).softmax_cross_entropy(rows_of(tape, x, "int64"))


def rows_of(tape: Tape, x: Node, dtype: str) -> Node:
    return tape.input((x.shape[0],), dtype, name=f"rows{len(tape.nodes)}")


def peak(record: Callable[[Tape, Node], Node], rows: int, how: str) -> int:
    """Return the peak of traced bytes over one replay, forward and backward, after a first."""
    tape = Tape()
    x = tape.input((rows, 4), name="x", wants_grad=True)
    program = Program(tape, record(tape, x), rematerialization=how)
    program.inputs["x"][...] = RNG.standard_normal((rows, 4))

    def replay() -> None:
        program.forward()
        program.backward()

    replay()
    return least_peak(replay)


def growth(record: Callable[[Tape, Node], Node], how: str = "keep") -> int:
    few, many = (peak(record, rows, how) for rows in ROWS)
    return many - few


@pytest.mark.parametrize("how", ["keep", "balanced"])
def test_a_replay_holds_no_memory_that_grows_with_the_batch(how):
    assert growth(dense, how) < 1024


def test_the_allocation_test_can_fail():
    class Wasteful(GradOp):
        name = "wasteful"

        def infer(self, x: Spec) -> Spec:
            return x

        def forward(self, x, *, out):
            yield call(lambda: np.copyto(out, np.tanh(x)))

        def backward(self, dy, *, out):
            yield call(np.copyto, out[0], dy)

    assert growth(lambda tape, x: apply(Wasteful(), x)) > 100_000
