"""The residual network: its formula, its files, and what it refuses."""

import pickle

import numpy as np
import pytest

from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep
from mlpengine.core.errors import CheckpointError, UsageError
from mlpengine.nn import Residual
from mlpengine.nn.safetensors_file import read_tensors, write_tensors

MADE = {
    "plain": {},
    "others": {
        "blocks": 3,
        "width": 6,
        "expansion": 3,
        "activation": "silu",
        "dropout": 0.25,
        "residual_dropout": 0.125,
        "dtype": "float64",
    },
    "formula": {"activation": "x * tanh(x)", "width": 5, "initializer": "he_normal"},
}


def network(name="plain", **changes):
    made = Residual(4, 2, seed=1, **{"width": 8, **MADE[name], **changes})
    flat = made.params.flat
    flat += 0.1 * np.random.default_rng(5).standard_normal(flat.shape).astype(flat.dtype)
    return made


def rows(dtype="float32"):
    return np.random.default_rng(0).standard_normal((9, 4)).astype(dtype)


ACTIVATIONS = {
    "plain": lambda z: np.maximum(z, 0),
    "others": lambda z: z / (1 + np.exp(-z)),
    "formula": lambda z: z * np.tanh(z),
}


@pytest.mark.parametrize("name", MADE)
def test_outputs_are_those_of_the_formula(name):
    own = network(name)
    p = {key: view.astype(np.float64) for key, view in own.params.views.items()}
    activation = ACTIVATIONS[name]

    def norm(h, key):
        xhat = (h - h.mean(axis=1, keepdims=True)) / np.sqrt(h.var(axis=1, keepdims=True) + 1e-5)
        return xhat * p[f"{key}.weight"] + p[f"{key}.bias"]

    def dense(h, key):
        return h @ p[f"{key}.weight"].T + p[f"{key}.bias"]

    x = rows(own.dtype).astype(np.float64)
    h = dense(x, "first")
    for k in range(own.blocks):
        z = activation(dense(norm(h, f"blocks.{k}.norm"), f"blocks.{k}.up"))
        h = h + dense(z, f"blocks.{k}.down")
    y = dense(activation(norm(h, "norm")), "out")
    tolerance = 1e-12 if own.dtype == np.float64 else 2e-5
    np.testing.assert_allclose(own.predict(rows(own.dtype)), y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MADE)
def test_what_is_read_is_what_was_written(name, tmp_path):
    own = network(name)
    own.save(tmp_path / "net")
    back = Residual.load(tmp_path / "net")
    assert back.describe() == own.describe()
    for twin in (back, pickle.loads(pickle.dumps(own))):
        assert twin.params.flat.tobytes() == own.params.flat.tobytes()
        twin.save(tmp_path / "twin")
        assert (tmp_path / "twin").read_bytes() == (tmp_path / "net").read_bytes()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"width": 10**9}, "first.weight must be"),  # which would take 16 GB
        ({"width": 7}, "first.weight must be"),
        ({"blocks": 10**9}, "blocks must be a whole number of at least 1 and at most 1000"),
        ({"activation": {"name": "linear"}}, "must be an op on one operand"),
        ({"reads": [[3, 1]]}, "reads must be pairs of rising"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(change, what, tmp_path):
    network().save(tmp_path / "net")
    arrays, header = read_tensors(tmp_path / "net")
    header["network"]["settings"] |= change
    write_tensors(tmp_path / "net", arrays, header)
    with pytest.raises(CheckpointError, match=f"net: .*{what}"):
        Residual.load(tmp_path / "net")


def test_a_new_network_keeps_the_size_of_what_it_reads():
    own = Residual(20, 1, width=64, blocks=4, seed=0)
    x = np.random.default_rng(0).standard_normal((200, 20)).astype(np.float32)
    assert 0.2 < own.predict(x).std() < 5


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_frozen_layers_stay_as_they_are(backend):
    x = rows()
    frozen = network()
    frozen.freeze([0, -2])
    assert (frozen.frozen, frozen.is_linear) == ([0, 2], False)
    before = frozen.state_dict()
    step = TrainingStep(frozen, MeanSquaredError(), Adam(frozen, lr=0.01), 9, backend=backend)
    for _ in range(5):
        step(x, np.sin(x[:, :2]))
    moved = {n for n, view in frozen.params.views.items() if (view != before[n]).any()}
    kept = {"first.weight", "first.bias"} | {n for n in before if n.startswith("blocks.1.")}
    assert moved == before.keys() - kept


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"blocks": 0}, "blocks must be a whole number of at least 1 and at most 1000 (got 0)"),
        ({"width": 2.5}, "width must be a whole number of at least 1 (got 2.5)"),
        ({"dropout": 1.0}, "dropout must be a finite number, at least 0 and less than 1 (got 1.0)"),
        ({"activation": "swish"}, "did you mean 'silu'"),
    ],
)
def test_what_cannot_be_is_one_clear_error(options, what):
    with pytest.raises(UsageError) as error:
        Residual(4, 2, **options)
    assert what in str(error.value)


def test_layers_count_as_those_of_an_mlp():
    with pytest.raises(UsageError, match=r"a layer must be from 0 to 3 \(got 4\)"):
        network().freeze([4])
    assert len(network().layer_names) == len(network().sizes) - 1
    assert Mlp([4, 8, 8, 8, 2]).sizes == network().sizes
