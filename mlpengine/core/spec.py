"""Specs (shape and dtype) of arrays, and type aliases for the methods of ops."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NewType, TypeAlias

import numpy as np

from mlpengine.core.errors import DtypeError

__all__ = ["Spec", "call"]

if TYPE_CHECKING:
    from numpy.typing import ArrayLike as ArrayLike
    from numpy.typing import DTypeLike as DTypeLike
else:  # NumPy's aliases are long unions; `help` would print ten lines for each use
    ArrayLike, DTypeLike = NewType("ArrayLike", object), NewType("DTypeLike", object)

Array: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[Any]]
Slots: TypeAlias = Sequence[Array | None]
"""One gradient buffer per operand, in order; None for an operand without gradient."""

Call: TypeAlias = Callable[[], object]
"""A function bound to its arguments; it is called without arguments."""

Calls: TypeAlias = Iterator[Call]
"""Bound functions, in the order in which a program calls them."""

call = partial
"""Bind a function to its arguments: ``yield call(np.multiply, a, b, out)``.

Pass all arguments by position, including `out`: a bound ufunc with a keyword is slower.
"""

FLOATS = (np.dtype("float32"), np.dtype("float64"))


@dataclass(frozen=True, slots=True)
class Spec:
    """Shape and dtype of a buffer, known before its memory is allocated."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, np.dtype):  # a text in an op of one's own
            object.__setattr__(self, "dtype", np.dtype(self.dtype))

    @classmethod
    def of(cls, array: Array) -> "Spec":
        """Return the spec of an array."""
        return cls(array.shape, array.dtype)

    @property
    def size(self) -> int:
        """Number of entries."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a contiguous buffer with this shape and dtype."""
        return self.size * self.dtype.itemsize

    @property
    def is_float(self) -> bool:
        """Whether the dtype is floating, so that the buffer can have a gradient."""
        return self.dtype in FLOATS

    def __str__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


def floating(dtype: DTypeLike, where: str) -> np.dtype[Any]:
    """Return `dtype` as a NumPy dtype; raise DtypeError unless it is float32 or float64."""
    try:
        chosen = None if dtype is None else np.dtype(dtype)
    except TypeError:
        chosen = None
    if chosen is None or chosen not in FLOATS:  # NumPy reads None as float64
        raise DtypeError(f"{where}: dtype must be float32 or float64 (got {dtype!r})")
    return chosen
