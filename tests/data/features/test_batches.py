import json
from itertools import chain

import numpy as np
import pytest
from traced import least_peak

from mlpengine.core.errors import DataError
from mlpengine.core.rows import gather_rows
from mlpengine.data.features import Batches
from mlpengine.data.features.batches import steps_of_epoch


def drain(batches: Batches, count: int = 10**9) -> list[list[int]]:
    found = []
    for indices in batches.epoch():
        found.append(indices.tolist())
        if len(found) == count:
            break
    return found


def test_every_row_once_an_epoch_in_a_new_order():
    batches = Batches(np.arange(100, 123), 5, seed=3)
    first, second = drain(batches), drain(batches)
    assert [len(batch) for batch in first] == [5, 5, 5, 5, 3]
    assert len(batches) == 5
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(100, 123))
    assert first != second
    assert drain(Batches(np.arange(100, 123), 5, seed=3)) == first
    assert drain(Batches(23, 5, seed=4)) != drain(Batches(23, 5, seed=3))


@pytest.mark.parametrize("taken", [0, 1, 3, 5])
def test_resume_is_exact(taken):
    batches = Batches(23, 5, seed=np.random.default_rng(7))
    drain(batches)
    if taken:
        drain(batches, taken)
    state = batches.state_dict()
    state["generator"] = json.loads(json.dumps(state["generator"]))
    other = Batches(23, 5, seed=99)
    other.load_state_dict(state)
    assert [drain(other), drain(other)] == [drain(batches), drain(batches)]


@pytest.mark.parametrize(
    "change", [{"order": np.arange(4)}, {"order": np.arange(23) + 1}, {"cursor": 24}]
)
def test_refuses_a_foreign_state(change):
    batches = Batches(23, 5)
    with pytest.raises(DataError, match="batches: "):
        batches.load_state_dict(batches.state_dict() | change)


@pytest.mark.parametrize("arguments", [(0, 5), (5, 0), (np.zeros((2, 2)), 1), (3, 4)])
def test_faults(arguments):
    with pytest.raises(DataError, match="batches: "):
        Batches(*arguments, drop_last=True)


def peak_of_an_epoch(n_rows: int, take=gather_rows) -> int:
    rows = np.ones((n_rows, 8), np.float32)
    batches, out = Batches(n_rows, n_rows // 2), np.empty((n_rows // 2, 8), np.float32)

    def epoch() -> None:
        for indices in batches.epoch():
            take(rows, indices, out)

    epoch()
    epoch()
    return least_peak(epoch)


def test_an_epoch_holds_no_memory_that_grows():
    assert peak_of_an_epoch(65_536) - peak_of_an_epoch(4_096) < 1024


def test_gather_from_a_memory_mapped_file(tmp_path):
    matrix = np.random.default_rng(0).normal(size=(1000, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", matrix)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    indices, out = np.arange(999, 0, -3), np.empty((333, 6), np.float32)
    gather_rows(mapped, indices, out)
    np.testing.assert_array_equal(out, matrix[indices])
    assert least_peak(gather_rows, mapped, indices, out) < 1024


@pytest.mark.parametrize("rows", [np.zeros((8, 4), np.float32).T, np.zeros((4, 8))])
def test_gather_refuses_rows_that_numpy_would_copy_whole(rows):
    with pytest.raises(DataError, match="ascontiguousarray"):
        gather_rows(rows, np.arange(2), np.empty((2, 8), np.float32))


def test_an_epoch_has_whole_batches_of_other_rows_each_time():
    batches = Batches(11, 4, seed=1, drop_last=True)
    seen = set()
    for _ in range(20):
        epoch = [*batches.epoch()]
        assert [len(rows) for rows in epoch] == [4, 4]
        assert len(batches) == 2 == steps_of_epoch(11, 4, drop_last=True)
        assert len({*np.concatenate(epoch)}) == 8
        assert batches.is_done
        seen |= {*np.concatenate(epoch)}
    assert seen == {*range(11)}
