"""Computed columns and row filters in configs, from training to prediction."""

import json

import numpy as np
import pytest

from mlpengine.core.errors import CheckpointError, MlpEngineError
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Table
from mlpengine.models.model import Model
from mlpengine.nn import Mlp
from mlpengine.nn.safetensors_file import write_tensors

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
    assert "features: 2, outputs: 1" in checked.out
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


def test_hostile_formulas_in_a_config_are_refused(folder, mlpengine):
    for text in ("x.__class__", "__import__(x)", "(" * 900 + "x" + ")" * 900, "x + " * 5000 + "x"):
        (folder / "c.yaml").write_text(CONFIG.replace("x * y * z", json.dumps(text)))
        answer = mlpengine("train", "c.yaml")
        assert answer.code == 2
        assert "c.yaml:5: data.features.volume: formula: " in answer.err


LOSS_CONFIG = """\
data: {{source: {source}, target: {target}, drop: {drop}}}
model: {{hidden: [8]}}
optimizer: {{name: adam, lr: 1e-2}}
loss: {loss}
training: {{epochs: 2, batch_size: 32}}
report: false
"""
EQUAL = {
    "huber": (
        "boxes.csv", "price", "[]", "where(abs(y - t) < 1, (y - t) ** 2 / 2, abs(y - t) - 0.5)",
    ),
    "bce_with_logits": ("penguins", "sex", "species", "softplus(y) - t * y"),
}  # fmt: skip
"""A loss of our own, a table, and the same loss as a formula."""


@pytest.mark.parametrize("loss", EQUAL)
def test_a_loss_by_formula_trains_as_the_same_loss_by_name(loss, folder, mlpengine):
    source, target, drop, formula = EQUAL[loss]
    outcomes = []
    for text in (loss, json.dumps({"formula": formula})):
        config = LOSS_CONFIG.format(source=source, target=target, drop=drop, loss=text)
        (folder / "c.yaml").write_text(config)
        run = f"run{len(outcomes)}"
        trained = mlpengine("train", "c.yaml", "--out", run, "--json", "-q")
        assert trained.code == 0
        outcomes.append(json.loads(trained.out)["test"])
        measured = json.loads(mlpengine("evaluate", run, "--json").out)
        assert measured["test"]["loss"] == pytest.approx(outcomes[-1]["loss"], rel=1e-5)
    assert outcomes[1] == pytest.approx(outcomes[0], rel=1e-3)
    if loss == "huber":
        assert mlpengine("train", "--resume", "run1", "-q").code == 0
        assert mlpengine("diagnose", "c.yaml").code == 0


WRONG_LOSSES = {
    "{formula: 'abs(y - q)'}": "c.yaml:4: loss.formula: character 9: no name is",
    "{formula: 3}": "loss.formula: must be text",
}


@pytest.mark.parametrize("loss", WRONG_LOSSES)
def test_wrong_losses_name_the_place(loss, folder, mlpengine):
    config = LOSS_CONFIG.format(source="boxes.csv", target="price", drop="[]", loss=loss)
    (folder / "c.yaml").write_text(config)
    answer = mlpengine("train", "c.yaml")
    assert answer.code == 2
    assert WRONG_LOSSES[loss] in answer.err


@pytest.mark.parametrize("formula", [3, "y.real", "(" * 1_000_000])
def test_hostile_losses_in_a_model_file_are_refused(formula, tmp_path):
    model = Model(Mlp([4, 1], seed=0), fitted(), "formula", {"text": "(y - t) ** 2"})
    model.save(tmp_path / "m.safetensors")
    assert Model.load(tmp_path / "m.safetensors").plain_loss.text == "(y - t) ** 2"
    header = {**model.to_dict(), "loss_options": {"text": formula}}
    write_tensors(tmp_path / "m.safetensors", model.mlp.params.views, header)
    with pytest.raises(CheckpointError):
        Model.load(tmp_path / "m.safetensors")


def fitted():
    x = np.random.default_rng(0).normal(size=(30, 4))
    return Preprocessor("y").fit(Table.from_arrays(x, x[:, 0]))


ACTIVATION_CONFIG = """\
data: {{source: diabetes}}
model: {{hidden: [8, 8], activation: {activation}}}
training: {{epochs: 4, batch_size: 31, backend: {backend}}}
report: false
"""
"""Its 310 training rows are ten whole batches, so that one program is compiled."""


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_an_activation_by_formula_trains_as_the_one_by_name(backend, folder, mlpengine):
    losses = []
    for i, text in enumerate(("mish", "[mish, x * tanh(softplus(x))]")):
        (folder / "c.yaml").write_text(ACTIVATION_CONFIG.format(activation=text, backend=backend))
        trained = mlpengine("train", "c.yaml", "--out", f"run{i}", "--json", "-q")
        assert trained.code == 0
        losses.append(json.loads(trained.out)["train"]["loss"])
        assert (
            json.loads((folder / f"run{i}" / "environment.json").read_text())["backend"] == backend
        )
    assert losses == pytest.approx(losses[:1] * 2, rel=1e-5)
    exported = mlpengine("export", "run1", "--format", "onnx", "-o", "m.onnx", "--json")
    assert json.loads(exported.out)["difference"] < 1e-5
    assert mlpengine("export", "run1", "--format", "c", "-o", "m.c").code == 0
    assert "v_tanh" in (folder / "m.c").read_text()
    assert mlpengine("train", "--resume", "run1", "-q").code == 0
    assert mlpengine("summary", "run1").code == 0


WRONG_ACTIVATIONS = {
    "x * tahn(x)": "c.yaml:2: model.activation: formula: character 5: no function is called",
    "[relu, y + 1]": "c.yaml:2: model.activation[1]: formula: character 1: no name is called 'y'",
    "sillu": "did you mean 'silu'?",
}


@pytest.mark.parametrize("activation", WRONG_ACTIVATIONS)
def test_wrong_activations_name_the_place(activation, folder, mlpengine):
    (folder / "c.yaml").write_text(ACTIVATION_CONFIG.format(activation=activation, backend="auto"))
    answer = mlpengine("train", "c.yaml")
    assert answer.code == 2
    assert WRONG_ACTIVATIONS[activation] in answer.err


@pytest.mark.parametrize("text", [3, "x.real", "x + " * 250_000])
def test_hostile_activations_in_a_model_file_are_refused(text, tmp_path):
    mlp = Mlp([4, 3, 1], activation="x / (1 + abs(x))", seed=0)
    mlp.save(tmp_path / "m.safetensors")
    assert Mlp.load(tmp_path / "m.safetensors").layers[0].activation.text == "x / (1 + abs(x))"
    header = mlp.describe()
    header["settings"]["activation"][0]["text"] = text
    write_tensors(tmp_path / "m.safetensors", mlp.params.views, {"network": header})
    with pytest.raises(MlpEngineError):
        Mlp.load(tmp_path / "m.safetensors")
