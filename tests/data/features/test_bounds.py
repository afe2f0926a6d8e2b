"""Columns that bound the target and follow it: honest predictors, and sums with their summands."""

import numpy as np
import pytest

from mlpengine.data.features.leaks import ANSWER, TOTAL_FROM, find_leaks, share_of_line
from mlpengine.data.tables.frames import as_table
from mlpengine.diagnostics.leak_verdict import leak_verdict
from mlpengine.diagnostics.verdict import percent

N = 1500
G = np.random.default_rng(7)


def gamma(mean: float, shape: float = 4.0) -> np.ndarray:
    return G.gamma(shape, mean / shape, N)


def sometimes(share: float, values: np.ndarray) -> np.ndarray:
    return np.where(G.random(N) < share, values, 0.0)


READINGS = gamma(15)[:, None] * G.lognormal(0, 0.22, (N, 10))
LOW, INNER, ROUTE, INCOME = 45 + 18 * G.normal(size=N), gamma(20), gamma(900), gamma(40_000)
BRANCH, PLANNED, HIP = (
    np.round(gamma(25, 2.0)),
    np.round(gamma(120, 2.0)),
    100 + 12 * G.normal(size=N),
)

HONEST = {
    "mean and largest reading": (READINGS.mean(axis=1), READINGS.max(axis=1), {}),
    "mean among other measures": (
        READINGS.mean(axis=1),
        READINGS.max(axis=1),
        {"smallest": READINGS.min(axis=1), "deviation": READINGS.std(axis=1)},
    ),
    "mean and twice a deviation more": (
        INNER,
        INNER + 2 * (DEVIATION := gamma(2, 2.0)),
        {"deviation": DEVIATION},
    ),
    "low and high of a day": (LOW.round(), (LOW + 6 + gamma(10)).round(), {"rain": gamma(3)}),
    "high and low of a day": ((LOW + 6 + gamma(10)).round() + 40, LOW.round() + 40, {}),
    "inner and outer diameter": (INNER.round(1), (INNER + G.uniform(2, 12, N)).round(1), {}),
    "route and way": (ROUTE.round(), (ROUTE * (1.02 + gamma(0.15, 1.5))).round(), {}),
    "income and spending": (INCOME.round(), (INCOME * G.beta(12, 3, N)).round(), {}),
    "lowest branch and height": (BRANCH, BRANCH + np.round(gamma(6, 2.0)), {"age": gamma(50)}),
    "time planned and taken": (PLANNED, PLANNED + np.floor(gamma(20, 1.0)), {}),
    "hip and waist": (HIP.round(), (HIP - 2 - gamma(7, 4.0)).round(), {"weight": gamma(80)}),
}
"""By case: an honest column, the target, and other columns; sizes of living and made things."""

FARE, NET, EXPORT = gamma(15, 2.0).round(2), gamma(50, 1.0).round(2), gamma(30, 1.0)
TIP, TOLLS = (FARE * G.uniform(0.1, 0.3, N)).round(2), sometimes(0.1, np.full(N, 6.5))
DAYS = G.poisson(300, N + 1).cumsum() * 1.0
SURVIVED = G.integers(0, 2, N)
VAT = G.choice([1.07, 1.19], N, p=[0.3, 0.7])

LEAKING = {
    "total with tips of some": (FARE + sometimes(0.6, TIP + 2) + TOLLS, FARE, {}),
    "fare of which the total is wanted": (FARE, FARE + sometimes(0.6, TIP + 2) + TOLLS, {}),
    "total with tip, tolls and a levy": (
        FARE + TIP + TOLLS + G.uniform(0, 1, N).round(2),
        FARE,
        {"tip": TIP, "tolls": TOLLS},
    ),
    "total with tip and fees of some": (
        FARE + TIP + 3 + sometimes(0.5, G.uniform(1, 5, N).round(2)),
        FARE,
        {"tip": TIP, "noise": G.normal(size=N)},
    ),
    "turnover from its larger part": (
        EXPORT,
        EXPORT + (home := gamma(10)) + gamma(0.5),
        {"home": home},
    ),
    "sum paid of an invoice": (NET * np.where(G.random(N) < 0.3, G.uniform(0.5, 1, N), 1), NET, {}),
    "gross weight": (NET + G.choice([0.5, 12.0, 30.0], N), NET, {}),
    "price with a tax": ((NET * VAT).round(2), NET, {}),
    "next day's count so far": (DAYS[1:], DAYS[:-1], {}),
    "pay of a month, rounded": ((INCOME / 12).round(-1), INCOME, {}),
    "alive and survived": (np.where(SURVIVED, "yes", "no"), SURVIVED, {}),
}
"""By case: a column that tells the target, the target, and other columns."""


def leaks_of(column, target, others):
    columns = {"column": column, "weekday": G.integers(0, 7, N), **others}
    task = "classification" if target is SURVIVED else "regression"
    return find_leaks(as_table(columns), [*columns], target, task)


@pytest.mark.parametrize("case", HONEST)
def test_a_bound_that_follows_the_target_is_no_leak(case):
    column, target, _ = HONEST[case]
    assert TOTAL_FROM < share_of_line(column, target) < ANSWER
    assert (column <= target).all() or (column >= target).all()
    assert leaks_of(*HONEST[case]) == []


@pytest.mark.parametrize("case", LEAKING)
def test_sums_with_the_target_and_other_spellings_of_it_are_leaks(case):
    (leak,) = leaks_of(*LEAKING[case])
    verdict = leak_verdict(leak, "leave it out", [leak.column])
    assert leak.column == "column"
    assert verdict.value >= verdict.threshold
    assert f"(should be below {percent(verdict.threshold)})" in verdict.finding
