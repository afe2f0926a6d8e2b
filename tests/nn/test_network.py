"""A network of one's own: its parameters, its recording, its gradients, and what it refuses."""

import numpy as np
import pytest
from own_networks import IN_DIM, LAYERS, NETWORKS, Gated, Residual, rows

from mlpengine import Adam, MeanSquaredError, TrainingStep
from mlpengine.core.errors import DtypeError, MlpEngineError, NumericalError, TapeError, UsageError
from mlpengine.core.spec import Spec
from mlpengine.nn import Network
from mlpengine.ops import MaxPool2d, RunningStatistics

MADE, F4 = [*NETWORKS], np.dtype("float32")


@pytest.mark.parametrize("name", MADE)
def test_gradients_are_central_differences(name):
    network = NETWORKS[name](seed=1, dtype="float64")
    rng = np.random.default_rng(2)
    flat = network.params.flat
    flat += 0.1 * rng.standard_normal(flat.size)
    x, y = rows(12, name, "float64")
    scratch, grads = network.scratch(12), network.gradients(12, input_gradient=True)
    loss = MeanSquaredError()

    def value(inputs=x):
        network.rng.step = 3  # the same dropout each time
        return loss(network.forward(inputs, scratch), y, grads.d_output)

    value()
    network.backward(scratch, grads)
    gradient, by_input = grads.flat.copy(), grads.d_input.copy()
    start, step = flat.copy(), 1e-6
    for place in network.params.places.values():
        direction = np.zeros_like(flat)
        direction[place] = rng.standard_normal(direction[place].shape)
        ends = []
        for sign in (1, -1):
            flat[...] = start + sign * step * direction
            ends.append(value())
        flat[...] = start
        assert gradient @ direction == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)
    direction = rng.standard_normal(x.shape)
    ends = [value(x + sign * step * direction) for sign in (1, -1)]
    slope = (ends[0] - ends[1]) / (2 * step)
    assert np.vdot(by_input, direction) == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("name", MADE)
def test_a_recording_names_its_layers_and_their_parameters(name):
    network = NETWORKS[name]()
    recording = network.recorded(4, training=True)
    assert [layer.name for layer in recording.layers] == LAYERS[name]
    assert sorted(n for layer in recording.layers for n in layer.parameters) == sorted(
        network.params.specs
    )
    assert recording.layers[-1].output is recording.output
    assert network.outputs == recording.output.shape[1]


def test_initial_values_are_arrays_or_drawn_by_the_seed():
    one, same, other = Residual(seed=1), Residual(seed=1), Residual(seed=2)
    np.testing.assert_array_equal(one.params.flat, same.params.flat)
    views, others = one.params.views, other.params.views
    assert (views["in.weight"] != others["in.weight"]).all()
    assert (views["block 0.norm.scale"] == 1).all()
    assert not views["block 0.up.bias"].any()
    bound = (6 / (16 + IN_DIM)) ** 0.5  # Glorot and Bengio 2010, equation 16
    assert 0.8 * bound < np.abs(views["in.weight"]).max() <= bound
    kernels = {"kernels": (8, 3, 5, 5)}  # the fan in of images: 3 * 5 * 5
    drawn = Network(4, kernels, initializer="lecun_normal").params.views["kernels"]
    assert drawn.std() == pytest.approx(75**-0.5, rel=0.1)


def test_groups_are_by_number_of_axes_and_by_name():
    groups = Gated().groups
    assert groups["weights"] == ("value.weight", "gate.weight", "out.weight")
    assert groups["biases"] == ("gate.bias", "gate.temperature", "out.bias")
    assert groups["gate"] == ("gate.weight",)


def own(record, **parameters):
    """Return a network of one input row of 3 with these parameters and this recording."""
    parameters = parameters or {"w": (2, 3)}
    kind = type("Own", (Network,), {"record": lambda self, tape, x: record(tape, x)})
    return kind(3, parameters)


def linear(tape, x):
    return x.linear(tape.parameter("w"))


