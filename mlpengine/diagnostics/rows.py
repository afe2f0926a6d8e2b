"""Gradient norms of single rows, computed without these gradients, and the gradient noise scale.

In a dense layer, the gradient of the weights for one row is the outer product of delta (gradient
of the output) and input.  So the squared norm, with the bias, is norm(delta)**2 * (norm(input)**2 +
1).  If several ops read the weights, the squared norm is a sum of such products.

Source: Goodfellow 2015, arXiv 1510.01799.

The gradient of a row is the gradient of its term in the loss of the batch, times the number of
rows.  So the gradient of the batch is the mean over the rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations_with_replacement
from math import isnan, nan, sqrt
from typing import Any

import numpy as np

from mlpengine.core.buffers import address_of
from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array, Call, Calls, call
from mlpengine.diagnostics.layer_buffers import flat_rows
from mlpengine.diagnostics.samples import NET_INDEX
from mlpengine.diagnostics.thresholds import NOISE_DECAY
from mlpengine.nn import Gradients, Scratch
from mlpengine.nn.row_gradients import RowGradient, RowGradients


class RowProbe:
    """The calls that compute norms of gradients of rows, and moments of inputs and activations.

    In float32, a norm below 1e-18 becomes 0, and a norm above 1e19 infinite.

    Args:
        gradients: the gradients of the rows; None if they are unknown.
        arrays: (batch, ...), the inputs and each layer's activations.
        inputs: number of inputs among `arrays`.
        unknown: why the gradients are unknown.

    Attributes:
        norms: (batch,), norms of the gradients of the rows, float64; zeros if unknown.
        mean_rows: 0-d, number of rows of the batch; the buffers may hold a part of these rows.
        norm_calls: calls that set `norms` only.
        calls: calls that set `norms` and `totals`.
        totals: (2, arrays), float64, sum and sum of squares of each of `arrays`.
    """

    def __init__(
        self,
        gradients: RowGradients | None,
        arrays: Sequence[Array],
        *,
        inputs: int = 1,
        unknown: str = "",
    ) -> None:
        batch, dtype = len(arrays[0]), arrays[0].dtype
        self._batch = batch
        self.unknown, self._inputs = unknown, inputs
        self.norms: Array = np.zeros(batch)
        self.mean_rows: Array = np.array(float(batch))
        self.totals: Array = np.zeros((2, len(arrays)))
        self.sizes = [array.size for array in arrays]
        self._sorted = np.zeros(batch)
        squares = np.zeros((len(arrays), batch), dtype)
        moments = [*self._moments(arrays, squares)]
        products = _Products(zip(arrays, squares, strict=True))
        norms: list[Call] = []
        if gradients is not None:
            terms = [*products.terms(gradients.places)]
            norms = [*gradients.calls, *products.calls, *self._finish(terms, dtype)]
        self.norm_calls: tuple[Call, ...] = (*products.measured, *norms)
        self.calls: tuple[Call, ...] = (*moments, *norms)

    @classmethod
    def of(
        cls,
        scratch: Scratch,
        grads: Gradients,
        outputs: Sequence[Array],
        before: Mapping[str, Array],
    ) -> "RowProbe":
        """Return the probe of a step's buffers; `outputs` are the activations of layers.

        `before` has the parameters before the step.
        """
        groups, gradients, unknown = scratch.mlp.groups, None, ""
        try:
            wanted = {*groups["weights"], *groups["biases"]}
            gradients = RowGradients(scratch, grads, wanted, before)
        except UsageError as reason:
            unknown = str(reason)
        nodes = [node for node in scratch.recording.tape.inputs if node.spec.is_float]
        inputs = [flat_rows(scratch.program.value(node)) for node in nodes]
        return cls(gradients, [*inputs, *outputs], inputs=len(inputs), unknown=unknown)

    def _moments(self, arrays: Sequence[Array], squares: Array) -> Calls:
        """Yield the calls that set `totals`, and write the sum of squares of rows to `squares`."""
        sums = np.zeros_like(squares)
        for array, row, square in zip(arrays, sums, squares, strict=True):
            yield call(np.dot, array, np.ones(array.shape[1], array.dtype), row)
            yield call(np.vecdot, array, array, square)
        yield call(np.add.reduce, sums, 1, np.float64, self.totals[0])
        yield call(np.add.reduce, squares, 1, np.float64, self.totals[1])

    def _finish(self, terms: Sequence[tuple[Array, list[Array]]], dtype: np.dtype[Any]) -> Calls:
        """Yield the calls that compute `norms` from `terms` (see `_Products.terms`)."""
        squares = np.zeros((len(terms), self._batch), dtype)
        for square, (product, (first, *others)) in zip(squares, terms, strict=True):
            for other in others:
                yield call(np.add, first, other, square)
                first = square
            yield call(np.multiply, first, product, square)
        yield call(np.add.reduce, squares, 0, np.float64, self.norms)
        yield call(np.clip, self.norms, 0.0, None, self.norms)  # rounded sums may be below 0
        yield call(np.sqrt, self.norms, self.norms)
        yield call(np.multiply, self.norms, self.mean_rows, self.norms)

    def moments(self) -> list[tuple[float, float]]:
        """Return mean and standard deviation of all inputs, then of the activations by layer."""
        moments, several = [], self._inputs
        sums = [[sum(v[:several]), *v[several:]] for v in (*self.totals.tolist(), self.sizes)]
        for total, square, size in zip(*sums, strict=True):
            mean = total / size if size else 0.0  # no float inputs: no entries
            moments.append((mean, sqrt(max(0.0, square / (size or 1) - mean * mean))))
        return moments

    def summarize(self, values: list[float], rows: Array | None) -> float:
        """Write the statistics of the norms into `values`; return the mean square of the norms.

        `rows` are the row indices of the batch; None stands for positions in the batch.  If the
        norms are unknown, return NaN and write nothing.
        """
        if self.unknown:
            return nan
        batch, ordered = self._batch, self._sorted
        np.copyto(ordered, self.norms)
        ordered.sort()
        index = NET_INDEX["example_norm_median"]
        values[index] = float(ordered[(batch - 1) // 2] + ordered[batch // 2]) / 2
        values[index + 1] = float(ordered[-1])
        hardest = int(self.norms.argmax())
        values[index + 2] = float(hardest if rows is None else rows[hardest])
        return float(np.dot(ordered, ordered)) / batch


class _Products:
    """Inner products of the rows of arrays; each product is computed once.

    The argument `measured` has pairs of an array and the memory of its squared row norms.

    Attributes:
        calls: calls that compute the products.
        measured: calls that compute the squared row norms that are needed.
    """

    def __init__(self, measured: Iterable[tuple[Array, Array]]) -> None:
        self._known = {(address_of(a), address_of(a)): square for a, square in measured}
        self._rows: dict[tuple[int, int], Array] = {}
        self.calls: list[Call] = []
        self.measured: list[Call] = []

    def of(self, a: Array, b: Array) -> Array:
        """Return the memory for the inner products of rows of two arrays."""
        key = address_of(a), address_of(b)
        if key not in self._rows:
            row = self._known.get(key)
            self._rows[key] = np.zeros(len(a), a.dtype) if row is None else row
            calls = self.calls if row is None else self.measured
            calls.append(call(np.vecdot, a, b, self._rows[key]))
        return self._rows[key]

    def terms(self, places: Mapping[str, Sequence[RowGradient]]) -> list[tuple[Array, list[Array]]]:
        """Return the terms of the squared norms; a term is product * (sum of its factors).

        The inner product of two outer products is (left . left') * (right . right').
        """
        sums: dict[int, tuple[Array, list[Array]]] = {}
        for gradients in places.values():
            for one, other in combinations_with_replacement(gradients, 2):
                factor = 1 if one is other else 2
                scale = np.array(factor, one.left.dtype)
                if one.left.ndim == 3 or other.left.ndim == 3:
                    product = self._of_tokens(one, other)
                    sums[address_of(product)] = product, [scale]
                    continue
                product = self.of(one.left, other.left)
                if one.right is not None and other.right is not None:
                    right = self.of(one.right, other.right)
                    if factor != 1:
                        scaled = np.zeros_like(right)
                        self.calls.append(call(np.multiply, right, scale, scaled))
                        right = scaled
                    scale = right
                sums.setdefault(address_of(product), (product, []))[1].append(scale)
        return [*sums.values()]

    def _of_tokens(self, one: RowGradient, other: RowGradient) -> Array:
        """Return the inner products of two sums of outer products over tokens."""
        products = []
        for a, b in ((one.left, other.left), (one.right, other.right)):
            assert a is not None
            assert b is not None
            left, right = (x.reshape(len(x), -1, x.shape[-1]) for x in (a, b))
            products.append(np.zeros((len(a), left.shape[1], right.shape[1]), a.dtype))
            self.calls.append(call(np.matmul, left, right.transpose(0, 2, 1), products[-1]))
        total = np.zeros(len(products[0]), products[0].dtype)
        self.calls.append(call(np.multiply, *products, products[0]))
        self.calls.append(call(np.add.reduce, products[0], (1, 2), None, total))
        return total


class NoiseScale:
    """The simple gradient noise scale in rows: the batch size at which noise equals signal.

    In a batch of B rows, let R be the mean squared norm of the gradients of rows, and N the squared
    norm of the gradient of the batch.  S = B/(B-1) (R - N) estimates the trace of the covariance,
    and N - S/B the squared norm of the true gradient.  The noise scale is the running mean of S
    divided by the running mean of N - S/B.

    Source: McCandlish et al. 2018, arXiv 1812.06162, appendix A.1.
    """

    def __init__(self) -> None:
        self.variance = self.squared_norm = 0.0

    def add(self, mean_square: float, norm: float, batch: int, values: list[float]) -> None:
        """Add a batch; write the estimates and the noise scale into `values`."""
        if batch < 2 or isnan(mean_square):
            return
        variance = max(0.0, batch / (batch - 1) * (mean_square - norm * norm))
        squared_norm = norm * norm - variance / batch
        self.variance += (1.0 - NOISE_DECAY) * (variance - self.variance)
        self.squared_norm += (1.0 - NOISE_DECAY) * (squared_norm - self.squared_norm)
        index = NET_INDEX["gradient_variance"]
        values[index], values[index + 1] = variance, squared_norm
        values[index + 2] = self.value

    @property
    def value(self) -> float:
        """The noise scale; NaN unless the estimated squared norm is positive."""
        return self.variance / self.squared_norm if self.squared_norm > 0 else nan

    def state_dict(self) -> dict[str, Any]:
        """Return both running means."""
        return {"variance": self.variance, "squared_norm": self.squared_norm}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.variance = float(state["variance"])
        self.squared_norm = float(state["squared_norm"])
