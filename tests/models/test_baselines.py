"""Constant and linear predictions, and standard errors, against scikit-learn and formulas."""

import numpy as np
import pytest
from scipy.stats import bootstrap
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Ridge

from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Table
from mlpengine.models import baselines
from mlpengine.models.baselines import METRICS, Guess
from mlpengine.models.comparison import Lead, level_of
from mlpengine.models.metrics import influences, on_known
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
    constant = baselines.constant_prediction(task, part, 2).predicted
    np.testing.assert_allclose(constant, np.full((2, 1), y.mean()))


def test_a_constant_prediction_of_classes_has_their_shares():
    x, y = load_iris(return_X_y=True)
    task, part = split(x, y.astype(str), SoftmaxCrossEntropy())
    predicted, chances, *_ = baselines.constant_prediction(task, part, 3)
    assert (predicted == 0).all()
    np.testing.assert_allclose(chances, np.full((3, 3), 1 / 3))


def test_a_linear_prediction_of_labels_is_one_for_each():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 3))
    y = np.stack([x[:, 0] + rng.standard_normal(300) > 0, x[:, 1] > 1], axis=1).astype(float)
    task, part = split(x, y, BinaryCrossEntropyWithLogits(), task="multilabel")
    predicted, chances, *_ = baselines.linear_prediction(task, part, part.x, 1e9)
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
    assert known["model"]["accuracy"]["error"] == pytest.approx(right.std(ddof=1) / 4000**0.5)
    ahead = right.astype(float) - (other == truth)
    assert known["linear"]["ahead"]["value"] == pytest.approx(ahead.mean())
    assert known["linear"]["ahead"]["error"] == pytest.approx(ahead.std(ddof=1) / 4000**0.5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", sorted(METRICS))
def test_influences_are_derivatives_by_weights(name, weighted):
    rng = np.random.default_rng(3)
    rows = 40
    weights = rng.uniform(0.2, 3, rows) if weighted else np.ones(rows)
    classes, labels = rng.integers(0, 3, rows), rng.integers(0, 2, (rows, 2))
    numbers = rng.standard_normal((rows, 2))
    gaps = np.where(rng.random((rows, 2)) < 0.2, np.nan, numbers)
    times = (classes + 1.0) * np.resize([1, 1, -1], rows)
    ends = np.stack([times, np.where(times > 0, times, np.inf)], axis=1)
    cases = {
        "roc_auc": [(classes, rng.dirichlet([1, 1, 1], rows)), (labels, np.round(numbers))],
        "concordance": [(ends, np.round(numbers[:, :1], 1))],
    }
    if name in ("mae", "rmse", "r2"):
        cases[name] = [(numbers, numbers[::-1]), (gaps, numbers[::-1])]
    if name in ("cost", "log_loss", "pinball"):
        cases[name] = [(classes, numbers[:, 0])]
    for truth, given in cases.get(name, [(classes, classes[::-1]), (labels, labels[::-1])]):
        if name == "macro_f1":
            assert not influences(name, truth, truth, weights).any()
        found = influences(name, truth, given, weights)
        for row, step in enumerate(1e-4 * np.eye(rows)):
            near = [on_known(METRICS[name], truth, given, weights + s) for s in (step, -step)]
            slope = (near[0] - near[1]) / 2e-4 * weights.sum()
            assert found[row] - np.average(found, weights=weights) == pytest.approx(slope, abs=1e-7)


def test_the_error_of_a_lead_does_not_depend_on_the_order_and_equals_a_bootstrap():
    rng = np.random.default_rng(4)
    truth = rng.standard_normal((300, 1))
    one, other = (truth + rng.standard_normal((300, 1)) * size for size in (0.5, 0.6))

    def lead(order):
        guesses = {"one": Guess(one[order]), "other": Guess(other[order])}
        return baselines.baseline_scores(["r2"], truth[order], guesses, None)["other"]["ahead"]

    found = lead(np.arange(300))
    for _ in range(5):
        assert lead(rng.permutation(300)) == pytest.approx(found)
    drawn = bootstrap(
        (np.arange(300),),
        lambda rows: lead(rows)["value"],
        vectorized=False,
        n_resamples=1000,
        method="basic",
        random_state=0,
    )
    assert found["error"] == pytest.approx(drawn.standard_error, rel=0.1)


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
