"""What a step did to the weights of each layer, measured from a copy made before it."""

from collections.abc import Sequence
from math import nan, sqrt
from typing import Any

import numpy as np

from mlpengine.diagnostics.quantities import LAYER_PLACE
from mlpengine.nn import Mlp
from mlpengine.spec import Array, Calls, call
from mlpengine.tape.norm import CHUNK, GlobalNorm

RMS, RATIO, COSINE = (
    LAYER_PLACE[name] for name in ("gradient_rms", "update_ratio", "update_cosine")
)


class WideDot:
    """The inner product of two vectors that exist, summed in float64 over chunks of each."""

    def __init__(self, a: Array, b: Array) -> None:
        whole = a.size // CHUNK
        self._sums = np.zeros(whole, a.dtype)
        cut = whole * CHUNK
        parts = (v[:cut].reshape(whole, CHUNK) for v in (a, b))
        self._dot_rows = call(np.vecdot, *parts, self._sums)
        self._dot_rest = call(np.vdot, a[cut:], b[cut:])

    def __call__(self) -> float:
        """Return the product of what the vectors hold now."""
        rest = float(self._dot_rest())
        if not self._sums.size:
            return rest
        self._dot_rows()
        return sum(self._sums.tolist(), rest)


class UpdateProbe:
    """Gradient RMS, update ratio and cosine of the weights of every layer; biases do not count.

    `before_step` copies the parameters; the calls, after the step, turn the copy into the update
    that was really applied.  Nothing else is copied.

    Attributes:
        before: by layer, the weights and bias before the step; valid until the calls.
    """

    def __init__(self, mlp: Mlp) -> None:
        self._params = mlp.params.flat
        self._copy = self._params.copy()
        self.before: list[tuple[Array, Array]] = []
        self._parts: list[slice] = []
        start = 0
        for layer in mlp.layers:
            stop = start + layer.in_dim * layer.out_dim
            weight, bias = self._copy[start:stop], self._copy[stop : stop + layer.out_dim]
            self.before.append((weight.reshape(layer.out_dim, layer.in_dim), bias))
            self._parts.append(slice(start, stop))
            start = stop + layer.out_dim
        self._roots = [sqrt(part.stop - part.start) for part in self._parts]
        self._norms = [GlobalNorm(self._copy[part]) for part in self._parts]

    def before_step(self) -> None:
        """Copy the parameters as they stand before the step that will be measured."""
        np.copyto(self._copy, self._params)

    def calls(self, grads_flat: Array) -> Calls:
        """Yield the calls for gradients in `grads_flat`; `read` takes what they return."""
        yield from self._norms
        yield call(np.subtract, self._params, self._copy, self._copy)
        for part, norm in zip(self._parts, self._norms, strict=True):
            yield norm
            yield GlobalNorm(grads_flat[part])
            yield WideDot(self._copy[part], grads_flat[part])

    def read(
        self, found: Sequence[Any], clip: float, starts: Sequence[int], values: list[float]
    ) -> None:
        """Write the quantities into the layers' blocks of `values`, which begin at `starts`.

        `clip` is what the gradients were multiplied by before.
        """
        layers = len(starts)
        for number, start in enumerate(starts):
            weight, at = found[number], layers + 1 + 3 * number
            moved, slope, dot = found[at : at + 3]
            both = moved * slope
            values[start + RMS] = slope / self._roots[number] / clip if clip else nan
            values[start + RATIO] = moved / weight if weight else nan
            values[start + COSINE] = -dot / both if both else nan
