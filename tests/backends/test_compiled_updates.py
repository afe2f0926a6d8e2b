"""The optimizers of compiled steps, one step from the same state and gradients, against NumPy's."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from mlpengine import Adam, AdamW, RmsProp, Sgd
from mlpengine.backends.compiled import compile_program
from mlpengine.spec import Spec
from mlpengine.tape.flat import Flat

LANES = 16
"""Numbers in the widest vector."""

SIZES = (LANES - 1, LANES, LANES + 1)

MAX_ULPS = 4

OPTIMIZERS = {
    "adam": (Adam, {}),
    "adamw": (AdamW, {"weight_decay": 0.3, "lr": 0.01}),
    "sgd": (Sgd, {"lr": 0.1}),
    "momentum": (Sgd, {"lr": 0.1, "momentum": 0.9}),
    "nesterov": (Sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "rmsprop": (RmsProp, {"weight_decay": 0.1}),
    "rmsprop with momentum": (RmsProp, {"momentum": 0.9}),
}


@dataclass
class Model:
    """Weights, some of which decay, and biases, which do not."""

    size: int
    dtype: str
    params: Flat = field(init=False)

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


def ulps(ours, theirs):
    """Return the distance in units in the last place of the value that is right."""
    return np.abs(ours.astype("f8") - theirs) / np.spacing(np.abs(theirs))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("steps", [0, 5])
def test_one_step_agrees_on_every_entry(name, dtype, steps):
    for size in SIZES:
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
            assert ulps(mine, theirs).max() <= MAX_ULPS, (what, size)


def test_the_measure_notices_the_fifth_unit():
    right = np.array([1.0, -3e-30, 7e20], "f4")
    wrong = right + 5 * np.spacing(right)
    assert (ulps(wrong, right) > MAX_ULPS).all()


def test_an_optimizer_that_updates_in_another_way_is_not_described():
    class Other(Adam):
        def _prepare(self, lr):
            super()._prepare(2 * lr)

    model = Model(5, "float32")
    assert Other(model).describe_update() is None
    assert AdamW(model).describe_update().rule == Adam(model).describe_update().rule
