"""Exports hold what a network computes, and none of its weights that do not contribute."""

import ctypes
import re
import subprocess
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from test_export import mixed_model
from test_recorded_networks import shaken

from mlpengine import Mlp
from mlpengine.backends.compiled.target import compiler_command
from mlpengine.export import export
from mlpengine.export._reduced import reduced
from mlpengine.export.network_c import c_file, network_code
from mlpengine.models.linear import linear_network
from mlpengine.models.members import NetworkMean
from mlpengine.nn import InputLayer, Residual

FEATURES, UNITS, OUTPUTS = 9, 5, 3
READ, RANGES = [0, 1, 2, 7], ((0, 3), (7, 8))
PBLD = 4 * (16 + 16 + 3 * 16 + 3)
"""The parameters of four embedded features: frequencies, phases, three mixtures of these waves."""


def dense(*sizes):
    return sum(n * units + units for n, units in pairwise(sizes))


def mlp(input_layer=None, *, kind=None, alpha=None, hidden=(UNITS, UNITS), **options):
    """Return a network that reads `READ` and, if `kind` is periodic, the embedding."""
    if kind == "periodic":
        input_layer = replace(input_layer, ranges=(*RANGES, (FEATURES, 21)))
    options = {
        "activation": "silu",
        "input_layer": input_layer,
        "dtype": "float64",
        "seed": 3,
        **options,
    }
    network = shaken(Mlp([FEATURES, *hidden, OUTPUTS], **options))
    views = network.params.views
    if input_layer is None:
        network.weights[0][:, ~np.isin(np.arange(FEATURES), READ)] = 0
    for name in network.groups["alphas"] if alpha is not None else ():
        views[name][...] = alpha
    return network


def linear(network):
    """Return a network that is a linear function of `READ`."""
    weight = np.random.default_rng(6).standard_normal((OUTPUTS, len(READ)))
    return linear_network(np.array(READ), weight, weight[:, 0], network)


def blocks(**options):
    options = {"blocks": 1, "width": UNITS, "dtype": "float64", "seed": 2, **options}
    return Residual(FEATURES, OUTPUTS, **options)


LIMITED = InputLayer(ranges=RANGES)
WAVES = InputLayer("pbld", embedded=4, scaling=True, ranges=RANGES)
BLOCK = 2 * UNITS + dense(UNITS, 2 * UNITS, UNITS) + 2 * UNITS + dense(UNITS, OUTPUTS)
FOUR = dense(len(READ), UNITS, UNITS, OUTPUTS)
CASES = {
    "columns without weights": (mlp(), FOUR),
    "ranges": (mlp(LIMITED), FOUR),
    "ranges in float32": (mlp(LIMITED, dtype="float32"), FOUR),
    "factors": (mlp(InputLayer(scaling=True, ranges=RANGES)), FOUR),
    "an embedding without readers": (mlp(WAVES), FOUR),
    "an embedding": (mlp(WAVES, kind="periodic"), PBLD + dense(16, UNITS, UNITS, OUTPUTS)),
    "neural tangent": (mlp(LIMITED, parametrization="neural_tangent"), FOUR),
    "plain activations": (mlp(LIMITED, learned_activation=True, alpha=1), FOUR),
    "learned activations": (mlp(LIMITED, learned_activation=True), FOUR + 2 * UNITS),
    "no activation": (mlp(activation=None), dense(len(READ), OUTPUTS)),
    "an activation between": (
        mlp(activation=[None, "silu"], hidden=(30, UNITS)), dense(len(READ), UNITS, OUTPUTS)
    ),
    "a narrow layer": (mlp(activation=None, hidden=(1,)), dense(len(READ), 1, OUTPUTS)),
    "linear": (linear(mlp()), dense(len(READ), OUTPUTS)),
    "nothing read": (mlp(LIMITED, activation=None, initializer="zeros"), dense(1, OUTPUTS)),
    "blocks": (shaken(blocks(input_layer=WAVES)), dense(len(READ), UNITS) + BLOCK),
}  # fmt: skip
CASES["nothing read"][0].weights[0][...] = 0


@pytest.mark.parametrize("name", CASES)
def test_a_reduced_network_computes_the_same(name):
    network, count = CASES[name]
    made, columns = reduced(network)
    assert len(made.params) == count <= len(network.params)
    x = np.random.default_rng(4).standard_normal((20, FEATURES)).astype(network.dtype)
    tolerance = 1e-12 if network.dtype == np.float64 else 2e-6
    got = made.predict(x if columns is None else x[:, columns])
    np.testing.assert_allclose(got, network.predict(x), rtol=tolerance, atol=tolerance)


