"""Every quantity against the gradients of single rows in float64, from a backward of each row."""

from dataclasses import dataclass

import numpy as np
import pytest

from mlpengine import (
    Adam,
    BinaryCrossEntropyWithLogits,
    MeanSquaredError,
    Mlp,
    SoftmaxCrossEntropy,
    TrainingStep,
)
from mlpengine.core.errors import UsageError
from mlpengine.diagnostics import Diagnostics

LOSSES = {
    "softmax_cross_entropy": SoftmaxCrossEntropy,
    "bce_with_logits": BinaryCrossEntropyWithLogits,
    "mse": MeanSquaredError,
}
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


@dataclass
class Watched:
    """A training step and the diagnostics that watch it."""

    step: TrainingStep
    diagnostics: Diagnostics
    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None

    def run(self, number, **options):
        step = self.step
        step(self.x, self.y, self.weights)
        norms = {"loss": step.loss_value, "norm": step.grad_norm, "clipped_norm": step.clipped_norm}
        return self.diagnostics.after_step(step.scratch, step.grads, number, **norms, **options)


def watched(activation, loss, dtype, *, weighted=False, clip_norm=None, batch=24, every=1):
    rng = np.random.default_rng(5)
    mlp = Mlp([6, 9, 7, 3], activation=activation, seed=3, dtype=dtype)
    mlp.params.flat += 0.05 * rng.standard_normal(len(mlp.params.flat)).astype(dtype)
    x = rng.standard_normal((batch, 6)).astype(dtype)
    y = rng.standard_normal((batch, 3)).astype(dtype)
    if loss == "softmax_cross_entropy":
        y = rng.integers(0, 3, batch)
    elif loss == "bce_with_logits":
        y = (y > 0).astype(dtype)
    weights = rng.uniform(0.2, 3, batch).astype(dtype) if weighted else None
    step = TrainingStep(
        mlp, LOSSES[loss](), Adam(mlp, lr=1e-2), batch, clip_norm=clip_norm, weighted=weighted
    )
    return Watched(step, Diagnostics(mlp, every=every), x, y, weights)


def wide(mlp):
    """Return the network as it is now, in float64."""
    activation = mlp.layers[0].activation
    copied = Mlp(mlp.sizes, activation=activation, dtype="float64", seed=0)
    copied.params.flat[...] = mlp.params.flat
    return copied


@dataclass
class Explicit:
    """The quantities of the net and of each layer, and the norm of each row's gradient."""

    net: dict
    layers: list
    norms: np.ndarray


def explicit(before, activation, loss, run):
    """Return the quantities of a step from the network before it, and the watched run after it."""
    scratch, grads = before.scratch(1), before.gradients(1)
    gradients, post = [], []
    x = run.x.astype(float)
    for i in range(len(x)):
        output = before.forward(x[i : i + 1], scratch)
        weight = None if run.weights is None else run.weights[i : i + 1].astype(float)
        LOSSES[loss]()(output, run.y[i : i + 1], grads.d_output, weight)
        before.backward(scratch, grads)
        gradients.append(grads.flat.copy())
        post.append([values[0].copy() for values in scratch.activations])
    rows = np.stack(gradients)
    mean, norms = rows.mean(axis=0), np.linalg.norm(rows, axis=1)
    variance = np.square(rows - mean).sum() / (len(x) - 1)
    layers = []
    for n, (name, start) in enumerate(zip(before.groups["weights"], before.weights, strict=True)):
        gradient = mean[before.params.places[name]].reshape(start.shape)
        step = run.step.mlp.weights[n].astype(float) - start
        y = np.array([row[n] for row in post])
        known = {
            "gradient_rms": np.sqrt(np.square(gradient).mean()),
            "update_ratio": np.linalg.norm(step) / np.linalg.norm(start),
            "activation_mean": y.mean(),
            "activation_std": y.std(),
        }
        if activation in ("tanh", "sigmoid") and n < len(before.weights) - 1:
            centered = y if activation == "tanh" else 2 * y - 1
            known["saturated_share"] = (np.abs(centered) > 0.97).mean()
        layers.append(known)
    net = {
        "gradient_norm": np.linalg.norm(mean),
        "depth_slope": np.log10(layers[0]["gradient_rms"] / layers[-1]["gradient_rms"]),
        "input_mean": x.mean(),
        "input_std": x.std(),
        "example_norm_median": np.median(norms),
        "example_norm_max": norms.max(),
        "hardest_row": norms.argmax(),
        "gradient_variance": variance,
        "squared_gradient_norm": np.square(mean).sum() - variance / len(x),
    }
    return Explicit(net, layers, norms)


