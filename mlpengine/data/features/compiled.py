"""Numeric features in C where there is a compiler: the bits of NumPy, several times as fast."""

import ctypes
import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np

from mlpengine.core.buffers import address_of
from mlpengine.core.errors import CompileError
from mlpengine.core.spec import Array
from mlpengine.data.features.bins import Bins
from mlpengine.data.features.sources import LIMIT

MIN_NUMBERS = 1 << 22
"""Numbers for which the loops are compiled, once for all tables: NumPy takes some tenths of a
second for them, as the compiler does."""

TILE_NUMBERS = 2048
"""Numbers that pass through all operations while they are in the first-level cache."""

_INTEGER, _POINTER = ctypes.c_int64, ctypes.c_void_p
_ENCODE, _MEASURE = "encode_numbers", "measure_cells"

_log = logging.getLogger("mlpengine")


@cache
def _library() -> ctypes.CDLL | None:
    """Return the compiled loops, from the cache or newly compiled; None if they cannot be."""
    from mlpengine.backends.compiled.cache import chosen_target, load_library
    from mlpengine.backends.compiled.source import with_vectors

    text = Path(__file__).with_name("numbers.c").read_text(encoding="utf-8")
    try:
        target = chosen_target()
        source = with_vectors(text, target, np.dtype(np.float64))
        loops = load_library(source, target, functions=(_ENCODE, _MEASURE))
    except CompileError as reason:
        _log.debug("features: NumPy computes them (%s)", reason)
        return None
    loops.encode_numbers.restype = _INTEGER
    loops.encode_numbers.argtypes = [_POINTER] * 2 + [_INTEGER] * 2 + [_POINTER, _INTEGER, _POINTER]
    loops.measure_cells.restype = None
    loops.measure_cells.argtypes = [_POINTER, _INTEGER, _INTEGER, *[_POINTER] * 2, _INTEGER]
    return loops


def feature_loops(numbers: int) -> ctypes.CDLL | None:
    """Return the compiled loops for so many numbers; None if NumPy is to compute."""
    return _library() if _library.cache_info().currsize or numbers >= MIN_NUMBERS else None


class _Settings(ctypes.Structure):
    """``struct numbers`` of numbers.c, which describes it."""

    _fields_ = (
        *((name, _INTEGER) for name in ("count", "tile")),
        *((name, _POINTER) for name in ("center", "factor", "fill", "first_bin")),
        *((name, _POINTER) for name in ("left", "low", "high", "width", "flagged")),
        *((name, _INTEGER) for name in ("flags", "strict", "clip", "single")),
        *((name, ctypes.c_double) for name in ("limit", "largest", "bound", "clip_at")),
    )


class _Cells(ctypes.Structure):
    """``struct cells`` of numbers.c, which describes it."""

    _fields_ = (
        *((name, _POINTER) for name in ("first", "strides", "is_double")),
        ("adjacent", _INTEGER),
    )


class ColumnCells:
    """Where the cells of columns of float32 or float64 lie, for the loops in C."""

    def __init__(self, columns: Sequence[Array]) -> None:
        first = np.array([address_of(column) for column in columns], np.int64)
        strides = np.array([column.strides[0] for column in columns], np.int64)
        sizes = np.array([column.itemsize for column in columns], np.int64)
        alike = len(columns) > 0 and len({*strides.tolist()}) == len({*sizes.tolist()}) == 1
        adjacent = alike and bool((np.diff(first) == sizes[0]).all())
        is_double = (sizes == np.dtype(np.float64).itemsize).astype(np.int64)
        self.count, self.rows = len(columns), len(columns[0]) if len(columns) else 0
        self.memory = [*columns], first, strides, is_double
        self.cells = _Cells(*map(address_of, (first, strides, is_double)), adjacent)

    @staticmethod
    def suit(columns: Sequence[Array]) -> bool:
        """Return whether the loops read such columns."""
        return all(
            column.dtype in (np.float32, np.float64) and column.flags.aligned for column in columns
        )

    def measure(self, loops: ctypes.CDLL) -> Array:
        """Return (3, columns): the smallest and the largest numbers, and how many are missing."""
        results = np.zeros((3, self.count))
        results[0], results[1] = np.inf, -np.inf
        height = max(1, TILE_NUMBERS // max(1, self.count))
        tile = np.empty(height * self.count)
        loops.measure_cells(
            ctypes.addressof(self.cells),
            self.count,
            self.rows,
            address_of(results),
            address_of(tile),
            height,
        )
        return results


class NumbersLike(Protocol):
    """The attributes read from a `Numbers`."""

    center: Array
    factor: Array
    fill: Array
    bins: Bins
    flagged: list[int]
    strict: bool
    clip: bool


class Encoder:
    """`Numbers.write` in C, for features of one dtype.

    `clipping` are the magnitude from which a number is clipped to a constant, and that constant.
    """

    def __init__(
        self,
        loops: ctypes.CDLL,
        numbers: NumbersLike,
        dtype: "np.dtype[np.floating]",
        clipping: tuple[float, float],
    ) -> None:
        count, bins = len(numbers.center), numbers.bins
        tile = max(1, TILE_NUMBERS // max(1, count))
        arrays = [np.tile(own, tile) for own in (numbers.center, numbers.factor, numbers.fill)]
        arrays.append(np.searchsorted(bins.columns, np.arange(count + 1)).astype(np.int64))
        arrays += [bins.left, bins.low, bins.high, bins.width, np.array(numbers.flagged, np.int64)]
        self._encode, self._arrays, self._size = (
            loops.encode_numbers,
            arrays,
            tile * count + len(bins),
        )
        self._settings = _Settings(
            count,
            tile,
            *map(address_of, arrays),
            len(numbers.flagged),
            numbers.strict,
            numbers.clip,
            dtype == np.float32,
            LIMIT,
            float(np.finfo(dtype).max),
            *clipping,
        )

    def __call__(self, cells: ColumnCells, start: int, out: Array) -> bool:
        """Write the features of the rows from `start` on; the result is whether all are usable."""
        tile = np.empty(self._size)
        return bool(
            self._encode(
                ctypes.addressof(self._settings),
                ctypes.addressof(cells.cells),
                start,
                len(out),
                address_of(out),
                out.strides[0],
                address_of(tile),
            )
        )
