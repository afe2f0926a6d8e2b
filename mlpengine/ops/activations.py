"""Activations: x of any shape to y of the same shape."""

from dataclasses import dataclass

import numpy as np

from mlpengine.errors import UsageError
from mlpengine.ops._constant import bounded, constant
from mlpengine.ops._elementwise import Unary, masked
from mlpengine.ops._logistic import log1p_exp_of_minus_abs, logistic
from mlpengine.spec import Array, Calls, Slots, Spec, call


class Relu(Unary, name="relu"):
    """Rectifier, y = max(x, 0); NaN stays NaN.

    Shapes: x (...), y (...).
    Backward: dx = dy where x > 0 or is NaN, and 0 elsewhere, so it is 0 at x = 0.
    """

    in_place = ("forward", "backward")

    def work(self, x: Spec) -> dict[str, Spec]:
        return {"active": _mask(x)}

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield from bounded(np.maximum, x, 0.0, out)

    def backward(self, dy: Array, y: Array, *, out: Slots, active: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.not_equal, y, constant(0.0, y), active)
            yield from masked(dy, active, dx)


@dataclass(frozen=True)
class LeakyRelu(Unary, name="leaky_relu"):
    """Leaky rectifier, y = x where x > 0 and alpha * x elsewhere.

    Shapes: x (...), y (...).
    Backward: dx = dy where x > 0 and alpha * dy elsewhere, so it is alpha * dy at x = 0.
    Raises: UsageError unless 0 <= alpha <= 1.
    Source: Maas et al. 2013, section 2.
    """

    alpha: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise UsageError(f"leaky_relu: alpha must lie in 0 to 1 (alpha {self.alpha})")

    def work(self, x: Spec) -> dict[str, Spec]:
        return {"active": _mask(x)}

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.multiply, x, constant(self.alpha, x), out)
        yield call(np.maximum, x, out, out=out)

    def backward(self, dy: Array, x: Array, *, out: Slots, active: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.greater, x, constant(0.0, x), active)
            yield call(np.multiply, active, constant(1 - self.alpha, x), dx)
            yield call(np.add, dx, constant(self.alpha, x), dx)
            yield call(np.multiply, dx, dy, dx)


class Tanh(Unary, name="tanh"):
    """Hyperbolic tangent, y = tanh(x).

    Shapes: x (...), y (...).
    Backward: dx = dy * (1 - y**2).
    """

    in_place = ("forward",)

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.tanh, x, out)

    def backward(self, dy: Array, y: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.square, y, dx)
            yield call(np.subtract, constant(1.0, y), dx, dx)
            yield call(np.multiply, dx, dy, dx)


class Sigmoid(Unary, name="sigmoid"):
    """Logistic function, y = e / (1 + e) with e = exp(x), without overflow for either sign.

    Shapes: x (...), y (...).
    Backward: dx = dy * y * (1 - y).
    """

    in_place = ("forward",)

    def work(self, x: Spec) -> dict[str, Spec]:
        return {"room": x}

    def forward(self, x: Array, *, out: Array, room: Array) -> Calls:
        yield from logistic(x, out, room)

    def backward(self, dy: Array, y: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.subtract, constant(1.0, y), y, dx)
            yield call(np.multiply, dx, y, dx)
            yield call(np.multiply, dx, dy, dx)


class Silu(Unary, name="silu"):
    """Sigmoid-weighted linear unit, y = x * gate with gate = sigmoid(x).

    Shapes: x (...), y (...).
    Backward: dx = dy * (gate + y - y * gate).
    Source: Elfwing et al. 2018, equation 1.
    """

    def work(self, x: Spec) -> dict[str, Spec]:
        return {"gate": x}

    def forward(self, x: Array, *, out: Array, gate: Array) -> Calls:
        yield from logistic(x, gate, out)
        yield call(np.multiply, x, gate, out)

    def backward(self, dy: Array, y: Array, *, out: Slots, gate: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.multiply, y, gate, dx)
            yield call(np.subtract, y, dx, dx)
            yield call(np.add, dx, gate, dx)
            yield call(np.multiply, dx, dy, dx)


