"""A run with the residual network: resumed bits, its summary, its layers in diagnostics."""

from pathlib import Path

import numpy as np
import pytest

from mlpengine.core.errors import UsageError
from mlpengine.estimators import MlpClassifier, MlpRegressor
from mlpengine.nn import Residual


@pytest.fixture
def table(tmp_path):
    g = np.random.default_rng(0)
    a, b, c = g.normal(size=150), g.normal(size=150), g.integers(3, size=150)
    y = a * b + (c == 1) + 0.1 * g.normal(size=150)
    lines = [
        f"{a[i]:.4f},{'' if i % 17 == 3 else f'{b[i]:.4f}'},{'pqr'[c[i]]},{y[i]:.4f}"
        for i in range(150)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,y", *lines]))


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("model.hidden=[8]", "model.hidden: residual does not have this; leave it out"),
        ("model.activation=[relu, tanh]", "model.activation: residual does not have this"),
        ("model.network=resid", "did you mean 'residual'"),
    ],
)
def test_options_of_another_network_are_refused(setting, text, table, mlpengine):
    Path("c.yaml").write_text("data: {source: rows.csv, target: y}\nmodel: {network: residual}\n")
    told = mlpengine("check", "c.yaml", "--set", setting)
    assert told.code != 0
    assert text in told.err


def test_estimators_take_the_network_by_its_name():
    x = np.random.default_rng(0).standard_normal((90, 3))
    y = x[:, 0] * x[:, 1]
    settings = {"model.network": "residual", "model.width": 8, "model.blocks": 1}
    options = {"settings": settings, "epochs": 2, "random_state": 0}
    regressor = MlpRegressor(**options, folds=2, members="plain").fit(x, y)
    classifier = MlpClassifier(**options, early_stopping=False).fit(x, y > 0)
    for one in (regressor, classifier):
        assert isinstance(one.mlp_, Residual)
        assert one.mlp_.blocks == 1
    assert classifier.predict_proba(x).shape == (90, 2)
    with pytest.raises(UsageError, match="blocks: mlp does not have this"):
        MlpRegressor(settings={"model.blocks": 3}, epochs=2).fit(x, y)
