"""Prediction intervals, temperatures and the expected calibration error."""

from dataclasses import replace

import numpy as np
import pytest
from plain import plain
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, softmax
from scipy.stats import norm
from sklearn.metrics import log_loss

from mlpengine import Mlp, fit
from mlpengine.core.errors import CheckpointError, UsageError
from mlpengine.data.features import NumberTarget, Preprocessor
from mlpengine.data.tables import Column, Table
from mlpengine.models import calibration
from mlpengine.models.calibration import (
    ClassSets,
    Residuals,
    error_of_mean,
    fit_temperature,
)
from mlpengine.models.members import best_weights
from mlpengine.models.metrics import calibration_error
from mlpengine.models.model import Model
from mlpengine.models.task import (
    BinaryClassification,
    Classification,
    MultiLabel,
    Regression,
    Split,
)
from mlpengine.nn.population import Population
from mlpengine.nn.safetensors_file import read_tensors, write_tensors

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("level", "count", "is_skewed"), [(0.5, 102, False), (0.9, 184, True), (0.999, 203, False)]
)
def test_an_interval_holds_so_many_errors(level, count, is_skewed, caplog):
    """The count is that of conformal prediction: ceil(level (n + 1)), of 203 errors.

    A level that needs more errors gives a warning.

    Of errors on one side alone it is the shortest range that holds them.
    """
    rng = np.random.default_rng(1)
    errors = rng.gamma(1.0, size=(203, 2)) if is_skewed else rng.standard_normal((203, 2))
    for _ in range(2):
        low, high = Residuals.of(errors, errors * 0).interval(np.full((7, 2), 3.0), level)
    assert caplog.text.count(" 999 ") == len(caplog.records) == (level == 0.999)
    Residuals.of(errors, errors * 0).quantile(low, (1 - level) / 10)  # .0001 needs 9,999 errors
    assert caplog.text.count(" 9999 ") == (level == 0.999)
    for k, own in enumerate(np.sort(errors, axis=0).T):
        first = np.argmin([own[i + count - 1] - own[i] for i in range(203 - count + 1)])
        half = np.partition(np.abs(own), count - 1)[count - 1]
        ends = (own[first], own[first + count - 1]) if is_skewed else (-half, half)
        np.testing.assert_allclose(low[:, k] - 3, ends[0], rtol=1e-9)
        np.testing.assert_allclose(high[:, k] - 3, ends[1], rtol=1e-9)


def test_widths_go_with_the_size_of_errors_at_a_prediction():
    """Errors that grow with the prediction: each fifth of new rows holds what it promises."""
    predictions, new = RNG.uniform(3, 10, (2, 20_000, 1))
    residuals = Residuals.of(predictions * RNG.standard_normal((20_000, 1)), predictions)
    assert len(residuals.errors) == calibration.MAX_RESIDUALS
    low, high = Residuals.of(new * 0, new).interval(new, 0.9)
    np.testing.assert_array_equal(low, high)  # no error, no width
    truth = new + new * RNG.standard_normal((20_000, 1))
    low, high = residuals.interval(new, 0.9)
    inside = ((low <= truth) & (truth <= high))[np.argsort(new[:, 0]), 0]
    shares = inside.reshape(5, -1).mean(axis=1)
    np.testing.assert_allclose(shares, 0.9, atol=0.03)
    np.testing.assert_allclose((high - low)[:, 0], 2 * norm.ppf(0.95) * new[:, 0], rtol=0.2)


def test_a_set_holds_the_classes_above_the_quantile_of_conformal_prediction():
    """Of 203 rows ceil(0.9 * 204) = 184 have their class; all classes where rows are too few."""
    truth = RNG.integers(4, size=203)
    chances = softmax(RNG.standard_normal((203, 4)) + 2 * np.eye(4)[truth], axis=1)
    sets = ClassSets.of(chances, truth)
    lowest = np.sort(chances[np.arange(203), truth])[203 - 184]
    np.testing.assert_array_equal(sets.contain(chances, 0.9), chances >= lowest)
    assert sets.contain(chances, 0.9)[np.arange(203), truth].sum() == 184
    assert sets.contain(chances, 0.999).all()
    many = ClassSets.of(np.tile(chances, (50, 1)), np.tile(truth, 50))
    assert len(many.chances) == calibration.MAX_RESIDUALS
    assert many.contain(chances, 0.9)[np.arange(203), truth].mean() == pytest.approx(0.9, abs=0.01)


