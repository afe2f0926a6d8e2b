"""Entries that a NumPy masked array hides, which `np.asarray` would show."""

from typing import Any

import numpy as np

from mlpengine.common.wording import plural
from mlpengine.errors import DataError
from mlpengine.spec import Array


def hides_entries(values: Any) -> bool:
    """Return whether `values` is a masked array with a masked entry."""
    return hasattr(values, "filled") and bool(np.ma.is_masked(values))


def with_missing(values: Any) -> Any:
    """Return `values`, with NaN, NaT or None in place of entries that a mask hides."""
    if not hides_entries(values):
        return values
    kind = values.dtype.kind
    if kind in "mM":
        return values.filled(np.array("NaT", values.dtype))
    if kind in "iu" and not np.ma.any((values > 2**53) | (values < -(2**53))):
        values, kind = values.astype(np.float64), "f"
    return values.filled(np.nan) if kind == "f" else values.astype(object).filled(None)


def unmasked(values: Any, where: str) -> Array:
    """Return `values` as an array.  Raises: DataError, naming `where`, if a mask hides entries."""
    if hides_entries(values):
        count = plural(int(np.count_nonzero(values.mask)), "entry", "entries")
        raise DataError(
            f"{where}: must have no masked entries (got {count} of {values.size:,}); write "
            "x.filled(0), with the value that they shall have, or leave out their rows"
        )
    return np.asarray(values)
