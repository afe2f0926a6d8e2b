"""The Gaussian error linear unit, exact or by its tanh approximation.

NumPy has no erf, so the normal distribution function Phi is evaluated here, by calls that NumPy
vectorizes.  For z >= 0 it is Phi(-z) = exp(-z**2 / 2) P(u) with u = (z - 4) / (z + 4), where P is
the polynomial of least maximal error of the product, fitted for 0 <= z <= 9 by Remez' algorithm in
40 digits; beyond, the exponential rules.  The fits are off by 2e-17 (float64) and 6e-10 (float32).
The substitution is that of Shepherd and Laframboise 1981, Mathematics of Computation 36, p. 249.
"""

from dataclasses import dataclass
from math import pi, sqrt
from typing import Literal

import numpy as np

from mlpengine.errors import UsageError
from mlpengine.ops._constant import bounded, constant
from mlpengine.ops._elementwise import Unary
from mlpengine.ops._logistic import logistic
from mlpengine.spec import Array, Calls, Slots, Spec, call

CENTER = 4.0

SINGLE = (
    0.000517948884, -0.0005045072227, -0.01008151466, 0.02960110124, -0.07228264662,
    0.1242295895, -0.1704180492, 0.09440955432,
)  # fmt: skip
DOUBLE = (
    -2.937582190108851e-07, -2.1702928440787017e-06, -4.53476373343744e-06,
    6.719493309597361e-06, 3.2466482329984035e-05, -4.181450784089393e-05,
    -0.00018477121180645199, 0.0006398940389323332, 0.0005078998182259286,
    -0.0084920233526665, 0.030864814028916717, -0.0717074065740202, 0.12437925535760685,
    -0.17039772154963587, 0.09441064130191382,
)  # fmt: skip
"""Coefficients of P, highest power first."""

UNDERFLOW = {4: 14.5, 8: 39.0}
"""By bytes of the dtype, where exp(-z**2 / 2) has become 0: nothing changes beyond."""

SATURATION = {4: (-11.0, 9.9), 8: (-22.0, 21.0)}
"""By bytes of the dtype, where the gate of the approximation has become 0, and 1."""

LINEAR = 2 * sqrt(2 / pi)
CUBIC = 0.044715 * LINEAR


@dataclass(frozen=True)
class Gelu(Unary, name="gelu"):
    """Gaussian error linear unit, y = x * Phi(x), Phi the normal distribution function.

    With ``approximate="tanh"`` Phi is (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3))) / 2.

    Shapes: x (...), y (...).
    Backward: dx = dy * (Phi(x) + x * Phi'(x)).
    Raises: UsageError for another approximation.
    Source: Hendrycks and Gimpel 2016, section 2.
    """

    approximate: Literal["none", "tanh"] = "none"

    def __post_init__(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise UsageError(f"gelu: approximate must be none or tanh (got {self.approximate!r})")

    def work(self, x: Spec) -> dict[str, Spec]:
        return {"slope": x, "room": x}

    def forward(self, x: Array, *, out: Array, slope: Array, room: Array) -> Calls:
        rule = _exact if self.approximate == "none" else _by_tanh
        yield from rule(x, out, slope, room)

    def backward(self, dy: Array, *, out: Slots, slope: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.multiply, dy, slope, dx)


def _exact(x: Array, out: Array, slope: Array, room: Array) -> Calls:
    """Yield y = max(x, 0) - z Phi(-z), z = abs(x), into `out`, and its derivative into `slope`.

    With m = Phi(-z) - z Phi'(z), which is at most 1/2, the derivative is m below 0 and 1 - m
    above: 1/2 plus 1/2 - m with the sign of x.
    """
    z, half = slope, constant(0.5, x)
    yield call(np.abs, x, z)
    yield from bounded(np.minimum, z, UNDERFLOW[x.itemsize], z)
    yield from _polynomial(z, out, room)
    yield call(np.square, z, room)
    yield call(np.multiply, room, constant(-0.5, x), room)
    yield call(np.exp, room, room)
    yield call(np.multiply, out, room, out)  # Phi(-z)
    yield call(np.multiply, room, z, room)
    yield call(np.multiply, room, constant(1 / sqrt(2 * pi), x), room)
    yield call(np.subtract, out, room, room)  # m
    yield call(np.multiply, out, z, out)
    yield from bounded(np.maximum, x, 0.0, slope)
    yield call(np.subtract, slope, out, out)
    yield call(np.subtract, half, room, room)
    yield call(np.copysign, room, x, room)
    yield call(np.add, room, half, slope)


def _polynomial(z: Array, out: Array, u: Array) -> Calls:
    """Yield P((z - 4) / (z + 4)) into `out`, by Horner's rule."""
    yield call(np.add, z, constant(CENTER, z), u)
    yield call(np.divide, constant(2 * CENTER, z), u, u)
    yield call(np.subtract, constant(1.0, z), u, u)
    first, second, *others = SINGLE if z.dtype == np.float32 else DOUBLE
    yield call(np.multiply, u, constant(first, z), out)
    yield call(np.add, out, constant(second, z), out)
    for coefficient in others:
        yield call(np.multiply, out, u, out)
        yield call(np.add, out, constant(coefficient, z), out)


def _by_tanh(x: Array, out: Array, slope: Array, room: Array) -> Calls:
    """Yield y = x * gate, gate = sigmoid(v), v = LINEAR x + CUBIC x**3, and its derivative.

    That gate is (1 + tanh(v / 2)) / 2; the derivative is gate + x gate (1 - gate) v'.
    """
    low, high = SATURATION[x.itemsize]
    gate, one = room, constant(1.0, x)
    yield call(x.clip, constant(low, x), constant(high, x), gate)
    yield call(np.square, gate, slope)
    yield call(np.multiply, slope, constant(CUBIC, x), slope)
    yield call(np.add, slope, constant(LINEAR, x), out)
    yield call(np.multiply, out, gate, gate)  # v
    yield call(np.multiply, slope, constant(3.0, x), slope)
    yield call(np.add, slope, constant(LINEAR, x), slope)  # v'
    yield from logistic(gate, gate, out)
    yield call(np.multiply, x, gate, out)
    yield call(np.multiply, slope, out, slope)  # y v'
    yield call(np.subtract, one, gate, gate)
    yield call(np.multiply, slope, gate, slope)
    yield call(np.subtract, slope, gate, slope)
    yield call(np.add, slope, one, slope)
