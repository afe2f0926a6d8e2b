"""Training once more on all rows, for as many epochs as validation chose."""

import json
from pathlib import Path
from shutil import rmtree

import pytest
from plain import plain
from ruamel.yaml import YAML

from mlpengine import fit

CONFIG = """\
data: {source: penguins, split: {validation: 0.2, test: 0.2}}
model: {hidden: [4]}
training: {epochs: 12, batch_size: 16, early_stopping: {patience: 2}}
report: false
"""
REFIT = "--set=training.refit=true"


def test_a_refit_learns_from_validation_rows_too(mlpengine):
    Path("c.yaml").write_text(CONFIG)
    done = mlpengine("train", "c.yaml", REFIT, "--json", "--set", "optimizer.lr=0.05")
    assert done.code == 0, done.err
    first, second = map(json.loads, done.out.splitlines())
    assert second["epochs"] == first["best_epoch"]
    assert [Path(one["run_dir"]).name for one in (first, second)] == ["c", "c-refit"]
    assert second["validation"] == {}
    rows = json.loads(mlpengine("evaluate", "runs/c", "--json").out)["rows"]
    again = json.loads(mlpengine("evaluate", "runs/c-refit", "--json").out)["rows"]
    assert again.keys() == {"train", "test"}
    assert again["train"] == pytest.approx(rows["train"] + rows["validation"], abs=1)
    assert f"training.epochs={second['epochs']}" in done.err
    settings = [f"training.epochs={second['epochs']}", "training.early_stopping=false"]
    settings += ["data.split.validation=0.0", "optimizer.lr=0.05"]
    assert mlpengine("train", "c.yaml", "--out", "same", settings=settings).code == 0
    bits = [Path(run, "model.safetensors").read_bytes() for run in ("same", "runs/c-refit")]
    assert bits[0] == bits[1]
    # the key of a config does the same, in Python too, and after an interruption
    Path("key.yaml").write_text(CONFIG.replace("training: {", "training: {refit: true, "))
    assert mlpengine("train", "key.yaml", "--set", "optimizer.lr=0.05", "-q").code == 0
    assert Path("runs/key-refit/model.safetensors").read_bytes() == bits[0]
    rmtree("runs/key-refit")
    resumed = mlpengine("train", "--resume", "runs/key", "-q")
    assert resumed.code == 0, resumed.err
    assert Path("runs/key-refit/model.safetensors").read_bytes() == bits[0]
    config = YAML(typ="safe").load(CONFIG)
    model, result = fit(
        config["data"].pop("source"),
        **plain(
            data=config["data"],
            model=config["model"],
            training={**config["training"], "refit": True},
            optimizer={"lr": 0.05},
        ),
    )
    model.save("python.safetensors")
    assert Path("python.safetensors").read_bytes() == bits[0]
    assert result.epochs == second["epochs"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "training.folds=3"], "training.refit: needs one network (with folds"),
        (["--set", "data.split.validation=0.0"], "training.refit: needs validation rows"),
        (["--set", "training.seeds=2"], "training.refit: needs one network"),
    ],
)
def test_what_cannot_be_refitted_is_refused(options, message, mlpengine):
    text = CONFIG.replace(", early_stopping: {patience: 2}", "")
    if "training.folds=3" in options:
        text = text.replace("validation: 0.2, ", "")
    Path("c.yaml").write_text(text)
    done = mlpengine("train", "c.yaml", REFIT, *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not Path("runs").exists()
