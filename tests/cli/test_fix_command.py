"""`diagnose --fix` and `train --fix`, silenced verdicts, and verdicts before a run."""

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
    assert "fix      model.dropout=0.1" in result.err
    first, second, comparison = map(json.loads, result.out.splitlines())
    assert "dropout_high" in {v["name"] for v in first["verdicts"]}
    assert "dropout_high" not in {v["name"] for v in second["verdicts"]}
    assert Path(second["run_dir"]).name == "broken-fixed"
    assert comparison["settings"] == {"model.dropout": [[0.9], [0.1]]}
    assert comparison["better"].endswith("broken-fixed")
    assert comparison["difference"] > 0.2


def test_a_failed_run_is_trained_once_more(mlpengine, dropped):
    broken = ("--set", "optimizer={name: sgd, lr: 1e30}", "--set", "model.dropout=0")
    result = mlpengine("train", dropped, "--fix", "--json", "-q", *broken)
    assert "failed   step " in result.err
    assert mlpengine("train", dropped, "-q", *broken).code == 1


def test_without_a_fix_there_is_one_run(mlpengine, dropped):
    result = mlpengine(
        "train", dropped, "--fix", "--json", "--set", "diagnostics.silence=dropout_high"
    )
    assert result.code == 0
    assert len(result.out.splitlines()) == 1
    assert "dropout_high" not in result.out
    assert "no verdict asks for a setting" in result.err


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["train", "--resume", "run", "--fix"], "--fix: needs a new run"),
        (["diagnose", "broken.yaml", "--fix", "broken.yaml"], "--fix: must be a new file"),
        (
            ["train", "broken.yaml", "--set", "diagnostics.silence=dropout"],
            "did you mean 'dropout_high'",
        ),
    ],
)
def test_wrong_usage_of_fixes(mlpengine, dropped, args, text):
    result = mlpengine(*args)
    assert result.code == 2
    assert text in result.err


def test_diagnose_writes_the_config_with_the_fix(mlpengine, dropped):
    assert mlpengine("train", dropped, "--out", "run", "-q").code == 0
    result = mlpengine("diagnose", "run", "--fix", "better.yaml")
    assert "wrote better.yaml, with model.dropout" in result.out
    assert "# dropout_high: dropout of 0.9" in Path("better.yaml").read_text()
    silent = ("--set", "diagnostics.silence=[dropout_high]", "--set", "model.dropout=0")
    assert mlpengine("train", dropped, "--out", "silent", "-q", *silent).code == 0
    result = mlpengine("diagnose", "silent", "--fix", "other.yaml")
    assert ("nothing was written" in result.out) != Path("other.yaml").exists()


def test_diagnose_says_before_a_run_what_is_wrong(mlpengine, dropped):
    settings = [
        "training.epochs=2",
        "training.batch_size=700",
        "optimizer={name: adam, eps: 1, betas: [0.999, 0.999]}",
        "model.dropout=0",
    ]
    report = json.loads(mlpengine("diagnose", dropped, "--json", settings=settings).out)
    assert "eps_large" in {verdict["name"] for verdict in report["verdicts"]}
    assert report["estimate"]["steps"] == 6
    assert report["estimate"]["bytes"] > 700 * 64
    result = mlpengine("diagnose", dropped, "--fix", "better.yaml", settings=settings)
    assert "memory" in result.out.splitlines()[0]
    assert "  eps: 1e-08" in Path("better.yaml").read_text()
