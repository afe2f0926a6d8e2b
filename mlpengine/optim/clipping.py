"""Gradient clipping by the global norm of all gradients."""

from collections.abc import Callable
from math import isfinite

import numpy as np

from mlpengine.core.spec import Array, call
from mlpengine.tape.norm import GlobalNorm, clip_coefficient


def bind_clip(max_norm: float | None, grads: Array) -> Callable[[], tuple[float, float]]:
    """Return a function that clips a flat vector: grads *= min(1, max_norm / (norm + 1e-6)).

    The function returns the norms before and after.  It does not change the gradients if `max_norm`
    is None or the norm is not finite.

    Source: Pascanu et al. 2013, arXiv 1211.5063, algorithm 1; the 1e-6 is PyTorch's.
    """
    norm, factor = GlobalNorm(grads), np.array(1.0, grads.dtype)
    scale = call(np.multiply, grads, factor, grads)

    def apply() -> tuple[float, float]:
        before = norm()
        if max_norm is None or not isfinite(before):
            return before, before
        coefficient = clip_coefficient(before, max_norm)
        if coefficient >= 1.0:
            return before, before
        factor[()] = coefficient
        scale()
        return before, before * coefficient

    return apply
