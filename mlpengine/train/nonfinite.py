"""Where a number stopped being finite."""

import numpy as np

from mlpengine.errors import TapeError
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.scratch import Scratch
from mlpengine.spec import Array
from mlpengine.train.task import Part
from mlpengine.wording import plural

SHOWN_ROWS = 5
"""Rows that a message lists before it only counts them."""

ODD = 1e4
"""Size from which a scaled value is blamed; that of ordinary data is some 1 to 100."""


def bad_rows(array: Array) -> Array:
    """Return the indices of the rows of `array` (rows, ...) that hold a NaN or an infinity."""
    return np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))


def locate_nonfinite(scratch: Scratch, grads: Gradients) -> str:
    """Say where the first non-finite number of the last step stands.

    The input comes first, then parameters and activations in forward order, then gradients in
    backward order.  Layers count from 0, rows from 0 within the batch.
    """
    rows = bad_rows(scratch.input)
    if rows.size:
        return f"the input is not, in {_rows(rows)}"
    for number, layer in enumerate(scratch.mlp.layers):
        for name in (layer.weight_name, layer.bias_name):
            if not np.isfinite(scratch.mlp.params.views[name]).all():
                return f"layer {number}, forward: {name} is not"
        try:
            rows = bad_rows(scratch.program.value(scratch.recording.passed_on[number]))
        except TapeError:  # balanced rematerialization did not keep it
            continue
        if rows.size:
            return f"layer {number}, forward: its output is not, in {_rows(rows)}"
    for number in reversed(range(len(scratch.mlp.layers))):
        rows = bad_rows(grads.d_hidden[number])
        if rows.size:
            return f"layer {number}, backward: the gradient of its output is not, in {_rows(rows)}"
        for gradient in (grads.d_weights[number], grads.d_biases[number]):
            if not np.isfinite(gradient).all():
                return f"layer {number}, backward: the gradient of its parameters is not"
    return "the loss overflows, although every output is finite"


def odd_value(part: Part, output: Array) -> str:
    """Say which value of a part is why its loss is not finite, or that the network is.

    It is the value that is largest in the row that is furthest off, if it is `ODD` or more.
    """
    bad = bad_rows(output)
    if 2 * len(bad) > len(output):
        return f"the outputs of {len(bad):,} of {plural(len(output), 'row')} are not; lower the lr"
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(output if part.y.ndim == 1 else output - part.y, dtype=np.float64)
    row = int(np.nan_to_num(off, nan=np.inf, posinf=np.inf).max(axis=1).argmax())
    features, targets = np.abs(part.x[row : row + 1][0]), np.abs(part.y[row].reshape(-1))
    in_target = targets.max() > features.max()
    column = int((targets if in_target else features).argmax())
    value = (part.y[row].reshape(-1) if in_target else part.x[row : row + 1][0])[column]
    if abs(value) < ODD:
        return f"the largest error is that of row {row}"
    kind = "target" if in_target else "feature"
    places = part.places
    if places is None:
        return f"{kind} {column} of row {row} is {value:.3g}"
    name = (places.targets if in_target else places.features)[column]
    return f"{places.row(row)}, column {name!r} holds {value:.3g} after scaling"


def _rows(rows: Array) -> str:
    shown = ", ".join(str(r) for r in rows[:SHOWN_ROWS])
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more} of the batch"
