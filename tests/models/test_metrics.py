"""Every metric against scikit-learn, and the cases that scikit-learn refuses."""

import numpy as np
import pytest
import sklearn.metrics as reference

from mlpengine.models import metrics

ROWS = 257


def _rng() -> np.random.Generator:
    return np.random.default_rng(7)


def _probabilities(rng, classes, rows=ROWS):
    scores = np.exp(rng.normal(size=(rows, classes)))
    return scores / scores.sum(axis=1, keepdims=True)


CLASSES = [2, 10]
WEIGHTS = ["plain", "weighted"]
CLASS_WEIGHTS = [*WEIGHTS, "class 1 weighs 0", "class 1 is not there"]

CLASS_METRICS = {
    "accuracy": (metrics.accuracy, reference.accuracy_score),
    "balanced_accuracy": (metrics.balanced_accuracy, reference.balanced_accuracy_score),
    "macro_f1": (
        metrics.f1,
        lambda *a, **k: reference.f1_score(*a, average="macro", zero_division=0, **k),
    ),
    "weighted_f1": (
        lambda *a: metrics.f1(*a, average="weighted"),
        lambda *a, **k: reference.f1_score(*a, average="weighted", zero_division=0, **k),
    ),
}

REGRESSION_METRICS = {
    "r2": (metrics.r2, reference.r2_score),
    "mae": (metrics.mae, reference.mean_absolute_error),
    "rmse": (metrics.rmse, reference.root_mean_squared_error),
}


def _class_weight(rng, kind, target, predicted):
    if kind == "class 1 weighs 0":
        return np.where((target == 1) | (predicted == 1), 0.0, 1.5)
    if kind == "class 1 is not there":
        target[target == 1] = 0
        predicted[predicted == 1] = 0
    return _weight(rng, kind)


def _weight(rng, kind):
    return rng.uniform(0.1, 3.0, ROWS) if kind == "weighted" else None


@pytest.mark.filterwarnings("ignore:y_pred contains classes", "ignore:A single label was")
@pytest.mark.parametrize("weights", CLASS_WEIGHTS)
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("name", CLASS_METRICS)
def test_class_metric_equals_scikit_learn(name, classes, weights):
    rng = _rng()
    ours, theirs = CLASS_METRICS[name]
    target, predicted = rng.integers(0, classes, (2, ROWS))
    weight = _class_weight(rng, weights, target, predicted)
    expected = theirs(target, predicted, sample_weight=weight)
    assert ours(target, predicted, weight) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", ["accuracy", "macro_f1", "weighted_f1"])
def test_multi_label_metric_equals_scikit_learn(name):
    rng = _rng()
    ours, theirs = CLASS_METRICS[name]
    target, predicted = rng.integers(0, 2, (2, ROWS, 3))
    expected = theirs(target, predicted)
    assert ours(target, predicted) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("classes", CLASSES)
