"""Outputs for many rows: threads change no bit, and BLAS has one thread meanwhile."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep
from mlpengine.backends.compiled.cache import available_targets
from mlpengine.core.errors import CompileError, DtypeError, ShapeError
from mlpengine.models import forward as outputs
from mlpengine.models.members import NetworkMean
from mlpengine.models.task import Classification
from mlpengine.nn import Residual
from mlpengine.step import auto_backend
from mlpengine.step import blas_threads as threads
from mlpengine.step.auto_backend import prediction_backend
from mlpengine.step.blas_threads import one_blas_thread


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def networks():
    return [Mlp([5, 40, 3], activation="tanh", seed=seed) for seed in range(3)]


@pytest.mark.parametrize("rows", [0, 1, 700, 5_001])
def test_the_bits_are_those_of_one_thread(rows, networks, monkeypatch):
    monkeypatch.setattr(outputs, "TERMS_PER_THREAD", 1)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    x = np.random.default_rng(0).standard_normal((rows, 5)).astype("f4")
    for ours, mlp in zip(outputs.outputs_of(networks, x), networks, strict=True):
        np.testing.assert_array_equal(ours, mlp.predict(x))
    for width, limit in ((5, 4096), (1000, 512), (10**7, 256)):
        blocks = outputs._blocks(rows, width)
        assert [k for block in blocks for k in range(rows)[block]] == [*range(rows)]
        assert rows < 256 or min(len(range(rows)[block]) for block in blocks) >= 256
        assert max(len(range(rows)[block]) for block in blocks) < limit + 256


@pytest.fixture
def compiled(monkeypatch):
    monkeypatch.setattr(outputs, "prediction_backend", lambda networks, rows: "compiled")
    monkeypatch.setattr(outputs, "TERMS_PER_THREAD", 1)


def exact(mlp, x):
    """Return the outputs of an `Mlp` by the formula, in float64."""
    p, h = mlp.params.views, x.astype("f8")
    for k, layer in enumerate(mlp.layers):
        h = h @ p[layer.names[0]].astype("f8").T + p[layer.names[1]]
        h = np.tanh(h) if k < len(mlp.layers) - 1 else h
    return h


@pytest.mark.parametrize(("sizes", "dtype"), [([5, 40, 3], "f4"), ([13, 7, 1], "f8")])
@pytest.mark.parametrize("level", [target.level for target in available_targets()])
def test_machine_code_computes_the_formula(sizes, dtype, level, compiled, monkeypatch):
    monkeypatch.setenv("MLPENGINE_TARGET", level)
    nets = [Mlp(sizes, activation="tanh", seed=seed, dtype=dtype) for seed in range(2)]
    x = np.random.default_rng(0).standard_normal((5_001, sizes[0])).astype(dtype)
    x[7] *= 1e6
    each = {}
    for count in (1, 2, 4):
        monkeypatch.setattr(threads, "cores", lambda count=count: count)
        each[count] = outputs.outputs_of(nets, x)
        assert np.array_equal(each[count], each[1])  # whatever the number of threads
    shifted = outputs.outputs_of(nets, x[4_000:])
    for ours, moved, mlp in zip(each[1], shifted, nets, strict=True):
        size = np.abs(exact(mlp, x)).max()
        np.testing.assert_allclose(ours, exact(mlp, x), 0, size * 30 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(moved, ours[4_000:])  # wherever the row stands


OTHERS = [
    lambda seed: Mlp([5, 33, 3], reads=((0, 1), (2, 5)), seed=seed),
    lambda seed: Residual(5, 3, blocks=2, width=16, seed=seed),
]


@pytest.mark.parametrize("make", OTHERS)
def test_other_networks_and_several_kinds_run_as_machine_code(make, compiled, networks, caplog):
    caplog.set_level("INFO")
    nets = [*networks, make(0), make(1)]
    x = np.random.default_rng(0).standard_normal((700, 5)).astype("f4")
    task = Classification(3)
    for ours, mlp in zip(outputs.outputs_of(nets, x), nets, strict=True):
        np.testing.assert_allclose(ours, mlp.predict(x), rtol=2e-5, atol=2e-6)
    whole = NetworkMean(nets, task).forward(x)
    np.testing.assert_allclose(whole, np.mean([n.predict(x) for n in nets], 0), 2e-5, 2e-6)
    assert not caplog.messages


def test_the_outputs_are_those_of_a_compiled_step(compiled):
    mlp = Mlp([20, 48, 2], dropout=0.3, seed=1)
    step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp), 32, backend="compiled")
    x = np.random.default_rng(0).standard_normal((999, 20)).astype("f4")
    trained = mlp.empty_outputs(len(x))
    step.bound(32).forward.forward(x, trained)
    np.testing.assert_array_equal(outputs.outputs_of([mlp], x)[0], trained)


def test_without_a_compiler_numpy_computes(compiled, networks, monkeypatch, caplog):
    caplog.set_level("INFO")
    x = np.random.default_rng(0).standard_normal((700, 5)).astype("f4")

    def fail(*args, **options):
        raise CompileError("cache: full")

    monkeypatch.setattr(outputs, "compile_program", fail)
    for ours, mlp in zip(outputs.outputs_of(networks, x), networks, strict=True):
        np.testing.assert_array_equal(ours, mlp.predict(x))
    assert caplog.messages == ["backend: NumPy runs instead of compiled code (cache: full)"]
    with pytest.raises(DtypeError):  # and refuses what machine code would misread
        outputs.outputs_of(networks, x.astype("c8"))


def test_machine_code_runs_where_it_pays(monkeypatch):
    one, wide = [Mlp([20, 64, 64, 1])], [Mlp([20, 256, 256, 1])]
    rows = {"numpy": [(one, 100_000), (wide, 30_000)], "compiled": [(one, 10**6), (wide, 300_000)]}
    for backend, cases in rows.items():
        assert [prediction_backend(*case) for case in cases] == [backend] * 2
    assert prediction_backend(8 * one, 200_000) == "compiled"
    monkeypatch.setenv("CC", "none")
    assert prediction_backend(one, 10**7) == "numpy"
    assert auto_backend.auto_backend()[0] == "numpy"


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
