"""An op of one's own, in fifteen lines: written, checked, recorded, computed eagerly.

Run ``python benchmarks/own_op.py``.  A rule yields the calls that a replay makes, bound to the
buffers that it is given, and says what it needs by the names of its parameters: here backward
reads x, so the plan keeps it.
"""

import numpy as np

from mlpengine import Program, Tape
from mlpengine.ops import GradOp
from mlpengine.spec import Array, Calls, Slots, Spec, call
from mlpengine.tape import apply, backward, from_inner, gradcheck


class Snake(GradOp, name="snake"):
    """Periodic activation, y = x + sin(x)**2; backward: dx = dy * (1 + sin(2 x))."""

    def infer(self, x: Spec) -> Spec:
        return x

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.sin, x, out)
        yield call(np.square, out, out)
        yield call(np.add, out, x, out)

    def backward(self, dy: Array, x: Array, *, out: Slots) -> Calls:
        yield call(np.add, x, x, out[0])
        yield call(np.sin, out[0], out[0])
        yield call(np.multiply, out[0], dy, out[0])
        yield call(np.add, out[0], dy, out[0])


def main() -> None:
    """Check the gradient, and use the op on both faces."""
    x = np.random.default_rng(0).standard_normal((4, 3))
    print(f"largest error of the gradient: {gradcheck(Snake(), x):.1e}")

    tape = Tape()
    w = tape.parameter(x, name="w")
    program = Program(tape, apply(Snake(), w).sum())
    print(f"recorded: {program.forward():.6f}")
    program.backward()

    tensor = from_inner(x).require_grad()
    total = apply(Snake(), tensor).sum()
    print(f"eager:    {float(total):.6f}")
    same = np.array_equal(backward(total).grad(tensor), program.grads.views["w"])
    print(f"the same gradient to the last bit: {same}")


if __name__ == "__main__":
    main()
