"""Outputs to predictions and probabilities, and metrics over a whole split."""

from functools import partial

import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.metrics as reference
from runs import part

from mlpengine import Mlp, SoftmaxCrossEntropy
from mlpengine.core.errors import DataError, UsageError
from mlpengine.data.features import ClassTarget, MultiLabelTarget, NumberTarget, Preprocessor
from mlpengine.data.tables import read_table
from mlpengine.models.evaluate import FORWARD_ROWS, Evaluator
from mlpengine.models.metrics import higher_is_better
from mlpengine.models.task import (
    BinaryClassification,
    Classification,
    MultiLabel,
    OrderedClasses,
    Regression,
    Split,
    make_split,
    task_for,
)
from mlpengine.ops import (
    REGISTRY,
    BinaryCrossEntropyWithLogits,
    Gamma,
    GaussianNll,
    MeanSquaredError,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Quantile,
    Tweedie,
)

RNG = np.random.default_rng(5)
LOGITS = RNG.normal(0, 30, (40, 3)).astype("float32")

TASKS = {
    "classes": (ClassTarget("t", ["a", "b", "c"]), SoftmaxCrossEntropy(), Classification, 3),
    "two classes": (
        ClassTarget("t", ["a", "b"]),
        BinaryCrossEntropyWithLogits(),
        BinaryClassification,
        1,
    ),
    "labels": (MultiLabelTarget(["s", "t"]), BinaryCrossEntropyWithLogits(), MultiLabel, 2),
    "numbers": (NumberTarget(["s", "t"], [1, 2], [3, 4]), MeanSquaredError(), Regression, 2),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_task_follows_the_target_and_the_loss(name):
    target, loss, kind, outputs = TASKS[name]
    task = task_for(target, loss)
    assert type(task) is kind
    assert task.outputs == outputs


def test_probabilities_are_the_softmax_in_float64():
    chance = Classification(3).probabilities(LOGITS)
    np.testing.assert_allclose(chance, scipy.special.softmax(LOGITS.astype(float), 1), rtol=1e-12)
    assert chance.dtype == np.float64


@pytest.mark.parametrize("task", [BinaryClassification(1), MultiLabel(3)])
def test_probabilities_are_the_logistic_function_in_float64(task):
    logits = LOGITS[:, : task.outputs]
    expected = scipy.special.expit(logits.astype(float))
    if task.outputs == 1:
        expected = np.hstack([1 - expected, expected])
    np.testing.assert_allclose(task.probabilities(logits), expected, rtol=1e-12, atol=1e-300)


def test_predictions_are_the_likeliest_classes():
    for task in (Classification(3), BinaryClassification(1)):
        logits = LOGITS[:, : task.outputs]
        chosen = task.probabilities(logits).argmax(axis=1)
        assert np.array_equal(task.predict(logits), chosen)
    assert np.array_equal(MultiLabel(3).predict(LOGITS), LOGITS > 0)


def test_regression_predicts_in_its_own_units():
    task = Regression(NumberTarget(["t"], [100.0], [10.0]))
    assert task.predict(np.array([[0.5]], "float32")) == pytest.approx(105.0)
    assert Regression(1).predict(np.array([[0.5]], "float32")) == pytest.approx(0.5)
    with pytest.raises(UsageError, match="BinaryClassification"):
        Classification(1)


OUTPUT = RNG.normal(0, 0.7, (40, 6)).astype("float32")
WIDE = OUTPUT.astype(float)
SPREAD = NumberTarget(["s", "t"], [5.0, 0.0], [2.0, 0.5])
SCALED = NumberTarget(["s", "t"], [0.0, 0.0], [3.0, 0.5])
POSITIVE = RNG.gamma(2, size=(40, 2))


def pinballs(q, t, levels):
    return np.mean(
        [reference.mean_pinball_loss(t, q[:, :, k], alpha=a) for k, a in enumerate(levels)]
    )


def quantiles(output):
    return np.sort(output.reshape(40, 2, 3) * [[[2.0], [0.5]]] + [[[5.0], [0.0]]], axis=2)


def normals(output):
    mean, s = output[:, :4:2], output[:, 1:4:2]
    return mean * [2, 0.5] + [5, 0], np.exp(s / 2) * [2, 0.5]


def averaged(deviance):
    return lambda t, p: np.mean([deviance(t[:, i], p[:, i]) for i in range(2)])


def binomial(counts, mean, r=1 / 0.4):
    """Return log densities, without what only the counts change."""
    return counts * np.log(mean / (r + mean)) + r * np.log(r / (r + mean))


PREDICTED = {
    "poisson": (
        Regression(SCALED, Poisson()), OUTPUT[:, :2],
        {"s": 3 * np.exp(WIDE[:, 0]), "t": 0.5 * np.exp(WIDE[:, 1])},
        {"deviance": lambda p: averaged(reference.mean_poisson_deviance)(POSITIVE, p)},
    ),
    "gamma": (
        Regression(SCALED, Gamma()), OUTPUT[:, :2],
        {"s": 3 * np.exp(WIDE[:, 0]), "t": 0.5 * np.exp(WIDE[:, 1])},
        {"deviance": lambda p: averaged(reference.mean_gamma_deviance)(POSITIVE, p)},
    ),
    "tweedie": (
        Regression(SCALED, Tweedie(1.3)), OUTPUT[:, :2],
        {"s": 3 * np.exp(WIDE[:, 0]), "t": 0.5 * np.exp(WIDE[:, 1])},
        {"deviance": lambda p: averaged(partial(reference.mean_tweedie_deviance, power=1.3))(
            POSITIVE, p
        )},
    ),
    "negative_binomial": (
        Regression(SCALED, NegativeBinomial(0.4)), OUTPUT[:, :2],
        {"s": 3 * np.exp(WIDE[:, 0]), "t": 0.5 * np.exp(WIDE[:, 1])},
        {"deviance": lambda p: 2 * (binomial(POSITIVE, POSITIVE) - binomial(POSITIVE, p)).mean()},
    ),
    "quantiles": (
        Regression(SPREAD, Quantile((0.1, 0.4, 0.9))), OUTPUT,
        {
            f"{name}_{level}": quantiles(WIDE)[:, i, k]
            for i, name in enumerate("st")
            for k, level in enumerate((0.1, 0.4, 0.9))
        },
        {
            "pinball": lambda p: pinballs(quantiles(WIDE), POSITIVE, (0.1, 0.4, 0.9)),
            "calibration_error": lambda p: max(
                abs((quantiles(WIDE)[:, :, k] >= POSITIVE).mean() - level)
                for k, level in enumerate((0.1, 0.4, 0.9))
            ),
        },
    ),
    "gaussian_nll": (
        Regression(SPREAD, GaussianNll()), OUTPUT[:, :4],
        {
            f"{name}{suffix}": values[:, i]
            for i, name in enumerate("st")
            for suffix, values in zip(("", "_std"), normals(WIDE), strict=True)
        },
        {"nll": lambda p: -scipy.stats.norm.logpdf(POSITIVE, *normals(WIDE)).mean()},
    ),
}  # fmt: skip
"""By loss: the task, outputs, what they predict by column, and the metrics beside the usual ones.

The prediction that is compared with the targets is the mean, or the quantile next to the median.
"""
POINTS = {
    **dict.fromkeys(("poisson", "gamma", "tweedie", "negative_binomial"), "st"),
    "quantiles": ("s_0.4", "t_0.4"),
    "gaussian_nll": "st",
}


@pytest.mark.parametrize("name", PREDICTED)
def test_each_loss_says_what_its_outputs_predict(name):
    task, output, columns, own = PREDICTED[name]
    assert task.outputs == output.shape[1]
    given = task.columns(output)
    assert list(given) == list(columns)
    for column, values in columns.items():
        np.testing.assert_allclose(given[column], values, rtol=1e-12)
    point = np.stack([columns[column] for column in POINTS[name]], axis=1)
    np.testing.assert_allclose(task.predict(output), point, rtol=1e-12)
    measured = task.metrics(output, Split(output, POSITIVE, POSITIVE), full=True)
    assert measured.pop("r2") == pytest.approx(reference.r2_score(POSITIVE, point))
    assert measured.pop("mae") == pytest.approx(reference.mean_absolute_error(POSITIVE, point))
    assert measured.keys() >= own.keys()
    shown = {key: measured[key] for key in own}
    assert shown == pytest.approx({key: metric(point) for key, metric in own.items()})


def test_ordered_classes_are_predicted_by_the_median_and_measured_by_distance():
    task, rows = task_for(ClassTarget("t", ["a", "b", "c"]), Ordinal(3)), part(40, 8, weights=True)
    output = LOGITS / 20
    below = np.cumsum(scipy.special.softmax(output.astype(float), 1), 1)
    chosen = np.array([np.searchsorted(one, 0.5) for one in below])
    assert (task.predict(output) == chosen).all()
    assert (chosen != output.argmax(1)).any()
    given = {"sample_weight": rows.weights}
    kappa = reference.cohen_kappa_score(rows.truth, chosen, weights="quadratic", **given)
    measured = task.metrics(output, rows)
    assert measured["quadratic_kappa"] == pytest.approx(kappa)
    distance = reference.mean_absolute_error(rows.truth, chosen, **given)
    assert measured["class_mae"] == pytest.approx(distance)


@pytest.mark.parametrize(
    ("task", "truth", "outputs"),
    [
        (OrderedClasses(3), np.arange(40) % 3, lambda t: 9 * np.eye(3)[t]),
        (Regression(SCALED, Poisson()), POSITIVE, lambda t: np.log(t / [3, 0.5])),
        (Regression(SPREAD), POSITIVE, lambda t: (t - [5, 0]) / [2, 0.5]),
    ],
)
def test_every_metric_has_the_direction_in_which_predictions_get_better(task, truth, outputs):
    better, worse = outputs(truth), outputs(truth[::-1])
    rows = Split(better, truth, truth)
    for name in task.all_metrics:
        gain = task.metric(name, better, rows) - task.metric(name, worse, rows)
        assert gain > 0 if higher_is_better(name) else gain < 0, name


def test_crps_of_even_levels_is_the_score_of_an_ensemble():
    task = Regression(SPREAD, Quantile((1 / 6, 0.5, 5 / 6)))
    q, t = quantiles(WIDE), POSITIVE[:, :, None]
    apart = np.abs(q[..., None] - q[:, :, None]).mean((2, 3)) / 2
    expected = (np.abs(q - t).mean(2) - apart).mean()
    measured = task.metric("crps", OUTPUT, Split(OUTPUT, POSITIVE, POSITIVE))
    assert measured == pytest.approx(expected, rel=1e-12)


def test_deviance_explained_is_of_the_weighted_mean():
    weights = np.linspace(0, 2, 40)
    task = Regression(NumberTarget(["s"], [0], [1]), Tweedie(1.3))
    rows = Split(OUTPUT, POSITIVE[:, :1], POSITIVE[:, :1], weights)
    given = POSITIVE[:, 0], np.exp(WIDE[:, 0])
    expected = reference.d2_tweedie_score(*given, sample_weight=weights, power=1.3)
    level = Split(OUTPUT, equal := np.full((40, 1), 0.1), equal)
    found = [task.metric("deviance_explained", OUTPUT[:, :1], one) for one in (rows, level)]
    assert found == pytest.approx([expected, np.nan], nan_ok=True)


@pytest.mark.parametrize("name", ["softmax_cross_entropy", "bce_with_logits"])
def test_a_loss_of_another_task_is_refused(name):
    with pytest.raises(DataError, match=name):
        task_for(SPREAD, REGISTRY[name]())


@pytest.mark.parametrize("weights", [False, True])
def test_full_metrics_of_classes(weights):
    rows = part(40, 8, weights=weights)
    found = Classification(3).metrics(LOGITS, rows, full=True)
    chance = scipy.special.softmax(LOGITS.astype(float), 1)
    given = {"sample_weight": rows.weights}
    chosen = chance.argmax(1)
    expected = {
        "accuracy": reference.accuracy_score(rows.truth, chosen, **given),
        "macro_f1": reference.f1_score(rows.truth, chosen, average="macro", **given),
        "weighted_f1": reference.f1_score(rows.truth, chosen, average="weighted", **given),
        "balanced_accuracy": reference.balanced_accuracy_score(rows.truth, chosen, **given),
        "roc_auc": reference.roc_auc_score(rows.truth, chance, multi_class="ovr", **given),
        "log_loss": reference.log_loss(rows.truth, chance, **given),
    }
    more = {"average_precision", "brier", "calibration_error"}
    assert found.keys() == expected.keys() | more
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)


