"""Arithmetic: two operands that broadcast as in NumPy, or one operand and a constant."""

from dataclasses import dataclass

import numpy as np

from mlpengine.ops._constant import constant
from mlpengine.ops._elementwise import Binary, Unary, copied
from mlpengine.spec import Array, Calls, Slots, call


class Add(Binary, name="add"):
    """Sum, y = a + b.

    Shapes: a and b broadcast to y.
    Backward: da = dy, db = dy.
    Raises: ShapeError if a and b do not broadcast.
    """

    def forward(self, a: Array, b: Array, *, out: Array) -> Calls:
        yield call(np.add, a, b, out)

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        for slot in reversed(out):
            if slot is not None:
                yield from copied(dy, slot)


class Sub(Binary, name="sub"):
    """Difference, y = a - b.

    Shapes: a and b broadcast to y.
    Backward: da = dy, db = -dy.
    Raises: ShapeError if a and b do not broadcast.
    """

    def forward(self, a: Array, b: Array, *, out: Array) -> Calls:
        yield call(np.subtract, a, b, out)

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        da, db = out
        if db is not None:
            yield call(np.negative, dy, db)
        if da is not None:
            yield from copied(dy, da)


class Mul(Binary, name="mul"):
    """Product, y = a * b.

    Shapes: a and b broadcast to y.
    Backward: da = dy * b, db = dy * a.
    Raises: ShapeError if a and b do not broadcast.
    """

    def forward(self, a: Array, b: Array, *, out: Array) -> Calls:
        yield call(np.multiply, a, b, out)

    def backward(self, dy: Array, a: Array, b: Array, *, out: Slots) -> Calls:
        da, db = out
        if db is not None:
            yield call(np.multiply, dy, a, db)
        if da is not None:
            yield call(np.multiply, dy, b, da)


class Div(Binary, name="div"):
    """Quotient, y = a / b.

    Shapes: a and b broadcast to y.
    Backward: da = dy / b, db = -dy * y / b.
    Raises: ShapeError if a and b do not broadcast.
    """

    def forward(self, a: Array, b: Array, *, out: Array) -> Calls:
        yield call(np.divide, a, b, out)

    def backward(self, dy: Array, b: Array, y: Array, *, out: Slots) -> Calls:
        da, db = out
        if db is not None:
            yield call(np.divide, y, b, db)
            yield call(np.multiply, db, dy, db)
            yield call(np.negative, db, db)
        if da is not None:
            yield call(np.divide, dy, b, da)


@dataclass(frozen=True)
class ScalarMul(Unary, name="scalar_mul"):
    """Multiple by a constant, y = scalar * x.

    Shapes: x (...), y (...).
    Backward: dx = dy * scalar.
    """

    scalar: float

    in_place = ("forward", "backward")

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.multiply, x, constant(self.scalar, x), out)

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.multiply, dy, constant(self.scalar, dy), dx)


@dataclass(frozen=True)
class ScalarAdd(Unary, name="scalar_add"):
    """Sum with a constant, y = scalar + x.

    Shapes: x (...), y (...).
    Backward: dx = dy.
    """

    scalar: float

    in_place = ("forward", "backward")

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.add, x, constant(self.scalar, x), out)

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield from copied(dy, dx)


class Neg(Unary, name="neg"):
    """Negative, y = -x.

    Shapes: x (...), y (...).
    Backward: dx = -dy.
    """

    in_place = ("forward", "backward")

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.negative, x, out)

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.negative, dy, dx)


@dataclass(frozen=True)
class Pow(Unary, name="pow"):
    """Power with a constant exponent n, y = x**n.

    Shapes: x (...), y (...).
    Backward: dx = dy * n * x**(n - 1); n = 0 gives 0 everywhere, n = 1 gives dy.
    Where the formula is infinite (x = 0 with n < 1) so is the gradient.
    """

    exponent: float

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield from _power(x, self.exponent, out)

    def backward(self, dy: Array, x: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is None:
            return
        if self.exponent == 0:
            yield call(dx.fill, 0)
        elif self.exponent == 1:
            yield call(np.copyto, dx, dy)
        else:
            yield from _power(x, self.exponent - 1, dx)
            yield call(np.multiply, dx, dy, dx)
            yield call(np.multiply, dx, constant(self.exponent, dx), dx)


def _power(x: Array, exponent: float, out: Array) -> Calls:
    """Yield x**exponent; np.power takes 20 to 60 ns an element, so small whole powers multiply."""
    if exponent == 0:
        yield call(out.fill, 1)
    elif exponent == 1:
        yield call(np.copyto, out, x)
    elif exponent == 2:
        yield call(np.square, x, out)
    elif exponent == 3:
        yield call(np.square, x, out)
        yield call(np.multiply, out, x, out)
    elif exponent == 4:
        yield call(np.square, x, out)
        yield call(np.square, out, out)
    elif exponent == 0.5:
        yield call(np.sqrt, x, out)
    elif exponent == -0.5:
        yield call(np.sqrt, x, out)
        yield call(np.divide, constant(1.0, x), out, out)
    elif exponent == -1:
        yield call(np.divide, constant(1.0, x), x, out)
    elif exponent == -2:
        yield call(np.square, x, out)
        yield call(np.divide, constant(1.0, x), out, out)
    else:
        yield call(np.power, x, constant(exponent, x), out)
