"""Ops that select entries by integer arrays, fields of records, and values of mappings.

The gradient of a selection by an array is a scatter-add: `numpy.add.at` on flat arrays.  A work
buffer holds the positions in the flat arrays, so no call allocates memory.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from mlpengine.core.errors import IndexRangeError, ShapeError
from mlpengine.core.spec import Array, Call, Calls, Slots, Spec, call
from mlpengine.ops._check import WIDE, listing, need_floats, need_integers, normal_axis
from mlpengine.ops._part import CopiedEntries
from mlpengine.ops.op import GradOp


@dataclass(frozen=True)
class Gather(GradOp, name="gather"):
    """Entries of x along an axis, selected by an index array, as in `numpy.take_along_axis`.

    Shapes: x and index have equal rank and broadcast along all axes but `axis`.  y has the
    broadcast shape, with the length of index along `axis`.
    Backward: dx = dy added at the indexed positions; repeated indices accumulate.
    Raises: ShapeError for other shapes; IndexRangeError in forward for an index out of range.
    """

    axis: int

    def infer(self, x: Spec, index: Spec) -> Spec:
        need_integers("gather", index=index)
        axis = normal_axis("gather", self.axis, x)
        lengths = list(zip(x.shape, index.shape, strict=False))
        others = [pair for i, pair in enumerate(lengths) if i != axis]
        if len(index.shape) != len(x.shape) or any(n != m and 1 not in (n, m) for n, m in others):
            raise ShapeError(
                f"gather: index must have the rank of x and broadcast on all axes but {axis} "
                f"({listing(x=x, index=index)})"
            )
        shape = [m if n == 1 else n for n, m in lengths]
        shape[axis] = index.shape[axis]
        return Spec(tuple(shape), x.dtype)

    def work(self, x: Spec, index: Spec) -> dict[str, Spec]:
        return _workspace(index) | {"places": Spec(self.infer(x, index).shape, WIDE)}

    def forward(
        self, x: Array, index: Array, *, out: Array, workspace: Array, places: Array
    ) -> Calls:
        axis = self.axis % x.ndim
        strides = [1 if n > 1 else 0 for n in x.shape]  # 0 where x broadcasts
        strides = [s * prod(x.shape[i + 1 :]) for i, s in enumerate(strides)]
        rows, calls = _nonnegative(index, workspace, x.shape[axis])
        yield from _in_range(index, x.shape[axis], f"gather: index along axis {axis}")
        yield from calls
        yield call(np.multiply, rows, np.array(strides[axis], WIDE), places)
        lines = [n if i != axis else 1 for i, n in enumerate(out.shape)]
        starts = sum(
            s * i for s, i in zip(strides, np.indices(lines, WIDE, sparse=True), strict=True)
        )
        yield call(np.add, places, starts, places)
        yield call(x.reshape(-1).take, places, None, out, "clip")

    def backward(self, dy: Array, *, out: Slots, places: Array) -> Calls:
        dx, _ = out
        if dx is not None:
            yield from _scattered(dy, places, dx)


@dataclass(frozen=True)
class IndexSelect(GradOp, name="index_select"):
    """Slices of x along an axis, selected by a 1-D index; index -1 is the last slice.

    Shapes: x (..., length, ...), index (count,), y (..., count, ...).
    Backward: dx = dy added to the indexed slices; repeated indices accumulate.
    Raises: ShapeError unless index is 1-D; IndexRangeError in forward for an index out of range.
    """

    axis: int = 0

    def infer(self, x: Spec, index: Spec) -> Spec:
        need_integers("index_select", index=index)
        axis = normal_axis("index_select", self.axis, x)
        if len(index.shape) != 1:
            raise ShapeError(f"index_select: index must be 1-D ({listing(x=x, index=index)})")
        return Spec((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)

    def work(self, x: Spec, index: Spec) -> dict[str, Spec]:
        return _workspace(index) | {"places": Spec(self.infer(x, index).shape, WIDE)}

    def forward(self, x: Array, index: Array, *, out: Array, workspace: Array) -> Calls:
        axis = self.axis % x.ndim
        yield from _in_range(index, x.shape[axis], f"index_select: index along axis {axis}")
        yield from _taken(x, index, workspace, axis, out)

    def backward(
        self, dy: Array, index: Array, *, out: Slots, counting: Array, places: Array
    ) -> Calls:
        dx, _ = out
        if dx is not None:
            yield from _scattered_rows(dy, index, counting, places, dx, self.axis % dy.ndim)


class Embedding(GradOp, name="embedding"):
    """Rows of a weight, selected by an index array; index -1 is the last row.

    Shapes: weight (entries, features), index (...), y (..., features).
    Backward: dweight = dy added to the indexed rows; repeated indices accumulate.
    Raises: ShapeError unless weight is a matrix; IndexRangeError in forward for an index out of
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
        return _workspace(index) | {"places": Spec((index.size, weight.shape[1]), WIDE)}

    def forward(self, weight: Array, index: Array, *, out: Array, workspace: Array) -> Calls:
        yield from _in_range(index, len(weight), "embedding: index")
        yield from _taken(weight, index, workspace, 0, out)

    def backward(
        self, dy: Array, index: Array, *, out: Slots, counting: Array, places: Array
    ) -> Calls:
        dweight, _ = out
        if dweight is not None:
            dy = dy.reshape(places.shape)
            yield from _scattered_rows(dy, index, counting, places, dweight, 0)


