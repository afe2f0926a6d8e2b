"""Size and direction of the updates of layers, from a copy of the parameters before the step."""

from collections.abc import Sequence
from math import hypot, nan, sqrt
from typing import Any

import numpy as np

from mlpengine.core.spec import Array, Calls, call
from mlpengine.diagnostics.layers import LayerFacts
from mlpengine.diagnostics.samples import LAYER_INDEX
from mlpengine.tape.flat import Flat
from mlpengine.tape.norm import CHUNK, GlobalNorm

RMS, RATIO, COSINE = (
    LAYER_INDEX[name] for name in ("gradient_rms", "update_ratio", "update_cosine")
)


class WideDot:
    """The inner product of two fixed vectors; products of chunks are added in float64."""

    def __init__(self, a: Array, b: Array) -> None:
        whole = a.size // CHUNK
        self._sums = np.zeros(whole, a.dtype)
        cut = whole * CHUNK
        parts = (v[:cut].reshape(whole, CHUNK) for v in (a, b))
        self._dot_rows = call(np.vecdot, *parts, self._sums)
        self._dot_tail = call(np.vdot, a[cut:], b[cut:])

    def __call__(self) -> float:
        """Return the product of the current values."""
        tail = float(self._dot_tail())
        if not self._sums.size:
            return tail
        self._dot_rows()
        return sum(self._sums.tolist(), tail)


class UpdateProbe:
    """Gradient RMS, update ratio and update cosine of the weights of each layer, without biases.

    `before_step` copies the parameters.  After the step, `calls` turns the copy into the update.  A
    layer without weights has none of these quantities.

    Attributes:
        before: parameters before the step, by name; valid until `calls` run.
    """

    def __init__(self, params: Flat, layers: Sequence[LayerFacts]) -> None:
        self._params = params.flat
        self._copy = self._params.copy()
        places, specs = params.places, params.specs
        self.before = {n: self._copy[places[n]].reshape(specs[n].shape) for n in specs}
        self._layers = [[places[name] for name in layer.weights] for layer in layers]
        self._roots = [sqrt(sum(p.stop - p.start for p in parts)) for parts in self._layers]

    def before_step(self) -> None:
        """Copy the parameters before a step that will be measured."""
        np.copyto(self._copy, self._params)

    def calls(self, grads_flat: Array) -> Calls:
        """Yield the calls for gradients in `grads_flat`; `read` takes the results of the calls."""
        parts = [part for layer in self._layers for part in layer]
        norms = [GlobalNorm(self._copy[part]) for part in parts]
        yield from norms
        yield call(np.subtract, self._params, self._copy, self._copy)
        for part, norm in zip(parts, norms, strict=True):
            yield norm
            yield GlobalNorm(grads_flat[part])
            yield WideDot(self._copy[part], grads_flat[part])

    def read(
        self, results: Sequence[Any], clip: float, starts: Sequence[int], values: list[float]
    ) -> None:
        """Write the quantities into `values`; the blocks of layers begin at `starts`.

        `clip` is the factor by which clipping has multiplied the gradients.
        """
        count, first = sum(map(len, self._layers)), 0
        for layer, root, start in zip(self._layers, self._roots, starts, strict=True):
            last = first + len(layer)
            weight = hypot(*results[first:last])
            after = results[count + 1 + 3 * first : count + 1 + 3 * last]
            update, gradient = hypot(*after[::3]), hypot(*after[1::3])
            dot, product, first = sum(after[2::3]), update * gradient, last
            if layer:
                values[start + RMS] = gradient / root / clip if clip else nan
            values[start + RATIO] = update / weight if weight else nan
            values[start + COSINE] = -dot / product if product else nan
