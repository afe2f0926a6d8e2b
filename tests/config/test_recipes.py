"""The recipes that `init` writes out: every setting of them reaches the training."""

from dataclasses import replace

import pytest

from mlpengine import fit
from mlpengine.config import load_config
from mlpengine.config.build import load_data, trainer_of
from mlpengine.config.proposal import propose
from mlpengine.config.reader import Document, parse_yaml
from mlpengine.core.errors import DataError, UsageError
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


def test_a_proposal_that_cannot_be_read_is_refused(tmp_path):
    """Before, `init` wrote configs that `check` refused."""
    facts = profile(table(tmp_path, 900), ["y"])

    def text(count):
        drop = {f"{'long ' * 8}{k}": "each text is in one row alone" for k in range(count)}
        whole = replace(facts, drop=drop)
        return propose(whole, ["y"], source="rows.csv", schema="s.json")

    assert len(text(1_000)) > 64_000
    assert len(parse_yaml(text(1_000), "c", Document("c"))["data"]["drop"]) == 1_000
    with pytest.raises(DataError, match="30,000 columns"):
        text(30_000)


def test_comments_of_a_proposal_can_be_followed(tmp_path):
    lines = proposal(table(tmp_path, 900)).splitlines()
    (k,) = (k for k, line in enumerate(lines) if "remove the next two lines" in line)
    one = load(tmp_path, "\n".join(lines[: k + 1] + lines[k + 3 :]))
    assert (one.config.training.folds, one.config.training.members) == (None, ())


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        (60, "plain, linear, smooth"),
        (900, "plain, piecewise, linear, smooth"),
        (4500, "piecewise, linear, smooth"),
    ],
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
