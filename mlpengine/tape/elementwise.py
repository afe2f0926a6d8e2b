"""Arithmetic, element-wise functions and activations, by the names of the registry.

Each applies one op to nodes or tensors; the op's docstring tells the edges.
"""

from typing import Any, Literal

from mlpengine import ops
from mlpengine.tape.operand import X, apply, unary


def add(a: Any, b: Any) -> Any:
    """Return a + b, broadcast."""
    return apply(ops.Add(), a, b)


def sub(a: Any, b: Any) -> Any:
    """Return a - b, broadcast."""
    return apply(ops.Sub(), a, b)


def mul(a: Any, b: Any) -> Any:
    """Return a * b, broadcast."""
    return apply(ops.Mul(), a, b)


def div(a: Any, b: Any) -> Any:
    """Return a / b, broadcast."""
    return apply(ops.Div(), a, b)


def neg(x: X) -> X:
    """Return -x."""
    return unary(ops.Neg(), x)


def scalar_mul(x: X, scalar: float) -> X:
    """Return scalar * x, with a scalar fixed now."""
    return unary(ops.ScalarMul(scalar), x)


def scalar_add(x: X, scalar: float) -> X:
    """Return scalar + x, with a scalar fixed now."""
    return unary(ops.ScalarAdd(scalar), x)


def pow(x: X, exponent: float) -> X:
    """Return x ** exponent, with an exponent fixed now."""
    return unary(ops.Pow(exponent), x)


def exp(x: X) -> X:
    """Return e ** x."""
    return unary(ops.Exp(), x)


def log(x: X) -> X:
    """Return the natural logarithm."""
    return unary(ops.Log(), x)


def log2(x: X) -> X:
    """Return the logarithm to base 2."""
    return unary(ops.Log2(), x)


def log_eps(x: X, eps: float) -> X:
    """Return log(x + eps)."""
    return unary(ops.LogEps(eps), x)


def sin(x: X) -> X:
    """Return the sine of radians."""
    return unary(ops.Sin(), x)


def cos(x: X) -> X:
    """Return the cosine of radians."""
    return unary(ops.Cos(), x)


def sqrt(x: X) -> X:
    """Return the square root."""
    return unary(ops.Sqrt(), x)


def rsqrt(x: X) -> X:
    """Return 1 / sqrt(x)."""
    return unary(ops.Rsqrt(), x)


def abs(x: X) -> X:
    """Return the magnitude; its gradient is 0 at 0."""
    return unary(ops.Abs(), x)


def clamp(x: X, lo: float, hi: float) -> X:
    """Return x bounded to lo and hi."""
    return unary(ops.Clamp(lo, hi), x)


def where(cond: Any, a: Any, b: Any) -> Any:
    """Return a where cond holds and b elsewhere, broadcast; cond is bool or a mask of 0 and 1."""
    return apply(ops.Where(), cond, a, b)


def maximum(a: Any, b: Any) -> Any:
    """Return the larger of a and b, broadcast; a tie sends half the gradient to each."""
    return apply(ops.Maximum(), a, b)


def minimum(a: Any, b: Any) -> Any:
    """Return the smaller of a and b, broadcast; a tie sends half the gradient to each."""
    return apply(ops.Minimum(), a, b)


def relu(x: X) -> X:
    """Return max(x, 0)."""
    return unary(ops.Relu(), x)


def leaky_relu(x: X, alpha: float = 0.01) -> X:
    """Return x where it is positive and alpha * x elsewhere."""
    return unary(ops.LeakyRelu(alpha), x)


def elu(x: X, alpha: float = 1.0) -> X:
    """Return x where it is positive and alpha * (e**x - 1) elsewhere."""
    return unary(ops.Elu(alpha), x)


def selu(x: X) -> X:
    """Return the self-normalizing variant of elu."""
    return unary(ops.Selu(), x)


def gelu(x: X, approximate: Literal["none", "tanh"] = "none") -> X:
    """Return x times the normal distribution function of x."""
    return unary(ops.Gelu(approximate), x)


def silu(x: X) -> X:
    """Return x * sigmoid(x)."""
    return unary(ops.Silu(), x)


def softplus(x: X) -> X:
    """Return log(1 + e**x)."""
    return unary(ops.Softplus(), x)


def sigmoid(x: X) -> X:
    """Return 1 / (1 + e**-x)."""
    return unary(ops.Sigmoid(), x)


def tanh(x: X) -> X:
    """Return the hyperbolic tangent."""
    return unary(ops.Tanh(), x)


def softmax(x: X, axis: int = -1) -> X:
    """Return e**x divided by its sum along an axis."""
    return unary(ops.Softmax(axis), x)


def log_softmax(x: X, axis: int = -1) -> X:
    """Return the logarithm of softmax along an axis."""
    return unary(ops.LogSoftmax(axis), x)
