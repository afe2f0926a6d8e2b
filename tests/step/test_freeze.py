"""Frozen layers: no backend computes their gradients, no optimizer moves them."""

import numpy as np
import pytest

from mlpengine import Adam, AdamW, MeanSquaredError, Mlp, Sgd, TrainingStep
from mlpengine.core.errors import UsageError
from mlpengine.optim import Lion, RmsProp

OPTIMIZERS = {
    "adam": lambda mlp: Adam(mlp, lr=1e-2),
    "adamw": lambda mlp: AdamW(mlp, lr=1e-2, weight_decay=0.1, decay_biases=True),
    "lion": lambda mlp: Lion(mlp, lr=1e-3, weight_decay=0.1),
    "rmsprop": lambda mlp: RmsProp(mlp, lr=1e-2, momentum=0.5),
    "sgd": lambda mlp: Sgd(mlp, lr=1e-2, momentum=0.9, nesterov=True, weight_decay=0.1),
}


ALL = ([0], [1], [0, 1], [2], [-1, 0])

EXECUTORS = {
    "numpy": ({"backend": "numpy"}, ALL, 0.0),
    "numexpr": ({"backend": "numexpr"}, [[0, 1]], 1e-5),
    "compiled": ({"backend": "compiled", "threads": 2, "clip_norm": 0.1}, [[-1, 0]], 1e-5),
    "rematerialization": ({"rematerialization": "balanced"}, ALL, 0.0),
}
"""Options of a step, the layers that are frozen, and the distance from NumPy's results."""


def trained(optimizer, frozen, steps=4, **options):
    mlp = Mlp([5, 7, 6, 2], activation="tanh", seed=1)
    mlp.freeze(frozen)
    before = mlp.state_dict()
    step = TrainingStep(mlp, MeanSquaredError(), optimizer(mlp), 16, **options)
    x = np.random.default_rng(0).standard_normal((40, 5)).astype("f4")
    y = np.sin(x[:, :2])
    for start in range(steps):
        step(x[start : start + 16], y[start : start + 16])
    return mlp, before, step


def moved(mlp, before):
    return [
        any((before[n] != mlp.params.views[n]).any() for n in (layer.weight_name, layer.bias_name))
        for layer in mlp.layers
    ]


@pytest.mark.parametrize("name", EXECUTORS)
def test_frozen_layers_stay_in_every_backend(name):
    options, choices, apart = EXECUTORS[name]
    for frozen in choices:
        mlp, before, step = trained(OPTIMIZERS["adamw"], frozen, **options)
        assert moved(mlp, before) == [i not in mlp.frozen for i in range(3)]
        for i in mlp.frozen:
            assert not step.grads.d_weights[i].any()
            assert not step.grads.d_biases[i].any()
        plain = {k: v for k, v in options.items() if k == "clip_norm"}
        reference, _, _ = trained(OPTIMIZERS["adamw"], frozen, backend="numpy", **plain)
        np.testing.assert_allclose(mlp.params.flat, reference.params.flat, atol=apart, rtol=0)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_frozen_layers_stay_under_every_optimizer(name):
    mlp, before, _ = trained(OPTIMIZERS[name], [0, 2])
    assert moved(mlp, before) == [False, True, False]


def test_the_gradients_of_the_others_are_those_of_the_whole_network():
    """One step of plain descent moves each trained layer as without freezing."""
    sgd = lambda mlp: Sgd(mlp, lr=0.1)  # noqa: E731
    whole, _, _ = trained(sgd, [], steps=1)
    for frozen in ALL:
        mlp, _, step = trained(sgd, frozen, steps=1)
        for i in set(range(3)) - set(mlp.frozen):
            np.testing.assert_array_equal(mlp.weights[i], whole.weights[i])
            np.testing.assert_array_equal(mlp.biases[i], whole.biases[i])
        assert len(step.grads.d_hidden) == 3


def test_no_call_computes_a_frozen_gradient():
    """Freezing the layers near the input makes the backward pass as short as that of the rest."""
    counts = []
    for frozen in ([], [0], [0, 1]):
        _, _, step = trained(OPTIMIZERS["adam"], frozen, steps=1)
        counts.append(len(step.grads.calls(step.scratch)))
    assert counts[0] > counts[1] > counts[2]


WRONG = {
    "beyond the last": ([3], "a layer must be from 0 to 2 (got 3)"),
    "not a number": (["0.weight"], "a layer must be from 0 to 2 (got '0.weight')"),
    "all": ([0, 1, 2], "a layer must be left to train"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_layers_are_refused(name):
    layers, text = WRONG[name]
    with pytest.raises(UsageError) as error:
        Mlp([5, 7, 6, 2]).freeze(layers)
    assert text in str(error.value)


def test_an_optimizer_made_before_freezing_is_refused():
    mlp = Mlp([5, 7, 2])
    adam = Adam(mlp)
    mlp.freeze([0])
    with pytest.raises(UsageError, match="must be made after layers are frozen"):
        TrainingStep(mlp, MeanSquaredError(), adam, 16)
