"""`train --fix` and `diagnose --fix`: the settings that the verdicts ask for."""

import json
from pathlib import Path

import pytest

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
    first, second, comparison = map(json.loads, result.out.splitlines())
    assert "dropout_high" in {v["name"] for v in first["verdicts"]}
    assert "dropout_high" not in {v["name"] for v in second["verdicts"]}
    assert Path(second["run_dir"]).name == "broken-fixed"
    assert comparison["settings"] == {"model.dropout": [[0.9], [0.1]]}
    assert comparison["better"].endswith("broken-fixed")


def test_a_failed_run_has_a_line_and_is_trained_once_more(mlpengine, dropped):
    broken = ("--set", "optimizer={name: sgd, lr: 1e30}", "--set", "model.dropout=0")
    result = mlpengine("train", dropped, "--fix", "--json", "-q", *broken)
    failed, *_ = map(json.loads, result.out.splitlines())
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
