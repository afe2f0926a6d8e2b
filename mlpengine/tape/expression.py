"""The operators and methods of nodes and eager tensors."""

from types import MethodType
from typing import Any, NoReturn

import numpy as np

from mlpengine import ops
from mlpengine.core.errors import TapeError
from mlpengine.tape import elementwise, functions
from mlpengine.tape.operand import CONDITIONS, Operand


class Expression(Operand):
    """Python operators and NumPy-like methods: ``((x @ w + b).tanh() ** 2).mean(axis=1)``.

    Every op is a method under its registry name, but for `cat`, which takes a list.  A Python
    number takes the dtype of the expression; arrays keep theirs and become constants.  In element-
    wise ops a scalar, such as a loss (float64) or a mean (as its operand), takes the dtype of the
    arrays that it meets, and scalars alone take the widest of theirs; `cast` converts all else.
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

    def __lt__(self, other: Any) -> NoReturn:
        raise TapeError(
            f"comparison: values of a {type(self).__name__} cannot be compared (with {other!r}); "
            f"write x.maximum(0.0), x.relu(); {CONDITIONS}"
        )

    __le__ = __gt__ = __ge__ = __lt__

    def __getitem__(self, key: Any) -> Any:
        return self._apply(ops.Slice(key), self)

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name
        """The axes reversed."""
        return self._apply(ops.Transpose(), self)

    def __getattr__(self, name: str) -> Any:
        """Return the method of an element-wise op."""
        if name not in elementwise.names():
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return MethodType(getattr(elementwise, name), self)

    where = elementwise.where
    softmax = elementwise.softmax
    log_softmax = elementwise.log_softmax

    matmul = functions.matmul
    batch_matmul = functions.batch_matmul
    linear = functions.linear
    conv2d = functions.conv2d
    max_pool2d = functions.max_pool2d
    transpose = functions.transpose
    sum = functions.sum
    mean = functions.mean
    var = functions.var
    max = functions.max
    min = functions.min
    logsumexp = functions.logsumexp
    reshape = functions.reshape
    cast = functions.cast
    detach = functions.detach
    chunk = functions.chunk
    slice = functions.slice
    gather = functions.gather
    index_select = functions.index_select
    embedding = functions.embedding
    struct_field = functions.struct_field
    map_lookup = functions.map_lookup
    layer_norm = functions.layer_norm
    batch_norm = functions.batch_norm
    dropout = functions.dropout
    ssm_scan = functions.ssm_scan
    softmax_cross_entropy = functions.softmax_cross_entropy


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number)


def _product(a: Any, b: Any) -> ops.GradOp:
    return ops.MatMul() if np.ndim(a) == np.ndim(b) == 2 else ops.BatchMatMul()
