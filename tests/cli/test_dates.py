"""Columns of dates from a table to predictions: features, a split by time, and the report."""

import re
from datetime import datetime, timedelta
from math import cos, pi, sin

import numpy as np
import pytest


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
