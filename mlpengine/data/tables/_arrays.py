"""Tables from `.npy` and `.npz` files of NumPy."""

import os
import zlib
from errno import ENOMEM
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any
from warnings import catch_warnings
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.data.tables._files import BINARY_BYTES, brief, readable, refuse_bomb
from mlpengine.data.tables.dialect import CsvOptions
from mlpengine.data.tables.table import Column, Table, column_of

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
    return _from_array(np.asarray(array), path)


def _from_array(array: Array, path: str) -> Table:
    if array.ndim not in (1, 2) or array.shape[0] == 0:
        raise DataError(f"{path}: rows and columns are needed (shape {array.shape})")
    if array.dtype.names:
        columns = {name: _checked(array[name], path, name) for name in array.dtype.names}
        return Table(columns, path)
    return Table.from_arrays(
        array, names=[Path(path).stem] if array.ndim == 1 else None, source=path
    )


def _checked(values: Array, path: str, name: str) -> Column:
    if values.ndim != 1:
        raise DataError(f"{path}: column {name!r} must be 1-D (shape {values.shape})")
    return column_of(values, f"{path}: column {name!r}")


def read_npz(path: str, _options: CsvOptions) -> Table:
    """Return the table of a `.npz` file.  Raises: DataError."""
    columns: dict[str, Column] = {}
    with readable(path):
        try:
            with ZipFile(path) as archive, catch_warnings(action="ignore"):
                members = archive.infolist()
                unpacked = sum(info.file_size for info in members)
                refuse_bomb(unpacked, os.path.getsize(path), path, BINARY_BYTES)
                for info in members:
                    name = info.filename.removesuffix(".npy")
                    further = _named(name, _member(archive, info, path), path)
                    for twice in columns.keys() & further.keys():
                        raise DataError(
                            f"{path}: every column needs a name of its own (array {name!r} and an "
                            f"array before it both make a column {twice!r}); rename one of them"
                        )
                    columns |= further
        except (*_DAMAGED, BadZipFile, NotImplementedError, zlib.error) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{path}: is not a whole .npz file of numbers ({brief(error)})"
            ) from error
    if not columns or len(next(iter(columns.values())).values) == 0:
        raise DataError(f"{path}: holds no rows")
    return Table(columns, path)


def _member(archive: ZipFile, info: ZipInfo, path: str) -> Array:
    """Return one array of an archive, after checking its header against its size."""
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read: Any = np.lib.format.read_array_header_1_0
        shape, _, dtype = (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(
            stream
        )
        if prod(shape) * dtype.itemsize > info.file_size and not dtype.hasobject:
            raise DataError(
                f"{path}: {info.filename}: its header declares more than the file holds "
                f"(shape {shape} of {dtype})"
            )
    with archive.open(info) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _named(name: str, array: Array, path: str) -> dict[str, Column]:
    if array.ndim == 1:
        return {name: _checked(array, path, name)}
    if array.ndim != 2:
        raise DataError(f"{path}: array {name!r} must be 1-D or 2-D (shape {array.shape})")
    names = [f"{name}{i}" for i in range(array.shape[1])]
    return Table.from_arrays(array, names=names, source=path).columns if names else {}
