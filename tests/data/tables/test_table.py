import numpy as np
import pytest

from mlpengine.core.errors import DataError
from mlpengine.data.features import kind_of, task_of
from mlpengine.data.tables import Column, Table, read_table
from mlpengine.data.tables.frames import as_table


def text(*cells: str) -> Column:
    levels = sorted({cell for cell in cells if cell})
    codes = [levels.index(cell) if cell else -1 for cell in cells]
    return Column(np.array(codes, np.int32), "text", tuple(levels))


def number(*values: float) -> Column:
    return Column(np.array(values, float))


NAN = float("nan")
KINDS = {
    "number": (number(1.5, 2, NAN), "number"),
    "integer": (number(1, 2, NAN), "integer"),
    "integers of an array": (Column(np.array([1, 2])), "integer"),
    "infinite is no integer": (number(np.inf), "number"),
    "empty numbers": (number(NAN, NAN), "empty"),
    "empty text": (text("", ""), "empty"),
    "boolean": (Column(np.array([0.0, 1]), "boolean"), "boolean"),
    "date": (Column(np.array([0.0, 1e9]), "date"), "date"),
    "few levels": (text(*"abcdefgh"), "category"),
    "levels that repeat": (text(*[str(i % 30) + "x" for i in range(60)]), "category"),
    "one level a row": (text(*[f"name {i}" for i in range(60)]), "text"),
    "nearly numbers": (text(*map(str, range(99)), "x"), "mixed"),
    "codes with zeros": (text(*[f"{i % 30:05}" for i in range(60)]), "category"),
    "codes with zeros, one a row": (text(*[f"{i:05}" for i in range(60)]), "text"),
    "numbers, one with a zero": (text(*map(str, range(99)), "07"), "mixed"),
    "a tenth is text": (text(*map(str, range(80)), *[f"{i}x" for i in range(20)]), "text"),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name):
    column, kind = KINDS[name]
    assert kind_of(column) == kind


def counted(*rows):
    """Return whole numbers from 0 on, each so many times."""
    return number(*(value for value, count in enumerate(rows) for _ in range(count)))


TASKS = {
    "text": ([text("a", "b")], "classification"),
    "booleans": ([Column(np.array([0.0, 1]), "boolean")], "classification"),
    "zero and one": ([number(0, 1)], "classification"),
    "digits": ([number(*(i % 10 for i in range(50)))], "classification"),
    "too few rows per value": ([number(*(i % 10 for i in range(49)))], "regression"),
    "many whole numbers": ([number(*(i % 21 for i in range(500)))], "regression"),
    "fractions": ([number(*(i % 2 / 2 for i in range(50)))], "regression"),
    "dates": ([Column(np.array([0.0, 1]), "date")], "regression"),
    "counts": ([counted(700, 200, 70, 20, 5, 2, 3)], "regression"),
    "counts around 2": ([counted(135, 270, 268, 180, 90, 36, 12, 3)], "regression"),
    "counts with a gap": ([counted(700, 200, 70, 20, 0, 2)], "regression"),
    "classes from 1": ([counted(0, 700, 200, 70, 20, 5, 2)], "classification"),
    "classes, some rare": ([counted(700, 5, 20, 200, 70, 2)], "classification"),
    "visits, heaped at fives": (
        [counted(3000, 560, 250, 113, 52, 25, 9, 6, 2, 1, 11, 0, 1, 0, 0, 2, *[0] * 14, 1)],
        "regression",
    ),
    "heaps alone": ([counted(300, 0, 0, 0, 0, 100, 0, 0, 0, 0, 80)], "classification"),
    "quality of red wine": ([counted(0, 0, 0, 10, 53, 681, 638, 199, 18)], "regression"),
    "marks with a gap": ([counted(0, 10, 53, 681, 638, 199, 0, 18)], "classification"),
    "five marks": ([counted(0, 10, 53, 681, 199, 18)], "classification"),
    "marks with a usual end": ([counted(0, 100, 153, 681, 638, 199, 18)], "classification"),
    "glass": ([counted(0, 70, 76, 17, 0, 13, 9, 29)], "classification"),
    "grades of an illness": ([counted(164, 55, 36, 35, 13)], "classification"),
    "four rarer classes": ([counted(700, 200, 70, 2)], "classification"),
    "several yes or no": ([number(0, 1), number(1, 1)], "multilabel"),
    "several numbers": ([number(0, 1), number(1, 2)], "regression"),
}


@pytest.mark.parametrize("name", TASKS)
def test_tasks(name):
    columns, task = TASKS[name]
    assert task_of(columns) == task


def test_select_drop_and_rows():
    table = Table({"a": number(1, 2, 3), "b": text("x", "", "y")}, "file", first_line=2)
    assert table.select(["b"]).names == ["b"]
    assert table.drop(["b"]).names == ["a"]
    part = table.rows(np.array([False, True, True])).rows(np.array([1]))
    assert [part["a"].text(0), part["b"].text(0)] == ["3", "y"]
    assert part.place(0) == "line 4"
    assert len(part) == 1
    assert repr(table) == "Table('file', 3 rows, 2 columns)"


def test_unknown_columns_are_named_with_the_nearest():
    table = read_table("penguins")
    with pytest.raises(DataError) as caught:
        table.require(["specis", *map(str, range(20))], "the target")
    told = "the target needs columns 'specis' (did you mean 'species'?), '0', "
    assert (told in str(caught.value), "'18', ...; it" in str(caught.value)) == (True, True)
    with pytest.raises(DataError, match=r"penguins: no column 'islnd' \(did you mean 'island'"):
        table["islnd"]


def test_from_arrays():
    x = np.arange(6.0).reshape(3, 2)
    table = Table.from_arrays(x, ["u", "v", "u"])
    assert table.names == ["x0", "x1", "y"]
    assert np.shares_memory(table["x1"].values, x)
    assert table["y"].levels == ("u", "v")
    assert Table.from_arrays(x, x, names=["a", "b"]).names == ["a", "b", "y0", "y1"]
    assert Table.from_arrays(np.array([True, False])).columns["x0"].kind == "boolean"


FAULTS = {
    "three dimensions": lambda: Table.from_arrays(np.zeros((2, 2, 2))),
    "no columns": lambda: Table.from_arrays(np.zeros((2, 0))),
    "complex": lambda: Table.from_arrays(np.zeros(2, complex)),
    "objects": lambda: Table.from_arrays(np.array([1, None], object)),
    "lengths": lambda: Table.from_arrays(np.zeros((2, 2)), np.zeros(3)),
    "names": lambda: Table.from_arrays(np.zeros((2, 2)), names=["a"]),
    "equal names": lambda: Table.from_arrays(np.zeros((2, 2)), names=["a", "a"]),
    "too many columns": lambda: Table.from_arrays(np.zeros((1, 100_001))),
    "a name of x and y": lambda: Table.from_arrays(np.zeros((2, 1)), np.zeros(2), names=["y"]),
    "shared names": lambda: read_table("digits").join(read_table("digits")),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    with pytest.raises(DataError):
        FAULTS[name]()


def test_cells_by_name_are_a_table_of_one_row():
    table = as_table({"a": 1.5, "b": "x"})
    assert (table.n_rows, table["a"].values.tolist(), table["b"].text(0)) == (1, [1.5], "x")
