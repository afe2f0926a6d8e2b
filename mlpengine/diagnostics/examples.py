"""The rows that a network finds hardest, by the norm of their own gradient."""

import numpy as np

from mlpengine.buffers import replay
from mlpengine.diagnostics.buffers import layer_buffers
from mlpengine.diagnostics.rows import RowProbe
from mlpengine.diagnostics.twins import twin
from mlpengine.nn import Mlp
from mlpengine.ops import Loss
from mlpengine.spec import Array

ROWS = 256
"""Rows that pass through the net at once."""


def example_norms(mlp: Mlp, loss: Loss, x: Array, y: Array, weights: Array | None = None) -> Array:
    """Return the norm of each row's gradient, without dropout; the network stays as it is.

    Works for losses whose value is a mean over rows, as all of `mlpengine.ops` are.  With
    `weights` a row's gradient is multiplied by its weight; without, rows compare.

    Shapes: x (rows, in_dim), y as the loss takes it, weights (rows,); result (rows,), float64.
    Source: Goodfellow 2015, arXiv 1510.01799.
    """
    net = twin(mlp)
    norms = np.zeros(len(x))
    full_scratch = net.scratch(min(ROWS, max(1, len(x))))
    full_grads = net.gradients(full_scratch.batch_size)
    probes: dict[int, RowProbe] = {}
    for start in range(0, len(x), ROWS):
        part = slice(start, min(start + ROWS, len(x)))
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
    """Return the loss of each row alone; for a few rows, as they are taken one by one.

    Shapes: as for `example_norms`.
    """
    output, found = mlp.predict(x), np.zeros(len(x))
    bound = loss.bind(np.zeros((1, mlp.sizes[-1])), None, weighted=weights is not None)
    for row in range(len(x)):
        bound.output[...] = output[row]
        bound.target[...] = y[row]
        if weights is not None and bound.sample_weight is not None:
            bound.sample_weight[...] = weights[row]
        replay(bound.forward)
        found[row] = float(bound.value)
    return found
