"""The rows that a network finds hardest, by the norm of their own gradient."""

import numpy as np

from mlpengine.diagnostics.buffers import layer_buffers
from mlpengine.diagnostics.rows import RowProbe
from mlpengine.diagnostics.twins import twin
from mlpengine.nn import Mlp
from mlpengine.ops import Loss
from mlpengine.spec import Array
from mlpengine.tape.binding import replay

ROWS = 256
"""Rows that pass through the net at once."""


def example_norms(
    mlp: Mlp, loss: Loss, x: Array, y: Array, weights: Array | None = None
) -> tuple[Array, Array]:
    """Return the norm of each row's gradient and its loss, without dropout; no weight changes.

    Works for losses whose value is a mean over rows, as all of `mlpengine.ops` are.  With
    `weights` a row's gradient and loss are multiplied by its weight; without, rows compare.

    Shapes: x (rows, in_dim), y as the loss takes it, weights (rows,); both results (rows,),
    float64.
    Source: Goodfellow 2015, arXiv 1510.01799.
    """
    net = twin(mlp)
    norms, losses = np.zeros(len(x)), np.zeros(len(x))
    full_scratch = net.scratch(min(ROWS, max(1, len(x))))
    full_grads = net.gradients(full_scratch.batch_size)
    for start in range(0, len(x), ROWS):
        part = slice(start, min(start + ROWS, len(x)))
        scratch = full_scratch.for_rows(part.stop - start)
        grads = full_grads.for_rows(scratch.batch_size)
        net.forward(x[part], scratch)
        share = None if weights is None else weights[part]
        loss(scratch.output, y[part], grads.d_output, share)
        net.backward(scratch, grads)
        probe = RowProbe(layer_buffers(scratch, grads))
        with np.errstate(all="ignore"):
            replay(probe.norm_calls)
        norms[part] = probe.norms
        losses[part] = _row_losses(loss, scratch.output, y[part], share)
    return norms, losses


def _row_losses(loss: Loss, output: Array, y: Array, weights: Array | None) -> Array:
    """Return the loss of each row: the derivative of the weighted mean by the row's weight."""
    count = len(output)
    bound = loss.bind(output[:1].astype(np.float64), None, weighted=weights is not None)
    found = np.zeros(count)
    for row in range(count):
        bound.output[...] = output[row]
        bound.target[...] = y[row]
        if weights is not None and bound.sample_weight is not None:
            bound.sample_weight[...] = weights[row]
        replay(bound.forward)
        found[row] = float(bound.value)
    return found
