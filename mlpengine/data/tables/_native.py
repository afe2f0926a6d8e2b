"""The loops of `_scan` in C, where there is a compiler: the same values, several times as fast."""

import ctypes
import logging
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from mlpengine.core.buffers import address_of
from mlpengine.core.errors import CompileError
from mlpengine.core.spec import Array

_INTEGER, _POINTER = ctypes.c_int64, ctypes.c_void_p
_FUNCTIONS = {
    "scan_cut": (
        _INTEGER,
        [_POINTER, _INTEGER, _INTEGER, ctypes.c_int, _INTEGER, _INTEGER, _INTEGER, *[_POINTER] * 2],
    ),
    "scan_numbers": (
        _INTEGER,
        [_POINTER, _INTEGER, *[_POINTER] * 3, _INTEGER, ctypes.c_int, *[_POINTER] * 2],
    ),
    "scan_moments": (ctypes.c_int, [_POINTER, _INTEGER, *[_POINTER] * 3]),
    "scan_rehash": (None, [_POINTER, ctypes.c_uint64, _POINTER, _INTEGER]),
    "scan_texts": (
        _INTEGER,
        [
            _POINTER,
            _INTEGER,
            *[_POINTER] * 3,
            ctypes.c_uint64,
            *[_POINTER] * 3,
            _INTEGER,
            _POINTER,
        ],
    ),
}

_log = logging.getLogger("mlpengine")


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled loops, from the cache or newly compiled; None if they cannot be."""
    from mlpengine.backends.compiled.cache import chosen_target, load_library

    source = Path(__file__).with_name("scan.c").read_text(encoding="utf-8")
    try:
        loops = load_library(source, chosen_target(), functions=tuple(_FUNCTIONS))
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
        self._addresses: tuple[int, ...] = ()

    def __call__(
        self, content: int, rows: int, start: int, stop: int, size: int, numbers: int
    ) -> None:
        """Write the number of each cell's text to an address; the cells have `size` bytes."""
        self._reserve(rows, size)
        self.count = self._loops.scan_texts(
            content, rows, start, stop, *self._addresses, self.count, numbers
        )

    def since(self, number: int, *, is_quoted: bool) -> list[str]:
        """Return the texts from this number on; in quoted ones, quotes stand twice."""
        ends = self._ends[number : self.count + 1]
        content = self._arena[ends[0] : ends[-1]].tobytes()
        places = pairwise((ends - ends[0]).tolist())
        if content.isascii():
            text = content.decode()
            texts = [text[start:stop] for start, stop in places]
        else:
            texts = [content[start:stop].decode() for start, stop in places]
        return [text.replace('""', '"') for text in texts] if is_quoted else texts

    def _reserve(self, rows: int, size: int) -> None:
        """Make room for so many new texts of so many bytes, and for the bytes behind them."""
        entries = self.count + rows
        size += int(self._ends[self.count]) + 8
        if len(self._hashes) >= entries and len(self._arena) >= size:
            return
        if len(self._hashes) < entries:
            self._hashes = _grown(self._hashes, entries)
            self._ends = _grown(self._ends, len(self._hashes) + 1)
        if len(self._arena) < size:
            self._arena = _grown(self._arena, size)
        if len(self._table) < 2 * len(self._hashes):
            self._table = np.zeros(1 << (2 * len(self._hashes) - 1).bit_length(), np.int32)
            where = address_of(self._table), len(self._table) - 1
            self._loops.scan_rehash(*where, address_of(self._hashes), self.count)
        entry = (address_of(a) for a in (self._hashes, self._ends, self._arena))
        self._addresses = (address_of(self._table), len(self._table) - 1, *entry)


def _grown(array: Array, size: int) -> Array:
    grown = np.empty(size + size // 2, array.dtype)
    grown[: len(array)] = array
    return grown