X = np.ones((3, 3))
REFUSED = {
    "no parameters": (lambda: Network(3, {}), "Network: parameters must be shapes by name"),
    "a shape of 0": (lambda: Network(3, {"w": (0, 3)}), "Network: w must be a shape of whole"),
    "a group": (lambda: Network(3, {"w": 3}, groups={"g": ["v"]}), "groups must name parameters"),
    "a buffer": (lambda: Network(3, {"w": 3}, buffers={"w": 3}), "not be parameters (got 'w')"),
    "a name": (lambda: Network(3, {"input": 3}), "a parameter must not be called 'input'"),
    "complex": (lambda: Network(3, {"w": np.ones(3) * 1j}), "Network: w: must be numeric"),
    "unknown": (lambda: own(lambda t, x: t.parameter("v")).scratch(4), "one of w (got 'v')"),
    "unread": (lambda: own(linear, w=(2, 3), v=2).scratch(4), "parameter (it leaves out 'v')"),
    "infinite": (lambda: Network(3, {"w": np.full(3, 1e300)}), "w must be finite in float32"),
    "a list": (lambda: Network(3, {"w": 3}, groups=["w"]), "groups must be names of parameters"),
    "dropout without effect": (  # whose generator would not move within a call of many steps
        lambda: own(lambda tape, x: (tape.dropout(x, 0.5), linear(tape, x))[1]).scratch(4),
        "Own: record must use the result of tape.dropout; write h = tape.dropout(h, ...)",
    ),
    "a vector": (lambda: own(lambda t, x: x[:, 0]).scratch(4), "node float32[4, outputs] for 4 r"),
    "a sum as a layer": (
        lambda: own(
            lambda tape, x: tape.layer("s", linear(tape, x).sum(axis=0, keepdims=True)) + x[:, :2]
        ).scratch(4),
        "Own: record: layer 's' must have a row for each row of the input",
    ),
    "twice": (lambda: own(lambda t, x: t.layer("a", t.layer("a", x))).scratch(4), "'a' twice)"),
    "an array": (lambda: own(lambda t, x: np.ones((2, 9))).outputs, "(got ndarray float64[2, 9])"),
    "other rows": (lambda: own(lambda t, x: linear(t, x)[::-1]).predict(X), "must not depend on"),
    "the first row": (lambda: own(lambda t, x: linear(t, x) * x[:1, :1]).predict(X), "one of two"),
    "an input": (lambda: Network({"": 3}, {"w": 3}), "inputs must have names"),
    "an output": (lambda: own(lambda t, x: {1: x.tanh()}).scratch(4), "outputs must have names"),
    "eps": (lambda: own(lambda t, x: x.layer_norm(eps=-1)).scratch(4), "layer_norm: eps must be"),
    "momentum": (lambda: RunningStatistics(3, momentum=2), "batch_norm: momentum must be"),
    "a kernel": (lambda: MaxPool2d(1.5).infer(Spec((1, 1, 2, 2), F4)), "kernel must be one or two"),
    "dropout of its own": (
        lambda: own(lambda _, x: x.dropout(0.5, np.random.default_rng(0))).scratch(4),
        "write tape.dropout(h, 0.5)",
    ),
    "no buffers": (
        lambda: own(lambda t, x: t.batch_norm(x, running="n")).scratch(4),
        "buffers={'n.mean': 8, 'n.variance': np.ones(8)}",
    ),
    "NumPy": (lambda: own(lambda _, x: np.concatenate([x, x])).scratch(4), "tape.cat([x, y], axis"),
    "batch norm": (lambda: own(lambda t, x: x.batch_norm()).scratch(4), "among the buffers"),
    "to freeze": (lambda: Gated().freeze(["gat"]), "freeze must name parameters (got 'gat')"),
    "all frozen": (lambda: own(linear).freeze(["w"]), "a layer must be left to train"),
    "a step without record": (
        lambda: TrainingStep(net := Network(3, {"w": 3}), MeanSquaredError(), Adam(net), 4),
        "Network: record must be overridden",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_one_clear_error(name):
    make, text = REFUSED[name]
    with pytest.raises(MlpEngineError) as error:
        make()
    assert isinstance(error.value, DtypeError | UsageError | TapeError | NumericalError)
    assert text in str(error.value)


def test_a_network_without_a_base_names_the_call_that_makes_it():
    bare = type("Bare", (Network,), {"__init__": lambda self: None})()
    for use in (Adam, lambda network: network.predict(X)):
        with pytest.raises(AttributeError, match=r"Bare: .* super\(\).__init__\(inputs, param"):
            use(bare)
