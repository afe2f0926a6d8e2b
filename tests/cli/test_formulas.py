"""Computed columns and row filters in configs, from training to prediction."""

import json

import numpy as np
import pytest

CONFIG = """\
data:
  source: boxes.csv
  target: price
  features:
    volume: x * y * z
    log volume: log(volume)
  where: x > 0 and y > 0
  drop: [x, y, z]
model: {hidden: [16]}
optimizer: {name: adam, lr: 1e-2}
training: {epochs: 30, batch_size: 16}
report: false
"""


def boxes(seed, rows=300):
    g = np.random.default_rng(seed)
    lines = ["x,y,z,price"]
    for i in range(rows):
        x, y, z = g.uniform(0.5, 3, 3).round(2)
        if i % 20 == 5:
            x = -1.0
        lines.append(f"{x},{y},{z},{round(2 * abs(x) * y * z + 1, 3)}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "boxes.csv").write_text(boxes(0))
    (tmp_path / "new.csv").write_text(boxes(1))
    (tmp_path / "c.yaml").write_text(CONFIG)
    return tmp_path


def test_formulas_from_training_to_prediction(folder, mlpengine):
    checked = mlpengine("check", "c.yaml")
    assert "boxes.csv: 15 rows of 300 left out: data.where does not hold" in checked.out
    assert "inputs of the network: 2, outputs: 1" in checked.out
    assert "volume" in checked.out
    trained = mlpengine("train", "c.yaml", "--out", "run")
    assert trained.code == 0
    assert "15 rows of 300 left out" in trained.err
    measured = mlpengine("evaluate", "run", "new.csv", "--json")
    facts = json.loads(measured.out)
    assert facts["rows"] == {"data": 285}
    assert facts["data"]["r2"] > 0.99
    assert "new.csv: 15 rows of 300 left out: data.where does not hold" in measured.err
    (folder / "two.csv").write_text("z,y,x\n1,1,1\n1,2,3\n")
    predicted = mlpengine("predict", "run", "two.csv")
    assert predicted.err == ""
    values = [float(line.split(",")[1]) for line in predicted.out.splitlines()[1:]]
    np.testing.assert_allclose(values, [3, 13], atol=1)
    assert mlpengine("train", "--resume", "run", "-q").code == 0


def test_predicting_rows_that_were_left_out_of_training_is_a_warning(folder, mlpengine):
    config = CONFIG.replace("    log volume: log(volume)\n", "")
    (folder / "c.yaml").write_text(config)
    assert mlpengine("train", "c.yaml", "--epochs", 1, "--out", "run", "-q").code == 0
    predicted = mlpengine("predict", "run", "new.csv")
    assert "15 rows of 300 outside the training filter: not x > 0 and y > 0" in predicted.err
    assert len(predicted.out.splitlines()) == 301


WRONG = {
    "x * y * z": ("x * yy", 5, "features.volume", "character 5: no name is called 'yy'; did you"),
    "log(volume)": ("log(volume", 6, "features.log volume", "character 4"),
    "x > 0 and y > 0": ("x + y", 7, "where", "must be a comparison"),
}
"""Text of the config, what stands in its place, its line and key, and a part of the message."""


@pytest.mark.parametrize("text", WRONG)
def test_an_error_names_file_line_key_and_character(text, folder, mlpengine):
    wrong, line, key, message = WRONG[text]
    (folder / "c.yaml").write_text(CONFIG.replace(text, wrong))
    answer = mlpengine("train", "c.yaml")
    assert answer.code == 2
    (told,) = [one for one in answer.err.splitlines() if f"c.yaml:{line}: data.{key}: " in one]
    assert message in told
