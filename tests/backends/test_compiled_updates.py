"""The optimizers of compiled steps, one step from the same state and gradients, against NumPy's."""

import math
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np
import pytest

from mlpengine import Adam, AdamW, MeanSquaredError, Mlp, Sgd, TrainingStep, formula
from mlpengine.backends.compiled.executor import compile_program
from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Spec
from mlpengine.formula import where
from mlpengine.optim import Group, Lion, Optimizer, RmsProp
from mlpengine.optim.scalar_functions import power, sqrt
from mlpengine.tape.flat import Flat

LANES = 16
"""Numbers in the widest vector."""

ENDS = (LANES - 1, LANES)
"""Numbers that are fewer than a vector, and that are a whole one."""

MAX_ULPS = 4

GROUPS = {"weights": Group(lr=0.1), "biases": Group(lr=6.0, weight_decay=0.5)}

OPTIMIZERS = {
    "adam": (Adam, {}),
    "adamw": (AdamW, {"weight_decay": 0.3, "lr": 0.01}),
    "sgd": (Sgd, {"lr": 0.1}),
    "momentum": (Sgd, {"lr": 0.1, "momentum": 0.9}),
    "nesterov": (Sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "lion": (Lion, {"lr": 0.1, "weight_decay": 0.1}),
    "rmsprop": (RmsProp, {"weight_decay": 0.1}),
    "rmsprop with momentum": (RmsProp, {"momentum": 0.9}),
    "adam in groups": (Adam, {"weight_decay": 0.3, "groups": GROUPS}),
}


@dataclass
class Model:
    """Weights, some of which decay, and biases, which do not."""

    size: int
    dtype: str
    params: Flat = field(init=False)
    groups = {"weights": ("weight",), "biases": ("bias",)}  # noqa: RUF012

    def __post_init__(self):
        weights = self.size // 2
        dtype = np.dtype(self.dtype)
        specs = {"weight": Spec((weights, 1), dtype), "bias": Spec((self.size - weights,), dtype)}
        self.params = Flat(specs)


def prepared(name, size, dtype, steps):
    """Return an optimizer whose every vector is drawn, and gradients; always the same."""
    kind, options = OPTIMIZERS[name]
    optimizer = kind(Model(size, dtype), **options)
    rng = np.random.default_rng(size)
    optimizer.params.flat[...] = rng.standard_normal(size)
    for moment_name, moment in optimizer.moments.items():
        drawn = rng.standard_normal(size)
        square = moment_name in ("second", "square")
        moment[...] = drawn**2 + 0.1 if square else drawn
    optimizer.steps = steps
    return optimizer, rng.standard_normal(size).astype(dtype)


BOTH = ("adam", "adam in groups")
"""Optimizers that are compared in either dtype and in every size; the others by turns."""

ROWS = [
    *((name, dtype) for name in BOTH for dtype in ("float32", "float64")),
    *zip([name for name in OPTIMIZERS if name not in BOTH], cycle(["float32", "float64"])),
]


@pytest.mark.parametrize(("name", "dtype"), ROWS)
@pytest.mark.parametrize("steps", [0, 5])
def test_one_step_agrees_on_every_entry(name, dtype, steps):
    # each size is a program of its own; whole vectors and the numbers after them are one formula
    for size in (LANES + 1, *(ENDS if name in BOTH else ())):
        numpy, grads = prepared(name, size, dtype, steps)
        for run in numpy.calls(grads):
            run()
        ours, same_grads = prepared(name, size, dtype, steps)
        update = ours.describe_update()
        executor = compile_program(
            [], dtype=np.dtype(dtype), batch=1, update=update, grads=same_grads
        )
        assert executor.make_step(ours.lr, steps)[2] == 0
        vectors = {"params": (ours.params.flat, numpy.params.flat)}
        vectors |= {m: (ours.moments[m], numpy.moments[m]) for m in ours.moments}
        for what, (mine, theirs) in vectors.items():
            ulps = np.abs(mine.astype("f8") - theirs) / np.spacing(np.abs(theirs))
            assert ulps.max() <= MAX_ULPS, (what, size)


# ---------------------------------------------------------------- one class, both backends
class Averaged(Optimizer):
    """Steps along the mean of the last three gradients, shorter where it changes its sign."""

    def __init__(self, model, *, lr=0.05, shrink=0.5):
        super().__init__(model, lr=lr, hyper={"shrink": shrink}, signed={"last": 0, "older": 0})

    def numbers(self, lr, t, shrink):
        return {"rate": lr * sqrt(power(shrink, t) + 1 / t)}

    def update(self, p, g, last, older, shrink, rate):
        mean = (g + last + older) / 3
        turned = mean * last < 0
        return {"p": p - where(turned, mean * shrink, mean) * rate, "older": last, "last": g}


def test_an_optimizer_is_one_class():
    x = np.random.default_rng(0).normal(size=(64, 3)).astype("f4")
    y = (x[:, :1] - np.tanh(x[:, 1:2])).astype("f4")
    params = {}
    for backend in ("numpy", "compiled"):
        mlp = Mlp([3, 8, 1], seed=1, activation="tanh")
        optimizer = Averaged(mlp)
        step = TrainingStep(mlp, MeanSquaredError(), optimizer, 16, backend=backend)
        assert step.backend == backend
        losses, _ = step.run_many(x, y, np.arange(160) % 64)[:2]
        first = step(x[:16], y[:16])
        assert first < losses[0]
        params[backend] = mlp.params.flat.copy()
        assert optimizer.steps == 11
        assert (optimizer.moments["last"] != optimizer.moments["older"]).any()
    np.testing.assert_allclose(params["compiled"], params["numpy"], rtol=1e-4, atol=1e-6)


FUNCTIONS = ("sqrt", "exp", "expm1", "log", "log1p", "log2", "sin", "cos", "tanh")


def test_numbers_may_be_any_function_of_the_c_library():
    """Each has a factor of its own, so that none could stand for another."""

    class Own(Sgd):
        def numbers(self, lr, t, momentum):
            functions = formula if isinstance(t, formula.Expr) else math
            each = [abs, *(getattr(functions, name) for name in FUNCTIONS)]
            return {"rate": lr * sum(k * f(t * 0.3) for k, f in enumerate(each, 1))}

    params = []
    for backend in ("numpy", "compiled"):
        mlp = Mlp([3, 8, 1], seed=1)
        step = TrainingStep(mlp, MeanSquaredError(), Own(mlp, lr=0.01), 16, backend=backend)
        assert step.backend == backend
        for _ in range(3):
            step(np.ones((16, 3), "f4"), np.ones((16, 1), "f4"))
        params.append(mlp.params.flat)
    np.testing.assert_allclose(*params, rtol=1e-4, atol=1e-6)


def test_wrong_names_of_an_update_and_its_numbers_are_refused():
    class Update(Sgd):
        def update(self, p, g, rate, speed):
            return {"p": p - g * rate * speed}

    class Numbers(Sgd):
        def numbers(self, lr, t, speed):
            return {"rate": lr * speed}

    with pytest.raises(UsageError, match="speed"):
        Update(Model(5, "float32"))
    with pytest.raises(UsageError, match="momentum"):
        Numbers(Model(5, "float32"))
