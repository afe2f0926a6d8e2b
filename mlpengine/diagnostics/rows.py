"""Norms of the gradients of single rows, without computing these gradients.

For a dense layer the gradient of one row's weights is the outer product of delta and input, so
that its squared norm, bias included, is norm(delta)**2 * (norm(input)**2 + 1).

Source: Goodfellow 2015, arXiv 1510.01799.

A row's own gradient is that of what the row adds to the batch's loss, times the number of rows:
the mean over the rows is the batch's gradient, and a row of sample weight 2 has twice the gradient.
"""

from math import ceil, nan, sqrt

import numpy as np

from mlpengine.diagnostics.buffers import LayerBuffers
from mlpengine.diagnostics.quantities import NET_PLACE
from mlpengine.spec import Array, Call, Calls, call

TOP_SHARE = 0.01
"""The share of the rows whose part in the sum of norms is reported."""


class RowProbe:
    """The calls that compute the norms of the rows' gradients, and moments of the activations.

    In float32 rows with a norm below 1e-18 count as 0, and one above 1e19 as infinite.

    Attributes:
        norms: (batch,), the norms of the rows' gradients, float64.
        norm_calls: what sets `norms` and nothing else.
        calls: what sets `norms` and `totals`.
        totals: (2, layers + 1), float64, sum and sum of squares of the input and of each layer's
            activations.
    """

    def __init__(self, buffers: list[LayerBuffers]) -> None:
        layers, batch, dtype = len(buffers), len(buffers[0].x), buffers[0].x.dtype
        self._batch, self._top = batch, max(1, ceil(TOP_SHARE * batch))
        self.norms: Array = np.zeros(batch)
        self.totals: Array = np.zeros((2, layers + 1))
        self.sizes = [buffers[0].x.size, *(b.y.size for b in buffers)]
        self._sorted = np.zeros(batch)
        squares = np.zeros((layers + 1, batch), dtype)
        deltas = np.zeros((layers, batch), dtype)
        inputs = squares[:layers]  # a layer reads what the one before passed on
        apart = any(b.passed_on is not b.y for b in buffers)
        if apart:
            inputs = np.zeros((layers, batch), dtype)
        reading: list[Call] = [
            call(np.vecdot, b.x, b.x, row) for b, row in zip(buffers, inputs, strict=True)
        ]
        norms: list[Call] = [
            *(
                call(np.vecdot, b.delta, b.delta, row)
                for b, row in zip(buffers, deltas, strict=True)
            ),
            *self._finish(inputs, deltas),
        ]
        self.norm_calls: tuple[Call, ...] = (*reading, *norms)
        moments = self._moments([buffers[0].x, *(b.y for b in buffers)], squares)
        self.calls: tuple[Call, ...] = (*moments, *(reading if apart else ()), *norms)

    def _moments(self, arrays: list[Array], squares: Array) -> Calls:
        """Yield the calls that set `totals`, and to `squares` the sum of squares of every row."""
        sums = np.zeros_like(squares)
        for array, row, square in zip(arrays, sums, squares, strict=True):
            yield call(np.dot, array, np.ones(array.shape[1], array.dtype), row)
            yield call(np.vecdot, array, array, square)
        yield call(np.add.reduce, sums, 1, np.float64, self.totals[0])
        yield call(np.add.reduce, squares, 1, np.float64, self.totals[1])

    def _finish(self, inputs: Array, deltas: Array) -> Calls:
        """Yield the calls that put the layers together."""
        one, batch = np.ones((), inputs.dtype), np.array(float(self._batch))
        yield call(np.add, inputs, one, inputs)
        yield call(np.multiply, inputs, deltas, inputs)
        yield call(np.add.reduce, inputs, 0, np.float64, self.norms)
        yield call(np.sqrt, self.norms, self.norms)
        yield call(np.multiply, self.norms, batch, self.norms)

    def moments(self) -> list[tuple[float, float]]:
        """Return mean and standard deviation of the input and of each layer's activations."""
        found = []
        for total, square, size in zip(*self.totals.tolist(), self.sizes, strict=True):
            mean = total / size
            found.append((mean, sqrt(max(0.0, square / size - mean * mean))))
        return found

    def summarize(self, values: list[float], rows: Array | None) -> float:
        """Write what is said about the norms into `values`; return their mean square.

        `rows` are the numbers of the batch's rows; without them the place in the batch stands in.
        """
        batch, ordered = self._batch, self._sorted
        np.copyto(ordered, self.norms)
        ordered.sort()
        place = NET_PLACE["example_norm_median"]
        values[place] = float(ordered[(batch - 1) // 2] + ordered[batch // 2]) / 2
        values[place + 1] = float(ordered[-1])
        total = float(np.add.reduce(ordered))
        values[place + 2] = float(np.add.reduce(ordered[-self._top :])) / total if total else nan
        hardest = int(self.norms.argmax())
        values[place + 3] = float(hardest if rows is None else rows[hardest])
        return float(np.dot(ordered, ordered)) / batch


class NoiseScale:
    """The simple gradient noise scale, in rows: how large a batch would average the noise away.

    S = B/(B-1) (mean squared norm of a row's gradient - squared norm of the batch's) estimates the
    trace of the covariance, squared norm - S/B the squared norm of the true gradient; both are
    averaged over samples before one is divided by the other.

    Source: McCandlish et al. 2018, arXiv 1812.06162, appendix A.1.
    """

    KEPT = 0.9
    """Weight of the past in the running means."""

    def __init__(self) -> None:
        self.variance = self.squared_norm = 0.0

    def add(self, mean_square: float, norm: float, batch: int, values: list[float]) -> None:
        """Take a batch in and write what it shows into `values`."""
        if batch < 2:
            return
        variance = max(0.0, batch / (batch - 1) * (mean_square - norm * norm))
        squared_norm = norm * norm - variance / batch
        self.variance += (1.0 - self.KEPT) * (variance - self.variance)
        self.squared_norm += (1.0 - self.KEPT) * (squared_norm - self.squared_norm)
        place = NET_PLACE["gradient_variance"]
        values[place], values[place + 1] = variance, squared_norm
        values[place + 2] = self.value
        values[place + 3] = variance / (batch * norm * norm) if norm > 0 else nan

    @property
    def value(self) -> float:
        """The noise scale; NaN as long as the gradient does not stand out from its noise."""
        return self.variance / self.squared_norm if self.squared_norm > 0 else nan

    def state(self) -> Array:
        """Return both running means."""
        return np.array([self.variance, self.squared_norm])

    def load(self, state: Array) -> None:
        """Take over what `state` returned."""
        self.variance, self.squared_norm = state.tolist()
