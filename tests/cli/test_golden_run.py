"""Files of version 0.2.0, kept from when they were new (tests/golden): they load for ever."""

import csv
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np

from mlpengine.config import load_config
from mlpengine.data.tables import read_table
from mlpengine.models.model import Model

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


def test_features_keep_their_formula():
    """Numbers are z / sqrt(1 + (z/3)^2), then come bins, then flags of missing values."""
    preprocessor = Model.load(GOLDEN / "model.safetensors").preprocessor
    rows, numbers = read_table(GOLDEN / "rows.csv"), preprocessor.numbers
    raw = np.column_stack([rows[source.column].values for source in numbers.sources])
    filled = np.where(np.isnan(raw), numbers.fill, raw)
    z = (filled - numbers.center) * numbers.factor
    features = preprocessor.transform(rows).features
    expected = (z / np.sqrt(1 + np.square(z / 3))).astype(np.float32)
    np.testing.assert_array_equal(features[:, :2], expected)
    edges = numbers.bins.edges[1]
    shares = [(filled[:, 1] - low) / (high - low) for low, high in pairwise(edges)]
    assert len(shares) == 3
    inner = np.clip(shares[1], 0, 1).astype(np.float32)
    assert any(np.allclose(column, inner, atol=1e-6) for column in features.T)
    np.testing.assert_array_equal(features[:, numbers.width - 1], np.isnan(raw[:, 0]))


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
