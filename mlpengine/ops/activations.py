"""Activation functions.  Shapes: x (...), y (...)."""

from dataclasses import dataclass
from math import inf, pi, sqrt
from typing import Literal

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Positive, Share
from mlpengine.core.spec import Array, Calls, call
from mlpengine.formula import (
    Expr,
    clip,
    exp,
    expm1,
    maximum,
    minimum,
    normal_cdf,
    not_equal,
    sigmoid,
    softplus,
    tanh,
    where,
)
from mlpengine.formula.numpy_functions import TAIL_END, bounded, constant_like, normal_tail
from mlpengine.ops.elementwise_op import TUNED, Activation, Tuned


class Relu(Activation, name="relu"):
    """Rectifier, y = max(x, 0); NaN stays NaN.

    Backward: dx = dy where x > 0 or x is NaN, and 0 where x <= 0.
    """

    range = (0.0, inf)

    def formula(self, x: Expr) -> Expr:
        return maximum(x, 0)

    def gradient(self, dy: Expr, x: Expr) -> Expr:
        return where(not_equal(self.formula(x), 0), dy, 0)


@dataclass(frozen=True)
class LeakyRelu(Activation, name="leaky_relu"):
    """Leaky rectifier, y = x where x > 0 and alpha * x elsewhere.

    Backward: dx = dy where x > 0, and alpha * dy elsewhere.
    Raises: UsageError unless 0 <= alpha <= 1.
    Source: Maas et al. 2013, section 2.
    """

    alpha: Share = 0.01

    def formula(self, x: Expr) -> Expr:
        return maximum(x, self.alpha * x if self.alpha else 0)

    def gradient(self, dy: Expr, x: Expr) -> Expr:
        return where(x > 0, 1, self.alpha) * dy


class Tanh(Activation, name="tanh"):
    """Hyperbolic tangent, y = tanh(x).

    Backward: dx = dy * (1 - y**2).
    """

    initializer = "glorot_uniform"
    range = (-1.0, 1.0)

    def formula(self, x: Expr) -> Expr:
        return tanh(x)


class Sigmoid(Activation, name="sigmoid"):
    """Logistic function, y = e / (1 + e) with e = exp(x); nothing overflows for large abs(x).

    Backward: dx = dy * y * (1 - y).
    """

    initializer = "glorot_uniform"
    range = (0.0, 1.0)

    def formula(self, x: Expr) -> Expr:
        return sigmoid(x)


class Silu(Activation, name="silu"):
    """Sigmoid-weighted linear unit, y = x * gate with gate = sigmoid(x).

    Backward: dx = dy * (y - y * gate + gate); this order of the terms avoids cancellation.
    Source: Elfwing et al. 2018, equation 1.
    """

    def formula(self, x: Expr) -> Expr:
        return x * sigmoid(x)

    def gradient(self, dy: Expr, x: Expr) -> Expr:
        y, gate = self.formula(x), sigmoid(x)
        return (y - y * gate + gate) * dy


class Softplus(Activation, name="softplus"):
    """Smooth rectifier, y = log(1 + exp(x)) = max(x, 0) + log(1 + exp(-abs(x))).

    Backward: dx = dy * exp(x - y), which equals dy * sigmoid(x); NaN if x is infinite.
    """

    range = (0.0, inf)

    def formula(self, x: Expr) -> Expr:
        return softplus(x)

    def gradient(self, dy: Expr, x: Expr) -> Expr:
        return exp(x - self.formula(x)) * dy


def _exponential_unit(x: Expr, scale: float, depth: float) -> Expr:
    return expm1(minimum(x, 0)) * depth + maximum(x, 0) * scale  # this order saves a work buffer


def _exponential_slope(y: Expr, scale: float, depth: float) -> Expr:
    return minimum(y, 0) + where(y > 0, scale, depth)


@dataclass(frozen=True)
class Elu(Activation, name="elu"):
    """Exponential linear unit, y = x where x > 0 and alpha * (exp(x) - 1) elsewhere.

    Backward: dx = dy where x > 0, and dy * (y + alpha) elsewhere.
    Raises: UsageError unless alpha is positive.
    Source: Clevert et al. 2016, equation 15.
    """

    alpha: Positive = 1.0

    def formula(self, x: Expr) -> Expr:
        return _exponential_unit(x, 1.0, self.alpha)

    def gradient(self, dy: Expr, x: Expr) -> Expr:
        return _exponential_slope(self.formula(x), 1.0, self.alpha) * dy


class Selu(Activation, name="selu"):
    """Self-normalizing unit, y = scale * x where x > 0 and scale * alpha * (exp(x) - 1) elsewhere.

    Backward: dx = dy * scale where x > 0, and dy * (y + scale * alpha) elsewhere.
    Source: Klambauer et al. 2017, equation 2 and the constants of section 3 (alpha_01, lambda_01).
    """

    initializer = "lecun_normal"
    alpha = 1.6732632423543772848170429916717
    scale = 1.0507009873554804934193349852946

    def formula(self, x: Expr) -> Expr:
        return _exponential_unit(x, self.scale, self.scale * self.alpha)

    def gradient(self, dy: Expr, x: Expr) -> Expr:
        return _exponential_slope(self.formula(x), self.scale, self.scale * self.alpha) * dy


