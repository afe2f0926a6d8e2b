"""Contributions of columns to one prediction, against exact Shapley values by enumeration."""

from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
import pytest

import mlpengine
from mlpengine.core.errors import CheckpointError, DataError, UsageError
from mlpengine.drawing.markup import with_error
from mlpengine.models.model import Model
from mlpengine.models.shapley import shapley_values

COLUMNS = ["a", "b", "b", "c", "d"]
"""The column of each feature: b has two features that change together."""


def predict(x):
    """Return two outputs with interactions of up to three columns; d counts for the second only."""
    a, b, b2, c, d = x.T
    return np.stack([a * b + np.sin(2 * c) * b2 * a, c**2 - d * a], axis=1)


def exact(row, background):
    """Return Shapley values (columns, outputs), by all coalitions (Shapley 1953)."""
    names = [*dict.fromkeys(COLUMNS)]

    def value(coalition):
        own = np.isin(COLUMNS, coalition)
        return predict(np.where(own, row, background)).mean(axis=0)

    values = np.zeros((len(names), 2))
    for k, name in enumerate(names):
        others = [n for n in names if n != name]
        for size in range(len(names)):
            for some in combinations(others, size):
                rise = value([*some, name]) - value(some)
                values[k] += rise / (len(names) * comb(len(others), size))
    return values


def test_contributions_are_shapley_values_within_their_errors():
    rng = np.random.default_rng(3)
    background, scores = rng.normal(size=(32, 5)), []
    for seed in range(20):
        row = rng.normal(size=5)
        values, errors, base = shapley_values(predict, row, background, COLUMNS, seed=seed)
        np.testing.assert_allclose(base, predict(background).mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(base + values.sum(axis=0), predict(row[None])[0], atol=1e-12)
        assert values[3, 0] == 0
        true = exact(row, background)
        scores.append(((values - true) / np.where(errors > 0, errors, 1)).ravel())
    assert np.abs(scores).max() < 4  # of 160, three or fewer beyond 2.5 in nearly all runs
    assert 0.05 < np.std(scores) < 1.2  # errors also count background rows as a sample
    _, errors, _ = shapley_values(lambda x: x[:, :1], row, background, COLUMNS)
    np.testing.assert_allclose(errors[0], background[:, 0].std(ddof=1) / np.sqrt(32))


@pytest.mark.parametrize("target", ["kind", "price"])
def test_a_model_explains_a_row(target):
    g = np.random.default_rng(0)
    frame = pd.DataFrame({"a": g.normal(size=150), "b": g.choice(["x", "y", "z"], 150)})
    frame["price"] = 10 * frame.a + (frame.b == "x")
    frame["kind"] = np.where(frame.a > 0.5, "up", "down")
    rows = frame[["a", "b", target]]
    model, _ = mlpengine.fit(rows, target, training={"epochs": 12, "folds": None}, seed=1)
    for background in (rows, None):  # None: the rows that the model keeps
        found = model.explain_row(rows.iloc[[7]], background)
        total = found.base + found.contributions.sum(axis=0)
        np.testing.assert_allclose(total, found.prediction, rtol=1e-6)
        drawn = [text.index(">a<") for text in (found._repr_html_(), found.plot()._repr_html_())]
        assert str(found).splitlines()[2].startswith("a ")  # the column that counts comes first
        assert drawn[0] < found._repr_html_().index(">b<")
        assert found.as_dict()["values"][1] == frame.b[7]
        both = (found.contributions[0, found.shown[0]], found.errors[0, found.shown[0]])
        assert with_error(*both) in found._repr_html_()
    own = model.predict_proba(rows)[7] if target == "kind" else [model.predict(rows)[7]]
    np.testing.assert_allclose(found.prediction, own, rtol=1e-5)
    with pytest.raises(DataError, match="one row"):
        model.explain_row(rows)


@pytest.mark.parametrize("name", ["penguins", "diabetes", "digits"])
def test_a_model_keeps_rows_with_the_mean_prediction_of_training_rows(name, tmp_path):
    options = {"model": {"hidden": [8]}, "training": {"epochs": 1, "folds": None}}
    model, result = mlpengine.fit(name, **options)
    table, rows = result.trained.data.tables.parts["train"]
    table = table.rows(rows)
    numbers = model.predict_proba(table) if model.classes else model.predict(table)[:, None]
    found = model.explain_row(table.rows(np.array([3])))
    assert (np.abs(found.base - numbers.mean(axis=0)) < 0.05 * numbers.std(axis=0)).all()
    kept, given = ({*map(bytes, model.features(t))} for t in (model.table(model.background), table))
    assert len(kept) > 20
    assert not kept & given
    model.save(tmp_path / "m.safetensors")
    again = Model.load(tmp_path / "m.safetensors").explain_row(table.rows(np.array([3])))
    np.testing.assert_array_equal(again.contributions, found.contributions)
    with pytest.raises(UsageError, match="background=table"):
        model.with_background(None).explain_row(table.rows(np.array([3])))
    wrong = model.to_dict() | {"background": {name: [1.0]}}
    with pytest.raises(CheckpointError, match="background"):
        Model.restored(wrong, model.state_dict(), tmp_path)
