"""Arrays of floats as 8-bit integers: value = scale * (integer - zero point)."""

from dataclasses import dataclass

import numpy as np

from mlpengine.core.errors import NumericalError, ShapeError
from mlpengine.core.spec import Array, ArrayLike, floating

LOWEST, HIGHEST = -128, 127


@dataclass(frozen=True, eq=False)
class QuantizedArray:
    """An int8 array with one scale and zero point, or with one for each channel.

    Shapes: `values` (...); `scale` and `zero_point` are 0-D, or have the shape of `values` with
    length 1 on all axes but `axis`.
    Dtype: `scale` has the dtype of the floats; `values` and `zero_point` are int8.
    """

    values: Array
    scale: Array
    zero_point: Array
    axis: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.values.shape

    @property
    def nbytes(self) -> int:
        """Bytes of integers, scales and zero points together."""
        return self.values.nbytes + self.scale.nbytes + self.zero_point.nbytes

    def dequantize(self) -> Array:
        """Return the floats; each differs from the original by at most half of the scale."""
        steps = self.values.astype(self.scale.dtype) - self.zero_point.astype(self.scale.dtype)
        return np.asarray(steps * self.scale)


def quantize(array: ArrayLike, *, axis: int | None = None) -> QuantizedArray:
    """Return `array` rounded to 256 equally spaced levels from min(array, 0) to max(array, 0).

    Zero is one of the levels.  With `axis`, each index along this axis (a channel) has its own
    scale.
    Raises: DtypeError unless the entries are floats; NumericalError unless they are finite;
        ShapeError for an axis that does not exist.
    """
    floats = np.asarray(array)
    dtype = floating(floats.dtype, "quantize")
    if not np.isfinite(floats).all():
        raise NumericalError("quantize: every entry must be finite")
    if axis is not None and axis not in range(-floats.ndim, floats.ndim):
        raise ShapeError(f"quantize: no axis {axis!r} (shape {floats.shape})")
    others: tuple[int, ...] | None = None
    if axis is not None:
        others = tuple(i for i in range(floats.ndim) if i != axis % floats.ndim)
    keep = axis is not None
    low = np.min(floats, others, initial=0.0, keepdims=keep).astype(np.float64)
    high = np.max(floats, others, initial=0.0, keepdims=keep).astype(np.float64)
    half = high / 2 - low / 2  # high - low may overflow
    scale = (half / (HIGHEST - LOWEST) * 2).astype(dtype)
    scale = np.where(scale > 0, scale, np.ones((), dtype))
    zero_point = np.clip(np.rint(LOWEST - low / scale), LOWEST, HIGHEST).astype(np.int8)
    steps = np.rint(floats / scale) + zero_point
    values = np.clip(steps, LOWEST, HIGHEST).astype(np.int8)
    return QuantizedArray(values, scale, zero_point, axis)
