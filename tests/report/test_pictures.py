"""Pictures show what pages show, whatever the run and the caller's style."""

import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from mlpengine import Mlp
from mlpengine.config import load_config
from mlpengine.config.build import load_data, trainer_of
from mlpengine.core.errors import UsageError
from mlpengine.diagnostics import Diagnostics
from mlpengine.report import RunData, charts
from mlpengine.report.chart_types import (
    Band,
    Bars,
    Chart,
    Diagonal,
    HeatMap,
    HorizontalLine,
    Line,
    Mark,
    Points,
    Spans,
    axis,
    name_axis,
)
from mlpengine.report.collect import curves_of
from mlpengine.report.svg import BOTTOM, LEFT, RIGHT, TOP, figure

matplotlib = pytest.importorskip("matplotlib", reason="needs the extra plots")
from matplotlib import style  # noqa: E402
from matplotlib.image import imread  # noqa: E402

from mlpengine.report import pictures  # noqa: E402

X = np.array([1.0, 2.0, 5.0, 9.0])
Y = np.array([0.5, 3.0, 40.0, 7.0])
CELLS = np.array([[1, 0, 8, 8], [2, 2, 0, 4]])
SHAPES = [
    (Line(X, Y, 2, "a <b> & $c_1$"), "line"),
    (Points(X, Y, 3, "trial"), "cloud"),
    (Bars(np.append(0.5, X + 1), Y), "bar"),
    (Spans(X, Y / 2, Y * 2), "span"),
    (HeatMap(np.append(0.5, X), CELLS, [(8, "all")]), "h8"),
    (HorizontalLine(2.5, "guide"), "rule"),
    (Mark(3.0, "best: 3"), "rule"),
    (Band(1.0, 10.0, "usual"), "band"),
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


def drawn(*given):
    """Return the axes of charts as matplotlib draws them."""
    with style.context(pictures.theme(dark=False), after_reset=True):
        result = pictures.draw(given)
        result.draw_without_rendering()
    return result.axes


@pytest.mark.parametrize("kind", AXES)
def test_a_page_and_a_picture_show_the_same(kind):
    shapes, looks = zip(*SHAPES, strict=True)
    chart = Chart("All of it", *AXES[kind], shapes, below="epoch", note="A note.")
    page, (panel,) = parsed(chart), drawn(chart)
    assert panel.get_title(loc="left") == chart.title == page.find("figcaption").text
    assert panel.get_xlabel() == "epoch\nA note."
    labels = [label.get_text() for label in (*panel.get_yticklabels(), *panel.get_xticklabels())]
    assert [*labels, "epoch"] == texts(page, "svg/g/text")
    legend = [text.get_text() for text in panel.get_legend().get_texts()]
    assert legend == texts(page, "ul/li")
    rules = [*["guide 2.5"] * (kind != "names"), "best: 3"]
    assert legend == ["a <b> & $c_1$", "trial", "all", *rules, "usual"]
    classes = [one.get("class").split(" ")[0] for one in page.iterfind("svg/*")]
    assert [look for look in looks if look not in classes] == []
    assert len(panel.lines) == 5 - (kind == "names")
    assert (len(panel.patches), len(panel.collections)) == (len(X) + 1, 2)


@pytest.mark.parametrize("kind", ["linear", "powers"])
@pytest.mark.parametrize("shape", [Line(X, Y), Points(X, Y)], ids=["line", "points"])
def test_a_page_and_a_picture_put_values_in_the_same_places(shape, kind):
    chart = Chart("Loss", *AXES[kind], [shape])
    moves = parsed(chart).find("svg/path").get("d")
    x, y = np.array(re.findall(r"[ML]([\d.]+) ([\d.]+)", moves), float).T
    (panel,) = drawn(chart)
    (line,) = panel.lines
    places = panel.transAxes.inverted().transform(panel.transData.transform(line.get_xydata()))
    np.testing.assert_allclose(places[:, 0], (x - LEFT) / (RIGHT - LEFT), atol=0.001)
    np.testing.assert_allclose(places[:, 1], (BOTTOM - y) / (BOTTOM - TOP), atol=0.001)


CLASS_METRICS, NUMBER_METRICS = ("loss", "accuracy", "macro_f1"), ("loss", "r2", "mae", "rmse")


def epochs(count=12, metrics=CLASS_METRICS, **changed):
    """Return the data of a run's epochs, the last of which is the best."""
    number = np.arange(1.0, count + 1)
    known = {"epoch": number, "lr": np.full(count, 1e-3), "train_loss": 2 / number**2}
    known["gradient_norm"] = 1 / number
    for name in metrics:
        known[f"validation_{name}"] = np.full(count, changed.get(name, 0.5))
    return {"count": count, "best": count, "curves": curves_of(known)}


TITLES = {
    "classes": (CLASS_METRICS, ["Loss", "Validation scores"]),
    "numbers": (NUMBER_METRICS, ["Loss", "Validation R²", "Validation errors"]),
    "no validation": ((), ["Loss"]),
}


@pytest.mark.parametrize(
    ("name", "count"), [("classes", 1), ("numbers", 12), ("no validation", 300)]
)
def test_training_shows_every_epoch(name, count):
    metrics, titles = TITLES[name]
    panels = drawn(*charts.training_charts(epochs(count, metrics)))
    assert [panel.get_title(loc="left") for panel in panels if panel.get_visible()] == titles
    curve = panels[0].lines[0]
    np.testing.assert_array_equal(curve.get_xdata(), np.arange(1, count + 1))
    np.testing.assert_array_equal(curve.get_ydata(), 2 / np.arange(1.0, count + 1) ** 2)
    assert (curve.get_marker() == "o") == (count <= 30)
    assert panels[0].get_legend().get_texts()[-1].get_text() == f"best: {count}"


@pytest.mark.parametrize(
    "changed",
    [{"loss": np.nan}, {"loss": np.inf}, {"loss": 0.0}, {"r2": -1e12}, {"mae": 1e300}],
    ids=str,
)
def test_odd_numbers_are_drawn(changed):
    assert drawn(*charts.training_charts(epochs(5, NUMBER_METRICS, **changed)))


@pytest.mark.parametrize("classes", [1, 2, 20, 25, 150])
def test_confusion_matrix_counts(classes):
    counts = np.random.default_rng(classes).integers(0, 9, (classes, classes))
    counts[0, 0] = 1
    chart = charts.confusion_chart(counts, [f"class {i}" for i in range(classes)])
    (panel,) = drawn(chart)
    numbers = [text.get_text() for text in panel.texts]
    if classes <= 20:
        assert numbers == [str(n or "") for n in counts[::-1].ravel()]
    else:
        assert not numbers
    assert f"{100 * np.trace(counts) / counts.sum():.3g} % of" in panel.get_xlabel()
    ticks = panel.get_yticklabels()
    assert len(ticks) <= 60
    assert ticks[0].get_text() == panel.get_xticklabels()[0].get_text() == "class 0"
    assert ticks[0].get_position()[1] == classes - 0.5


CONFIGS = {
    "numbers": ("target: [price in $, n]", ["residuals.png"]),
    "classes": ('target: "日本 {x}_^"', ["confusion_matrix.png"]),
    "labels": ("target: [u, v], task: multilabel", []),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_each_task_gets_its_pictures(tmp_path, name):
    rng = np.random.default_rng(0)
    pairs = zip(rng.standard_normal(60), rng.integers(0, 18, 60), strict=True)
    lines = [f"{a:.3f},{2 * a:.3f},{n},{'ab'[n % 2]}$,{n % 2},{n // 9}" for a, n in pairs]
    head = "x,price in $,n,日本 {x}_^,u,v"
    (tmp_path / "rows.csv").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    target, names = CONFIGS[name]
    config = tmp_path / "c.yaml"
    config.write_text(f"data: {{source: rows.csv, {target}}}\n", encoding="utf-8")
    (tmp_path / "metrics.csv").write_text("epoch,lr,gradient_norm,train_loss\n1,0.1,2,3\n")
    data = load_data(load_config(config))
    model = trainer_of(data).model(data.tables.preprocessor)
    run = RunData(tmp_path, {"best_epoch": 1}, data, model)
    paths = pictures.save_pictures(tmp_path / "made" / "plots", run)
    assert [path.name for path in paths] == ["training.png", *names]
    assert sorted((tmp_path / "made" / "plots").iterdir()) == sorted(paths)
    assert all(min(imread(path).shape[:2]) > 500 for path in paths)
    with pytest.raises(UsageError, match="holds no epochs"):
        pictures.save_pictures(tmp_path / "other", RunData(tmp_path / "made", {}, data, model))
    assert not (tmp_path / "other").exists()


STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", STARTS)
def test_the_callers_style_changes_nothing_and_stays(tmp_path, suffix):
    given, first, second = charts.training_charts(epochs()), f"a.{suffix}", f"b.{suffix}"
    pictures.save_charts(given, tmp_path / first)
    with style.context("dark_background"):
        before = dict(matplotlib.rcParams)
        pictures.save_charts(given, tmp_path / second)
        assert dict(matplotlib.rcParams) == before
    content = (tmp_path / first).read_bytes()
    assert content.startswith(STARTS[suffix])
    assert content == (tmp_path / second).read_bytes()


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"a.gif: a picture must be named .png, .svg or .pdf"):
        pictures.save_charts([], tmp_path / "a.gif")


def test_no_window_system_is_touched(tmp_path):
    code = (
        "import logging, sys\n"
        "logging.getLogger('matplotlib').setLevel(logging.ERROR)  # of fonts, as in conftest.py\n"
        "from mlpengine.report.charts import importance_chart\n"
        "from mlpengine.report.pictures import save_charts\n"
        f"save_charts([importance_chart({{'lr': 1.0}}, 'loss')], {str(tmp_path / 'a.png')!r})\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def sampled(samples, layers=3):
    """Return diagnostics with random samples, some quantities unknown."""
    rng = np.random.default_rng(0)
    known = Diagnostics(Mlp([4] * (layers + 1), activation="relu"), baseline=1.0)
    known.batch_size = 8
    for step in range(1, samples + 1):
        known.values[:] = np.exp(rng.standard_normal(len(known.columns))).tolist()
        for layer in range(layers):
            known.values[known.columns.index("dead_share", layer)] = np.nan
        known.sampled = step
        known.series.append(step * 50, known.values)
    known.close_epoch(1.0)
    return known


@pytest.mark.parametrize(("samples", "layers", "dark"), [(1, 1, True), (600, 40, False)])
def test_the_dashboard_is_drawn_in_both_themes(tmp_path, samples, layers, dark):
    path, known = tmp_path / "dashboard.png", sampled(samples, layers)
    pictures.save_dashboard(known, path, dark=dark, title="a $run_of_{x}$")
    picture = imread(path)
    assert picture.shape[1] == 2250
    assert (picture[0, 0, :3].mean() < 0.2) == dark
    assert len(np.unique(picture[::7, ::7, :3].reshape(-1, 3), axis=0)) > 20
    if layers == 1:
        known.series._values[:] = np.nan
        pictures.save_dashboard(known, path)
        assert min(imread(path).shape[:2]) > 500
