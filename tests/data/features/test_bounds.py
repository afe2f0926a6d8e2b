"""Columns that bound the target and follow it are honest predictors."""

import numpy as np
import pytest

from mlpengine.data.features.leaks import find_leaks
from mlpengine.data.features.thresholds import ANSWER
from mlpengine.data.tables.frames import as_table

N = 1500
G = np.random.default_rng(7)


def gamma(mean: float, shape: float = 4.0) -> np.ndarray:
    return G.gamma(shape, mean / shape, N)


READINGS = gamma(15)[:, None] * G.lognormal(0, 0.22, (N, 10))
LOW, INNER = 45 + 18 * G.normal(size=N), gamma(20)
HONEST = {
    "mean and largest reading": (READINGS.mean(axis=1), READINGS.max(axis=1), {}),
    "mean and twice a deviation more": (
        INNER,
        INNER + 2 * (DEVIATION := gamma(2, 2.0)),
        {"deviation": DEVIATION},
    ),
    "low and high of a day": (LOW.round(), (LOW + 6 + gamma(10)).round(), {"rain": gamma(3)}),
    "inner and outer diameter": (INNER.round(1), (INNER + G.uniform(2, 12, N)).round(1), {}),
}
"""By case: an honest column, the target, and other columns; sizes of living and made things."""


def leaks_of(column, target, others):
    columns = {"column": column, "weekday": G.integers(0, 7, N), **others}
    return find_leaks(as_table(columns), [*columns], target, "regression")


@pytest.mark.parametrize("case", HONEST)
def test_a_bound_that_follows_the_target_is_no_leak(case):
    column, target, _ = HONEST[case]
    assert 0.9 < np.corrcoef(column, target)[0, 1] ** 2 < ANSWER
    assert (column <= target).all() or (column >= target).all()
    assert leaks_of(*HONEST[case]) == []
