"""Presets: short for the keys that `init` writes out."""

import numpy as np
import pytest

from mlpengine.config import load_config
from mlpengine.config.build import load_data, trainer_of
from mlpengine.config.proposal import propose
from mlpengine.core.errors import ConfigError
from mlpengine.data.features import profile
from mlpengine.data.tables import read_table
from mlpengine.estimators import MlpClassifier
from mlpengine.settings.recipes import PRESETS

SECTIONS = ("model", "optimizer", "schedule", "training")


def load(folder, text):
    path = folder / "config.yaml"
    path.write_text(text)
    return load_config(path)


def table(folder, rows=4500):
    path = folder / "rows.csv"
    lines = (f"{i % 97},{i % 13 / 7},{(i % 97) * 2.5 + i % 5}" for i in range(rows))
    path.write_text("a,b,y\n" + "\n".join(lines) + "\n")
    return read_table(path)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_says_what_init_writes_out(preset, tmp_path):
    facts = profile(table(tmp_path), ["y"])
    text = propose(facts, ["y"], source="rows.csv", schema="s.json", preset=preset)
    assert "preset:" not in text
    written = load(tmp_path, text).config
    head = "data: {source: rows.csv, target: y, task: regression}\n"
    short = load(tmp_path, head + f"model: {{preset: {preset}}}\n").config
    for name in SECTIONS:
        expected, got = (getattr(c, name).model_dump() for c in (written, short))
        chosen_by_rows = {"preset": None, "folds": None, "kinds": None}
        assert got | chosen_by_rows == expected | chosen_by_rows
    assert written.data.standardize == short.data.standardize


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [(60, "plain, linear"), (900, "plain, piecewise, linear"), (4500, "piecewise, linear")],
)
def test_tables_of_any_size_with_folds_have_a_linear_model(rows, kinds, tmp_path):
    facts = profile(table(tmp_path, rows), ["y"])
    assert f"kinds: [{kinds}]" in propose(facts, ["y"], source="rows.csv", schema="s.json")


def test_classes_of_realmlp_are_smoothed_in_configs_and_estimators(tmp_path):
    lines = (f"{i % 97},{'ab'[i % 97 > 50]}" for i in range(200))
    (tmp_path / "rows.csv").write_text("a,y\n" + "\n".join(lines) + "\n")
    facts = profile(read_table(tmp_path / "rows.csv"), ["y"])
    text = propose(facts, ["y"], source="rows.csv", schema="s", preset="realmlp")
    head = "data: {source: rows.csv, target: y, task: classification}\n"
    short = load(tmp_path, head + "model: {preset: realmlp}\n").config
    other = load(tmp_path, head + "model: {preset: realmlp}\nloss: binary_focal\n").config
    assert other.loss.name == "binary_focal"
    x, y = np.arange(40.0)[:, None], np.arange(40) > 20
    fitted = MlpClassifier(preset="realmlp").partial_fit(x, y, classes=[False, True])
    for loss in (load(tmp_path, text).config.loss, short.loss, fitted._loss):
        assert (loss.name, loss.label_smoothing) == ("softmax_cross_entropy", 0.1)


def test_what_the_config_says_wins(tmp_path):
    config = load(
        tmp_path,
        "data: {source: rows.csv, target: y, task: regression, standardize: standard}\n"
        "model: {preset: realmlp, hidden: [8], front: {scaling: false}}\n"
        "optimizer: {lr: 0.5, groups: {biases: {lr: 1.0}}}\n"
        "schedule: cosine\n"
        "training: {epochs: 3}\n",
    ).config
    assert config.data.standardize == "standard"
    assert config.model.hidden == [8]
    assert config.model.front.embedding == "pbld"
    assert not config.model.front.scaling
    assert config.optimizer.lr == 0.5
    assert config.optimizer.betas == [0.9, 0.95]
    assert config.optimizer.groups["biases"].lr == 1.0
    assert config.optimizer.groups["biases"].weight_decay == 0.0
    assert config.schedule.name == "cosine"
    assert (config.training.epochs, config.training.batch_size) == (3, 256)


def test_another_optimizer_takes_nothing_of_the_preset(tmp_path):
    text = (
        "data: {source: rows.csv, target: y, task: regression, split: {validation: 0}}\n"
        "model: {preset: realmlp}\noptimizer: sgd\n"
    )
    config = load(tmp_path, text).config
    assert (config.optimizer.name, config.optimizer.lr) == ("sgd", 0.01)
    assert config.training.early_stopping is None


@pytest.mark.parametrize(
    ("settings", "calibration"),
    [
        ("", "temperature"),
        ("training: {calibration: none}", "none"),
        ("training: {refit: true}", "none"),
    ],
)
def test_smoothed_labels_take_a_temperature_where_rows_are_left_for_it(
    settings, calibration, tmp_path
):
    data = "data: {source: rows.csv, target: y, task: classification}"
    text = f"{data}\nmodel: {{preset: realmlp}}\n{settings}\n"
    assert load(tmp_path, text).config.training.calibration == calibration
    given = "training: {refit: true, calibration: temperature}\n"
    with pytest.raises(ConfigError, match="no rows are left for a temperature"):
        load(tmp_path, f"{data}\nmodel: {{hidden: [4]}}\n{given}")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{preset: realmlp}", "config.yaml:2: model.preset: realmlp needs data.task"),
        ("{preset: realmpl}", "did you mean 'realmlp'"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(model, message, tmp_path):
    with pytest.raises(ConfigError) as error:
        load(tmp_path, f"data: {{source: rows.csv, target: y}}\nmodel: {model}\n")
    assert message in str(error.value)


def test_a_preset_builds_all_of_it_and_the_resolved_config_says_the_same(tmp_path):
    table(tmp_path, 300)
    text = "data: {source: rows.csv, target: y, task: regression}\nmodel: {preset: realmlp}\n"
    file = load(tmp_path, text)
    trainer = trainer_of(load_data(file))
    mlp, optimizer = trainer.networks[0], trainer.step.optimizer
    assert mlp.front.embedded == 2
    assert mlp.learned_activation
    assert mlp.parametrization == "neural_tangent"
    assert {run.lr for run in optimizer.ranges} == {0.1, 6.0, 1.0}
    assert optimizer.scheduled_decay(0) == 0.02
    z = mlp.predict(trainer.train.x)
    assert z.std() == pytest.approx(1, rel=0.2)  # of the rows that the weights were fitted on
    again = load(tmp_path, file.resolved())
    assert again.config.model_dump(exclude={"name", "data"}) == file.config.model_dump(
        exclude={"name", "data"}
    )
