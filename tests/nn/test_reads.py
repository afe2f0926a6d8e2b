"""Networks that read some of the features."""

import numpy as np
import pytest

from mlpengine import MeanSquaredError, Mlp
from mlpengine.core.errors import UsageError
from mlpengine.nn import Residual
from mlpengine.optim import Sgd
from mlpengine.step.step import TrainingStep

X = np.random.default_rng(2).standard_normal((20, 4))


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_a_network_of_ranges_is_one_without_the_other_features(backend):
    """After steps of training, too."""
    kept = [0, 2, 3]
    mlp = Mlp([4, 8, 2], seed=3, reads=((0, 1), (2, 4)), dtype="float64")
    small = Mlp([3, 8, 2], seed=3, dtype="float64")
    np.testing.assert_array_equal(mlp.params.flat, small.params.flat)
    steps = [
        TrainingStep(net, MeanSquaredError(), Sgd(net, lr=0.1), 20, backend=backend)
        for net in (mlp, small)
    ]
    y = X[:, :2]
    for _ in range(3):
        assert steps[0](X, y) == pytest.approx(steps[1](X[:, kept], y), rel=1e-12)
    np.testing.assert_allclose(mlp.predict(X), small.predict(X[:, kept]), rtol=1e-11)


@pytest.mark.parametrize("make", [lambda **o: Mlp([4, 6, 2], **o), lambda **o: Residual(4, 2, **o)])
def test_a_file_holds_the_ranges(make, tmp_path):
    network = make(reads=((1, 3),), seed=5)
    network.save(tmp_path / "net")
    other = type(network).load(tmp_path / "net")
    assert (other.reads, other.n_inputs) == (((1, 3),), 2)
    np.testing.assert_array_equal(other.predict(X), network.predict(X))


WRONG = [((0, 5),), ((1, 3), (2, 4)), ((2, 2),), ((-1, 2),), ((1,),), 3, "ab", [1], [[0, 1.5]]]


@pytest.mark.parametrize("ranges", WRONG)
def test_ranges_of_other_features_are_refused(ranges):
    with pytest.raises(UsageError, match="reads must be pairs of rising numbers up to 4"):
        Mlp([4, 2], reads=ranges)
