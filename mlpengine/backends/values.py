"""Values of a generated program: one for every write to an array of its instructions.

Planned arrays share memory over time.  Here every write creates a new `MatrixValue`, so that
kernels are fused and reordered by their operands, independently of the memory that NumPy uses.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from mlpengine.common.buffers import address_of
from mlpengine.common.locks import cached_property
from mlpengine.ops import Dropout
from mlpengine.spec import Array


class UnsupportedError(Exception):
    """There is no compiled rule for this; NumPy computes it instead."""


@dataclass(eq=False)
class MatrixValue:
    """A matrix: the last axis of an array as columns, all others together as rows.

    `written` tells whether a kernel computes it, `final` whether it must be in `array` after the
    replay.  A `mask` is that of a dropout, whose random bytes are in memory.  `padded` values are
    stored in the program's workspace, with rows padded to whole vectors; the others in `array`
    itself.
    """

    name: str
    array: Array
    written: bool = False
    final: bool = False
    padded: bool = False
    stored: bool = True
    mask: Dropout | None = None

    @cached_property
    def rows(self) -> int:
        """Number of rows; 1 for a vector."""
        return prod(self.array.shape[:-1])

    @cached_property
    def columns(self) -> int:
        """Number of columns."""
        return self.array.shape[-1] if self.array.ndim else 1

    @cached_property
    def address(self) -> int:
        """The address of the array."""
        return address_of(self.array)

    def overlaps(self, other: "MatrixValue") -> bool:
        """Return whether the arrays share memory."""
        mine, theirs = self.address, other.address
        return mine < theirs + other.array.nbytes and theirs < mine + self.array.nbytes

    def __repr__(self) -> str:
        return f"{self.name} {list(self.array.shape)}"


def padded_length(columns: int, lanes: int) -> int:
    """Return the length of a row of whole vectors."""
    return -(-columns // lanes) * lanes


@dataclass(eq=False)
class Values:
    """The values of an instruction list, read in its order."""

    names: Mapping[int, str]
    all: list[MatrixValue] = field(default_factory=list)
    _current: list[MatrixValue] = field(default_factory=list)

    def read(self, array: Array) -> MatrixValue:
        """Return the value that `array` holds now.

        Raises: UnsupportedError if it holds parts of several, or is not contiguous.
        """
        _require_plain(array)
        fresh = MatrixValue(self._name("x", array), array)
        for value in self._current:
            same = value.address == fresh.address and value.array.nbytes == array.nbytes
            if same and value.columns == fresh.columns:
                return value
            if value.overlaps(fresh) and array.nbytes:
                raise UnsupportedError(f"{array.shape} reads a part of {value!r}")
        return self._add(fresh)

    def read_each(self, arrays: Iterable[Array | None]) -> list[Any]:
        """Return the values that arrays hold now, None for one that is left out."""
        return [None if array is None else self.read(array) for array in arrays]

    def write(self, array: Array | None, role: str) -> MatrixValue:
        """Return a new value that `array` holds from now on."""
        assert array is not None
        _require_plain(array)
        fresh = MatrixValue(self._name(role, array), array, written=True)
        self._current = [v for v in self._current if not v.overlaps(fresh)]
        return self._add(fresh)

    def finish(self) -> None:
        """Mark the values that must be in the caller's arrays after the replay."""
        for value in self._current:
            value.final = value.written

    def place(self, lanes: int, any_length: Iterable[MatrixValue]) -> None:
        """Assign the values whose rows are not whole vectors to the workspace.

        The values `any_length` are exceptions: their kernels take rows of any length.  Values that
        are not final are in the workspace too, because kernels may run in another order than in
        NumPy; no two final values share memory.
        """
        exceptions = set(any_length)
        for value in self.all:
            if value.written and value.stored:
                fits = value.columns % lanes == 0 or value in exceptions
                value.padded = not (value.final and fits)

    def _add(self, value: MatrixValue) -> MatrixValue:
        self.all.append(value)
        self._current.append(value)
        return value

    def _name(self, role: str, array: Array) -> str:
        given = re.sub(r"\W", "_", self.names.get(address_of(array), ""), flags=re.ASCII)
        if given and all(v.name != given for v in self.all):
            return given
        return f"{role}{len(self.all)}"


def _require_plain(array: Array) -> None:
    if not array.flags.c_contiguous:
        raise UnsupportedError("arrays must be contiguous")
    if array.dtype not in (np.float32, np.float64, np.int64) or array.ndim < 1:
        raise UnsupportedError(f"dtype {array.dtype}, {array.ndim} axes")
