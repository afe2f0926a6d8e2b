"""The gradient check: what it accepts, what it finds, and what it leaves untouched."""

import numpy as np
import pytest

from mlpengine.core.errors import DtypeError, GradcheckError
from mlpengine.core.spec import Spec, call
from mlpengine.ops import REGISTRY, GradOp, Philox, Where
from mlpengine.tape import Program, Tape, apply, gradcheck

RNG = np.random.default_rng(2)
X, Y = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))


class Square(GradOp):
    """A user's op, y = x**2, with its gradient multiplied by `factor`."""

    name = "my_square"

    def __init__(self, factor: float = 2.0) -> None:
        self.factor = factor

    def infer(self, x: Spec) -> Spec:
        return x

    def forward(self, x, *, out):
        yield call(np.square, x, out)

    def backward(self, dy, x, *, out):
        (dx,) = out
        yield call(np.multiply, dy, x, dx)
        yield call(np.multiply, dx, self.factor, dx)


class Forgetful(Square):
    """The same, but it writes only half of its gradient."""

    def backward(self, dy, x, *, out):
        yield call(np.multiply, dy[:1], 2 * x[:1], out[0][:1])


class Adding(Square):
    """The same, but it adds to what its gradient buffer held."""

    def backward(self, dy, x, *, out):
        (dx,) = out
        room = np.empty_like(x)
        yield from super().backward(dy, x, out=(room,))
        yield call(np.add, dx, room, dx)


def test_it_accepts_a_right_gradient_and_names_an_op_with_a_call_that_fails():
    assert gradcheck(Square(), X) < 1e-8
    op = Square()
    op.infer = lambda x: Spec((1,), "float64")  # a shape that `forward` cannot write into
    with pytest.raises(GradcheckError, match="my_square: a call fails"):
        gradcheck(op, X)


@pytest.mark.parametrize("broken", [Square(2.001), Square(-2.0), Forgetful(), Adding()])
def test_it_finds_a_wrong_gradient_and_names_op_and_operand(broken):
    with pytest.raises(GradcheckError, match="my_square: gradient of operand 0"):
        gradcheck(broken, X)


def test_it_names_the_leaf_of_a_program():
    tape = Tape()
    good, bad = tape.parameter(X, name="good"), tape.parameter(Y, name="bad")
    y = apply(Square(), good) + apply(Square(1.9), bad)
    with pytest.raises(GradcheckError, match="program: gradient of bad"):
        gradcheck(Program(tape, y))


def test_integer_operands_and_left_out_ones_are_not_moved():
    assert gradcheck(Where(), X > 0, X, Y) < 1e-8
    assert gradcheck(REGISTRY["linear"](), X.tolist(), Y, None) < 1e-8
    assert gradcheck(REGISTRY["embedding"](), X, np.array([0, 2, 2])) < 1e-8


def test_random_ops_draw_the_same_numbers_each_time():
    rng = Philox(3)
    before = rng.state.copy()
    assert gradcheck(REGISTRY["dropout"](0.5, rng), X) < 1e-8
    assert rng.state.tobytes() == before.tobytes()


def test_it_refuses_float32_whose_rounding_would_hide_errors():
    with pytest.raises(DtypeError, match=r"needs float64 leaves \(got operand 0 float32"):
        gradcheck(Square(), X.astype(np.float32))
