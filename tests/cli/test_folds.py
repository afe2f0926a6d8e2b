"""Several networks from the command line: folds, seeds, and every command on such a run."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from dying import saving_until

from mlpengine import fit
from mlpengine.config import load_config
from mlpengine.config.build import load_data
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import read_table
from mlpengine.models.card import facts_of
from mlpengine.models.model import Model
from mlpengine.training.checkpoint import Checkpoints
from mlpengine.training.learner import Learner
from mlpengine.training.loading import load
from mlpengine_cli import train as train_module

COMPARED = ("model.safetensors", "metrics.csv", "diagnostics.csv")
CONFIG = """\
data: {source: rows.csv, target: TARGET}
model: {hidden: [6], dropout: 0.1}
training: {epochs: 6, batch_size: 8, folds: 4, early_stopping: {patience: 2}}
diagnostics: {every: 3}
report: false
"""


@pytest.fixture
def rows(tmp_path):
    """Write a table of classes, a number, groups and times; return its columns."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 120))
    y = a + b**2 + 0.1 * rng.standard_normal(120)
    kinds = np.array(["low", "mid", "high"])[np.digitize(y, [0, 1.5])]
    zones = rng.choice(["east", "west", ""], 120)
    groups, days = np.arange(120) // 5, np.arange(120)
    columns = {
        "a": a, "b": b, "zone": zones, "kind": kinds, "y": y, "pack": groups, "day": days
    }  # fmt: skip
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join([",".join(columns), *lines]) + "\n")
    return columns


def write_config(name, target, **changes):
    text = CONFIG.replace("TARGET", target)
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    Path(name).write_text(text)


def train(mlpengine, config, *options):
    done = mlpengine("train", config, "-q", "--json", *options)
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.mark.parametrize("target", ["kind", "y"])
def test_each_command_knows_folds(target, mlpengine, rows):
    others = sorted({"kind", "y"} - {target})
    write_config("c.yaml", target, drop=(f"target: {target}", f"target: {target}, drop: {others}"))
    shown = mlpengine("train", "c.yaml")
    assert shown.code == 0, shown.err
    assert "network  4 of " in shown.err
    assert "out-of-fold" in shown.out
    assert "validation " not in shown.out
    result = json.loads(Path("runs/c/result.json").read_text())
    assert (result["members"], len(result["best_epochs"])) == (4, 4)
    assert result["train"] == result["validation"] == {}
    measured = json.loads(mlpengine("evaluate", "runs/c", "--json").out)
    assert measured["rows"] == {"out_of_fold": 102, "test": 18}
    for part in measured["rows"]:
        for name, value in result[part].items():
            assert measured[part][name] == pytest.approx(value, rel=1e-5)
    assert 0 < result["spread"]["out_of_fold"]["deviation"]["loss"] < 1
    assert mlpengine("predict", "runs/c", "rows.csv", "--json").code == 0
    for command in (["summary"], ["diagnose"], ["export"], ["export", "--format", "c"]):
        done = mlpengine(command[0], "runs/c", *command[1:])
        assert (done.code, done.err) == (0, "")
    assert "network   4 of " in mlpengine("summary", "runs/c").out
    train(mlpengine, "c.yaml", "--set", "training.folds=null")
    compared = mlpengine("compare", "runs/c", "runs/c-002")
    assert compared.code == 0
    assert "out-of-fold loss" in compared.out


