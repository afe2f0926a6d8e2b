"""Censored times: their metrics, quantiles and survival against SciPy and sums over pairs."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats as stats

import mlpengine
from mlpengine.data.features import TimeTarget
from mlpengine.models import censored
from mlpengine.models.task import CensoredTimes, Split, task_for
from mlpengine.ops import Survival

RNG = np.random.default_rng(3)
TIMES = np.ceil(RNG.exponential(20, 60)) * RNG.choice([-1, 1], 60, p=[0.4, 0.6])
TIME, SEEN = np.abs(TIMES), TIMES > 0
WEIGHTS = RNG.uniform(0.5, 2, 60)
OUTPUT = RNG.normal(0, 0.5, (60, 2))
OF = {
    "lognormal": lambda y, s: stats.lognorm(s, scale=np.exp(y)),
    "weibull": lambda y, s: stats.weibull_min(1 / s, scale=np.exp(y)),
    "loglogistic": lambda y, s: stats.fisk(1 / s, scale=np.exp(y)),
}


def task_of(distribution):
    return task_for(TimeTarget(["days"], "died", 20.0), Survival(distribution))


def rows_of(weights=None):
    truth = np.stack([TIMES, np.full(60, np.inf)], axis=1)
    return Split(OUTPUT, truth / 20, truth, weights)


@pytest.mark.parametrize("name", OF)
def test_predictions_are_of_the_distribution(name):
    task, of = task_of(name), OF[name](OUTPUT[:, 0] + np.log(20), np.exp(OUTPUT[:, 1]))
    assert type(task) is CensoredTimes
    expected = {"days": of.ppf(0.5), "days_0.1": of.ppf(0.1), "days_0.9": of.ppf(0.9)}
    given = task.columns(OUTPUT)
    assert [*given] == [*expected]
    for column, values in expected.items():
        np.testing.assert_allclose(given[column], values, rtol=1e-9)
    np.testing.assert_allclose(task.quantile(OUTPUT, 0.3)[:, 0], of.ppf(0.3), rtol=1e-9)
    at = np.array([0.5, 20.0, 300.0])
    chances = task.survival(OUTPUT, at)
    np.testing.assert_allclose(chances, np.stack([of.sf(t) for t in at], 1), rtol=1e-6, atol=1e-9)
    nll = -np.average(np.where(SEEN, of.logpdf(TIME), of.logsf(TIME)), weights=WEIGHTS)
    assert task.metric("nll", OUTPUT, rows_of(WEIGHTS)) == pytest.approx(nll, rel=1e-6)


@pytest.mark.parametrize("bounds", [None, TIME + np.ceil(RNG.exponential(9, 60))])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_concordance_counts_pairs(weights, bounds):
    predicted = np.round(OUTPUT[:, 0], 1)
    w = np.ones(60) if weights is None else weights
    last = np.where(SEEN, TIME, np.inf if bounds is None else bounds)[:, None]
    pairs = w[:, None] * w * ((last < TIME) | ((last == TIME) & ~SEEN))
    p = predicted[:, None]
    right = (pairs * ((p < predicted) + (p == predicted) / 2)).sum() / pairs.sum()
    assert censored.concordance(TIMES, predicted, weights, bounds) == pytest.approx(
        right, rel=1e-12
    )
    assert np.isnan(censored.concordance(-TIME, predicted))


def test_kaplan_meier_of_whole_weights_is_that_of_repeated_rows():
    repeats = RNG.integers(1, 4, 60)
    one = censored.kaplan_meier(TIMES, repeats * 1.0)
    other = stats.ecdf(stats.CensoredData.right_censored(np.repeat(TIME, repeats),
                                                         np.repeat(~SEEN, repeats))).sf  # fmt: skip
    np.testing.assert_array_equal(one.times, other.quantiles)
    np.testing.assert_allclose(one.values, other.probabilities, rtol=1e-12)
    assert one.at(np.array([0.0, 1e9])).tolist() == [1.0, one.values[-1]]


def test_brier_weighs_rows_by_the_share_that_is_not_censored():
    at, chances = np.array([5.0, 30.0]), RNG.uniform(size=(60, 2))
    steps = np.unique(TIME)
    gone = [((t == TIME) & ~SEEN).sum() / max(((t < TIME) | ((t == TIME) & ~SEEN)).sum(), 1)
            for t in steps]  # fmt: skip
    left = dict(zip(steps, np.cumprod(1 - np.array(gone)), strict=True))
    expected = []
    for k, t in enumerate(at):
        then = left[steps[steps <= t].max()]
        died = chances[:, k] ** 2 * (SEEN & (t >= TIME))
        own = np.array([left[one] for one in TIME])
        alive = (1 - chances[:, k]) ** 2 * (t < TIME) / then
        expected.append((np.divide(died, own, out=died * 0, where=died > 0) + alive).mean())
    np.testing.assert_allclose(censored.brier(TIMES, chances, at), expected, rtol=1e-12)


def test_calibrated_chances_have_no_error_but_that_of_the_sample():
    rng, at = np.random.default_rng(0), 15.0
    mean, end = rng.uniform(5, 50, 4000), rng.uniform(0, 60, 4000)
    time = rng.exponential(mean)
    times = np.where(time < end, time, -end)
    assert censored.calibration_error(times, np.exp(-at / mean), at) < 0.03
    assert censored.calibration_error(times, np.exp(-at / mean) ** 2, at) > 0.1


def test_metrics_at_a_time_have_it_in_their_name():
    task, rows = task_of("weibull"), rows_of()
    task.watch("brier_30")
    found = task.metrics(OUTPUT, rows, full=True)
    names = {"concordance", "nll", "integrated_brier", "calibration_error", "brier_30"}
    assert found.keys() == names
    at = np.array([30.0])
    expected = censored.brier(TIMES, task.survival(OUTPUT, at), at)[0]
    assert found["brier_30"] == pytest.approx(expected)
    unseen = replace(rows, truth=np.stack([-TIME, np.full(60, np.inf)], axis=1))
    assert np.isnan(task.metrics(OUTPUT, unseen, full=True)["integrated_brier"])


@pytest.mark.parametrize("name", OF)
def test_drawn_times_teach_the_distribution(name):
    loss, output, slopes = Survival(name), np.tile(OUTPUT[:1], (4000, 1)), np.empty((4000, 2))
    predicted = np.stack([*task_of(name).columns(output).values()], axis=1)
    times = loss.drawn(predicted[:, None], np.random.default_rng(0)) / 20
    loss(output, times, slopes)
    assert len(np.unique(times[:, 0].round(9))) == 2
    of_each = [slopes[times[:, 0] == time].mean(axis=0) for time in np.unique(times[:, 0])]
    np.testing.assert_allclose(np.sum(of_each, axis=0), 0, atol=1e-9)


def test_training_begins_near_a_constant():
    rng = np.random.default_rng(0)
    table = dict(zip("abc", rng.lognormal(0, 2, (3, 150)), strict=True))
    table |= {"days": rng.exponential(9, 150) + 0.01, "died": np.ones(150)}
    model, result = mlpengine.fit(
        table, "days", data={"event": "died", "clip": "none"}, optimizer={"lr": 0.0}, seed=0,
        loss={"name": "survival", "distribution": "weibull"},
        training={"epochs": 1, "folds": None, "backend": "numpy"},
    )  # fmt: skip
    assert result.history.rows[0].train_loss < 2
    with pytest.raises(mlpengine.DataError, match=r"target column is missing \(died\)"):
        model.evaluate({name: values for name, values in table.items() if name != "died"})
