"""What `init` proposes, from the table to the trained model."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest

from mlpengine.config import load_config
from mlpengine.config.build import load_data
from mlpengine.settings.recipes import folds_for


@pytest.mark.usefixtures("two_folds")
def test_a_column_that_explains_nearly_all_stays(mlpengine, tmp_path):
    g = np.random.default_rng(0)
    speed, length = np.arange(300) % 14 / 10 + 0.5, g.uniform(4, 5, 300)
    force = speed**6 * (length / 4.5) * (1 + 0.02 * g.standard_normal(300))
    lines = [f"{s:.1f},{n:.2f},{y:.4f}" for s, n, y in zip(speed, length, force, strict=True)]
    (tmp_path / "ships.csv").write_text("\n".join(["speed,length,force", *lines]) + "\n")
    made = mlpengine("init", "ships.csv", "--target", "force")
    assert made.code == 0
    assert "warning: column 'speed' stays: alone it explains" in made.err
    config = (tmp_path / "ships.yaml").read_text()
    assert "# LOOK AT speed: alone it explains" in config
    assert "drop: []" in config
    checked = mlpengine("check", "ships.yaml")
    assert "warning: column 'speed': alone it explains" in checked.out
    fast = ["--set", "report=false", "--epochs", 1]
    trained = mlpengine("train", "ships.yaml", "-q", *fast)
    assert "Column 'speed': alone it explains" in trained.out


def write_gaps(tmp_path):
    g = np.random.default_rng(0)
    lines = ["a,b,y"]
    for i in range(200):
        a, b = g.normal(size=2).round(3)
        lines.append(f"{a},{b},{'' if i % 20 == 7 else round(a - 2 * b, 3)}")
    (tmp_path / "gaps.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.usefixtures("two_folds")
def test_rows_without_a_target_are_counted_and_left_out(mlpengine, tmp_path):
    write_gaps(tmp_path)
    made = mlpengine("init", "gaps.csv", "--target", "y")
    assert "10 rows of 200 have no target and are left out" in made.err
    checked = mlpengine("check", "gaps.yaml", "--json")
    facts = json.loads(checked.out)
    assert facts["target_missing"] == 10
    assert sum(facts["rows"].values()) == 190
    assert facts["left_out"][0].endswith("10 rows of 200 left out: the target is missing")
    fast = ["--epochs", 2, "--set", "report=false", "--out", "run"]
    trained = mlpengine("train", "gaps.yaml", *fast)
    assert trained.code == 0
    assert "gaps.csv: 10 rows of 200 left out: the target is missing" in trained.err
    assert mlpengine("evaluate", "run").code == 0


def test_more_features_than_rows(mlpengine, tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 60)).round(3)
    head = ",".join(f"x{i}" for i in range(60))
    (tmp_path / "wide.csv").write_text("\n".join([head, *(",".join(map(str, r)) for r in x)]))
    made = mlpengine("init", "wide.csv", "--target", "x0")
    assert "there are more features than rows (59 and 40)" in made.err
    checked = mlpengine("check", "wide.yaml")
    assert "warning: there are more features than rows (59 and " in checked.out


@pytest.mark.parametrize("name", ["rows.csv", "rows.CSV", "rows", "rows.parquet"])
def test_a_table_given_as_a_config_is_called_a_table(name, mlpengine, tmp_path):
    (tmp_path / name).write_bytes(b"PAR1" if "parquet" in name else b"a,b\n1,2\n")
    answer = mlpengine("train", name)
    assert answer.code == 2
    assert f"{name}: this is a table, not a config" in answer.err
    assert f"mlpengine init {name} --target" in answer.err


def test_the_formulas_that_init_shows_work(mlpengine, tmp_path):
    rows = "\n".join(f"{i % 7 + 1},{i % 5}" for i in range(80))
    (tmp_path / "rows.csv").write_text("a b: c,y\n" + rows)
    assert mlpengine("init", "rows.csv", "--target", "y").code == 0
    config = (tmp_path / "rows.yaml").read_text()
    assert '# features: {"log a b: c": "log(`a b: c`)"}' in config
    config = config.replace("# features:", "features:").replace("# where:", "where:")
    (tmp_path / "rows.yaml").write_text(config)
    checked = json.loads(mlpengine("check", "rows.yaml", "--json").out)
    assert checked["feature_names"] == ["a b: c", "log a b: c"]


def table_with(target):
    """Return a CSV of 120 rows whose target is what a function makes of the row's number."""
    return "x,y,z\n" + "".join(f"{i % 11},{target(i)},{i % 3}\n" for i in range(120))


REFUSED_TARGETS = {
    "a text among numbers": (
        lambda i: "oops" if i == 7 else i / 10,
        "t.csv: line 9, column 'y': the target must be a number, as in most rows ('oops')",
    ),
    "one class": (lambda i: "a", "column 'y': at least two classes are needed"),
}


