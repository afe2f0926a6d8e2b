"""Axes, thinned curves and numbers of a report."""

import math

import numpy as np
import pytest

from mlpengine.report.draw import Chart, axis, thinned
from mlpengine.report.markup import number, shortened, tag, with_error


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 37.0, 1e6, 1e15])
@pytest.mark.parametrize("log", [False, True, None])
def test_axes_hold_their_values_and_a_few_ticks(scale, log):
    for values in ([1.0, 2.0], [0.3, 90.0], [1.0, 1e9], [5.0]):
        one = axis(np.array(values) * scale, log=log)
        shares = one.share(np.array(values) * scale)
        assert (shares >= 0).all()
        assert (shares <= 1).all()
        assert 2 <= len(one.ticks) <= 10
        places = [value for value, _ in one.ticks]
        assert places == sorted(places)
        assert one.low <= places[0] <= places[-1] <= one.high
        assert len({text for _, text in one.ticks}) == len(one.ticks)


@pytest.mark.parametrize("values", [[], [math.nan], [0.0], [-1.0, 1.0], [math.inf, 1.0]])
def test_axes_of_odd_values_exist(values):
    for log in (False, True, None):
        one = axis(values, log=log)
        assert np.isfinite(one.share([0.0, 1.0])).all()


def test_thinned_curves_keep_ends_and_extremes():
    y = np.random.default_rng(0).standard_normal(100_000)
    y[777], y[50_001], y[3] = 9.0, -9.0, math.nan
    kept = thinned(np.arange(len(y)), y)
    assert len(kept) <= 302
    assert {0, 777, 50_001, len(y) - 1} <= set(kept.tolist())
    assert 3 not in kept


def test_a_chart_describes_its_curve():
    chart = Chart("Loss", axis([1, 3]), axis([0.5, 4]))
    chart.line(np.array([1, 2, 3]), np.array([4, 0.5, 1]), 1, "training")
    assert 'aria-label="Loss. training: from 4 to 1, lowest 0.500, highest 4"' in chart.figure()


NUMBERS = [
    (None, "–"),  # noqa: RUF001
    (float("nan"), "–"),  # noqa: RUF001
    (0, "0"),
    (-0.5, "−0.5000"),  # noqa: RUF001
    (1234567, "1,234,567"),
    (0.123456, "0.1235"),
    (1234.5678, "1,235"),
    (3.2e-9, "3.2·10⁻⁹"),
    (2.5e20, "2.5·10²⁰"),
    (float("inf"), "∞"),
]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_errors_have_two_digits():
    assert with_error(0.97312, 0.0101) == "0.973 ± 0.010"
    assert with_error(1534.7, 23.4) == "1,535 ± 23"
    assert with_error(0.5, None) == "0.5000"
    assert with_error(0.5, 0.0) == "0.5000"


def test_text_is_escaped_and_short():
    assert tag("p", "<b>\x1b", title='"') == '<p title="&quot;">&lt;b&gt;\\x1b</p>'
    assert tag("p", tag("b", "x"), [" ", 3]) == "<p><b>x</b> 3</p>"
    assert shortened("a  b\n" + "c" * 90) == "a b " + "c" * 35 + "…"
