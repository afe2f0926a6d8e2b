"""Outputs for many rows: threads change no bit, and BLAS has one thread meanwhile."""

import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mlpengine import Mlp
from mlpengine.errors import ShapeError
from mlpengine.models import forward as outputs
from mlpengine.step import blas_threads as threads
from mlpengine.step.blas_threads import one_blas_thread, pinned


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def networks():
    return [Mlp([5, 40, 3], activation="tanh", seed=seed) for seed in range(3)]


@pytest.mark.parametrize("rows", [0, 1, 255, 256, 700, 5_001])
def test_the_bits_are_those_of_one_thread(rows, networks, monkeypatch):
    monkeypatch.setattr(outputs, "TERMS_PER_THREAD", 1)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    x = np.random.default_rng(0).standard_normal((rows, 5)).astype("f4")
    for ours, mlp in zip(outputs.outputs_of(networks, x), networks, strict=True):
        np.testing.assert_array_equal(ours, mlp.predict(x))
    blocks = outputs._blocks(rows, 12)
    assert [k for block in blocks for k in range(rows)[block]] == [*range(rows)]
    assert rows < 256 or min(len(range(rows)[block]) for block in blocks) >= 256


def test_blas_has_one_thread_while_anybody_predicts(networks, monkeypatch):
    seen = []
    predict = Mlp.predict
    monkeypatch.setattr(Mlp, "predict", lambda *a: seen.append(blas_threads()) or predict(*a))
    with threadpool_limits(limits=2, user_api="blas"):
        outputs.outputs_of(networks, np.zeros((9, 5), "f4"))
        assert seen == [{1}] * 3
        assert blas_threads() == {2}
        with one_blas_thread(), ThreadPoolExecutor(1) as pool:
            pool.submit(outputs.outputs_of, networks, np.zeros((9, 5), "f4")).result()
            assert blas_threads() == {1}
        with pytest.raises(ShapeError):
            outputs.outputs_of(networks, np.zeros((9, 4), "f4"))
        assert blas_threads() == {2}


def test_predictions_take_no_more_threads_than_a_run(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 8)
    assert threads.threads_allowed() == 8
    with pinned(2):
        assert threads.threads_allowed() == 2
    with pinned(1, 3):
        assert threads.threads_allowed() == 3
    assert threads.threads_allowed() == 8


def test_the_blas_of_processes_is_compared_in_one_order(monkeypatch):
    pools = [
        {"user_api": "blas", "internal_api": "openblas", "version": "0.3.31"},
        {"user_api": "openmp", "internal_api": "openmp", "version": None},
        {"user_api": "blas", "internal_api": "openblas", "version": "0.3.30"},
    ]
    names = []
    for listed in (pools, pools[::-1]):
        loaded = SimpleNamespace(info=lambda listed=listed: listed)
        monkeypatch.setattr(threads, "_libraries", lambda loaded=loaded: loaded)
        names.append(threads.blas_name())
    assert names == ["openblas 0.3.30, openblas 0.3.31"] * 2


def test_libraries_are_looked_for_again_once_a_module_is_imported(monkeypatch):
    first = threads._libraries()
    assert threads._libraries() is first
    monkeypatch.setitem(sys.modules, "new", ModuleType("new"))
    assert threads._libraries() is not first
