"""The base class of nodes and eager tensors, and a function that applies ops to them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpengine.core.buffers import unmasked
from mlpengine.core.errors import DtypeError, TapeError
from mlpengine.core.spec import Array, ArrayLike, Spec
from mlpengine.core.wording import quoted
from mlpengine.ops import Cast, Elementwise, GradOp, Where


class Operand:
    """Base class of `Node`, which records ops, and `Tensor`, which runs ops at once."""

    spec: Spec
    wants_grad: bool

    __array_ufunc__ = None  # makes ``array + operand`` call the operand's method

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the value."""
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.spec.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.spec.size

    def _apply(self, op: GradOp, *operands: Any) -> Any:
        """Apply `op`; arrays and numbers become operands, and None is a missing operand."""
        raise NotImplementedError

    def _array(self, value: ArrayLike) -> Array:
        """Return `value` as an array; a Python number takes this operand's dtype."""
        array = numeric(value, "operand")
        if isinstance(value, int | float | np.number) and self.spec.is_float:
            return array.astype(self.spec.dtype)
        return array


def numeric(value: ArrayLike, where: str) -> Array:
    """Return `value` as an array.  Raises: DtypeError if `value` does not hold numbers."""
    array = unmasked(value, where)
    if array.dtype.kind not in "biuf":
        raise DtypeError(f"{where}: must be numeric (got {quoted(value)})")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def apply(op: GradOp, *operands: Any) -> Any:
    """Apply `op` to operands, and return the output or a tuple of several outputs.

    At least one operand must be a node or a tensor.  Arrays and numbers become constants; a number
    takes the dtype of the first floating node or tensor.
    Raises: TapeError if there is neither a node nor a tensor.
    """
    given = [x for x in operands if isinstance(x, Operand)]
    if not given:
        listed = ", ".join(type(x).__name__ for x in operands)
        raise TapeError(f"{op.name}: needs a node or a tensor among its operands (got {listed})")
    first_float = next((x for x in given if x.spec.is_float), given[0])
    return first_float._apply(op, *operands)


def cast_scalars(op: GradOp, operands: Sequence[Any]) -> Sequence[Any]:
    """Cast 0-d floats to the dtype of the other operands, or to the widest dtype if all are 0-d."""
    if not isinstance(op, Elementwise | Where):
        return operands
    start = 1 if isinstance(op, Where) else 0  # skip the condition of `where`
    floats = [x for x in operands[start:] if x is not None and x.spec.is_float]
    if len({x.dtype for x in floats}) < 2:
        return operands
    dtype = np.result_type(*({x.dtype for x in floats if x.ndim} or {x.dtype for x in floats}))
    scalars = {id(x) for x in floats if not x.ndim and x.dtype != dtype}
    return [apply(Cast(dtype.name), x) if id(x) in scalars else x for x in operands]
