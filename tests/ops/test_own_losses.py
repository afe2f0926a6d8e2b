"""A loss is one class: its link, best outputs and predictions follow from its formula."""

from dataclasses import dataclass

import numpy as np
import pytest

import mlpengine
from mlpengine import Adam, Mlp, TrainingStep
from mlpengine.config.baselines import linear_comparison
from mlpengine.core.errors import FormulaError, IndexRangeError, UsageError
from mlpengine.core.fields import Positive
from mlpengine.data.features import NumberTarget
from mlpengine.diagnostics.constant_loss import baseline_loss
from mlpengine.formula import exp, maximum, softplus
from mlpengine.models.task import Regression, Scored, Split
from mlpengine.ops import (
    LOSSES,
    REGISTRY,
    BinaryCrossEntropyWithLogits,
    BinaryFocal,
    EntryLoss,
    FormulaLoss,
    Gamma,
    GaussianNll,
    Huber,
    LogCosh,
    MeanAbsoluteError,
    MeanOutput,
    MeanSquaredError,
    NegativeBinomial,
    Poisson,
    Quantile,
    SoftmaxCrossEntropy,
    Tweedie,
)
from mlpengine.ops.entry_loss import Prediction, _derived
from mlpengine.ops.loss_formulas import turning_point


class Counts(EntryLoss, name="own_counts"):
    """A Poisson likelihood by another name."""

    def formula(self, y, t):
        return exp(y) - t * y


class Normal2(EntryLoss, name="own_normal"):
    """A normal likelihood of two output columns, without a word on what they are."""

    def formula(self, mean, s, t):
        return s * 0.5 + (mean - t) * (mean - t) * exp(-s) * 0.5


class Pair(EntryLoss, name="own_pair"):
    """Two quantiles."""

    def formula(self, low, high, t):
        below = maximum((t - low) * 0.1, (t - low) * -0.9)
        return below + maximum((t - high) * 0.8, (t - high) * -0.2)


class Rate(EntryLoss, name="own_rate"):
    """Exponential waiting times of the logarithm of a rate; the prediction is the output."""

    target_range = (0.0, np.inf)

    def formula(self, y, t):
        return exp(y) * t - y


class Wait(Rate, name="own_wait"):
    """The same, with the mean waiting time as prediction."""

    @property
    def predictions(self):
        return [Prediction("", exp(-self.formulas.outputs[0]))]


@dataclass(frozen=True)
class Skewed(EntryLoss, name="own_skewed"):
    """A distance with a factor of too high outputs, and one of the training alone."""

    training_options = ("scale",)

    factor: Positive = 3.0
    scale: Positive = 1.0

    def formula(self, y, t):
        return (maximum(t - y, 0) ** 2 + maximum(y - t, 0) ** 2 * self.factor) * self.scale


class LogGamma2(EntryLoss, name="own_gamma"):
    """A mean by its logarithm, and a column of its own."""

    def formula(self, y, b, t):
        return softplus(b) + y + t * exp(-y)


for made in (Counts, Normal2, Pair, Rate, Wait, Skewed, LogGamma2):  # other tests count them
    del REGISTRY[made.name]
    LOSSES.pop(made.name, None)


RNG = np.random.default_rng(0)
TARGET = RNG.poisson(3.0, (101, 2)) + 1.0
WEIGHTS = RNG.uniform(0, 2, 101)
MEAN = np.average(TARGET, 0, WEIGHTS)
VARIANCE = np.average((TARGET - MEAN) ** 2, 0, WEIGHTS)


def test_the_best_constants_are_those_of_the_books():
    logs = Counts(), Poisson(), Gamma(), Tweedie(1.8), NegativeBinomial(0.3)
    normal = np.stack([MEAN, np.log(VARIANCE)], 1).ravel()
    expected = dict.fromkeys(logs, np.log(MEAN)) | {Normal2(): normal, GaussianNll(): normal}
    expected |= {MeanSquaredError(): MEAN, MeanOutput(): np.zeros(2)}  # the last has none
    for loss, constant in expected.items():
        best = loss.best_constant(TARGET, constant.size, WEIGHTS)
        np.testing.assert_allclose(best, constant, rtol=1e-12, atol=1e-14, err_msg=loss.name)
    levels = (0.25, 0.5, 0.6)  # of four targets, each of the first two is an interval
    of_four = np.quantile(TARGET[:4], levels, 0, method="averaged_inverted_cdf").T.ravel()
    assert Quantile(levels).best_constant(TARGET[:4], 6) == pytest.approx(of_four, abs=1e-12)
    squares = FormulaLoss("(y * y - t) ** 2")  # its slope is 0 also at the maximum 0
    assert abs(squares.best_constant(np.array([[8.0]]), 1)) == pytest.approx(np.sqrt([8.0]))
    assert turning_point(lambda y: np.where(y > -0.5, y * y, -1), (1,)) == pytest.approx(-0.5)
    far = np.exp2([39.9, 40.1])  # the search ends at 2**40
    assert turning_point(lambda y: y - far, (2,)) == pytest.approx([far[0], 0])
    assert turning_point(lambda y: y + far, (2,)) == pytest.approx([-far[0], 0])


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    "loss",
    [
        *(Counts(), Huber(0.7), LogCosh(), LogGamma2(), MeanAbsoluteError(), Normal2(), Pair()),
        *(Quantile((0.1, 0.5, 0.9)), Skewed(), FormulaLoss("abs(y - t) ** 1.5"), BinaryFocal()),
        BinaryCrossEntropyWithLogits(2.5),
        SoftmaxCrossEntropy(label_smoothing=0.1, class_weights=(1.0, 2.0, 5.0)),
    ],
    ids=lambda loss: loss.name,
)
def test_no_constant_nearby_is_better(loss, weights):
    target, outputs = TARGET, 2 * getattr(loss, "columns", 1)
    if loss.name == "softmax_cross_entropy":
        target, outputs = RNG.choice(3, 101, p=[0.6, 0.3, 0.1]), 3
    elif "classification" in loss.tasks and loss.name != "formula":
        target = (TARGET > 3) * 1.0
    best = baseline_loss(loss, target, outputs, weights)

    def value(constant):
        return loss(np.tile(constant, (len(target), 1)), target, sample_weight=weights)

    constant = loss.best_constant(target, outputs, weights)
    assert best == pytest.approx(value(constant), rel=1e-12)
    for size in (1e-3, 0.03, 1.0):
        for move in size * np.random.default_rng(1).standard_normal((20, outputs)):
            assert best <= value(constant + move) + 1e-12


