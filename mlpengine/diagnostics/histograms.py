"""How the weights, and the gradients of some rows, are distributed.  For offline use."""

from typing import Any

import numpy as np

from mlpengine.diagnostics.twins import Rows, twin
from mlpengine.nn import Mlp
from mlpengine.ops import Loss
from mlpengine.spec import Array

BINS = 20
ROWS = 1024
"""Rows, drawn at random, whose mean gradient is shown."""


def histograms(mlp: Mlp, loss: Loss, rows: Rows) -> list[dict[str, Any]]:
    """Return, for each parameter, counts and edges of its entries and of their gradients.

    Gradients are those of up to `ROWS` rows, without dropout.  Entries that are not finite are
    left out and counted apart.
    """
    x, y, weights = rows.some(ROWS).take(slice(None))
    net = twin(mlp)
    scratch, grads = net.scratch(len(x)), net.gradients(len(x))
    loss(net.forward(x, scratch), y, grads.d_output, weights)
    net.backward(scratch, grads)
    return [
        {"name": name, "weights": _counts(view), "gradients": _counts(grads.views[name])}
        for name, view in net.params.views.items()
    ]


def _counts(values: Array) -> dict[str, Any]:
    flat = values.reshape(-1).astype(np.float64)
    known = flat[np.isfinite(flat)]
    counts, edges = np.histogram(known, BINS)
    return {
        "counts": counts.tolist(),
        "edges": edges.tolist(),
        "not_finite": int(flat.size - known.size),
    }
