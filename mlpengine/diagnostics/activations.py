"""The calls that look at the activations of one layer, and at the pre-activations behind them."""

from collections.abc import Iterator
from math import atanh

import numpy as np

from mlpengine.diagnostics.buffers import LayerBuffers, Room
from mlpengine.spec import Array, Call, call

RECTIFIERS = ("relu",)
"""Activations that are 0 for every negative input, so that a unit can die."""

SATURATED = 0.97
"""Beyond this share of the way from the middle of its range to an end, a unit is saturated."""

BOUNDED = {"tanh": atanh(SATURATED), "sigmoid": 2 * atanh(SATURATED)}
"""Activations with two ends, and the magnitude of the pre-activation where they saturate."""


def activation_calls(
    buffers: LayerBuffers, room: Room, weight: Array, bias: Array
) -> Iterator[tuple[str, Call]]:
    """Yield calls with the quantity that each returns, "" for none.

    `weight` and `bias` are those that the step's forward pass read: where training keeps no
    pre-activations they are computed again.
    """
    y, z, mask = buffers.y, buffers.z, room.mask(buffers.y)
    if buffers.activation in RECTIFIERS:
        yield "", call(np.greater, y, np.zeros((), y.dtype), mask)
        yield "zero_share", call(_share_missing, mask)
        yield "pre_activation_max", call(_largest_item, y)
        return
    if z is None:
        z = room.values(y)
        yield "", call(np.dot, buffers.x, weight.T, z)
        yield "", call(np.add, z, bias, z)
    if buffers.activation in BOUNDED:
        limit = np.array(BOUNDED[buffers.activation], y.dtype)
        magnitude = room.values(y)
        yield "", call(np.abs, z, magnitude)
        yield "", call(np.greater, magnitude, limit, mask)
        yield "saturated_share", call(_share, mask)
        yield "pre_activation_max", call(_largest_item, magnitude)
    else:
        yield "pre_activation_max", call(_largest_magnitude, z)


def _share(mask: Array) -> float:
    return int(np.count_nonzero(mask)) / mask.size


def _share_missing(mask: Array) -> float:
    return 1.0 - int(np.count_nonzero(mask)) / mask.size


def _largest_item(y: Array) -> float:
    """Return the largest entry: by `argmax`, a third of the time of a reduction."""
    return float(y.item(y.argmax()))


def _largest_magnitude(z: Array) -> float:
    return max(float(z.item(z.argmax())), -float(z.item(z.argmin())))
