"""Rows made of near rows: each cell is one of the table, of the base or of a neighbor."""

import numpy as np

from mlpengine.data.features import Preprocessor
from mlpengine.data.features.synthetic_rows import SyntheticRows
from mlpengine.data.features.thresholds import CANDIDATES, NEAR_ROWS
from mlpengine.data.tables import Table, read_table
from mlpengine.data.tables.frames import as_table

RNG = np.random.default_rng(5)


def mixed(table, count, target="y", seed=0):
    fitted = Preprocessor(target=target).fit(table)
    features = fitted.transform(table).features
    return fitted, SyntheticRows.of(fitted, features, count, np.random.default_rng(seed))


def numbers(rows):
    x = RNG.normal(size=(rows, 3))
    return Table.from_arrays(x, x.sum(axis=1))


def test_every_cell_is_that_of_the_base_or_of_the_other_row():
    table = read_table("penguins")
    fitted, rows = mixed(table, 700, "species")
    made = rows.table(table)
    assert made.n_rows == len(rows) == 700
    assert rows.columns == tuple(fitted.columns)
    for k, name in enumerate(rows.columns):
        source = np.where(rows.swapped[:, k], rows.other, rows.base)
        np.testing.assert_array_equal(made[name].values, table[name].values[source])
        assert (made[name].kind, made[name].levels) == (table[name].kind, table[name].levels)
    np.testing.assert_array_equal(made["species"].values, table["species"].values[rows.base])
    assert {*np.bincount(rows.base, minlength=344)} == {2, 3}
    assert 0.2 < rows.swapped.mean() < 0.3


def test_the_other_row_is_one_of_the_nearest():
    table = numbers(200)
    _, rows = mixed(table, 1_000)
    fitted = Preprocessor(target="y").fit(table)
    x = fitted.transform(table).features.astype(np.float64)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    distances = np.linalg.norm(x[:, None] - x[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1)[:, :NEAR_ROWS]
    assert all(other in nearest[base] for base, other in zip(rows.base, rows.other, strict=True))


def test_neighbors_of_many_rows_are_looked_for_among_some(monkeypatch):
    monkeypatch.setattr("mlpengine.data.features.synthetic_rows.CANDIDATES", 20)
    _, rows = mixed(numbers(100), 500)
    assert CANDIDATES > 20 >= len({*rows.other.tolist()})
    assert (rows.other != rows.base).all()


def test_a_table_of_one_row_gives_the_row():
    _, rows = mixed(as_table({"a": [1.5], "y": [2.5]}), 4)
    np.testing.assert_array_equal(rows.base, [0] * 4)
    np.testing.assert_array_equal(rows.other, [0] * 4)