def test_sets_by_class_hold_each_class_as_often():
    """One of two classes is rare and hard to tell: sets of all rows seldom hold it."""
    rng = np.random.default_rng(4)

    def rows(count):
        truth = (rng.random(count) < 0.1).astype(int)
        logit = 1.5 * truth - 2.5 + rng.standard_normal(count)
        return np.c_[expit(-logit), expit(logit)], truth

    sets, (chances, truth) = ClassSets.of(*rows(9_000)), rows(9_000)
    assert len(sets.classes) == calibration.MAX_RESIDUALS
    held = [sets.contain(chances, 0.9, by_class=k)[np.arange(9_000), truth] for k in (False, True)]
    shares = [[one[truth == k].mean() for k in (0, 1)] for one in held]
    assert shares[0][1] < 0.3
    np.testing.assert_allclose(shares[1], 0.9, atol=0.02)
    few = ClassSets.of(chances[:5], np.zeros(5, int))  # no row of class 1: always in the set
    assert few.contain(chances, 0.5, by_class=True)[:, 1].all()


def ridge_folds(rng):
    """Return targets, folds and outputs of 8 ridge regressions; the same of new rows.

    Each reads 20 cosines of its own, and is fitted without one fold of the rows.
    """
    x, new = rng.uniform(-2, 2, (120, 2)), rng.uniform(-2, 2, (1_500, 2))
    y, new_y = (
        np.sin(2 * rows[:, 0]) * rows[:, 1] + 0.5 * rng.standard_normal(len(rows))
        for rows in (x, new)
    )
    folds, known, unknown = np.arange(120) % 8, [], []
    for k in range(8):
        w, b = rng.normal(size=(2, 20)), rng.uniform(0, 2 * np.pi, 20)
        a, kept = np.cos(x @ w + b), folds != k
        weights = np.linalg.solve(a[kept].T @ a[kept] + 0.03 * np.eye(20), a[kept].T @ y[kept])
        known.append(a @ weights)
        unknown.append(np.cos(new @ w + b) @ weights)
    return y, folds, np.array(known), new_y, np.array(unknown)


def test_the_gain_by_a_mean_is_known_without_new_rows():
    """Ridge regressions 20 times: estimated and true gain agree on average, to 30 %."""
    rng, gains = np.random.default_rng(1), []
    task = Regression(NumberTarget(["y"], [0.0], [1.0]))
    for _ in range(20):
        y, folds, known, new_y, unknown = ridge_folds(rng)
        part = Split(np.zeros((len(y), 1)), y[:, None], y[:, None])
        share = error_of_mean(
            task,
            lambda x, outputs=known: outputs[:, :, None],
            folds,
            part,
            lambda output, part, y=y: np.mean((output[:, 0] - y) ** 2),
        )
        own = np.mean((known[folds, np.arange(len(y))] - y) ** 2)
        singles, mean = np.mean((unknown - new_y) ** 2), unknown.mean(axis=0)
        gains.append((own * (1 - share.item()), singles - np.mean((mean - new_y) ** 2)))
    estimate, true = np.mean(gains, axis=0)
    assert true > 0.01
    assert 0.7 < estimate / true < 1.1


def test_shares_are_the_best_of_a_simplex():
    """Against a search by SciPy: of squared errors, and of log loss."""
    y = RNG.standard_normal((300, 1))
    noisy = np.stack([y + s * RNG.standard_normal(y.shape) for s in (0.5, 0.7, 3.0)])
    task = Regression(NumberTarget(["y"], [0.0], [1.0]))

    def squares(output):
        return float(np.mean((output - y) ** 2))

    shares = np.array(best_weights(task, noisy, squares))
    assert shares.sum() == pytest.approx(1)
    best = minimize(
        lambda w: np.mean((np.tensordot(w, noisy, 1) - y) ** 2),
        np.full(3, 1 / 3), bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
    )  # fmt: skip
    np.testing.assert_allclose(shares, best.x, atol=0.06)
    truth = RNG.integers(0, 2, 300)
    right = np.where(truth, 2.0, -2.0)[:, None] + RNG.standard_normal((300, 1))
    binary = BinaryClassification(1)

    def logs(output):
        return log_loss(truth, expit(output[:, 0]))

    assert best_weights(binary, np.stack([-right, right]), logs) == (0.0, 1.0)
    alike = y + RNG.standard_normal((2, *y.shape))  # two kinds that are equally good
    np.testing.assert_allclose(best_weights(task, alike, squares), 0.5, atol=0.1)


LEVELS = [0, 1, 90, "a", True, np.nan]


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_out_of_range_is_refused(level):
    residuals = Residuals.of(np.ones((4, 1)), np.zeros((4, 1)))
    with pytest.raises(UsageError) as caught:
        residuals.interval(np.zeros((3, 1)), level)
    assert f"(got {level!r}){'; write 90 % as 0.9' if level == 90 else ''}" in str(caught.value)


LOGITS = RNG.standard_normal((4_000, 3))
TASKS = {
    "classes": (Classification(3), LOGITS, lambda y: softmax(y, axis=1)),
    "two classes": (BinaryClassification(1), LOGITS[:, :1], lambda y: np.c_[expit(-y), expit(y)]),
    "labels": (MultiLabel(3), LOGITS, expit),
}


