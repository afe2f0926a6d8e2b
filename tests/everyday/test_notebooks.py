"""Small tables in notebooks, which never raise."""

import re
from html import unescape

import pytest

from mlpengine.config.fitting import FitResult
from mlpengine.diagnostics.verdict import Verdict, Verdicts
from mlpengine.settings import FeatureSettings, Fix, NetworkSettings
from mlpengine.training.history import EpochRow, History
from mlpengine.training.loop import Result

HOSTILE = "<script>alert(1)</script>"


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
    text = shown._repr_html_()
    assert {*re.findall(r"</(\w+)", text)} <= {"table", "tr", "th", "td", "p"}
    cells = re.compile(r"<(?:td|th|p)[^>]*>(.*?)</")
    rows = [[*map(unescape, cells.findall(row))] for row in text.split("<tr")]
    assert expected in [row[: len(expected)] for row in rows]
    assert len(rows) <= 16


def test_the_fix_is_a_command_line():
    assert WARNING.fix_text == "--set 'model.hidden=[64, 32]' --set 'data.drop=[\"a b\"]'"