def test_the_score_is_that_of_each_row_by_the_member_that_did_not_see_it(mlpengine, rows):
    write_config("c.yaml", "y", drop=("target: y", "target: y, drop: kind, split: {test: 0}"))
    result = train(mlpengine, "c.yaml")
    model, table = load("runs/c"), read_table("rows.csv")
    folds = load_data(load_config("c.yaml")).folds
    x = np.asarray(model.preprocessor.transform(table).features, "f4")
    outputs = np.array([model.task.predict(m.predict(x))[:, 0] for m in model.networks])
    errors = outputs[folds, np.arange(120)] - rows["y"]
    assert result["out_of_fold"]["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-6)
    others = np.ma.array(outputs, mask=np.arange(4)[:, None] == folds)  # that trained on the row
    differ = others.var(axis=0, ddof=1).mean() / ((others - rows["y"]) ** 2).mean()
    factor = np.sqrt(1 - (1 - 1 / 4) * differ)
    of_mean = result["spread"]["out_of_fold"]["of_mean"]
    for name in ("rmse", "mae"):
        assert of_mean[name] == pytest.approx(result["out_of_fold"][name] * factor, rel=1e-5)
    kept = model.residuals  # of so few rows the size of errors is known as a whole
    residuals = kept.errors[:, 0] * kept.scales[0, 0]
    np.testing.assert_allclose(residuals, np.sort(-errors) * factor, rtol=1e-4, atol=1e-5)
    fitted = Preprocessor("y", drop=["kind"]).fit(table)  # on all rows
    np.testing.assert_array_equal(fitted.transform(table).features, x)


@pytest.mark.parametrize("key", ["group: pack", "time: day"])
def test_a_score_of_older_rows_is_not_said_to_be_that_of_newer_ones(key, mlpengine, rows):
    write_config(
        "c.yaml", "y", drop=("target: y", f"target: y, drop: kind, split: {{test: 0.2, {key}}}")
    )
    said = [mlpengine("train", "c.yaml", "-q", "--epochs", 1, "--out", "run").out]
    said.append(mlpengine("evaluate", "run").out)
    for text in said:  # before, that of newer rows was said to be as good
        assert ("rows newer than all of these may be predicted worse" in text) is ("day" in key)
        assert "predicts new rows as well" not in text or key == "group: pack"


def same(one, other):
    return all(Path(one, f).read_bytes() == Path(other, f).read_bytes() for f in COMPARED)


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_a_run_that_is_stopped_goes_on_bit_for_bit(backend, mlpengine, rows, monkeypatch):
    write_config("c.yaml", "kind", backend=("epochs: 6", f"epochs: 6, backend: {backend}"))
    train(mlpengine, "c.yaml", "--out", "whole")
    real, calls = Learner._train_epoch, []

    def stopping(learner):
        calls.append(learner)
        if len(calls) == 10:  # within the third epoch of one member
            learner.after_step.insert(0, lambda: states[0]._stop())
            learner.may_skip = False
        return real(learner)

    states = []
    attach = train_module.Stopping.attach

    def attached(state, stop):
        states.append(state)
        attach(state, stop)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "_train_epoch", stopping)
        patch.setattr(train_module.Stopping, "attach", attached)
        done = mlpengine("train", "c.yaml", "--out", "stopped")
    assert "resume with: mlpengine train --resume stopped" in done.out
    checkpoint = Checkpoints(Path("stopped/checkpoints")).newest()
    cursors = [member["batches"]["cursor"] for member in checkpoint.state["members"]]
    assert 8 in cursors  # of the tenth call, after its first batch; threads stop where they are
    resumed = mlpengine("train", "--resume", "stopped")
    assert resumed.code == 0
    assert "after 2 whole epochs" in resumed.err
    assert same("whole", "stopped")


def test_a_run_that_died_goes_on_and_predicts(mlpengine, rows):
    write_members("kind", every=("epochs: 6", "epochs: 6, checkpoint: {every_epochs: 2}"))
    train(mlpengine, "c.yaml", "--out", "whole")
    with saving_until(lambda _, state: len(state["history"]["rows"]) >= 4):
        assert mlpengine("train", "c.yaml", "--out", "died", "-q").code == 130
    predicted = mlpengine("predict", "died", "rows.csv")
    assert (predicted.code, len(predicted.out.splitlines())) == (0, 121)
    best = Checkpoints(Path("died/checkpoints")).newest().state["members"]
    for network, member in zip(load("died").networks, best, strict=True):
        np.testing.assert_array_equal(network.params.flat, member["best"]["weights"])
    assert mlpengine("train", "--resume", "died").code == 0
    assert same("whole", "died")


def test_a_study_of_seeds_gives_mean_and_spread(mlpengine, rows):
    changes = {"folds": ("folds: 4, ", ""), "drop": ("target: y", "target: y, drop: kind")}
    write_config("c.yaml", "y", **changes)
    result = train(mlpengine, "c.yaml", "--set", "training.seeds=3")
    model = load("runs/c")
    measured = json.loads(mlpengine("evaluate", "runs/c", "--json").out)
    assert set(measured["rows"]) == {"train", "validation", "test"}
    scores = []
    for number, member in enumerate(model.networks):
        Model(member, model.preprocessor, model.loss).save(f"m{number}.safetensors")
        Path(f"m{number}").mkdir()
        Path(f"m{number}.safetensors").rename(f"m{number}/model.safetensors")
        Path(f"m{number}/config.resolved.yaml").write_text(
            Path("runs/c/config.resolved.yaml").read_text().replace("seeds: 3", "seeds: null")
        )
        scores.append(json.loads(mlpengine("evaluate", f"m{number}", "--json").out))
    for part in measured["rows"]:
        for name in ("rmse", "r2", "loss"):
            values = [score[part][name] for score in scores]
            spread = result["spread"][part]
            assert spread["mean"][name] == pytest.approx(np.mean(values), rel=1e-5)
            assert spread["deviation"][name] == pytest.approx(np.std(values, ddof=1), rel=1e-3)
    shown = mlpengine("train", "c.yaml", "--set", "training.seeds=3", "-q").out
    assert shown.count("one network") == 3


