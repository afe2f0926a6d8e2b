"""The Euclidean norm of a vector without overflow or underflow, and clipping by the norm."""

from collections.abc import Callable
from math import hypot, inf, isfinite, sqrt

import numpy as np

from mlpengine.core.errors import ShapeError
from mlpengine.core.spec import Array, call

CHUNK = 8192
"""Number of squares that are summed in the vector's own dtype; the sums are added in float64.

The relative error of a float32 norm is then below 1e-7.  With 10,000 entries or more, OpenBLAS
would start its threads for every chunk."""


FEW_CHUNKS = 8
"""Up to this number of chunks, one `np.vdot` per chunk is faster than one `np.vecdot` for all."""


class GlobalNorm:
    """The L2 norm of a given vector: ``norm = GlobalNorm(flat)``, then ``norm()``.

    The squares of a chunk are summed in the vector's dtype, and the sums of chunks in float64.  If
    the sum of a chunk overflows, or squares may have underflowed, the chunk is divided by its
    largest entry and summed again in float64.  So the norm of a finite vector is finite, unless the
    norm exceeds float64.  The memory for a call does not grow with the vector.

    Shapes: `flat` (total,), contiguous; each call reads its current entries.
    Raises: ShapeError if `flat` is not contiguous or not one-dimensional.
    """

    def __init__(self, flat: Array) -> None:
        if flat.ndim != 1 or not flat.flags.c_contiguous:
            raise ShapeError(
                f"global norm: needs one contiguous dimension (shape {flat.shape}, "
                f"strides {flat.strides})"
            )
        self._flat = flat
        whole = max(0, flat.size - 1) // CHUNK  # the tail of a nonempty vector is never empty
        matrix = flat[: whole * CHUNK].reshape(whole, CHUNK)
        tail = flat[whole * CHUNK :]
        self._chunks = [*matrix, tail]
        self._sums = np.zeros(whole if whole > FEW_CHUNKS else 0, flat.dtype)
        self._dot_rows = call(np.vecdot, matrix, matrix, self._sums)
        # np.vdot never warns of overflow.  Other products do, and np.errstate would take longer
        # than the sum over a small network.
        vectors = [tail] if whole > FEW_CHUNKS else self._chunks
        self._dots = [call(np.vdot, chunk, chunk) for chunk in vectors]
        self._single = None if whole else self._dots[0]
        self._wide = np.zeros(min(flat.size, CHUNK))
        info = np.finfo(flat.dtype)
        # In smaller sums, underflowed squares may cause more than a rounding error.
        self._min_sum = float(info.tiny) * CHUNK / float(info.eps)

    def __call__(self) -> float:
        """Return the current norm of the vector."""
        if self._single is not None:
            total = float(self._single())
            if self._min_sum < total < inf:
                return sqrt(total)
        sums = [float(dot()) for dot in self._dots]
        if self._sums.size:
            with np.errstate(over="ignore", under="ignore"):
                self._dot_rows()
            sums = self._sums.tolist() + sums
        total = sum(sums)
        if total < inf and self._min_sum < min(sums):
            return sqrt(total)
        return self._from_doubtful_sums(sums)

    def __reduce__(self) -> tuple[type["GlobalNorm"], tuple[Array]]:
        return GlobalNorm, (self._flat,)

    def _from_doubtful_sums(self, sums: list[float]) -> float:
        """Return the norm from sums of squares; replace sums that are too large or too small."""
        norm = 0.0
        for total, chunk in zip(sums, self._chunks, strict=True):
            part = sqrt(total) if self._min_sum < total < inf else self._scaled_norm(chunk)
            # hypot(inf, nan) is inf, but the norm must be NaN.
            norm = hypot(norm, part) if isfinite(part) and isfinite(norm) else norm + part
        return norm

    def _scaled_norm(self, chunk: Array) -> float:
        """Return the norm of a chunk in float64, after division by the largest entry."""
        if not chunk.size:
            return 0.0
        wide = self._wide[: chunk.size]
        np.absolute(chunk, wide)
        largest = float(np.max(wide))
        if largest == 0.0 or not isfinite(largest):
            return largest
        np.divide(wide, largest, wide)
        return largest * sqrt(float(np.dot(wide, wide)))


def bind_clip(grads: Array) -> Callable[[float | None], tuple[float, float]]:
    """Return a function that clips a flat vector: grads *= min(1, max_norm / (norm + 1e-6)).

    The returned function takes `max_norm` and returns the norms before and after clipping.  If
    `max_norm` is None or the norm is not finite, the gradients stay unchanged.

    Source: Pascanu et al. 2013, arXiv 1211.5063, algorithm 1; the 1e-6 is PyTorch's.
    """
    norm, factor = GlobalNorm(grads), np.array(1.0, grads.dtype)
    scale = call(np.multiply, grads, factor, grads)

    def clip(max_norm: float | None) -> tuple[float, float]:
        before = norm()
        if max_norm is None or not isfinite(before):
            return before, before
        coefficient = max_norm / (before + 1e-6)
        if coefficient >= 1.0:
            return before, before
        factor[()] = coefficient
        scale()
        return before, before * coefficient

    return clip
