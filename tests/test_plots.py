"""Pictures of a run: they hold what they should, whatever the run and the caller's style."""

import re
import subprocess
import sys
from struct import unpack

import numpy as np
import pytest

from mlpengine.data import NumberTarget
from mlpengine.errors import MissingExtraError, UsageError, install_line
from mlpengine.train.history import CsvLog, EpochRow, History
from mlpengine.train.task import BinaryClassification, Classification, MultiLabel, Regression, Split

matplotlib = pytest.importorskip("matplotlib", reason="needs the extra plots")

from mlpengine import plots  # noqa: E402

CLASS_METRICS, NUMBER_METRICS = ("loss", "accuracy", "macro_f1"), ("loss", "r2", "mae", "rmse")


def history(epochs=12, metrics=CLASS_METRICS, **changed):
    found = History(metrics)
    for epoch in range(1, epochs + 1):
        values = dict.fromkeys(metrics, 1 - 1 / (epoch + 1)) | changed
        found.rows.append(
            EpochRow(epoch, 9 * epoch, 1e-3, 1 / epoch, 2 / epoch**2, values, 0.1, 90.0)
        )
    return found


@pytest.fixture
def axes(monkeypatch):
    """Return the axes that are drawn, in order."""
    drawn = []
    whole = plots._save

    def save(draw, path, size):
        def keep(figure):
            draw(figure)
            drawn.extend(figure.axes)

        whole(keep, path, size)

    monkeypatch.setattr(plots, "_save", save)
    return drawn


