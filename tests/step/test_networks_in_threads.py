"""Networks that train side by side, a thread each, have the bits that each has alone."""

import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from mlpengine import Adam, Mlp, SoftmaxCrossEntropy, TrainingStep

NETWORKS = 4
X = np.random.default_rng(0).standard_normal((64, 8)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, 64)


def trained(seed, backend, together):
    """Return the bytes of the losses, the weights and the predictions of a network."""
    rng = np.random.default_rng(seed)
    together.wait()
    mlp = Mlp([8, 24, 3], activation="gelu", dropout=0.1, seed=seed)
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), Adam(mlp), batch_size=16, backend=backend)
    losses = [step(X[rows], Y[rows]) for rows in rng.integers(0, 64, (40, 16))]
    many, _ = step.run_many(X, Y, rng.integers(0, 64, 160))
    return bytes(np.array(losses)), bytes(many), bytes(mlp.params.flat), bytes(mlp.predict(X))


@pytest.mark.parametrize("backend", ["numpy", "numexpr", "compiled"])
def test_networks_in_threads_have_the_bits_of_networks_alone(backend):
    together = Barrier(NETWORKS)
    with ThreadPoolExecutor(NETWORKS) as pool:  # first, while nothing is cached
        found = list(pool.map(lambda seed: trained(seed, backend, together), range(NETWORKS)))
    assert found == [trained(seed, backend, Barrier(1)) for seed in range(NETWORKS)]
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()  # an extension may bring it back
    assert has_lock != bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
