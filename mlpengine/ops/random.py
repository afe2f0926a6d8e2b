"""Ops that draw random numbers, from a generator that the caller passes."""

from dataclasses import dataclass

import numpy as np

from mlpengine.errors import UsageError
from mlpengine.formula.pieces import constant
from mlpengine.ops._check import need_floats
from mlpengine.ops._op import GradOp
from mlpengine.spec import Array, Calls, Slots, Spec, call


@dataclass(frozen=True)
class Dropout(GradOp, name="dropout"):
    """Inverted dropout, y = x * mask; mask is 0 with probability rate, else 1 / (1 - rate).

    Each forward draws a new mask from `rng`. Evaluation records no dropout at all.

    Shapes: x (...), y (...).
    Backward: dx = dy * mask, the mask of the last forward.
    Raises: UsageError unless 0 <= rate < 1.
    Source: Srivastava et al. 2014, section 10 (scaling while training).
    """

    rate: float
    rng: np.random.Generator

    cheap = False
    in_place = ("forward", "backward")

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise UsageError(f"dropout: rate must be at least 0 and below 1 (rate {self.rate})")

    def infer(self, x: Spec) -> Spec:
        need_floats("dropout", x=x)
        return x

    def work(self, x: Spec) -> dict[str, Spec]:
        return {"mask": x}

    def forward(self, x: Array, *, out: Array, mask: Array) -> Calls:
        yield call(self.rng.random, None, x.dtype, mask)  # uniform in [0, 1)
        yield call(np.greater_equal, mask, constant(self.rate, mask), mask)
        yield call(np.multiply, mask, constant(1 / (1 - self.rate), mask), mask)
        yield call(np.multiply, x, mask, out)

    def backward(self, dy: Array, *, out: Slots, mask: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.multiply, dy, mask, dx)