class Softplus(Unary, name="softplus"):
    """Smooth rectifier, y = log(1 + exp(x)) = max(x, 0) + log(1 + exp(-abs(x))).

    Shapes: x (...), y (...).
    Backward: dx = dy * exp(x - y), the sigmoid of x.
    """

    def work(self, x: Spec) -> dict[str, Spec]:
        return {"room": x, "more": x}

    def forward(self, x: Array, *, out: Array, room: Array, more: Array) -> Calls:
        yield from log1p_exp_of_minus_abs(x, out, room, more)
        yield from bounded(np.maximum, x, 0.0, room)
        yield call(np.add, out, room, out)

    def backward(self, dy: Array, x: Array, y: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.subtract, x, y, dx)
            yield call(np.exp, dx, dx)
            yield call(np.multiply, dx, dy, dx)


class ExponentialUnit(Unary):
    """Base of `Elu` and `Selu`: y = scale * x where x > 0 and depth * (exp(x) - 1) elsewhere."""

    def work(self, x: Spec) -> dict[str, Spec]:
        return {"room": x, "active": _mask(x)}

    def value(self, x: Array, depth: float, scale: float, out: Array, room: Array) -> Calls:
        """Yield the calls that write y into `out`."""
        yield from bounded(np.minimum, x, 0.0, out)
        yield from _expm1(out, depth, room)
        yield from bounded(np.maximum, x, 0.0, room)
        if scale != 1:
            yield call(np.multiply, room, constant(scale, x), room)
        yield call(np.add, out, room, out)

    def gradient(
        self, dy: Array, y: Array, depth: float, scale: float, dx: Array, active: Array, room: Array
    ) -> Calls:
        """Yield the calls for dx = dy * (scale where y > 0, y + depth elsewhere)."""
        yield from bounded(np.minimum, y, 0.0, dx)
        yield call(np.add, dx, constant(depth, y), dx)
        if scale != depth:
            yield call(np.greater, y, constant(0.0, y), active)
            yield call(np.multiply, active, constant(scale - depth, y), room)
            yield call(np.add, dx, room, dx)
        yield call(np.multiply, dx, dy, dx)


@dataclass(frozen=True)
class Elu(ExponentialUnit, name="elu"):
    """Exponential linear unit, y = x where x > 0 and alpha * (exp(x) - 1) elsewhere.

    Shapes: x (...), y (...).
    Backward: dx = dy where x > 0 and dy * (y + alpha) elsewhere, so it is alpha * dy at x = 0.
    Raises: UsageError unless alpha is positive.
    Source: Clevert et al. 2016, equation 15.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise UsageError(f"elu: alpha must be positive (alpha {self.alpha})")

    def forward(self, x: Array, *, out: Array, room: Array) -> Calls:
        yield from self.value(x, self.alpha, 1.0, out, room)

    def backward(self, dy: Array, y: Array, *, out: Slots, active: Array, room: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            yield from self.gradient(dy, y, self.alpha, 1.0, dx, active, room)


class Selu(ExponentialUnit, name="selu"):
    """Self-normalizing unit, y = scale * x where x > 0 and scale * alpha * (exp(x) - 1) elsewhere.

    Shapes: x (...), y (...).
    Backward: dx = dy * scale where x > 0 and dy * (y + scale * alpha) elsewhere, x = 0 included.
    Source: Klambauer et al. 2017, equation 2 and the constants of section 3 (alpha_01, lambda_01).
    """

    alpha = 1.6732632423543772848170429916717
    scale = 1.0507009873554804934193349852946

    def forward(self, x: Array, *, out: Array, room: Array) -> Calls:
        yield from self.value(x, self.scale * self.alpha, self.scale, out, room)

    def backward(self, dy: Array, y: Array, *, out: Slots, active: Array, room: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            depth = self.scale * self.alpha
            yield from self.gradient(dy, y, depth, self.scale, dx, active, room)


def _mask(x: Spec) -> Spec:
    return Spec(x.shape, np.dtype(np.bool_))


def _expm1(x: Array, depth: float, room: Array) -> Calls:
    """Yield depth * (exp(x) - 1) over `x` itself, where no x is positive.

    In float32 as 2 t / (1 - t) with t = tanh(x / 2), which cancels nowhere: 4 ns an element, where
    np.expm1, which NumPy does not vectorize, takes 14 ns; in float64 both take that.
    """
    if x.dtype == np.float32:
        yield call(np.multiply, x, constant(0.5, x), x)
        yield call(np.tanh, x, x)
        yield call(np.subtract, constant(1.0, x), x, room)
        yield call(np.divide, x, room, x)
        depth *= 2
    else:
        yield call(np.expm1, x, x)
    if depth != 1:
        yield call(np.multiply, x, constant(depth, x), x)
