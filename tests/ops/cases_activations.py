"""Rows of activations, from `scipy.special` and from formulas in float64."""

from functools import partial

import numpy as np
from case import Case, away_from, normal
from cases_arithmetic import unary
from scipy import special

from mlpengine.ops import (
    Elu,
    FormulaActivation,
    Gelu,
    Hardswish,
    LeakyRelu,
    LogSoftmax,
    Mish,
    Relu,
    Selu,
    Sigmoid,
    Silu,
    Slope,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
)

EVERYWHERE = {"extremes": (1e-30, 1e-6, 10.0, 1e3, 1e30)}
"""These ops and their gradients are finite however large the operand."""

kinked = partial(away_from, [0])


def elu(x, alpha, scale=1.0):
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def gelu_by_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def along(axis, *shape, op=Softmax, formula=special.softmax):
    """A row along an axis of (n, *shape); along the batch there must be rows."""
    name = f"{op.name} along axis {axis} of (n, {', '.join(map(str, shape))})"

    empty = axis % (len(shape) + 1) != 0
    make = lambda n: (2 * normal(n, *shape),)  # noqa: E731
    formula = partial(formula, axis=axis)
    return Case(name, op(axis), make, formula, empty=empty, **EVERYWHERE)


AXES = [(-1, 4), (-1, 40), (0, 3), (1, 3, 2), (-1, 2, 1, 3), (2, 2, 3, 2), (1, 1, 5), (0,)]

CASES = [
    *unary(
        "relu",
        Relu(),
        lambda x: np.where(x > 0, x, 0),
        kinked,
        rtol=1e-4,
        **EVERYWHERE,
    ),
    *unary(
        "leaky_relu",
        LeakyRelu(0.2),
        lambda x: np.where(x > 0, x, 0.2 * x),
        kinked,
        rtol=1e-4,
        **EVERYWHERE,
    ),
    *unary("elu", Elu(), partial(elu, alpha=1.0), kinked, rtol=1e-4, **EVERYWHERE),
    *unary("elu 0.3", Elu(0.3), partial(elu, alpha=0.3), kinked, rtol=1e-4, **EVERYWHERE),
    *unary("elu 2.5", Elu(2.5), partial(elu, alpha=2.5), kinked, rtol=1e-4, **EVERYWHERE),
    *unary(
        "selu",
        Selu(),
        partial(elu, alpha=1.6732632423543772, scale=1.0507009873554805),
        kinked,
        rtol=1e-4,
        **EVERYWHERE,
    ),
    *unary(
        "gelu",
        Gelu(),
        lambda x: x * special.ndtr(x),
        lambda *shape: 2 * normal(*shape),
        **EVERYWHERE,
    ),
    *unary(
        "gelu by tanh", Gelu("tanh"), gelu_by_tanh, lambda *shape: 2 * normal(*shape), **EVERYWHERE
    ),
    *unary(
        "silu",
        Silu(),
        lambda x: x * special.expit(x),
        **EVERYWHERE,
    ),
    *unary(
        "softplus",
        Softplus(),
        lambda x: -special.log_expit(-x),
        **EVERYWHERE,
    ),
    *unary("sigmoid", Sigmoid(), special.expit, **EVERYWHERE),
    *unary("tanh", Tanh(), lambda x: 1 - 2 / (np.exp(2 * x) + 1), **EVERYWHERE),
    *unary(
        "formula",
        FormulaActivation("x * tanh(softplus(x))"),
        lambda x: x * np.tanh(-special.log_expit(-x)),
        **EVERYWHERE,
    ),
    *unary(  # with a condition that takes two expensive functions
        "formula of two cases",
        FormulaActivation("where(exp(min(x, 1)) + tanh(x) > 1.5, x * x, 0.1 * x)"),
        lambda x: np.where(np.exp(np.minimum(x, 1)) + np.tanh(x) > 1.5, x * x, 0.1 * x),
        partial(away_from, [0.237]),
    ),
    *(
        Case(
            f"slope of {name}",
            Slope(name),
            lambda n: (normal(n, 4), away_from([0], n, 4)),
            lambda g, x, slope=slope: g * slope(x),
            rtol=1e-4,
        )
        for name, slope in [
            ("leaky_relu", lambda x: np.where(x > 0, 1, 0.01)),
            ("tanh", lambda x: 1 / np.cosh(np.clip(x, -300, 300)) ** 2),
            ("softplus", special.expit),
        ]
    ),
    *unary("mish", Mish(), lambda x: x * np.tanh(-special.log_expit(-x)), **EVERYWHERE),
    *unary(
        "hardswish",
        Hardswish(),
        lambda x: x * np.clip(x + 3, 0, 6) / 6,
        partial(away_from, [-3, 3]),
        rtol=1e-4,
        **EVERYWHERE,
    ),
    *unary("softsign", Softsign(), lambda x: x / (1 + np.abs(x)), **EVERYWHERE),
    *(along(*axis) for axis in AXES),
    *(along(*axis, op=LogSoftmax, formula=special.log_softmax) for axis in AXES),
]
