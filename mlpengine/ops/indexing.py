"""Ops that pick entries by integer arrays, and parts of records and mappings by number or key.

Their gradients are scatter-adds. `numpy.add.at` on flat arrays is the fastest way without memory
that grows with each replay: 1 to 3 ns an element, and as much again to compute the flat places
into a planned buffer, against 10 to 20 ns for `numpy.add.at` on rows and 20 to 70 ns for a loop
over rows.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from mlpengine.errors import IndexRangeError, ShapeError
from mlpengine.ops._check import WIDE, listing, need_floats, need_integers, normal_axis
from mlpengine.ops._op import GradOp
from mlpengine.spec import Array, Calls, Slots, Spec, call


@dataclass(frozen=True)
class Gather(GradOp, name="gather"):
    """Entries along an axis by an index array of the same rank, as `numpy.take_along_axis`.

    Shapes: x and index of equal rank whose other axes broadcast; y as the broadcast, with the
    index's length along `axis`.
    Backward: dx = dy added up at the places it came from; repeated indices accumulate.
    Raises: ShapeError for other shapes; IndexRangeError on replay for an index out of range.
    """

    axis: int

    def infer(self, x: Spec, index: Spec) -> Spec:
        need_integers("gather", index=index)
        axis = normal_axis("gather", self.axis, x)
        lengths = list(zip(x.shape, index.shape, strict=False))
        others = [pair for i, pair in enumerate(lengths) if i != axis]
        if len(index.shape) != len(x.shape) or any(n != m and 1 not in (n, m) for n, m in others):
            raise ShapeError(
                f"gather: index must have the rank of x and fit it on all axes but {axis} "
                f"({listing(x=x, index=index)})"
            )
        shape = [m if n == 1 else n for n, m in lengths]
        shape[axis] = index.shape[axis]
        return Spec(tuple(shape), x.dtype)

    def work(self, x: Spec, index: Spec) -> dict[str, Spec]:
        rows = Spec(index.shape, WIDE)
        return {"rows": rows, "places": Spec(self.infer(x, index).shape, WIDE)}

    def forward(self, x: Array, index: Array, *, out: Array, rows: Array, places: Array) -> Calls:
        axis = self.axis % x.ndim
        strides = [1 if n > 1 else 0 for n in x.shape]  # in entries; 0 where x is broadcast
        strides = [s * prod(x.shape[i + 1 :]) for i, s in enumerate(strides)]
        yield from _read(index, rows, x.shape[axis], f"gather: index along axis {axis}")
        if strides[axis] != 1:
            yield call(np.multiply, rows, np.asarray(strides[axis], WIDE), places)
        lines = [n if i != axis else 1 for i, n in enumerate(out.shape)]
        starts = sum(
            s * i for s, i in zip(strides, np.indices(lines, WIDE, sparse=True), strict=True)
        )
        yield call(np.add, rows if strides[axis] == 1 else places, starts, places)
        yield call(x.reshape(-1).take, places, None, out, "clip")

    def backward(self, dy: Array, *, out: Slots, places: Array) -> Calls:
        dx, _ = out
        if dx is not None:
            yield from _scattered(dy, places, dx)


@dataclass(frozen=True)
class IndexSelect(GradOp, name="index_select"):
    """Slices of x along an axis, by a 1-D index; negative indices count from the end.

    Shapes: x (..., length, ...), index (count,), y (..., count, ...).
    Backward: dx = dy added up at the slices it came from; repeated indices accumulate.
    Raises: ShapeError unless index is 1-D; IndexRangeError on replay for an index out of range.
    """

    axis: int = 0

    def infer(self, x: Spec, index: Spec) -> Spec:
        need_integers("index_select", index=index)
        axis = normal_axis("index_select", self.axis, x)
        if len(index.shape) != 1:
            raise ShapeError(f"index_select: index must be 1-D ({listing(x=x, index=index)})")
        return Spec((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)

    def work(self, x: Spec, index: Spec) -> dict[str, Spec]:
        places = Spec(self.infer(x, index).shape, WIDE)
        return {"rows": Spec(index.shape, WIDE), "places": places}

    def forward(self, x: Array, index: Array, *, out: Array, rows: Array) -> Calls:
        axis = self.axis % x.ndim
        yield from _read(index, rows, x.shape[axis], f"index_select: index along axis {axis}")
        yield call(x.take, rows, axis, out, "clip")

    def backward(self, dy: Array, *, out: Slots, rows: Array, places: Array) -> Calls:
        dx, _ = out
        if dx is not None:
            yield from _scattered_rows(dy, rows, places, dx, self.axis % dy.ndim)


class Embedding(GradOp, name="embedding"):
    """Rows of a weight by an index array of any shape; negative indices count from the end.

    Shapes: weight (entries, features), index (...), y (..., features).
    Backward: dweight = dy added up at the rows it came from; repeated indices accumulate.
    Raises: ShapeError unless weight is a matrix; IndexRangeError on replay for an index out of
    range.
    """

    def infer(self, weight: Spec, index: Spec) -> Spec:
        need_floats("embedding", weight=weight)
        need_integers("embedding", index=index)
        if len(weight.shape) != 2:
            raise ShapeError(
                f"embedding: weight must be a matrix ({listing(weight=weight, index=index)})"
            )
        return Spec((*index.shape, weight.shape[1]), weight.dtype)

    def work(self, weight: Spec, index: Spec) -> dict[str, Spec]:
        places = Spec((index.size, weight.shape[1]), WIDE)
        return {"rows": Spec(index.shape, WIDE), "places": places}

    def forward(self, weight: Array, index: Array, *, out: Array, rows: Array) -> Calls:
        yield from _read(index, rows, len(weight), "embedding: index")
        yield call(weight.take, rows, 0, out, "clip")

    def backward(self, dy: Array, *, out: Slots, rows: Array, places: Array) -> Calls:
        dweight, _ = out
        if dweight is not None:
            yield from _scattered_rows(
                dy.reshape(places.shape), rows.reshape(-1), places, dweight, 0
            )


class _Part(GradOp):
    """One part of several that lie one behind the other along an axis."""

    axis: int

    def infer(self, x: Spec) -> Spec:
        axis = normal_axis(self.name, self.axis, x)
        start, stop = self._bounds(x.shape[axis])
        return Spec((*x.shape[:axis], stop - start, *x.shape[axis + 1 :]), x.dtype)

    def _bounds(self, length: int) -> tuple[int, int]:
        """Return where the part starts and stops in a record of `length`; check that it fits."""
        raise NotImplementedError

    def _view(self, x: Array) -> Array:
        axis = self.axis % x.ndim
        return x[(*(slice(None),) * axis, slice(*self._bounds(x.shape[axis])))]

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.copyto, out, self._view(x))

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(dx.fill, 0)
            yield call(np.copyto, self._view(dx), dy)


@dataclass(frozen=True)
class StructField(_Part, name="struct_field"):
    """One field of a record that is stored as the concatenation of its fields.

    `fields` is the number of fields, all of one size, or the sizes of all fields in order.

    Shapes: x (..., sum of the sizes, ...) along `axis`, y (..., the field's size, ...).
    Backward: dx = dy in the field's place, 0 elsewhere.
    Raises: IndexRangeError for a field that is not there; ShapeError unless the record fits.
    """

    field: int
    fields: int | tuple[int, ...]
    axis: int = -1

    def _bounds(self, length: int) -> tuple[int, int]:
        return _bounds(self.name, self.field, self.fields, length)


@dataclass(frozen=True)
class MapLookup(_Part, name="map_lookup"):
    """One entry of an ordered mapping that is stored as the concatenation of its values.

    `keys` are all keys in the order of insertion, or their number, with `key` then a number too.
    `sizes` are the lengths of the values; without them all have the same.

    Shapes: x (..., sum of the sizes, ...) along `axis`, y (..., the value's size, ...).
    Backward: dx = dy in the value's place, 0 elsewhere.
    Raises: IndexRangeError, listing the keys, for a key that is not there; ShapeError unless the
    mapping fits.
    """

    key: Hashable
    keys: int | tuple[Hashable, ...]
    sizes: tuple[int, ...] | None = None
    axis: int = -1

    def _bounds(self, length: int) -> tuple[int, int]:
        keys = tuple(range(self.keys)) if isinstance(self.keys, int) else self.keys
        if self.key not in keys:
            listed = ", ".join(map(repr, keys))
            raise IndexRangeError(f"map_lookup: key must be there ({self.key!r}, keys {listed})")
        return _bounds(self.name, keys.index(self.key), self.sizes or len(keys), length)


def _bounds(where: str, part: int, parts: int | tuple[int, ...], length: int) -> tuple[int, int]:
    """Return where part number `part` starts and stops, the sizes being given or all equal."""
    count = parts if isinstance(parts, int) else len(parts)
    if not 0 <= part < count:
        raise IndexRangeError(f"{where}: part must be below their number (part {part} of {count})")
    sizes = (length // count,) * count if isinstance(parts, int) else parts
    if sum(sizes) != length:
        raise ShapeError(f"{where}: parts {parts} must fill the axis exactly (its length {length})")
    ends = list(accumulate(sizes, initial=0))
    return ends[part], ends[part + 1]


class _Reader:
    """The call that checks an index and writes it to `rows`, counted from the front.

    As an unsigned number a negative one is huge, so the largest entry bounds both ends; `argmax`
    finds it in 0.4 us where `numpy.max` takes 1.2 us.
    """

    def __init__(self, index: Array, rows: Array, length: int, what: str) -> None:
        self.index, self.rows, self.length, self.what = index, rows, length, what
        self.given = index.reshape(-1).view(f"u{index.itemsize}")
        self.found = rows.reshape(-1).view(f"u{rows.itemsize}")
        self.span = np.array(length, WIDE)
        self.sign = np.array(8 * index.itemsize - 1, index.dtype)
        self.signed = index.dtype.kind == "i"

    def __call__(self) -> None:
        if self.given[self.given.argmax()] < self.length:
            np.copyto(self.rows, self.index)
            return
        if self.signed:
            # the sign over all bits, times the length: 45 us for 65,536, np.remainder 400 us
            np.right_shift(self.index, self.sign, self.rows)
            np.bitwise_and(self.rows, self.span, self.rows)
            np.add(self.rows, self.index, self.rows)
            if self.found[self.found.argmax()] < self.length:
                return
        wrong = (self.index < -self.length) | (self.index >= self.length)
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise IndexRangeError(
            f"{self.what} must be from {-self.length} to {self.length - 1} "
            f"(index {self.index[place]} at {place})"
        )


def _read(index: Array, rows: Array, length: int, what: str) -> Calls:
    """Yield the call that reads an index, unless it is empty."""
    if index.size:
        yield _Reader(index, rows, length, what)


def _scattered(dy: Array, places: Array, dx: Array) -> Calls:
    """Yield the calls that set dx to the sum of dy at flat `places`."""
    yield call(dx.fill, 0)
    yield call(np.add.at, dx.reshape(-1), places.reshape(-1), dy.reshape(-1))


def _scattered_rows(dy: Array, rows: Array, places: Array, dx: Array, axis: int) -> Calls:
    """Yield the calls that set dx to the sum of the slices of dy at `rows` along `axis`."""
    outer, inner = prod(dx.shape[:axis]), prod(dx.shape[axis + 1 :])
    spread: Any = places.reshape(outer, rows.size, inner)
    starts = np.arange(outer, dtype=WIDE)[:, None, None] * (dx.shape[axis] * inner)
    yield call(np.multiply, rows[:, None], np.asarray(inner, WIDE), spread)
    yield call(np.add, spread, starts + np.arange(inner, dtype=WIDE), spread)
    yield from _scattered(dy, places, dx)
