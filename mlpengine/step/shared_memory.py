"""Memory of one process that other processes of the same user on the machine can map."""

import mmap
import os
import weakref
from collections.abc import Sequence
from secrets import token_hex
from typing import Any

import numpy as np

from mlpengine.core import system
from mlpengine.core.spec import Array


class SharedBlock:
    """An array of zeros in a file without a name in memory; only Linux has such files.

    Attributes:
        array: the array; it keeps its memory.
        place: what `map_block` of another process needs to map it, while this object exists.
    """

    def __init__(self, shape: Sequence[int], dtype: "np.dtype[Any]") -> None:
        name = f"mlpengine-{token_hex(8)}"
        self._file = os.fdopen(system.memory_file(name), "r+b", buffering=0)
        weakref.finalize(self, self._file.close)
        self._file.truncate(int(np.prod(shape)) * dtype.itemsize)
        self.place = os.getpid(), self._file.fileno(), name
        self.array: Array = _mapped(self._file.fileno(), shape, dtype)


def map_block(
    place: tuple[int, int, str], shape: Sequence[int], dtype: "np.dtype[Any]"
) -> Array | None:
    """Return the array of another process, or None where it cannot be mapped.

    It cannot if the process is on another machine, in another container, or of another user.
    """
    pid, number, name = place
    path = system.path_of_file(pid, number)
    try:
        if name not in os.readlink(path):
            return None
        with open(path, "r+b", buffering=0) as file:
            return _mapped(file.fileno(), shape, dtype)
    except OSError:
        return None


def _mapped(file: int, shape: Sequence[int], dtype: "np.dtype[Any]") -> Array:
    return np.frombuffer(mmap.mmap(file, 0), dtype).reshape(shape)
