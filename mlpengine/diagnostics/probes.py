"""The probes of one batch size: every call that a sample makes, bound once."""

from typing import Any

from mlpengine.diagnostics.activations import RECTIFIERS, activation_calls
from mlpengine.diagnostics.buffers import Room, layer_buffers
from mlpengine.diagnostics.quantities import LAYER_PLACE, NET_PLACE, Columns
from mlpengine.diagnostics.rows import RowProbe
from mlpengine.diagnostics.updates import UpdateProbe
from mlpengine.nn import Gradients, Scratch
from mlpengine.spec import Call

MEAN = LAYER_PLACE["activation_mean"]


class BoundProbes:
    """The calls that measure one pair of scratch and gradients, and where results belong."""

    def __init__(
        self, scratch: Scratch, grads: Gradients, room: Room, updates: UpdateProbe, columns: Columns
    ) -> None:
        self.scratch, self.grads, self._updates = scratch, grads, updates
        buffers = layer_buffers(scratch, grads)
        self.rows = RowProbe(buffers)
        self.rectified = {
            number: b.y for number, b in enumerate(buffers) if b.activation in RECTIFIERS
        }
        self._starts = [columns.start(number) for number in range(columns.layers)]
        self._moments = [NET_PLACE["input_mean"], *(s + MEAN for s in self._starts)]
        self._places: list[tuple[int, int]] = []
        calls: list[Call] = []
        for number, b in enumerate(buffers):
            for quantity, bound in activation_calls(b, room, *updates.before[number]):
                if quantity:
                    self._places.append((columns.place(quantity, number), len(calls)))
                calls.append(bound)
        calls += self.rows.calls
        self._first_update = len(calls)
        self._calls = (*calls, *updates.calls(grads.flat))

    def measure(self, clip: float, values: list[float]) -> None:
        """Write what the buffers show into `values`; afterwards `rows.norms` is set."""
        found: list[Any] = [run() for run in self._calls]
        for place, index in self._places:
            values[place] = found[index]
        for place, (mean, deviation) in zip(self._moments, self.rows.moments(), strict=True):
            values[place], values[place + 1] = mean, deviation
        self._updates.read(found[self._first_update :], clip, self._starts, values)
