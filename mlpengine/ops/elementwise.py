"""Functions of one operand, element by element."""

from dataclasses import dataclass
from math import log

import numpy as np

from mlpengine.errors import UsageError
from mlpengine.ops._constant import constant
from mlpengine.ops._elementwise import Unary, masked
from mlpengine.spec import Array, Calls, Slots, Spec, call


class Exp(Unary, name="exp"):
    """Exponential, y = e**x.

    Shapes: x (...), y (...).
    Backward: dx = dy * y.
    """

    in_place = ("forward", "backward")

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.exp, x, out)

    def backward(self, dy: Array, y: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.multiply, dy, y, dx)


class Log(Unary, name="log"):
    """Natural logarithm, y = log(x): -inf at 0, NaN below.

    Shapes: x (...), y (...).
    Backward: dx = dy / x, infinite at 0.
    """

    in_place = ("forward", "backward")

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.log, x, out)

    def backward(self, dy: Array, x: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.divide, dy, x, dx)


class Log2(Unary, name="log2"):
    """Logarithm to base 2, y = log2(x): -inf at 0, NaN below.

    Shapes: x (...), y (...).
    Backward: dx = dy / (x log(2)), infinite at 0.
    """

    in_place = ("forward", "backward")

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.log2, x, out)

    def backward(self, dy: Array, x: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.divide, dy, x, dx)
            yield call(np.multiply, dx, constant(1 / log(2), x), dx)


@dataclass(frozen=True)
class LogEps(Unary, name="log_eps"):
    """Logarithm of a shifted operand, y = log(x + eps).

    Shapes: x (...), y (...).
    Backward: dx = dy / (x + eps).
    Raises: UsageError unless eps is positive.
    """

    eps: float

    in_place = ("forward",)

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise UsageError(f"log_eps: eps must be positive (eps {self.eps})")

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.add, x, constant(self.eps, x), out)
        yield call(np.log, out, out)

    def backward(self, dy: Array, x: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.add, x, constant(self.eps, x), dx)
            yield call(np.divide, dy, dx, dx)


class Sin(Unary, name="sin"):
    """Sine of radians, y = sin(x).

    Shapes: x (...), y (...).
    Backward: dx = dy * cos(x).
    """

    in_place = ("forward",)

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.sin, x, out)

    def backward(self, dy: Array, x: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.cos, x, dx)
            yield call(np.multiply, dx, dy, dx)


class Cos(Unary, name="cos"):
    """Cosine of radians, y = cos(x).

    Shapes: x (...), y (...).
    Backward: dx = -dy * sin(x).
    """

    in_place = ("forward",)

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.cos, x, out)

    def backward(self, dy: Array, x: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.sin, x, dx)
            yield call(np.negative, dx, dx)
            yield call(np.multiply, dx, dy, dx)


class Sqrt(Unary, name="sqrt"):
    """Square root, y = sqrt(x): NaN below 0.

    Shapes: x (...), y (...).
    Backward: dx = dy / (2 y), infinite at 0 (and NaN there where dy is 0).
    """

    in_place = ("forward", "backward")

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.sqrt, x, out)

    def backward(self, dy: Array, y: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.divide, dy, y, dx)
            yield call(np.multiply, dx, constant(0.5, y), dx)


class Rsqrt(Unary, name="rsqrt"):
    """Reciprocal square root, y = 1 / sqrt(x): infinite at 0, NaN below.

    Shapes: x (...), y (...).
    Backward: dx = -dy * y**3 / 2.
    """

    in_place = ("forward", "backward")

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.sqrt, x, out)
        yield call(np.divide, constant(1.0, x), out, out)

    def backward(self, dy: Array, y: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:  # factor by factor, so that dx may be dy
            yield call(np.multiply, dy, constant(-0.5, y), dx)
            for _ in range(3):
                yield call(np.multiply, dx, y, dx)


class Abs(Unary, name="abs"):
    """Magnitude, y = abs(x).

    Shapes: x (...), y (...).
    Backward: dx = dy * sign(x), so it is 0 at x = 0.
    """

    in_place = ("forward",)

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.abs, x, out)

    def backward(self, dy: Array, x: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.sign, x, dx)
            yield call(np.multiply, dx, dy, dx)


@dataclass(frozen=True)
class Clamp(Unary, name="clamp"):
    """Bounds, y = min(max(x, lo), hi); NaN stays NaN.

    Shapes: x (...), y (...).
    Backward: dx = dy where lo <= x <= hi, that is where y is x, and 0 elsewhere.
    Raises: UsageError unless lo <= hi.
    """

    lo: float
    hi: float

    in_place = ("forward", "backward")

    def __post_init__(self) -> None:
        if not self.lo <= self.hi:
            raise UsageError(f"clamp: lo must not exceed hi (lo {self.lo}, hi {self.hi})")

    def work(self, x: Spec) -> dict[str, Spec]:
        return {"inside": Spec(x.shape, np.dtype(np.bool_))}

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(x.clip, constant(self.lo, x), constant(self.hi, x), out)

    def backward(self, dy: Array, x: Array, y: Array, *, out: Slots, inside: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.equal, x, y, inside)
            yield from masked(dy, inside, dx)
