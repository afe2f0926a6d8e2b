"""Geometry of kernels that slide over images (batch, channels, height, width)."""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mlpengine.core.errors import ShapeError, UsageError
from mlpengine.core.spec import Array, Spec

Pair = tuple[int, int]

Covered = tuple[Array, tuple[slice, ...]]
"""A strided view of pixels, and the index of the windows that contain these pixels."""


def pair(where: str, name: str, value: int | Pair, lowest: int) -> Pair:
    """Return `value` for height and width; raise UsageError unless both are at least `lowest`."""
    numbers = tuple(value) if np.iterable(value) else (value, value)
    whole = all(isinstance(n, int | np.integer) for n in numbers)
    if len(numbers) != 2 or not whole or min(numbers) < lowest:
        raise UsageError(f"{where}: {name} must be one or two integers from {lowest} (got {value})")
    return numbers[0], numbers[1]


class Window(NamedTuple):
    """A kernel that slides over padded images; every pair is (height, width)."""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair = (1, 1)

    def places(self, where: str, x: Spec) -> Pair:
        """Return the number of windows in each direction; raise ShapeError if no window fits."""
        spans = [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        sides = [n + 2 * p for n, p in zip(x.shape[2:], self.padding, strict=True)]
        if any(side < span for side, span in zip(sides, spans, strict=True)):
            raise ShapeError(
                f"{where}: the kernel must fit into the padded image "
                f"(kernel spans {spans[0]} x {spans[1]}, padding {self.padding}, x {x})"
            )
        rows, columns = (
            (side - span) // step + 1
            for side, span, step in zip(sides, spans, self.stride, strict=True)
        )
        return rows, columns

    def framed(self, x: Spec) -> Spec:
        """Return the spec of the padded images; an empty spec if there is no padding."""
        top, left = self.padding
        padded = (*x.shape[:2], x.shape[2] + 2 * top, x.shape[3] + 2 * left)
        return Spec(padded if top or left else (0,), x.dtype)

    def inner(self, frame: Array) -> Array:
        """Return the view of the padded images `frame` without the padding."""
        (top, left), (height, width) = self.padding, frame.shape[2:]
        return frame[:, :, top : height - top, left : width - left]

    def patches(self, frame: Array, places: tuple[int, ...]) -> Array:
        """Return a view (channels, kh, kw, batch, rows, columns) of the pixels in all windows."""
        batch, channels, *sides = frame.strides
        steps = [s * d for s, d in zip(sides, self.dilation, strict=True)]
        jumps = [s * d for s, d in zip(sides, self.stride, strict=True)]
        shape = (frame.shape[1], *self.kernel, frame.shape[0], *places)
        return as_strided(frame, shape, (channels, *steps, batch, *jumps))

    def covered(self, x: Array, places: tuple[int, ...]) -> Iterator[Covered]:
        """Yield, for each kernel entry, the pixels under this entry and their windows."""
        for entry in product(*map(range, self.kernel)):
            pixels, windows = [slice(None)] * 2, [slice(None)] * 2
            for at, n, s, p, count in zip(
                entry, x.shape[2:], self.stride, self.padding, places, strict=True
            ):
                first = max(0, -((at - p) // s))
                stop = max(first, min(count, (n - 1 + p - at) // s + 1))
                start = first * s + at - p
                pixels.append(slice(start, start + (stop - first) * s, s))
                windows.append(slice(first, stop))
            yield x[tuple(pixels)], tuple(windows)

    def first_inside(self, places: tuple[int, ...]) -> Array:
        """Return, for each window, the number of the first kernel entry that is not on padding."""
        rows, columns = (
            np.maximum(0, p - s * np.arange(n))
            for n, s, p in zip(places, self.stride, self.padding, strict=True)
        )
        return rows[:, None] * self.kernel[1] + columns
