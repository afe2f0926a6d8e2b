"""The operators and methods of nodes and eager tensors."""

from types import MethodType
from typing import Any

import numpy as np

from mlpengine import ops
from mlpengine.core.errors import TapeError
from mlpengine.tape.methods import method
from mlpengine.tape.operand import Operand


class Expression(Operand):
    """Python operators and NumPy-like methods: ``((x @ w + b).tanh() ** 2).mean(axis=1)``.

    Every op except `cat` is a method with the registry name of the op.  Operands come first, then
    options, as in ``x.conv2d(w, b, stride=2)``.  `cat` is a function that takes a list.

    A Python number takes the dtype of the expression; arrays keep their dtype and become constants.
    In element-wise ops, 0-d operands such as losses (float64) or means take the dtype of the
    arrays.  If all operands are 0-d, they take the widest dtype.  Write `cast` in all other cases.
    """

    def __neg__(self) -> Any:
        return self._apply(ops.Neg(), self)

    def __add__(self, other: Any) -> Any:
        if _is_number(other):
            return self._apply(ops.ScalarAdd(float(other)), self)
        return self._apply(ops.Add(), self, other)

    def __radd__(self, other: Any) -> Any:
        return self + other if _is_number(other) else self._apply(ops.Add(), other, self)

    def __sub__(self, other: Any) -> Any:
        if _is_number(other):
            return self._apply(ops.ScalarAdd(-float(other)), self)
        return self._apply(ops.Sub(), self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._apply(ops.Sub(), other, self)

    def __mul__(self, other: Any) -> Any:
        if _is_number(other):
            return self._apply(ops.ScalarMul(float(other)), self)
        return self._apply(ops.Mul(), self, other)

    def __rmul__(self, other: Any) -> Any:
        return self * other if _is_number(other) else self._apply(ops.Mul(), other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._apply(ops.Div(), self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._apply(ops.Div(), other, self)

    def __matmul__(self, other: Any) -> Any:
        return self._apply(_product(self, other), self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._apply(_product(other, self), other, self)

    def __pow__(self, exponent: Any) -> Any:
        if not _is_number(exponent):
            raise TapeError(f"pow: the exponent must be a number (got {exponent!r})")
        return self._apply(ops.Pow(float(exponent)), self)

    def __getitem__(self, key: Any) -> Any:
        return self._apply(ops.Slice(key), self)

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name
        """The axes reversed."""
        return self._apply(ops.Transpose(), self)

    def __getattr__(self, name: str) -> Any:
        """Return the method of an op."""
        if name not in ops.REGISTRY or name == "cat":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        op: Any = ops.REGISTRY[name]
        return MethodType(method(op), self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *ops.REGISTRY]

    def transpose(self, *axes: Any) -> Any:
        """Return x with its axes in the order `axes`, numbers or one tuple; by default reversed."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return self._apply(ops.Transpose(tuple(order) if order else None), self)

    def reshape(self, *shape: Any) -> Any:
        """Return x in another shape, numbers or one tuple; one length may be -1."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return self._apply(ops.Reshape(tuple(sizes)), self)

    def dropout(self, rate: float, rng: np.random.Generator) -> Any:
        """Return x with dropout for training: zeros at a rate, and other entries scaled up."""
        return self._apply(ops.Dropout(rate, ops.Philox.drawn(rng)), self)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number)


def _product(a: Any, b: Any) -> ops.GradOp:
    return ops.MatMul() if np.ndim(a) == np.ndim(b) == 2 else ops.BatchMatMul()
