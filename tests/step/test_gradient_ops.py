"""Networks that stop gradients, read variances, or compute gradients themselves, as users write."""

import tracemalloc

import numpy as np
import pytest

from mlpengine import Adam, MeanSquaredError, TrainingStep
from mlpengine.errors import TapeError
from mlpengine.nn import Network
from mlpengine.ops import MeanOutput
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


class Penalized(Network):
    """A residual network whose second output is how far its slope is from 1 (WGAN-GP)."""

    def __init__(self, **options):
        shapes = {"w": (8, IN_DIM), "b": 8, "scale": np.ones(8), "w2": (8, 8), "out": (2, 8)}
        super().__init__(IN_DIM, shapes, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("w"), p("b")).tanh()
        h = tape.layer("block", h + h.layer_norm(p("scale")).linear(p("w2")).silu())
        y = h.linear(p("out"))
        slope = tape.gradient(y, x)
        norm = ((slope * slope).sum(axis=1, keepdims=True) + 1e-9).sqrt()
        return {"y": y, "penalty": (norm - 1) ** 2}


def penalized_in_torch(torch, p, x):
    f = torch.nn.functional
    h = torch.tanh(f.linear(x, p["w"], p["b"]))
    h = h + f.silu(f.linear(f.layer_norm(h, h.shape[1:], p["scale"]), p["w2"]))
    y = f.linear(h, p["out"])
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y, ((slope.square().sum(1) + 1e-9).sqrt() - 1).square().mean()


NETWORKS = {"stopped": Stopped, "penalized": Penalized}

TORCH = {"stopped": stopped_in_torch, "penalized": penalized_in_torch}


def rows(dtype="float64"):
    x = np.random.default_rng(0).standard_normal((ROWS, IN_DIM)).astype(dtype)
    return x, np.sin(2 * x[:, :2])


def make_step(name, dtype, **options):
    network = NETWORKS[name](seed=3, dtype=dtype)
    loss = MeanSquaredError()
    if name == "penalized":
        loss = {"y": loss, "penalty": MeanOutput()}
        options["loss_weights"] = {"penalty": 0.1}
    return TrainingStep(network, loss, Adam(network, lr=1e-2), ROWS, **options)


def trained(name, dtype, steps=60, **options):
    step, (x, y) = make_step(name, dtype, **options), rows(dtype)
    target = {"y": y} if name == "penalized" else y
    return step, [step(x, target) for _ in range(steps)]


@pytest.mark.parametrize("name", NETWORKS)
def test_compiled_steps_are_those_of_numpy_on_any_number_of_threads(name, monkeypatch):
    monkeypatch.setattr("mlpengine.backends.compiled.emitter.STEP_TERMS_PER_THREAD", 1)
    _, expected = trained(name, "float64", backend="numpy")
    one, losses = trained(name, "float64", backend="compiled")
    two, again = trained(name, "float64", backend="compiled", threads=2)
    assert one.fused
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
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
        output, penalty = output if name == "penalized" else (output, 0)
        loss = torch.nn.functional.mse_loss(output, torch.tensor(y)) + 0.1 * penalty
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


W = np.random.default_rng(5).standard_normal((4, IN_DIM))

PATHS = {
    "linear": lambda x: x.linear(W) ** 2,
    "linear of a computed weight": lambda x: x.linear((x[:4] * W).tanh()),
    "products": lambda x: (x @ W.T) @ (x.T @ x)[:4],
    "products of rows": lambda x: x.reshape(-1, 2, 3) @ x.reshape(-1, 3, 2).tanh(),
    "tokens": lambda x: x.reshape(-1, 2, 3).linear(W[:, :3]).exp(),
    "arithmetic": lambda x: (x * x[:1] - x / (x * x + 1) + 2 * x) / (x[:, :1].exp() + 1),
    "reductions": lambda x: x.sum(axis=0) * x.mean(axis=1).var(ddof=1) + x.logsumexp(axis=0),
    "softmax": lambda x: x.softmax() * x.log_softmax(axis=0),
    "layer norm": lambda x: (x.layer_norm(W[0], W[1]) * x.layer_norm()).sin(),
    "layer norm of a computed scale": lambda x: (x * W[0]).layer_norm(x[0], x.mean(axis=0)),
    "parts": lambda x: cat(
        [x[:, 1:3] ** 3, x.chunk(2, axis=1)[1] * x[:, ::1][:, :3], x[..., -1:]], 1
    ),
    "integers": lambda x: x[0, 1:] * x[2, -1].exp(),
    "axes": lambda x: (x.T.reshape(3, 2, -1).transpose(2, 0, 1)[:, None] ** 2).tanh(),
    "activations": lambda x: x.gelu() * x.mish() + (x.softplus().sqrt() + x.elu()).log_eps(1e-3),
    "detached": lambda x: x.detach() * x**2,
}


@pytest.mark.parametrize("path", PATHS)
def test_recorded_gradients_are_derivatives_and_have_gradients(path):
    rows = np.random.default_rng(2).uniform(0.3, 2, (5, IN_DIM))
    tape = Tape()
    x = tape.input(rows.shape, "float64", name="x", wants_grad=True)
    y = PATHS[path](x)
    plain, slope = Program(tape, y), Program(tape, tape.gradient(y, x))
    plain.forward(x=rows)
    plain.backward()
    np.testing.assert_allclose(slope.forward(x=rows), plain.grad(x), rtol=1e-9, atol=1e-9)
    if path != "detached":  # whose value changes with x, though no gradient says so
        assert gradcheck(plain) < 1e-6
        assert gradcheck(slope) < 1e-6


def test_gradients_of_several_nodes():
    tape = Tape()
    a, b = (tape.parameter(np.full((2, 1), n), name=name) for n, name in ((2.0, "a"), (3.0, "b")))
    da, db = tape.gradient(a**3 * b * b, a, b)
    program = Program(tape, da, db)
    assert [float(value[0, 0]) for value in program.forward()] == [3 * 4 * 9, 8 * 6]


def test_what_has_no_recorded_gradient_is_refused_by_its_name():
    tape = Tape()
    x, z = (tape.input((4, 3), name=name) for name in "xz")
    for y, message in (
        (x.max(axis=1), "no rule for max; there are those of element-wise ops"),
        (tape.gradient(x.tanh(), x), "no rule for slope"),
        (x[::2], "no rule for slices with a step"),
        (x * 2, r"must depend on Node\(1 'z'"),
    ):
        with pytest.raises(TapeError, match=message):
            tape.gradient(y, z if "depend" in message else x)


def test_a_step_with_a_penalty_allocates_nothing():
    for backend in ("numpy", "compiled"):
        step, _ = trained("penalized", "float64", steps=3, backend=backend)
        x, y = rows()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            step(x, {"y": y})
        grown = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        assert grown < 8192


def test_constants_of_a_network_are_kept():
    class Shifted(Network):
        def record(self, tape, x):
            return (x * np.arange(6.0)).linear(tape.parameter("w"))

    network = Shifted(IN_DIM, {"w": np.ones((1, IN_DIM))}, dtype="float64")
    x, _ = rows()
    np.testing.assert_allclose(network.predict(x)[:, 0], x @ np.arange(IN_DIM))
