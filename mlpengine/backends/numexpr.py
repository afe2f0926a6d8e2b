"""Rules that fuse several element-wise passes into one NumExpr kernel.

Constants go in as operands of the arrays' dtype: a Python float would lift a float32 expression to
float64.  Kernels are compiled while a program is bound; a replay only calls them.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numexpr
import numpy as np

from mlpengine.backends import Backend
from mlpengine.ops._op import Direction, GradOp
from mlpengine.spec import Array, Calls, Slots, call

ROOT_TWO_OVER_PI = 0.7978845608028654
"""sqrt(2 / pi), of the tanh approximation of gelu."""


@cache
def _kernel(expression: str, names: tuple[str, ...], dtype: np.dtype[Any]) -> Callable[..., Any]:
    kind = float if dtype == np.float32 else np.double  # what NumExpr calls the two
    kernel: Callable[..., Any] = numexpr.NumExpr(expression, [(name, kind) for name in names])
    return kernel


def fused(expression: str, out: Array, **operands: Array | float) -> Calls:
    """Yield the one call that evaluates `expression` over `operands` into `out`."""
    if not out.size:
        return
    kernel = _kernel(expression, tuple(operands), out.dtype)
    arrays = [np.asarray(value, out.dtype) for value in operands.values()]
    yield call(kernel, *arrays, out=out, order="K", casting="same_kind", ex_uses_vml=False)


def tanh_backward(_op: GradOp, dy: Array, y: Array, *, out: Slots) -> Calls:
    """One pass where NumPy makes three."""
    (dx,) = out
    if dx is not None:
        yield from fused("dy * (one - y * y)", dx, dy=dy, y=y, one=1.0)


def sigmoid_forward(_op: GradOp, x: Array, *, out: Array, **_work: Array) -> Calls:
    """One pass where NumPy makes four."""
    yield from fused("one / (one + exp(-x))", out, x=x, one=1.0)


def sigmoid_backward(_op: GradOp, dy: Array, y: Array, *, out: Slots) -> Calls:
    """One pass where NumPy makes three."""
    (dx,) = out
    if dx is not None:
        yield from fused("dy * y * (one - y)", dx, dy=dy, y=y, one=1.0)


def silu_backward(_op: GradOp, dy: Array, y: Array, *, out: Slots, gate: Array) -> Calls:
    """One pass where NumPy makes four."""
    (dx,) = out
    if dx is not None:
        yield from fused("dy * (y - y * gate + gate)", dx, dy=dy, y=y, gate=gate)


def relu_backward(_op: GradOp, dy: Array, y: Array, *, out: Slots, **_work: Array) -> Calls:
    """One pass where NumPy makes two."""
    (dx,) = out
    if dx is not None:
        yield from fused("where(y != zero, dy, zero)", dx, dy=dy, y=y, zero=0.0)


RULES: Mapping[tuple[str, Direction], Callable[..., Calls]] = {
    ("tanh", "backward"): tanh_backward,
    ("sigmoid", "forward"): sigmoid_forward,
    ("sigmoid", "backward"): sigmoid_backward,
    ("silu", "backward"): silu_backward,
    ("relu", "backward"): relu_backward,
}

NUMEXPR = Backend("numexpr", RULES)
