"""Ops that draw random numbers with a `Philox` generator."""

from dataclasses import dataclass
from math import pi
from numbers import Real

import numpy as np

from mlpengine.core.errors import ShapeError, UsageError
from mlpengine.core.spec import Array, Calls, Slots, Spec, call
from mlpengine.formula.numpy_functions import constant_like
from mlpengine.ops._check import listing, need_floats
from mlpengine.ops.op import GradOp
from mlpengine.ops.philox import BYTE_VALUES, Philox, lines_per_row


@dataclass(frozen=True)
class Dropout(GradOp, name="dropout"):
    """Inverted dropout, y = x * mask; mask is 0 with probability p, else 1 / (1 - p).

    Each entry uses one random byte, so p is `rate` rounded to a multiple of 1/256, from 1/256 to
    255/256; only a rate of 0 gives p = 0.  The mask depends only on the seed and the step of `rng`,
    on `layer`, and on the position of the entry; it is equal on every backend.  Forward of layer 0
    advances `rng` to the next step before it draws.  In evaluation, no dropout is recorded.

    Shapes: x (..., columns), y (..., columns).
    Backward: dx = dy * mask, with the mask of the last forward.
    Raises: UsageError unless 0 <= rate < 1 and `rng` is a Philox.
    Source: Srivastava et al. 2014, section 10 (scaling while training).
    """

    rate: float
    rng: Philox
    layer: int = 0

    cheap = False
    in_place = ("forward", "backward")

    def __post_init__(self) -> None:
        if not (isinstance(self.rate, Real) and 0 <= self.rate < 1):
            raise UsageError(f"dropout: rate must be at least 0 and below 1 (rate {self.rate!r})")
        if not isinstance(self.rng, Philox):
            kind = type(self.rng).__name__
            raise UsageError(f"dropout: rng must be a Philox, such as Philox(seed) (got a {kind})")

    @property
    def limit(self) -> int:
        """The integer p * 256; an entry is dropped if its random byte is below this limit."""
        return min(max(round(self.rate * BYTE_VALUES), 1), BYTE_VALUES - 1) if self.rate else 0

    @property
    def scale(self) -> float:
        """The factor of the kept entries, 1 / (1 - p)."""
        return BYTE_VALUES / (BYTE_VALUES - self.limit)

    def infer(self, x: Spec) -> Spec:
        need_floats("dropout", x=x)
        return x

    def work(self, x: Spec) -> dict[str, Spec]:
        return {"mask": x, "draws": Spec(x.shape, np.dtype(np.uint8))}

    def forward(self, x: Array, *, out: Array, mask: Array, draws: Array) -> Calls:
        if self.layer == 0:
            yield self.rng.advance
        yield from self.rng.draw(self.layer, draws, lines_per_row(draws.shape))
        limit, scale = np.array(self.limit, np.uint8), constant_like(self.scale, mask)
        yield call(np.greater_equal, draws, limit, mask)
        yield call(np.multiply, mask, scale, mask)
        yield call(np.multiply, x, mask, out)

    def backward(self, dy: Array, *, out: Slots, mask: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.multiply, dy, mask, dx)


class Normal(GradOp, name="normal"):
    """A sample of a normal distribution, y = mean + deviation * z, with standard normal z.

    z depends only on the seed and the step of `rng`, on `layer`, and on the position of the entry
    (see `Dropout`).  It is the Box-Muller transform of 32-bit numbers, so abs(z) < 6.7.

    Shapes: mean, deviation and y (..., columns).
    Backward: dmean = dy, ddeviation = dy * z (Kingma and Welling 2014, section 2.4).
    Raises: ShapeError unless mean and deviation have one shape; UsageError unless `rng` is a
        Philox.
    """

    cheap = False

    def __init__(self, rng: Philox, layer: int = 0) -> None:
        self.rng, self.layer = rng, layer
        if not isinstance(rng, Philox):
            kind = type(rng).__name__
            raise UsageError(f"normal: rng must be a Philox, such as Philox(seed) (got a {kind})")

    def infer(self, mean: Spec, deviation: Spec) -> Spec:
        need_floats("normal", mean=mean, deviation=deviation)
        if mean.shape != deviation.shape or not mean.shape:
            listed = listing(mean=mean, deviation=deviation)
            raise ShapeError(f"normal: mean and deviation need one shape ({listed})")
        return mean

    def work(self, mean: Spec, deviation: Spec) -> dict[str, Spec]:
        pairs = -(-mean.shape[-1] // 2)
        lines = (mean.size // max(mean.shape[-1], 1), pairs)
        return {
            "z": mean,
            "draws": Spec((lines[0], pairs * 8), np.dtype(np.uint8)),
            "polar": Spec((3, *lines), np.dtype(np.float64)),
        }

    def forward(
        self, mean: Array, deviation: Array, *, out: Array, z: Array, draws: Array, polar: Array
    ) -> Calls:
        if self.layer == 0:
            yield self.rng.advance
        yield from self.rng.draw(self.layer, draws, lines_per_row(mean.shape))
        radius, angle, product = polar
        pairs, columns = radius.shape[1], z.reshape(len(radius), z.shape[-1])
        first, second = draws.view(np.uint32)[:, :pairs], draws.view(np.uint32)[:, pairs:]
        yield call(np.add, first, np.array(1.0), radius)
        yield call(np.multiply, radius, np.array(2.0**-32), radius)
        yield call(np.log, radius, radius)
        yield call(np.multiply, radius, np.array(-2.0), radius)
        yield call(np.sqrt, radius, radius)
        yield call(np.multiply, second, np.array(pi * 2.0**-31), angle)
        for function, part in ((np.cos, columns[:, :pairs]), (np.sin, columns[:, pairs:])):
            yield call(function, angle, product)
            yield call(np.multiply, product, radius, product)
            yield call(np.copyto, part, product[:, : part.shape[1]])
        yield call(np.multiply, deviation, z, out)
        yield call(np.add, mean, out, out)

    def backward(self, dy: Array, *, out: Slots, z: Array) -> Calls:
        dmean, ddeviation = out
        if dmean is not None:
            yield call(np.copyto, dmean, dy)
        if ddeviation is not None:
            yield call(np.multiply, dy, z, ddeviation)