def test_probability_metrics_equal_scikit_learn(classes, weights):
    rng = _rng()
    target, chance = rng.integers(0, classes, ROWS), _probabilities(rng, classes)
    chance[:40] = chance[40:80]  # rows of equal score
    weight = _weight(rng, weights)
    score = chance[:, 1] if classes == 2 else chance
    area = reference.roc_auc_score(target, score, sample_weight=weight, multi_class="ovr")
    assert metrics.roc_auc(target, chance, weight) == pytest.approx(area, rel=1e-12, abs=1e-12)
    loss = reference.log_loss(target, chance, sample_weight=weight)
    assert metrics.log_loss(target, chance, weight) == pytest.approx(loss, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("name", REGRESSION_METRICS)
def test_regression_metric_equals_scikit_learn(name, outputs, weights):
    rng = _rng()
    ours, theirs = REGRESSION_METRICS[name]
    shape = (ROWS,) if outputs is None else (ROWS, outputs)
    target = rng.normal(50.0, 3.0, shape)
    predicted = target + rng.normal(size=shape)
    weight = _weight(rng, weights)
    expected = theirs(target, predicted, sample_weight=weight)
    assert ours(target, predicted, weight) == pytest.approx(expected, rel=1e-12, abs=1e-12)


EDGES = {
    "a class never predicted": (metrics.f1, [0, 1, 2], [0, 0, 2], (2 / 3 + 0 + 1) / 3),
    "a class only predicted": (metrics.f1, [0, 0], [0, 1], (2 / 3 + 0) / 2),
    "a gap in the classes": (metrics.f1, [0, 3], [0, 3], 1.0),
    "recall of seen classes": (metrics.balanced_accuracy, [0, 0, 1], [0, 2, 1], 0.75),
    "exact constant": (metrics.r2, [2.0, 2.0], [2.0, 2.0], float("nan")),
    "missed constant": (metrics.r2, [0.1] * 3, [2.0, 3.0, 4.0], float("nan")),  # mean: not 0.1
    "one constant of two": (metrics.r2, [[0.1, 1.0]] * 2 + [[0.1, 4.0]], [[0.0, 2.0]] * 3, 0.0),
    "one row": (metrics.r2, [2.0], [2.0], float("nan")),
    "no row": (metrics.accuracy, [], [], float("nan")),
    "no class to weigh": (metrics.balanced_accuracy, [], [], float("nan")),
    "certain and wrong": (metrics.log_loss, [1], [[1.0, 0.0]], 52 * np.log(2)),
    "one class alone": (metrics.roc_auc, [1, 1], [0.3, 0.4], float("nan")),
    "the positive class alone": (metrics.log_loss, [1, 0], [0.5, 0.5], np.log(2)),
    "no rows of a class": (metrics.average_precision, [0, 0], [[0.5, 0.5]] * 2, float("nan")),
    "certain and right": (metrics.calibration_error, [1, 0], [[0.0, 1], [1, 0]], 0.0),
    "a class without rows": (metrics.roc_auc, [0, 1], [[0.9, 0.1, 0], [0.2, 0.8, 0]], 1.0),
    "only one class of three": (metrics.roc_auc, [0, 0], [[1, 0, 0], [1, 0, 0]], float("nan")),
}


@pytest.mark.parametrize("case", EDGES)
def test_edge(case):
    metric, target, predicted, expected = EDGES[case]
    kind = np.int64 if len(target) == 0 or isinstance(target[0], int) else np.float64
    predicted = np.array(predicted, dtype=kind if len(target) == 0 else None)
    value = metric(np.array(target, dtype=kind), predicted)
    assert value == pytest.approx(expected, nan_ok=True)


def test_confusion_matrix_counts_rows_of_target_by_columns_of_prediction():
    matrix = metrics.confusion_matrix(np.array([0, 0, 2]), np.array([0, 1, 2]), 3)
    assert matrix.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("classes", CLASSES)
def test_average_precision_and_brier_equal_scikit_learn(classes, weights):
    rng = _rng()
    target, chance = rng.integers(0, classes, ROWS), _probabilities(rng, classes)
    weight = _weight(rng, weights)
    hot = np.eye(classes)[target]
    score = chance[:, 1] if classes == 2 else chance
    expected = reference.average_precision_score(
        target if classes == 2 else hot, score, sample_weight=weight
    )
    assert metrics.average_precision(target, chance, weight) == pytest.approx(expected, rel=1e-12)
    if classes == 2:
        expected = reference.brier_score_loss(target, score, sample_weight=weight)
    else:
        each = [
            reference.brier_score_loss(hot[:, k], chance[:, k], sample_weight=weight)
            for k in range(classes)
        ]
        expected = sum(each)
    assert metrics.brier(target, chance, weight) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("labels", "weights"), [(False, "plain"), (True, "weighted")])
