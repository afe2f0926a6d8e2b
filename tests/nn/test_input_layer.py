"""Input layers, learned activations and the neural-tangent parametrization of networks."""

import numpy as np
import pytest

from mlpengine import MeanSquaredError, Mlp
from mlpengine.core.errors import ShapeError, UsageError
from mlpengine.nn import InputLayer
from mlpengine.optim import Adam, Sgd
from mlpengine.step.step import TrainingStep

RECIPE = {
    "input_layer": InputLayer("pbld", 3, frequencies=6, outputs=3, scaling=True),
    "activation": "mish",
    "learned_activation": True,
    "parametrization": "neural_tangent",
    "dtype": "float64",
}


def recipe(**changes) -> Mlp:
    mlp = Mlp([4, 8, 5, 2], seed=3, **RECIPE | changes)
    for view in mlp.params.views.values():
        view += np.random.default_rng(1).normal(0, 0.1, view.shape)
    return mlp


def rows(count: int = 20) -> np.ndarray:
    return np.random.default_rng(2).standard_normal((count, 4))


def by_hand(mlp: Mlp, x: np.ndarray) -> np.ndarray:
    """Return the outputs of `recipe` by its formula, with another layout of the embedding."""
    p = mlp.params.views
    frequency, phase, weight, bias = (
        p[f"input_layer.embedding.{name}"] for name in ("frequency", "phase", "weight", "bias")
    )
    waves = np.cos(2 * np.pi * x[:, :3, None] * frequency + phase)
    mixed = np.stack([waves[:, j] @ weight[j].T + bias[j] for j in range(3)], 1)
    h = np.concatenate([x, mixed.reshape(len(x), 6)], 1) * p["input_layer.scale"]
    for layer in mlp.layers:
        z = h @ p[layer.weight_name].T / np.sqrt(layer.in_dim) + p[layer.bias_name]
        f = z * np.tanh(np.log1p(np.exp(z)))
        h = z if layer.alpha_name is None else z + p[layer.alpha_name] * (f - z)
    return h


def test_the_parts_compute_their_formulas():
    mlp = recipe()
    np.testing.assert_allclose(mlp.predict(rows()), by_hand(mlp, rows()), rtol=1e-12, atol=1e-12)


def test_parameters_lie_in_one_vector_by_name_and_group():
    mlp = recipe()
    assert [*mlp.params.views][:5] == [
        *(f"input_layer.embedding.{name}" for name in ("frequency", "phase", "weight", "bias")),
        "input_layer.scale",
    ]
    assert [*mlp.params.views][5:] == [
        *("0.weight", "0.bias", "1.alpha", "2.weight", "2.bias", "3.alpha", "4.weight", "4.bias")
    ]
    groups = mlp.groups
    assert sorted(n for names in groups.values() for n in names) == sorted(mlp.params.views)
    assert groups["alphas"] == ("1.alpha", "3.alpha")
    assert groups["scaling"] == ("input_layer.scale",)


def test_every_part_starts_as_published():
    mlp = Mlp(
        [200, 30, 40, 1], **RECIPE | {"input_layer": InputLayer("pbld", scaling=True)}, seed=1
    )
    p = mlp.params.views
    assert p["input_layer.embedding.frequency"].std() == pytest.approx(0.1, rel=0.05)
    assert np.abs(p["input_layer.embedding.phase"]).max() == pytest.approx(np.pi, rel=0.01)
    for name in ("weight", "bias"):
        assert np.abs(p[f"input_layer.embedding.{name}"]).max() == pytest.approx(0.25, rel=0.01)
    assert (p["input_layer.scale"] == 1).all()
    assert (p["1.alpha"] == 1).all()
    assert p["0.weight"].std() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    "parts",
    [
        RECIPE,
        {"input_layer": InputLayer("periodic", frequencies=3)},
        {"input_layer": InputLayer(scaling=True)},
        {"input_layer": InputLayer("periodic", frequencies=3, ranges=((1, 3), (4, 8)))},
        {"learned_activation": True},
        {"parametrization": "neural_tangent"},
    ],
    ids=str,
)
def test_a_file_holds_all_of_it(parts, tmp_path):
    mlp = Mlp([4, 6, 2], seed=5, **parts)
    mlp.save(tmp_path / "mlp.safetensors")
    other = Mlp.load(tmp_path / "mlp.safetensors")
    assert other.describe() == mlp.describe()
    np.testing.assert_array_equal(other.predict(rows()), mlp.predict(rows()))


