"""Several networks from the command line: folds, seeds, and every command on such a run."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from mlpengine import fit
from mlpengine.config import load_config
from mlpengine.config.build import load_data
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import read_table
from mlpengine.models.model import Model
from mlpengine.training.loading import load
from mlpengine_cli import predict

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
    assert "network  4 networks of " in shown.err
    assert "out-of-fold" in shown.out
    assert "validation " not in shown.out
    result = json.loads(Path("runs/c/result.json").read_text())
    assert (result["networks"], result["linear_models"], len(result["best_epochs"])) == (4, 0, 4)
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
    assert "network   4 networks of " in mlpengine("summary", "runs/c").out
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
    assert shown.count("  one network") == 3
    assert "+-" not in mlpengine("ls").out  # the error of one network is not the error of the mean


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
    chances = model.task.probabilities(np.mean(logits, axis=0))
    np.testing.assert_allclose(model.predict_proba(table), chances, atol=1e-6)
    assert mlpengine("export", "runs/c").code == 0  # compared with our own predictions
    sets = model.predict_set(table, 0.8)
    done = mlpengine("predict", "runs/c", "rows.csv", "--set", "0.8", "-o", "p.csv")
    assert (done.code, "kind_set)" in done.err) == (0, True)
    expected = ["|".join(np.array(model.classes)[one]) for one in sets]
    with open("p.csv", newline="") as file:
        assert [record["kind_set"] for record in csv.DictReader(file)] == expected
    assert len({*expected}) > 2
    done = mlpengine("predict", "runs/c", "rows.csv", "--set", "0.8", "--json")
    lists = [record["kind_set"] for record in json.loads(done.out)["predictions"]]
    assert ["|".join(one) for one in lists] == expected
    larger = model.predict_set(table, 0.8, by_class=True)
    for option, each in (([], sets), (["--by-class"], larger)):
        words = ("--set", "0.8", *option, "-o", "p.npy")
        assert mlpengine("predict", "runs/c", "rows.csv", *words).code == 0
        np.testing.assert_array_equal(np.load("p.npy")[:, len(model.classes) :], each)
    refused = mlpengine("predict", "runs/c", "rows.csv", "--set", "90")
    assert "--set: must be a share from 0 to 1" in refused.err
    assert mlpengine("predict", "runs/c", "rows.csv", "--by-class").code == 2  # without --set
    refused = mlpengine("predict", "runs/c", "rows.csv", "--interval", "0.9")
    assert (refused.code, "or --set, for classes" in refused.err) == (2, True)


def test_sets_of_classes_with_a_bar_are_lists():
    both, alone = np.array([[True, True, False]]), np.array([[False, False, True]])
    cells = [predict._sets(sets, ["a", "b", "a|b"]).labels for sets in (both, alone)]
    assert cells == [['["a", "b"]'], ['["a|b"]']]
    assert predict._sets(both, ["a", "b", "c"]).labels == ["a|b"]
