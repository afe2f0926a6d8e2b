"""What `init` proposes, from the table to the trained model."""

import json
import re
import shlex
from itertools import pairwise

import numpy as np
import pytest

from mlpengine.config import load_config
from mlpengine.config.build import load_data
from mlpengine.settings.recipes import folds_for


@pytest.mark.parametrize("name", ["my rows.csv", "rows.CSV", "rows", "rows.parquet"])
def test_a_table_given_as_a_config_is_called_a_table(name, mlpengine, tmp_path):
    (tmp_path / name).write_bytes(b"PAR1" if "parquet" in name else b"a,b\n1,2\n")
    answer = mlpengine("train", name)
    assert answer.code == 2
    assert f"{name}: this is a table, not a config" in answer.err
    assert f"mlpengine init {shlex.quote(name)} --target" in answer.err


MISSING = {
    "train titanic.ymal": "titanic.yaml",
    "train --resume runs/titanc": "runs/titanic",
    "predict runs/titanc x.csv": "runs/titanic",
    "init titanic.csw --target y": "titanic.csv",
}
"""Commands that name a file or a run that there is not, and the one that is meant."""


@pytest.mark.parametrize("command", MISSING)
def test_the_nearest_file_is_offered_for_a_missing_one(command, mlpengine, tmp_path):
    for folder in ("sub", "runs/titanic"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("titanic.yaml", "sub/titanic.yaml", "titanic.csv"):
        (tmp_path / name).write_text("")
    answer = mlpengine(*command.split())
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer.err
    assert "did you mean" in answer.err
    assert f"{MISSING[command]}'?" in answer.err


@pytest.mark.parametrize(
    ("rows", "blocks", "folds"),
    [
        *((15, None, None), (45, None, 4), (400, None, 8), (100_001, None, None)),
        *((400, 40, 8), (400, 9, 4), (400, 3, None)),
    ],
)
def test_folds_where_they_pay(rows, blocks, folds):
    assert folds_for(rows, blocks) == folds


VISITS = ["patient,day,dose,effect"]
VISITS += [
    f"p{i % 10},2026-01-{1 + i % 28:02},{np.sin(i):.3f},{i % 10 + i / 7:.3f}" for i in range(200)
]


@pytest.mark.parametrize(
    ("option", "name", "folds"), [("--group", "patient", 5), ("--time", "day", 8)]
)
def test_init_divides_rows_by_group_or_time(mlpengine, tmp_path, option, name, folds):
    (tmp_path / "visits.csv").write_text("\n".join(VISITS))
    key = option.strip("-")
    made = mlpengine("init", "visits.csv", "--target", "effect", option, name)
    assert f"by {name} (data.split.{key})" in made.err
    assert "data.split.time: day" not in made.err or key == "time"
    loaded = load_data(load_config(tmp_path / "visits.yaml"))
    assert loaded.file.config.training.folds == folds
    values = np.array([line.split(",")[key == "time"] for line in VISITS[1:]])
    parts = {part: values[rows] for part, (_, rows) in loaded.tables.parts.items()}
    assert not {*parts["train"]} & {*parts["test"]}
    held_out = [{*parts["train"][loaded.folds == k]} for k in range(folds)]
    assert sum(map(len, held_out)) == len(set().union(*held_out))
    if key == "time":
        assert max(parts["train"]) < min(parts["test"])
        assert all(max(a) < min(b) for a, b in pairwise(held_out))
    kept = {*loaded.tables.preprocessor.columns}
    assert ("patient" in kept) is (key == "time")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--group", "patint"], "--group: there is no column 'patint' - did you mean 'patient'?"),
        (["--time", "effect"], "--time: must not be the target (got 'effect')"),
        (["--time", "day", "--group", "patient"], "init: give --group or --time, not both"),
        (["--time", "patient"], "line 2, column 'patient': is text without an order"),
    ],
)
def test_init_refuses_what_cannot_divide_rows(mlpengine, tmp_path, options, text):
    (tmp_path / "visits.csv").write_text("\n".join(VISITS))
    refused = mlpengine("init", "visits.csv", "--target", "effect", *options)
    assert refused.code == 2
    assert text in refused.err


def test_init_tells_how_to_split_by_time(mlpengine, tmp_path):
    (tmp_path / "visits.csv").write_text("\n".join(VISITS))
    made = mlpengine("init", "visits.csv", "--target", "effect")
    assert "(data.split.time: day)" in made.err
    text = (tmp_path / "visits.yaml").read_text()
    hint = re.search(r"  # (split: .*)  # to predict the future", text)
    timed = re.sub(r"  split: \{.*\n", f"  {hint[1]}\n", text, count=1)
    (tmp_path / "timed.yaml").write_text(timed)
    checked = mlpengine("check", "timed.yaml")
    assert "dropped: day (times of the split; features of hour" in checked.out


