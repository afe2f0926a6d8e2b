"""Spectra of weights, and histograms of weights and gradients.  Offline: an SVD is expensive."""

from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.core.structure import finite
from mlpengine.diagnostics.trial import Rows
from mlpengine.nn import Network
from mlpengine.ops import Loss

LEADING = 5
"""Number of singular values that a spectrum lists."""
HISTOGRAM_BINS = 20
GRADIENT_ROWS = 1024
"""Random rows whose mean gradient the histograms show."""


@dataclass(frozen=True)
class Spectrum:
    """Singular values of the weights of one layer.

    `distance` is the norm of the difference from the initial weights over the initial norm, NaN if
    unknown; `stable_rank` is norm**2 over the squared largest singular value; `condition` the
    largest singular value over the smallest; `leading` the largest ones.
    """

    layer: int
    norm: float
    distance: float
    stable_rank: float
    full_rank: int
    condition: float
    leading: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data; numbers that are not finite become None."""
        return {name: finite(value) for name, value in vars(self).items()}


def spectra(mlp: Network, start: Network | None = None) -> list[Spectrum]:
    """Return the spectrum of each matrix of weights; `start` is the network before training.

    Of an `Mlp` these are the layers; of other networks all parameters of the group "weights".  All
    numbers of a matrix that is not finite are NaN.
    """
    first = None if start is None else start.params.views
    return [
        _spectrum(number, mlp.params.views[name], None if first is None else first[name])
        for number, name in enumerate(mlp.groups["weights"])
    ]


def _spectrum(number: int, weight: Array, start: Array | None) -> Spectrum:
    wide: Array = weight.astype(np.float64).reshape(len(weight), -1)
    if not np.isfinite(wide).all():
        return Spectrum(number, nan, nan, nan, min(wide.shape), nan, ())
    values = np.linalg.svd(wide, compute_uv=False)
    norm, largest = float(np.linalg.norm(wide)), float(values[0])
    distance = nan
    if start is not None:
        first = start.astype(np.float64).reshape(wide.shape)
        base = float(np.linalg.norm(first))
        distance = float(np.linalg.norm(wide - first)) / base if base else inf
    return Spectrum(
        number,
        norm,
        distance,
        (norm / largest) ** 2 if largest else 0.0,
        len(values),
        largest / float(values[-1]) if values[-1] else inf,
        tuple(values[:LEADING].tolist()),
    )


def histograms(mlp: Network, loss: Loss, rows: Rows) -> list[dict[str, Any]]:
    """Return, for each parameter, counts and edges of its entries and of their gradients.

    Gradients are those of up to `GRADIENT_ROWS` rows, without dropout.  Entries that are not finite
    are counted separately.
    """
    x, y, weights = rows.sample(GRADIENT_ROWS).take(slice(None))
    net = mlp.without_dropout()
    scratch, grads = net.scratch(len(x)), net.gradients(len(x))
    loss(net.forward(x, scratch), y, grads.d_output, weights)
    net.backward(scratch, grads)
    return [
        {"name": name, "weights": _histogram(view), "gradients": _histogram(grads.views[name])}
        for name, view in net.params.views.items()
    ]


def _histogram(values: Array) -> dict[str, Any]:
    flat = values.reshape(-1).astype(np.float64)
    finite = flat[np.isfinite(flat)]
    counts, edges = np.histogram(finite, HISTOGRAM_BINS)
    return {
        "counts": counts.tolist(),
        "edges": edges.tolist(),
        "not_finite": int(flat.size - finite.size),
    }
