"""Drift: how far the rows of a new table are from the rows of training."""

import numpy as np
from scipy.stats import ks_2samp

from mlpengine.data.features import Preprocessor
from mlpengine.data.features.drift import NewRows, drifts
from mlpengine.data.tables import Column, Table


def test_distances_of_numbers_are_those_of_kolmogorov_and_smirnov():
    g = np.random.default_rng(5)
    old = {"x": g.normal(size=4000), "n": g.poisson(1.5, 4000) * 1.0, "same": np.ones(4000)}
    new = {"x": g.normal(0.7, 1.5, 900), "n": g.poisson(2.5, 900) * 1.0, "same": np.ones(900)}
    fitted = Preprocessor().fit(table_of(old))
    found = {drift.column: drift for drift in drifts(fitted, table_of(new))}
    for name in ("x", "n"):
        truth = ks_2samp(old[name], new[name]).statistic
        assert truth - 2 / 16 < found[name].values <= truth + 1e-9
        assert found[name].is_odd
    assert (found["same"].values, found["same"].is_odd) == (0, False)
    assert not NewRows(fitted).add(table_of(old)).lines()


def table_of(columns):
    return Table({name: Column(values) for name, values in columns.items()})


def test_the_largest_of_many_large_values_is_not_far_outside():
    g = np.random.default_rng(3)
    for draw in (g.standard_normal, g.standard_exponential, lambda n: g.poisson(0.05, n) * 1.0):
        fitted = Preprocessor().fit(table_of({"x": draw(1000)}))
        for _ in range(20):
            assert not NewRows(fitted).add(table_of({"x": draw(1000)})).lines()


def test_many_columns_that_are_unlike_are_one_line_beyond_five():
    rows = np.random.default_rng(5).normal(size=(50, 30))
    fitted = Preprocessor().fit(Table.from_arrays(rows))
    gaps = (np.arange(50)[:, None] >= 25) & (np.arange(30) < 6)
    lines = NewRows(fitted).add(Table.from_arrays(np.where(gaps, np.nan, 99))).lines()
    assert len(lines) == 12
    assert lines[5] == "25 more columns with rows far outside the training range"
    assert lines[11] == "1 more column with more missing values than in training"


def test_as_many_gaps_as_chance_has_are_no_more_than_in_training():
    g = np.random.default_rng(4)
    for share in (0.0, 0.002, 0.3):
        x = np.where(g.random(500) < share, np.nan, g.normal(size=500))
        fitted = Preprocessor().fit(table_of({"x": x}))
        for rows in (20, 500, 5000):
            new = np.where(g.random(rows) < share, np.nan, 0.0)
            assert not NewRows(fitted).add(table_of({"x": new})).lines()
    (line,) = NewRows(fitted).add(table_of({"x": np.full(20, np.nan)})).lines()
    assert line.startswith("column 'x': 20 of 20 values missing, more than in training (")
