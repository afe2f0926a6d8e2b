"""The loops of `_scan` in C, where there is a compiler: the same values, several times as fast."""

import ctypes
import logging
from functools import cache
from importlib.resources import files

import numpy as np

from mlpengine.buffers import address_of
from mlpengine.errors import CompileError
from mlpengine.spec import Array

_LONG, _POINTER = ctypes.c_long, ctypes.c_void_p
_FUNCTIONS = {
    "scan_cut": (
        _LONG,
        [_POINTER, _LONG, _LONG, ctypes.c_int, _LONG, _LONG, _LONG, *[_POINTER] * 4],
    ),
    "scan_numbers": (None, [_POINTER, _LONG, *[_POINTER] * 4]),
    "scan_moments": (ctypes.c_int, [_POINTER, _LONG, *[_POINTER] * 3]),
    "scan_rehash": (None, [_POINTER, ctypes.c_uint64, _POINTER, _LONG]),
    "scan_texts": (
        _LONG,
        [
            _POINTER,
            _LONG,
            *[_POINTER] * 3,
            ctypes.c_uint64,
            *[_POINTER] * 3,
            _LONG,
            *[_POINTER] * 2,
        ],
    ),
}

_log = logging.getLogger("mlpengine")


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled loops, from the cache or newly compiled; None if they cannot be."""
    from mlpengine.backends.compiled.cache import load
    from mlpengine.backends.compiled.executor import native_target

    source = files("mlpengine.data").joinpath("scan.c").read_text(encoding="utf-8")
    try:
        loops = load(source, native_target(), functions=tuple(_FUNCTIONS))
    except CompileError as reason:
        _log.debug("reading: NumPy cuts and converts cells (%s)", reason)
        return None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loops, name)
        function.restype, function.argtypes = result, arguments
    return loops


def is_loaded() -> bool:
    """Return whether `library` was called before."""
    return bool(library.cache_info().currsize)


class Texts:
    """Numbers of different texts, in the order of their first appearance."""

    def __init__(self, loops: ctypes.CDLL) -> None:
        self._loops = loops
        self.count = 0
        self._table = np.zeros(1 << 10, np.int32)
        self._hashes = np.empty(0, np.uint64)
        self._ends = np.zeros(1, np.int64)
        self._arena = np.empty(0, np.uint8)

    def __call__(self, content: bytes, start: Array, stop: Array) -> tuple[Array, Array]:
        """Return the number of each cell's text, and the rows of the texts that are new."""
        rows = len(start)
        self._reserve(rows, int((stop - start).sum(dtype=np.int64)))
        numbers, fresh = np.empty(rows, np.int32), np.empty(rows, np.int64)
        cells = (content, rows, address_of(start), address_of(stop))
        table = (address_of(self._table), len(self._table) - 1)
        entries = (address_of(self._hashes), address_of(self._ends), address_of(self._arena))
        out = (address_of(numbers), address_of(fresh))
        count = self._loops.scan_texts(*cells, *table, *entries, self.count, *out)
        fresh = fresh[: count - self.count]
        self.count = count
        return numbers, fresh

    def _reserve(self, rows: int, size: int) -> None:
        """Make room for so many new texts of so many bytes."""
        entries = self.count + rows
        if len(self._hashes) < entries:
            self._hashes = _grown(self._hashes, entries)
            self._ends = _grown(self._ends, entries + 1)
        if len(self._arena) < int(self._ends[self.count]) + size:
            self._arena = _grown(self._arena, int(self._ends[self.count]) + size)
        if len(self._table) < 2 * entries:
            self._table = np.zeros(1 << (4 * entries - 1).bit_length(), np.int32)
            where = address_of(self._table), len(self._table) - 1
            self._loops.scan_rehash(*where, address_of(self._hashes), self.count)


def _grown(array: Array, size: int) -> Array:
    grown = np.empty(size + size // 2, array.dtype)
    grown[: len(array)] = array
    return grown
