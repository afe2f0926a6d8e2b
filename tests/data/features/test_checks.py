import json

import numpy as np
import pytest

from mlpengine.core.errors import DataError
from mlpengine.data.features import profile
from mlpengine.data.features.duplicate_rows import count_duplicates
from mlpengine.data.features.leaks import (
    Goal,
    find_leak,
    find_leaks,
    share_of_classes,
    share_of_squares,
)
from mlpengine.data.features.outliers import find_outliers
from mlpengine.data.features.thresholds import ANSWER, SAMPLE_COLUMNS
from mlpengine.data.tables import DATASETS, Column, Table, read_table
from mlpengine.data.tables.frames import as_table

N = 600
G = np.random.default_rng(0)
Y = G.gamma(3.0, 4.0, N)
SPEED = G.permutation(np.arange(N) // 20) * 1.0  # just enough rows of each value
CLASSES = G.choice(3, N, p=[0.6, 0.3, 0.1])


def text(codes: np.ndarray, prefix: str = "t") -> Column:
    count = int(codes.max()) + 1
    return Column(codes.astype(np.int32), "text", tuple(f"{prefix}{i}" for i in range(count)))


def wrong_in(codes: np.ndarray, share: float) -> np.ndarray:
    wrong = G.random(len(codes)) < share
    return np.where(wrong, G.integers(0, 3, len(codes)), codes)


def gappy(values: np.ndarray) -> np.ndarray:
    return np.where(G.random(N) < 0.2, np.nan, values)


RECODED = {
    "copy": (Column(Y), Y, "regression"),
    "another unit": (Column(Y * 1.8 + 32), Y, "regression"),
    "monotone code": (Column(np.exp(Y / 4)), Y, "regression"),
    "falling code": (Column(1 / Y), Y, "regression"),
    "copy with gaps": (Column(gappy(Y)), Y, "regression"),
    "code": (text(2 - CLASSES), CLASSES, "classification"),
    "code as a number": (Column(CLASSES * 3.0 - 1), CLASSES, "classification"),
}
"""Columns that encode the target."""

SUSPECTS = {
    "gap": (Column(np.where(CLASSES == 0, np.nan, 1.0 * CLASSES)), CLASSES, "classification"),
    "noisy copy": (Column(Y + G.normal(0, 0.5, N)), Y, "regression"),
    "whole numbers": (Column(np.round(Y)), Y, "regression"),
    "one cause": (Column(SPEED), (SPEED * 7 % 31) ** 3 + G.normal(0, 1.0, N), "regression"),
    "score": (Column(CLASSES + G.random(N) * 0.9), CLASSES, "classification"),
    "code with errors": (text(np.where(np.arange(N) < 3, 1, CLASSES)), CLASSES, "classification"),
    "grades of a skewed target": (
        text(np.argsort(np.argsort(Y)) * 10 // N),
        np.exp(2 * Y),
        "regression",
    ),
    "finer code": (text(CLASSES * 2 + G.integers(0, 2, N)), CLASSES, "classification"),
}
"""Columns that explain nearly all of it, and may be honest."""

HONEST = {
    "strong line": (Column(Y + G.normal(0, 3.0, N)), Y, "regression"),
    "strong and of another size": (Column(100 * (Y + G.exponential(1.5, N))), Y, "regression"),
    "noise": (Column(G.normal(size=N)), Y, "regression"),
    "constant": (Column(np.ones(N)), Y, "regression"),
    "row names": (text(np.arange(N)), Y, "regression"),
    "many small groups": (text(np.arange(N) // 2), Y, "regression"),
    "good code": (text(wrong_in(CLASSES, 0.1)), CLASSES, "classification"),
    "class names of rows": (text(np.arange(N)), CLASSES, "classification"),
    "ids of rows": (Column(np.arange(N) * 1.0), CLASSES, "classification"),
    "mostly empty copy": (
        Column(np.where(np.arange(N) < 500, np.nan, Y)), Y, "regression",
    ),
    "constant in a sorted file": (Column(np.arange(N) // N * 1.0), np.sort(Y), "regression"),
    "ties in a sorted file": (
        Column(np.repeat(np.arange(150.0), 4)[G.permutation(N)]), np.sort(Y), "regression",
    ),
    "infinite": (Column(np.where(np.arange(N) == 5, np.inf, G.random(N))), Y, "regression"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*RECODED, *SUSPECTS])
def test_leaks_are_flagged(name):
    column, *goal = (RECODED | SUSPECTS)[name]
    leak = find_leak("column", column, Goal.of(*goal))
    assert leak is not None
    assert leak.column == "column"
    assert 0.97 <= leak.share <= 1
    assert leak.is_target == (name in RECODED)


@pytest.mark.parametrize("name", HONEST)
def test_honest_columns_are_not(name):
    column, *goal = HONEST[name]
    assert find_leak("column", column, Goal.of(*goal)) is None


def test_few_rows_and_one_target_value_say_nothing():
    table = Table({"column": Column(Y), "other": Column(SPEED)})
    assert find_leaks(table.rows(np.arange(19)), table.names, Y[:19], "regression") == []
    assert find_leaks(table, table.names, np.ones(N), "regression") == []


def test_wide_tables_are_searched_where_they_follow_the_target():
    noise = {f"x{i}": Column(G.normal(size=60)) for i in range(SAMPLE_COLUMNS + 50)}
    table = Table({**noise, "copy": Column(2 * Y[:60])})
    leaks = find_leaks(table, table.names, Y[:60], "regression")
    assert [leak.column for leak in leaks] == ["copy"]


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_shipped_data_have_no_leaks(name):
    assert profile(read_table(name), DATASETS[name]).leaks == []


@pytest.mark.parametrize("many", [False, True])
def test_shares_match_their_definition(many):
    codes = G.permutation(400) if many else G.integers(0, 8, 400)
    target, values = G.integers(0, 3, 400), G.normal(size=400)
    goal = Goal.of(target, "classification")
    right = errors = 0.0
    for row in range(400):
        others = np.abs(codes - codes[row]) <= (10 if many else 0)
        others[row] = False
        right += (target[others] == target[row]).mean() >= 0.5
        errors += (values[row] - values[others].mean()) ** 2
    share = (right - np.bincount(target).max()) / (400 - np.bincount(target).max())
    assert share_of_classes(codes, goal, has_groups=not many) == pytest.approx(share)
    spread = ((values - values.mean()) ** 2).sum()
    for scale in (1.0, 1e200):  # the square of 1e200 overflows
        goal = Goal.of(values * scale, "regression")
        known = share_of_squares(codes, goal, has_groups=not many)
        assert known == pytest.approx(1 - errors / spread)


@pytest.mark.parametrize("kinds", [2, 30])
def test_neighbors_tell_classes_however_many_there_are(kinds):
    rng = np.random.default_rng(kinds)
    classes = rng.integers(0, kinds, 1800).astype(np.float64)
    noise = {f"noise {i}": Column(rng.normal(size=1800)) for i in range(5)}
    order = Column(classes + rng.random(1800) * 0.9)  # neighbors have the class
    table = Table({**noise, "order": order})
    leaks = find_leaks(table, table.names, classes, "classification")
    assert [leak.column for leak in leaks] == ["order"]


def test_many_small_classes_are_one_line():
    codes = np.append(np.arange(50) % 25, 3)
    found = profile(Table({"x": text(np.arange(51)), "y": text(codes)}), "y")
    lines = [line for line in found.warnings() if "class" in line]
    assert [line.partition(";")[0] for line in lines] == [
        "25 of 25 classes have fewer than 10 rows, such as 't0' with 2"
    ]
    assert found.lines()[-2:] == ["  class t19: 2 rows", "  5 other classes"]


def test_duplicates():
    columns = {"a": Column(np.array([0.0, -0.0, np.nan, np.nan, 1, 0])),
               "b": text(np.array([0, 0, 1, 1, 0, 1]))}  # fmt: skip
    assert count_duplicates(Table(columns)) == 2
    assert count_duplicates(Table({"a": Column(np.arange(9.0))})) == 0
    swapped = {"a": Column(np.array([1.0, 2.0])), "b": Column(np.array([2.0, 1.0]))}
    assert count_duplicates(Table(swapped)) == 0


INDEX = "__index_level_0__"
"""Pandas' name of an index without a name, in Parquet files."""


def messy_table() -> Table:
    rare = np.where(np.arange(N) < 3, 1, 0)
    return Table(
        {
            "id": Column(np.arange(N) + 1.0),
            "name": text(np.arange(N), "name "),
            "same": Column(np.full(N, 4.0)),
            "tiny": Column(Y * 1e-300),
            "huge": Column(Y * 1e120),
            "empty": Column(np.full(N, np.nan)),
            "gappy": Column(np.where(np.arange(N) % 3, np.nan, Y)),
            "damaged": Column(np.arange(N, dtype=np.int32), "text", (*map(str, range(N - 1)), "x")),
            "code": text(1 - rare),
            INDEX: Column(Y.copy()),
            "comma": Column(np.arange(N, dtype=np.int32), "text", (*(f"{i},5" for i in range(N)),)),
            "fine": Column((90 * np.sin(9 * Y)).astype(np.int8)),
            "y": text(rare, "class "),
        },
        "messy",
    )


def test_a_profile_tells_everything():
    found = profile(messy_table(), "y")
    assert found.task == "classification"
    assert found.classes == {"class 0": N - 3, "class 1": 3}
    assert [leak.column for leak in found.leaks] == ["code"]
    dropped = ["id", "name", "same", "tiny", "huge", "empty", "damaged", INDEX, "comma", "code"]
    assert list(found.drop) == dropped
    text = "\n".join(found.lines() + found.warnings())
    assert "'code'" not in "\n".join(found.warnings(["code"]))
    for part in (
        "messy: 600 rows, 13 columns",
        "column 'same': constant (4)",
        "in row 1 is beyond 1e+100; correct the value",
        "column 'tiny': its numbers differ by less",
        "column 'id': row numbers",
        "column 'comma': 600 of 600 values are like '300,5'",
        "column 'gappy': 400 of 600 values are missing",
        "column 'code': each of its values stands for one value of the target",
        "class 'class 1': only 3 rows",
        "class 0 (597), class 1 (3)",
    ):
        assert part in text
    assert json.loads(json.dumps(found.as_dict()))["n_rows"] == N


def test_profiles_without_and_with_odd_targets():
    table = messy_table()
    assert profile(table).task is None
    assert profile(table, ["fine", "gappy"]).leaks == []
    assert profile(table, ["fine", "gappy"]).target_missing == 0  # each row has one of them
    assert profile(table.rows(np.arange(5, 100)), "y").classes == {"class 0": 95}
    assert profile(table, "name", task="regression").leaks == []
    gaps = profile(table, "gappy")
    assert gaps.target_missing == 400
    assert "target: missing in 400 rows" in "\n".join(gaps.warnings())
    with pytest.raises(DataError, match="the target needs column 'z'"):
        profile(table, "z")
    twice = Table({name: column.take(np.arange(N) // 2) for name, column in table.columns.items()})
    assert "300 of 600 rows are copies of an earlier row" in "\n".join(profile(twice).warnings())


OUTLIERS = {
    "one cell": (lambda x: x, 1e25, True),
    "negative": (lambda x: x, -1e9, True),
    "far, but not impossible": (lambda x: x, 1e5, False),
    "nine in ten are equal": (lambda x: x * (np.arange(1000) % 30 == 0), 1e12, True),
    "whole numbers": (np.round, 1e15, True),
    "a heavy tail": (lambda x: np.exp(3 * x), np.exp(3 * 4.9), False),
    "a missing value": (lambda x: x, np.nan, False),
    "constant but for one": (np.ones_like, 1e9, False),
}


@pytest.mark.parametrize("name", OUTLIERS)
def test_a_cell_far_from_all_others_is_named(name):
    shape, cell, far = OUTLIERS[name]
    values = shape(np.random.default_rng(0).normal(size=1000))
    values[700] = cell
    values[3] = np.nan
    table = Table({"a": Column(values), "t": Column(np.arange(1000.0) % 7)}, "t.csv", first_line=2)
    warning = next((line for line in profile(table, "t").warnings() if "the others" in line), "")
    assert warning.startswith("t.csv: line 702, column 'a' is ") == far
    odd = find_outliers(table, table.names, np.arange(600, 1000))
    assert [(o.column, o.text.split(", ")[:2]) for o in odd] == (
        [("a", warning.split(", ")[:2])] if far else []
    )


@pytest.mark.parametrize(("times", "far"), [(1e6, True), (90.0, False)])
def test_a_target_that_is_far_beyond_all_others_is_named(times, far):
    price = np.random.default_rng(0).uniform(5_000, 75_000, 300)
    price[7] = times * 75_000
    table = Table({"price": Column(np.round(price))}, "t.csv", first_line=2)
    odd = find_outliers(table, ["price"], targets=["price"])
    assert [o.text[:45] for o in odd] == (
        ["t.csv: line 9, column 'price' is 75,000,000,0"] if far else []
    )


def test_columns_of_float32_are_profiled_without_a_word():
    rows = np.c_[SPEED, Y].astype(np.float32)
    assert profile(Table.from_arrays(rows, names=["speed", "y"]), "y").warnings() == []


@pytest.mark.parametrize("code", [-9, 99, -9_999.0, -99.9, -32768, 1e20, 9.96921e36])
def test_a_number_that_may_be_a_missing_cell_is_named(code):
    cells = np.where(np.arange(60) % 20 == 3, code, np.linspace(1, 5, 60))
    (line,) = [w for w in profile(Table({"a": Column(cells)})).warnings() if "the others" in w]
    assert line.startswith(f"column 'a': 3 values are {code:g}, the others 1 to 5; if that is")
    assert f"add '{code:g}' to data.na_values" in line


def test_a_date_that_may_be_a_missing_cell_is_named(tmp_path):
    days = [f"{2020 + i % 3}-05-{1 + i % 28:02}" if i % 9 else "9999-12-31" for i in range(60)]
    (tmp_path / "t.csv").write_text(
        "\n".join(["d,y", *(f"{day},{i}" for i, day in enumerate(days))])
    )
    ((name, text),) = profile(read_table(tmp_path / "t.csv")).format_remarks()
    assert name == "d"
    assert text.startswith("7 values are 9999-12-31, the others 2020-05-02 to 2022-05-27; if that")


def test_times_of_day_are_shown_without_a_date():
    (column,) = profile(Table({"t": Column(np.arange(60) * 60.0, "date")})).columns
    assert (column.summary, column.is_of_one_day) == ("00:00:00 to 00:59:00", True)


def test_numbers_like_those_of_missing_cells_may_be_others():
    cells = {
        "once": np.where(np.arange(60) == 3, -999, np.linspace(1, 5, 60)),
        "percent": np.arange(60) % 25 * 4.0 + 3,  # 99 twice, beside 95
        "one more": np.repeat([96.0, 97, 98, 99], 15),
        "a distance": np.where(np.arange(60) % 20 == 3, 999.0, np.arange(60) * 9),
        "none": np.full(60, np.nan),
        "few": np.repeat([-9.0, 1, 2], 20),
        "nothing": np.where(np.arange(60) % 20 == 3, 0, np.arange(60) + 500),
        "few others": np.repeat([-50.5, 1, 2, 3], 20),
        "infinite": np.where(np.arange(60) % 20 == 3, np.inf, np.arange(60)),
    }
    for name, column in cells.items():
        assert profile(Table({name: Column(column)})).format_remarks() == [], name


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_rows_that_are_all_there_twice_make_no_column_the_target(task):
    y = Y[:80] if task == "regression" else np.arange(80.0)
    columns = {"a": G.permutation(80) + 0.5, "copy": -y, "b": SPEED[:80]}
    table = Table({name: Column(np.tile(values, 2)) for name, values in columns.items()})
    leaks = find_leaks(table, table.names, np.tile(y, 2), task)
    assert [leak.column for leak in leaks if leak.is_target] == ["copy"]


def gamma(mean: float, shape: float = 4.0) -> np.ndarray:
    return G.gamma(shape, mean / shape, 1500)


READINGS = gamma(15)[:, None] * G.lognormal(0, 0.22, (1500, 10))
LOW, INNER = 45 + 18 * G.normal(size=1500), gamma(20)
BOUNDS = {
    "mean and largest reading": (READINGS.mean(axis=1), READINGS.max(axis=1), {}),
    "mean and twice a deviation more": (
        INNER,
        INNER + 2 * (DEVIATION := gamma(2, 2.0)),
        {"deviation": DEVIATION},
    ),
    "low and high of a day": (LOW.round(), (LOW + 6 + gamma(10)).round(), {"rain": gamma(3)}),
    "inner and outer diameter": (INNER.round(1), (INNER + G.uniform(2, 12, 1500)).round(1), {}),
}
"""By case: an honest column, the target, and other columns; sizes of living and made things."""


@pytest.mark.parametrize("case", BOUNDS)
def test_a_bound_that_follows_the_target_is_no_leak(case):
    column, target, others = BOUNDS[case]
    assert 0.9 < np.corrcoef(column, target)[0, 1] ** 2 < ANSWER
    assert (column <= target).all() or (column >= target).all()
    columns = {"column": column, "weekday": G.integers(0, 7, 1500), **others}
    assert find_leaks(as_table(columns), [*columns], target, "regression") == []
