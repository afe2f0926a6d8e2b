"""Embeddings of numbers: a feature becomes cosines, or linear functions of cosines."""

from dataclasses import dataclass
from math import pi

import numpy as np

from mlpengine.core.errors import ShapeError
from mlpengine.core.spec import Array, Calls, Slots, Spec, call
from mlpengine.formula.numpy_functions import constant_like
from mlpengine.ops._check import listing, need_floats
from mlpengine.ops.op import GradOp


@dataclass(frozen=True)
class PeriodicEmbedding(GradOp, name="periodic_embedding"):
    """All features, followed by linear functions of cosines of the first `embedded` features.

    Feature j gives the vector c = cos(2 pi frequency[j] x_j + phase[j]).  Its embedding is
    weight[j] @ c + bias[j] or, without weight and bias, c.

    Shapes: x (batch, features), frequency and phase (embedded, waves) with embedded <= features,
    weight (embedded, outputs, waves), bias (embedded, outputs),
    y (batch, features + embedded * outputs): x, then the embedding of each embedded feature.
    Backward: by the chain rule, for all operands.
    Raises: ShapeError if the shapes disagree.
    Source: Gorishniy et al. 2022, arXiv 2203.05556, section 3.3; Holzmueller et al. 2024,
    arXiv 2407.04491, section 3 (PBLD: with phases, without sines).
    """

    cheap = False

    def infer(
        self,
        x: Spec,
        frequency: Spec,
        phase: Spec,
        weight: Spec | None = None,
        bias: Spec | None = None,
    ) -> Spec:
        need_floats(self.name, x=x, frequency=frequency, phase=phase, weight=weight, bias=bias)
        shapes = listing(x=x, frequency=frequency, phase=phase, weight=weight, bias=bias)
        if len(x.shape) != 2 or len(frequency.shape) != 2 or frequency.shape[0] > x.shape[1]:
            raise ShapeError(
                f"{self.name}: x (batch, features) needs at least as many columns as frequency "
                f"(embedded, waves) has rows ({shapes})"
            )
        embedded, outputs = frequency.shape
        if phase.shape != frequency.shape:
            raise ShapeError(f"{self.name}: phase must have frequency's shape ({shapes})")
        if weight is not None:
            outputs = weight.shape[1] if len(weight.shape) == 3 else 0
            if weight.shape != (embedded, outputs, frequency.shape[1]):
                raise ShapeError(
                    f"{self.name}: weight must be (embedded, outputs, waves) ({shapes})"
                )
        if (bias is None) != (weight is None) or (bias and bias.shape != (embedded, outputs)):
            raise ShapeError(
                f"{self.name}: weight and bias must be given together, bias as "
                f"(embedded, outputs) ({shapes})"
            )
        return Spec((x.shape[0], x.shape[1] + embedded * outputs), x.dtype)

    def work(
        self, x: Spec, frequency: Spec, phase: Spec, weight: Spec | None, bias: Spec | None
    ) -> dict[str, Spec]:
        embedded, waves = frequency.shape
        rows, outputs = x.shape[0], 0 if weight is None else weight.shape[1]
        wide = Spec((embedded, rows, waves), x.dtype)
        mixed = Spec((embedded, rows, outputs), x.dtype)
        return {
            "angle": wide,
            "wave": wide,
            "mixed": mixed,
            "slope": wide,
            "sine": wide,
            "moved": mixed,
            "sums": Spec((embedded, rows), x.dtype),
        }

    def forward(
        self,
        x: Array,
        frequency: Array,
        phase: Array,
        weight: Array | None,
        bias: Array | None,
        *,
        out: Array,
        angle: Array,
        wave: Array,
        mixed: Array,
    ) -> Calls:
        features, embedded = x.shape[1], len(frequency)
        yield call(np.copyto, out[:, :features], x)
        yield call(np.multiply, _columns(x, embedded), frequency[:, None, :], angle)
        yield call(np.multiply, angle, constant_like(2 * pi, x), angle)
        yield call(np.add, angle, phase[:, None, :], angle)
        yield call(np.cos, angle, wave)
        made = wave
        if weight is not None and bias is not None:
            yield call(np.matmul, wave, weight.transpose(0, 2, 1), mixed)
            yield call(np.add, mixed, bias[:, None, :], mixed)
            made = mixed
        yield call(np.copyto, _by_feature(out, features, made.shape), made)

    def backward(
        self,
        dy: Array,
        x: Array,
        frequency: Array,
        phase: Array,
        weight: Array | None,
        *,
        out: Slots,
        angle: Array,
        wave: Array,
        slope: Array,
        sine: Array,
        moved: Array,
        sums: Array,
    ) -> Calls:
        dx, d_frequency, d_phase, d_weight, d_bias = out
        features, turn = x.shape[1], constant_like(2 * pi, x)
        into = slope if weight is None else moved
        yield call(np.copyto, into, _by_feature(dy, features, into.shape))
        if d_weight is not None:
            yield call(np.matmul, moved.transpose(0, 2, 1), wave, d_weight)
        if d_bias is not None:
            yield call(np.add.reduce, moved, 1, None, d_bias)
        if dx is None and d_frequency is None and d_phase is None:
            return
        if weight is not None:
            yield call(np.matmul, moved, weight, slope)
        yield call(np.sin, angle, sine)
        yield call(np.multiply, slope, sine, slope)
        yield call(np.negative, slope, slope)  # the gradient of the angle
        if d_phase is not None:
            yield call(np.add.reduce, slope, 1, None, d_phase)
        if d_frequency is not None:
            yield call(np.multiply, slope, _columns(x, len(frequency)), sine)
            yield call(np.add.reduce, sine, 1, None, d_frequency)
            yield call(np.multiply, d_frequency, turn, d_frequency)
        if dx is not None:
            yield call(np.multiply, slope, frequency[:, None, :], sine)
            yield call(np.add.reduce, sine, 2, None, sums)
            yield call(np.multiply, sums, turn, sums)
            yield call(np.copyto, dx, dy[:, :features])
            part = dx[:, : len(frequency)]
            yield call(np.add, part, sums.T, part)


def _columns(x: Array, count: int) -> Array:
    """Return the first `count` columns of `x` as (count, batch, 1)."""
    return x[:, :count].T[:, :, None]


def _by_feature(y: Array, features: int, shape: tuple[int, ...]) -> Array:
    """Return the columns of `y` after the features, as a view of `shape` (embedded, batch, n)."""
    embedded, rows, count = shape
    return y[:, features:].reshape(rows, embedded, count).transpose(1, 0, 2)
