"""What notebooks show: small tables that never raise, and progress without control characters."""

import io
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from mlpengine import Adam, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.config.fitting import FitResult
from mlpengine.diagnostics import Diagnostics, verdicts
from mlpengine.diagnostics.verdict import Verdict, Verdicts
from mlpengine.models.task import Classification, Split
from mlpengine.settings import FeatureSettings, Fix, NetworkSettings
from mlpengine.training.history import EpochRow, History
from mlpengine.training.loop import Loop, Result
from mlpengine_cli.progress import NOTEBOOK, Meter, progress

HOSTILE = "<script>alert(1)</script>"


class Cells(HTMLParser):
    """The tables of a text of HTML, as rows of cells; fails on any other element."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open
        assert len(text) < 10_000

    def handle_starttag(self, tag, attributes):
        assert tag in ("table", "tr", "th", "td", "p")
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag != "table":
            self.rows = self.rows or [[]]
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.rows[-1][-1] += text


def history(epochs):
    rows = [EpochRow(k, k, 0.1, float("nan"), 0.5, {"loss": 0.5}, 0.1, 9.0) for k in range(epochs)]
    return History(("loss",), rows)


SILENT = Verdicts()
FIX = [Fix(NetworkSettings, "hidden", (64, 32)), Fix(FeatureSettings, "drop", ("a b",))]
WARNING = Verdict("lr_low", 1, "too low", HOSTILE, 1.0, 2.0, "raise lr", FIX)
SHOWN = {
    "history": (history(30), ["29", "29", "0.1", "nan", "0.5", "0.5"]),
    "no epochs": (history(0), ["epoch", "steps", "lr", "gradient_norm", "train_loss"]),
    "result": (Result("early", 30, 9, 1.5, 9.0, history(30)), ["best epoch", "9"]),
    "verdict": (WARNING, ["lr_low", "1", "too low", HOSTILE, "raise lr"]),
    "verdicts": (Verdicts([WARNING]), ["lr_low", "1", "too low", HOSTILE, "raise lr"]),
    "no verdicts": (SILENT, ["nothing unusual"]),
    "fit": (
        FitResult("epochs", 1, 1, 0.1, 9.0, history(1), {"train": {"r2": 1.0}, "test": {}}, []),
        ["test", "nan"],
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_objects_are_small_tables(name):
    shown, expected = SHOWN[name]
    rows = Cells(shown._repr_html_()).rows
    assert expected in [row[: len(expected)] for row in rows]
    assert len(rows) <= 16


def test_the_fix_is_a_command_line():
    assert WARNING.fix_text == "--set 'model.hidden=[64, 32]' --set 'data.drop=[\"a b\"]'"


def test_verdicts_of_diagnostics_show_themselves():
    mlp = Mlp([4, 16, 1], seed=0)
    assert Cells(verdicts(Diagnostics(mlp))._repr_html_()).rows


class Cell(io.StringIO):
    """Standard error of a notebook: no terminal, or, for commands in a cell, one that is not."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal

    def fileno(self):
        raise io.UnsupportedOperation("fileno")


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_in_a_cell_is_plain_text(monkeypatch, terminal):
    monkeypatch.setenv(NOTEBOOK, "1")
    cell = Cell(terminal)
    monkeypatch.setattr(sys, "stderr", cell)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((32, 3)).astype("float32"), rng.integers(0, 2, 32)
    mlp = Mlp([3, 2], seed=0)
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), Adam(mlp), batch_size=8)
    callbacks = progress(quiet=False)
    Loop(
        step, Classification(2), Split(x, y, y), Split(x, y, y), epochs=2, callbacks=callbacks
    ).run()
    times = iter(range(0, 100, 10))
    with Meter("reading", clock=lambda: next(times)) as meter:
        meter(0.5)
    text = cell.getvalue()
    assert "1/2" in text
    assert "reading: 50%" in text
    assert not [c for c in text if c < " " and c != "\n"]