def test_the_gradient_of_the_input_passes_the_input_layer():
    mlp, x, step = recipe(), rows(1), 1e-6
    scratch, grads = mlp.scratch(1), mlp.gradients(1, input_gradient=True)
    mlp.forward(x, scratch)
    grads.d_output[...] = [[1.0, -2.0]]
    mlp.backward(scratch, grads)
    for j in range(4):
        ends = [by_hand(mlp, x + s * step * np.eye(4)[j]) @ [1.0, -2.0] for s in (1, -1)]
        slope = (ends[0] - ends[1]).item() / (2 * step)
        assert grads.d_input[0, j] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_the_input_layer_is_frozen_with_layer_0():
    mlp = recipe()
    mlp.freeze([0])
    before = mlp.state_dict()
    step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp), 20)
    step(rows(), rows()[:, :2])
    moved = {name for name, view in mlp.params.views.items() if (view != before[name]).any()}
    assert moved == {"2.weight", "2.bias", "3.alpha", "4.weight", "4.bias"}


@pytest.mark.parametrize(
    ("backend", "parametrization"),
    [("numpy", "standard"), ("numpy", "neural_tangent"), ("compiled", "standard")],
)
def test_a_network_of_ranges_is_one_without_the_other_inputs(backend, parametrization):
    """After steps of training, too."""
    kept, options = [0, 2, 3], {"dtype": "float64", "parametrization": parametrization}
    mlp = Mlp([4, 8, 2], seed=3, input_layer=InputLayer(ranges=((0, 1), (2, 4))), **options)
    small = Mlp([3, 8, 2], seed=3, **options)
    np.testing.assert_array_equal(mlp.params.flat, small.params.flat)
    x, y = rows(), rows()[:, :2]
    steps = [
        TrainingStep(net, MeanSquaredError(), Sgd(net, lr=0.1), 20, backend=backend)
        for net in (mlp, small)
    ]
    for _ in range(3):
        assert steps[0](x, y) == pytest.approx(steps[1](x[:, kept], y), rel=1e-12)
    np.testing.assert_allclose(mlp.predict(x), small.predict(x[:, kept]), rtol=1e-11)


@pytest.mark.parametrize("ranges", [((0, 5),), ((1, 3), (2, 4)), ((2, 2),), ((-1, 2),), ((1,),)])
def test_ranges_of_other_inputs_are_refused(ranges):
    with pytest.raises(UsageError, match="input_layer: ranges must"):
        Mlp([4, 2], input_layer=InputLayer(ranges=ranges))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embedding": "wavelets"}, "embedding must be one of pbld, periodic, none"),
        ({"frequencies": 0}, "frequencies must be .* at least 1"),
        ({"outputs": 1}, "outputs must be .* at least 2"),
        ({"sigma": 0.0}, "sigma must be .* above zero"),
        ({"embedding": "pbld", "embedded": 9}, r"must not exceed .* \(9 of 4\)"),
    ],
)
def test_an_input_layer_out_of_range_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Mlp([4, 2], input_layer=InputLayer(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "softmax", "learned_activation": True}, "must be element-wise"),
        ({"parametrization": "muP"}, "parametrization must be one of standard, neural_tangent"),
    ],
)
def test_parts_that_do_not_fit_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Mlp([4, 3, 2], **options)


def pre_activations(mlp: Mlp, x: np.ndarray) -> list[np.ndarray]:
    """Return the pre-activations of every layer without their biases."""
    scratch = mlp.scratch(len(x))
    mlp.forward(x, scratch)
    inputs = [scratch.first, *scratch.activations[:-1]]
    pairs = zip(mlp.layers, inputs, strict=True)
    return [h @ mlp.params.views[layer.weight_name].T * layer.factor for layer, h in pairs]


@pytest.mark.parametrize("parts", [RECIPE, {"activation": "relu", "dtype": "float64"}], ids=str)
def test_initial_weights_fit_the_rows(parts):
    mlp = Mlp([4, 30, 20, 3], initializer="unit_variance", seed=1, **parts)
    x = 7 + 3 * rows(500)
    mlp.initialize_from(x, seed=2)
    zs = pre_activations(mlp, x)
    for z, bias in zip(zs, mlp.biases, strict=True):
        np.testing.assert_allclose(z.std(axis=0), 1, rtol=1e-9)
        assert (-z.max(axis=0) <= bias).all()  # a convex mixture lies between the extremes
        assert (bias <= -z.min(axis=0)).all()
    first = mlp.state_dict()
    mlp.initialize_from(x, seed=2)
    np.testing.assert_allclose(mlp.state_dict()["0.bias"], first["0.bias"], rtol=1e-9)
    mlp.initialize_from(x, seed=3)
    assert (mlp.state_dict()["0.bias"] != first["0.bias"]).all()


def test_units_that_are_constant_keep_their_weights():
    mlp = Mlp([2, 3, 1], initializer="unit_variance", dtype="float64")
    before = mlp.state_dict()
    mlp.initialize_from(np.ones((9, 2)))
    np.testing.assert_array_equal(mlp.weights[0], before["0.weight"])
    assert np.isfinite(mlp.params.flat).all()
    np.testing.assert_allclose(mlp.biases[0], -before["0.weight"].sum(axis=1))


def test_initial_weights_need_rows():
    with pytest.raises(ShapeError, match="needs at least one row"):
        Mlp([2, 1]).initialize_from(np.ones((0, 2)))
