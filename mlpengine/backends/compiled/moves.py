"""Copies: reshape, slice, concatenation, transpose, broadcast, and zeros."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel, present
from mlpengine.backends.compiled.statements import Assign, ForLoop, Statement
from mlpengine.backends.compiled.strides import (
    LoopAxis,
    address_in,
    contiguous,
    fit_axes,
    index_of,
    nest,
)
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, Origin, UnsupportedError, Values
from mlpengine.core.buffers import address_of
from mlpengine.core.spec import Array
from mlpengine.formula import constant


class Entries(NamedTuple):
    """A copy of `factor` * entries of each row, along `axes`; zeros if `source` is None.

    `starts` are the positions of the first entry, and `pitches` the distances between rows, in the
    target and in the source.  If `adds` is True, the entries are added to the target.
    """

    source: MatrixValue | None
    axes: Sequence[LoopAxis]
    starts: tuple[int, ...]
    pitches: tuple[int, ...]
    factor: float = 1.0
    adds: bool = False


@dataclass(eq=False, repr=False)
class Move(Kernel):
    """Copies `parts` into `out`, row by row for `count` rows of the batch."""

    out: MatrixValue
    parts: Sequence[Entries]
    text: str
    count: int = field(default=1)

    any_phase = True

    def __post_init__(self) -> None:
        self.parts = [p._replace(axes=fit_axes(p.axes, self._ends(p))) for p in self.parts]
        sources = [part.source for part in self.parts if part.source is not None]
        self.reads, self.writes = [*dict.fromkeys(sources)], [self.out]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> Sequence[Kernel] | None:
        """Return the moves of an instruction, or None if its NumPy calls do more than copy."""
        op, calls = instruction.op, getattr(instruction, "calls", ())
        if not calls:
            return [] if op is not None and op.view else None
        copies = [copy for call in calls if (copy := _copied(call)) is not None]
        if len(copies) < len(calls):
            return None
        read = [values.read(a) for a in _arrays(instruction.reads)]
        kinds: tuple[Origin, ...] = ("sums", "rows", "parameters")
        kind = next((k for k in kinds if any(v.kind == k for v in read)), kinds[-1])
        moves = []
        for array in _arrays(instruction.writes):
            out = values.write(array, f"{op.name if op else 'zeros'}_", kind)
            count = values.count(out)
            scalar = values.batch is not None and values.batch.scalar
            parts = [
                _part(t, s, out, read, count, scalar=scalar)
                for t, s in copies
                if _lies_in(t, array)
            ]
            moves.append(cls(out, parts, f"{out.name} = {op.name if op else 0} moved", count))
        return moves

    @classmethod
    def spread(
        cls, source: MatrixValue, shape: Sequence[int], out: MatrixValue, count: int,
        factor: float = 1.0,
    ) -> "Move":  # fmt: skip
        """Return the move that broadcasts `source`, in the shape `shape`, to `out`."""
        lead = out.array.ndim - len(shape)
        strides = [0 if n == 1 else s for n, s in zip(shape, contiguous(shape), strict=True)]
        ends = contiguous(out.array.shape), (*(0,) * lead, *strides)
        axes = [
            LoopAxis(n, both)
            for n, both in zip(out.array.shape, zip(*ends, strict=True), strict=True)
        ]
        part = _by_rows(source, axes, (0, 0), out, count, factor)
        return cls(out, [part], f"{out.name} = {source.name} repeated", count)

    @classmethod
    def reshaped(cls, source: MatrixValue, out: MatrixValue, count: int) -> "Move":
        """Return the move that copies `source` to `out`, which has another shape."""
        axes = [LoopAxis(source.array.size, (1, 1))]
        part = _by_rows(source, axes, (0, 0), out, count)
        return cls(out, [part], f"{out.name} = {source.name} in another shape", count)

    def emit(self, writer: Writer, name: str) -> None:
        layout, row = writer.layout, list[Statement]()
        for part in self.parts:
            axes = sorted(part.axes, key=lambda axis: -abs(axis.strides[0]))
            loops = [(f"j_{i}", axis.length) for i, axis in enumerate(axes)]
            places = []
            for k, value in enumerate(self._ends(part)):
                steps = [("i", part.pitches[k])]
                steps += [(f"j_{i}", axis.strides[k]) for i, axis in enumerate(axes)]
                places.append(f"*({address_in(layout, value, steps, part.starts[k])})")
            given = "0" if part.source is None else places[1]
            if part.factor != 1:
                given = f"{given} * (real){part.factor!r}"
            row += nest(loops, [f"{places[0]} {'+=' if part.adds else '='} {given};"])
        body = [ForLoop("i", "first", "last", row)]
        writer.add(name, self.called_in, self.count, self.text, body, self.reads, self.writes)

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        lines = list[Statement]()
        for part in self.parts:
            places = [
                writer.element(value, index_of(start, [axis.strides[k] for axis in part.axes]))
                for k, (value, start) in enumerate(zip(self._ends(part), part.starts, strict=False))
            ]
            given = constant(0) if part.source is None else places[1]
            given = given if part.factor == 1 else given * part.factor
            loops = [(f"j_{i}", axis.length) for i, axis in enumerate(part.axes)]
            lines += nest(loops, [Assign(places[0], given, "+" * part.adds)])
        return lines

    def _ends(self, part: Entries) -> list[MatrixValue]:
        return present(self.out, part.source)


def _arrays(given: Sequence[Any]) -> Iterator[Array]:
    for each in given:
        if isinstance(each, tuple):
            yield from _arrays(each)
        elif each is not None:
            yield each


def _copied(call: Any) -> tuple[Array, Array | None] | None:
    """Return (target, source) of a copy, (target, None) of zeros, or None for another call."""
    if not isinstance(call, partial) or call.keywords:
        return None
    if call.func is np.copyto:
        to, source = call.args
        return to, source
    array = getattr(call.func, "__self__", None)
    if isinstance(array, np.ndarray) and call.func == array.fill and call.args == (0,):
        return array, None
    return None


def _lies_in(part: Array, array: Array) -> bool:
    start = address_of(part) - address_of(array)
    return 0 <= start < max(array.nbytes, 1)


def _part(
    to: Array,
    source: Array | None,
    out: MatrixValue,
    read: Sequence[MatrixValue],
    count: int,
    *,
    scalar: bool,
) -> Entries:
    """Return the copy of array `source` to `to`, a part of `out`; for `scalar` see `Batch`."""
    given: list[tuple[Array, MatrixValue]] = [(to, out)]
    value = None
    if source is not None:
        plain = source.dtype == to.dtype and to.dtype.kind == "f"
        if not plain and not (scalar and source.dtype.kind == "i"):
            raise UnsupportedError(f"conversion of {source.dtype} to {to.dtype}")
        value = next(v for v in read if _lies_in(source, v.array))
        given.append((np.broadcast_to(source, to.shape), value))
    strides = [tuple(n // array.itemsize for n in array.strides) for array, _ in given]
    axes = [LoopAxis(n, tuple(s[i] for s in strides)) for i, n in enumerate(to.shape)]
    starts = tuple((address_of(a) - v.address) // a.itemsize for a, v in given)
    return _by_rows(value, axes, starts, out, count)


def _by_rows(
    source: MatrixValue | None,
    axes: Sequence[LoopAxis],
    starts: tuple[int, ...],
    out: MatrixValue,
    count: int,
    factor: float = 1.0,
) -> Entries:
    """Return the copy over `axes`, divided into `count` rows along the first axis."""
    if count == 1:
        return Entries(source, axes, starts, (0,) * len(starts), factor)
    rows = [out.array.size // count]
    if source is not None:
        rows.append(source.array.size // count)
    first, *others = axes
    times, left = divmod(first.length, count)
    pitches = tuple(times * n for n in first.strides)
    ends = [*zip(pitches, starts, rows, strict=True)][
        : 2 if source and source.kind == "rows" else 1
    ]
    if left or any(pitch != length or start >= length for pitch, start, length in ends):
        raise UnsupportedError(f"{out!r}: its rows are not the rows of the batch")
    axes = [LoopAxis(times, first.strides), *others]
    return Entries(source, axes, starts, pitches, factor)