@pytest.mark.parametrize("name", REFUSED_TARGETS)
def test_a_target_that_cannot_be_trained_on_is_refused_by_all_commands(name, mlpengine, tmp_path):
    target, message = REFUSED_TARGETS[name]
    (tmp_path / "t.csv").write_text(table_with(target))
    (tmp_path / "c.yaml").write_text("data: {source: t.csv, target: y}\n")
    calls = (("init", "t.csv", "--target", "y"), ("check", "c.yaml"), ("train", "c.yaml", "-q"))
    for call in calls:
        answer = mlpengine(*call)
        assert answer.code == 2
        assert message in answer.err
    assert not (tmp_path / "t.yaml").exists()


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


def test_check_refuses_what_training_refuses_in_any_part(mlpengine, tmp_path):
    """Every row has the bad cell once, so that it lies in each part at some time."""
    config = tmp_path / "huge.yaml"
    config.write_text("data: {source: huge.csv, target: y}\n")
    for bad in range(20):
        lines = [f"{'1e308' if row == bad else row % 3},{row * 2.5}" for row in range(20)]
        (tmp_path / "huge.csv").write_text("\n".join(["b,y", *lines]))
        refused = mlpengine("check", config)
        assert refused.code == 2
        assert f"line {bad + 2}, column 'b': must be finite and within 1e+100" in refused.err


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
    assert "decided: rows are split at random; if you predict later ones" in made.err
    assert "data.split.time: day" in made.err
    text = (tmp_path / "visits.yaml").read_text()
    hint = re.search(r"  # (split: .*)  # the newest rows test", text)
    timed = re.sub(r"  split: \{.*\n", f"  {hint[1]}\n", text, count=1)
    (tmp_path / "timed.yaml").write_text(timed)
    checked = mlpengine("check", "timed.yaml")
    assert "dropped: day (times of the split; its place in" in checked.out


HOW_DIVIDED = {
    "one group": ("group", lambda i: "x", "--group g: split: 3 parts need at least 3 groups"),
    "three groups": ("group", lambda i: "xyz"[i % 3], 1),
    "one time": ("time", lambda i: 5, "--time g: split: too many rows share one time"),
    "a missing group": (
        "group",
        lambda i: "" if i == 7 else i % 9,
        "line 9, column 'g': the group",
    ),
}


@pytest.mark.parametrize("name", HOW_DIVIDED)
def test_init_writes_divisions_that_check_takes(mlpengine, tmp_path, name):
    key, cell, expected = HOW_DIVIDED[name]
    rows = [f"{np.sin(i):.3f},{cell(i)},{np.cos(i):.3f}" for i in range(200)]
    (tmp_path / "t.csv").write_text("\n".join(["a,g,y", *rows]))
    made = mlpengine("init", "t.csv", "--target", "y", f"--{key}", "g")
    if isinstance(expected, str):
        assert (made.code, expected in made.err) == (2, True), made.err
        (tmp_path / "t.yaml").write_text(
            f"data: {{source: t.csv, target: y, split: {{{key}: g, validation: 0.1}}}}\n"
        )
        assert mlpengine("check", "t.yaml").code == 2
    else:
        assert mlpengine("check", "t.yaml").code == 0
        assert (load_config(tmp_path / "t.yaml").config.training.folds or 1) == expected


@pytest.mark.parametrize("day", ["", "2026-01-0{} "])
def test_times_of_one_day_are_no_order_of_days(mlpengine, tmp_path, day):
    rows = [f"{day.format(1 + i % 3)}{i % 24:02}:{i % 60:02},{i % 7},{i / 7}" for i in range(90)]
    (tmp_path / "t.csv").write_text("\n".join(["at,dose,effect", *rows]))
    made = mlpengine("init", "t.csv", "--target", "effect", "--time", "at")
    assert made.code == 0
    assert ("warning: column 'at' has times of one day" in made.err) is (not day)


def test_a_data_set_in_place_of_a_config_is_told_so(mlpengine):
    assert "is written by: mlpengine init digits" in mlpengine("train", "digits").err


def test_init_says_what_it_decided(mlpengine, tmp_path):
    lines = [f"{i % 6},{i * 0.1:.1f},{'xyz'[i % 3]},{i * 7919 % 977}" for i in range(200)]
    (tmp_path / "t.csv").write_text("\n".join(["grade,a,kind,b", *lines]))
    made = mlpengine("init", "t.csv", "--target", "grade", "--json")
    shown = json.loads(made.out)
    assert shown["decided"][:3] == [
        "classification of grade (data.task): 6 different numbers, taken for classes; "
        "data.task: regression predicts a number",
        "16 networks of 64-64 units, up to 200 epochs "
        "(training.folds, model.hidden, training.epochs)",
        "ensemble member types: plain, piecewise, linear (training.members)",
    ]
    assert shown["warnings"] == []
    assert "decided: 16 networks" in mlpengine("init", "t.csv", "--target", "b", "--force").err
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
    wrong = mlpengine("init", "a.csv", "--test", "c.csv", *options, "--force")
    assert (wrong.code, "error: --test: there is no such file (c.csv)" in wrong.err) == (2, True)
    (tmp_path / "b.csv").write_text("p,q\n1,2\n")  # Before, check found nothing wrong with it.
    for call in ("check", "train"):
        refused = mlpengine(call, "d/c.yaml")
        assert refused.code == 2
        assert "data.test_source: " in refused.err
        assert "b.csv needs the target column 'y'" in refused.err
