"""Prediction intervals, temperatures and the expected calibration error."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, softmax
from sklearn.metrics import log_loss

from mlpengine import Mlp
from mlpengine.data import Column, Preprocessor, Table
from mlpengine.errors import CheckpointError, UsageError
from mlpengine.nn.tensors import read_tensors, write_tensors
from mlpengine.train import calibration
from mlpengine.train.calibration import Residuals, best_temperature, calibration_error, spread
from mlpengine.train.model import Model
from mlpengine.train.population import Population
from mlpengine.train.task import BinaryClassification, Classification, MultiLabel

RNG = np.random.default_rng(0)


def explicit(errors, folds, predictions, level):
    """Return CV+ by its definition, a row at a time."""
    count = len(errors)
    low, high = [], []
    for row in range(predictions.shape[1]):
        centers = predictions[folds, row]
        lower, upper = np.sort(centers - np.abs(errors), 0), np.sort(centers + np.abs(errors), 0)
        miss = 1 - level
        low.append(lower[int(np.floor(miss * (count + 1))) - 1])
        high.append(upper[int(np.ceil((1 - miss) * (count + 1))) - 1])
    return np.array(low), np.array(high)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_are_those_of_the_definition(level, monkeypatch):
    errors, folds = RNG.standard_normal((203, 2)), RNG.integers(0, 4, 203)
    predictions = RNG.standard_normal((4, 7, 2))
    monkeypatch.setattr(calibration, "ROWS", 3)
    got = Residuals.of(errors, folds).interval(predictions, level)
    for end, expected in zip(got, explicit(errors, folds, predictions, level), strict=True):
        np.testing.assert_allclose(end, expected, rtol=1e-12)


def test_few_residuals_stand_for_many():
    errors, folds = RNG.standard_normal((20_000, 1)), RNG.integers(0, 3, 20_000)
    predictions = RNG.standard_normal((3, 5, 1))
    few = Residuals.of(errors, folds)
    assert len(few.values) <= calibration.MAX_RESIDUALS + 3
    for end, expected in zip(
        few.interval(predictions, 0.9), explicit(errors, folds, predictions, 0.9), strict=True
    ):
        np.testing.assert_allclose(end, expected, atol=0.02)


def test_intervals_cover_what_they_promise():
    """A line fitted without each fold, 60 times; the mean of the coverage, and one that is not."""
    covered = []
    for _ in range(60):
        x, new = RNG.standard_normal(80), RNG.standard_normal(200)
        y, new_y = (2 * v + RNG.standard_normal(len(v)) for v in (x, new))
        folds = np.arange(80) % 8
        slopes = np.array(
            [x[folds != k] @ y[folds != k] / (x[folds != k] ** 2).sum() for k in range(8)]
        )
        residuals = Residuals.of((y - slopes[folds] * x)[:, None], folds)
        low, high = residuals.interval(slopes[:, None, None] * new[None, :, None], 0.9)
        covered.append(((low[:, 0] <= new_y) & (new_y <= high[:, 0])).mean())
    assert np.mean(covered) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("level", [0, 1, -0.5, 90])
def test_a_level_out_of_range_is_refused(level):
    residuals = Residuals.of(np.ones((4, 1)), np.arange(4) % 2)
    with pytest.raises(UsageError, match="level must be between 0 and 1"):
        residuals.interval(np.zeros((2, 3, 1)), level)


LOGITS = RNG.standard_normal((4_000, 3))
TASKS = {
    "classes": (Classification(3), LOGITS, lambda y: softmax(y, axis=1)),
    "two classes": (BinaryClassification(1), LOGITS[:, :1], lambda y: np.c_[expit(-y), expit(y)]),
    "labels": (MultiLabel(3), LOGITS, expit),
}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("scale", [0.5, 2.5])
def test_the_temperature_is_the_best(name, scale):
    task, logits, chances = TASKS[name]
    drawn = chances(logits)
    if name == "labels":
        truth = (RNG.random(drawn.shape) < drawn) * 1
    else:
        truth = (RNG.random((len(drawn), 1)) > drawn.cumsum(axis=1)).sum(axis=1)
    output = scale * logits
    found = best_temperature(task, output, truth, None)
    assert found == pytest.approx(scale, rel=0.1)

    def loss(temperature):
        p = chances(output / temperature)
        if name != "labels":
            return log_loss(truth, p)
        return -np.mean(np.log(np.where(truth, p, 1 - p)))

    best = minimize_scalar(loss, bounds=(0.2, 5), method="bounded", options={"xatol": 1e-6})
    assert found == pytest.approx(best.x, rel=2e-3)
    before = calibration_error(task.probabilities(output), truth)
    after = calibration_error(task.probabilities(output / found), truth)
    assert after < 0.02 < before


def test_the_calibration_error_is_that_of_the_definition():
    chances = np.array([[0.9, 0.1], [0.92, 0.08], [0.3, 0.7], [0.05, 0.95]])
    truth, weights = np.array([0, 1, 1, 1]), np.array([1.0, 2.0, 1.0, 1.0])
    # bins of 1/15: 0.9 and 0.92 share [0.867, 0.933], 0.95 is in the last, 0.7 alone
    expected = (abs(0.1 - 0.92) + 0.3 + 0.05) / 4
    assert calibration_error(chances, truth) == pytest.approx(expected)
    expected = (abs(0.1 - 2 * 0.92) + 0.3 + 0.05) / 5
    assert calibration_error(chances, truth, weights) == pytest.approx(expected)
    labels = np.array([[1, 0], [0, 1]])
    assert calibration_error(labels * 0.8 + 0.1, labels) == pytest.approx(0.1)


def model(target="y"):
    columns = {"a": Column(RNG.standard_normal(60)), "y": Column(RNG.standard_normal(60) * 9 + 5)}
    columns["kind"] = Column(np.arange(60) % 3 * 1.0, "number")
    table = Table(columns)
    drop = ["kind"] if target == "y" else ["y"]
    preprocessor = Preprocessor(target, drop=drop).fit(table)
    members = Population(Mlp([preprocessor.n_features, 4, preprocessor.n_outputs]), 3)
    loss = "mse" if target == "y" else "softmax_cross_entropy"
    residuals = Residuals.of(RNG.standard_normal((60, 1)), np.arange(60) % 3)
    given = {"residuals": residuals} if target == "y" else {"temperature": 1.7}
    return Model(members[0], preprocessor, loss, {}, members, **given), table


def test_a_model_keeps_how_sure_it_is(tmp_path):
    whole, table = model()
    whole.save(tmp_path / "m")
    again = Model.load(tmp_path / "m")
    for one, other in zip(
        whole.predict_interval(table, 0.8), again.predict_interval(table, 0.8), strict=True
    ):
        np.testing.assert_array_equal(one, other)
        assert one.shape == (60,)
    low, high = again.predict_interval(table)
    predicted = again.predict(table)
    assert ((low < predicted) & (predicted < high)).all()
    classes, table = model("kind")
    classes.save(tmp_path / "c")
    again = Model.load(tmp_path / "c")
    assert again.temperature == 1.7
    x = classes.preprocessor.transform(table).features
    each = [softmax(m.predict(x).astype("f8") / 1.7, axis=1) for m in classes.networks]
    np.testing.assert_allclose(again.predict_proba(table), np.mean(each, axis=0), atol=1e-6)
    np.testing.assert_allclose(again.spread(x), np.std(each, axis=0, ddof=1), atol=1e-6)
    np.testing.assert_allclose(spread(each), np.std(each, axis=0, ddof=1))
    with pytest.raises(UsageError, match="interval: needs a model of numbers"):
        classes.predict_interval(table)
    single = Model(classes.mlp, classes.preprocessor, classes.loss)
    with pytest.raises(UsageError, match="spread: a model of several networks"):
        single.spread(x)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"residuals": [20, 20]}, "a count for each member"),
        ({"residuals": [20, 20, -1]}, "a count for each member"),
        ({"residuals": 60}, "a count for each member"),
        ({"residuals": [20, 20, 10**9]}, r"must be numbers of shape \(1000000040, 1\)"),
        ({"temperature": 0.0}, "temperature: must be from 0.2 to 5"),
        ({"temperature": "hot"}, "temperature: must be from"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(changed, message, tmp_path):
    whole, _ = model()
    whole.save(tmp_path / "m")
    arrays, header = read_tensors(tmp_path / "m")
    write_tensors(tmp_path / "m", arrays, {**header, **changed})
    with pytest.raises(CheckpointError, match=message):
        Model.load(tmp_path / "m")


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_residuals_are_numbers_from_0(value, tmp_path):
    whole, _ = model()
    whole.save(tmp_path / "m")
    arrays, header = read_tensors(tmp_path / "m")
    arrays["residuals"][3] = value
    write_tensors(tmp_path / "m", arrays, header)
    with pytest.raises(CheckpointError, match="must be finite, and 0 or more"):
        Model.load(tmp_path / "m")
    del arrays["residuals"]
    write_tensors(tmp_path / "m", arrays, header)
    with pytest.raises(CheckpointError, match="residuals: must be numbers of shape"):
        Model.load(tmp_path / "m")