BAD = {
    "both": (["training.seeds=2"], "give folds or seeds, not both"),
    "one": (["training.folds=1"], "folds"),
    "validation": (["data.split.validation=0.1"], "leave this out: with training.folds"),
    "temperature": (
        [
            *("training.folds=null", "training.calibration=temperature"),
            *("data.split.validation=0", "training.early_stopping=false"),
        ],
        "a temperature needs validation rows",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_folds_that_cannot_be_are_refused(name, mlpengine, rows):
    write_config("c.yaml", "kind")
    settings, message = BAD[name]
    done = mlpengine("train", "c.yaml", settings=settings)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not Path("runs").exists()


def test_progress_and_estimates_count_all_networks(mlpengine, rows):
    write_config("c.yaml", "kind")
    known = json.loads(mlpengine("diagnose", "c.yaml", "--json").out)
    assert known["estimate"]["steps"] == 4 * 6 * 10
    assert mlpengine("train", "c.yaml").code == 0
    with open("runs/c/metrics.csv", newline="") as file:
        epochs = [*csv.DictReader(file)]
    assert [int(row["epoch"]) for row in epochs] == [*range(1, len(epochs) + 1)]
    assert int(epochs[0]["steps"]) == 40


def test_predictions_say_how_sure_they_are(mlpengine, rows):
    write_config("c.yaml", "y", drop=("target: y", "target: y, drop: kind"))
    train(mlpengine, "c.yaml")
    options = ["rows.csv", "--interval", "0.9", "--spread"]
    done = mlpengine("predict", "runs/c", *options)
    records = [*csv.DictReader(done.out.splitlines())]
    assert list(records[0]) == ["line", "y", "y_low", "y_high", "y_spread"]
    y, low, high, spread = (
        np.array([float(record[name]) for record in records]) for name in [*records[0]][1:]
    )
    model, table = load("runs/c"), read_table("rows.csv")
    np.testing.assert_allclose(model.predict_interval(table, 0.9), [low, high], rtol=1e-6)
    each = [model.task.predict(m.predict(features(model, table)))[:, 0] for m in model.networks]
    np.testing.assert_allclose(spread, np.std(each, axis=0, ddof=1), rtol=1e-5)
    assert 0.8 < np.mean((low <= rows["y"]) & (rows["y"] <= high)) <= 1
    refused = mlpengine("predict", "runs/c", "rows.csv", "--set", "0.9")
    assert (refused.code, "--set: needs a model of classes" in refused.err) == (2, True)
    assert mlpengine("predict", "runs/c", *options, "-o", "p.npy").code == 0
    np.testing.assert_allclose(np.load("p.npy"), np.c_[y, low, high, spread], rtol=1e-6)


def test_no_predicted_column_takes_the_place_of_another(mlpengine, tmp_path):
    x = np.linspace(0, 1, 60)
    model, _ = fit(
        {"x": x, "y": 2 * x, "y_low": x**2},
        target=["y", "y_low"],
        model={"hidden": [4]},
        training={"epochs": 1, "folds": 2},
    )
    model.save("m.safetensors")
    Path("new.csv").write_text("x\n0.5\n")
    assert mlpengine("predict", "m.safetensors", "new.csv").code == 0
    refused = mlpengine("predict", "m.safetensors", "new.csv", "--interval", "0.9")
    assert refused.code == 2
    assert "two predicted columns would be called 'y_low'" in refused.err


def features(model, table):
    return np.asarray(model.preprocessor.transform(table).features, "f4")


def test_probabilities_are_calibrated_and_exported_so(mlpengine, rows):
    write_config("c.yaml", "kind", drop=("target: kind", "target: kind, drop: y"))
    plain = train(mlpengine, "c.yaml")
    assert plain["calibration"]["temperature"] == 1
    hot = load("runs/c")
    assert "expected calibration error" in mlpengine("train", "c.yaml", "--out", "runs/d").out
    result = train(mlpengine, "c.yaml", "--set", "training.calibration=temperature", "--out", "t")
    Path("runs/c").rename("runs/e")
    Path("t").rename("runs/c")
    assert result["out_of_fold"]["loss"] < plain["out_of_fold"]["loss"]
    model, table = load("runs/c"), read_table("rows.csv", text=["zone"])
    temperature = result["calibration"]["temperature"]
    assert temperature != 1
    assert 0 < result["calibration"]["expected_calibration_error"] < 1
    x = features(model, table)
    logits = [m.predict(x).astype("f8") / temperature for m in hot.networks]
    chances, *each = map(model.task.probabilities, [np.mean(logits, axis=0), *logits])
    np.testing.assert_allclose(model.predict_proba(table), chances, atol=1e-6)
    done = mlpengine("predict", "runs/c", "rows.csv", "--spread", "--json")
    spread = [record["kind_spread"] for record in json.loads(done.out)["predictions"]]
    predicted = chances.argmax(axis=1)
    expected = np.std(each, axis=0, ddof=1)[np.arange(len(x)), predicted]
    np.testing.assert_allclose(spread, expected, rtol=1e-4)
    assert mlpengine("export", "runs/c").code == 0  # compared with our own predictions
    sets = model.predict_set(table, 0.8)
    done = mlpengine("predict", "runs/c", "rows.csv", "--set", "0.8", "--spread", "-o", "p.csv")
    assert (done.code, "kind_spread, kind_set)" in done.err) == (0, True)
    expected = ["|".join(np.array(model.classes)[one]) for one in sets]
    with open("p.csv", newline="") as file:
        assert [record["kind_set"] for record in csv.DictReader(file)] == expected
    assert len({*expected}) > 2
    done = mlpengine("predict", "runs/c", "rows.csv", "--set", "0.8", "--json")
    lists = [record["kind_set"] for record in json.loads(done.out)["predictions"]]
    assert ["|".join(one) for one in lists] == expected
    for option, each in (
        ([], sets),
        (["--by-class"], model.predict_set(table, 0.8, by_class=True)),
    ):
        words = ("--set", "0.8", *option, "-o", "p.npy")
        assert mlpengine("predict", "runs/c", "rows.csv", *words).code == 0
        np.testing.assert_array_equal(np.load("p.npy")[:, len(model.classes) :], each)
    refused = mlpengine("predict", "runs/c", "rows.csv", "--set", "90")
    assert "--set: the level must be a number between 0 and 1" in refused.err
    refused = mlpengine("predict", "runs/c", "rows.csv", "--interval", "0.9")
    assert (refused.code, "interval: needs a model of numbers" in refused.err) == (2, True)


def write_members(target, **changes):
    others = sorted({"kind", "y"} - {target})
    data = f"target: {target}, drop: {others}, encoding: piecewise, bins: 4"
    write_config(
        "c.yaml",
        target,
        data=(f"target: {target}", data),
        model=("hidden: [6]", "hidden: [6], input_layer: {embedding: pbld}"),
        members=("folds: 4", "folds: 3, members: [linear, plain, piecewise, periodic]"),
        **changes,
    )


@pytest.mark.parametrize("target", ["kind", "y"])
def test_networks_of_several_kinds_have_the_best_shares(target, mlpengine, rows, caplog):
    write_members(target)
    started = mlpengine("train", "c.yaml")
    assert "network  9 of " in started.err
    result = json.loads(Path("runs/c/result.json").read_text())
    assert (result["members"], len(result["best_epochs"])) == (9, 9)
    shares = result["ensemble_weights"]
    assert [*shares] == ["plain", "piecewise", "periodic", "linear"]
    assert shares["linear"]  # it is good for these rows
    assert sum(shares.values()) == pytest.approx(1)
    model, used = load("runs/c"), {kind: share for kind, share in shares.items() if share}
    assert len(model.networks) == 3 * len(used)
    assert model.ensemble_weights == (tuple(used.values()) if len(used) > 1 else ())
    facts = facts_of(model)
    assert (facts["networks"], facts["linear_models"]) == (3 * len(used) - 3, 3)
    assert facts["linear_weight"] == pytest.approx(shares["linear"])
    linear = model.mlp.outputs * (model.preprocessor.n_features + 1)
    networks = [len(one.params) for one in model.networks if not one.is_linear]
    assert facts["parameters"] == result["parameters"] == sum(networks) + 3 * linear
    assert f"{facts['parameters']:,} parameters" in repr(model)
    measured = json.loads(mlpengine("evaluate", "runs/c", "--json").out)
    assert measured["out_of_fold"]["loss"] == pytest.approx(result["out_of_fold"]["loss"])
    if target == "y":
        return
    single = ["training.folds=null", "model.input_layer.embedding=none", "data.encoding=none"]
    assert mlpengine("export", "runs/c").code == 0  # compared with our own predictions
    assert mlpengine("export", "runs/c", "--format", "c").code == 0
    for command in ("summary", "explain"):
        assert (mlpengine(command, "runs/c").code, mlpengine(command, "runs/c").err) == (0, "")
    alone = mlpengine("train", "c.yaml", "-o", "runs/d", settings=single)
    assert "training.members: is ignored without training.folds" in alone.err + caplog.text
    assert "ensemble_weights" not in json.loads(Path("runs/d/result.json").read_text())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["training.members=[plain, plain]"], "each type must be given once"),
        (["data.encoding=none"], "piecewise needs data.encoding: piecewise; or leave it out"),
        (
            ["model.input_layer.embedding=none"],
            "periodic needs model.input_layer.embedding; or leave it out",
        ),
    ],
)
def test_kinds_that_cannot_be_are_refused(options, message, mlpengine, rows):
    write_members("y")
    done = mlpengine("train", "c.yaml", settings=options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
