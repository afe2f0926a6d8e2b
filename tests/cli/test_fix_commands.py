"""`train --fix` and `diagnose --fix`: the settings that the verdicts ask for."""

import json
from pathlib import Path

import pytest

from mlpengine.report import paired
from mlpengine_cli import fixing

BROKEN = """
data: {source: digits, split: {validation: 0.2, test: 0}}
model: {hidden: [32, 32], dropout: 0.9}
training: {epochs: 6, batch_size: 64}
report: false
"""


@pytest.fixture
def dropped(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    return path


def test_training_once_more_with_the_fix_is_better(mlpengine, dropped):
    result = mlpengine("train", dropped, "--fix", "--json")
    assert result.code == 0, result.err
    assert "model.dropout=0.1" in result.err
    first, second, *_, comparison = map(json.loads, result.out.splitlines())
    assert "dropout_high" in {v["name"] for v in first["verdicts"]}
    assert "dropout_high" not in {v["name"] for v in second["verdicts"]}
    assert Path(second["run_dir"]).name == "broken-fixed"
    assert comparison["settings"]["model.dropout"] in ([[0.9], [0.1]], [[0.9], [0.0]])
    assert "broken-fixed" in comparison["better"]


def test_the_best_of_several_repairs_is_kept(mlpengine, dropped):
    settings = ["model.dropout=0", "training.epochs=2"]
    result = mlpengine("train", dropped, "--fix", "--json", settings=settings)
    tried = [line.split() for line in result.err.splitlines() if line.startswith("tried ")]
    assert [one[1] for one in tried] == ["training.epochs=30:", "training.epochs=90:"]
    close = 0.99 * max(float(one[-1]) for one in tried)
    best = next(one[1].rstrip(":") for one in tried if float(one[-1]) >= close)
    assert f"fix      {best}" in result.err


def test_a_repair_that_does_not_help_is_not_kept(mlpengine, dropped, monkeypatch):
    monkeypatch.setattr(fixing, "repairs", lambda _: [{"optimizer.lr": 1e-9}])
    monkeypatch.setattr(fixing, "proposed_settings", lambda _: {"optimizer.lr": 1e-8})
    result = mlpengine("train", dropped, "--fix", "--json", "-q")
    assert "no better score" in result.err
    assert json.loads(result.out.splitlines()[-1])["better"].endswith("broken")


def test_a_repair_that_may_help_by_chance_is_not_kept(mlpengine, dropped, monkeypatch):
    pairs = []
    by_chance = (0.0, 9.0, 1.0)
    monkeypatch.setattr(fixing, "paired", lambda *p: pairs.append(paired(*p)) or by_chance)
    result = mlpengine("train", dropped, "--fix", "--json", "-q")
    assert "no better score by more than half a standard error" in result.err
    assert json.loads(result.out.splitlines()[-1])["better"].endswith("broken")
    assert all(0 < error < 0.05 < lead for lead, error, _ in pairs)


@pytest.mark.parametrize(
    ("metrics", "value"),
    [
        ({"validation": {"loss": 0.3, "accuracy": 0.9, "macro_f1": 0.8}}, 0.8),
        ({"out_of_fold": {"loss": 0.3, "mae": 2.0, "r2": -0.1}, "test": {"r2": 0.9}}, -0.1),
        ({"validation": {"loss": 0.3}}, -0.3),
        ({"test": {"r2": 0.9}}, float("-inf")),
    ],
)
def test_rows_that_are_not_test_rows_judge(metrics, value):
    assert fixing.RunScore.of(metrics).value == value
    assert fixing.RunScore.of({"validation": {"loss": 0.3, "r2": 0.9}}, True).value == -0.3


def test_a_failed_run_has_a_line_and_is_trained_once_more(mlpengine, dropped):
    broken = ("--set", "optimizer={name: sgd, lr: 1e30}", "--set", "model.dropout=0")
    result = mlpengine("train", dropped, "--fix", "--json", "-q", *broken)
    failed, *_, last = map(json.loads, result.out.splitlines())
    assert failed["verdicts"][0]["name"] in ("lr_high", "nonfinite")
    assert last["better"].endswith(("broken", "broken-fixed"))
    assert "step " in failed["error"]
    assert "failed   step " in result.err


def test_without_a_fix_there_is_one_run(mlpengine, dropped):
    silent = "diagnostics.silence=dropout_high"
    result = mlpengine("train", dropped, "--fix", "--json", "--set", silent)
    assert result.code == 0
    assert len(result.out.splitlines()) == 1


def test_a_resumed_run_cannot_be_fixed(mlpengine):
    result = mlpengine("train", "--resume", "run", "--fix")
    assert result.code == 2
    assert "--fix" in result.err


def test_diagnose_writes_the_config_with_the_fix(mlpengine, dropped):
    assert mlpengine("train", dropped, "--out", "run", "-q").code == 0
    result = mlpengine("diagnose", "run", "--fix", "better.yaml")
    assert "wrote better.yaml, with model.dropout" in result.out
    assert "[dropout_high] (was [0.9])\n  dropout: [0.1]" in Path("better.yaml").read_text()
    silent = ("--set", "diagnostics.silence=[dropout_high]", "--set", "model.dropout=0")
    assert mlpengine("train", dropped, "--out", "silent", "-q", *silent).code == 0
    result = mlpengine("diagnose", "silent", "--fix", "other.yaml")
    assert ("nothing was written" in result.out) != Path("other.yaml").exists()


def test_wrong_cells_are_corrected_in_every_repair(mlpengine, tmp_path):
    x = [f"{-999 if k % 9 == 0 else k % 7}" for k in range(200)]
    y = [f"{1e9 if k == 90 else k % 7 + k % 3}" for k in range(200)]
    lines = [f"{a},{k % 3},{b}" for k, (a, b) in enumerate(zip(x, y, strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(["x,z,y", *lines]))
    path = tmp_path / "t.yaml"
    path.write_text("data: {source: t.csv, target: y}\ntraining: {epochs: 5}\nreport: false\n")
    result = mlpengine("train", path, "--fix", "--json", "-q")
    comparison = json.loads(result.out.splitlines()[-1])
    assert comparison["settings"]["data.na_values"][1] == ["-999"]
    assert comparison["settings"]["data.where"] == [None, "`y` <= 8"]
    assert "scores cannot judge" in result.err
    shown = mlpengine("train", path, "--fix", "-q", "--out", "shown")
    assert "scores cannot judge" in shown.err
    assert "better:" not in shown.out