class _Section(CopiedEntries):
    """Base class of ops that return one of several parts concatenated along an axis."""

    axis: int

    def infer(self, x: Spec) -> Spec:
        axis = normal_axis(self.name, self.axis, x)
        start, stop = self.bounds(x.shape[axis])
        return Spec((*x.shape[:axis], stop - start, *x.shape[axis + 1 :]), x.dtype)

    def bounds(self, length: int) -> tuple[int, int]:
        """Return start and stop of the part; raise ShapeError unless the parts fill `length`."""
        raise NotImplementedError

    def part(self, x: Array) -> Array:
        axis = self.axis % x.ndim
        return x[(*(slice(None),) * axis, slice(*self.bounds(x.shape[axis])))]


@dataclass(frozen=True)
class StructField(_Section, name="struct_field"):
    """One field of a record; x is the concatenation of all fields of the record.

    `field` is the number of the field, from 0.  `fields` are the sizes of all fields or, if all
    sizes are equal, the number of fields.

    Shapes: x (..., sum of the sizes, ...) along `axis`, y (..., the field's size, ...).
    Backward: dx = dy in the field's place, 0 elsewhere.
    Raises: IndexRangeError for a field that does not exist; ShapeError unless the fields fill x.
    """

    field: int
    fields: int | tuple[int, ...]
    axis: int = -1

    def bounds(self, length: int) -> tuple[int, int]:
        return _bounds(self.name, self.field, self.fields, length)


@dataclass(frozen=True)
class MapLookup(_Section, name="map_lookup"):
    """One value of an ordered mapping; x is the concatenation of all values of the mapping.

    `keys` are all keys in order, or a number n for the keys 0 to n - 1.  `sizes` are the lengths of
    the values; by default, all lengths are equal.

    Shapes: x (..., sum of the sizes, ...) along `axis`, y (..., the value's size, ...).
    Backward: dx = dy in the value's place, 0 elsewhere.
    Raises: IndexRangeError for an unknown key; ShapeError unless the values fill x.
    """

    key: Hashable
    keys: int | tuple[Hashable, ...]
    sizes: tuple[int, ...] | None = None
    axis: int = -1

    def bounds(self, length: int) -> tuple[int, int]:
        keys = tuple(range(self.keys)) if isinstance(self.keys, int) else self.keys
        if self.key not in keys:
            listed = ", ".join(map(repr, keys))
            raise IndexRangeError(f"map_lookup: key must be one of {listed} (got {self.key!r})")
        return _bounds(self.name, keys.index(self.key), self.sizes or len(keys), length)


