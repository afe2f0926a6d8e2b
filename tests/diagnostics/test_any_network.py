"""Diagnostics of networks of one's own: their layers by name, and what an `Mlp` shows as well."""

import numpy as np
import pytest
from own_networks import IN_DIM, NETWORKS, SEVERAL, BatchNormed, Residual, rows

from mlpengine import MeanSquaredError, Sgd, TrainingStep
from mlpengine.diagnostics import Diagnostics, table, verdicts
from mlpengine.nn import Network

BACKENDS = ("numpy", "compiled")
KNOWN = ("residual", "tied", "gated", "siamese", "mixture", "attention")
"""Networks whose gradients of rows follow from a backward."""


class Chain(Network):
    """The dense layers of an Mlp, recorded by hand."""

    def __init__(self, activation, dropout=0.0, **options):
        self.activation, self.dropout = activation, dropout
        shapes = {"0.weight": (9, IN_DIM), "0.bias": 9, "2.weight": (7, 9), "2.bias": 7}
        shapes |= {"4.weight": (2, 7), "4.bias": 2}
        super().__init__(IN_DIM, shapes, **options)

    def record(self, tape, x):
        p, h = tape.parameter, x
        for number in (0, 1):
            h = h.linear(p(f"{2 * number}.weight"), p(f"{2 * number}.bias"))
            h = tape.dropout(getattr(h, self.activation)(), self.dropout)
            h = tape.layer(f"hidden {number}", h)
        return h.linear(p("4.weight"), p("4.bias"))


def watched(network, count=12, lr=0.01, steps=2, backend="numpy", data=None):
    """Return the diagnostics of some steps, and the parameters before the last one."""
    step = TrainingStep(network, MeanSquaredError(), Sgd(network, lr=lr), count, backend=backend)
    x, y = data or rows(count, dtype=network.dtype)
    diagnostics = Diagnostics(network, every=1, baseline=1.0, optimizer=step.optimizer)
    for number in range(1, steps + 1):
        before = network.params.flat.copy()
        step(x, y)
        known = {"loss": step.loss_value, "norm": step.grad_norm, "lr": lr}
        diagnostics.after_step(step.scratch, step.grads, number, **known)
    return diagnostics, step, before


def norms_one_by_one(network, x, y):
    """Return the norm of each row's gradient, from a backward of that row alone."""
    scratch, grads = network.scratch(1), network.gradients(1)
    norms = []
    for i in range(len(x)):
        output = network.forward(x[i : i + 1], scratch)
        MeanSquaredError()(output, y[i : i + 1], grads.d_output)
        network.backward(scratch, grads)
        norms.append(np.sqrt(sum(np.square(g).sum() for g in grads.views.values())))
    return np.array(norms)


@pytest.mark.parametrize(
    ("name", "backend"), [*((name, "numpy") for name in KNOWN), ("mixture", "compiled")]
)
def test_norms_of_rows_are_those_of_backwards_of_single_rows(name, backend):
    network = NETWORKS[name](seed=1, dtype="float64")
    network.params.flat[:] += 0.1 * np.random.default_rng(2).standard_normal(len(network.params))
    x, y = rows(12, name, "float64")
    diagnostics, step, before = watched(network, backend=backend, data=(x, y))
    norms = diagnostics._probes(step.scratch, step.grads).rows.norms
    other = NETWORKS[name](dtype="float64")
    other.params.flat[:] = before
    truth = norms_one_by_one(other, x, y)
    np.testing.assert_allclose(norms, truth, rtol=1e-12)
    assert diagnostics.get("example_norm_max") == pytest.approx(truth.max(), rel=1e-12)
    assert diagnostics.noise.variance > 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SEVERAL)
def test_networks_with_several_losses_are_measured(name, backend):
    make, losses, weights, data = SEVERAL[name]
    network = make(seed=1, dtype="float64")
    optimizer = Sgd(network, lr=0.01)
    step = TrainingStep(network, losses, optimizer, 1, loss_weights=weights, backend=backend)
    diagnostics = Diagnostics(network, every=1, loss=step.loss, optimizer=optimizer)
    step(*data(1, "float64", 0))
    diagnostics.after_step(step.scratch, step.grads, 1, loss=step.loss_value, norm=step.grad_norm)
    assert diagnostics.get("example_norm_max") == pytest.approx(step.grad_norm, rel=1e-12)
    outputs = list(step.mlp.outputs)
    assert [layer.name for layer in diagnostics.layers][-len(outputs) :] == outputs
    assert table(diagnostics)
    assert verdicts(diagnostics) == []


