"""Axes, thinned curves and numbers of a report."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from mlpengine.diagnostics.curves import gradients_of
from mlpengine.diagnostics.samples import Columns, Series
from mlpengine.drawing import charts
from mlpengine.drawing.chart_types import (
    Bars,
    Chart,
    Diagonal,
    HorizontalLine,
    Line,
    Mark,
    Points,
    Spans,
    axis,
    name_axis,
    thinned,
)
from mlpengine.drawing.markup import number
from mlpengine.drawing.svg import BOTTOM, LEFT, RIGHT, TOP, figure
from mlpengine.report.collect import plain_data
from mlpengine.report.predictions import of_numbers


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


@pytest.mark.parametrize(
    "values",
    [
        *([], [math.nan], [0.0], [-1.0, 1.0], [math.inf, 1.0]),
        *([0.0, 5e-324], [5e-324], [5e-324, 1e100], [-1e100, 3e-320]),
    ],
)
def test_axes_of_odd_values_exist(values):
    for log in (False, True, None):
        one = axis(values, log=log)
        assert np.isfinite(one.share([0.0, 1.0])).all()


def test_thinned_curves_keep_ends_and_extremes():
    y = np.random.default_rng(0).standard_normal(100_000)
    y[777], y[50_001], y[3] = 9.0, -9.0, math.nan
    kept = thinned(y)
    assert len(kept) <= 302
    assert {0, 777, 50_001, len(y) - 1} <= set(kept.tolist())
    assert 3 not in kept


X = np.array([1.0, 2.0, 5.0, 9.0])
Y = np.array([0.5, 3.0, 40.0, 7.0])
SHAPES = [
    (Line(X, Y, 2, "a <b> & $c_1$"), "line"),
    (Points(X, Y, 3, "trial"), "cloud"),
    (Bars(np.append(0.5, X + 1), Y), "bar"),
    (Spans(X, Y / 2, Y * 2), "span"),
    (HorizontalLine(2.5, "guide"), "rule"),
    (Mark(3.0, "best: 3"), "rule"),
    (Diagonal(), "rule"),
]
"""Each shape, and its class on a page."""

AXES = {
    "linear": (axis([0, 10]), axis([0, 80])),
    "powers": (axis([0.5, 10], log=True), axis([0.2, 80], log=True)),
    "names": (axis([0, 10]), name_axis(["one", "two"])),
}


def parsed(chart):
    return ElementTree.fromstring(figure(chart))


def texts(root, path):
    return ["".join(one.itertext()) for one in root.iterfind(path)]


@pytest.mark.parametrize("kind", AXES)
def test_every_shape_is_drawn(kind):
    shapes, looks = zip(*SHAPES, strict=True)
    page = parsed(Chart("All of it", *AXES[kind], shapes, below="epoch", note="A note."))
    assert page.find("figcaption").text == "All of it"
    rules = [*["guide 2.5"] * (kind != "names"), "best: 3"]
    assert texts(page, "ul/li") == ["a <b> & $c_1$", "trial", *rules]
    assert texts(page, "svg/g/text")[-1] == "epoch"
    classes = [one.get("class").split(" ")[0] for one in page.iterfind("svg/*")]
    assert [look for look in looks if look not in classes] == []


@pytest.mark.parametrize("kind", ["linear", "powers"])
@pytest.mark.parametrize("shape", [Line(X, Y), Points(X, Y)], ids=["line", "points"])
def test_values_are_in_their_places(shape, kind):
    x_axis, y_axis = AXES[kind]
    moves = parsed(Chart("Loss", x_axis, y_axis, [shape])).find("svg/path").get("d")
    x, y = np.array(re.findall(r"[ML]([\d.]+) ([\d.]+)", moves), float).T

    def shares(values, one):
        low, high, values = one.low, one.high, np.asarray(values)
        if one.log:
            low, high, values = np.log([low, high, 1])[0], np.log(high), np.log(values)
        return (values - low) / (high - low)

    np.testing.assert_allclose((x - LEFT) / (RIGHT - LEFT), shares(X, x_axis), atol=0.001)
    np.testing.assert_allclose((BOTTOM - y) / (BOTTOM - TOP), shares(Y, y_axis), atol=0.001)


def test_texts_do_not_overlap_and_zero_stays():
    wide = axis([0.36045, 0.36046])
    for across in (wide, axis([-0.1234e-6, 0.0]), axis([-0.1, 0.01])):
        drawn = parsed(Chart("", across, wide, [])).findall("svg/g/text[@text-anchor='middle']")
        pairs = pairwise([(float(one.get("x")), 3.5 * len(one.text)) for one in drawn])
        assert all(x + a < y - b for (x, a), (y, b) in pairs)
        assert "0" in [one.text for one in drawn] or across is wide


def test_shares_end_at_one_and_zeros_are_drawn():
    assert charts.by_epoch("", [("accuracy", {"epoch": [1, 2], "value": [1, 1]})])[0].y.high == 1
    ratios = {"layer_steps": [0, 1], "by_layer": {"update_ratio": {"a": [0, 0]}}, "guide": 1e-3}
    assert parsed(charts._updates(ratios)).find("svg/path[@class='line c1']") is not None
    whole = {"column": "a", "values": [1.0, 2.0, 4.0], "predictions": [[0.1, 0.3, 0.2]]}
    assert [text for _, text in charts.dependence_charts([whole], ["y"])[0].x.ticks] == [*"124"]


NUMBERS = [
    (None, "–"),  # noqa: RUF001
    (1234.5678, "1,235"),
    (3.2e-9, "3.2·10⁻⁹"),
    (float("inf"), "∞"),
]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_numbers_are_short(value, text):
    assert number(value) == text


@pytest.mark.parametrize("value", [1e300, 1e30, 5e-324, np.inf, np.nan, 0.0])
@pytest.mark.parametrize("rows", [1, 3, 500])
def test_a_diverged_run_has_charts(value, rows):
    """A histogram of 1e30 has no bins that differ."""
    truth = np.random.default_rng(0).standard_normal(rows)
    for predicted in (np.full(rows, value), np.where(np.arange(rows) == 0, value, truth)):
        with np.errstate(all="ignore"):
            data = plain_data({"targets": [of_numbers(truth, predicted, "y")]})
        assert len([*map(parsed, charts.prediction_charts(data))]) == 3
    series = Series(Columns(2))
    for step in range(rows):
        series.append(step, [value] * len(series.columns))
    with np.errstate(all="ignore"):
        data = plain_data(gradients_of(series, 32))
    assert [*map(parsed, charts.gradient_charts(data))]
