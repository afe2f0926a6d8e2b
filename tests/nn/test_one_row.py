"""All networks of a population compute one row in the same calls."""

import numpy as np
import pytest

from mlpengine import Mlp
from mlpengine.nn.one_row import OneRow
from mlpengine.nn.population import Population
from mlpengine.nn.residual import Residual

X = np.random.default_rng(0).normal(size=(3, 5)).astype("f4")
NETWORKS = {
    "dense": (Mlp([5, 7, 6, 2], activation="mish"), True),
    "one unit, float64": (Mlp([5, 1, 1], activation="tanh", dtype="float64"), True),
    "some features": (Mlp([5, 7, 2], activation="silu", reads=((0, 2), (3, 5))), True),
    "residual": (Residual(5, 2, width=8), False),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_one_row_has_the_outputs_of_each_network(name):
    network, together = NETWORKS[name]
    population = Population(network, 4)
    population.params[...] = np.random.default_rng(1).normal(size=population.params.shape)
    run = OneRow(population)
    assert run.together == together
    for x in X.astype(network.dtype):
        run.input[...] = x
        population.params[...] *= 1.01  # parameters are read where they are
        run()
        expected = population.predict(x[None])
        np.testing.assert_allclose(run.outputs, expected, rtol=1e-4, atol=1e-6)
