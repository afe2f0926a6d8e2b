"""Networks that stop gradients, read variances, or compute gradients themselves, as users write."""

import numpy as np
import pytest

from mlpengine import Adam, MeanSquaredError, TrainingStep
from mlpengine.nn import Network
from mlpengine.tape import Program, Tape, cat, gradcheck

ROWS, IN_DIM = 24, 6


class Stopped(Network):
    """A gate that reads a detached layer, the variance of each row, and those of the weights."""

    def __init__(self, **options):
        shapes = {"w": (8, IN_DIM), "b": 8, "gate": (8, 8), "out.weight": (2, 9), "out.bias": 2}
        super().__init__(IN_DIM, shapes, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("w"), p("b")).tanh()
        gate = h.detach().linear(p("gate")).sigmoid()
        h = tape.layer("gated", gate * h.detach() + h)
        spread = p("w").var(axis=0).var() + p("b").var(ddof=1)
        h = cat([h, h.var(axis=1, ddof=1, keepdims=True)], axis=1)
        return h.linear(p("out.weight"), p("out.bias")) + spread


def stopped_in_torch(torch, p, x):
    f = torch.nn.functional
    h = torch.tanh(f.linear(x, p["w"], p["b"]))
    gate = torch.sigmoid(f.linear(h.detach(), p["gate"]))
    h = gate * h.detach() + h
    spread = p["w"].var(0, correction=0).var(correction=0) + p["b"].var(correction=1)
    h = torch.cat([h, h.var(1, correction=1, keepdim=True)], 1)
    return f.linear(h, p["out.weight"], p["out.bias"]) + spread


NETWORKS = {"stopped": Stopped}

TORCH = {"stopped": stopped_in_torch}


def rows(dtype="float64"):
    x = np.random.default_rng(0).standard_normal((ROWS, IN_DIM)).astype(dtype)
    return x, np.sin(2 * x[:, :2])


def trained(name, dtype, steps=60, **options):
    network = NETWORKS[name](seed=3, dtype=dtype)
    step = TrainingStep(network, MeanSquaredError(), Adam(network, lr=1e-2), ROWS, **options)
    x, y = rows(dtype)
    return step, [step(x, y) for _ in range(steps)]


@pytest.mark.parametrize("name", NETWORKS)
def test_compiled_steps_are_those_of_numpy_on_any_number_of_threads(name, monkeypatch):
    monkeypatch.setattr("mlpengine.backends.compiled.emitter.STEP_TERMS_PER_THREAD", 1)
    for dtype, near in (("float64", 1e-9), ("float32", 2e-4)):
        _, expected = trained(name, dtype, backend="numpy")
        one, losses = trained(name, dtype, backend="compiled")
        two, again = trained(name, dtype, backend="compiled", threads=2)
        assert one.fused
        np.testing.assert_allclose(losses, expected, rtol=near)
        assert losses == again
        assert one.mlp.params.flat.tobytes() == two.mlp.params.flat.tobytes()
        assert losses[-1] < losses[0]


@pytest.mark.torch
@pytest.mark.parametrize("name", NETWORKS)
def test_steps_are_those_of_torch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: networks NOT compared")
    network = NETWORKS[name](seed=3, dtype="float64")
    p = {n: torch.tensor(v, requires_grad=True) for n, v in network.state_dict().items()}
    theirs = torch.optim.Adam(p.values(), lr=1e-2)
    x, y = rows()
    expected = []
    for _ in range(60):
        theirs.zero_grad()
        output = TORCH[name](torch, p, torch.tensor(x, requires_grad=True))
        loss = torch.nn.functional.mse_loss(output, torch.tensor(y))
        loss.backward()
        theirs.step()
        expected.append(loss.item())
    for backend in ("numpy", "compiled"):
        _, losses = trained(name, "float64", backend=backend)
        np.testing.assert_allclose(losses, expected, rtol=1e-9)


def test_what_a_detached_value_alone_depends_on_has_no_backward():
    tape = Tape()
    w, v = (tape.parameter(np.full(3, n), name=name) for n, name in ((2.0, "w"), (3.0, "v")))
    detached = w.exp().detach()
    program = Program(tape, (detached * v * w).sum())
    program.forward()
    program.backward()
    np.testing.assert_allclose(program.grads.views["w"], np.exp(2) * 3)
    np.testing.assert_allclose(program.grads.views["v"], np.exp(2) * 2)
    assert not any("backward  exp" in str(i) for i in program.instructions)


def test_variance_of_columns_follows_the_batch_size():
    tape = Tape()
    x = tape.input((5, 3), "float64", name="x", wants_grad=True)
    for axis in (0, None):
        program = Program(tape, x.var(axis, ddof=1), batch_size=7)
        rows = np.random.default_rng(1).standard_normal((7, 3))
        np.testing.assert_allclose(program.forward(x=rows), np.var(rows, axis, ddof=1), rtol=1e-12)
        assert gradcheck(program) < 1e-6
