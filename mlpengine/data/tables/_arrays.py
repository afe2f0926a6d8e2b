"""Tables from `.npy` files of NumPy."""

from errno import ENOMEM
from pathlib import Path
from tokenize import TokenError
from warnings import catch_warnings

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.data.tables._files import brief, readable
from mlpengine.data.tables.dialect import CsvOptions
from mlpengine.data.tables.table import Table

_DAMAGED = (
    ValueError, TypeError, KeyError, EOFError, SyntaxError, TokenError, OverflowError,
    RecursionError, MemoryError,
)  # fmt: skip
"""Errors of NumPy for a damaged header: it is a Python literal, of any shape."""


def read_npy(path: str, _options: CsvOptions) -> Table:
    """Map a `.npy` file into memory, as a table.  Raises: DataError."""
    with readable(path):
        try:
            with catch_warnings(action="ignore"):  # for headers that Python 2 wrote
                array = np.lib.format.open_memmap(path, mode="r")
        except (*_DAMAGED, OSError) as error:
            if isinstance(error, OSError) and error.errno != ENOMEM:  # Windows, of a file cut short
                raise
            raise DataError(
                f"{path}: is not a whole .npy file of numbers ({brief(error)})"
            ) from error
    if array.ndim not in (1, 2) or array.shape[0] == 0:
        raise DataError(f"{path}: rows and columns are needed (shape {array.shape})")
    names = [Path(path).stem] if array.ndim == 1 else None
    return Table.from_arrays(np.asarray(array), names=names, source=path)
