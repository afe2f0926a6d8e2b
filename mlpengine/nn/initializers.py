"""Initial weights: He, Glorot and LeCun (each normal or uniform), unit normal, and zeros.

Weights (out_dim, in_dim) have mean 0; their variance depends on fan_in = in_dim and fan_out =
out_dim.  Biases start at 0.

Sources: He et al. 2015, arXiv 1502.01852, equation 10; Glorot and Bengio 2010, equations 12, 16;
LeCun et al. 1998, "Efficient BackProp", section 4.6; Klambauer et al. 2017, arXiv 1706.02515,
appendix (LeCun normal for selu).
"""

from collections.abc import Callable
from math import sqrt

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array
from mlpengine.core.wording import suggestion
from mlpengine.ops import GradOp

VARIANCES: dict[str, Callable[[int, int], float]] = {
    "he": lambda in_dim, _out_dim: 2 / in_dim,
    "glorot": lambda in_dim, out_dim: 2 / (in_dim + out_dim),
    "lecun": lambda in_dim, _out_dim: 1 / in_dim,
}
"""Variance of a weight as a function of fan_in and fan_out."""

INITIALIZERS = (
    *(f"{f}_{kind}" for f in VARIANCES for kind in ("normal", "uniform")),
    "unit_normal",
    "zeros",
)


def suited_to(activation: GradOp | None) -> str:
    """Return the default initializer of a layer with this activation."""
    return getattr(activation, "initializer", "glorot_uniform")


def initialize(weight: Array, name: str, rng: np.random.Generator) -> None:
    """Fill `weight` (out_dim, in_dim) in place with float64 draws from `rng`."""
    if name not in INITIALIZERS:
        as_here = str(name).replace("xavier", "glorot").replace("kaiming", "he")  # names of PyTorch
        known, near = ", ".join(INITIALIZERS), suggestion(as_here, INITIALIZERS)
        raise UsageError(f"initializer: must be one of {known} (got {name!r}){near}")
    if name == "zeros":
        weight[...] = 0
        return
    if name == "unit_normal":
        weight[...] = rng.standard_normal(weight.shape)
        return
    out_dim, in_dim = weight.shape
    family, kind = name.split("_")
    deviation = sqrt(VARIANCES[family](in_dim, out_dim))
    if kind == "normal":
        weight[...] = rng.normal(0, deviation, weight.shape)
    else:
        bound = sqrt(3) * deviation
        weight[...] = rng.uniform(-bound, bound, weight.shape)
