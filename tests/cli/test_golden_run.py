"""Files of version 0.2.0, kept from when they were new (tests/golden): they load for ever."""

import csv
import shutil
from pathlib import Path

import numpy as np

from mlpengine.config import load_config

GOLDEN = Path(__file__).parents[1] / "golden" / "run"
CHECKPOINT = "step-000000012.safetensors"


def table(path):
    with path.open() as file:
        return list(csv.reader(file))


def test_a_model_predicts_as_when_it_was_new(mlpengine, tmp_path):
    found = mlpengine(
        "predict", GOLDEN / "model.safetensors", GOLDEN / "rows.csv", "--out", "p.csv"
    )
    assert found.code == 0
    now, then = table(tmp_path / "p.csv"), table(GOLDEN / "predictions.csv")
    assert [row[:2] for row in now] == [row[:2] for row in then]
    probabilities = (np.array([row[2:] for row in t[1:]], float) for t in (now, then))
    np.testing.assert_allclose(*probabilities, rtol=1e-5)


def test_a_resolved_config_says_what_it_said():
    given, resolved = (load_config(GOLDEN / f"config{x}.yaml").config for x in ("", ".resolved"))
    assert resolved.model.hidden == given.model.hidden == (3,)
    assert resolved.data.bins == 3
    assert resolved.training.clip_norm == 1.0


def test_a_checkpoint_goes_on(mlpengine, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(GOLDEN, run)
    (run / "checkpoints").mkdir()
    (run / CHECKPOINT).rename(run / "checkpoints" / CHECKPOINT)
    (run / "model.safetensors").unlink()
    (run / "run.lock").touch()
    found = mlpengine("train", "--resume", "run")
    assert found.code == 0
    assert "after 3 whole epochs" in found.err
    now, then = (np.genfromtxt(f / "metrics.csv", delimiter=",")[1:] for f in (run, GOLDEN))
    np.testing.assert_allclose(now, then, rtol=1e-4)
