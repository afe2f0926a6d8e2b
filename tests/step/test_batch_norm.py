"""Batch norm in compiled steps: in parts between programs, with running averages as in NumPy."""

import numpy as np
import pytest

from mlpengine import Adam, MeanSquaredError, TrainingStep
from mlpengine.backends.compiled.batch_norm import BATCH_NORM_PARTS
from mlpengine.nn import Network

ROWS, IN_DIM = 24, 6


class Dense(Network):
    """Two dense layers with batch norm, the second without a scale."""

    def __init__(self, **options):
        shapes = {"w": (7, IN_DIM), "scale": np.ones(7), "bias": 7, "w2": (8, 7), "bias2": 8}
        buffers = {f"{n}.{part}": size for n, size in (("a", 7), ("b", 8)) for part in ("mean",)}
        buffers |= {"a.variance": np.ones(7), "b.variance": np.ones(8)}
        super().__init__(IN_DIM, shapes | {"out": (2, 8)}, buffers=buffers, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("w"))
        h = tape.batch_norm(h, p("scale"), p("bias"), running="a", momentum=0.2).relu()
        h = tape.batch_norm(h.linear(p("w2")), None, p("bias2"), running="b").tanh()
        return tape.layer("body", h).linear(p("out"))


class Images(Network):
    """Batch norm over the pixels of channels, of a batch that is no convolution's."""

    def __init__(self, **options):
        shapes = {"w": (3 * 8, IN_DIM), "scale": np.ones(3), "bias": 3, "out": (2, 3 * 8)}
        buffers = {"n.mean": 3, "n.variance": np.ones(3)}
        super().__init__(IN_DIM, shapes, buffers=buffers, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("w")).reshape(-1, 3, 2, 4)
        h = tape.batch_norm(h, p("scale"), p("bias"), running="n").tanh()
        return h.reshape(-1, 24).linear(p("out"))


NETWORKS = {"dense": Dense, "images": Images}


def rows(dtype="float64", count=ROWS):
    x = 2 + np.random.default_rng(0).standard_normal((count, IN_DIM)).astype(dtype)
    return x, np.sin(2 * x[:, :2])


def make_step(name, backend, dtype="float64", **options):
    network = NETWORKS[name](seed=3, dtype=dtype)
    adam = Adam(network, lr=1e-2)
    return TrainingStep(network, MeanSquaredError(), adam, ROWS, backend=backend, **options)


def losses(step, count=40, shorter=5):
    """Train; every third batch is a short one."""
    x, y = rows(step.mlp.dtype)
    ends = [ROWS - shorter * (i % 3 == 2) for i in range(count)]
    return [step(x[:n], y[:n]) for n in ends]


@pytest.mark.parametrize(
    ("name", "dtype", "near"), [("dense", "float64", 1e-8), ("images", "float32", 1e-3)]
)
def test_compiled_parts_train_as_numpy_does(name, dtype, near):
    plain, one = (make_step(name, backend, dtype) for backend in ("numpy", "compiled"))
    np.testing.assert_allclose(losses(one), losses(plain), rtol=near)
    for key, value in plain.mlp.state_dict().items():
        np.testing.assert_allclose(one.mlp.state_dict()[key], value, rtol=near, atol=near)
    x, _ = rows(dtype)
    np.testing.assert_allclose(one.mlp.predict(x), plain.mlp.predict(x), atol=50 * near)
    numpy_runs = {line for line in one.summary().splitlines() if line.startswith("NumPy")}
    assert all("batch_norm: moved" in line or "update" in line for line in numpy_runs)
    assert all(f"batch_norm: {part}" in one.summary() for part in BATCH_NORM_PARTS)


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr("mlpengine.backends.compiled.emitter.STEP_TERMS_PER_THREAD", 1)
    one, two = (make_step("dense", "compiled", threads=threads) for threads in (1, 2))
    assert losses(two, shorter=0) == losses(one, shorter=0)
    assert two.mlp.params.flat.tobytes() == one.mlp.params.flat.tobytes()


def test_a_trained_network_computes_outputs_in_one_program():
    step = make_step("dense", "numpy")
    losses(step)
    x, _ = rows()
    compiled = step.mlp.compile(batch_size=ROWS)
    np.testing.assert_allclose(compiled(x), step.mlp.predict(x), rtol=1e-12, atol=1e-12)


def test_frozen_scales_and_biases_change_nothing_else():
    steps = []
    for backend in ("numpy", "compiled"):
        network = Images(seed=3, dtype="float64")
        network.freeze(["scale", "bias"])
        adam = Adam(network, lr=1e-2)
        steps.append(TrainingStep(network, MeanSquaredError(), adam, ROWS, backend=backend))
    plain, compiled = (losses(step, shorter=0) for step in steps)
    np.testing.assert_allclose(compiled, plain, rtol=1e-8)


@pytest.mark.torch
def test_steps_are_those_of_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: batch norm NOT compared")
    f, step = torch.nn.functional, make_step("dense", "compiled")
    state = {n: torch.tensor(v) for n, v in step.mlp.state_dict().items()}
    p = {n: v.requires_grad_() for n, v in state.items() if "." not in n}
    theirs = torch.optim.Adam(p.values(), lr=1e-2)
    x, y = (torch.tensor(v) for v in rows())
    means = [state[n] for n in ("a.mean", "a.variance", "b.mean", "b.variance")]
    expected = []
    for i in range(40):
        n = ROWS - 5 * (i % 3 == 2)
        h = f.linear(x[:n], p["w"])
        h = f.relu(f.batch_norm(h, *means[:2], p["scale"], p["bias"], True, 0.2))
        h = f.linear(h, p["w2"])
        h = torch.tanh(f.batch_norm(h, *means[2:], None, p["bias2"], True, 0.1))
        loss = f.mse_loss(f.linear(h, p["out"]), y[:n])
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        expected.append(loss.item())
    np.testing.assert_allclose(losses(step), expected, rtol=1e-8)
    np.testing.assert_allclose(step.mlp.state_dict()["b.variance"], means[3], rtol=1e-8)
