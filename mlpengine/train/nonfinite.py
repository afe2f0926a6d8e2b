"""Location of the first number that is not finite."""

from collections.abc import Iterable, Mapping

import numpy as np

from mlpengine.errors import TapeError
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.scratch import Scratch
from mlpengine.spec import Array

SHOWN_ROWS = 5
"""Maximum number of rows that a message lists; it counts the others."""


def bad_rows(array: Array) -> Array:
    """Return the indices of the rows of `array` (rows, ...) that hold a NaN or an infinity."""
    return np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))


def locate_nonfinite(scratch: Scratch, grads: Gradients) -> str:
    """Return a message with the place of the first non-finite number of the last step.

    The input comes first, then parameters and activations in forward order, then gradients in
    backward order.  Layers count from 0, rows from 0 within the batch.
    """
    rows = bad_rows(scratch.input)
    if rows.size:
        return f"the input is not, in {_rows(rows)}"
    views = scratch.mlp.params.views
    front = [name for name in views if name.startswith("front.")]
    if wrong := _first_nonfinite(views, front):
        return f"front, forward: {wrong} is not"
    for number, layer in enumerate(scratch.mlp.layers):
        if wrong := _first_nonfinite(views, layer.names):
            return f"layer {number}, forward: {wrong} is not"
        try:
            rows = bad_rows(scratch.program.value(scratch.recording.layer_outputs[number]))
        except TapeError:  # not kept under balanced rematerialization
            continue
        if rows.size:
            return f"layer {number}, forward: its output is not, in {_rows(rows)}"
    for number in reversed(range(len(scratch.mlp.layers))):
        rows = bad_rows(grads.d_hidden[number])
        if rows.size:
            return f"layer {number}, backward: the gradient of its output is not, in {_rows(rows)}"
        layer = scratch.mlp.layers[number]
        if _first_nonfinite(grads.views, layer.names):
            return f"layer {number}, backward: the gradient of its parameters is not"
    if wrong := _first_nonfinite(grads.views, front):
        return f"front, backward: the gradient of {wrong} is not"
    return "the loss overflows, although every output is finite"


def _first_nonfinite(views: Mapping[str, Array], names: Iterable[str]) -> str:
    """Return the first of `names` whose view is not finite, or ""."""
    return next((n for n in names if not np.isfinite(views[n]).all()), "")


def _rows(rows: Array) -> str:
    shown = ", ".join(str(r) for r in rows[:SHOWN_ROWS])
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more} of the batch"
