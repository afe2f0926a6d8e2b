"""Values of a generated program: each write to an array makes a new value.

In NumPy, a buffer holds different arrays at different times.  Here, each write makes a new
`MatrixValue`.  So kernels can be fused and reordered before values get their places in memory.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from mlpengine.core.buffers import address_of
from mlpengine.core.fork_locks import cached_property
from mlpengine.core.spec import Array
from mlpengine.ops import Dropout


class UnsupportedError(Exception):
    """An op cannot be compiled; NumPy runs the op instead."""


Origin = Literal["parameters", "rows", "sums"]
"""Origin of a value: computed from parameters only, from rows, or from sums over all rows."""


class Batch(NamedTuple):
    """The size of a batch, and the arrays that hold its rows.

    Attributes:
        rows: number of rows.
        gathered: buffers of inputs, targets and sample weights; empty if they are unknown.
        parameters: the flat vector of all parameters.
        scalar: whether the program becomes scalar code for exports; integers are then stored as
            real numbers.
    """

    rows: int
    gathered: Sequence[Array | None] = ()
    parameters: Array | None = None
    scalar: bool = False

    def kind_of(self, leaf: Array) -> Origin:
        """Return the origin of an array that the program only reads."""
        given = [array for array in self.gathered if array is not None]
        if given:
            return "rows" if address_of(leaf) in map(address_of, given) else "parameters"
        if self.parameters is not None and np.may_share_memory(leaf, self.parameters):
            return "parameters"
        return "rows" if leaf.ndim > 1 and self.times(len(leaf)) else "parameters"

    def times(self, rows: int) -> int:
        """Return `rows` / rows of the batch, or 0 if there is a remainder."""
        times, others = divmod(rows, max(self.rows, 1))
        return 0 if others else times


@dataclass(eq=False, repr=False)
class MatrixValue:
    """A matrix: the last axis of an array as columns, all other axes together as rows.

    Attributes:
        written: whether a kernel computes the value.
        final: whether the value must be in `array` after the program has run.
        padded: whether the value is in the program's own memory, and not in `array`.
        short: whether several rows share a vector register, without padding (see `is_short`).
        stored: whether the value is in memory, and not only in registers.
        mask: the op, if the value is a dropout mask; memory then holds the mask's random bytes.
        kind: the origin of the value.
    """

    name: str
    array: Array
    written: bool = False
    final: bool = False
    padded: bool = False
    short: bool = False
    stored: bool = True
    mask: Dropout | None = None
    kind: Origin = "rows"

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
        """Address of the array."""
        return address_of(self.array)

    def overlaps(self, other: "MatrixValue") -> bool:
        """Return whether the arrays share memory."""
        mine, theirs = self.address, other.address
        return mine < theirs + other.array.nbytes and theirs < mine + self.array.nbytes

    def __repr__(self) -> str:
        return f"{self.name} {list(self.array.shape)}"


def is_short(columns: int, lanes: int) -> bool:
    """Return whether two or more rows of `columns` numbers fill a vector of `lanes` numbers."""
    return 0 < columns < lanes and lanes % columns == 0


def padded_length(columns: int, lanes: int) -> int:
    """Return `columns`, rounded up to a multiple of `lanes`."""
    return -(-columns // lanes) * lanes


@dataclass(eq=False, repr=False)
class Values:
    """All values of a program, collected from its instructions in order.

    Attributes:
        names: C names of arrays by address.
        batch: the batch of the program; None if rows do not matter.
        reshaped: pairs (value, copy): the copy has the same numbers in another shape.
    """

    names: Mapping[int, str]
    batch: Batch | None = None
    all: list[MatrixValue] = field(default_factory=list)
    reshaped: list[tuple[MatrixValue, MatrixValue]] = field(default_factory=list)
    _current: list[MatrixValue] = field(default_factory=list)

    def read(self, array: Array) -> MatrixValue:
        """Return the value in `array`; a vector may be a matrix (1, n) or (n, 1)."""
        _require_plain(array)
        fresh = MatrixValue(self._name("x", array), array.reshape(array.shape or 1))
        other = None
        for value in self._current:
            if value.address == fresh.address and value.array.nbytes == array.nbytes:
                column = array.ndim == 1 and (value.rows, value.columns) == (array.size, 1)
                if value.columns == fresh.columns or column:
                    return value
                other = other or value
            elif value.overlaps(fresh) and array.nbytes:
                raise UnsupportedError(f"an array {array.shape} is only a part of {value!r}")
        if other is not None:
            fresh.written, fresh.kind = True, other.kind
            self.reshaped.append((other, fresh))
        elif self.batch is not None:
            fresh.kind = self.batch.kind_of(array)
        return self._add(fresh)

    def read_each(self, arrays: Iterable[Array | None]) -> list[Any]:
        """Return the value in each array; for an array of None, return None."""
        return [None if array is None else self.read(array) for array in arrays]

    def write(self, array: Array | None, role: str, kind: Origin | None = None) -> MatrixValue:
        """Return a new value for `array`; if `kind` is rows, a vector (n,) becomes (n, 1)."""
        assert array is not None
        _require_plain(array)
        shape = array.shape or (1,)
        if kind == "rows" and len(shape) == 1:
            shape = (*shape, 1)
        fresh = MatrixValue(self._name(role, array), array.reshape(shape), written=True)
        fresh.kind = kind or "rows"
        self._current = [v for v in self._current if not v.overlaps(fresh)]
        return self._add(fresh)

    def make(self, shape: tuple[int, ...], like: MatrixValue, role: str) -> MatrixValue:
        """Return a new value that is in no array of the caller, with dtype and kind of `like`."""
        array = np.empty(shape, like.array.dtype)  # its memory is not used
        value = MatrixValue(f"{role}{len(self.all)}", array, written=True, kind=like.kind)
        self.all.append(value)
        return value

    def count(self, value: MatrixValue) -> int:
        """Return the number of rows of the batch if `value` has rows of the batch, otherwise 1."""
        if value.kind != "rows":
            return 1
        if self.batch is None:
            return len(value.array)
        if not self.batch.times(len(value.array)):
            raise UnsupportedError(f"{value!r}: its rows are not the rows of the batch")
        return self.batch.rows

    def finish(self, output: Array | None = None) -> None:
        """Mark the value of `output` as final; if `output` is None, mark all current values."""
        for value in self.current():
            value.final = output is None or value.address == address_of(output)

    def is_current(self, value: MatrixValue) -> bool:
        """Return whether `current` contains a written value; fast if the value is recent."""
        held = any(other is value for other in reversed(self._current))
        return held and all(copy is not value for _, copy in self.reshaped)

    def current(self) -> list[MatrixValue]:
        """Return the written values that no later write has replaced."""
        copies = {copy for _, copy in self.reshaped}
        return [value for value in self._current if value.written and value not in copies]

    def place(self, lanes: int, any_length: Iterable[MatrixValue]) -> None:
        """Set `padded` and `short` of all written values.

        A final value is in the caller's array if its rows are whole vectors of `lanes` numbers, or
        if it is in `any_length` (its kernels accept rows of any length).  All other values are in
        the program's own memory: kernels may run in another order than NumPy's calls, and could
        overwrite an array that is still needed.  No two final values share memory.
        """
        exceptions = set(any_length)
        for value in self.all:
            if value.written and value.stored:
                fits = value.columns % lanes == 0 or value in exceptions
                value.padded = not (value.final and fits)
                value.short = fits and is_short(value.columns, lanes)

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
    if array.dtype not in (np.float32, np.float64, np.int64):
        raise UnsupportedError(f"dtype {array.dtype}")
