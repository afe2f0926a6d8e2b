"""Addresses of entries in arrays with padded rows, computed from strides without padding."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.statements import ForLoop, Statement
from mlpengine.backends.values import MatrixValue, UnsupportedError


class LoopAxis(NamedTuple):
    """An axis of a loop: its length, and its stride in each array, in entries (no padding)."""

    length: int
    strides: tuple[int, ...]


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous array of `shape`, in entries."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def fit_axes(axes: Iterable[LoopAxis], values: Sequence[MatrixValue]) -> list[LoopAxis]:
    """Split `axes`: in every value, each axis must stay within a row or step over whole rows."""
    fitted = [*axes]
    for k, value in enumerate(values):
        columns, split = value.columns, list[LoopAxis]()
        for length, strides in fitted:
            step, inside = strides[k], length
            if 0 < step < columns <= step * (length - 1):
                inside = columns // step
                if columns % step or length % inside:
                    raise UnsupportedError(f"{value!r}: its rows have other lengths")
            split.append(LoopAxis(length // inside, tuple(inside * n for n in strides)))
            split.append(LoopAxis(inside, strides))
        fitted = [axis for axis in split if axis.length != 1]
        steps = [(axis.length - 1, abs(axis.strides[k])) for axis in fitted]
        span = sum(last * step for last, step in steps if step < columns)
        if span >= columns or any(step > columns and step % columns for _, step in steps):
            raise UnsupportedError(f"{value!r}: its rows have other lengths")
    return fitted


def in_memory(layout: Layout, value: MatrixValue, distance: int) -> int:
    """Return the distance in memory of two entries that are `distance` apart without padding."""
    sign, size = (-1, -distance) if distance < 0 else (1, distance)
    rows, columns = divmod(size, value.columns)
    return sign * (rows * layout.stride(value) + columns)


def address_in(
    layout: Layout, value: MatrixValue, steps: Iterable[tuple[str, int]], start: int
) -> str:
    """Return the C address of entry `start` + variable * step + ..., for (variable, step) pairs."""
    terms = [f" + {name} * {n}" for name, step in steps if (n := in_memory(layout, value, step))]
    first = in_memory(layout, value, start)
    return value.name + "".join(terms) + (f" + {first}" if first else "")


def index_of(start: int, strides: Sequence[int], role: str = "j") -> str:
    """Return the C index `start` + ``j_0`` * strides[0] + ``j_1`` * strides[1] + ..."""
    terms = [f" {'-' if n < 0 else '+'} {role}_{i} * {abs(n)}" for i, n in enumerate(strides) if n]
    return f"{start}{''.join(terms)}"


def nest(loops: Sequence[tuple[str, int]], body: Sequence[Statement]) -> Sequence[Statement]:
    """Return nested loops, the last innermost; a loop is a variable and its number of values."""
    for name, length in reversed(loops):
        body = [ForLoop(name, 0, length, body)]
    return body
