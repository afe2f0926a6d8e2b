"""Batch norm: in parts between compiled programs, with running averages as in NumPy."""

import numpy as np
import pytest
from own_networks import BATCH, data, images, losses_of, make_step

from mlpengine.backends.compiled.batch_norm_rows import BATCH_NORM_PARTS
from mlpengine.core.errors import MlpEngineError, NumericalError


def test_batch_norm_averages_in_training_and_predicts_by_its_averages():
    step = make_step("batch norm", dtype="float64")
    network, (x, y) = step.mlp, images(40, "float64")
    mean, variance = np.zeros(3), np.ones(3)
    for batch in (slice(0, 16), slice(16, 32), slice(32, 40)):
        filters = network.params.views["filters"].copy()[:, 0, 0]
        step(x[batch], y[batch])
        windows = np.lib.stride_tricks.sliding_window_view(x[batch, 0, 0], 3, axis=1)
        h = windows @ filters.T  # rows, places, channels
        mean = 0.9 * mean + 0.1 * h.mean(axis=(0, 1))
        variance = 0.9 * variance + 0.1 * h.reshape(-1, 3).var(axis=0, ddof=1)
    p = network.state_dict()
    np.testing.assert_allclose(p["norm.mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(p["norm.variance"], variance, rtol=1e-12)
    windows = np.lib.stride_tricks.sliding_window_view(x[:, 0, 0], 3, axis=1)
    h = windows @ p["filters"][:, 0, 0].T
    h = (h - mean) / np.sqrt(variance + 1e-5) * p["norm.scale"] + p["norm.bias"]
    h = np.maximum(h, 0).transpose(0, 2, 1).reshape(len(x), -1)
    np.testing.assert_allclose(network.predict(x), h @ p["out.weight"].T, rtol=1e-10)
    assert network.groups["biases"] == ("norm.scale", "norm.bias")


def test_numpy_moves_the_averages_alone():
    name = "batch norm of pixels"
    step = make_step(name, dtype="float64", backend="compiled")
    step(*data(name, BATCH, "float64"))
    summary = step.summary()
    numpy_runs = {line for line in summary.splitlines() if line.startswith("NumPy")}
    assert numpy_runs
    assert all("batch_norm: moved" in line or "update" in line for line in numpy_runs)
    assert all(f"batch_norm: {part}" in summary for part in BATCH_NORM_PARTS)


def test_a_trained_network_computes_outputs_in_one_program():
    name = "batch norm of layers"
    step = make_step(name, dtype="float64")
    losses_of(step, name)
    x, _ = data(name, BATCH, "float64")
    compiled = step.mlp.compile(batch_size=BATCH)
    np.testing.assert_allclose(compiled(x), step.mlp.predict(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_a_step_that_is_not_finite_leaves_the_averages_as_they_were(backend):
    step = make_step("batch norm", backend=backend)
    x, y = images(BATCH)
    step(x, y)
    before = step.mlp.params.flat.copy()
    x[3] = np.nan
    with pytest.raises(NumericalError, match="the input is not, in row 3"):
        step(x, y)
    np.testing.assert_array_equal(step.mlp.params.flat, before)


def test_shards_refuse_batch_norm():
    with pytest.raises(MlpEngineError, match="batch_norm needs shards=1"):
        make_step("batch norm", shards=4)