def _bounds(where: str, part: int, parts: int | tuple[int, ...], length: int) -> tuple[int, int]:
    """Return start and stop of a part; `parts` are all sizes, or the number of equal parts."""
    count = parts if isinstance(parts, int) else len(parts)
    if not 0 <= part < count:
        raise IndexRangeError(f"{where}: part must be from 0 to {count - 1} (got {part})")
    sizes = (length // count,) * count if isinstance(parts, int) else parts
    if sum(sizes) != length:
        raise ShapeError(f"{where}: parts must fill the axis (parts {parts}, length {length})")
    ends = list(accumulate(sizes, initial=0))
    return ends[part], ends[part + 1]


def _in_range(index: Array, length: int, what: str) -> Calls:
    """Yield the call that checks that all indices are at least -length and below length."""
    if index.size:
        yield call(_check, index, index.reshape(-1), length, what)


def _check(index: Array, flat: Array, length: int, what: str) -> None:
    # argmax is faster than np.maximum.reduce
    if flat[flat.argmin()] >= -length and flat[flat.argmax()] < length:
        return
    wrong = (index < -length) | (index >= length)
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    raise IndexRangeError(
        f"{what} must be from {-length} to {length - 1} (index {index[place]} at {place})"
    )


def _widened(index: Array, workspace: Array) -> tuple[Array, tuple[Call, ...]]:
    """Return the index with the dtype `WIDE`, and the calls that convert the index, or ()."""
    if index.dtype == WIDE:
        return index, ()
    wide = workspace[0, ...]
    return wide, (call(np.copyto, wide, index),)


def _nonnegative(index: Array, workspace: Array, length: int) -> tuple[Array, tuple[Call, ...]]:
    """Return a buffer for the index without negative entries, and the calls that fill the buffer.

    A negative index stands for index + length.  A negative number is huge as an unsigned number, so
    the result is the unsigned minimum of index and index + length.  This is faster than
    `numpy.remainder`.
    """
    wide, calls = _widened(index, workspace)
    counted: Array = workspace[1, ...]
    given, shifted = wide.view(np.uintp), counted.view(np.uintp)
    added = call(np.add, given, np.array(length, np.uintp), shifted)
    return counted, (*calls, added, call(np.minimum, given, shifted, out=shifted))


def _taken(x: Array, index: Array, workspace: Array, axis: int, out: Array) -> Calls:
    """Yield the calls that take slices of x by a checked index."""
    rows, calls = _widened(index, workspace)
    yield from calls
    yield call(x.take, rows, axis, out, "wrap")  # "wrap" also resolves negative indices


def _scattered(dy: Array, places: Array, dx: Array) -> Calls:
    """Yield the calls that clear dx, and then add dy at the flat positions `places`."""
    yield call(dx.fill, 0)
    yield call(np.add.at, dx.reshape(-1), places.reshape(-1), dy.reshape(-1))


def _scattered_rows(
    dy: Array, index: Array, workspace: Array, places: Array, dx: Array, axis: int
) -> Calls:
    """Yield the calls that clear dx, and then add the slices of dy at `index` along `axis`."""
    outer, inner = prod(dx.shape[:axis]), prod(dx.shape[axis + 1 :])
    spread: Any = places.reshape(outer, index.size, inner)
    starts = np.arange(outer, dtype=WIDE)[:, None, None] * (dx.shape[axis] * inner)
    rows, calls = _nonnegative(index, workspace, dx.shape[axis])
    yield from calls
    yield call(np.multiply, rows.reshape(-1, 1), np.array(inner, WIDE), spread)
    yield call(np.add, spread, starts + np.arange(inner, dtype=WIDE), spread)
    yield from _scattered(dy, places, dx)


def _workspace(index: Spec) -> dict[str, Spec]:
    """Return the specs of the buffers in which forward and backward convert indices."""
    workspace = Spec((2, *index.shape), WIDE)
    return {"workspace": workspace, "counting": workspace}
