"""Uses ``training.lr_factor``, which `test_an_option_of_training` adds to a copy of the package."""

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

import mlpengine
from mlpengine.config import json_schema
from mlpengine.config.space import load_sweep
from mlpengine.core.errors import UsageError
from mlpengine.estimators import MlpRegressor
from mlpengine.settings import TrainingSettings
from mlpengine.settings.base import made
from mlpengine_cli.main import run

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from reference_pages import config as reference

DESCRIPTION = "Factor of every learning rate."


def told(*arguments: object) -> tuple[int, str]:
    """Run a command; return its exit code and all that it writes."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(out):
        code = run([str(argument) for argument in arguments])
    return code, out.getvalue()


def trained(name: str, *settings: str, epochs: int = 4) -> bytes:
    """Train; return the bytes of the weights."""
    sets = [f"--set={setting}" for setting in settings]
    code, text = told("train", "c.yaml", "-q", *sets, "--epochs", epochs, "--out", name)
    assert code == 0, text
    return weights(mlpengine.load(name))


def weights(model: mlpengine.Model) -> bytes:
    """Return the bytes of the weights of a model."""
    data: bytes = model.mlp.params.flat.tobytes()
    return data


def main() -> None:
    """Check what a person sees of the option, and that it does what it says."""
    # schema, reference, messages, spaces of a sweep
    entry = json_schema()["$defs"]["TrainingSection"]["properties"]["lr_factor"]
    limits = {"default": 1.0, "exclusiveMinimum": 0, "type": "number"}
    assert entry == {**limits, "description": DESCRIPTION, "title": "Lr Factor"}
    assert f"| `lr_factor` | {DESCRIPTION} | number, above 0 | `1.0` |" in reference()
    for setting, text in (
        ("lr_factor=0", "training.lr_factor: must be greater than 0"),
        ("lr_factr=2", "did you mean 'lr_factor'"),
    ):
        code, answer = told("check", "c.yaml", "--set", f"training.{setting}")
        assert code == 2, answer
        assert text in answer, answer
    load_sweep(Path("swept.yaml"))
    with pytest.raises(UsageError, match="lr_factor must be greater than 0"):
        made(TrainingSettings, "training", lr_factor=0)

    # a run, an interrupted one, `fit`, and an estimator: as with half the learning rate
    half = trained("half", "optimizer.lr=0.0005")
    assert trained("whole", "training.lr_factor=0.5") == half != trained("plain")
    trained("part", "training.lr_factor=0.5", epochs=2)
    assert told("train", "--resume", "part", "--epochs", 4, "-q")[0] == 0
    assert weights(mlpengine.load("part")) == half
    few = {"folds": None, "early_stopping": None, "epochs": 2}
    one, other = (
        weights(mlpengine.fit("rows.csv", "y", training=training, optimizer={"lr": lr})[0])
        for lr, training in ((0.01, few), (0.02, {**few, "lr_factor": 0.5}))
    )
    assert one == other
    x = np.loadtxt("rows.csv", delimiter=",", skiprows=1)
    options = {"hidden": 4, "epochs": 2, "random_state": 0}
    given = {"lr": 0.02, "settings": {"training.lr_factor": 0.5}}
    estimators = [MlpRegressor(**options, lr=0.01), MlpRegressor(**options, **given)]
    one, other = (estimator.fit(x[:, :2], x[:, 2]).predict(x[:, :2]) for estimator in estimators)
    assert (one == other).all()


if __name__ == "__main__":
    main()