@pytest.mark.parametrize(("name", "scale"), [*zip(TASKS, (0.5, 2.5, 0.5), strict=True)])
def test_the_temperature_is_the_best(name, scale):
    task, logits, chances = TASKS[name]
    drawn = chances(logits)
    if name == "labels":
        truth = (RNG.random(drawn.shape) < drawn) * 1
    else:
        truth = (RNG.random((len(drawn), 1)) > drawn.cumsum(axis=1)).sum(axis=1)
    output = scale * logits
    found = fit_temperature(task, output, truth, None)
    assert found == pytest.approx(scale, rel=0.1)

    def loss(temperature):
        p = chances(output / temperature)
        if name != "labels":
            return log_loss(truth, p)
        return -np.mean(np.log(np.where(truth, p, 1 - p)))

    best = minimize_scalar(loss, bounds=(0.2, 5), method="bounded", options={"xatol": 1e-6})
    assert found == pytest.approx(best.x, rel=2e-3)
    before = calibration_error(truth, task.probabilities(output))
    after = calibration_error(truth, task.probabilities(output / found))
    assert after < 0.03 < before


@pytest.mark.parametrize("name", TASKS)
def test_rows_that_are_all_right_keep_their_temperature_from_zero(name):
    """One more row whose class is any, as SciPy minimizes the loss of both."""
    task, logits, chances = TASKS[name]
    output = 2 * logits[:40]
    p = chances(output)
    truth = (p > 0.5) * 1 if name == "labels" else p.argmax(axis=1)

    def loss(temperature):
        p = chances(output / temperature)
        if name == "labels":
            each = np.log(p * (1 - p)).mean() / 2
            right = np.log(np.where(truth, p, 1 - p)).mean()
        else:
            each, right = np.log(p).mean(), np.log(p[np.arange(40), truth]).mean()
        return -(40 * right + each) / 41

    best = minimize_scalar(loss, bounds=(0.2, 5), method="bounded", options={"xatol": 1e-6})
    assert 0.21 < best.x < 1
    assert fit_temperature(task, output, truth, None) == pytest.approx(best.x, rel=2e-3)


