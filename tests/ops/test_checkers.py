"""Each check of the op table fails on an op that breaks what it checks."""

import checks
import numpy as np
import pytest
from case import Case, normal

from mlpengine.core.errors import GradcheckError
from mlpengine.core.spec import call
from mlpengine.ops import Mul, Sigmoid, Tanh


def forward(calls, base=Tanh, **attributes):
    """Return tanh, or another op, with these calls in place of its forward."""

    def rule(self, x, *, out, **work):
        yield from calls(x, out)

    return type("Broken", (base,), {"forward": rule, **attributes})()


def backward(calls):
    """Return tanh with these calls after its backward."""

    def rule(self, dy, y, *, out):
        yield from Tanh.backward(self, dy, y, out=out)
        yield from calls(dy, y, out[0])

    return type("Broken", (Tanh,), {"backward": rule})()


class AllOrNone(Mul):
    def backward(self, dy, a, b, *, out):
        da, db = out
        if da is not None:
            yield call(np.multiply, dy, b, da)
        if db is not None:
            yield call(np.multiply, dy, a if da is not None else b, db)


def overflowing(x, out):
    one = np.array(1, x.dtype)
    return [
        call(np.negative, x, out),
        call(np.exp, out, out),
        call(np.add, out, one, out),
        call(np.divide, one, out, out),
    ]


def scaled(factor):
    return backward(lambda dy, y, dx: [call(np.multiply, dx, np.array(factor), dx)])


TANH = lambda x, out: call(np.tanh, x, out)  # noqa: E731
BROKEN = [
    (
        checks.check_value,
        forward(lambda x, out: [TANH(x, out), call(np.multiply, out, np.array(1.001, "f4"), out)]),
        "Not equal to tolerance",
    ),
    (checks.check_gradient, scaled(1.00001), "must equal its differences"),
    (
        checks.check_float32_gradient,
        backward(
            lambda dy, y, dx: [
                call(lambda: np.copyto(dx, dx.astype("f2" if y.dtype == "f4" else "f8")))
            ]
        ),
        "Not equal to tolerance",
    ),
    (
        checks.check_sizes,
        forward(lambda x, out: [TANH(x, out), call(lambda: out.max())]),
        "zero-size",
    ),
    (
        checks.check_overwrite,
        forward(lambda x, out: [call(lambda: np.copyto(out, np.nan_to_num(out) + x))]),
        "forward adds",
    ),
    (checks.check_overwrite, forward(lambda x, out: [TANH(x[1:], out[1:])]), "not filled"),
    (
        checks.check_overwrite,
        forward(lambda x, out: [TANH(x, x), call(np.copyto, out, x)]),
        "forward wrote an operand",
    ),
    (
        checks.check_overwrite,
        backward(lambda dy, y, dx: [call(np.square, y, y)]),
        "backward wrote the value",
    ),
    (checks.check_overwrite, AllOrNone(), "differ from the same among all"),
    (
        checks.check_in_place,
        forward(lambda x, out: [call(np.negative, x, out), TANH(x, out)], in_place=("forward",)),
        "forward in place",
    ),
    (
        checks.check_memory,
        forward(lambda x, out: [call(lambda: np.copyto(out, np.tanh(x)))]),
        "bytes more",
    ),
    (checks.check_extremes, forward(overflowing, Sigmoid), "overflow"),
    (checks.check_extremes, forward(lambda x, out: [call(out.fill, np.inf)]), "not finite"),
    (checks.check_backends, scaled(1.00001), "Not equal to tolerance"),
]
"""A check, an op that breaks it, and what the failure says."""


def broken_case(op) -> Case:
    if isinstance(op, Mul):
        return Case("broken", op, lambda n: (normal(n, 4), normal(n, 4) + 1), lambda a, b: a * b)
    return Case("broken", op, lambda n: (normal(n, 4),), np.tanh)


@pytest.mark.parametrize(("check", "op", "says"), BROKEN)
def test_a_check_can_fail(check, op, says):
    errors = AssertionError, GradcheckError, ValueError, FloatingPointError
    with pytest.raises(errors, match=says):
        check(broken_case(op))


def test_every_check_is_shown_to_fail():
    assert {check for check, *_ in BROKEN} == set(checks.CHECKS)
