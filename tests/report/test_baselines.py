"""Constant and linear predictions, and standard errors, against scikit-learn and formulas."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Ridge

from mlpengine.data import Preprocessor, Table
from mlpengine.ops import BinaryCrossEntropyWithLogits, MeanSquaredError, SoftmaxCrossEntropy
from mlpengine.report import baselines
from mlpengine.train.task import part_of, task_for


def split(x, y, loss, **options):
    table = Table.from_arrays(x, y)
    targets = [name for name in table.names if name.startswith("y")]
    preprocessor = Preprocessor(targets, clip="none", **options).fit(table)
    task = task_for(preprocessor.target, loss)
    return task, part_of(table, None, preprocessor, task, np.dtype("float32"))


def test_a_linear_prediction_of_numbers_is_ridge():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 5))
    y = x @ [1, 2, 3, 0, 0] + rng.standard_normal(200)
    task, part = split(x, y, MeanSquaredError())
    predicted = baselines.linear(task, part, part.x, 1e9)
    expected = Ridge(alpha=1.0).fit(part.x, y).predict(part.x)
    np.testing.assert_allclose(predicted[:, 0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(baselines.constant(task, part, 2), np.full((2, 1), y.mean()))


def test_a_linear_prediction_of_classes_is_a_logistic_regression():
    x, y = load_iris(return_X_y=True)
    task, part = split(x, y.astype(str), SoftmaxCrossEntropy())
    predicted = baselines.linear(task, part, part.x, 1e9)
    expected = LogisticRegression(C=1.0, max_iter=1000).fit(part.x, y).predict(part.x)
    assert (predicted == expected).mean() > 0.99
    assert (baselines.constant(task, part, 3) == 0).all()


def test_a_linear_prediction_of_labels_is_one_for_each():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 3))
    y = np.stack([x[:, 0] + rng.standard_normal(300) > 0, x[:, 1] > 1], axis=1).astype(float)
    task, part = split(x, y, BinaryCrossEntropyWithLogits(), task="multilabel")
    predicted = baselines.linear(task, part, part.x, 1e9)
    for k in range(2):
        expected = LogisticRegression(C=1.0).fit(part.x, y[:, k]).predict(part.x)
        assert (predicted[:, k] == expected).mean() > 0.99


def test_more_features_than_it_takes_have_no_linear_prediction():
    task, part = split(np.random.default_rng(0).standard_normal((50, 700)), np.arange(50.0),
                       MeanSquaredError())  # fmt: skip
    assert baselines.linear(task, part, part.x, 1e9) is None


def test_standard_errors_are_those_of_a_mean():
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 2, 4000)
    one = np.where(rng.random(4000) < 0.9, truth, 1 - truth)
    other = np.where(rng.random(4000) < 0.8, truth, 1 - truth)
    known = baselines.scores(["accuracy"], truth, {"model": one, "linear": other}, None)
    right = one == truth
    assert known["model"]["accuracy"]["value"] == right.mean()
    assert known["model"]["accuracy"]["error"] == pytest.approx(right.std() / 4000**0.5, rel=0.4)
    ahead = right.astype(float) - (other == truth)
    assert known["linear"]["ahead"]["value"] == pytest.approx(ahead.mean())
    assert known["linear"]["ahead"]["error"] == pytest.approx(ahead.std() / 4000**0.5, rel=0.4)