def test_the_logits_of_one_network_are_divided_by_the_temperature_of_validation_rows(tmp_path):
    """That of labels that were smoothed is below 1, and the loss on new rows falls."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((600, 3))
    table = {f"x{k}": column for k, column in enumerate(x.T)}
    table["y"] = np.array(["b", "a", "c"])[(x.argmax(axis=1) + (rng.random(600) < 0.02)) % 3]
    train, new = ({name: column[part] for name, column in table.items()}
                  for part in (slice(400), slice(400, None)))  # fmt: skip
    config = {
        "data": {"split": {"test": 0}}, "model": {"hidden": [16]}, "diagnostics": False,
        "loss": {"name": "softmax_cross_entropy", "label_smoothing": 0.1},
    }  # fmt: skip
    hot, cold = (
        fit(train, "y", **plain(training={"epochs": 30, "calibration": name}, **config))[0]
        for name in ("none", "temperature")
    )
    ratio = hot.outputs(new) / cold.outputs(new)
    assert 0.2 < ratio[0, 0] < 0.95
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-3)
    assert cold.evaluate(new)["loss"] < 0.9 * hot.evaluate(new)["loss"]
    cold.save(tmp_path / "m")
    np.testing.assert_array_equal(
        Mlp.load(tmp_path / "m").predict(cold.features(cold.table(new))), cold.outputs(new)
    )


def test_the_calibration_error_is_that_of_the_definition():
    three = np.array([[0.9, 0.1, 0], [0.92, 0, 0.08], [0.2, 0.7, 0.1], [0.03, 0.95, 0.02]])
    truth, weights = np.array([0, 1, 1, 1]), np.array([1.0, 2.0, 1.0, 1.0])
    # bins of 1/15: 0.9 and 0.92 share [0.867, 0.933], 0.95 is in the last, 0.7 alone
    expected = (abs(0.1 - 0.92) + 0.3 + 0.05) / 4
    assert calibration_error(truth, three) == pytest.approx(expected)
    expected = (abs(0.1 - 2 * 0.92) + 0.3 + 0.05) / 5
    assert calibration_error(truth, three, weights) == pytest.approx(expected)
    # the probability of class 1 is 0.2 too high below and above 0.5
    chance, truth = np.repeat([0.4, 0.6], 5), np.array([1, 0, 0, 0, 0, 1, 1, 0, 0, 0])
    assert calibration_error(truth, np.stack([1 - chance, chance], 1)) == pytest.approx(0.2)
    labels = np.stack([truth, 1 - truth], 1)
    assert calibration_error(labels, np.stack([chance, truth * 0.0], 1)) == pytest.approx(0.45)


def model(target="y"):
    columns = {"a": Column(RNG.standard_normal(60)), "y": Column(RNG.standard_normal(60) * 9 + 5)}
    columns["kind"] = Column(np.arange(60) % 3 * 1.0, "number")
    table = Table(columns)
    drop = ["kind"] if target == "y" else ["y"]
    preprocessor = Preprocessor(target, drop=drop).fit(table)
    members = Population(Mlp([preprocessor.n_features, 4, preprocessor.n_outputs]), 3)
    loss = "mse" if target == "y" else "softmax_cross_entropy"
    residuals = Residuals.of(*RNG.standard_normal((2, 60, 1)))
    sets = ClassSets.of(RNG.dirichlet([1, 1, 1], 60), np.arange(60) % 3)
    given = {"residuals": residuals} if target == "y" else {"sets": sets}
    return Model(members[0], preprocessor, loss, {}, [members], **given), table


def test_a_model_keeps_how_sure_it_is(tmp_path):
    whole, table = model()
    whole.save(tmp_path / "m")
    again = Model.load(tmp_path / "m")
    ends = [one.predict_interval(table, 0.8) for one in (whole, again)]
    np.testing.assert_array_equal(*ends)
    assert np.shape(ends) == (2, 2, 60)
    low, high = again.predict_interval(table)
    assert ((low < again.predict(table)) & (again.predict(table) < high)).all()
    classes, table = model("kind")
    classes.save(tmp_path / "c")
    again = Model.load(tmp_path / "c")
    x = classes.preprocessor.transform(table).features
    logits = [network.predict(x).astype("f8") for network in classes.networks]
    chances = softmax(np.mean(logits, axis=0), axis=1)
    np.testing.assert_allclose(again.predict_proba(table), chances, atol=1e-6)
    with pytest.raises(UsageError, match=r"interval: .*write predict_set"):
        classes.predict_interval(table)
    held = again.predict_set(table, 0.8)
    np.testing.assert_array_equal(held, classes.predict_set(table, 0.8))
    lowest = classes.sets.chances[60 - 49]  # ceil(0.8 * 61) = 49 of 60 are in their sets
    np.testing.assert_array_equal(held, classes.predict_proba(table) >= lowest)
    assert (again.predict_set(table, 0.8, by_class=True) != held).any()
    both, _ = fit({"a": [0.0, 1.0] * 9, "p": [0, 1] * 9, "q": [1, 0] * 9}, ["p", "q"])
    wrong_models = {"numbers": whole, "needs folds": replace(classes, sets=None), "labels": both}
    for of, wrong in wrong_models.items():
        with pytest.raises(UsageError, match=f"set: .*{of}"):
            wrong.predict_set(table)
    with pytest.raises(UsageError, match=r"^set: .*0.9"):
        classes.predict_set(table, 90)


DAMAGED = [
    ("residuals.places", lambda one: None, "residuals.errors"),
    (
        "residuals.errors",
        lambda one: one.repeat(2, axis=1),
        r"residuals.errors: .*\(1 or more, 1\)",
    ),
    ("residuals.errors", lambda one: one.astype("i8"), "residuals.errors"),
    ("residuals.places", lambda one: one * np.nan, "residuals.places"),
    ("residuals.errors", lambda one: one[::-1].copy(), "sorted"),
    ("residuals.scales", lambda one: one * 0, "scales"),
    ("residuals.places", lambda one: one.repeat(2, axis=0), "place"),
    ("set_chances", lambda one: one[:, None], "set_chances"),
    ("set_chances", lambda one: one + 1, "set_chances"),
    ("set_chances", lambda one: one[::-1].copy(), "set_chances"),
    ("set_classes", lambda one: None, "set_classes"),
    ("set_classes", lambda one: one[1:], "set_classes"),
    ("set_classes", lambda one: one + 1, "3 classes"),
    ("ensemble_weights", [0.5, 0.5], "3 networks"),
    ("ensemble_weights", [0.5, 0.1, 0.1], "ensemble_weights"),
    ("ensemble_weights", ["all"], "ensemble_weights"),
]


@pytest.mark.parametrize(("name", "change", "message"), DAMAGED)
def test_a_file_that_does_not_fit_is_refused(name, change, message, tmp_path):
    whole, _ = model("kind" if name.startswith("set_") else "y")
    whole.save(tmp_path / "m")
    arrays, header = read_tensors(tmp_path / "m")
    if callable(change):
        arrays[name] = change(arrays[name])
    else:
        header[name] = change
    kept = {n: array for n, array in arrays.items() if array is not None}
    write_tensors(tmp_path / "m", kept, header)
    with pytest.raises(CheckpointError, match=message):
        Model.load(tmp_path / "m")
