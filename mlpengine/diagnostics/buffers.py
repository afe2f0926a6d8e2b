"""The buffers of training that diagnostics read, and their workspace."""

from typing import NamedTuple

import numpy as np

from mlpengine.errors import TapeError, UsageError
from mlpengine.nn import Gradients, Mlp, Scratch
from mlpengine.nn.layers import Layer
from mlpengine.nn.mlp import need_mlp
from mlpengine.nn.recording import Recording
from mlpengine.spec import Array
from mlpengine.tape.record import Value


class LayerBuffers(NamedTuple):
    """The buffers of one layer after a step.

    Shapes: x (batch, in_dim), the input; y (batch, out_dim), the activations, before dropout if
    those are kept; output (batch, out_dim), the input of the next layer; delta (batch, out_dim),
    the gradient of the loss with respect to the pre-activations; z (batch, out_dim), the
    pre-activations, or None if training does not keep them.
    """

    layer: Layer
    x: Array
    y: Array
    output: Array
    delta: Array
    z: Array | None


def layer_buffers(scratch: Scratch, grads: Gradients) -> list[LayerBuffers]:
    """Return the buffers of every layer, in forward order.

    Raises: UsageError where the scratch does not keep its activations.
    """
    try:
        grads.bind(scratch)
        outputs, first = scratch.activations, scratch.first
    except TapeError as error:
        raise UsageError(
            "diagnostics: needs every activation, which only a training scratch with "
            "rematerialization='keep' holds"
        ) from error
    program, recording, deltas = scratch.program, scratch.recording, grads.d_hidden
    buffers = []
    for number, layer in enumerate(need_mlp(scratch.mlp, "diagnostics").layers):
        node = _before_dropout(recording, number)
        z = recording.layers[number].pre_activation
        buffers.append(
            LayerBuffers(
                layer,
                x=outputs[number - 1] if number else first,
                y=program.value(node) if program.plan.survives(node) else outputs[number],
                output=outputs[number],
                delta=deltas[number],
                z=program.value(z) if program.plan.survives(z) else None,
            )
        )
    return buffers


def _before_dropout(recording: Recording, number: int) -> Value:
    """Return the node of a layer's activations."""
    node: Value = recording.layers[number].output
    for record in recording.tape.records:
        if record.outputs[0].index == node.index and record.op.name == "dropout":
            (operand,) = record.operands
            return operand or node
    return node


class Workspace:
    """Memory of the size of the widest layer, shared by all probes."""

    def __init__(self, mlp: Mlp, batch_size: int) -> None:
        size = batch_size * max(mlp.layers[0].in_dim, *mlp.sizes)
        self.batch_size = batch_size
        self._values = np.empty(size, mlp.dtype)
        self._mask = np.empty(size, np.bool_)

    def values(self, array: Array) -> Array:
        """Return memory in the shape and dtype of `array`."""
        return self._values[: array.size].reshape(array.shape)

    def mask(self, array: Array) -> Array:
        """Return boolean memory in the shape of `array`."""
        return self._mask[: array.size].reshape(array.shape)
