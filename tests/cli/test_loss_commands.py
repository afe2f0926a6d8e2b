"""Losses that predict something else than a mean, from training to prediction and export."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mlpengine.data.tables import Column, Table
from mlpengine.models.calibration import Residuals
from mlpengine.training.loading import load

RNG = np.random.default_rng(0)
ROWS = 900
X = RNG.uniform(-2, 2, (ROWS, 2))
MEAN = np.exp(4 + X[:, 0])
NOISE = RNG.normal(size=ROWS)
TARGETS = {
    "count": RNG.poisson(MEAN),
    "size": RNG.gamma(20, MEAN / 20),
    "level": 100 + 20 * X[:, 0] + 5 * np.exp(X[:, 1] / 2) * NOISE,
}
CONFIG = """\
data: {{source: rows.csv, target: {target}, drop: {drop}}}
model: {{hidden: [16, 16], activation: tanh}}
loss: {loss}
optimizer: {{lr: 1e-2}}
training: {{epochs: 40, batch_size: 32, backend: {backend}}}
report: false
"""


@pytest.fixture
def folder(tmp_path):
    table = np.column_stack([X, *TARGETS.values()])
    header = ",".join(["a", "b", *TARGETS])
    np.savetxt(tmp_path / "rows.csv", table, "%.9g", ",", header=header, comments="")
    return tmp_path


def write(folder, loss, target, backend="numpy"):
    drop = json.dumps([name for name in TARGETS if name != target])
    config = CONFIG.format(loss=loss, target=target, drop=drop, backend=backend)
    (folder / "c.yaml").write_text(config)


def predictions(text):
    header, *lines = text.splitlines()
    return header.split(",")[1:], np.array([[float(x) for x in r.split(",")[1:]] for r in lines])


@pytest.mark.parametrize(("loss", "learned"), [("poisson", "none"), ("mse", "log")])
def test_intervals_of_positive_targets_are_not_negative(loss, learned, folder, mlpengine):
    write(folder, loss, "size" if learned == "log" else "count")
    settings = ["--set", "training.epochs=2", "--set", "training.folds=3"]
    settings += ["--set", f"data.transform_target={learned}"]
    assert mlpengine("train", "c.yaml", "--out", "run", "-q", *settings).code == 0
    header, values = predictions(mlpengine("predict", "run", "rows.csv", "--interval", 0.98).out)
    assert [name.partition("_")[2] for name in header] == ["", "low", "high"]
    predicted, low, high = values.T
    assert (low <= predicted).all()
    assert (predicted <= high).all()
    errors = np.linspace(-1e3, 1e3, 99)[:, None]  # which would lead below 0
    wide = replace(load("run"), residuals=Residuals.of(errors, np.zeros((99, 1))))
    low, high = wide.predict_interval("rows.csv", 0.9)
    assert low.min() == 0
    assert high.min() > 0


WRONG = {
    "poisson": ("poisson", "count", -3, "poisson: a target must be 0 or more (-3)"),
    "gamma": ("gamma", "size", 0, "gamma: a target must be more than 0 (0)"),
}


@pytest.mark.parametrize(
    ("name", "command", "line"), [("poisson", "check", 3), ("gamma", "train", 700)]
)  # rows of different parts
def test_a_target_outside_the_domain_is_named(name, command, line, folder, mlpengine):
    loss, target, value, message = WRONG[name]
    write(folder, loss, target)
    lines = (folder / "rows.csv").read_text().splitlines()
    cells = lines[line - 1].split(",")
    cells[2 + list(TARGETS).index(target)] = str(value)
    lines[line - 1] = ",".join(cells)
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    answer = mlpengine(command, "c.yaml")
    assert answer.code == 2
    assert f"rows.csv: line {line}, column '{target}': {message}" in answer.err


def test_an_exposure_is_a_target_divided_and_weighted(folder, mlpengine):
    write(folder, "poisson", "count")
    lines = (folder / "c.yaml").read_text()
    (folder / "c.yaml").write_text(lines.replace("target: count", "target: count, exposure: b"))
    table = np.genfromtxt(folder / "rows.csv", delimiter=",", names=True)
    names, table = table.dtype.names, np.array(table.tolist()) + np.array([0, 2.001, 0, 0, 0])
    np.savetxt(folder / "rows.csv", table, "%.9g", ",", header=",".join(names), comments="")
    assert mlpengine("train", "c.yaml", "--set", "training.epochs=2", "-q").code == 0
    assert predictions(mlpengine("predict", "runs/c", "rows.csv").out)[0] == ["count_per_b"]
    model, rows = load("runs/c"), {n: table[:, k] for k, n in enumerate(names)}
    prepared = model.preprocessor.transform(Table({n: Column(v) for n, v in rows.items()}))
    rates = rows["count"] / rows["b"] / model.preprocessor.target.scale
    np.testing.assert_allclose(prepared.target[:, 0], rates, rtol=1e-6)
    np.testing.assert_allclose(prepared.weights, rows["b"], rtol=1e-6)
    assert "c.yaml:1" in mlpengine("check", "c.yaml", "--set", "loss=mse").err
    table[0, 1] = 0
    np.savetxt(folder / "rows.csv", table, "%.9g", ",", header=",".join(names), comments="")
    done = mlpengine("train", "c.yaml", "-q")
    assert (done.code, "line 2, column 'b'" in done.err) == (2, True)
