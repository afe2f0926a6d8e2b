"""Rows unlike the training rows: warnings of predict, evaluate, train --warm-start and check."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ks_2samp

import mlpengine
from mlpengine import DataError

CONFIG = """
data: {source: people.csv, target: pay, missing: mean}
model: {hidden: [4]}
training: {epochs: 2}
report: false
"""


def people(rows: int, seed: int) -> pd.DataFrame:
    g = np.random.default_rng(seed)
    age = g.integers(18, 81, rows)
    frame = pd.DataFrame(
        {
            "age": age,
            "since": pd.Timestamp("2010-01-01") + pd.to_timedelta(g.integers(0, 5000, rows), "D"),
            "height": np.where(g.random(rows) < 0.2, np.nan, g.normal(170, 9, rows).round(1)),
            "town": g.choice(["Bonn", "Kiel", "K\xf6ln"], rows, p=[0.6, 0.3, 0.1]),
            "pay": (20 + age / 10 + g.normal(0, 1, rows)).round(2),
        }
    )
    frame["since"] = frame["since"].dt.strftime("%Y-%m-%d")
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("people")


@pytest.fixture(scope="module")
def trained(folder):
    """A run on people, and new ones, of whom some are strange."""
    people(800, 0).to_csv(folder / "people.csv", index=False)
    (folder / "c.yaml").write_text(CONFIG)
    people(200, 1).to_csv(folder / "alike.csv", index=False)
    strange = people(200, 2)
    strange.loc[[3, 8], "age"] = [950, 17]
    strange.loc[5, "since"] = "2031-05-01"
    strange.loc[[10, 11], "town"] = "Ko\u0308ln"
    strange.loc[[20, 21, 22], "age"] = np.nan
    strange.loc[:120, "height"] = np.nan
    strange.to_csv(folder / "strange.csv", index=False)
    return folder


@pytest.fixture
def at(mlpengine, trained, monkeypatch):
    monkeypatch.chdir(trained)
    if not (trained / "runs").is_dir():
        assert mlpengine("train", "c.yaml", "-q").code == 0
    return mlpengine


STRANGE = [
    "column 'town': 2 rows with a text unknown to the model: 'Ko\\u0308ln' (2 rows, near 'K\\xf6",
    "column 'age': 1 row far outside the training range, such as 950 (18 to 80)",
    "column 'since': 1 row far outside the training range, such as 2031-05-01T00:00:00 (2010-",
    "column 'age': 3 of 200 values missing, more than in training (0 %)",
    "column 'height': 134 of 200 values missing, more than in training (",
]


@pytest.mark.parametrize(
    "line",
    [
        "predict runs/c {}",
        "evaluate runs/c {}",
        "train c.yaml --warm-start runs/c --set data.source={} -q --out new "
        "--set data.split.test=0 --set data.split.validation=0",
    ],
)
def test_rows_unlike_those_of_training_are_counted(line, at, caplog):
    command = line.split()
    said = at(*(part.format("strange.csv") for part in command))
    assert said.code == 0, said.err
    for told in STRANGE:
        assert f"strange.csv: {told}" in said.err + caplog.text
    rows_of_start = command[0] == "train"  # a warning of its own
    assert (said.err + caplog.text).count("warning:") == len(STRANGE) + rows_of_start
    caplog.clear()
    said = at(*(part.format("alike.csv") for part in command))
    assert (said.err + caplog.text).count("warning:") == rows_of_start


@pytest.mark.usefixtures("two_folds")
def test_one_row_at_a_time_logs_a_column_once(caplog):
    g = np.random.default_rng(0)
    given = {"a": g.uniform(0, 10, 100), "y": g.normal(size=100)}
    model, _ = mlpengine.fit(given, "y", model={"hidden": [3]}, training={"epochs": 1})
    caplog.clear()
    for cell in (5.0, -0.9, 10.9, None):
        model.predict({"a": cell})
    assert not caplog.records
    near = model.predict({"a": 12.0})
    model.predict({"a": 13.0})
    (record,) = caplog.records
    assert record.message.startswith("warning: column 'a': 1 row far outside the training range")
    assert record.message.endswith("are not reported")
    np.testing.assert_allclose(near, model.predict([{"a": 12.0}] * 2)[:1], rtol=1e-5)


def test_check_compares_a_new_table_with_training(at, trained):
    alike = at("check", "runs/c", "alike.csv", "--drift", 0.1)
    assert alike.code == 0, alike.err
    assert alike.out.count("not significant") == 4
    old = people(200, 3)
    old["age"] = old["age"].clip(lower=60)
    old.to_csv(trained / "old.csv", index=False)
    for limit, code in (([], 0), (["--drift", 0.1], 3), (["--drift", 0.9], 0)):
        assert at("check", "runs/c", "old.csv", *limit).code == code
    said = at("check", "runs/c/model.safetensors", "old.csv", "--drift", 0.1, "--json")
    found = json.loads(said.out)
    assert (said.code, found["beyond"]) == (3, ["age"])
    assert "drift above 0.1: 'age' 0." in said.err
    truth = ks_2samp(people(800, 0)["age"][:], old["age"]).statistic
    assert found["columns"]["age"]["value"] == pytest.approx(truth, abs=1 / 16)
    towns = found["columns"]["town"]
    assert towns["value"] < 0.1
    gaps = found["columns"]["height"]
    assert gaps["missing"] == pytest.approx(old["height"].isna().mean())


def test_check_refuses_what_cannot_be_compared(at, trained):
    refused = {
        "--set needs a config": ("check", "runs/c", "alike.csv", "--set", "seed=1"),
        "a run and a new table are needed": ("check", "c.yaml", "--drift", 0.1),
        "must be a share from 0 to 1": ("check", "runs/c", "alike.csv", "--drift", 2),
        "needs columns 'age', ": ("check", "runs/c", "few.csv"),
        "line 5, column 'height': a number is needed ('tall')": ("check", "runs/c", "tall.csv"),
    }
    lines = (trained / "alike.csv").read_text().splitlines()
    place = lines[0].split(",").index("height")
    lines[4] = ",".join(["tall" if k == place else v for k, v in enumerate(lines[4].split(","))])
    (trained / "tall.csv").write_text("\n".join(lines))
    (trained / "few.csv").write_text("height,pay\n1,2\n")
    for text, command in refused.items():
        said = at(*command)
        assert (said.code, text in said.err) == (2, True), said.err


REQUIRED = {  # r2 on new rows is that of NumPy
    ("r2 > {below}",): [True],
    ("r2>= {above}",): [False],
    ("r2 < {above}", "r2 <={below}", " loss  < 1e9 "): [True, False, True],
    ("pinball_0.9 < inf",): [True],
}


@pytest.mark.parametrize("required", REQUIRED, ids=" and ".join)
def test_evaluate_ends_with_3_where_a_requirement_is_not_met(required, at, trained):
    rows = people(200, 1)
    predicted = mlpengine.load(trained / "runs/c").predict(rows)
    r2 = 1 - ((rows.pay - predicted) ** 2).sum() / ((rows.pay - rows.pay.mean()) ** 2).sum()
    conditions = [text.format(below=f"{r2 - 0.01:f}", above=f"{r2 + 0.01:f}") for text in required]
    options = [word for text in conditions for word in ("--require", text)]
    said = at("evaluate", "runs/c", "alike.csv", "--json", *options)
    told = json.loads(said.out)["required"]
    assert [one["met"] for one in told] == REQUIRED[required]
    assert said.code == (0 if all(REQUIRED[required]) else 3)
    missed = [one for one in told if not one["met"]]
    lines = [f"not met: {one['condition']} (data: {r2:.6g})" for one in missed]
    assert [line.rsplit(": ", 1)[0] for line in said.err.splitlines()] == [
        line.rsplit(": ", 1)[0] for line in lines
    ]
    assert all(one["value"] == pytest.approx(r2, abs=1e-4) for one in missed)


def test_a_metric_that_is_no_number_fulfils_nothing(at, trained):
    people(1, 1).to_csv(trained / "one.csv", index=False)  # r2 of one row is none
    for condition in ("r2 < 2", "r2 > -2e9"):
        said = at("evaluate", "runs/c", "one.csv", "--require", condition)
        assert (said.code, said.err) == (3, f"not met: {condition} (data: not finite)\n")


@pytest.mark.parametrize("text", ["r2", "r2 = 3", "r2 => 3", "r2 > nan", ""])
def test_requirements_that_say_nothing_are_refused(text, at):
    said = at("evaluate", "runs/c", "--require", text)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert said.err.startswith("error: --require: write a metric, <, <=, > or >=, and a number")


def test_a_requirement_of_an_unknown_metric_is_refused_with_those_that_exist(at):
    said = at("evaluate", "runs/c", "--require", "acuracy > 0.3")
    assert said.code == 2
    assert "error: --require: this task has loss, r2, mae, rmse" in said.err


def test_python_checks_as_the_command_does(at, trained):
    model, frame = mlpengine.load("runs/c"), pd.read_csv("strange.csv")
    told = json.loads(at("check", "runs/c", "strange.csv", "--json").out)
    assert model.check(frame).as_dict() | {"beyond": []} == told
    assert str(model.check("strange.csv")) + "\n" == at("check", "runs/c", "strange.csv").out
    assert "not significant" in model.check(frame)._repr_html_()
    with pytest.raises(DataError):
        model.check(frame[:0])
