"""Populations: networks of one shape with all parameters in one block."""

import numpy as np
import pytest

from mlpengine import Adam, MeanSquaredError, Mlp, Population, TrainingStep
from mlpengine.core.errors import CheckpointError, UsageError
from mlpengine.nn import Network

SEEDS = (5, 1, 8)
X = np.random.default_rng(0).standard_normal((32, 3)).astype("float32")
Y = np.sin(2 * X[:, :2])


def like(seed):
    return Mlp([3, 4, 2], activation="tanh", dropout=0.2, seed=seed)


def trained(members):
    """Train each network on its own order of rows, and return its losses."""
    losses = []
    for k, member in enumerate(members):
        step = TrainingStep(member, MeanSquaredError(), Adam(member, lr=0.01), 8, backend="numpy")
        order = np.random.default_rng(k).integers(0, 32, 80)
        losses.append(step.run_many(X, Y, order)[0])
    return np.stack(losses)


def test_members_train_and_predict_as_networks_of_their_own():
    members, own = Population(like(99), 3, seeds=SEEDS), [like(seed) for seed in SEEDS]
    np.testing.assert_array_equal(trained(members), trained(own))
    for k, network in enumerate(own):
        assert members.params[k].tobytes() == network.params.flat.tobytes()
        assert np.shares_memory(members[k].params.flat, members.params)
    expected = np.stack([network.predict(X) for network in own])
    np.testing.assert_array_equal(members.predict(X), expected)
    np.testing.assert_array_equal(members.mean(X), expected.mean(axis=0))


def test_the_state_has_a_row_for_each_member():
    members, other = Population(like(0), 3, seeds=SEEDS), Population(like(1), 3)
    other.load_state_dict(members.state_dict())
    np.testing.assert_array_equal(other.params, members.params)
    with pytest.raises(CheckpointError, match=r"0\.weight"):
        Population(like(0), 2).load_state_dict(members.state_dict())


class Scaled(Network):
    """A network of one's own with an option."""

    def __init__(self, width, factor=1.0, **options):
        super().__init__(3, {"w": (width, 3), "b": width}, **options)
        self.factor = factor

    def record(self, tape, x):
        return x.linear(tape.parameter("w"), tape.parameter("b")) * self.factor


class Seedless(Network):
    def __init__(self):
        super().__init__(3, {"w": (2, 3)})

    def record(self, tape, x):
        return x.linear(tape.parameter("w"))


def test_networks_like_another_have_its_arguments_and_frozen_parameters():
    network = Scaled(4, factor=3.0, dtype="float64", seed=7)
    network.freeze(["b"])
    other = network.like(width=2, seed=7)
    assert (other.factor, other.dtype, other.params.frozen) == (3.0, np.dtype("f8"), {"b"})
    np.testing.assert_array_equal(other.params.flat, Scaled(2, dtype="f8", seed=7).params.flat)
    assert [len(m.params.frozen) for m in Population(network, 2)] == [1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Population(like(0), 0),
        lambda: Population(like(0), 3, seeds=(1, 2)),
        lambda: Population(Seedless(), 2),
    ],
)
def test_populations_that_cannot_be_are_refused(make):
    with pytest.raises(UsageError):
        make()