def test_links_and_columns_that_move_with_the_target():
    squares = FormulaLoss("(exp(y) - t) ** 2")
    logs = {Counts(), Poisson(), Gamma(), Tweedie(1.3), NegativeBinomial(0.4), LogGamma2(), squares}
    plain = {MeanSquaredError(), Huber(), Quantile((0.5,)), Skewed(), GaussianNll(), BinaryFocal()}
    assert [loss.name for loss in logs | plain if loss.log_link != (loss in logs)] == []
    scaling = {Poisson(): 1, Gamma(): 0, Tweedie(1.3): 0.7, squares: 2}
    assert {loss: loss.scaling for loss in scaling} == pytest.approx(scaling)
    assert NegativeBinomial(0.4).scaling is None
    columns = {Normal2(): (0,), Pair(): (0, 1), Quantile((0.1, 0.5, 0.9)): (0, 1, 2), Counts(): ()}
    columns |= {MeanSquaredError(): (0,), FormulaLoss("(log(y) - log(t)) ** 2"): ()}
    columns[FormulaLoss("abs(y - 2 * t)")] = ()
    assert {loss: loss.formulas.locations for loss in columns} == columns
    middles = {MeanSquaredError(), Huber(), Quantile((0.1, 0.5, 0.9)), GaussianNll(), squares}
    others = {Quantile((0.8,)), FormulaLoss("where(t > y, 5 * (t - y), y - t)")}
    assert {loss for loss in middles | others if loss.is_central} == middles


@pytest.mark.parametrize("loss", [Poisson(), Gamma(), Tweedie(1.3)])
def test_weighted_rates_learn_as_counts_with_an_offset(loss):
    """Which is how `data.exposure` works: gradients are those of the output plus log(exposure)."""
    output, exposure, slopes = RNG.normal(size=(101, 1)), WEIGHTS[:, None] + 0.1, np.empty((101, 1))
    with_offset, target = output + np.log(exposure), TARGET[:, :1]
    of_rates = np.empty_like(slopes)
    loss(with_offset, target, slopes)
    loss(output, target / exposure, of_rates, exposure[:, 0] ** loss.scaling)
    np.testing.assert_allclose(of_rates, slopes, rtol=1e-12)


def test_predictions_are_in_the_units_of_the_target():
    shifted = NumberTarget(["a", "b"], [10.0, 20.0], [2.0, 4.0])
    output = np.array([[0.5, -1.0, 1.0, 3.0]])
    np.testing.assert_array_equal(Regression(shifted, Normal2()).predict(output), [[11.0, 24.0]])
    assert Regression(shifted, Normal2()).column_names == ["a", "b"]
    both = Regression(shifted, Pair())
    assert both.column_names == ["a", "a_1", "b", "b_1"]
    np.testing.assert_array_equal(both.predicted_numbers(output), [[11.0, 8.0, 24.0, 32.0]])
    scaled = NumberTarget(["a", "b"], [0.0, 0.0], [2.0, 4.0])
    task = Regression(scaled, Counts())
    assert task.log_link
    np.testing.assert_allclose(task.predict(output[:, :2]), [[2 * np.exp(0.5), 4 * np.exp(-1)]])


