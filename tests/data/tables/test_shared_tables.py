"""Extra checks against well-known tables, where the folder MLPENGINE_TABLES names has them."""

import os
from pathlib import Path

import pytest
from traced import traced

from mlpengine.data.features import profile
from mlpengine.data.tables import read_table

FOLDER = Path(os.environ.get("MLPENGINE_TABLES", "no such folder"))
LEAKS = {
    ("diamonds", "price"): [],
    ("titanic", "survived"): ["alive"],
    ("titanic", "class"): ["pclass"],
    ("penguins", "species"): [],
    ("taxis", "fare"): [],
    ("mpg", "mpg"): [],
    ("mpg", "displacement"): [],
}


def shared(name: str) -> Path:
    path = FOLDER / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"set MLPENGINE_TABLES to the folder that holds {name}.csv")
    return path


@pytest.mark.parametrize(("name", "target"), LEAKS)
def test_leaks(name, target):
    found = profile(read_table(shared(name)), target)
    assert [leak.column for leak in found.leaks] == LEAKS[name, target]


def test_memory_of_reading():
    path = shared("diamonds")
    _, peak = traced(read_table, path)
    assert peak < 3 * path.stat().st_size
