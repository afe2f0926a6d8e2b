"""The caller's arrays: which ones rules may use, and how data is copied into a buffer."""

from collections.abc import Mapping

import numpy as np

from mlpengine.errors import DtypeError, ShapeError, TapeError
from mlpengine.spec import Array, Spec
from mlpengine.tape.record import Value


def zeros(spec: Spec) -> Array:
    """Return an array of that shape and dtype."""
    return np.zeros(spec.shape, spec.dtype)


def owned(arrays: Mapping[str, Array], leaves: Mapping[str, Value], what: str) -> dict[str, Array]:
    """Return arrays of the caller that rules may read from or write into.

    Raises: TapeError for a name that is no leaf, or for memory that is not contiguous; ShapeError
    or DtypeError for an array that does not fit its leaf.
    """
    for name, array in arrays.items():
        if name not in leaves:
            raise TapeError(f"{what}: no leaf {name!r} (leaves: {', '.join(leaves)})")
        found, spec = Spec.of(array), leaves[name].spec
        if found.shape != spec.shape:
            raise ShapeError(f"{what}: {name} must be {spec} (got {found})")
        if found.dtype != spec.dtype:
            raise DtypeError(f"{what}: {name} must be {spec} (got {found})")
        if not array.flags.carray:
            raise TapeError(
                f"{what}: {name} must be contiguous, aligned and writeable "
                f"(strides {array.strides}, writeable {array.flags.writeable})"
            )
    return dict(arrays)


def write_into(buffer: Array, value: Array, where: str) -> None:
    """Copy `value` into `buffer` without broadcasting and without losing a dtype's kind.

    Raises: ShapeError or DtypeError naming `where` and both specs.
    """
    if value is buffer:
        return
    if value.shape != buffer.shape:
        raise ShapeError(f"{where}: shape must be {buffer.shape} (got {value.shape})")
    if not np.can_cast(value.dtype, buffer.dtype, "same_kind"):
        raise DtypeError(f"{where}: dtype must be {buffer.dtype} (got {value.dtype})")
    np.copyto(buffer, value, casting="same_kind")
