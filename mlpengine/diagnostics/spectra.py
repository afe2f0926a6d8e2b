"""What singular values say about the weights of a network.  For offline use: an SVD is dear."""

from dataclasses import asdict, dataclass
from math import inf, nan
from typing import Any

import numpy as np

from mlpengine.nn import Mlp
from mlpengine.spec import Array

LEADING = 5


@dataclass(frozen=True)
class Spectrum:
    """The weights of one layer.

    `distance` is the norm of their difference from the start over the norm then, NaN if unknown;
    `stable_rank` is norm**2 over the squared largest singular value; `condition` the largest
    singular value over the smallest; `leading` the largest ones.
    """

    layer: int
    norm: float
    distance: float
    stable_rank: float
    full_rank: int
    condition: float
    leading: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return {k: None if v in (inf,) or v != v else v for k, v in asdict(self).items()}


def spectra(mlp: Mlp, start: Mlp | None = None) -> list[Spectrum]:
    """Return the spectrum of every layer's weights; `start` is the network before training.

    All numbers of a layer with weights that are not finite are NaN.
    """
    found = []
    for number, weight in enumerate(mlp.weights):
        wide: Array = weight.astype(np.float64)
        if not np.isfinite(wide).all():
            found.append(Spectrum(number, nan, nan, nan, min(wide.shape), nan, ()))
            continue
        values = np.linalg.svd(wide, compute_uv=False)
        norm, largest = float(np.linalg.norm(wide)), float(values[0])
        distance = nan
        if start is not None:
            first = start.weights[number].astype(np.float64)
            base = float(np.linalg.norm(first))
            distance = float(np.linalg.norm(wide - first)) / base if base else inf
        found.append(
            Spectrum(
                number,
                norm,
                distance,
                (norm / largest) ** 2 if largest else 0.0,
                len(values),
                largest / float(values[-1]) if values[-1] else inf,
                tuple(values[:LEADING].tolist()),
            )
        )
    return found
