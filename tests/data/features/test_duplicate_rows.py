"""Duplicate rows: which equal rows they are, and what becomes of them in folds and weights."""

from collections import Counter

import numpy as np
import pytest

from mlpengine import fit
from mlpengine.data.features import fold_rows, split_rows
from mlpengine.data.features.duplicate_rows import (
    count_copies,
    hashed,
    row_hashes,
    table_duplicates,
)
from mlpengine.data.tables import Column, Table

RNG = np.random.default_rng(0)
MEASURED = RNG.standard_normal((150, 3))
ROUNDED = RNG.standard_normal((600, 5)).round(1)  # no column tells rows apart, five do
CATEGORIES = RNG.integers(0, 3, (400, 5)).astype(float)
"""Of 243 combinations many occur several times."""

PHASE = RNG.integers(0, 30, 400)
DEPENDENT = np.stack([PHASE, np.sin(PHASE), np.cos(PHASE)], axis=1)
"""A column and what follows from it."""


def matrix_duplicates(x):
    """Return the duplicates among the rows of a matrix."""
    table = Table.from_arrays(x)
    return table_duplicates(table, table.names, np.arange(len(x)))


def with_duplicates(x, count=20):
    return np.concatenate([x, x[RNG.integers(0, len(x), count)]])[RNG.permutation(len(x) + count)]


@pytest.mark.parametrize(
    ("x", "exist"),
    [
        (with_duplicates(MEASURED), True),
        (with_duplicates(MEASURED, 300), True),
        (with_duplicates(ROUNDED), True),
        (np.column_stack([with_duplicates(CATEGORIES), RNG.random(420)]), False),
        (np.repeat(np.column_stack([CATEGORIES, RNG.random(400)]), 2, axis=0), True),
        (MEASURED, False),
        (CATEGORIES, False),
        (with_duplicates(CATEGORIES), False),
        (DEPENDENT, False),
        (np.repeat(MEASURED[:, :1], 2, axis=0), False),
        (np.column_stack([np.repeat(MEASURED[:, 0], 2), np.ones(300)]), False),
    ],
    ids=[
        *("measurements", "most are duplicates", "rounded", "told apart by one", "with one number"),
        *("no duplicates", "categories", "duplicates of categories", "dependent", "one column"),
        "one column and a constant",
    ],
)
def test_equal_rows_are_duplicates_where_they_are_no_coincidence(x, exist):
    assert matrix_duplicates(x).exist is exist


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_hashes_are_equal_for_equal_rows_alone(dtype):
    x = with_duplicates(np.where(RNG.random((500, 6)) < 0.5, 0, RNG.integers(-2, 3, (500, 6))) / 3)
    x = x.astype(dtype)
    x[3], x[4] = 0.0, -0.0
    hashes = matrix_duplicates(x).hashes
    truth = np.unique(x + 0.0, axis=0, return_inverse=True)[1]
    assert Counter(Counter(hashes.tolist()).values()) == Counter(np.bincount(truth).tolist())
    assert len({*zip(hashes.tolist(), truth.tolist(), strict=True)}) == truth.max() + 1
    columns = [Column(column.astype("f8")) for column in x.T]
    np.testing.assert_array_equal(row_hashes(columns), hashes)
    zero, negative, *tiny = hashed(np.array([0.0, -0.0, 1e-20, 2e-20]), 2)
    assert zero == negative == 0 not in tiny
    assert tiny[0] != tiny[1]


def test_missing_cells_and_texts_are_equal_to_their_like():
    texts = Column(np.array([0, 1, -1, -1, 0], "i4"), "text", ("a", "b"))
    numbers = Column(np.array([np.nan, 1.0, np.nan, np.nan, np.nan]))
    hashes = row_hashes([texts, numbers])
    assert hashes[2] == hashes[3]
    assert hashes[0] == hashes[4]
    assert len({*hashes.tolist()}) == 3
    table = Table({"t": texts, "x": numbers}, "t.csv")
    other = Column(np.array([2, 0, 0, -1, 1], "i4"), "text", ("b", "c", "a"))
    other = Table({"x": Column(np.array([np.nan, 1, 9, np.nan, np.nan])), "t": other}, "o.csv")
    assert count_copies(other, table, ["t", "x"]) == (3, 4)


