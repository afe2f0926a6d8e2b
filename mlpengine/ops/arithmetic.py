"""Element-wise arithmetic and functions.

Shapes: y has the shape of x; a and b broadcast to y as in NumPy.
Raises: ShapeError if a and b do not broadcast.
"""

from dataclasses import dataclass

from mlpengine import formula as f
from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Positive
from mlpengine.formula import Expr
from mlpengine.ops.elementwise_op import Elementwise


class Add(Elementwise, name="add"):
    """Sum, y = a + b.

    Backward: da = dy, db = dy.
    """

    def formula(self, a: Expr, b: Expr) -> Expr:
        return a + b


class Sub(Elementwise, name="sub"):
    """Difference, y = a - b.

    Backward: da = dy, db = -dy.
    """

    def formula(self, a: Expr, b: Expr) -> Expr:
        return a - b


class Mul(Elementwise, name="mul"):
    """Product, y = a * b.

    Backward: da = dy * b, db = dy * a.
    """

    def formula(self, a: Expr, b: Expr) -> Expr:
        return a * b


class Div(Elementwise, name="div"):
    """Quotient, y = a / b.

    Backward: da = dy / b, db = -dy * y / b.
    """

    def formula(self, a: Expr, b: Expr) -> Expr:
        return a / b


class Maximum(Elementwise, name="maximum"):
    """Larger of two numbers, y = max(a, b), or NaN if a or b is NaN.

    Backward: dy for the larger operand and 0 for the other; dy / 2 for both if they are equal; dy
    for both if a or b is NaN.
    """

    def formula(self, a: Expr, b: Expr) -> Expr:
        return f.maximum(a, b)


class Minimum(Elementwise, name="minimum"):
    """Smaller of two numbers, y = min(a, b), or NaN if a or b is NaN.

    Backward: dy for the smaller operand and 0 for the other; dy / 2 for both if they are equal; dy
    for both if a or b is NaN.
    """

    def formula(self, a: Expr, b: Expr) -> Expr:
        return f.minimum(a, b)


@dataclass(frozen=True)
class ScalarMul(Elementwise, name="scalar_mul"):
    """Multiple by a constant, y = scalar * x.

    Backward: dx = dy * scalar.
    """

    scalar: float

    def formula(self, x: Expr) -> Expr:
        return x * self.scalar


@dataclass(frozen=True)
class ScalarAdd(Elementwise, name="scalar_add"):
    """Sum with a constant, y = scalar + x.

    Backward: dx = dy.
    """

    scalar: float

    def formula(self, x: Expr) -> Expr:
        return x + self.scalar


class Neg(Elementwise, name="neg"):
    """Negative, y = -x.

    Backward: dx = -dy.
    """

    def formula(self, x: Expr) -> Expr:
        return -x


@dataclass(frozen=True)
class Pow(Elementwise, name="pow"):
    """Power with a constant exponent n, y = x**n.

    Backward: dx = dy * n * x**(n - 1); for n = 0, dx = 0 even at x = 0.
    At x = 0 the gradient is infinite if n < 1 and n is not 0.
    """

    exponent: float

    def formula(self, x: Expr) -> Expr:
        return x**self.exponent

    def gradient(self, dy: Expr, x: Expr) -> Expr:
        n = self.exponent
        return f.constant(0) if n == 0 else x ** (n - 1) * dy * n


class Exp(Elementwise, name="exp"):
    """Exponential, y = e**x.

    Backward: dx = dy * y.
    """

    def formula(self, x: Expr) -> Expr:
        return f.exp(x)


class Log(Elementwise, name="log"):
    """Natural logarithm, y = log(x): -inf at 0, NaN below.

    Backward: dx = dy / x, infinite at 0.
    """

    def formula(self, x: Expr) -> Expr:
        return f.log(x)


class Log2(Elementwise, name="log2"):
    """Logarithm to base 2, y = log2(x): -inf at 0, NaN below.

    Backward: dx = dy / (x log(2)), infinite at 0.
    """

    def formula(self, x: Expr) -> Expr:
        return f.log2(x)


@dataclass(frozen=True)
class LogEps(Elementwise, name="log_eps"):
    """Logarithm of a shifted operand, y = log(x + eps).

    Backward: dx = dy / (x + eps).
    Raises: UsageError unless eps is positive.
    """

    eps: Positive

    def formula(self, x: Expr) -> Expr:
        return f.log(x + self.eps)


class Sin(Elementwise, name="sin"):
    """Sine of radians, y = sin(x).

    Backward: dx = dy * cos(x).
    """

    def formula(self, x: Expr) -> Expr:
        return f.sin(x)


class Cos(Elementwise, name="cos"):
    """Cosine of radians, y = cos(x).

    Backward: dx = -dy * sin(x).
    """

    def formula(self, x: Expr) -> Expr:
        return f.cos(x)


class Sqrt(Elementwise, name="sqrt"):
    """Square root, y = sqrt(x): NaN below 0.

    Backward: dx = dy / (2 y); at x = 0, dx is infinite, or NaN if dy is 0.
    """

    def formula(self, x: Expr) -> Expr:
        return f.sqrt(x)


class Rsqrt(Elementwise, name="rsqrt"):
    """Reciprocal square root, y = 1 / sqrt(x): infinite at 0, NaN below.

    Backward: dx = -dy * y**3 / 2.
    """

    def formula(self, x: Expr) -> Expr:
        return 1 / f.sqrt(x)

    def gradient(self, dy: Expr, x: Expr) -> Expr:
        y = self.formula(x)
        return dy * -0.5 * y * y * y


class Abs(Elementwise, name="abs"):
    """Absolute value, y = abs(x).

    Backward: dx = dy * sign(x), and 0 at x = 0.
    """

    def formula(self, x: Expr) -> Expr:
        return abs(x)


@dataclass(frozen=True)
class Clamp(Elementwise, name="clamp"):
    """Clamp to bounds, y = min(max(x, lo), hi); NaN stays NaN.

    Backward: dx = dy where lo <= x <= hi, and 0 elsewhere.
    Raises: UsageError unless lo <= hi.
    """

    lo: float
    hi: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lo <= self.hi:
            raise UsageError(f"clamp: lo must not exceed hi (lo {self.lo}, hi {self.hi})")

    def formula(self, x: Expr) -> Expr:
        return f.clip(x, self.lo, self.hi)
