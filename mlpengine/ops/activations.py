"""Activations: x of any shape to y of the same shape."""

from dataclasses import dataclass

import numpy as np

from mlpengine.errors import UsageError
from mlpengine.ops._check import need_floats
from mlpengine.ops._constant import bounded, constant
from mlpengine.ops._logistic import logistic
from mlpengine.ops._op import GradOp
from mlpengine.spec import Array, Calls, Slots, Spec, call


class Activation(GradOp):
    """Base of the activations: one floating operand, one value of the same spec."""

    def infer(self, x: Spec) -> Spec:
        need_floats(self.name, x=x)
        return x


class Relu(Activation, name="relu"):
    """Rectifier, y = max(x, 0); NaN stays NaN.

    Shapes: x (...), y (...).
    Backward: dx = dy where y > 0 and 0 elsewhere, so it is 0 at x = 0.
    """

    in_place = ("forward", "backward")

    def work(self, x: Spec) -> dict[str, Spec]:
        return {"active": _mask(x)}

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield from bounded(np.maximum, x, 0.0, out)

    def backward(self, dy: Array, y: Array, *, out: Slots, active: Array) -> Calls:
        (dx,) = out
        if dx is not None:  # a bool product: 3 us for 8,192 elements, np.copyto(where=) 20 us
            yield call(np.greater, y, constant(0.0, y), active)
            yield call(np.multiply, dy, active, dx)


@dataclass(frozen=True)
class LeakyRelu(Activation, name="leaky_relu"):
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


class Tanh(Activation, name="tanh"):
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


class Sigmoid(Activation, name="sigmoid"):
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


class Silu(Activation, name="silu"):
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


def _mask(x: Spec) -> Spec:
    return Spec(x.shape, np.dtype(np.bool_))
