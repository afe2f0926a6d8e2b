"""Features of rows that are read on demand are those of the whole table."""

import numpy as np
import pytest

from mlpengine.core.errors import DataError
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.drift import NewRows
from mlpengine.data.tables.frames import as_table
from mlpengine.data.tables.reader import store_table


def test_rows_of_a_table_are_those_of_the_whole_and_warnings_stay():
    g = np.random.default_rng(0)
    columns = {f"x{k}": g.standard_normal(700) for k in range(5)}
    columns["x1"][::7] = np.nan
    columns |= {"t": g.choice(["a", "b", "c"], 700), "n": g.integers(0, 9, 700)}
    table = as_table(columns)
    preprocessor = Preprocessor(missing="indicator").fit(table)
    new = as_table(columns | {"x3": columns["x3"] * 9, "x4": np.full(700, np.nan)})
    expected, lines = preprocessor.transform(new).features, NewRows(preprocessor).add(new).lines()
    rows = preprocessor.features_of(new)
    assert (rows.shape, rows.dtype, len(rows)) == (expected.shape, expected.dtype, 700)
    parts = [rows[:256], rows[256:650], rows[650:]]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    halves = NewRows(preprocessor).add(new.rows(np.arange(300))).add(new.rows(np.arange(300, 700)))
    assert halves.lines() == lines
    assert len(lines) == 2


def dated(rows):
    g = np.random.default_rng(1)
    days = g.integers(0, 900, (2, rows)).astype("m8[D]") + np.datetime64("2020-01-01T03:04:05")
    days[1, ::9] = np.datetime64("NaT")
    codes = {"t": g.choice(["a", "b", "c"], rows), "many": g.integers(0, 40, rows).astype(str)}
    dates = {"first": days[0], "second": days[1]}
    plain = {"x": g.standard_normal(rows), "n": g.integers(0, 90, rows)}
    return as_table({**dates, **plain, "y": codes["t"] == "a", **codes})


def test_dates_whole_numbers_and_categories_are_read_by_rows():
    table = dated(1500)
    preprocessor = Preprocessor("y", categorical=["many"], missing="indicator").fit(table)
    assert preprocessor.categories[1].value < 1
    expected = preprocessor.transform(table).features
    assert {"second - first", "first season sin", "many=7"} <= {*preprocessor.feature_names}
    rows = preprocessor.features_of(table)
    np.testing.assert_array_equal(np.concatenate([rows[:7], rows[7:1024], rows[1024:]]), expected)


def test_a_column_that_a_stored_table_lacks_is_named(tmp_path):
    (tmp_path / "t.csv").write_text(
        "a,b,y\n" + "".join(f"{i},{i % 4},{i % 3}\n" for i in range(20))
    )
    table = store_table(tmp_path / "t.csv", tmp_path / "p")
    fitted = Preprocessor("y").fit(table)
    with pytest.raises(DataError, match=r"the model needs column 'b'"):
        fitted.stream(table.drop(["b"]), batch_size=4)
