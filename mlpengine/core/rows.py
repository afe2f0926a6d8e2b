"""Selection of rows by index: evenly spaced indices, and copies without allocation."""

from typing import Any, Protocol

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.named import NamedRows
from mlpengine.core.spec import Array


class Gathered(Protocol):
    """Rows that are computed or read when they are needed."""

    def gather(self, indices: Array, out: Any, /) -> None:
        """Write the rows with these indices into `out`."""


def evenly_spaced(rows: int, count: int) -> Array:
    """Return up to `count` evenly spaced row indices, including the first and the last row."""
    return np.linspace(0, rows - 1, min(count, rows)).astype(np.int64)


def gather_rows(rows: Array | Gathered | NamedRows, indices: Array, out: Any) -> None:
    """Copy `rows[indices]` into `out` without allocation; `rows` may be memory-mapped.

    Indices out of range are clipped without an error.

    Raises: DataError if `rows` is not C-contiguous or does not have the dtype of `out`, because
        NumPy would then copy far more than the batch in each call.
    """
    if isinstance(rows, NamedRows):
        for name, array in rows.arrays.items():
            gather_rows(array, indices, out[name])
    elif not isinstance(rows, np.ndarray):
        rows.gather(indices, out)
    elif not rows.flags.c_contiguous or rows.dtype != out.dtype:
        raise DataError(
            f"rows must be a contiguous {out.dtype} array (got {rows.dtype}, strides "
            f"{rows.strides}); write np.ascontiguousarray(rows, {str(out.dtype)!r})"
        )
    else:
        rows.take(indices, 0, out, "clip")