def test_rows_that_depend_on_each_other_have_no_gradients_of_their_own():
    network = BatchNormed(seed=1, dtype="float64")
    x, y = rows(12, dtype="float64")
    x = x.reshape(12, 1, 1, IN_DIM)
    diagnostics, _, _ = watched(network, data=(x, y))
    assert diagnostics.unknown_rows.startswith("batch_norm averages over the rows")


def test_frozen_parameters_are_left_out():
    network = Residual(seed=1, dtype="float64")
    network.freeze(["in", "block 0.up", "block 1.norm"])
    diagnostics, step, _ = watched(network, 1, steps=1)
    assert diagnostics.get("example_norm_max") == pytest.approx(step.grad_norm, rel=1e-12)


def test_norms_that_no_rule_gives_are_said_to_be_unknown():
    network = NETWORKS["computed"](seed=1)
    diagnostics, _, _ = watched(network)
    quantities = ("example_norm_max", "hardest_row", "noise_scale")
    assert np.isnan([diagnostics.get(one) for one in quantities]).all()
    assert diagnostics.get("gradient_norm") > 0
    assert table(diagnostics).splitlines()[-1] == (
        "gradient norm of single rows: unknown, because tanh computes a matrix from 'raw'"
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_updates_and_gradients_of_layers_are_those_of_their_weights(backend):
    network = Residual(seed=1, dtype="float64")
    start = network.state_dict()
    diagnostics, step, _ = watched(network, steps=1, lr=0.1, backend=backend)
    for number, layer in enumerate(("in", "block 0", "block 1", "out")):
        names = [n for n in start if n.startswith(f"{layer}.") and start[n].ndim == 2]
        weights, gradients = (
            np.concatenate([part[n].ravel() for n in names]) for part in (start, step.grads.views)
        )
        rms = np.sqrt(np.square(gradients).mean())
        ratio = 0.1 * np.linalg.norm(gradients) / np.linalg.norm(weights)
        assert diagnostics.get("gradient_rms", number) == pytest.approx(rms, rel=1e-12)
        assert diagnostics.get("update_ratio", number) == pytest.approx(ratio, rel=1e-12)
    kept = step.scratch.activations[1]  # of a layer that no op reads again in backward
    assert diagnostics.get("activation_mean", 1) == pytest.approx(kept.mean(), rel=1e-9)
    assert np.isnan(diagnostics.get("saturated_share", 1))
    assert not diagnostics.windows


def test_the_table_has_the_names_of_layers():
    first, *lines = table(watched(NETWORKS["tied"](seed=1), data=rows(12, "tied"))[0]).splitlines()
    assert first.split()[:3] == ["layer", "units", "activation"]
    assert [line.split()[:3] for line in lines[:2]] == [["code", "4", "tanh"], ["output", "6", "-"]]
    assert lines[1].split()[3] == "-"  # its weights belong to the layer that reads them first


def test_dead_units_are_a_verdict_on_the_layer_by_its_name():
    network = Chain("relu", seed=1)
    network.params.views["2.bias"][:4] = -100.0
    diagnostics, _, _ = watched(network, 300, steps=3)
    (dead,) = verdicts(diagnostics)
    assert (dead.name, dead.place) == ("dead", "hidden 1")
    assert dead.headline + " (hidden 1). 57 % of the units" in str(dead)
    assert dead.as_dict()["layer_name"] == "hidden 1"
    for name in ("0.weight", "2.weight"):
        network.params.views[name][...] *= 30
    saturated = Chain("tanh", seed=1)
    saturated.params.flat[:] = 30 * network.params.flat
    diagnostics, _, _ = watched(saturated, 300, lr=1e-4, steps=3)
    (verdict,) = [v for v in verdicts(diagnostics) if v.name == "saturated"]
    assert (list(verdict.fix), verdict.no_fix) == ([], "this network has no such setting")


@pytest.mark.parametrize(("weight", "expected"), [("in", ["no_gradient"]), ("block 0.down", [])])
def test_zeros_stop_gradients_only_where_all_must_pass(weight, expected):
    network = Residual(seed=1)
    for name in ("up", "down") if weight.startswith("block") else ("",):
        key = f"block 0.{name}.weight" if name else "in.weight"
        network.params.views[key][...] = 0
    diagnostics = Diagnostics(network)
    assert [v.name for v in verdicts(diagnostics) if v.name == "no_gradient"] == expected