def compare(diagnostics, truth, tolerance):
    """Compare every quantity; differences of large numbers have the larger one's tolerance."""
    columns = diagnostics.columns
    square = truth.net["gradient_norm"] ** 2 + truth.net["gradient_variance"]
    for quantity, wanted in truth.net.items():
        found = diagnostics.values[columns.index(quantity)]
        room = {"squared_gradient_norm": square, "input_mean": truth.net["input_std"]}
        scale = max(abs(wanted), room.get(quantity, 0.0))
        assert abs(found - wanted) <= tolerance * scale, (quantity, found, wanted)
    for number, layer in enumerate(truth.layers):
        for quantity, wanted in layer.items():
            found = diagnostics.values[columns.index(quantity, number)]
            room = {"activation_mean": layer["activation_std"]}
            scale = max(abs(wanted), room.get(quantity, 0.0))
            assert abs(found - wanted) <= tolerance * scale, (number, quantity, found, wanted)


@pytest.mark.parametrize(
    ("activation", "loss", "weighted", "dtype"),
    [
        ("relu", "softmax_cross_entropy", True, "float32"),
        ("relu", "mse", False, "float64"),
        ("tanh", "mse", True, "float64"),
        ("tanh", "softmax_cross_entropy", False, "float32"),
        ("sigmoid", "bce_with_logits", False, "float64"),
    ],
)
def test_quantities_equal_the_explicit_computation(activation, loss, weighted, dtype):
    run = watched(activation, loss, dtype, weighted=weighted)
    for number in (1, 2):  # the second step takes weights that Adam has moved
        before = wide(run.step.mlp)
        assert run.run(number)
        truth = explicit(before, activation, loss, run)
        compare(run.diagnostics, truth, TOLERANCE[dtype])
        probes = run.diagnostics._probes(run.step.scratch, run.step.grads)
        np.testing.assert_allclose(probes.rows.norms, truth.norms, rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quantities_are_those_before_clipping(dtype):
    run = watched("relu", "mse", dtype, clip_norm=0.01)
    before = wide(run.step.mlp)
    run.run(1)
    truth = explicit(before, "relu", "mse", run)
    tolerance = TOLERANCE[dtype] if dtype == "float32" else 1e-11
    compare(run.diagnostics, truth, tolerance)
    values, columns = run.diagnostics.values, run.diagnostics.columns
    assert values[columns.index("clipped_norm")] == pytest.approx(0.01, rel=1e-3)
    assert values[columns.index("clipped_share")] == 1.0


def test_shorter_batches_and_row_numbers():
    run = watched("tanh", "mse", "float64")
    run.run(1)
    run.x, run.y = run.x[:10], run.y[:10]
    before = wide(run.step.mlp)
    rows = np.arange(100, 110)
    run.run(2, rows=rows)
    truth = explicit(before, "tanh", "mse", run)
    truth.net["hardest_row"] += 100
    compare(run.diagnostics, truth, 1e-12)


def test_noise_scale_divides_running_means():
    run = watched("tanh", "mse", "float64")
    variance = squared = 0.0
    for number in range(1, 8):
        before = wide(run.step.mlp)
        run.run(number)
        truth = explicit(before, "tanh", "mse", run).net
        variance += 0.1 * (truth["gradient_variance"] - variance)
        squared += 0.1 * (truth["squared_gradient_norm"] - squared)
    assert run.diagnostics.get("noise_scale") == pytest.approx(variance / squared, rel=1e-10)
    for name, layer in ("update_ratio", None), ("noise_scale", 0), ("dead_share", "0"):
        with pytest.raises(UsageError, match="get takes"):
            run.diagnostics.get(name, layer)
