"""Each check of the op table fails on an op that breaks what it checks."""

from collections.abc import Callable
from dataclasses import dataclass

import checks
import numpy as np
import pytest
from case import Case, normal

from mlpengine.core.errors import GradcheckError
from mlpengine.core.spec import call
from mlpengine.ops import Mul, Sigmoid, Tanh


class Off(Tanh):
    def forward(self, x, *, out):
        yield call(np.tanh, x, out)
        yield call(np.multiply, out, np.array(1.001, x.dtype), out)


class WrongGradient(Tanh):
    def backward(self, dy, y, *, out):
        yield from super().backward(dy, y, out=out)
        yield call(np.multiply, out[0], np.array(1.00001), out[0])


class Coarse(Tanh):
    def backward(self, dy, y, *, out):
        yield from super().backward(dy, y, out=out)
        if y.dtype == np.float32:
            yield call(lambda dx: np.copyto(dx, dx.astype(np.float16)), out[0])


class NotForOneRow(Tanh):
    def forward(self, x, *, out):
        yield call(np.tanh if len(x) > 1 else np.sin, x, out)


class NotForNoRows(Tanh):
    def forward(self, x, *, out):
        yield call(np.tanh, x, out)
        yield call(lambda: out.max())


class Adding(Tanh):
    def forward(self, x, *, out):
        yield call(lambda: np.copyto(out, np.where(np.isnan(out), 0, out) + x))


class Filling(Tanh):
    def forward(self, x, *, out):
        yield call(np.tanh, x[1:], out[1:])


class WritingOperand(Tanh):
    def forward(self, x, *, out):
        yield call(np.tanh, x, x)
        yield call(np.copyto, out, x)


class WritingDy(Tanh):
    def backward(self, dy, y, *, out):
        yield from super().backward(dy, y, out=out)
        yield call(np.negative, dy, dy)


class WritingValue(Tanh):
    def backward(self, dy, y, *, out):
        yield from super().backward(dy, y, out=out)
        yield call(np.square, y, y)


class AllOrNone(Mul):
    def backward(self, dy, a, b, *, out):
        da, db = out
        if da is not None:
            yield call(np.multiply, dy, b, da)
        if db is not None:
            yield call(np.multiply, dy, a if da is not None else b, db)


class NotInPlace(Tanh):
    in_place = ("forward",)

    def forward(self, x, *, out):
        yield call(np.negative, x, out)
        yield call(np.tanh, x, out)


class NotInPlaceBackward(Tanh):
    in_place = ("backward",)


class Greedy(Tanh):
    def forward(self, x, *, out):
        yield call(lambda: np.copyto(out, np.tanh(x)))


class Overflowing(Sigmoid):
    def forward(self, x, *, out, **work):
        yield call(np.negative, x, out)
        yield call(np.exp, out, out)
        yield call(np.add, out, np.array(1, x.dtype), out)
        yield call(np.divide, np.array(1, x.dtype), out, out)


class Infinite(Tanh):
    def forward(self, x, *, out):
        yield call(out.fill, np.inf)


@dataclass(frozen=True)
class Broken:
    """A check, an op that breaks it, and what the failure says."""

    check: Callable[[Case], None]
    op: object
    says: str
    error: type[BaseException] = AssertionError


BROKEN = [
    Broken(checks.check_value, Off(), "Not equal to tolerance"),
    Broken(checks.check_gradient, WrongGradient(), "must equal its differences", GradcheckError),
    Broken(checks.check_float32_gradient, Coarse(), "Not equal to tolerance"),
    Broken(checks.check_sizes, NotForOneRow(), "Not equal to tolerance"),
    Broken(checks.check_sizes, NotForNoRows(), "zero-size", ValueError),
    Broken(checks.check_overwrite, Adding(), "forward adds"),
    Broken(checks.check_overwrite, Filling(), "not filled"),
    Broken(checks.check_overwrite, WritingOperand(), "forward wrote an operand"),
    Broken(checks.check_overwrite, WritingDy(), "backward wrote dy"),
    Broken(checks.check_overwrite, WritingValue(), "backward wrote the value"),
    Broken(checks.check_overwrite, AllOrNone(), "differ from the same among all"),
    Broken(checks.check_in_place, NotInPlace(), "forward in place"),
    Broken(checks.check_in_place, NotInPlaceBackward(), "backward in place"),
    Broken(checks.check_memory, Greedy(), "bytes more"),
    Broken(checks.check_extremes, Overflowing(), "overflow", FloatingPointError),
    Broken(checks.check_extremes, Infinite(), "not finite"),
    Broken(checks.check_backends, WrongGradient(), "Not equal to tolerance"),
]


def broken_case(op) -> Case:
    if isinstance(op, Mul):
        return Case("broken", op, lambda n: (normal(n, 4), normal(n, 4) + 1), lambda a, b: a * b)
    return Case("broken", op, lambda n: (normal(n, 4),), np.tanh)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: type(b.op).__name__)
def test_a_check_can_fail(broken):
    with pytest.raises(broken.error, match=broken.says):
        broken.check(broken_case(broken.op))


def test_every_check_is_shown_to_fail():
    assert {b.check for b in BROKEN} == set(checks.CHECKS)
