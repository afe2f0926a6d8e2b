"""Values at kinks, ties, poles, NaN and infinity, and refused options."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from bound import Bound
from scipy import special

from mlpengine import ops
from mlpengine.core.errors import UsageError
from mlpengine.ops import GradOp

INF, NAN = np.inf, np.nan

TALL = np.array([[1.0, INF, -INF, 0.5], [-2.0, 3.0, -INF, 0.0]] * 20)
"""A matrix of few columns: maxima are computed on whole columns."""


@dataclass(frozen=True)
class Edge:
    """An op at a place of interest: operands, the value there, and the gradients for dy = 2."""

    op: GradOp
    operands: list
    value: list
    gradients: list = field(default_factory=list)


EDGES = [
    Edge(ops.Relu(), [[0.0, -0.0, NAN, INF, -INF]], [0, 0, NAN, INF, 0], [[0, 0, 2, 2, 0]]),
    Edge(ops.LeakyRelu(0.1), [[0.0, NAN, -INF]], [0, NAN, -INF], [[0.2, 0.2, 0.2]]),
    Edge(ops.LeakyRelu(0.0), [[-1.0, 1.0]], [0, 1], [[0, 2]]),
    Edge(ops.Elu(0.5), [[0.0, NAN, -INF, INF]], [0, NAN, -0.5, INF], [[1, NAN, 0, 2]]),
    Edge(ops.Abs(), [[0.0, -0.0, NAN]], [0, 0, NAN], [[0, 0, NAN]]),
    Edge(
        ops.Clamp(-1, 1), [[-1, 1, -3, 3, NAN, INF]], [-1, 1, -1, 1, NAN, 1], [[2, 2, 0, 0, 0, 0]]
    ),
    Edge(ops.Clamp(2, 2), [[1.0, 2.0, 3.0]], [2, 2, 2], [[0, 2, 0]]),
    Edge(
        ops.Maximum(),
        [[1, 1, 1, NAN, 1, INF], [1, 2, 0, 1, NAN, INF]],
        [1, 2, 1, NAN, NAN, INF],
        [[1, 0, 2, 2, 2, 1], [1, 2, 0, 2, 2, 1]],
    ),
    Edge(ops.Minimum(), [[1, 1, 1], [1, 2, 0]], [1, 1, 0], [[1, 2, 0], [1, 0, 2]]),
    Edge(ops.Where(), [[1, 0], [INF, NAN], [NAN, INF]], [INF, INF], [[0, 0], [2, 0], [0, 2]]),
    Edge(ops.Pow(0), [[0.0, -1.0, NAN, INF]], [1, 1, 1, 1], [[0, 0, 0, 0]]),
    Edge(ops.Pow(1), [[0.0, -1.0, INF]], [0, -1, INF], [[2, 2, 2]]),
    Edge(ops.Pow(2), [[0.0, -3.0]], [0, 9], [[0, -12]]),
    Edge(ops.Pow(0.5), [[0.0, 4.0, -1.0]], [0, 2, NAN], [[INF, 0.5, NAN]]),
    Edge(ops.Pow(-1), [[0.0, 2.0]], [INF, 0.5], [[-INF, -0.5]]),
    Edge(ops.Log(), [[0.0, -1.0, INF]], [-INF, NAN, INF], [[INF, -2, 0]]),
    Edge(ops.Log2(), [[0.0, 1.0]], [-INF, 0], [[INF, 2 / np.log(2)]]),
    Edge(ops.LogEps(1.0), [[0.0, -1.0]], [0, -INF], [[2, INF]]),
    Edge(ops.Sqrt(), [[0.0, 4.0, -1.0]], [0, 2, NAN], [[INF, 0.5, NAN]]),
    Edge(ops.Rsqrt(), [[0.0, 4.0]], [INF, 0.5], [[-INF, -0.125]]),
    Edge(ops.Div(), [[1.0, 0.0], [0.0, 2.0]], [INF, 0], [[INF, 1], [-INF, 0]]),
    Edge(ops.Exp(), [[-INF, INF, 1000.0]], [0, INF, INF], [[0, INF, INF]]),
    Edge(ops.Sigmoid(), [[0.0, 800.0, -800.0, INF, -INF]], [0.5, 1, 0, 1, 0], [[0.5, 0, 0, 0, 0]]),
    Edge(ops.Tanh(), [[0.0, 800.0, -INF]], [0, 1, -1], [[2, 0, 0]]),
    Edge(ops.Silu(), [[0.0, 800.0, -800.0]], [0, 800, 0], [[1, 2, 0]]),
    Edge(ops.Softplus(), [[800.0, -800.0]], [800, 0], [[2, 0]]),
    Edge(ops.Gelu(), [[0.0, 800.0, -800.0, NAN]], [0, 800, 0, NAN], [[1, 2, 0, NAN]]),
    Edge(ops.Gelu("tanh"), [[0.0, 800.0, -800.0]], [0, 800, 0], [[1, 2, 0]]),
    Edge(ops.Softmax(), [[800.0, -800.0, 800.0]], [0.5, 0, 0.5], [[0, 0, 0]]),
    Edge(ops.LogSoftmax(), [[800.0, -800.0]], [0, -1600], [[-2, 2]]),
    Edge(ops.Max(), [[1.0, 3.0, 3.0]], 3, [[0, 2, 0]]),
    Edge(ops.Max(), [[1.0, NAN, 3.0, NAN]], NAN, [[0, 2, 0, 0]]),
    Edge(ops.Max(0), [[[1.0, 5.0], [1.0, 6.0]]], [1, 6], [[[2, 0], [0, 2]]]),
    Edge(ops.Min((0, 1)), [[[1.0, 1.0], [1.0, 6.0]]], 1, [[[2, 0], [0, 0]]]),
    Edge(ops.Mean(0), [np.zeros((0, 2))], [NAN, NAN], [np.zeros((0, 2))]),
    Edge(ops.Sum(0), [np.zeros((0, 2))], [0, 0], [np.zeros((0, 2))]),
    Edge(ops.LogSumExp(), [[800.0, 800.0]], 800 + np.log(2), [[1, 1]]),
    Edge(ops.LogSumExp(), [[-INF, -INF]], -INF),
    Edge(ops.LogSumExp(), [[INF, 1.0]], INF),
    Edge(ops.LogSumExp(0), [[[-INF, 1.0, INF], [-INF, -INF, NAN]]], [-INF, 1, NAN]),
    Edge(ops.LogSumExp(0), [TALL], special.logsumexp(TALL, 0)),
    Edge(ops.LogSumExp(1), [TALL], special.logsumexp(TALL, 1)),
    Edge(ops.MeanAbsoluteError(), [[1.0, 2.0], [1.0, 4.0]], 1, [[0, -1], [0, 1]]),
    Edge(ops.Huber(1.0), [[1.0, 9.0], [0.0, 0.0]], 4.5, [[1, 1], [-1, -1]]),
    Edge(
        ops.BinaryCrossEntropyWithLogits(),
        [[800.0, -800.0], [1.0, 1.0]],
        400,
        [[0, -1], [-800, 800]],
    ),
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("edge", EDGES, ids=lambda e: e.op.name)
def test_values_and_gradients_at_edges(edge, dtype):
    bound = Bound(edge.op, tuple(np.asarray(x, dtype) for x in edge.operands))
    for dy in bound.dy:
        dy.fill(2)
    with np.errstate(all="ignore"):
        value, gradients = bound.forward()[0], bound.backward()
    np.testing.assert_allclose(value, edge.value, rtol=1e-6)
    for found, expected in zip(gradients, edge.gradients, strict=bool(edge.gradients)):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "ulps"), [("float64", 4), ("float32", 4)])
def test_gelu_is_right_to_the_last_digits_of_the_operand(dtype, ulps):
    x = np.concatenate([np.linspace(-40, 40, 20001), np.geomspace(1e-30, 1, 999)]).astype(dtype)
    bound = Bound(ops.Gelu(), (x,))
    (y,), (dx,) = bound.forward(), bound.backward()
    wide = x.astype(float)
    eps = np.finfo(dtype).eps
    phi = np.exp(-wide * wide / 2) / np.sqrt(2 * np.pi)
    assert (np.abs(y - wide * special.ndtr(wide)) <= ulps * eps * np.abs(wide)).all()
    assert np.abs(dx - (special.ndtr(wide) + wide * phi)).max() <= ulps * eps


def test_long_float32_sums_keep_their_digits():
    x = np.full(1 << 20, 0.1, np.float32)
    (y,) = Bound(ops.Mean(), (x,)).forward()
    np.testing.assert_allclose(y, x[0], rtol=1e-6)


WRONG_OPTIONS: list[tuple[Callable[[], GradOp], str]] = [
    (partial(ops.LeakyRelu, -0.1), r"leaky_relu: alpha must be .* at most 1 \(got -0.1\)"),
    (partial(ops.Elu, 0), "elu: alpha must be .* above zero"),
    (partial(ops.Gelu, "erf"), "none or tanh"),
    (partial(ops.Clamp, 2, 1), r"clamp: lo must not exceed hi \(lo 2.0, hi 1.0\)"),
    (partial(ops.Clamp, None, 1), "clamp: lo must be a number"),
    (partial(ops.LogEps, 10**400), "log_eps: eps must be a finite number, above zero"),
    (partial(ops.Huber, 0), "huber: delta must be .* above zero"),
    (partial(ops.BinaryCrossEntropyWithLogits, 0), "positive_weight must be .* above zero"),
    (partial(ops.SoftmaxCrossEntropy, class_weights=(1, -1)), r"class_weights\[1\]"),
    (partial(ops.SoftmaxCrossEntropy, ignore_index="a"), "ignore_index must be a whole number"),
    (partial(ops.FormulaLoss, 3), "formula: must be a text"),
]


@pytest.mark.parametrize(("build", "says"), WRONG_OPTIONS)
def test_wrong_options_are_refused(build, says):
    with pytest.raises(UsageError, match=says):
        build()
