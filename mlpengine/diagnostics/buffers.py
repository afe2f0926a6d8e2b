"""The buffers of training that diagnostics read, and the room they need besides."""

from dataclasses import dataclass

import numpy as np

from mlpengine.errors import TapeError, UsageError
from mlpengine.nn import Gradients, Mlp, Scratch
from mlpengine.nn.layers import Layer, Recording
from mlpengine.spec import Array
from mlpengine.tape.record import Value


@dataclass(frozen=True, eq=False)
class LayerBuffers:
    """What one layer leaves behind after a step.

    Shapes: x (batch, in_dim), what the layer reads; y (batch, out_dim), its activations before
    dropout where they are kept; passed_on (batch, out_dim), what the next layer reads; delta
    (batch, out_dim), the gradient of the loss by the pre-activations; z (batch, out_dim), these
    themselves, or None where training does not keep them.
    """

    layer: Layer
    x: Array
    y: Array
    passed_on: Array
    delta: Array
    z: Array | None

    @property
    def activation(self) -> str:
        """Name of the activation."""
        return self.layer.activation.name if self.layer.activation else "identity"


def layer_buffers(scratch: Scratch, grads: Gradients) -> list[LayerBuffers]:
    """Return the buffers of every layer, in forward order.

    Raises: UsageError where the scratch does not keep its activations.
    """
    try:
        grads.bind(scratch)
        passed_on = scratch.activations
    except TapeError as error:
        raise UsageError(
            "diagnostics: needs every activation, which only a training scratch with "
            "rematerialization='keep' holds"
        ) from error
    program, recording, deltas = scratch.program, scratch.recording, grads.d_hidden
    found = []
    for number, layer in enumerate(scratch.mlp.layers):
        node = _before_dropout(recording, number)
        z = recording.pre_activations[number]
        found.append(
            LayerBuffers(
                layer,
                x=passed_on[number - 1] if number else scratch.input,
                y=program.value(node) if program.plan.survives(node) else passed_on[number],
                passed_on=passed_on[number],
                delta=deltas[number],
                z=program.value(z) if program.plan.survives(z) else None,
            )
        )
    return found


def _before_dropout(recording: Recording, number: int) -> Value:
    """Return the node of a layer's activations."""
    node: Value = recording.passed_on[number]
    for record in recording.tape.records:
        if record.outputs[0].index == node.index and record.op.name == "dropout":
            (operand,) = record.operands
            return operand or node
    return node


class Room:
    """Memory of the size of the widest layer that observing needs besides training's."""

    def __init__(self, mlp: Mlp, batch_size: int) -> None:
        size = batch_size * max(mlp.sizes)
        self.batch_size = batch_size
        self._values = np.empty(size, mlp.dtype)
        self._mask = np.empty(size, np.bool_)

    def values(self, array: Array) -> Array:
        """Return memory in the shape and dtype of `array`."""
        return self._values[: array.size].reshape(array.shape)

    def mask(self, array: Array) -> Array:
        """Return boolean memory in the shape of `array`."""
        return self._mask[: array.size].reshape(array.shape)
