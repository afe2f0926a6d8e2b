"""Programs that differ only in their memory have one C text, and no others have."""

from copy import deepcopy

import numpy as np
import pytest

from mlpengine.backends.compiled import executor
from mlpengine.nn import Mlp, Population
from mlpengine.ops import Huber, MeanSquaredError
from mlpengine.optim import AdamW, Group
from mlpengine.step.step import TrainingStep

OPTIONS = {"reads": ((0, 2), (3, 5))}


def made(mlp, loss=None, rows=8, **optimizer) -> TrainingStep:
    update = AdamW(mlp, lr=0.01, **optimizer)
    return TrainingStep(mlp, loss or MeanSquaredError(), update, rows, backend="compiled")


@pytest.fixture
def count(monkeypatch) -> list:
    texts, make = [], executor.make_source
    monkeypatch.setattr(executor, "make_source", lambda *a, **k: texts.append(1) or make(*a, **k))
    return texts


def test_equal_networks_share_the_text_and_not_the_memory(count, monkeypatch) -> None:
    networks = Population(Mlp([5, 6, 2], **OPTIONS), 3)
    others = deepcopy(networks)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 5)).astype("f4"), rng.normal(size=(8, 2)).astype("f4")
    steps = [made(mlp) for mlp in networks]
    assert len(count) == 1
    losses = [[step(x, y) for _ in range(3)] for step in steps]
    expected = []
    for mlp in others:
        monkeypatch.setattr(executor, "_newest", lambda: None)
        step = made(mlp)
        expected.append([step(x, y) for _ in range(3)])
    assert len(count) == 4
    assert losses == expected
    np.testing.assert_array_equal(networks.params, others.params)


@pytest.mark.parametrize(
    ("sizes", "options", "step"),
    [
        ([5, 7, 2], OPTIONS, {}),
        ([5, 6, 2], {**OPTIONS, "activation": "tanh"}, {}),
        ([5, 6, 2], {**OPTIONS, "dtype": "f8"}, {}),
        ([5, 6, 2], {}, {}),
        ([5, 6, 2], {**OPTIONS, "dropout": 0.5}, {}),
        ([5, 6, 2], OPTIONS, {"rows": 9}),
        ([5, 6, 2], OPTIONS, {"loss": Huber()}),
        ([5, 6, 2], OPTIONS, {"loss": Huber(delta=2.0)}),
        ([5, 6, 2], OPTIONS, {"groups": {"biases": Group(lr=0.5)}}),
    ],
)
def test_others_do_not(count, sizes, options, step) -> None:
    first = made(Mlp([5, 6, 2], **OPTIONS), Huber() if step.get("loss") == Huber(2.0) else None)
    second = made(Mlp(sizes, **options), **step)
    assert len(count) == 2
    assert first.emit_c() != second.emit_c()
