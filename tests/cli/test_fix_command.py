"""`diagnose --fix`, silenced verdicts, and verdicts before a run."""

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
    first = mlpengine("train", dropped, "--json", "-q", "--out", "first")
    assert "dropout_high" in first.out
    assert mlpengine("diagnose", "first", "--fix", "better.yaml").code == 0
    second = mlpengine("train", "better.yaml", "--json", "-q", "--out", "second")
    assert "dropout_high" not in second.out
    comparison = json.loads(mlpengine("compare", "first", "second", "--json").out)
    assert comparison["settings"]["model.dropout"] == [[0.9], [0.1]]
    assert comparison["better"].endswith("second")
    assert comparison["difference"] > 0.2


@pytest.mark.parametrize(
    ("args", "text"),
    [
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


def test_diagnose_says_before_a_run_what_is_certain(mlpengine, dropped):
    settings = [
        "training.epochs=2",
        "training.batch_size=700",
        "optimizer={name: adam, eps: 1, betas: [0.999, 0.999]}",
        "model.dropout=0",
    ]
    report = json.loads(mlpengine("diagnose", dropped, "--json", settings=settings).out)
    assert set(report["certain"]) == {"few_steps", "momentum_high", "eps_large"}
    assert report["estimate"]["steps"] == 6
    assert report["estimate"]["bytes"] > 700 * 64
    result = mlpengine("diagnose", dropped, "--fix", "better.yaml", settings=settings)
    assert "certain before a run:" in result.out
    assert "memory" in result.out.splitlines()[0]
    assert "  eps: 1e-08" in Path("better.yaml").read_text()
