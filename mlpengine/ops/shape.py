"""Ops that move values without computing: reshape, cast, detach, join, split, slice."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from types import EllipsisType
from typing import Any

import numpy as np

from mlpengine.core.buffers import address_of
from mlpengine.core.errors import IndexRangeError, ShapeError, TapeError
from mlpengine.core.spec import Array, Calls, Slots, Spec, call, floating
from mlpengine.ops._check import listing, need_floats, normal_axis
from mlpengine.ops._part import CopiedEntries
from mlpengine.ops.op import GradOp

IndexEntry = int | slice | EllipsisType | None
"""An entry of a basic index, as in NumPy; None is a new axis."""

_BASIC = (int, np.integer, slice, EllipsisType, type(None))


class _Moved(GradOp):
    """Base class of ops that return x in another shape or dtype."""

    view = True

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield from _moved(x, out)

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield from _moved(dy, dx)


@dataclass(frozen=True)
class Reshape(_Moved, name="reshape"):
    """The same values in another shape; one entry of `shape` may be -1.

    Shapes: x (...), y `shape`.
    Backward: dx = dy in the shape of x.
    Raises: ShapeError if the sizes differ.
    """

    shape: tuple[int, ...]

    def infer(self, x: Spec) -> Spec:
        if not all(isinstance(n, int | np.integer) for n in self.shape):
            raise ShapeError(f"reshape: the shape must have whole numbers (got {self.shape})")
        known = prod(n for n in self.shape if n != -1)
        free = self.shape.count(-1)
        inferred = x.size // known if free and known else 1
        shape = tuple(inferred if n == -1 else n for n in self.shape)
        if free > 1 or min(self.shape, default=0) < -1 or prod(shape) != x.size:
            raise ShapeError(
                f"reshape: x must have as many values as {self.shape} ({listing(x=x)})"
            )
        return Spec(shape, x.dtype)


@dataclass(frozen=True)
class Cast(_Moved, name="cast"):
    """The same values in another floating dtype; float64 is rounded to float32.

    Shapes: x (...), y (...).
    Dtype: x has any numeric dtype; y has `dtype`.
    Backward: dx = dy in the dtype of x.
    Raises: DtypeError unless `dtype` is float32 or float64.
    """

    dtype: str

    def __post_init__(self) -> None:
        floating(self.dtype, "cast")

    def infer(self, x: Spec) -> Spec:
        return Spec(x.shape, np.dtype(self.dtype))


class Detach(_Moved, name="detach"):
    """The same value without a gradient.

    Shapes: x (...), y (...).
    Backward: dx = 0.  Backward skips ops that are needed only for x.
    """

    stops_gradient = True

    def infer(self, x: Spec) -> Spec:
        need_floats(self.name, x=x)
        return x

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(dx.fill, 0)


@dataclass(frozen=True)
class Cat(GradOp, name="cat"):
    """Operands joined along an existing axis.

    `sizes` are the lengths of the operands along the axis.  They are needed only if an operand with
    a gradient lies between operands without a gradient.

    Shapes: operands (..., n_i, ...), y (..., sum of n_i, ...), with the lengths n_i along `axis`.
    Backward: each operand gets its part of dy.
    Raises: ShapeError unless the operands agree on rank, dtype and all other axes.
    """

    axis: int = 0
    sizes: tuple[int, ...] | None = None

    def infer(self, *xs: Spec) -> Spec:
        if not xs:
            raise ShapeError("cat: there must be at least one operand (got none)")
        axis = normal_axis("cat", self.axis, xs[0])
        for x in xs:
            if len(x.shape) != len(xs[0].shape) or _without(x, axis) != _without(xs[0], axis):
                raise ShapeError(
                    f"cat: operands must have one dtype, and agree on all but axis {axis} "
                    f"({listing(**{f'x{i}': x for i, x in enumerate(xs)})})"
                )
        sizes = tuple(x.shape[axis] for x in xs)
        if self.sizes not in (None, sizes):
            raise ShapeError(f"cat: sizes must be the operands' lengths {sizes} (got {self.sizes})")
        return Spec((*xs[0].shape[:axis], sum(sizes), *xs[0].shape[axis + 1 :]), xs[0].dtype)

    def forward(self, *xs: Array, out: Array) -> Calls:
        axis = self.axis % out.ndim
        for x, part in zip(xs, _parts(out, axis, [x.shape[axis] for x in xs]), strict=True):
            yield call(np.copyto, part, x)

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        axis = self.axis % dy.ndim
        sizes = self.sizes or _sizes_of(out, axis, dy.shape[axis])
        for dx, part in zip(out, _parts(dy, axis, sizes), strict=True):
            if dx is not None:
                yield call(np.copyto, dx, part)


@dataclass(frozen=True)
class Chunk(GradOp, name="chunk"):
    """`parts` equal pieces along an axis; an op with several outputs.

    Shapes: x (...), y: a tuple of pieces, each with 1 / parts of the length of x along `axis`.
    Backward: dx = the joined gradients of the pieces; the gradient of an unused piece is zero.
    Raises: ShapeError if the axis does not divide evenly.
    """

    parts: int
    axis: int = 0

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        axis = normal_axis("chunk", self.axis, x)
        whole = isinstance(self.parts, int | np.integer)
        if not whole or self.parts < 1 or x.shape[axis] % self.parts:
            raise ShapeError(
                f"chunk: axis {axis} must divide evenly into {self.parts} parts ({listing(x=x)})"
            )
        length = x.shape[axis] // self.parts
        shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
        return (Spec(shape, x.dtype),) * self.parts

    def forward(self, x: Array, *, out: tuple[Array, ...]) -> Calls:
        for y, part in zip(_tuple(out), np.split(x, self.parts, self.axis), strict=True):
            yield call(np.copyto, y, part)

    def backward(self, dy: tuple[Array, ...], *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            for part, dpart in zip(np.split(dx, self.parts, self.axis), _tuple(dy), strict=True):
                yield call(np.copyto, part, dpart)


@dataclass(frozen=True)
class Slice(CopiedEntries, name="slice"):
    """Basic slicing, y = x[key], with integers, slices, an ellipsis and new axes (None).

    Shapes: x (...), y as in NumPy.
    Backward: dx = dy at the sliced entries, 0 elsewhere.
    Raises: IndexRangeError for an integer outside its axis, or for too many indices; TapeError for
    an index that is not basic, such as an array.
    """

    key: IndexEntry | tuple[IndexEntry, ...]

    def infer(self, x: Spec) -> Spec:
        for entry in self.entries():
            if isinstance(entry, bool) or not isinstance(entry, _BASIC):
                raise TapeError(
                    f"slice: an index must be made of integers and slices; use gather or "
                    f"index_select for arrays (got {entry!r})"
                )
        try:
            return Spec.of(self.part(np.broadcast_to(np.empty((), x.dtype), x.shape)))
        except (IndexError, TypeError, ValueError) as error:
            raise IndexRangeError(f"slice: {error} (key {self.key!r}, x {x})") from None

    def entries(self) -> tuple[Any, ...]:
        """Return the key as a tuple."""
        return self.key if isinstance(self.key, tuple) else (self.key,)

    def part(self, x: Array) -> Array:
        """Return x[key], as a 0-d array if the key leaves no axis."""
        key = self.entries()
        return x[key if any(entry is ... for entry in key) else (*key, ...)]


def _moved(source: Array, target: Array) -> Calls:
    """Yield the call that copies and converts `source`, unless both are the same memory."""
    if address_of(source) != address_of(target):
        yield call(np.copyto, target, source.reshape(target.shape))


def _without(x: Spec, axis: int) -> tuple[object, ...]:
    return (*x.shape[:axis], *x.shape[axis + 1 :], x.dtype)


def _tuple(arrays: Any) -> tuple[Array, ...]:
    return (arrays,) if isinstance(arrays, np.ndarray) else tuple(arrays)


def _parts(x: Array, axis: int, sizes: Any) -> Iterator[Array]:
    """Yield consecutive views of `x` of the given lengths along `axis`."""
    before = (slice(None),) * axis
    for start, stop in pairwise(accumulate(sizes, initial=0)):
        yield x[(*before, slice(start, stop))]


def _sizes_of(slots: Slots, axis: int, total: int) -> list[int]:
    """Return the operands' lengths along `axis`.

    The slot of an operand without a gradient is None, so its length is unknown.  Such operands must
    be adjacent.  The first gets their total length, and the others get length 0.
    """
    sizes = [0 if slot is None else slot.shape[axis] for slot in slots]
    unwanted = [i for i, slot in enumerate(slots) if slot is None]
    if unwanted and unwanted[-1] - unwanted[0] >= len(unwanted):
        raise TapeError(
            f"cat: sizes must be given where operands without gradient lie between others "
            f"(operands {unwanted} of {len(slots)})"
        )
    if unwanted:
        sizes[unwanted[0]] = total - sum(sizes)
    return sizes