def test_ranks_of_many_classes_equal_scikit_learn(labels, weights):
    rng = _rng()
    target, chance = rng.integers(0, 5, ROWS), _probabilities(rng, 9).round(2).astype("f4")
    hot, weight = np.eye(9, dtype=int)[target], _weight(rng, weights)
    known = range(5)
    for ours, theirs in (
        (metrics.roc_auc, reference.roc_auc_score),
        (metrics.average_precision, reference.average_precision_score),
    ):
        each = [theirs(hot[:, k], chance[:, k], sample_weight=weight) for k in known]
        value = ours(hot if labels else target, chance, weight)
        assert value == pytest.approx(np.mean(each), rel=1e-12)


def test_average_precision_of_ties_and_of_labels():
    rng = _rng()
    target, chance = rng.integers(0, 2, (ROWS, 3)), rng.random((ROWS, 3)).round(1)
    expected = reference.average_precision_score(target, chance)
    assert metrics.average_precision(target, chance) == pytest.approx(expected, rel=1e-12)
    assert np.isnan(metrics.average_precision(np.zeros(9, int), rng.random((9, 2))))
    each = [reference.brier_score_loss(target[:, k], chance[:, k]) for k in range(3)]
    assert metrics.brier(target, chance) == pytest.approx(np.mean(each), rel=1e-12)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", ["precision", "recall"])
def test_metrics_by_class_equal_scikit_learn(name, weights):
    rng = _rng()
    target, predicted = rng.integers(0, 4, (2, ROWS))
    predicted[predicted == 3] = 0  # a class that is never predicted
    weight = _weight(rng, weights)
    theirs = getattr(reference, f"{name}_score")
    expected = theirs(target, predicted, average=None, zero_division=0, sample_weight=weight)
    np.testing.assert_allclose(getattr(metrics, name)(target, predicted, weight), expected)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("outputs", [1, 3])
def test_relative_errors_equal_scikit_learn(outputs, weights):
    rng = _rng()
    target, predicted = np.exp(rng.normal(size=(2, ROWS, outputs)))
    weight = _weight(rng, weights)
    for ours, theirs in (
        (metrics.mape, reference.mean_absolute_percentage_error),
        (metrics.rmsle, reference.root_mean_squared_log_error),
    ):
        expected = theirs(target, predicted, sample_weight=weight)
        assert ours(target, predicted, weight) == pytest.approx(expected, rel=1e-12)
        if ours is metrics.rmsle:
            assert np.isnan(ours(target, -predicted - 1))
        else:
            assert np.isnan(ours(target * 0, predicted))


def test_commonest_mistakes_are_those_of_the_confusion_matrix():
    rng = np.random.default_rng(0)
    target, predicted = rng.integers(0, 12, (2, 400)) ** 2 // 12
    counts = metrics.confusion_matrix(target, predicted, 12)
    np.fill_diagonal(counts, 0)
    cells = np.argsort(-counts, axis=None, kind="stable")[:5]
    expected = [(cell // 12, cell % 12, counts.flat[cell]) for cell in cells]
    assert metrics.commonest_mistakes(target, predicted, 5) == expected
    assert metrics.commonest_mistakes(target, target, 5) == []


@pytest.mark.parametrize("name", ["r2", "mae"])
def test_a_target_that_is_missing_counts_in_no_metric(name):
    rng = np.random.default_rng(0)
    target, predicted, weight = rng.normal(size=(90, 3)), rng.normal(size=(90, 3)), rng.random(90)
    target[rng.random(target.shape) < 0.5] = target[:, 2] = np.nan
    known, own = ~np.isnan(target), REGRESSION_METRICS[name]
    expected = [
        own[1](target[r, k], predicted[r, k], sample_weight=weight[r])
        for k, r in enumerate(known.T[:2])
    ]
    got = metrics.on_known(own[0], target, predicted, weight)
    assert got == pytest.approx(np.mean(expected), rel=1e-12)