@pytest.mark.parametrize("labels", [None, np.arange(220) % 3])
def test_duplicates_are_in_one_fold_and_one_part(labels):
    duplicates = RNG.integers(0, 150, 220).astype(np.uint64)
    folds = fold_rows(220, 4, seed=1, labels=labels, duplicates=duplicates)
    assert {*folds.tolist()} == {0, 1, 2, 3}
    pairs = {*zip(duplicates.tolist(), folds.tolist(), strict=True)}
    assert len(pairs) == len({*duplicates.tolist()})
    first = np.unique(duplicates, return_index=True)[1]
    distinct = None if labels is None else labels[first]
    np.testing.assert_array_equal(folds[first], fold_rows(len(first), 4, seed=1, labels=distinct))
    parts = split_rows(220, seed=1, labels=labels, duplicates=duplicates)
    assert sum(map(len, parts)) == 220
    each = [{*duplicates[rows].tolist()} for rows in parts]
    assert sum(map(len, each)) == len({*duplicates.tolist()})
    few = np.zeros(220, np.uint64)  # too few to divide
    np.testing.assert_array_equal(
        fold_rows(220, 4, labels=labels, duplicates=few), fold_rows(220, 4, labels=labels)
    )


def test_weights_are_repetitions():
    """Rows in any order with whole weights are learned as the rows so many times."""
    y, weights = RNG.integers(0, 3, 150), RNG.integers(1, 4, 150)
    order, repeated = RNG.permutation(150), RNG.permutation(np.repeat(np.arange(150), weights))
    duplicates = matrix_duplicates(MEASURED[repeated])
    rows, counts = duplicates.learned_once(y[repeated], None)
    alone = matrix_duplicates(MEASURED[order])
    other, same = alone.learned_once(y[order], weights[order])
    np.testing.assert_array_equal(repeated[rows], order[other])
    np.testing.assert_array_equal(counts, same)
    assert alone.together is None
    np.testing.assert_array_equal(duplicates.of(rows).together, alone.hashes[other])
    assert alone.learned_once(y[order], None) is None


def test_duplicates_with_other_targets_stay_rows_of_their_own():
    x, y = np.repeat(MEASURED, 2, axis=0), np.arange(300)
    duplicates = matrix_duplicates(x)
    assert duplicates.learned_once(y, None) is None
    assert duplicates.exist
    rows, weights = duplicates.learned_once(y // 2 + (np.arange(300) == 7), None)
    assert (len(rows), weights.sum()) == (151, 300)
    assert {6, 7} <= {*rows.tolist()}


FEW = {
    "model": {"hidden": [4]},
    "training": {"epochs": 3, "folds": 3, "members": None},
    "optimizer": {"name": "adam", "lr": 0.01},
}


def fitted(x, y, **more):
    columns = {f"x{k}": column for k, column in enumerate(x.T)}
    data = {"split": {"test": 0.0}, "encoding": "none", "drop": [], **more}
    return fit({**columns, "y": y}, "y", data=data, **FEW)


def test_a_run_learns_duplicates_once():
    x, y = np.repeat(MEASURED, 2, axis=0), np.repeat(RNG.standard_normal(150), 2)
    model, result = fitted(x, y)
    assert model.record["rows"] == {"train": 150}
    assert np.isfinite(result.metrics["out_of_fold"]["loss"])
    alone, _ = fitted(MEASURED, y[::2])
    order = np.argsort(row_hashes([Column(column) for column in MEASURED.T]))
    ordered, _ = fitted(MEASURED[order], y[::2][order])
    new = {f"x{k}": column for k, column in enumerate(MEASURED[:20].T)}
    assert (model.predict(new) != alone.predict(new)).all()  # the order of the rows
    np.testing.assert_allclose(model.predict(new), ordered.predict(new), rtol=1e-5)


def test_a_test_row_has_no_copy_among_the_training_rows():
    x = np.repeat(MEASURED, 2, axis=0)
    model, _ = fitted(x, np.arange(300.0), split={"test": 0.2})
    assert model.record["rows"] == {"train": 240, "test": 60}