LOSSES = {
    "classes": (SoftmaxCrossEntropy(), Classification(3), lambda y: y.argmax(1)),
    "two classes": (
        BinaryCrossEntropyWithLogits(),
        BinaryClassification(1),
        lambda y: (y[:, :1] > 0).astype("float32"),
    ),
    "labels": (BinaryCrossEntropyWithLogits(), MultiLabel(3), lambda y: (y > 0).astype("float32")),
    "mse": (MeanSquaredError(), Regression(NumberTarget(["t"] * 3, [0] * 3, [1] * 3)), np.array),
}


@pytest.mark.parametrize(
    ("weighted", "rows"), [(False, 1), (True, FORWARD_ROWS), (False, 2 * FORWARD_ROWS + 7)]
)
@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_of_a_split_is_that_of_all_rows_at_once(name, weighted, rows):
    loss, task, target = LOSSES[name]
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 4)).astype("float32")
    y = target(rng.normal(size=(rows, 3)).astype("float32"))
    weights = rng.uniform(0.5, 2, rows).astype("float32") if weighted else None
    truth = y if task.outputs > 1 else y.astype("int64").reshape(rows, -1)[:, 0]
    mlp = Mlp([4, 5, task.outputs], dropout=0.5)
    evaluator = Evaluator(mlp, loss, task)
    found = evaluator.run(Split(x, y, truth, weights))
    output = mlp.predict(x)
    assert found["loss"] == pytest.approx(loss(output, y, None, weights), rel=1e-5)
    np.testing.assert_allclose(evaluator.output, output, rtol=1e-5, atol=1e-6)


def test_a_part_keeps_regression_targets_in_their_own_units():
    table = read_table("diabetes")
    preprocessor = Preprocessor("progression").fit(table)
    task = task_for(preprocessor.target, MeanSquaredError())
    found = make_split(table, np.arange(5), preprocessor, task, np.dtype("float64"))
    assert np.array_equal(found.truth[:, 0], table["progression"].values[:5])
    assert found.y.dtype == found.x.dtype == np.float64
    np.testing.assert_allclose(task.predict(found.y), found.truth, rtol=1e-6)
