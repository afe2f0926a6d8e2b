"""Element-wise ops at places where backends might disagree: all give the one answer."""

import numpy as np
import pytest

from mlpengine import Program, Tape
from mlpengine.backends.compiled import compile_program

INF, NAN = np.inf, np.nan

EDGES = {
    "relu": ([-1, 1, 2, -1, NAN], [1, NAN, 3, NAN, 2], [0, 1, 2, 0, NAN], [0, NAN, 3, 0, 2]),
    "silu": ([1e7, 3e30, 40, -1e4], [1, 1, 1, 1], [1e7, 3e30, 40, 0], [1, 1, 1, 0]),
    "gelu": ([-INF, INF, -40, 40, NAN], [1] * 5, [0, INF, 0, 40, NAN], [0, 1, 0, 1, NAN]),
}
"""By op: operands, dy, and the value and the gradient there."""


@pytest.mark.parametrize("backend", ["numpy", "numexpr", "compiled"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EDGES)
def test_backends_give_one_answer_at_edges(name, dtype, backend):
    x_in, dy, value, slope = (np.array([row], dtype) for row in EDGES[name])
    tape = Tape()
    x = tape.input(x_in.shape, dtype, name="x", wants_grad=True)
    rules = "numpy" if backend == "compiled" else backend
    program = Program(tape, getattr(x, name)(), backend=rules)
    with np.errstate(all="ignore"):
        y = program.forward(x=x_in)
        program.backward(dy)
    if backend == "compiled":
        executor = compile_program(program.instructions, dtype=x_in.dtype, batch=1)
        y.fill(NAN)
        program.grad(x).fill(NAN)
        assert executor.step() == 0
    np.testing.assert_array_equal(y, value)
    np.testing.assert_array_equal(program.grad(x), slope)
