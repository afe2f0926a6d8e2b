"""Groups of parameters: factors of learning rate and weight decay, in every backend."""

import numpy as np
import pytest
from optimizer_table import CASES, gradient, make_grads, make_model

from mlpengine import AdamW, CosineSchedule, MeanSquaredError, Mlp, Sgd
from mlpengine.core.errors import UsageError
from mlpengine.optim import Group
from mlpengine.step.step import TrainingStep

GROUPS = {"biases": Group(lr=0.25, weight_decay=0.5), "first": Group(lr=2.0)}
MEMBERS = {"biases": ("0.bias", "2.bias"), "first": ("0.weight",), "none": ()}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_group_has_the_bits_of_an_optimizer_of_its_own(case):
    """Bits of the whole model trained with that group's rate and decay."""
    runs = {}
    for lr, share in ((1.0, None), (0.25, 0.5), (2.0, None)):
        model, grads = make_model(), make_grads(make_model())
        options = {**case.options, "lr": lr * case.lr, "weight_decay": case.decay * (share or 1)}
        optimizer = case.make(model, decay_biases=share is not None, **options)
        for step in range(1, 60):
            grads.flat[:] = gradient(model.params.flat, step)
            optimizer.step(model, grads)
        runs[lr] = model.params.views
    model, grads = make_model(), make_grads(make_model())
    model.groups = MEMBERS
    optimizer = case.make(model, groups=GROUPS, **case.options)
    for step in range(1, 60):
        grads.flat[:] = gradient(model.params.flat, step)
        optimizer.step(model, grads)
    own = {"0.weight": 2.0, "0.bias": 0.25, "2.weight": 1.0, "2.bias": 0.25}
    for name, lr in own.items():
        np.testing.assert_array_equal(model.params.views[name], runs[lr][name])


def grouped_step(backend):
    mlp = Mlp([4, 9, 6, 2], seed=1, dtype="float64", activation="mish")
    optimizer = AdamW(
        mlp,
        lr=0.04,
        betas=(0.9, 0.95),
        weight_decay=0.02,
        schedule=CosineSchedule(60),
        groups={"weights": Group(lr=0.5), "biases": Group(lr=0.1, weight_decay=0.3)},
    )
    return TrainingStep(mlp, MeanSquaredError(), optimizer, 16, backend=backend)


def test_compiled_steps_of_groups_agree_with_numpy():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((64, 4))
    y, order = np.stack([np.sin(x[:, 0]), x[:, 1] * x[:, 2]], 1), rng.permutation(960) % 64
    numpy, ours = grouped_step("numpy"), grouped_step("compiled")
    assert ours.fused
    losses = [step.run_many(x, y, order)[0] for step in (numpy, ours)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-10)
    np.testing.assert_allclose(ours.mlp.params.flat, numpy.mlp.params.flat, rtol=1e-8, atol=1e-10)
    again = grouped_step("compiled")
    for start in range(0, 960, 16):
        again(x[order[start : start + 16]], y[order[start : start + 16]])
    np.testing.assert_array_equal(again.mlp.params.flat, ours.mlp.params.flat)
    assert again.optimizer.current_lr == ours.optimizer.current_lr


WRONG = {
    "an unknown group": (lambda: {"groups": {"bias": Group()}}, "did you mean 'biases'"),
    "a dictionary": (lambda: {"groups": {"biases": {"lr": 2}}}, "a group must be a Group"),
    "a schedule of texts": (lambda: {"schedule": lambda step: "a"}, "factor nan"),
    "a negative factor": (lambda: {"groups": {"biases": Group(lr=-1.0)}}, "lr must be a finite"),
    "a list": (lambda: {"groups": [Group()]}, "groups must be by name"),
    "a text": (lambda: {"decay_biases": "no"}, "decay_biases must be True or False"),
    "a huge factor": (lambda: {"schedule": lambda step: 10**400}, "factor inf"),
    "a decay of words": (lambda: {"groups": {"biases": Group(weight_decay="no")}}, "must be a fin"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_groups_are_refused(name):
    options, text = WRONG[name]
    with pytest.raises(UsageError, match=text):
        Sgd(Mlp([3, 2]), weight_decay=0.1, **options())
