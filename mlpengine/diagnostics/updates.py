"""Size of the updates of layers, from a copy of the parameters before the step."""

from collections.abc import Sequence
from math import hypot, nan, sqrt
from typing import Any

import numpy as np

from mlpengine.core.spec import Array, Calls, call
from mlpengine.diagnostics.layers import LayerFacts
from mlpengine.diagnostics.samples import LAYER_INDEX
from mlpengine.tape.flat import Flat
from mlpengine.tape.norm import GlobalNorm

RMS, RATIO = LAYER_INDEX["gradient_rms"], LAYER_INDEX["update_ratio"]


class UpdateProbe:
    """Gradient RMS and update ratio of the weights of each layer, without biases.

    `before_step` copies the parameters.  After the step, the calls from `calls` turn the copy into
    the update.  A layer without weights has none of these quantities.

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
            after = results[count + 1 + 2 * first : count + 1 + 2 * last]
            update, gradient, first = hypot(*after[::2]), hypot(*after[1::2]), last
            if layer:
                values[start + RMS] = gradient / root / clip if clip else nan
            values[start + RATIO] = update / weight if weight else nan
