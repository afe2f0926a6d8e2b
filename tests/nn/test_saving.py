"""Files of networks of one's own: class, settings and parameters, read by who has the class."""

import copy
import json
import pickle

import numpy as np
import own_networks
import pytest
from own_networks import IN_DIM, Residual

from mlpengine import Mlp
from mlpengine.core.errors import CheckpointError, UsageError
from mlpengine.core.named import arrays_in
from mlpengine.nn import Network
from mlpengine.nn import Residual as ReadyResidual
from mlpengine.nn.safetensors_file import read_tensors, write_tensors


class Wide(Network):
    """A network whose weight is given."""

    def __init__(self, weight, *, scale=1.0, names=(), **options):
        super().__init__(IN_DIM, {"weight": weight}, **options)
        self.scale, self.names = scale, names

    def record(self, tape, x):
        return x.linear(tape.parameter("weight")) * self.scale


def renamed(cls):
    """Return the class as another version of it that takes other settings."""

    class Other(Network):
        def __init__(self, units):
            super().__init__(IN_DIM, {"weight": (units, IN_DIM)})

    Other.__name__ = cls.__name__
    return Other


def file_of(network, path):
    network.save(path)
    return path


@pytest.mark.parametrize("name", ["residual with dropout", "two tables", "batch norm", "digits"])
def test_what_is_read_has_the_bits_and_settings_of_what_was_written(name, tmp_path):
    network = own_networks.make_network(name, seed=3, dtype=np.float64)
    for buffer in network.params.frozen:
        network.params.views[buffer][...] = 0.5
    path = file_of(network, tmp_path / "n")
    back = type(network).load(path)
    assert back.params.flat.tobytes() == network.params.flat.tobytes()
    assert back.describe() == network.describe()
    x, _ = own_networks.data(name, 5, "float64")
    for one, other in zip(*(arrays_in(net.predict(x)) for net in (back, network)), strict=True):
        np.testing.assert_array_equal(one, other)
    for twin in (copy.copy(network), copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert file_of(twin, tmp_path / "twin").read_bytes() == path.read_bytes()


def test_a_file_holds_the_defaults_of_the_class_as_they_were(tmp_path):
    _, header = read_tensors(file_of(Residual(8, seed=np.int64(2)), tmp_path / "n"))
    settings = {"width": 8, "blocks": 2, "outputs": 2, "dropout": 0.0, "seed": 2}
    assert header == {"network": {"name": "Residual", "settings": settings}}


def test_settings_are_those_that_were_given(tmp_path):
    names = ["a", "b"]
    network = Wide((2, IN_DIM), scale=np.float32(0.5), names=names)
    names.append("c")
    assert Wide.load(file_of(network, tmp_path / "n")).names == ["a", "b"]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Wide(np.ones((2, IN_DIM))), r"weight must be .* \(got ndarray float64\[2, 6\]\)"),
        (lambda: Wide((2, IN_DIM), names=[["a", len]]), "names must be a number, a text"),
        (lambda: Wide((2, IN_DIM), scale=float("inf")), r"scale .* \(got inf\)"),
        (lambda: Wide((2, IN_DIM), names={1: 2}), r"names .* \(got \{1: 2\}\)"),
    ],
)
def test_what_no_file_holds_is_refused(make, what, tmp_path):
    with pytest.raises(UsageError, match=f"Wide.save: {what}"):
        make().save(tmp_path / "n")
    with pytest.raises(UsageError, match=r"n.onnx: write a .onnx file by mlpengine.export.export"):
        Residual(8).save(tmp_path / "n.onnx")
    assert not [*tmp_path.iterdir()]


def test_a_constructor_without_names_is_refused(tmp_path):
    class Chain(Network):
        def __init__(self, *sizes):
            super().__init__(IN_DIM, {"weight": sizes})

    with pytest.raises(UsageError, match=r"named arguments \(sizes"):
        Chain(2, IN_DIM).save(tmp_path / "n")


def test_a_file_of_another_network_is_refused(tmp_path):
    own, mlp = file_of(Residual(8), tmp_path / "own"), file_of(Mlp([2, 3]), tmp_path / "mlp")
    with pytest.raises(CheckpointError, match="the class Residual; write Residual"):
        Wide.load(own)
    with pytest.raises(CheckpointError, match="the class Residual;"):
        Mlp.load(own)
    with pytest.raises(CheckpointError, match="the class Mlp;"):
        Residual.load(mlp)
    with pytest.raises(CheckpointError, match=r"must take the settings of the file \(blocks=2, "):
        renamed(Residual).load(own)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"width": 9}, "in.weight must be"),
        ({"blocks": 1}, "block 1.norm.scale is unknown"),
        ({"width": "wide"}, r"must take the settings of the file \(.*width='wide'"),
        ({"width": 10**12}, "must take the settings of the file"),
    ],
)
def test_settings_that_do_not_fit_the_arrays_are_refused(change, what, tmp_path):
    arrays, header = read_tensors(file_of(Residual(8), tmp_path / "n"))
    header["network"]["settings"] |= change
    write_tensors(tmp_path / "n", arrays, header)
    with pytest.raises(CheckpointError, match=f"n: .*{what}"):
        Residual.load(tmp_path / "n")


@pytest.mark.parametrize("described", [None, [], {"name": "Residual"}, {"name": 1, "settings": {}}])
def test_a_header_of_another_structure_is_refused(described, tmp_path):
    arrays, _ = read_tensors(file_of(Residual(8), tmp_path / "n"))
    write_tensors(tmp_path / "n", arrays, json.loads(json.dumps({"network": described})))
    with pytest.raises(CheckpointError, match="n: network"):
        Residual.load(tmp_path / "n")


@pytest.mark.parametrize(
    "change",
    [
        {"reads": {"embedding": 3}},
        {"dropout": [0.1]},
        {"sizes": [3, 2.5, 2]},
        {"activation": [{"name": "relu", "slope": 2}]},
        {"dtype": "float16"},
        {"more": 1},
    ],
    ids=str,
)
def test_settings_of_an_mlp_that_cannot_be_are_refused(change, tmp_path):
    arrays, header = read_tensors(file_of(Mlp([3, 4, 2]), tmp_path / "n"))
    header["network"]["settings"] |= change
    write_tensors(tmp_path / "n", arrays, header)
    with pytest.raises(CheckpointError):
        Mlp.load(tmp_path / "n")


@pytest.mark.parametrize("missing", ["sizes", "dtype"])
def test_settings_of_an_mlp_that_are_missing_are_named(missing, tmp_path):
    arrays, header = read_tensors(file_of(Mlp([3, 4, 2]), tmp_path / "n"))
    del header["network"]["settings"][missing]
    write_tensors(tmp_path / "n", arrays, header)
    with pytest.raises(CheckpointError, match=missing):
        Mlp.load(tmp_path / "n")


@pytest.mark.parametrize("network", [Mlp([3, 4, 2]), ReadyResidual(3, 2, width=4)])
def test_a_network_like_a_loaded_one_has_weights_of_its_own(network, tmp_path):
    other = type(network).load(file_of(network, tmp_path / "n")).like(seed=0)
    np.testing.assert_array_equal(other.params.flat, network.params.flat)