class Doubled(Mlp):
    def record(self, tape, x):
        return super().record(tape, x * 2)


@pytest.mark.parametrize(
    "network",
    [
        Mlp([4, 8, 2], dropout=0.2),
        Mlp([4, 8, 2], learned_activation=True, input_layer=InputLayer("periodic")),
        Doubled([4, 8, 2], input_layer=InputLayer(ranges=((1, 3),))),
        Residual(4, 2, width=3),
    ],
    ids=str,
)
def test_what_cannot_be_reduced_stays(network):
    if type(network) is Mlp and network.learned_activation:
        shaken(network)
    assert reduced(network) == (network, None)


def test_few_columns_stay_where_their_places_would_take_more():
    """One weight of each unit less, and a place for each of the others."""
    for units, left in ((98, 100), (100, 99)):
        network = Mlp([100, units, 1], activation="tanh", seed=1)
        network.weights[0][:, 3] = 0
        assert reduced(network).network.sizes[0] == left


def of_members(dtype="float32"):
    """Return networks of three member types and two folds, as a training with folds makes them."""
    input_layer = InputLayer("pbld", embedded=4, ranges=RANGES)
    parts = {"learned_activation": True, "input_layer": input_layer, "alpha": 1, "dtype": dtype}
    plain = [mlp(**parts, seed=seed) for seed in (1, 2)]
    waves = [mlp(**parts, kind="periodic", seed=seed) for seed in (3, 4)]
    return [*plain, *waves, *(linear(network) for network in plain)]


SIZES = 2 * FOUR + 2 * (PBLD + dense(16, UNITS, UNITS, OUTPUTS)) + 2 * dense(len(READ), OUTPUTS)


@pytest.mark.parametrize("log_link", [False, True])
def test_c_of_several_kinds_holds_no_more_than_they_need(log_link, tmp_path):
    networks, shares = of_members("float64"), [0.1, 0.1, 0.25, 0.25, 0.15, 0.15]
    text = c_file(network_code(networks, name="net", weights=shares, log_link=log_link))
    assert re.findall(r"real net_parameters\[(\d+)\]", text) == [f"{SIZES}"]
    assert text.count("net_columns[4]") == 1  # which both kinds that read them share
    (tmp_path / "net.c").write_text(text)
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    command = [*compiler_command(), *flags, "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    predict = ctypes.CDLL(str(tmp_path / "net.so")).net
    predict.argtypes, predict.restype = [np.ctypeslib.ndpointer("f8")] * 2, None
    x = np.random.default_rng(4).standard_normal((20, FEATURES))
    got = np.zeros((20, OUTPUTS))
    for row, out in zip(x, got, strict=True):
        predict(row, out)
    averaged = np.exp if log_link else np.array
    mean = np.average([averaged(n.predict(x)) for n in networks], axis=0, weights=shares)
    np.testing.assert_allclose(averaged(got), mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("suffix", ["js", "onnx", "c"])
def test_files_of_a_mean_of_members_are_as_large_as_what_they_hold(suffix, tmp_path):
    """They are run, but for C, and compared with `predict`, which `export` holds to 1e-5."""
    for package in ["onnx", "onnxruntime"] if suffix == "onnx" else []:
        pytest.importorskip(package)
    parts, kept = {"learned_activation": True}, 5
    one = mixed_model("y1", loss="mse", encoding="piecewise", parts=parts, gaps=False)
    features, all_read = one.mlp.in_dim, one.mlp
    plain = all_read.like(seed=5, input_layer=InputLayer(ranges=((0, kept),)))
    weight = 0.1 * np.random.default_rng(1).standard_normal((1, kept))
    line = linear_network(np.arange(kept), weight, np.ones(1), plain)
    networks = [plain, all_read, line, Mlp([features, 2, 1], activation="tanh", seed=2)]
    model = one.with_mean(NetworkMean(networks, one.task, (0.25, 0.25, 0.25, 0.25)))
    single = replace(one, mlp=Mlp(all_read.sizes, activation=["gelu", "tanh"]))
    sizes = {}
    for name, exported in (("mean", model), ("one", single)):
        path = tmp_path / f"{name}.{suffix}"
        assert (export(exported, path).difference or 0) <= 1e-5
        sizes[name] = path.stat().st_size
    of_a_number = {"js": 16 / 3, "onnx": 4, "c": 24}[suffix]
    more = dense(kept, 24, 12, 1) + dense(kept, 1) + dense(features, 2, 1)
    assert sizes["mean"] < sizes["one"] + of_a_number * more + 3_000
