"""Search for the first NaN or infinity of a failed step."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.errors import TapeError
from mlpengine.core.named import arrays_by_name, arrays_in
from mlpengine.core.spec import Array
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.scratch import Scratch

SHOWN_ROWS = 5
"""Maximum number of rows that a message lists."""


def bad_rows(array: Array) -> Array:
    """Return the indices of rows of `array` (rows, ...) with a NaN or an infinity."""
    finite = np.ones(len(array), np.bool_)
    for values in arrays_in(array):
        finite &= np.isfinite(values).reshape(len(values), -1).all(axis=1)
    return np.flatnonzero(~finite)


class Fault(NamedTuple):
    """A NaN or infinity: its place, the rows that contain it, and whether it is in the data."""

    place: str  # such as "the input is not, in row 3 of the batch"
    rows: list[int]
    in_data: bool = False


def locate_nonfinite(
    scratch: Scratch, grads: Gradients, first: int = 0, *, sums: bool = True
) -> Fault | None:
    """Return the first NaN or infinity of the last step, or None.

    The search covers the input, then parameters and activations in forward order, then gradients in
    backward order.  If `sums` is False, gradients of parameters are left out.  The numbers of
    columns and rows begin at 0; `first` is the index in the batch of these buffers' first row.
    """
    faults = _faults(scratch, grads, first, sums=sums)
    fault = next(faults, None)
    if fault is None or fault.rows:
        return fault
    return Fault(fault.place, next((later.rows for later in faults if later.rows), []))


def _faults(scratch: Scratch, grads: Gradients, first: int, *, sums: bool) -> Iterator[Fault]:
    def rows_of(array: Array, place: str) -> Iterator[Fault]:
        rows = (bad_rows(array) + first).tolist()
        if rows:
            yield Fault(f"{place} is not, in {listed_rows(rows)} of the batch", rows)

    for name, values in arrays_by_name(scratch.input).items():
        for text, rows, _ in rows_of(values, f"the input {name!r}" if name else "the input"):
            column = np.flatnonzero(~np.isfinite(values[rows[0] - first]))[0]
            row = "" if len(rows) == 1 else f"row {rows[0]}, "
            value = np.ravel(values[rows[0] - first])[column]  # a large float64 is inf in float32
            yield Fault(f"{text}: {row}column {column} is {value} in {values.dtype}", rows, True)
    views, layers = scratch.mlp.params.views, scratch.recording.layers
    for layer in layers:
        if wrong := _first_nonfinite(views, layer.parameters):
            yield Fault(f"{layer.name}, forward: {wrong} is not", [])
        try:
            output = scratch.program.value(layer.output)
        except TapeError:  # balanced rematerialization did not keep this output
            continue
        yield from rows_of(output, f"{layer.name}, forward: its output")
    for layer, slope in reversed([*zip(layers, grads.d_hidden, strict=True)]):
        where = f"{layer.name}, backward: the gradient of its "
        yield from rows_of(slope, where + "output")
        if sums and _first_nonfinite(grads.views, layer.parameters):
            yield Fault(where + "parameters is not", [])


def _first_nonfinite(views: Mapping[str, Array], names: Iterable[str]) -> str:
    """Return the first of `names` whose view is not finite, or ""."""
    return next((n for n in names if not np.isfinite(views[n]).all()), "")


def listed_rows(rows: Sequence[int]) -> str:
    """Return row indices as text, such as "rows 3, 5, 8, 9, 12 and 7 more"."""
    shown = ", ".join(map(str, rows[:SHOWN_ROWS]))
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more}"
