"""`mlpengine diagnose` on run directories."""

import json
import shlex
import shutil
from html import unescape
from pathlib import Path

import pytest
from small import SMALL

from mlpengine import Mlp, fit
from mlpengine.config import load_config
from mlpengine.core.errors import DataError
from mlpengine.training.diagnostics_files import read_diagnostics
from mlpengine.training.history import read_metrics
from mlpengine.training.run_directory import RESOLVED
from mlpengine_cli.main import run


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Train a run; return its directory."""
    path = tmp_path_factory.mktemp("finished")
    (path / "small.yaml").write_text(SMALL)
    options = ("-q", "--epochs", "12", "--set", "diagnostics.every=5", "--out", str(path / "run"))
    assert run(["train", str(path / "small.yaml"), *options]) == 0
    return path / "run"


@pytest.fixture
def finished(once, mlpengine, config):
    """Return a copy of the run, in the directory of the config."""
    return shutil.copytree(once, config.parent / "run")


def test_a_running_run_is_read(mlpengine, finished):
    """The last line may be half written, and the model may not be there yet."""
    with (finished / "diagnostics.csv").open("a") as file:
        file.write("99999,0,gradient_r")
    result = mlpengine("diagnose", finished)
    assert result.code == 0, result.err
    assert "99999" not in result.out


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["small.yaml"], "must be the directory of a run"),
        (["missing"], "missing: there is no such run"),
    ],
)
def test_wrong_usage_is_explained(mlpengine, finished, args, text):
    (finished.parent / "empty").mkdir()
    result = mlpengine("diagnose", *args)
    assert result.code == 2
    assert text in result.err
    assert "Traceback" not in result.err


def test_a_run_without_diagnostics_says_so(mlpengine, config):
    options = ("--epochs", "2", "--set", "diagnostics=false")
    assert mlpengine("train", config, "--out", "run", "-q", *options).code == 0
    result = mlpengine("diagnose", config.parent / "run")
    assert result.code == 2
    assert "has no diagnostics.csv" in result.err


@pytest.mark.parametrize(
    "line", [b"x,0,loss,1.0\n", b"5,0,loss\n", b"5,0,loss,much\n", b"5,0,l\xf6ss,1.0\n"]
)
def test_a_damaged_file_is_named_with_its_line(tmp_path, line):
    start = b"step,layer,quantity,value\n1,,loss,2.0\n"
    (tmp_path / "diagnostics.csv").write_bytes(start + line)
    with pytest.raises(DataError, match=r"diagnostics\.csv:3: "):
        read_diagnostics(tmp_path, Mlp([2, 2]), {}, 9)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss": 2}, "the last sample must have a number of spikes"),
        ({"spikes": 0, "hardest_row": 9}, r"the hardest row is number 9 of 9"),
    ],
)
def test_a_last_sample_that_cannot_be_is_named(tmp_path, values, message):
    lines = [f"1,,{name},{value}.0" for name, value in values.items()]
    text = "\n".join(["step,layer,quantity,value", *lines])
    (tmp_path / "diagnostics.csv").write_text(f"{text}\n")
    with pytest.raises(DataError, match=message):
        read_diagnostics(tmp_path, Mlp([2, 2]), {}, 9)


@pytest.mark.parametrize("data", [b"epoch,steps\n1,2\n", b"epoch,train_loss\n1,\xff\n"])
def test_a_damaged_list_of_epochs_is_named(tmp_path, data):
    (tmp_path / "metrics.csv").write_bytes(data)
    with pytest.raises(DataError, match=r"metrics\.csv: "):
        read_metrics(tmp_path / "metrics.csv")


RUNS = {
    "short": "data: {source: penguins}\ntraining: {epochs: 3}\n",
    "folds": "data: {source: digits}\nmodel: {dropout: 0.9}\n"
    "training: {epochs: 2, folds: 2, batch_size: 128}\n",
    "failed": "data: {source: digits}\noptimizer: {name: sgd, lr: 1e5}\ntraining: {epochs: 1}\n",
    "cells": "data: {source: t.csv, target: y}\ntraining: {epochs: 3}\n",
}


@pytest.mark.parametrize("name", RUNS)
def test_every_command_tells_the_same_list(mlpengine, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    rows = [f"{-999 if k % 9 == 0 else k % 7},{2 * k},{1e9 if k == 90 else k}" for k in range(200)]
    Path("t.csv").write_text("\n".join(["x,z,y", *rows]))
    Path("c.yaml").write_text(f"seed: 1\n{RUNS[name]}")
    trained = mlpengine("train", "c.yaml", "--json", "-q", "-o", "run")
    record = Path("run", "failure.json" if trained.code else "result.json")
    told = json.loads(record.read_text())["verdicts"]
    assert told
    texts = [one["text"] for one in told]
    fixed = mlpengine("train", "c.yaml", "--json", "-q", "--fix", "-o", "tried")
    assert json.loads(fixed.out.splitlines()[0])["verdicts"] == told
    assert json.loads(mlpengine("diagnose", "run", "--json").out)["verdicts"] == told
    lines = mlpengine("diagnose", "run").out.splitlines()
    assert set(texts) <= set(lines)
    for fix in (line.partition("fix: ")[2] for line in lines if line.startswith("      fix: ")):
        assert mlpengine("check", "c.yaml", *shlex.split(fix)).code == 0
    if not trained.code:
        assert json.loads(trained.out)["verdicts"] == told
        whole = load_config(Path("run", RESOLVED)).plain()
        _, fitted = fit(whole["data"]["source"], **whole)
        assert [str(one) for one in fitted.verdicts] == texts
    page = unescape(Path("run", "report.html").read_text())
    assert all(one["evidence"] in page for one in told)


LOG = {"data.transform_target": "log"}


@pytest.mark.parametrize(
    ("sign", "settings", "fix"), [(1, {}, LOG), (1, {"loss": "gamma"}, None), (-1, {}, None)]
)
def test_logarithms_are_advised_where_they_can_be_taken(sign, settings, fix):
    x = [k % 37 for k in range(300)]
    table = {"x": x, "y": [sign * (1 + one) * 500 ** (one % 6 == 0) for one in x]}
    training = {"epochs": 1, "folds": None, "members": None}
    _, result = fit(table, "y", data={"transform_target": "none"}, training=training, **settings)
    assert [one.as_dict()["fix"] for one in result.verdicts if one.name == "target_unit"] == [fix]
