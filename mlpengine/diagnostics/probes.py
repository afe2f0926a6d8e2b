"""The calls that take a sample, bound once to the buffers of a batch size."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from mlpengine.core.spec import Array, Call, call
from mlpengine.diagnostics.layer_buffers import LayerBuffers, Workspace, layer_buffers
from mlpengine.diagnostics.layers import LayerFacts
from mlpengine.diagnostics.rows import RowProbe
from mlpengine.diagnostics.samples import LAYER_INDEX, NET_INDEX, Columns
from mlpengine.diagnostics.units import rectifies, saturation
from mlpengine.diagnostics.updates import UpdateProbe
from mlpengine.nn import Gradients, Scratch
from mlpengine.ops import Linear
from mlpengine.tape.record import Record

MEAN_INDEX = LAYER_INDEX["activation_mean"]


class BoundProbes:
    """The calls that measure a scratch and its gradients, and the indices of their results.

    Attributes:
        rows: probe of single rows.
        rectified: activations of each rectifier layer, by its number.
    """

    def __init__(
        self,
        scratch: Scratch,
        grads: Gradients,
        layers: Sequence[LayerFacts],
        workspace: Workspace,
        updates: UpdateProbe,
        columns: Columns,
    ) -> None:
        self.scratch, self.grads, self._updates = scratch, grads, updates
        buffers = layer_buffers(layers, scratch, grads)
        self.rows = RowProbe.of(scratch, grads, [b.y for b in buffers], updates.before)
        self.rectified = {
            number: b.y for number, b in enumerate(buffers) if rectifies(b.layer.activation)
        }
        self._starts = [columns.start(number) for number in range(columns.layers)]
        self._moments = [NET_INDEX["input_mean"], *(s + MEAN_INDEX for s in self._starts)]
        self._results: list[tuple[int, int]] = []
        """Pairs of an index in the sample and the number of the call that returns this entry."""
        calls: list[Call] = []
        for number, b in enumerate(buffers):
            for quantity, bound in activation_calls(b, workspace, scratch, updates.before):
                if quantity:
                    self._results.append((columns.index(quantity, number), len(calls)))
                calls.append(bound)
        calls += self.rows.calls
        self._first_update = len(calls)
        self._calls = (*calls, *updates.calls(grads.flat))

    def measure(self, clip: float, values: list[float]) -> None:
        """Write the measurements into `values` and set `rows.norms`."""
        results: list[Any] = [run() for run in self._calls]
        for index, number in self._results:
            values[index] = results[number]
        for index, (mean, deviation) in zip(self._moments, self.rows.moments(), strict=True):
            values[index], values[index + 1] = mean, deviation
        self._updates.read(results[self._first_update :], clip, self._starts, values)


def activation_calls(
    buffers: LayerBuffers, workspace: Workspace, scratch: Scratch, before: Mapping[str, Array]
) -> Iterator[tuple[str, Call]]:
    """Yield the calls for a layer, each with the name of the quantity that it returns, or "".

    `before` are the parameters before the step.  If training does not keep the pre-activations of a
    dense layer, the calls compute them again from `before`.  For other ops, quantities of the
    pre-activations are then left out.
    """
    y, z = buffers.y, buffers.z
    if rectifies(buffers.layer.activation):
        yield "pre_activation_max", call(_largest, y)
        return
    if z is None:
        z = workspace.values(y)
        operands = dense_operands(buffers.made, scratch, before)
        if operands is None:
            return
        op, x, weight, bias = operands
        yield from (("", bound) for bound in op.forward(x, weight, bias, out=z))
    if isfinite(limit := saturation(buffers.layer.activation)):
        magnitude, mask = workspace.values(y), workspace.mask(y)
        yield "", call(np.abs, z, magnitude)
        yield "", call(np.greater, magnitude, np.array(limit, y.dtype), mask)
        yield "saturated_share", call(_share_of_ones, mask)
        yield "pre_activation_max", call(_largest, magnitude)
    else:
        yield "pre_activation_max", call(_largest_magnitude, z)


def dense_operands(
    made: Record | None, scratch: Scratch, before: Mapping[str, Array]
) -> tuple[Linear, Array, Array, Array | None] | None:
    """Return op and operands of a dense layer; None for other ops or if training lost them."""
    if made is None or not isinstance(made.op, Linear) or len(made.outputs[0].spec.shape) != 2:
        return None
    x, w, b = made.operands
    program, values = scratch.program, list[Array | None]()
    for operand in (x, w, b):
        if operand is None:
            values.append(None)
        elif operand.kind == "parameter":
            values.append(before[operand.name])
        elif program.plan.survives(operand):
            values.append(program.value(operand))
        else:
            return None
    rows, weight, bias = values
    return None if rows is None or weight is None else (made.op, rows, weight, bias)


def _share_of_ones(mask: Array) -> float:
    return int(np.count_nonzero(mask)) / mask.size


def _largest(y: Array) -> float:
    """Return the largest entry; `argmax` is faster than `max`."""
    return float(y.item(y.argmax()))


def _largest_magnitude(z: Array) -> float:
    return max(float(z.item(z.argmax())), -float(z.item(z.argmin())))