A = np.random.default_rng(0).integers(1, 90, 80)
DAYS = np.arange("2026-01-01", "2026-03-22", dtype="datetime64[D]")
OTHERS = {
    "event: died": {"y": A + 0.5, "died": A % 2},
    "classes: [low, medium, high]": {"y": np.array(["medium", "low", "high"])[A % 3]},
    "exposure: exposure": {"y": A // 9, "exposure": A / 7},
    "lags: {y: [1, 2, 3]}": {"y": A + 0.5, "day": DAYS},
    "": {"y": A - 50.5, "died": A % 2, "status": A, "exposure": A, "day": DAYS[A % 80]},
}


@pytest.mark.parametrize("line", OTHERS)
def test_init_shows_what_else_a_table_may_be_for(line, mlpengine, tmp_path):
    columns = {"b": A[::-1], **OTHERS[line]}
    rows = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join([",".join(columns), *rows]))
    answer = mlpengine("init", "rows.csv", "--target", "y")
    config = (tmp_path / "rows.yaml").read_text()
    shown = re.findall(r"^  # ((?:event|classes|exposure|lags): .*?)  # ", config, re.M)
    told = re.findall("not set: ((?:event|classes|exposure|lags): .*?); use it", answer.err)
    assert shown == told == [line] * bool(line)


@pytest.mark.parametrize("day", ["", "2026-01-0{} "])
def test_times_of_one_day_are_no_order_of_days(mlpengine, tmp_path, day):
    rows = [f"{day.format(1 + i % 3)}{i % 24:02}:{i % 60:02},{i % 7},{i / 7}" for i in range(90)]
    (tmp_path / "t.csv").write_text("\n".join(["at,dose,effect", *rows]))
    made = mlpengine("init", "t.csv", "--target", "effect", "--time", "at")
    assert made.code == 0
    assert ("warning: column 'at' has times without dates" in made.err) is (not day)


def test_a_data_set_in_place_of_a_config_is_told_so(mlpengine):
    assert "is written by: mlpengine init digits" in mlpengine("train", "digits").err


def test_init_says_what_it_decided(mlpengine, tmp_path):
    lines = [f"{i % 6},{i * 0.1:.1f},{'xyz'[i % 3]},{i * 7919 % 977}" for i in range(200)]
    (tmp_path / "t.csv").write_text("\n".join(["grade,a,kind,b", *lines]))
    made = mlpengine("init", "t.csv", "--target", "grade", "--json")
    shown = json.loads(made.out)
    assert shown["decided"][:3] == [
        "classification of grade (data.task): 6 different numbers, read as classes; "
        "to predict a number, set data.task: regression",
        "8 folds of 2 networks, each with hidden layers of 64 and 64 units, up to 100 epochs "
        "(training.folds, model.hidden, training.epochs)",
        "models in each fold (training.members): plain (a network), piecewise (a network with "
        "quantile-bin features), linear (a linear model)",
    ]
    assert shown["warnings"] == []
    numbers = mlpengine("init", "t.csv", "--target", "b", "--force")
    assert "decided: 8 folds of 2 networks" in numbers.err
    config = (tmp_path / "t.yaml").read_text()
    assert "folds: 8\n" in config
    assert "split: {test: 0.2}" in config


@pytest.mark.usefixtures("two_folds")
def test_a_file_for_the_test(mlpengine, tmp_path):
    rows = [f"{i},{i * i % 13},{i * 0.5 + i * i % 13}" for i in range(60)]
    for name, part in (("a", rows[:45]), ("b", rows[45:])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["p,q,y", *part]))
    (tmp_path / "d").mkdir()
    options = ["--target", "y", "-o", "d/c.yaml"]
    assert mlpengine("init", "a.csv", "--test", "b.csv", *options).code == 0
    assert "test_source: ../b.csv" in (tmp_path / "d/c.yaml").read_text().replace('"', "")
    done = mlpengine("train", "d/c.yaml", "--epochs", 1, "--json", "--set", "report=false")
    measured = json.loads(mlpengine("evaluate", json.loads(done.out)["run_dir"], "--json").out)
    assert measured["rows"] == {"out_of_fold": 45, "test": 15}
    wrong_files = {"c.csv": "there is no", "d": "must be a file", "a.csv": "needs other"}
    (tmp_path / "e.csv").write_text("p,y\n1,2\n")
    for name, said in {**wrong_files, "e.csv": "like DATA, needs column 'q'"}.items():
        wrong = mlpengine("init", "a.csv", "--test", name, *options, "--force")
        assert (wrong.code, "--test" in wrong.err, said in wrong.err) == (2, True, True)
    (tmp_path / "b.csv").write_text("p,q\n1,2\n")
    for source, said in (("b.csv", "b.csv needs the target column 'y'"), ("a.csv", "other rows")):
        refused = mlpengine("check", "d/c.yaml", "--set", f"data.test_source={source}")
        assert refused.code == 2
        assert "data.test_source: " in refused.err
        assert said in refused.err
