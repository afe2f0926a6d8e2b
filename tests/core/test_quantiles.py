"""Quantiles are those of NumPy; evenly spaced rows are distinct and contain both ends."""

import numpy as np
import pytest

from mlpengine.core.quantiles import evenly_spaced, median, quantiles

SHARES = (0.0, 0.05, 1 / 3, 0.5, 0.9, 1.0)


@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (1000,), (2, 3), (501, 4)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_quantiles_are_those_of_numpy(shape, dtype):
    values = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    kept = values.copy()
    expected = np.quantile(values.astype("f8"), SHARES, axis=0)
    rounding = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(quantiles(values, SHARES), expected, rounding, rounding)
    np.testing.assert_array_equal(values, kept)


def test_quantiles_of_repeated_values_do_not_round():
    values = np.full(11, 0.1)
    assert quantiles(values, np.linspace(0, 1, 7)).tolist() == [0.1] * 7


@pytest.mark.parametrize("values", [[3.0], [1.0, 2.0], [5.0, 1.0, 2.0], [4.0, np.nan, 1.0, 2.0]])
def test_the_median_is_that_of_the_numbers(values):
    assert median(np.array(values)) == np.nanmedian(values)


@pytest.mark.parametrize("values", [[], [np.nan, np.nan]])
def test_without_numbers_there_is_no_median(values):
    assert np.isnan(median(np.array(values)))


@pytest.mark.parametrize("rows", [1, 2, 3, 10, 299, 1_000_003])
@pytest.mark.parametrize("count", [1, 2, 7, 300, 10_000, 2_000_000])
def test_rows_are_distinct_and_evenly_spaced(rows, count):
    chosen = evenly_spaced(rows, count)
    assert len(chosen) == min(rows, count)
    assert chosen[0] == 0
    assert chosen[-1] == (rows - 1 if len(chosen) > 1 else 0)
    steps = np.diff(chosen)
    assert steps.size == 0 or 1 <= steps.min() <= steps.max() <= steps.min() + 1


def test_no_rows_have_none():
    assert evenly_spaced(0, 5).tolist() == []
