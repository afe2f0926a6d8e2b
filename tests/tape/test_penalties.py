"""Losses of recorded gradients and their gradients, through every op with a slope."""

from functools import cache

import numpy as np
import pytest

from mlpengine import Sgd, TrainingStep
from mlpengine.formula import order
from mlpengine.nn import Network
from mlpengine.ops import (
    REGISTRY,
    Activation,
    Clamp,
    Elementwise,
    Elu,
    FormulaActivation,
    Gelu,
    LogEps,
    MeanOutput,
    Pow,
    ScalarAdd,
    ScalarMul,
    Slope,
)
from mlpengine.tape import apply

ROWS, COLUMNS = 5, 6
OPTIONS = [
    *(Clamp(-0.5, 1.0), LogEps(0.5), ScalarAdd(0.5), ScalarMul(-2.5), Elu(0.3), Gelu("tanh")),
    *(Pow(n) for n in (0, 1, 2, 3, 4, 0.5, -1, 2.5)),
    FormulaActivation("where(exp(x) + tanh(x) > 1.5, x * x, 0.1 * x)"),
]
"""Ops with options; the last one has a condition that takes two expensive functions."""


def slopes():
    """Return the ops on one operand, by name and options."""
    taken = {type(op) for op in OPTIONS} - {Elu, Gelu}
    kinds = [k for k in REGISTRY.values() if issubclass(k, Elementwise) and not k.broadcasts]
    plain = [k() for k in kinds if k not in taken and k.__module__.startswith("mlpengine.")]
    return {f"{op.name}{[*vars(op).values()]}": op for op in [*plain, *OPTIONS]}


OPS = slopes()
LIKE_OTHERS = {"leaky_relu[0.01]", "selu[]", "elu[0.3]"}
"""Masks of relu and elu with other numbers."""


class Penalized(Network):
    """One output for each op f: f'^3 + f'' f' at the rows times a parameter of its own."""

    def record(self, tape, x):
        penalties = {}
        for name in self.params.views:
            op = OPS[name]
            moved = isinstance(op, Activation | Clamp | FormulaActivation)
            h = x * tape.parameter(name) - (1.0 if moved else 0.0)  # on both sides of kinks
            slope = tape.gradient(apply(op, h), h)
            penalties[name] = slope**3 + tape.gradient(slope**2, h) * 0.5
        return penalties


X = np.random.default_rng(1).uniform(0.3, 2, (ROWS, COLUMNS))


def network_of(names, dtype="float64"):
    drawn = np.random.default_rng(0).uniform(0.5, 1.5, (len(OPS), COLUMNS))
    weights = dict(zip(OPS, drawn, strict=True))
    return Penalized(COLUMNS, {name: weights[name] for name in names}, dtype=dtype)


@cache
def moved(backend, dtype):
    """Return by how much a step without momentum moves the parameters, by op."""
    masked = [n for n, op in OPS.items() if isinstance(op, Activation | FormulaActivation)]
    masked = [
        n for n in masked if any(f.is_mask for f in order(Slope.of(OPS[n]).formulas.gradients))
    ]
    masked = [n for n in masked if n not in LIKE_OTHERS]
    names = masked if backend == "compiled" else list(OPS)  # C of all takes 4 s to compile
    network = network_of(names, dtype)
    before = {name: view.copy() for name, view in network.params.views.items()}
    losses = {name: MeanOutput() for name in names}
    step = TrainingStep(network, losses, Sgd(network, lr=1.0), ROWS, backend=backend)
    step(X.astype(dtype), {})
    return {name: before[name] - view for name, view in network.params.views.items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", ["numpy", "numexpr", "compiled"])
def test_a_penalty_has_one_gradient_on_every_backend(backend, dtype):
    found, exact = moved(backend, dtype), moved("numpy", "float64")
    for name in found:
        size = max(1.0, np.abs(exact[name]).max())
        limit = (1e-10 if dtype == "float64" else 2e-4) * size
        np.testing.assert_allclose(found[name], exact[name], rtol=0, atol=limit, err_msg=name)


def test_the_gradient_of_a_penalty_is_its_difference():
    network, exact = network_of(OPS), moved("numpy", "float64")
    for size in (1e-6, -1e-6):
        network.params.flat += size
        rows = network.predict(X)
        network.params.flat -= size
        for name in OPS:  # a parameter moves its own column alone
            exact[name] = exact[name] - rows[name].mean(axis=0) / (2 * size) / COLUMNS
    wrong = {n: g for n, g in exact.items() if np.abs(g).max() > 1e-5}
    assert wrong == {}
