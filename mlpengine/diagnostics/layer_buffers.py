"""The buffers of a training step that diagnostics read, and a shared workspace."""

import numpy as np

from mlpengine.core.errors import TapeError, UsageError
from mlpengine.core.spec import Array, DTypeLike
from mlpengine.diagnostics.layers import before_dropout
from mlpengine.nn import Gradients, Scratch


def activations_of(scratch: Scratch, grads: Gradients) -> list[tuple[Array, bool]]:
    """Return the activations (batch, units) of every layer, and whether they are before dropout.

    Activations are before dropout if the step keeps these values in memory, else after dropout.
    Further axes of a layer's output are flattened into units.
    """
    try:
        grads.bind(scratch)
        outputs = scratch.activations
    except TapeError as error:
        raise UsageError(
            "diagnostics: needs every activation: make a training scratch with "
            "rematerialization='keep'"
        ) from error
    known, program = [], scratch.program
    for layer, output in zip(scratch.recording.layers, outputs, strict=True):
        value = before_dropout(scratch.recording, layer)
        is_kept = program.plan.survives(value)
        known.append((flat_rows(program.value(value) if is_kept else output), is_kept))
    return known


def flat_rows(array: Array) -> Array:
    """Return a view of shape (rows, entries per row)."""
    return array.reshape(len(array), -1) if array.ndim != 2 else array


class Workspace:
    """Temporary memory for all probes, as large as the widest layer."""

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
