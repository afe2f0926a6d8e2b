import numpy as np
import pytest

from mlpengine.core.errors import DataError
from mlpengine.data.features import fold_rows, split_rows
from mlpengine.data.features.splits import part_sizes
from mlpengine.data.tables import read_table

DIGITS = read_table("digits")["digit"].values


GIVEN = {
    "random": {},
    "labels": {"labels": DIGITS[:200]},
    "groups": {"groups": np.arange(200) // 3},
    "times": {"times": np.random.default_rng(0).permutation(200) * 1.0},
}


@pytest.mark.parametrize("fractions", [(0.7, 0.15, 0.15), (0.8, 0.2), (0.5, 0, 0.5), (1.0, 0.0)])
@pytest.mark.parametrize("kind", GIVEN)
def test_every_row_is_in_one_part_and_the_seed_decides(fractions, kind):
    n_rows, given = 200, GIVEN[kind]
    split = split_rows(n_rows, fractions, seed=1, **given)
    parts = list(split.parts().values())
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n_rows))
    sizes = [len(part) for part in split.parts().values()]
    shares = [*fractions, 0][:3]
    slack = {"random": 1, "labels": 10, "groups": 3, "times": 1}[kind]
    np.testing.assert_allclose(sizes, np.array(shares) * n_rows, atol=slack)
    again, other = (split_rows(n_rows, fractions, seed=seed, **given) for seed in (1, 2))
    np.testing.assert_array_equal(split.train, again.train)
    assert kind == "times" or fractions[0] == 1 or not np.array_equal(split.train, other.train)


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, [1, 0, 0]), (2, [1, 1, 0]), (3, [1, 1, 1]), (4, [2, 1, 1]), (7, [5, 1, 1]),
     (20, [14, 3, 3]), (0, [0, 0, 0])],
)  # fmt: skip
def test_small_classes_reach_as_many_parts_as_they_can(count, sizes):
    assert part_sizes(count, np.array([0.7, 0.15, 0.15])).tolist() == sizes
    if count > 2:
        labels = np.array(["rare"] * count + ["often"] * 50)
        split = split_rows(len(labels), labels=labels)
        found = [int((labels[part] == "rare").sum()) for part in split.parts().values()]
        assert found == sizes


def test_groups_stay_together():
    groups = np.random.default_rng(0).integers(0, 40, 500)
    split = split_rows(500, (0.6, 0.2, 0.2), groups=groups)
    members = [set(groups[part]) for part in split.parts().values()]
    assert sum(map(len, members)) == len(set(groups))
    lopsided = split_rows(102, groups=np.array(["big"] * 100 + ["a", "b"]))
    assert all(len(part) for part in lopsided.parts().values())


def test_time_runs_from_training_to_test_and_moments_stay_together():
    times = np.random.default_rng(0).integers(0, 30, 300)
    split = split_rows(300, times=times)
    assert times[split.train].max() < times[split.validation].min()
    assert times[split.validation].max() < times[split.test].min()


FAULTS = {
    "sum": lambda: split_rows(10, (0.5, 0.1, 0.1)),
    "negative": lambda: split_rows(10, (1.2, -0.1, -0.1)),
    "no training": lambda: split_rows(10, (0, 0.5, 0.5)),
    "one fraction": lambda: split_rows(10, (1.0,)),
    "not a number": lambda: split_rows(10, (0.5, float("nan"), 0.5)),
    "too few rows": lambda: split_rows(2),
    "too few groups": lambda: split_rows(10, groups=np.zeros(10)),
    "one moment": lambda: split_rows(10, times=np.zeros(10)),
    "a group of None": lambda: split_rows(4, groups=np.array(["a", None, "b", "c"], object)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    with pytest.raises(DataError, match="split: "):
        FAULTS[name]()


@pytest.mark.parametrize("folds", [2, 5])
@pytest.mark.parametrize("kind", GIVEN)
def test_every_row_is_in_one_fold_and_the_seed_decides(folds, kind):
    given = GIVEN[kind]
    fold = fold_rows(200, folds, seed=1, **given)
    sizes = np.bincount(fold, minlength=folds)
    assert (fold.dtype, len(fold), len(sizes)) == (np.int64, 200, folds)
    assert np.ptp(sizes) <= (3 if kind == "groups" else 1)
    np.testing.assert_array_equal(fold, fold_rows(200, folds, seed=1, **given))
    assert kind == "times" or not np.array_equal(fold, fold_rows(200, folds, seed=2, **given))
    if kind == "labels":
        for label in np.unique(DIGITS[:200]):
            assert np.ptp(np.bincount(fold[DIGITS[:200] == label], minlength=folds)) <= 1
    if kind == "groups":
        assert all(len(set(fold[given["groups"] == g])) == 1 for g in given["groups"])
    if kind == "times":
        assert (np.diff(fold[np.argsort(given["times"])]) >= 0).all()


@pytest.mark.parametrize(
    "counts", [(1, 1, 97), (97, 1, 1), (1, 97, 1), (40, 1, 1, 1, 57), (5,) * 9]
)
@pytest.mark.parametrize("folds", [2, 3])
def test_rows_of_one_time_are_in_one_fold_and_no_fold_is_empty(counts, folds):
    times = np.repeat(np.arange(len(counts)) * 0.5, counts)
    fold = fold_rows(len(times), folds, times=times)
    assert [len(set(fold[times == time])) for time in np.unique(times)] == [1] * len(counts)
    assert (np.diff(fold) >= 0).all()
    assert sorted(set(fold)) == [*range(folds)]


BAD_FOLDS = {
    "one": ((9, 1), {}, r"at least 2 are needed \(got 1\)"),
    "rows": ((3, 4), {}, r"4 folds need at least 4 rows \(got 3\)"),
    "groups": ((9, 4), {"groups": np.arange(9) % 3}, r"at least 4 groups \(these rows have 3\)"),
    "times": ((9, 4), {"times": np.arange(9) % 3}, r"at least 4 different times \(got 3\)"),
    "a gap": ((2, 2), {"times": np.array([1, np.nan])}, r"folds: a time is missing \(row 2\)"),
    "no group": ((2, 2), {"groups": np.array([np.nan, 1])}, r"a group is missing \(row 1\)"),
    "two": ((2, 2), {"times": np.arange(2), "groups": np.arange(2)}, "folds: at most one of"),
    "length": ((2, 2), {"labels": np.arange(3)}, "folds: labels needs one entry per row"),
}


@pytest.mark.parametrize("name", BAD_FOLDS)
def test_folds_that_cannot_be_made_are_refused(name):
    arguments, given, message = BAD_FOLDS[name]
    with pytest.raises(DataError, match=message):
        fold_rows(*arguments, **given)


def test_as_many_groups_or_times_as_folds_are_enough():
    for given in ({"groups": np.arange(9) % 3}, {"times": np.arange(9) // 3}):
        (values,) = given.values()
        folds = fold_rows(9, 3, **given)
        assert len({*zip(folds.tolist(), values.tolist(), strict=True)}) == 3
