"""Tasks and options that no other test takes from a config to predictions of a file."""

import json

import numpy as np
import pytest

RNG = np.random.default_rng(5)
ROWS = 90
X = RNG.normal(size=(ROWS, 3))
KIND = X[:, 0] + X[:, 1] > 0
COLUMNS = {
    "a": X[:, 0],
    "b": X[:, 1],
    "c": X[:, 2],
    "sum": X.sum(axis=1) * 100 + 7,
    "difference": X[:, 0] - X[:, 1],
    "kind": np.where(KIND, "up", "down"),
    "high": (X[:, 0] > 0).astype(int),
    "low": (X[:, 1] < 0).astype(int),
    "word": [f"w{i % 30}" for i in range(ROWS)],
}
OTHERS = set(COLUMNS) - {"a", "b", "c"}

CASES = {
    "several numbers": ("target: [sum, difference], drop: {drop}", "r2", 0.6),
    "labels": ("target: [high, low], drop: {drop}", "accuracy", 0.6),
    "own files": (
        "target: kind, validation_source: more.csv, test_source: more.csv, drop: {drop}",
        "accuracy",
        0.75,
    ),
}


def write(path):
    names = list(COLUMNS)
    lines = [",".join(names)]
    lines += [",".join(str(COLUMNS[name][i]) for name in names) for i in range(ROWS)]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.no_cover
@pytest.mark.parametrize("name", CASES)
def test_from_config_to_predictions(name, mlpengine, tmp_path):
    data, metric, least = CASES[name]
    write(tmp_path / "rows.csv")
    write(tmp_path / "more.csv")
    used = {word for word in COLUMNS if f" {word}" in data or f"[{word}" in data}
    data = data.format(drop="[" + ", ".join(sorted(OTHERS - used)) + "]")
    (tmp_path / "c.yaml").write_text(
        "data: {source: rows.csv, " + data + "}\nmodel: {hidden: [16]}\n"
        "optimizer: {lr: 2e-2}\ntraining: {epochs: 40, batch_size: 16}\nreport: false\n"
    )
    found = mlpengine("train", "c.yaml", "--out", "run", "--json")
    assert found.code == 0
    if name == "own files":
        assert "270 rows (90 train, 90 validation, 90 test), 3 features\n" in found.err
    assert json.loads(found.out)["test"][metric] >= least
    predicted = json.loads(mlpengine("predict", "run", "more.csv", "--json").out)
    assert predicted["rows"] == ROWS
    measured = json.loads(mlpengine("evaluate", "run", "more.csv", "--json").out)
    assert measured["data"][metric] >= least
    assert mlpengine("train", "--resume", "run", "-q").code == 0


def test_streams_are_float32_and_of_files(mlpengine, tmp_path):
    write(tmp_path / "rows.csv")
    text = "data: {source: rows.csv, target: kind, stream: true, drop: [word]}\n"
    (tmp_path / "c.yaml").write_text(text)
    found = mlpengine("train", "c.yaml", "--set", "data={source: penguins, stream: true}")
    assert found.code == 2
    assert "penguins: only CSV, Parquet and Feather files can be streamed" in found.err
    settings = ["--set", "training.dtype=float64"]
    assert (
        "data.stream: streamed features are float32" in mlpengine("train", "c.yaml", *settings).err
    )