def size(path):
    """Return width and height of a PNG."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return unpack(">II", data[16:24])


TITLES = {
    "classes": (CLASS_METRICS, ["loss", "validation", "gradient norm", "learning rate"]),
    "numbers": (NUMBER_METRICS, ["loss", "validation R²", "validation error", "learning rate"]),
    "no validation": ((), ["loss", "gradient norm", "steps", "learning rate"]),
}


@pytest.mark.parametrize("epochs", [1, 12, 300])
@pytest.mark.parametrize("name", TITLES)
def test_training_shows_every_column(tmp_path, axes, name, epochs):
    metrics, titles = TITLES[name]
    run = history(epochs, metrics)
    plots.plot_training(run, tmp_path / "training.png", best_epoch=epochs)
    assert size(tmp_path / "training.png") == (1500, 960)
    assert [ax.get_title(loc="left") for ax in axes] == titles
    lines = {line.get_label(): line for ax in axes for line in ax.get_lines()}
    np.testing.assert_array_equal(lines["learning rate"].get_ydata(), 1e-3)
    curve = lines["training"]
    assert curve.get_ydata().tolist() == [row.train_loss for row in run.rows]
    assert curve.get_xdata().tolist() == [row.epoch for row in run.rows]


def test_metrics_csv_gives_the_same_picture(tmp_path):
    run = history(20)
    log = CsvLog(tmp_path / "metrics.csv", run.columns)
    for row in run.rows:
        log.append(row.values())
    log.close()
    plots.plot_training(run, tmp_path / "a.png", best_epoch=3)
    plots.plot_training(tmp_path / "metrics.csv", tmp_path / "b.png", best_epoch=3)
    plots.plot_training(run, tmp_path / "c.png", best_epoch=4)
    a, b, c = ((tmp_path / name).read_bytes() for name in ("a.png", "b.png", "c.png"))
    assert a == b
    assert a != c


@pytest.mark.parametrize(
    "changed",
    [{"loss": float("nan")}, {"loss": float("inf")}, {"loss": 0.0}, {"r2": -1e12}, {"mae": 1e300}],
)
def test_odd_numbers_are_drawn(tmp_path, changed):
    run = history(5, NUMBER_METRICS, **changed)
    plots.plot_training(run, tmp_path / "training.png")
    assert size(tmp_path / "training.png") == (1500, 960)


def test_a_run_without_an_epoch_is_refused(tmp_path):
    with pytest.raises(UsageError, match="at least one whole epoch"):
        plots.plot_training(history(0), tmp_path / "training.png")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("classes", [1, 2, 10, 25, 150])
def test_confusion_matrix_counts(tmp_path, axes, classes):
    rng = np.random.default_rng(classes)
    truth, predicted = rng.integers(0, classes, (2, 500))
    path = tmp_path / "confusion.png"
    plots.plot_confusion_matrix(truth, predicted, [f"class {i}" for i in range(classes)], path)
    assert min(size(path)) > 500
    shown = {text.get_text() for text in axes[0].texts}
    pairs, counts = np.unique(truth * classes + predicted, return_counts=True)
    assert shown == ({f"{count}" for count in counts} if classes <= 20 else set())
    assert (
        axes[0].get_title(loc="left") == f"{np.mean(truth == predicted):.1%} of 500 rows are right"
    )
    assert len(axes[0].get_xticks()) <= 60
    assert len(pairs) <= classes**2


@pytest.mark.parametrize(("targets", "rows"), [(1, 1), (1, 20_000), (3, 50), (9, 300)])
def test_residuals_show_each_target(tmp_path, axes, targets, rows):
    truth = np.random.default_rng(0).standard_normal((rows, targets))
    names = [f"target {i}" for i in range(targets)]
    plots.plot_residuals(truth, 0.9 * truth, names, tmp_path / "residuals.png")
    assert size(tmp_path / "residuals.png")[0] == 1500
    assert [ax.get_title(loc="left") for ax in axes[::2]] == names[:4]
    points = axes[0].collections[0].get_offsets()
    assert len(points) == min(rows, 5_000)
    np.testing.assert_allclose(points[:, 1], 0.9 * points[:, 0])


NUMBER_TASK = Regression(NumberTarget(["price in $"], [10.0], [2.0]))
CODES = np.array([0, 1, 1, 0])
LOGITS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], "f4")
RUNS = {
    "classes": (Classification(2), CODES, LOGITS, "confusion_matrix.png"),
    "one logit": (BinaryClassification(1), CODES, LOGITS[:, 1:] - 0.5, "confusion_matrix.png"),
    "numbers": (NUMBER_TASK, CODES[:, None], LOGITS[:, :1], "residuals.png"),
    "labels": (MultiLabel(2), LOGITS, LOGITS, None),
}


@pytest.mark.parametrize("name", RUNS)
def test_each_task_gets_its_pictures(tmp_path, name):
    task, truth, output, second = RUNS[name]
    part = Split(np.zeros((4, 3), "f4"), truth, truth)
    directory = tmp_path / "run" / "plots"
    labels = ("no $", "日本 {x}_^")
    paths = plots.save_plots(directory, history(), task, part, output, labels=labels)
    assert paths == [directory / n for n in ("training.png", second) if n]
    assert sorted(directory.iterdir()) == sorted(paths)
    assert all(min(size(path)) > 500 for path in paths)


def test_the_callers_style_changes_nothing_and_stays(tmp_path):
    from matplotlib import style

    plots.plot_training(history(), tmp_path / "a.png")
    with style.context("dark_background"):
        before = dict(matplotlib.rcParams)
        plots.plot_training(history(), tmp_path / "b.png")
        assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_no_window_system_is_touched(tmp_path):
    code = (
        "import logging, sys\n"
        "import numpy as np\n"
        "logging.getLogger('matplotlib').setLevel(logging.ERROR)  # of fonts, as in conftest.py\n"
        "from mlpengine.plots import plot_confusion_matrix\n"
        "codes = np.array([0, 1])\n"
        f"plot_confusion_matrix(codes, codes, 'ab', {str(tmp_path / 'a.png')!r})\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "mlpengine.plots")
    monkeypatch.delattr("mlpengine.plots")
    with pytest.raises(MissingExtraError, match=re.escape(install_line("plots"))):
        import mlpengine.plots  # noqa: F401
