"""Small tables in notebooks, which never raise."""

from html.parser import HTMLParser

import pytest

from mlpengine.config.fitting import FitResult
from mlpengine.diagnostics.verdict import Verdict, Verdicts
from mlpengine.settings import FeatureSettings, Fix, NetworkSettings
from mlpengine.training.history import EpochRow, History
from mlpengine.training.loop import Result

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
    "result": (Result("early", 30, 9, 1.5, 9.0, history(30)), ["best epoch", "9"]),
    "verdicts": (Verdicts([WARNING]), ["lr_low", "1", "too low", HOSTILE, "raise lr"]),
    "no verdicts": (SILENT, ["nothing unusual"]),
    "fit": (
        FitResult("epochs", 1, 1, 0.1, 9.0, history(1), {"train": {"r2": 1.0}, "test": {}}, []),
        ["test", "nan"],
    ),
}


@pytest.mark.parametrize(
    ("ending", "text"), [("epochs", "best 4; "), ("early", "best 4, stopped early; ")]
)
def test_a_result_says_how_it_ended(ending, text):
    result = FitResult(ending, 15, 4, 0.1, 9.0, history(15), {"test": {"r2": 0.5}}, [])
    assert repr(result) == f"FitResult(15 epochs, {text}test: r2 0.5)"


@pytest.mark.parametrize("name", SHOWN)
def test_objects_are_small_tables(name):
    shown, expected = SHOWN[name]
    rows = Cells(shown._repr_html_()).rows
    assert expected in [row[: len(expected)] for row in rows]
    assert len(rows) <= 16


def test_the_fix_is_a_command_line():
    assert WARNING.fix_text == "--set 'model.hidden=[64, 32]' --set 'data.drop=[\"a b\"]'"
