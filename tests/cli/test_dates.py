"""Columns of dates from a table to predictions: features, a split by time, and the report."""

import json
import re
from datetime import datetime, timedelta
from math import cos, pi, sin

import numpy as np
import pytest

from mlpengine.training.loading import load

QUICK = [
    *("--set", "training.folds=null", "--set", "training.members=null", "--epochs", 60),
    *("--set", "data.encoding=none", "--set", "optimizer.lr=0.02", "-q", "--json"),
]


def rides(rows: int, start: datetime) -> str:
    """Return a table whose target depends on the hour and the weekday, and on nothing else."""
    g = np.random.default_rng(0)
    lines = ["when,wind,rides"]
    for i in range(rows):
        moment = start + timedelta(hours=5 * i)
        hour, weekday = 2 * pi * moment.hour / 24, moment.weekday() >= 5
        count = 20 + 9 * sin(hour) + 4 * cos(hour) + 5 * weekday + g.normal(0, 0.5)
        lines.append(f"{moment:%Y-%m-%dT%H:%M},{g.uniform(0, 9):.2f},{count:.2f}")
    return "\n".join(lines) + "\n"


@pytest.fixture(autouse=True)
def table(tmp_path):
    (tmp_path / "rides.csv").write_text(rides(500, datetime(2023, 1, 1)))


def test_init_tells_how_to_split_by_time(mlpengine, tmp_path):
    made = mlpengine("init", "rides.csv", "--target", "rides")
    assert "decided: rows are split at random; if you predict later ones" in made.err
    assert "data.split.time: when" in made.err
    text = (tmp_path / "rides.yaml").read_text()
    hint = re.search(r"  # (split: .*)  # the newest rows test", text)
    assert hint
    timed = re.sub(r"  split: \{.*\n", f"  {hint[1]}\n", text, count=1)
    (tmp_path / "timed.yaml").write_text(timed)
    checked = mlpengine("check", "timed.yaml")
    assert "dropped: when (times of the split; its place in day, week and year is" in checked.out


def test_init_gives_no_such_hint_without_dates(mlpengine, tmp_path):
    lines = [f"{i % 24:02}:00,{i * i % 7},{i * i % 11}" for i in range(100)]
    (tmp_path / "times.csv").write_text("\n".join(["at,x,y", *lines]) + "\n")
    for source, target, more in (("times.csv", "y", []), ("rides.csv", "when", ["-o", "w.yaml"])):
        made = mlpengine("init", source, "--target", target, *more)
        assert "split at random" not in made.err


def test_rows_later_than_those_of_training_are_predicted_by_their_periods(mlpengine, tmp_path):
    assert mlpengine("init", "rides.csv", "--target", "rides").code == 0
    timed = ["--set", "data.split.time=when", "--set", "data.split.validation=0.1"]
    done = mlpengine("train", "rides.yaml", *QUICK, *timed, "--out", "run")
    assert done.code == 0, done.err
    assert json.loads(done.out)["test"]["r2"] > 0.9
    names = load(tmp_path / "run").preprocessor.feature_names
    assert [name for name in names if name.startswith("when ")] == [
        *("when hour sin", "when hour cos", "when weekday sin", "when weekday cos")
    ]
    (tmp_path / "new.csv").write_text(rides(80, datetime(2027, 5, 3)))
    measured = mlpengine("evaluate", "run", "new.csv", "--json")
    assert json.loads(measured.out)["data"]["r2"] > 0.9


def test_the_report_has_dates_on_axes_of_dates(mlpengine, tmp_path):
    assert mlpengine("init", "rides.csv", "--target", "rides").code == 0
    assert mlpengine("train", "rides.yaml", *QUICK, "--out", "run").code == 0
    page = (tmp_path / "run" / "report.html").read_text()
    figure = page[page.index("<figcaption>when</figcaption>") :].partition("</figure>")[0]
    ticks = re.findall(r"<text[^>]*>([^<]*)</text>", figure)
    assert {"2023-02", "2023-03", "2023-04"} <= set(ticks)
