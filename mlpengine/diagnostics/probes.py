"""The calls that take a sample, bound once to the buffers of a batch size."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from mlpengine.core.spec import Array, Call, call
from mlpengine.diagnostics.layer_buffers import Workspace, activations_of
from mlpengine.diagnostics.layers import LayerFacts
from mlpengine.diagnostics.rows import RowProbe
from mlpengine.diagnostics.samples import LAYER_INDEX, NET_INDEX, Columns
from mlpengine.diagnostics.thresholds import SATURATION_POINT
from mlpengine.diagnostics.units import range_of, rectifies
from mlpengine.diagnostics.updates import UpdateProbe
from mlpengine.nn import Gradients, Scratch
from mlpengine.ops import GradOp

MEAN_INDEX = LAYER_INDEX["activation_mean"]


class BoundProbes:
    """The calls that measure the buffers of a step, and the indices of their results.

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
        known = activations_of(scratch, grads)
        outputs = [y for y, _ in known]
        self.rows = RowProbe.of(scratch, grads, outputs, updates.before)
        ops = [layer.activation for layer in layers]
        self.rectified = {n: outputs[n] for n, op in enumerate(ops) if rectifies(op)}
        self._starts = [columns.start(number) for number in range(columns.layers)]
        self._moments = [NET_INDEX["input_mean"], *(s + MEAN_INDEX for s in self._starts)]
        self._results: list[tuple[int, int]] = []
        """Pairs (index in the sample, number of the call that returns the value)."""
        calls: list[Call] = []
        for number, (op, (y, is_plain)) in enumerate(zip(ops, known, strict=True)):
            if is_plain and (own := saturation_calls(op, y, workspace)):
                calls += own
                place = columns.index("saturated_share", number)
                self._results.append((place, len(calls) - 1))
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


def saturation_calls(op: GradOp | None, y: Array, workspace: Workspace) -> list[Call]:
    """Return the calls that compute the share of saturated activations (see `is_saturated`).

    The last call returns the share.  The list is empty if the activation has no bounds.
    """
    low, high = range_of(op)
    if not isfinite(high - low):
        return []
    values, mask = workspace.values(y), workspace.mask(y)
    middle, limit = (low + high) / 2, SATURATION_POINT * (high - low) / 2
    return [
        call(np.subtract, y, np.array(middle, y.dtype), values),
        call(np.abs, values, values),
        call(np.greater, values, np.array(limit, y.dtype), mask),
        call(_share_of_ones, mask),
    ]


def _share_of_ones(mask: Array) -> float:
    return int(np.count_nonzero(mask)) / mask.size
