"""Objects as HTML in notebooks and as one line in a terminal."""

import json
import pickle
import re
from html import escape

import pytest

import mlpengine
from mlpengine.diagnostics.verdict import Verdict, Verdicts
from mlpengine.drawing.markup import DASH
from mlpengine.drawing.style import CELL_CLASS, cell_style, page_style
from mlpengine.fitting import FitResult
from mlpengine.settings import FeatureSettings, Fix, NetworkSettings
from mlpengine.training.diagnose import LoopDiagnostics
from mlpengine.training.history import EpochRow, History
from mlpengine.training.loop import Result

HOSTILE = "<script>alert(1)</script>"


def history(epochs):
    rows = [EpochRow(k, k, 0.1, float("nan"), 0.5, {"loss": 0.5}, 0.1, 9.0) for k in range(epochs)]
    return History(("loss",), rows)


FIX = [Fix(NetworkSettings, "hidden", (64, 32)), Fix(FeatureSettings, "drop", ("a b",))]
WARNING = Verdict("lr_low", 1, "too low", HOSTILE, 1.0, 2.0, "raise lr", FIX)
SHOWN = {  # objects, and texts in their order
    "history": (history(30), ["Loss", "training", "validation"]),
    "result": (Result("early", 30, [9], 1.5, 9.0, history(30)), ["stopped early", "best: 9"]),
    "verdicts": (Verdicts([WARNING]), ["too low", "lr_low", escape(HOSTILE), "fit(..., model={"]),
    "no verdicts": (Verdicts(), ["Nothing unusual."]),
    "fit": (
        FitResult(
            "epochs",
            1,
            [1],
            0.1,
            9.0,
            history(1),
            {"train": {"r2": 1.0}, "test": {}},
            [],
            spreads={"train": {"+-": {"r2": 0.25}}},
        ),
        ["R²", "train", "1", "+-", "0.25", "test", DASH, "+-: the standard error", "Loss"],
    ),
    "diagnostics": (LoopDiagnostics(), ["nothing is measured"]),
}


@pytest.mark.parametrize("name", SHOWN)
def test_objects_show_themselves_without_scripts(name):
    shown, expected = SHOWN[name]
    text = shown._repr_html_()
    body, place = text.split("</style>")[-1], -1
    assert "<script" not in text
    for one in expected:
        place = body.index(one, place + 1)


def leaking(style):
    """Return the selectors of a style that reach elements outside a cell."""
    depth, found = 0, []
    for selector, brace in re.findall(r"([^{}]*)([{}])", style):
        is_rule = not selector.strip().startswith("@")
        if brace == "{" and is_rule and depth == 0 and CELL_CLASS not in selector:
            found.append(selector.strip())
        depth = max(0, depth + (is_rule if brace == "{" else -1))
    return found


def test_the_style_of_a_cell_reaches_no_other_element():
    assert leaking(cell_style()) == []
    assert leaking(page_style())[:2] == [":root", ":root"]


def test_a_fit_plots_and_reports_itself(tmp_path):
    _, result = mlpengine.fit("penguins", training={"epochs": 2, "folds": None}, seed=0)
    charts = re.findall("<figcaption>(.*?)</", result.plot()._repr_html_())
    assert charts[:2] == ["Loss", "Validation scores"]
    assert result.report(tmp_path / "r.html") is None
    page = (tmp_path / "r.html").read_text()
    data = json.loads(re.search('id="report-data">(.*?)</script>', page)[1])
    assert (data["notes"], data["epochs"]["count"], data["score"]["rows"]) == ([], 2, 69)
    assert escape(page[:200]) in result.report()._repr_html_()
    with pytest.raises(mlpengine.UsageError, match=r"must end in \.html"):
        result.report("penguins")
    with pytest.raises(mlpengine.UsageError, match="report: the training rows"):
        pickle.loads(pickle.dumps(result)).report()
