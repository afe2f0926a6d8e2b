"""Constant and linear predictions, and standard errors, against scikit-learn and formulas."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Ridge

from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Table
from mlpengine.models import baselines
from mlpengine.models.baselines import Guess
from mlpengine.models.comparison import Lead, level_of
from mlpengine.models.task import make_split, task_for
from mlpengine.ops import BinaryCrossEntropyWithLogits, MeanSquaredError, SoftmaxCrossEntropy


def split(x, y, loss, **options):
    table = Table.from_arrays(x, y)
    targets = [name for name in table.names if name.startswith("y")]
    preprocessor = Preprocessor(targets, clip="none", **options).fit(table)
    task = task_for(preprocessor.target, loss)
    return task, make_split(table, None, preprocessor, task, np.dtype("float32"))


def test_a_linear_prediction_of_numbers_is_ridge():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 5))
    y = x @ [1, 2, 3, 0, 0] + rng.standard_normal(200)
    task, part = split(x, y, MeanSquaredError())
    predicted, *_ = baselines.linear_prediction(task, part, part.x, 1e9)
    expected = Ridge(alpha=0.5).fit(part.x, y).predict(part.x)
    np.testing.assert_allclose(predicted[:, 0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        baselines.constant_prediction(task, part, 2).predicted, np.full((2, 1), y.mean())
    )


def test_a_constant_prediction_of_classes_has_their_shares():
    x, y = load_iris(return_X_y=True)
    task, part = split(x, y.astype(str), SoftmaxCrossEntropy())
    predicted, chances, _ = baselines.constant_prediction(task, part, 3)
    assert (predicted == 0).all()
    np.testing.assert_allclose(chances, np.full((3, 3), 1 / 3))


def test_a_linear_prediction_of_labels_is_one_for_each():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 3))
    y = np.stack([x[:, 0] + rng.standard_normal(300) > 0, x[:, 1] > 1], axis=1).astype(float)
    task, part = split(x, y, BinaryCrossEntropyWithLogits(), task="multilabel")
    predicted, chances, _ = baselines.linear_prediction(task, part, part.x, 1e9)
    for k in range(2):
        expected = LogisticRegression(C=1.0).fit(part.x, y[:, k])
        assert (predicted[:, k] == expected.predict(part.x)).mean() > 0.99
        np.testing.assert_allclose(chances[:, k], expected.predict_proba(part.x)[:, 1], atol=0.02)


def test_standard_errors_are_those_of_a_mean():
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 2, 4000)
    one = np.where(rng.random(4000) < 0.9, truth, 1 - truth)
    other = np.where(rng.random(4000) < 0.9, one, 1 - truth)  # wrong where `one` is
    known = baselines.baseline_scores(
        ["accuracy"], truth, {"model": Guess(one), "linear": Guess(other)}, None
    )
    right = one == truth
    assert known["model"]["accuracy"]["value"] == right.mean()
    assert known["model"]["accuracy"]["error"] == pytest.approx(right.std() / 4000**0.5, rel=0.4)
    ahead = right.astype(float) - (other == truth)
    assert known["linear"]["ahead"]["value"] == pytest.approx(ahead.mean())
    assert known["linear"]["ahead"]["error"] == pytest.approx(ahead.std() / 4000**0.5, rel=0.4)


def test_rows_out_of_fold_are_predicted_by_a_model_of_the_others():
    x, y = load_iris(return_X_y=True)
    task, part = split(x, y.astype(str), SoftmaxCrossEntropy())
    folds = np.random.default_rng(0).integers(0, 3, len(y))
    guess = baselines.out_of_fold(task, part, folds, 1e9)
    for fold in range(3):
        mine, others = folds == fold, np.flatnonzero(folds != fold)
        expected = baselines.linear_prediction(task, part.rows(others), part.x[mine], 1e9)
        np.testing.assert_array_equal(guess.chances[mine], expected.chances)
        np.testing.assert_array_equal(guess.predicted[mine], expected.predicted)


@pytest.mark.parametrize(
    ("metric", "values", "is_clear"),
    [("rmse", (0.9999995, 1.0), False), ("r2", (0.9999995, 0.9999990), True)],
)
def test_a_lead_below_a_thousandth_of_the_error_is_not_clear(metric, values, is_clear):
    scores = {n: {metric: {"value": v}} for n, v in zip(("first", "other"), values, strict=True)}
    lead = Lead(metric, "data", 0, 5e-7, 1e-8, level_of(metric, scores))
    assert lead.is_clear is is_clear
    assert lead.level == pytest.approx({"rmse": 1.0, "r2": 1e-6}[metric])
