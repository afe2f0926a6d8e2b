"""Size and direction of the update of each layer, measured against a copy made before the step."""

from collections.abc import Sequence
from math import nan, sqrt
from typing import Any

import numpy as np

from mlpengine.diagnostics.samples import LAYER_INDEX
from mlpengine.nn import Mlp
from mlpengine.spec import Array, Calls, call
from mlpengine.tape.norm import CHUNK, GlobalNorm

RMS, RATIO, COSINE = (
    LAYER_INDEX[name] for name in ("gradient_rms", "update_ratio", "update_cosine")
)


class WideDot:
    """The inner product of two fixed vectors, summed in float64 over chunks."""

    def __init__(self, a: Array, b: Array) -> None:
        whole = a.size // CHUNK
        self._sums = np.zeros(whole, a.dtype)
        cut = whole * CHUNK
        parts = (v[:cut].reshape(whole, CHUNK) for v in (a, b))
        self._dot_rows = call(np.vecdot, *parts, self._sums)
        self._dot_tail = call(np.vdot, a[cut:], b[cut:])

    def __call__(self) -> float:
        """Return the product of the present values."""
        tail = float(self._dot_tail())
        if not self._sums.size:
            return tail
        self._dot_rows()
        return sum(self._sums.tolist(), tail)


class UpdateProbe:
    """Gradient RMS, update ratio and cosine of the weights of every layer, without the biases.

    `before_step` copies the parameters; after the step, the calls turn the copy into the update
    that was applied.  Nothing else is copied.

    Attributes:
        before: by layer, the weights and bias before the step; valid until the calls.
    """

    def __init__(self, mlp: Mlp) -> None:
        self._params = mlp.params.flat
        self._copy = self._params.copy()
        self.before: list[tuple[Array, Array]] = []
        self._parts: list[slice] = []
        places = mlp.params.places
        for layer in mlp.layers:
            weight, bias = places[layer.weight_name], places[layer.bias_name]
            shape = layer.out_dim, layer.in_dim
            self.before.append((self._copy[weight].reshape(shape), self._copy[bias]))
            self._parts.append(weight)
        self._roots = [sqrt(part.stop - part.start) for part in self._parts]
        self._norms = [GlobalNorm(self._copy[part]) for part in self._parts]

    def before_step(self) -> None:
        """Copy the parameters before the step that will be measured."""
        np.copyto(self._copy, self._params)

    def calls(self, grads_flat: Array) -> Calls:
        """Yield the calls for gradients in `grads_flat`; `read` takes their results."""
        yield from self._norms
        yield call(np.subtract, self._params, self._copy, self._copy)
        for part, norm in zip(self._parts, self._norms, strict=True):
            yield norm
            yield GlobalNorm(grads_flat[part])
            yield WideDot(self._copy[part], grads_flat[part])

    def read(
        self, results: Sequence[Any], clip: float, starts: Sequence[int], values: list[float]
    ) -> None:
        """Write the quantities into the layers' blocks of `values`, which begin at `starts`.

        `clip` is the factor by which clipping multiplied the gradients.
        """
        layers = len(starts)
        for number, start in enumerate(starts):
            weight, first = results[number], layers + 1 + 3 * number
            update, gradient, dot = results[first : first + 3]
            product = update * gradient
            values[start + RMS] = gradient / self._roots[number] / clip if clip else nan
            values[start + RATIO] = update / weight if weight else nan
            values[start + COSINE] = -dot / product if product else nan
