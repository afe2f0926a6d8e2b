"""The judge of verdicts (benchmarks/diagnoses.py): what counts as right, cured and worse."""

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "diagnoses.py"
SPEC = importlib.util.spec_from_file_location("diagnoses", SCRIPT)
diagnoses = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(diagnoses)

SOUND, FIRST, FIXED = "runs/sound", "runs/first", "runs/fixed"


def test_both_halves_have_many_kinds_and_runs():
    runs = list(diagnoses.setups())
    counts = Counter((half, one.kind == "healthy") for half, one in runs)
    assert len(counts) == 4
    assert min(counts.values()) > 35
    assert len({one.kind for _, one in runs}) > 31


@pytest.fixture
def judged(monkeypatch):
    """Return what is judged of verdicts (name, severity, fixed keys) and scores by run."""

    def judge(
        verdicts, scores=None, right=("lr_low", "unfinished+optimizer.lr"), kind="slow", error=0.0
    ):
        told = [(*one, "text") for one in verdicts]
        monkeypatch.setattr(diagnoses, "write", lambda *_: "")
        monkeypatch.setattr(diagnoses, "train", lambda _: {"told": told, "error": ""})
        monkeypatch.setattr(diagnoses, "fixed", lambda _: (FIXED, ""))
        monkeypatch.setattr(diagnoses, "predictions", lambda run, _: run)
        monkeypatch.setattr(diagnoses, "score", lambda run, _: (scores or {}).get(run, 0.0))
        monkeypatch.setattr(diagnoses, "error_of_lead", lambda *_: error)
        diagnoses.sound_score.cache_clear()
        setup = diagnoses.SetUp(kind, right, "letters", False, "")
        return diagnoses.judge("", setup, 1)

    return judge


@pytest.mark.parametrize(
    ("verdicts", "right"),
    [
        ([("lr_low", "warning", [])], True),
        ([("lr_high", "warning", []), ("lr_low", "warning", [])], False),
        ([("unfinished", "warning", ["training.epochs"])], False),
        ([("unfinished", "warning", ["optimizer.lr"])], True),
        ([], False),
    ],
)
def test_the_first_verdict_counts_and_its_fix_where_asked(judged, verdicts, right):
    assert judged(verdicts)["right"] is right


def test_a_note_on_a_healthy_run_is_no_false_warning(judged):
    assert judged([("overfitting", "note", [])], kind="healthy")["right"]
    assert not judged([("overfitting", "warning", [])], kind="healthy")["right"]


def test_warnings_are_counted_by_rule(judged):
    several = [("lr_high", "warning", []), ("lr_low", "warning", []), ("overfitting", "note", [])]
    runs = [judged(several), judged(several[:1], kind="healthy", right=())]
    known = {"lr_high": [(False, True), (False, True)], "lr_low": [(True, False)]}
    assert diagnoses.warned_by(runs) == known


@pytest.mark.parametrize(
    ("first", "fixed", "error", "marks"),
    [(0.5, 0.85, 0.0, "harmed cured"), (0.5, 0.5, 0.0, "harmed"), (0.9, 0.9, 0.0, "cured"),
     (0.5, 0.2, 0.1, "harmed lower worse"), (0.9, 0.6, 0.1, "lower worse"),
     (0.9, 0.6, 0.2, "lower")],
)  # fmt: skip
def test_scores_on_hidden_rows_say_whether_a_fix_cures(judged, first, fixed, error, marks):
    one = judged([], {SOUND: 0.9, FIRST: first, FIXED: fixed}, error=error)
    assert [key for key in ("harmed", "cured", "lower", "worse") if one[key]] == marks.split()


def test_errors_of_scores_are_paired():
    truth = np.array(["a", "b"] * 50)
    parts = diagnoses.Parts(None, pd.DataFrame({"y": truth}), "y", True, None)
    other = np.where(np.arange(100) < 40, "a", truth)
    assert diagnoses.error_of_lead(truth, truth, parts) == 0
    assert diagnoses.error_of_lead(truth, other, parts) == pytest.approx(0.0693, rel=0.2)


def test_scores_run_from_a_constant_to_1(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(diagnoses, "call", lambda *_: (0, "", ""))
    rare = ["a"] * 8 + ["b"] * 2
    for truth, guess, is_class, wanted in (
        (rare, rare, True, 1), (rare, ["a"] * 10, True, 0), (rare, ["a"] * 9 + ["b"], True, 0.5),
        ([1, 2, 3], [2, 2, 2], False, 0), ([1, 2, 3], [1, 2, 3], False, 1),
    ):  # fmt: skip
        pd.DataFrame({"line": range(len(guess)), "y": guess}).to_csv("predicted.csv", index=False)
        hidden = pd.DataFrame({"y": truth}).astype(str)
        parts = diagnoses.Parts(hidden, hidden, "y", is_class, np.random.default_rng(0))
        guess = diagnoses.predictions("runs/first", parts)
        assert diagnoses.score(guess, parts) == pytest.approx(wanted)
