"""Numeric features in C: the bits of NumPy, for all kinds of tables, targets and odd cells."""

import numpy as np
import pytest
from sklearn.preprocessing import OneHotEncoder

from mlpengine.backends.compiled import available_targets
from mlpengine.core.errors import DataError
from mlpengine.data.features import Preprocessor, compiled, numbers
from mlpengine.data.features.unlike import NewRows
from mlpengine.data.tables import Table
from mlpengine.data.tables.frames import as_table

OPTIONS = [
    {"encoding": "none"},
    {"encoding": "piecewise", "bins": 7, "missing": "indicator"},
    {"encoding": "none", "clip": "none", "missing": "median", "dtype": "float64"},
    {"standardize": "none", "encoding": "piecewise", "missing": "error"},
]


def matrix(columns, dtype, *, gaps):
    g = np.random.default_rng(0)
    x = (g.standard_normal((403, columns)) * 10.0 ** g.integers(-3, 4, columns)).astype(dtype)
    x[3], x[4] = 1e30, -1e30
    x[5] = 0.0
    x[6] = -0.0
    x[7] = 1e-40
    if gaps:
        x[g.random(x.shape) < 0.1] = np.nan
    return x


@pytest.fixture(autouse=True)
def _anew():
    compiled._library.cache_clear()
    yield
    compiled._library.cache_clear()


@pytest.mark.parametrize("level", [target.level for target in available_targets()])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("columns", [1, 20, 37])
def test_the_bits_are_those_of_numpy(options, columns, level, monkeypatch):
    monkeypatch.setenv("MLPENGINE_TARGET", level)
    for dtype, order in (("f4", "C"), ("f8", "C"), ("f8", "F"), ("f4", "F")):
        x = np.asarray(matrix(columns, dtype, gaps=options.get("missing") != "error"), order=order)
        table = Table.from_arrays(x)
        preprocessor = Preprocessor(**options).fit(table)
        monkeypatch.setattr(compiled, "MIN_NUMBERS", 1 << 60)
        compiled._library.cache_clear()
        expected = preprocessor.transform(table).features
        monkeypatch.setattr(compiled, "MIN_NUMBERS", 0)
        out = np.full_like(expected, np.nan)
        assert preprocessor.numbers.encode_columns(x.T, out)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("cell", [np.inf, -np.inf, 1e101, np.nan])
def test_a_cell_that_cannot_be_used_is_named(cell, monkeypatch):
    monkeypatch.setattr(compiled, "MIN_NUMBERS", 0)
    x = np.random.default_rng(0).standard_normal((50, 5))
    preprocessor = Preprocessor(missing="error").fit(Table.from_arrays(x))
    x[17, 3] = cell
    with pytest.raises(DataError, match=r"row 18, column 'x3'"):
        preprocessor.transform(Table.from_arrays(x))


def test_rows_of_a_table_are_those_of_the_whole_and_warnings_stay(monkeypatch):
    g = np.random.default_rng(0)
    columns = {f"x{k}": g.standard_normal(700) for k in range(5)}
    columns["x1"][::7] = np.nan
    columns |= {"t": g.choice(["a", "b", "c"], 700), "n": g.integers(0, 9, 700)}
    table = as_table(columns)
    preprocessor = Preprocessor(missing="indicator").fit(table)
    new = as_table(columns | {"x3": columns["x3"] * 9, "x4": np.full(700, np.nan)})
    expected, lines = preprocessor.transform(new).features, NewRows(preprocessor).add(new).lines()
    monkeypatch.setattr(compiled, "MIN_NUMBERS", 0)
    rows = preprocessor.features_of(new)
    assert (rows.shape, rows.dtype, len(rows)) == (expected.shape, expected.dtype, 700)
    parts = [rows[:256], rows[256:650], rows[650:]]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert NewRows(preprocessor).add(new).lines() == lines
    assert len(lines) == 2


def dated(rows):
    g = np.random.default_rng(1)
    days = g.integers(0, 900, (2, rows)).astype("m8[D]") + np.datetime64("2020-01-01T03:04:05")
    days[1, ::9] = np.datetime64("NaT")
    codes = {"t": g.choice(["a", "b", "c"], rows), "many": g.integers(0, 40, rows).astype(str)}
    dates = {"first": days[0], "second": days[1]}
    plain = {"x": g.standard_normal(rows), "n": g.integers(0, 90, rows)}
    return as_table({**dates, **plain, "y": codes["t"] == "a", **codes})


def test_dates_whole_numbers_and_categories_are_computed_in_c(monkeypatch):
    table = dated(1500)
    preprocessor = Preprocessor("y", categorical=["many"], missing="indicator").fit(table)
    assert preprocessor.categories[1].value < 1
    expected = preprocessor.transform(table).features
    assert {"second - first", "first season sin", "many=7"} <= {*preprocessor.feature_names}
    monkeypatch.setattr(compiled, "MIN_NUMBERS", 0)
    monkeypatch.setattr(numbers, "read_slices", None)
    np.testing.assert_array_equal(preprocessor.transform(table).features, expected)
    rows = preprocessor.features_of(table)
    np.testing.assert_array_equal(np.concatenate([rows[:7], rows[7:1024], rows[1024:]]), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_hots_are_those_of_scikit_learn(dtype):
    table = dated(2500)
    preprocessor = Preprocessor(
        "y", drop=["first", "second", "x", "n"], categorical=["many"], min_count=1, dtype=dtype
    ).fit(table)
    texts = np.array([[table[n].cell(i) for n in ("t", "many")] for i in range(2500)])
    levels = [category.levels for category in preprocessor.categories]
    truth = OneHotEncoder(categories=levels, sparse_output=False).fit_transform(texts)
    features = preprocessor.transform(table).features
    known = [name.endswith("(unknown)") for name in preprocessor.feature_names]
    assert features.dtype == dtype
    assert not features[:, known].any()
    values = np.repeat([c.value for c in preprocessor.categories], [len(one) for one in levels])
    np.testing.assert_array_equal(features[:, ~np.array(known)], (truth * values).astype(dtype))
