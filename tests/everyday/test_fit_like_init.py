"""`fit` has the defaults of `init`, and says in words what they are."""

import numpy as np
import pandas as pd
import pytest

import mlpengine
from mlpengine_cli.main import run


def weights(model):
    return np.concatenate([network.params.flat for network in model.networks])


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table with a number, a text, a date, an identifier and gaps, as a frame and as a file."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "area": np.round(rng.uniform(20, 90, 120), 2),
            "kind": rng.choice(["flat", "house"], 120),
            "number": [f"id-{n}" for n in range(120)],
            "since": [f"2024-0{1 + n % 9}-1{n % 7}" for n in range(120)],
        }
    )
    frame["price"] = np.round(50 * np.sin(frame.area / 8) + (frame.kind == "house") * 40, 2)
    frame.loc[::17, "area"] = np.nan
    frame.to_csv("homes.csv", index=False)
    return frame


def test_fit_is_init_and_train(capsys, table):
    few = ["--set", "training.epochs=3"]
    assert run(["init", "homes.csv", "--target", "price", "-o", "homes.yaml"]) == 0
    said = capsys.readouterr().err
    assert run(["train", "homes.yaml", "--out", "run", *few]) == 0
    trained = mlpengine.load("run")
    for data in (table, "homes.csv"):
        model, result = mlpengine.fit(data, "price", training={"epochs": 3})
        assert len(model.networks) == len(trained.networks) > 1
        np.testing.assert_array_equal(weights(model), weights(trained))
        assert model.columns == trained.columns
        *decided, given = result.decided
        told = [line for line in said.splitlines() if "decided" in line]
        assert [line.removeprefix("decided: ") for line in told] == decided
        assert given.endswith(": training.epochs")
        assert any("(data.drop): number;" in line for line in decided)


def test_keys_that_are_given_take_the_place_of_those_of_init(table):
    one, hidden = {"epochs": 2, "folds": None}, {"hidden": [5]}
    every, _ = mlpengine.fit(table, "price", training=one, data={"split": {"validation": 0}})
    assert every.record["rows"].keys() == {"train", "test"}
    model, result = mlpengine.fit(  # a weight that is constant is no column to drop
        table.assign(w=1), "price", training=one, model=hidden, optimizer="sgd", loss="mae",
        data={"weight": "w"},
    )  # fmt: skip
    weighted = mlpengine.check(table.assign(w=1), "price", data={"weight": "w"})
    assert not any("constant" in line for line in weighted.warnings)
    assert [network.sizes[1:] for network in model.networks] == [(5, 1)]
    assert model.loss == "mae"
    assert result.decided[-2].endswith("because of training.folds")
    assert result.decided[-1].endswith(
        ": training.epochs, training.folds, model.hidden, optimizer, loss, data.weight"
    )
    rows = table.iloc[:100], table.iloc[100:]
    model, result = mlpengine.fit(rows[0], "price", validation=rows[1], training={"epochs": 2})
    assert len(model.networks) == 1
    assert "validation" in result.metrics


def test_a_model_that_training_starts_from_keeps_its_network(table):
    first, _ = mlpengine.fit(table, "price", training={"epochs": 1, "folds": None})
    second, result = mlpengine.fit(
        table, "price", warm_start=first, training={"epochs": 1}, model={"hidden": [64, 64]}
    )
    assert [n.sizes for n in second.networks] == [n.sizes for n in first.networks]
    assert result.decided == []


def test_categories_count_by_their_levels_when_member_types_are_chosen():
    numbers = np.random.default_rng(0).standard_normal((2, 300))
    table = {"a": numbers[0], "y": numbers[1], "shop": np.arange(300) % 60}
    few = {"training": {"epochs": 1}, "model": {"hidden": [2]}, "diagnostics": False}
    _, result = mlpengine.fit(table, "y", data={"categorical": "shop"}, **few)
    assert not any("smooth" in line for line in result.decided)