NORMAL_TAIL = 40.0
"""For z of this size and more, Phi(-z) and its derivative are 0 in float32 and float64."""


@dataclass(frozen=True)
class Gelu(Activation, name="gelu"):
    """Gaussian error linear unit, y = x * Phi(x), with the normal distribution function Phi.

    With ``approximate="tanh"``, Phi(x) is replaced by
    (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3))) / 2.

    Backward: dx = dy * (Phi(x) + x * Phi'(x)).
    Raises: UsageError for another approximation.
    Source: Hendrycks and Gimpel 2016, section 2.
    """

    approximate: Literal["none", "tanh"] = "none"

    def __post_init__(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise UsageError(f"gelu: approximate must be none or tanh (got {self.approximate!r})")

    def formula(self, x: Expr) -> Expr:
        if self.approximate == "none":
            return maximum(x, -NORMAL_TAIL) * normal_cdf(x)
        return x * self.gate(x)[0]

    def gradient(self, dy: Expr, x: Expr) -> Expr:
        if self.approximate == "none":
            near = clip(x, -NORMAL_TAIL, NORMAL_TAIL)
            slope = normal_cdf(x) + near * exp(near * near * -0.5) * (1 / sqrt(2 * pi))
            return slope * dy
        gate, inner = self.gate(x)
        return (self.formula(x) * (1 - gate) * inner + gate) * dy

    def gate(self, x: Expr) -> tuple[Expr, Expr]:
        """Return an approximation sigmoid(v) of Phi(x), and the derivative dv/dx."""
        near = clip(x, -22, 21)  # beyond, sigmoid(v) is 0 or 1 in float32 and float64
        square = near * near * (0.044715 * 2 * sqrt(2 / pi))
        linear = 2 * sqrt(2 / pi)
        return sigmoid((square + linear) * near), square * 3 + linear


class Mish(Activation, name="mish"):
    """Self-regularized smooth unit, y = x * tanh(softplus(x)).

    With e = exp(x) and n = e * (e + 2), tanh(softplus(x)) = n / (n + 2), which is 1 for x >= 20.
    Backward: dx = dy * (n / (n + 2) + x * 4 * e * (e + 1) / (n + 2) ** 2).
    Source: Misra 2019, equation 1.
    """

    def formula(self, x: Expr) -> Expr:
        return x * _tanh_softplus(exp(minimum(x, 20)))

    def gradient(self, dy: Expr, x: Expr) -> Expr:
        bounded_x = minimum(x, 20)
        e = exp(bounded_x)
        below = e * (e + 2) + 2
        slope = (e / below) * ((e + 1) / below) * 4
        return (_tanh_softplus(e) + bounded_x * slope) * dy


def _tanh_softplus(e: Expr) -> Expr:
    """Return tanh(log(1 + e))."""
    n = e * (e + 2)
    return n / (n + 2)


class Hardswish(Activation, name="hardswish"):
    """Piecewise quadratic unit, y = x * min(max(x + 3, 0), 6) / 6.

    Backward: dx = dy * (x / 3 + 1 / 2) where -3 < x < 3, 0 where x <= -3, and dy where x >= 3.
    Source: Howard et al. 2019, section 5.2.
    """

    def formula(self, x: Expr) -> Expr:
        return x * clip(x + 3, 0, 6) * (1 / 6)

    def gradient(self, dy: Expr, x: Expr) -> Expr:
        return where(x <= -3, 0, where(x < 3, x * (1 / 3) + 0.5, 1)) * dy


class Softsign(Activation, name="softsign"):
    """Rational sigmoid, y = x / (1 + abs(x)).

    Backward: dx = dy / (1 + abs(x))**2.
    Source: Glorot and Bengio 2010, section 2.
    """

    initializer = "glorot_uniform"
    range = (-1.0, 1.0)

    def formula(self, x: Expr) -> Expr:
        return x / (abs(x) + 1)

    def gradient(self, dy: Expr, x: Expr) -> Expr:
        size = abs(x) + 1
        return dy / size / size


def _gelu(x: Array, y: Array, slope: Array, workspace: Array) -> Calls:
    """Yield the calls that write gelu(x) into `y` and its derivative into `slope`.

    With z = abs(x), y = max(x, 0) - z Phi(-z).  Let m = Phi(-z) - z Phi'(z), at most 1/2.  The
    derivative is m for x < 0 and 1 - m for x >= 0, hence 1/2 + copysign(1/2 - m, x).
    """
    z, half = slope, constant_like(0.5, x)
    yield call(np.abs, x, z)
    yield from bounded(np.minimum, z, TAIL_END[x.itemsize], z)
    yield from normal_tail(z, y, workspace)
    yield call(np.multiply, workspace, z, workspace)
    yield call(np.multiply, workspace, constant_like(1 / sqrt(2 * pi), x), workspace)
    yield call(np.subtract, y, workspace, workspace)  # m
    yield call(np.multiply, y, z, y)
    yield from bounded(np.maximum, x, 0.0, slope)
    yield call(np.subtract, slope, y, y)
    yield call(np.subtract, half, workspace, workspace)
    yield call(np.copysign, workspace, x, workspace)
    yield call(np.add, workspace, half, slope)


# These calls are faster than the calls derived from `Gelu.formula`.
TUNED["gelu", "none"] = Tuned(_gelu, floats=1)
