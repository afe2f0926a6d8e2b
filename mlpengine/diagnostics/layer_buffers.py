"""The buffers of a training step that diagnostics read, and a shared workspace."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.errors import TapeError, UsageError
from mlpengine.core.spec import Array, DTypeLike
from mlpengine.diagnostics.layers import LayerFacts, activation_record, before_dropout, maker
from mlpengine.nn import Gradients, Scratch
from mlpengine.tape.record import Record, Value


class LayerBuffers(NamedTuple):
    """The buffers of one layer after a step.

    Shapes: y (batch, units), the activations, before dropout if training keeps these; z (batch,
    units), the pre-activations, or None if training does not keep them.  Further axes of the output
    of a layer are part of the units.
    `made` is the record that computes the pre-activations.
    """

    layer: LayerFacts
    y: Array
    z: Array | None
    made: Record | None


def layer_buffers(
    layers: Sequence[LayerFacts], scratch: Scratch, grads: Gradients
) -> list[LayerBuffers]:
    """Return the buffers of every layer, in forward order."""
    try:
        grads.bind(scratch)
        outputs = scratch.activations
    except TapeError as error:
        raise UsageError(
            "diagnostics: needs every activation: make a training scratch with "
            "rematerialization='keep'"
        ) from error
    recording, buffers = scratch.recording, []
    for facts, layer, output in zip(layers, recording.layers, outputs, strict=True):
        record = activation_record(recording, layer)
        z = record.operands[0] if record else layer.pre_activation
        y = kept(scratch, before_dropout(recording, layer))
        buffers.append(
            LayerBuffers(
                facts,
                y=flat_rows(output if y is None else y),
                z=None if z is None else kept(scratch, z),
                made=None if z is None else maker(recording.tape.records, z),
            )
        )
    return buffers


def kept(scratch: Scratch, value: Value) -> Array | None:
    """Return the array of a value as rows; None if training does not keep it."""
    if not scratch.program.plan.survives(value):
        return None
    return flat_rows(scratch.program.value(value))


def flat_rows(array: Array) -> Array:
    """Return a view (rows, entries of a row)."""
    return array.reshape(len(array), -1) if array.ndim != 2 else array


class Workspace:
    """Memory as large as the widest layer, which all probes share."""

    def __init__(self, size: int, batch_size: int, dtype: DTypeLike) -> None:
        self.batch_size = batch_size
        self._values = np.empty(size, dtype)
        self._mask = np.empty(size, np.bool_)

    def values(self, array: Array) -> Array:
        """Return memory in the shape and dtype of `array`."""
        return self._values[: array.size].reshape(array.shape)

    def mask(self, array: Array) -> Array:
        """Return boolean memory in the shape of `array`."""
        return self._mask[: array.size].reshape(array.shape)
