"""The recipes that `init` writes out: every setting of them reaches the training."""

import pytest

from mlpengine import fit
from mlpengine.config import load_config
from mlpengine.config.build import load_data, trainer_of
from mlpengine.config.proposal import propose
from mlpengine.core.errors import ConfigError, UsageError
from mlpengine.data.features import profile
from mlpengine.data.tables import read_table
from mlpengine.estimators import MlpClassifier
from mlpengine.settings.recipes import PRESETS, recipe


def load(folder, text):
    path = folder / "config.yaml"
    path.write_text(text)
    return load_config(path)


def table(folder, rows=4500):
    path = folder / "rows.csv"
    lines = (f"{i % 97},{i % 13 / 7},{(i % 97) * 2.5 + i % 5}" for i in range(rows))
    path.write_text("a,b,y\n" + "\n".join(lines) + "\n")
    return read_table(path)


def proposal(rows, preset="plain"):
    return propose(profile(rows, ["y"]), ["y"], source="rows.csv", schema="s.json", preset=preset)


@pytest.mark.parametrize("preset", PRESETS)
def test_init_writes_the_recipe(preset, tmp_path):
    rows = table(tmp_path)
    written = load(tmp_path, proposal(rows, preset)).config.settings
    run = recipe(preset, "regression", rows.n_rows)
    assert written.network == run.network
    for name in ("optimizer", "schedule", "epochs", "batch_size", "clip_norm", "early_stopping"):
        assert getattr(written.training, name) == getattr(run.training, name)
    assert written.features.standardize == run.features.standardize


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [(60, "plain, linear"), (900, "plain, piecewise, linear"), (4500, "piecewise, linear")],
)
def test_tables_of_any_size_with_folds_have_a_linear_model(rows, kinds, tmp_path):
    assert f"members: [{kinds}]" in proposal(table(tmp_path, rows))


def test_classes_of_realmlp_are_smoothed_in_configs_and_estimators(tmp_path):
    lines = (f"{i % 97},{'ab'[i % 97 > 50]}" for i in range(200))
    (tmp_path / "rows.csv").write_text("a,y\n" + "\n".join(lines) + "\n")
    config = load(tmp_path, proposal(read_table(tmp_path / "rows.csv"), "realmlp")).config
    fitted = MlpClassifier(preset="realmlp").partial_fit([[0.0], [1.0]], [0, 1], classes=[0, 1])
    for loss in (config.loss, fitted._loss):
        assert (loss.name, loss.label_smoothing) == ("softmax_cross_entropy", 0.1)
    assert config.training.calibration == "temperature"


def test_a_temperature_needs_rows(tmp_path):
    data = "data: {source: rows.csv, target: y, task: classification}"
    with pytest.raises(ConfigError, match="no rows are left for a temperature"):
        load(tmp_path, f"{data}\ntraining: {{refit: true, calibration: temperature}}\n")


def test_all_of_realmlp_is_built_and_the_resolved_config_says_the_same(tmp_path):
    file = load(tmp_path, proposal(table(tmp_path, 300), "realmlp").replace("folds: 8", "folds:"))
    file = load(tmp_path, file.resolved().replace("members: [periodic, linear]", "members: []"))
    trainer = trainer_of(load_data(file))
    mlp, optimizer = trainer.networks[0], trainer.step.optimizer
    assert mlp.input_layer.embedded == 2
    assert mlp.learned_activation
    assert mlp.parametrization == "neural_tangent"
    assert {run.lr for run in optimizer.ranges} == {0.1, 6.0, 1.0}
    assert optimizer.scheduled_decay(0) == 0.02
    z = mlp.predict(trainer.train.x)
    assert z.std() == pytest.approx(1, rel=0.2)  # of the rows that the weights were fitted on
    assert load(tmp_path, file.resolved()).config == file.config


def test_fit_takes_a_recipe():
    quick = {"training": {"folds": None, "epochs": 1}, "model": {"hidden": [8]}}
    model, _ = fit("penguins", preset="realmlp", **quick)
    assert model.mlp.input_layer.embedding == "pbld"
    with pytest.raises(UsageError, match="preset must be one of plain, realmlp"):
        fit("penguins", preset="realmpl", **quick)