def test_metrics_follow_from_what_a_loss_predicts():
    target = NumberTarget(["a"], [0.0], [1.0])

    class Sure(Normal2):
        @property
        def predictions(self):
            mean, s = self.formulas.outputs
            return [Prediction("", mean), Prediction("_std", exp(s * 0.5), location=False)]

    class Levels(Pair):
        @property
        def predictions(self):
            levels = zip(self.formulas.outputs, (0.1, 0.8), strict=True)
            return [Prediction(f"_{level}", y, level=level) for y, level in levels]

    def own(loss):
        return [*Regression(target, loss)._loss_metrics()]

    assert own(Sure()) == own(GaussianNll()) == ["nll"]
    levels = ["pinball", "crps", "calibration_error"]
    assert own(Levels()) == own(Quantile((0.1, 0.8))) == levels
    assert own(Poisson()) == own(Tweedie()) == ["deviance", "deviance_explained"]
    assert own(Normal2()) == own(Counts()) == own(MeanSquaredError()) == []
    output, truth = np.array([[0.0, 1.0]]), np.array([[3.0]])
    part = Split(np.zeros((1, 1)), truth, truth)
    pinball = (3 * 0.1 + 2 * 0.8) / 2
    assert Regression(target, Levels()).metric("pinball", output, part) == pytest.approx(pinball)
    alone = Regression(target, Levels())._parsed_metric("pinball_0.8")
    assert alone(Scored(Regression(target, Levels()), output, part)) == pytest.approx(2 * 0.8)


@pytest.mark.parametrize(("own", "ours"), [(Counts, Poisson), (Normal2, GaussianNll)])
def test_a_loss_by_another_name_is_trained_and_measured_alike(own, ours, monkeypatch):
    """Baselines were known for our losses alone: two columns ended `fit` in a ShapeError."""
    monkeypatch.setitem(REGISTRY, own.name, own)
    monkeypatch.setitem(LOSSES, own.name, own)
    x = RNG.normal(size=(60, 2))
    table = {"a": x[:, 0], "b": x[:, 1], "y": RNG.poisson(np.exp(0.4 * x[:, 0] + 1)).astype(float)}
    small = {"training": {"epochs": 2, "folds": None}, "data": {"task": "regression"}}
    (model, result), (_, expected) = (
        mlpengine.fit(table, "y", loss=loss.name, **small) for loss in (own, ours)
    )
    assert result.metrics["test"]["loss"] == pytest.approx(expected.metrics["test"]["loss"])
    assert result.verdicts == expected.verdicts
    assert np.isfinite(model.predict(table)).all()


@pytest.mark.parametrize("loss", [Rate, Wait])
def test_targets_in_a_range_are_not_standardized(loss, monkeypatch):
    monkeypatch.setitem(REGISTRY, loss.name, loss)
    monkeypatch.setitem(LOSSES, loss.name, loss)
    x = RNG.normal(size=(300, 2))
    y = RNG.exponential(1, 300) * np.exp(1 + x[:, 0])
    few = {"training": {"epochs": 40, "folds": None}}
    _, result = mlpengine.fit({"a": x[:, 0], "b": x[:, 1], "y": y}, "y", loss=loss.name, **few)
    assert (result.metrics["test"]["r2"] > 0) == (loss is Wait)
    assert ("predictions" in " ".join(result.remarks)) == (loss is Rate)
    score = linear_comparison(result.trained.data, result.trained.fitted.mean)
    assert (score is None) == (loss is Rate)  # is not lowest at the mean or median
    assert loss().best_prediction(8.0) == pytest.approx(8.0 if loss is Wait else -np.log(8))


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_a_target_above_the_range_is_refused(backend, monkeypatch):
    monkeypatch.setattr(Rate, "target_range", (-np.inf, 3.0))
    mlp = Mlp([2, 1])
    step = TrainingStep(mlp, Rate(), Adam(mlp), 2, backend=backend)
    with pytest.raises(IndexRangeError, match=r"3 or less \(row 1 has 4\)"):
        step(np.ones((2, 2)), np.array([[-9.0], [4.0]]))
    for ends in ("ab", (3, 1), (0.0, np.nan), None):
        with pytest.raises(UsageError, match="Odd: target_range"):
            type("Odd", (EntryLoss,), {"target_range": ends})


ODD_FORMULAS = [
    lambda self, y, t: np.exp(y - t),
    *(lambda self, y, t: None, lambda self, y, t: 1.0, lambda self, y, t: "y"),
    *(lambda self, y, t: t * t, lambda self, y, t: y > t, lambda self, y, t: 0 * (y - t) ** 2),
    *(lambda self: 1, lambda self, *both: both[0], lambda self, y, *, t: y - t),
]


@pytest.mark.parametrize("formula", ODD_FORMULAS)
def test_a_loss_that_no_output_changes_is_refused(formula, monkeypatch):
    monkeypatch.setattr(Counts, "formula", formula)
    _derived.cache_clear()
    with pytest.raises(FormulaError, match="own_counts: "):
        Counts().best_constant(np.zeros((2, 1)), 1)


def test_evaluation_leaves_out_the_options_of_the_training():
    loss = Skewed(2.0, scale=10.0)
    assert loss.measured_options == {"factor": 2.0}
    assert loss.plain() == Skewed(2.0)
    assert SoftmaxCrossEntropy((1.0, 2.0), 0.1, -1).plain() == SoftmaxCrossEntropy()
    assert BinaryCrossEntropyWithLogits(2.0).plain() == BinaryCrossEntropyWithLogits()
    assert Quantile((0.1, 0.9)).plain() == Quantile((0.1, 0.9))
