"""Checks of operands for several kinds of ops."""

import numpy as np

from mlpengine.core.errors import DtypeError, ShapeError
from mlpengine.core.spec import Spec

WIDE = np.dtype(np.intp)
"""Dtype of index buffers; NumPy would copy indices of another dtype in each call."""


def listing(**operands: Spec | None) -> str:
    """Return the operands as text for a message: ``x float32[2, 3], w float32[4, 3]``."""
    return ", ".join(f"{name} {spec}" for name, spec in operands.items() if spec is not None)


def need_floats(where: str, **operands: Spec | None) -> None:
    """Raise DtypeError unless all given operands are floats of one dtype."""
    present = [spec for spec in operands.values() if spec is not None]
    if not all(spec.is_float and spec.dtype == present[0].dtype for spec in present):
        raise DtypeError(
            f"{where}: operands need one floating dtype ({listing(**operands)}); "
            "convert an array by x.astype(dtype), and a node by x.cast(dtype)"
        )


def need_integers(where: str, **operands: Spec) -> None:
    """Raise DtypeError unless all operands are integers."""
    if not all(np.issubdtype(spec.dtype, np.integer) for spec in operands.values()):
        raise DtypeError(
            f"{where}: an index must have an integer dtype ({listing(**operands)}); in a network, "
            "declare integer inputs as inputs={'tokens': ('int64', 16)}"
        )


def normal_axis(where: str, axis: int, x: Spec) -> int:
    """Return `axis` counted from the front; raise ShapeError if `x` has no such axis."""
    rank = len(x.shape)
    whole = isinstance(axis, int | np.integer) and not isinstance(axis, bool)
    if not whole or not -rank <= axis < rank:
        raise ShapeError(f"{where}: the operand must have the axis (axis {axis!r}, {listing(x=x)})")
    return int(axis) % rank
