"""Runs that continue: longer than their config says, and from the model of another run."""

import json

import numpy as np
import pytest

from mlpengine import fit, load
from mlpengine.config import load_config
from mlpengine.core.errors import ConfigError
from mlpengine.training.result import read_result

CONFIG = """\
data: {source: penguins}
seed: 3
model: {hidden: [6, 5]}
training: {epochs: 3, batch_size: 32}
report: false
diagnostics: false
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    return path


def weights(run):
    return np.concatenate([network.params.flat for network in load(run).networks])


def outcome(answer):
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def metrics(run):
    return (run / "metrics.csv").read_text()


@pytest.mark.parametrize(
    "setting",
    ["schedule=constant", "schedule={name: exponential, factor: 0.9}", "training.seeds=2"],
)
def test_a_run_that_goes_on_has_the_bits_of_a_longer_one(setting, mlpengine, config, tmp_path):
    """Schedules that do not depend on the number of epochs."""
    given = ("--set", setting, "-q", "--json")
    mlpengine("train", config, "-o", "short", *given)
    mlpengine("train", config, "-o", "long", "--epochs", 7, *given)
    answer = outcome(mlpengine("train", "--resume", "short", "--epochs", 7, "-q", "--json"))
    assert answer["epochs"] == 7
    assert (weights("short") == weights("long")).all()
    assert json.loads(mlpengine("compare", "short", "long", "--json").out)["settings"] == {}
    assert mlpengine("report", "short", "-o", "r.html").code == 0
    assert "--resume again --epochs 7" in (tmp_path / "r.html").read_text()
    assert metrics(tmp_path / "short") == metrics(tmp_path / "long")
    assert mlpengine("train", "--resume", "short", "-q").code == 0  # it ends at 7 from now on
    assert (weights("short") == weights("long")).all()


def test_the_learning_rate_goes_on_as_that_of_a_longer_run(mlpengine, config, tmp_path):
    """A cosine over 3 epochs has ended; from there on the rate is that of a cosine over 9."""
    mlpengine("train", config, "-o", "run", "--set", "schedule=cosine", "-q")
    mlpengine("train", config, "-o", "long", "--set", "schedule=cosine", "--epochs", 9, "-q")
    assert mlpengine("train", "--resume", "run", "--epochs", 9, "-q").code == 0
    rates, longer = (
        np.genfromtxt(tmp_path / name / "metrics.csv", delimiter=",", names=True)["lr"]
        for name in ("run", "long")
    )
    assert rates[2] < 1e-5
    np.testing.assert_array_equal(rates[3:], longer[3:])


def test_early_stopping_waits_anew(mlpengine, config):
    given = ("--set", "training.early_stopping={patience: 2, min_delta: 1000}")
    first = outcome(mlpengine("train", config, "-o", "run", "--epochs", 50, *given, "-q", "--json"))
    assert (first["ending"], first["epochs"]) == ("early", 3)
    again = outcome(mlpengine("train", "--resume", "run", "--epochs", 60, "-q", "--json"))
    assert (again["ending"], again["epochs"]) == ("early", 5)


WRONG = {
    "fewer epochs": (("--resume", "run", "--epochs", 3), "the run has 3 epochs already (got 3)"),
    "other settings": (("--resume", "run", "--set", "seed=1"), "a run keeps its settings"),
    "from a file alone": (
        ("--warm-start", "run/model.safetensors"),
        "holds no config.resolved.yaml",
    ),
    "another network": (
        ("c.yaml", "--warm-start", "run", "--set", "model.hidden=[4]"),
        "model.hidden: must be as in the model of the warm start, [6, 5] (got [4])",
    ),
    "another target": (
        ("c.yaml", "--warm-start", "run", "--set", "data.target=island"),
        "data.target: the model of the warm start predicts 'species' (got 'island')",
    ),
}


OTHER_PREPROCESSING = (
    *("drop=[sex]", "features={a: 2 * body_mass_g}", "missing=median"),
    *("categorical=[body_mass_g]", "encoding=piecewise", "standardize=none", "clip=none", "bins=7"),
    *("min_count=9", "standardize_target=false", "transform_target=auto", "task=regression"),
    "bound_predictions=true",
)
WRONG |= {
    key: (("--warm-start", "run", "--set", f"data.{key}"), f"data.{key.split('=')[0]}: must be as")
    for key in OTHER_PREPROCESSING
}


def test_what_cannot_go_on_is_refused(mlpengine, config):
    mlpengine("train", config, "-o", "run", "-q")
    for name, (given, text) in WRONG.items():
        answer = mlpengine("train", *given, "-q")
        assert answer.code in (1, 2), name
        assert text in answer.err, name
    mlpengine("train", config, "-o", "plain", "-q", "--set", "data.clip=none")
    assert mlpengine("train", config, "--warm-start", "plain", "-o", "tuned", "-q").code == 0
    assert load_config("tuned/config.resolved.yaml").config.data.clip == "none"


def test_fine_tuning_starts_from_weights_and_preprocessing(mlpengine, config, tmp_path):
    mlpengine("train", config, "-o", "first", "-q")
    first = load("first")
    rows = "species,island,bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g,sex\n"
    for i in range(40):
        rows += f"{['Adelie', 'Gentoo'][i % 2]},Dream,{40 + i % 9},18,{190 + i % 17},3800,MALE\n"
    (tmp_path / "new.csv").write_text(rows)
    tuned = ("--warm-start", "first", "--set", "data.source=new.csv", "-q")
    assert mlpengine("train", *tuned, "-o", "still", "--set", "optimizer.lr=1e-30").code == 0
    np.testing.assert_array_equal(weights("still"), first.mlp.params.flat)
    assert mlpengine("train", *tuned, "-o", "head", "--set", "training.freeze=[0, 1]").code == 0
    head = load("head")
    for number, moved in enumerate([False, False, True]):
        assert (head.mlp.weights[number] != first.mlp.weights[number]).any() == moved
    state = [m.preprocessor.state_dict() for m in (first, head)]
    assert state[0] == state[1]
    assert head.classes == first.classes  # the new table has two of three
    model, _ = fit("new.csv", warm_start="first", training={"freeze": [0, 1]})
    np.testing.assert_array_equal(model.mlp.params.flat, head.mlp.params.flat)
    with pytest.raises(ConfigError, match="hidden"):
        fit("new.csv", "species", warm_start=first)


def test_a_fine_tuned_run_that_was_stopped_at_once_starts_again_from_the_model(
    mlpengine, config, tmp_path
):
    mlpengine("train", config, "-o", "first", "-q")
    mlpengine("train", "--warm-start", "first", "-o", "whole", "-q")
    other = ("--epochs", 1, "--set", "seed=7", "-o", "other")
    mlpengine("train", "--warm-start", "first", *other, "-q")
    results = [read_result(tmp_path / run).get("warm_start") for run in ("whole", "other")]
    assert results == [None, "other rows"]
    assert outcome(mlpengine("compare", "whole", "other", "--json"))["by"] is None
    mlpengine("train", "--warm-start", "first", "-o", "cut", "-q")
    for file in (tmp_path / "cut" / "checkpoints").iterdir():
        file.unlink()  # as if it had been killed before the first one
    (tmp_path / "cut" / "model.safetensors").unlink()
    assert mlpengine("train", "--resume", "cut", "-q").code == 0
    assert (weights("cut") == weights("whole")).all()
