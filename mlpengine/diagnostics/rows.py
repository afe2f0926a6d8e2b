"""Gradients of single rows: their norms, without computing them, and the gradient noise scale.

For a dense layer the gradient of one row's weights is the outer product of delta and input, so
that its squared norm, bias included, is norm(delta)**2 * (norm(input)**2 + 1).

Source: Goodfellow 2015, arXiv 1510.01799.

The gradient of a row is that of its term in the batch's loss, times the number of rows: the mean
over the rows is the batch's gradient, and a row of sample weight 2 has twice the gradient.
"""

from collections.abc import Mapping
from math import ceil, nan, sqrt
from typing import Any

import numpy as np

from mlpengine.common.buffers import replay
from mlpengine.diagnostics.buffers import LayerBuffers, layer_buffers
from mlpengine.diagnostics.samples import NET_INDEX
from mlpengine.diagnostics.trial import clone
from mlpengine.nn import Mlp
from mlpengine.ops import Loss
from mlpengine.spec import Array, Call, Calls, call

TOP_SHARE = 0.01
"""Share of the rows with the largest norms, whose part of the sum of norms is reported."""


class RowProbe:
    """The calls that compute the norms of the rows' gradients, and moments of the activations.

    In float32 a norm below 1e-18 becomes 0, and one above 1e19 infinite.

    Attributes:
        norms: (batch,), the norms of the rows' gradients, float64.
        mean_rows: 0-d, the number of rows of the loss's mean, of which the buffers may have a part.
        norm_calls: the calls that set `norms` only.
        calls: the calls that set `norms` and `totals`.
        totals: (2, layers + 1), float64, sum and sum of squares of the input and of each layer's
            activations.
    """

    def __init__(self, buffers: list[LayerBuffers]) -> None:
        layers, batch, dtype = len(buffers), len(buffers[0].x), buffers[0].x.dtype
        self._batch, self._top = batch, max(1, ceil(TOP_SHARE * batch))
        self.norms: Array = np.zeros(batch)
        self.mean_rows: Array = np.array(float(batch))
        self.totals: Array = np.zeros((2, layers + 1))
        self.sizes = [buffers[0].x.size, *(b.y.size for b in buffers)]
        self._sorted = np.zeros(batch)
        squares = np.zeros((layers + 1, batch), dtype)
        deltas = np.zeros((layers, batch), dtype)
        inputs = squares[:layers]  # a layer's input is the output of the layer before
        separate = any(b.output is not b.y for b in buffers)
        if separate:
            inputs = np.zeros((layers, batch), dtype)
        input_calls: list[Call] = [
            call(np.vecdot, b.x, b.x, row) for b, row in zip(buffers, inputs, strict=True)
        ]
        norms: list[Call] = [
            *(
                call(np.vecdot, b.delta, b.delta, row)
                for b, row in zip(buffers, deltas, strict=True)
            ),
            *self._finish(inputs, deltas),
        ]
        self.norm_calls: tuple[Call, ...] = (*input_calls, *norms)
        moments = self._moments([buffers[0].x, *(b.y for b in buffers)], squares)
        self.calls: tuple[Call, ...] = (*moments, *(input_calls if separate else ()), *norms)

    def _moments(self, arrays: list[Array], squares: Array) -> Calls:
        """Yield the calls that set `totals`, and to `squares` the sum of squares of every row."""
        sums = np.zeros_like(squares)
        for array, row, square in zip(arrays, sums, squares, strict=True):
            yield call(np.dot, array, np.ones(array.shape[1], array.dtype), row)
            yield call(np.vecdot, array, array, square)
        yield call(np.add.reduce, sums, 1, np.float64, self.totals[0])
        yield call(np.add.reduce, squares, 1, np.float64, self.totals[1])

    def _finish(self, inputs: Array, deltas: Array) -> Calls:
        """Yield the calls that sum over the layers."""
        one = np.ones((), inputs.dtype)
        yield call(np.add, inputs, one, inputs)
        yield call(np.multiply, inputs, deltas, inputs)
        yield call(np.add.reduce, inputs, 0, np.float64, self.norms)
        yield call(np.sqrt, self.norms, self.norms)
        yield call(np.multiply, self.norms, self.mean_rows, self.norms)

    def moments(self) -> list[tuple[float, float]]:
        """Return mean and standard deviation of the input and of each layer's activations."""
        moments = []
        for total, square, size in zip(*self.totals.tolist(), self.sizes, strict=True):
            mean = total / size
            moments.append((mean, sqrt(max(0.0, square / size - mean * mean))))
        return moments

    def summarize(self, values: list[float], rows: Array | None) -> float:
        """Write the statistics of the norms into `values`; return the mean square of the norms.

        `rows` are the numbers of the batch's rows; None numbers them by position in the batch.
        """
        batch, ordered = self._batch, self._sorted
        np.copyto(ordered, self.norms)
        ordered.sort()
        index = NET_INDEX["example_norm_median"]
        values[index] = float(ordered[(batch - 1) // 2] + ordered[batch // 2]) / 2
        values[index + 1] = float(ordered[-1])
        total = float(np.add.reduce(ordered))
        values[index + 2] = float(np.add.reduce(ordered[-self._top :])) / total if total else nan
        hardest = int(self.norms.argmax())
        values[index + 3] = float(hardest if rows is None else rows[hardest])
        return float(np.dot(ordered, ordered)) / batch


class NoiseScale:
    """The simple gradient noise scale, in rows: the batch size at which noise equals signal.

    S = B/(B-1) (mean squared norm of a row's gradient - squared norm of the batch's) estimates the
    trace of the covariance, squared norm - S/B the squared norm of the true gradient; both are
    averaged over samples before one is divided by the other.

    Source: McCandlish et al. 2018, arXiv 1812.06162, appendix A.1.
    """

    DECAY = 0.9
    """Weight of the past in the running means."""

    def __init__(self) -> None:
        self.variance = self.squared_norm = 0.0

    def add(self, mean_square: float, norm: float, batch: int, values: list[float]) -> None:
        """Add a batch, and write its estimates and the noise scale into `values`."""
        if batch < 2:
            return
        variance = max(0.0, batch / (batch - 1) * (mean_square - norm * norm))
        squared_norm = norm * norm - variance / batch
        self.variance += (1.0 - self.DECAY) * (variance - self.variance)
        self.squared_norm += (1.0 - self.DECAY) * (squared_norm - self.squared_norm)
        index = NET_INDEX["gradient_variance"]
        values[index], values[index + 1] = variance, squared_norm
        values[index + 2] = self.value
        square = norm * norm  # 0 of the tiniest norms
        values[index + 3] = variance / (batch * square) if square > 0 else nan

    @property
    def value(self) -> float:
        """The noise scale; NaN while the estimate of the squared norm is not positive."""
        return self.variance / self.squared_norm if self.squared_norm > 0 else nan

    def state_dict(self) -> dict[str, Any]:
        """Return both running means."""
        return {"variance": self.variance, "squared_norm": self.squared_norm}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.variance = float(state["variance"])
        self.squared_norm = float(state["squared_norm"])


EXAMPLE_NORM_ROWS = 256
"""Rows of one forward pass in `example_norms`."""


def example_norms(mlp: Mlp, loss: Loss, x: Array, y: Array, weights: Array | None = None) -> Array:
    """Return the norm of each row's gradient, without dropout; the network does not change.

    Works for losses whose value is a mean over rows, as all of `mlpengine.ops` are.  With
    `weights` a row's gradient is multiplied by its weight; without, rows are comparable.

    Shapes: x (rows, in_dim), y as the loss takes it, weights (rows,); result (rows,), float64.
    Source: Goodfellow 2015, arXiv 1510.01799.
    """
    net = clone(mlp)
    norms = np.zeros(len(x))
    full_scratch = net.scratch(min(EXAMPLE_NORM_ROWS, max(1, len(x))))
    full_grads = net.gradients(full_scratch.batch_size)
    probes: dict[int, RowProbe] = {}
    for start in range(0, len(x), EXAMPLE_NORM_ROWS):
        part = slice(start, min(start + EXAMPLE_NORM_ROWS, len(x)))
        rows = part.stop - start
        scratch, grads = full_scratch.for_rows(rows), full_grads.for_rows(rows)
        if rows not in probes:
            probes[rows] = RowProbe(layer_buffers(scratch, grads))
        net.forward(x[part], scratch)
        loss(scratch.output, y[part], grads.d_output, None if weights is None else weights[part])
        net.backward(scratch, grads)
        with np.errstate(all="ignore"):
            replay(probes[rows].norm_calls)
        norms[part] = probes[rows].norms
    return norms


def row_losses(mlp: Mlp, loss: Loss, x: Array, y: Array, weights: Array | None = None) -> Array:
    """Return the loss of each row.  Computes one row at a time: meant for a few rows.

    Shapes: as for `example_norms`.
    """
    output, losses = mlp.predict(x), np.zeros(len(x))
    bound = loss.bind(np.zeros((1, mlp.sizes[-1])), None, weighted=weights is not None)
    for row in range(len(x)):
        bound.output[...] = output[row]
        bound.target[...] = y[row]
        if weights is not None and bound.sample_weight is not None:
            bound.sample_weight[...] = weights[row]
        replay(bound.forward)
        losses[row] = float(bound.value)
    return losses
