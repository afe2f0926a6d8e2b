"""Arithmetic: two operands that broadcast as in NumPy, or one operand and a constant."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlpengine.ops._check import need_floats
from mlpengine.ops._constant import constant
from mlpengine.ops._elementwise import Unary, bits, broadcast, chosen, copied, masked
from mlpengine.ops._op import Direction, GradOp
from mlpengine.spec import Array, Calls, Slots, Spec, call


class Binary(GradOp):
    """Base of the ops on two floating operands of one dtype that broadcast.

    Every slot of `backward` has the shape of y; slots are written last to first, so that the first
    may be the very buffer of dy.
    """

    broadcasts = True
    in_place: ClassVar[tuple[Direction, ...]] = ("forward", "backward")

    def infer(self, a: Spec, b: Spec) -> Spec:
        need_floats(self.name, a=a, b=b)
        return Spec(broadcast(self.name, a=a, b=b), a.dtype)


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


class Extremum(Binary):
    """Base of `Maximum` and `Minimum`: the gradient goes to the winner, half each on a tie."""

    in_place = ("forward",)

    def work(self, a: Spec, b: Spec) -> dict[str, Spec]:
        masks = Spec((2, *self.infer(a, b).shape), np.dtype(np.int8))
        return {"wins": masks}

    def shares(self, dy: Array, a: Array, b: Array, out: Slots, wins: Array) -> Calls:
        """Yield the calls that give dy to the first slot where a > b, half where a == b."""
        da, db = out
        above, not_below = wins
        yield call(np.greater, a, b, above.view(np.bool_))
        yield call(np.greater_equal, a, b, not_below.view(np.bool_))
        yield call(np.add, above, not_below, above)  # halves of dy that go to a: 0, 1 or 2
        half = constant(0.5, dy)
        if da is not None:
            yield call(np.multiply, above, half, da)
            yield call(np.multiply, da, dy, da)
        if db is not None:
            yield call(np.subtract, np.array(2, np.int8), above, above)
            yield call(np.multiply, above, half, db)
            yield call(np.multiply, db, dy, db)


class Maximum(Extremum, name="maximum"):
    """Larger of the two, y = max(a, b); NaN in either stays NaN.

    Shapes: a and b broadcast to y.
    Backward: dy to the larger, dy / 2 to each on a tie.
    Raises: ShapeError if a and b do not broadcast.
    """

    def forward(self, a: Array, b: Array, *, out: Array) -> Calls:
        yield call(np.maximum, a, b, out=out)

    def backward(self, dy: Array, a: Array, b: Array, *, out: Slots, wins: Array) -> Calls:
        yield from self.shares(dy, a, b, out, wins)


class Minimum(Extremum, name="minimum"):
    """Smaller of the two, y = min(a, b); NaN in either stays NaN.

    Shapes: a and b broadcast to y.
    Backward: dy to the smaller, dy / 2 to each on a tie.
    Raises: ShapeError if a and b do not broadcast.
    """

    def forward(self, a: Array, b: Array, *, out: Array) -> Calls:
        yield call(np.minimum, a, b, out=out)

    def backward(self, dy: Array, a: Array, b: Array, *, out: Slots, wins: Array) -> Calls:
        da, db = out
        yield from self.shares(dy, a, b, (db, da), wins)


class Where(GradOp, name="where"):
    """Choice, y = a where cond holds and b elsewhere.

    Shapes: cond, a and b broadcast to y.
    Dtype: cond is bool, or a mask of 0 and 1 of any dtype; a and b have the dtype of y.
    Backward: da = dy where cond holds and 0 elsewhere, db the other way round, dcond = 0.
    Raises: ShapeError if the three do not broadcast.
    """

    broadcasts = True

    def infer(self, cond: Spec, a: Spec, b: Spec) -> Spec:
        need_floats(self.name, a=a, b=b)
        return Spec(broadcast(self.name, cond=cond, a=a, b=b), a.dtype)

    def work(self, cond: Spec, a: Spec, b: Spec) -> dict[str, Spec]:
        is_mask = cond.dtype == np.bool_
        return {"mask": Spec((0,) if is_mask else cond.shape, np.dtype(np.bool_))}

    def forward(self, cond: Array, a: Array, b: Array, *, out: Array, mask: Array) -> Calls:
        if cond.dtype != np.bool_:
            yield call(np.not_equal, cond, np.zeros((), cond.dtype), mask)
            cond = mask
        yield from chosen(cond, a, b, out)

    def backward(self, dy: Array, cond: Array, *, out: Slots, mask: Array) -> Calls:
        dcond, da, db = out
        kept = cond if cond.dtype == np.bool_ else mask
        if dcond is not None:
            yield call(dcond.fill, 0)
        for slot in (da, db):
            if slot is not None:
                yield from masked(dy, kept, slot)
        if db is not None:  # dy without the part that goes to a
            yield call(np.bitwise_xor, bits(db), bits(dy), bits(db))


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
    elif exponent == -1:
        yield call(np.divide, constant(1.0, x), x, out)
    elif exponent == -2:
        yield call(np.square, x, out)
        yield call(np.divide, constant(1.0, x), out, out)
    else:
        yield call(np.power, x, constant(exponent, x), out)
