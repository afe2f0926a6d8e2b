"""Full-batch optimizers by configs: fits, folds, verdicts, exports, resumed runs."""

import json

import numpy as np
import pytest

from mlpengine import load

CONFIG = """
data: {source: rows.csv, target: y}
model: {hidden: [12], activation: tanh}
optimizer: OPTIMIZER
training: {epochs: 30, dtype: float64}
report: false
"""
FULL_BATCH = "levenberg_marquardt", "bayesian", "lbfgs"


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (300, 3))
    y = np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2]
    np.savetxt(
        tmp_path / "rows.csv", np.column_stack([x, y]), "%.9g", ",", header="a,b,c,y", comments=""
    )
    return tmp_path


def test_each_fold_is_one_batch(mlpengine, folder):
    text = CONFIG.replace("OPTIMIZER", "{name: bayesian, damping: 0.01}")
    (folder / "c.yaml").write_text(text.replace("epochs: 30", "epochs: 15, folds: 3"))
    mlpengine("train", "c.yaml", "-q")
    result = json.loads((folder / "runs" / "c" / "result.json").read_text())
    assert result["out_of_fold"]["r2"] > 0.98


def test_the_device_needs_another_optimizer(mlpengine, folder):
    (folder / "c.yaml").write_text(CONFIG.replace("OPTIMIZER", "lbfgs"))
    mlpengine("train", "c.yaml", "-q")
    refused = mlpengine("export", "runs/c", "--format", "c-train", "-o", "c.c")
    assert (refused.code, "--set optimizer=sgd" in refused.err) == (2, True)
    mlpengine("export", "runs/c", "--format", "c-train", "--set", "optimizer=sgd", "-o", "c.c")
    assert (folder / "c.c").exists()


SMOOTH = """
data: {source: rows.csv, target: y, split: {test: 0}, encoding: piecewise, bins: 4}
model: {hidden: [4]}
training: {epochs: 1, folds: 2, members: [plain, smooth]}
report: false
"""


def test_a_model_of_smooth_networks_alone_is_used_by_every_command(mlpengine, folder):
    (folder / "c.yaml").write_text(SMOOTH)
    assert mlpengine("train", "c.yaml", "-q").code == 0
    result = json.loads((folder / "runs" / "c" / "result.json").read_text())
    assert result["ensemble_weights"] == {"plain": 0.0, "smooth": 1.0}
    assert [one.sizes[1:] for one in load("runs/c").networks] == [(30, 1)] * 2
    for command in ("evaluate", "summary", "explain", "export", "diagnose"):
        assert mlpengine(command, "runs/c").code == 0
    assert mlpengine("train", "--resume", "runs/c").code == 0
