"""Gradients that are stopped, or recorded to be computed with, and variances."""

import numpy as np
import pytest
from own_networks import IN_DIM

from mlpengine.core.errors import TapeError
from mlpengine.tape import Program, Tape, cat, gradcheck


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
    for _ in range(2):
        plain, slope = Program(tape, y), Program(tape, y := tape.gradient(y, x))
        plain.forward(x=rows)
        plain.backward()
        exact = plain.grad(x)
        limit = 1e-9 * max(1.0, np.abs(exact).max())
        np.testing.assert_allclose(slope.forward(x=rows), exact, rtol=1e-9, atol=limit)
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
        (x.max(axis=1), "no rule for max; element-wise ops"),
        (x[::2], "no rule for slices with a step"),
        (x * 2, r"must depend on Node\(1 'z'"),
    ):
        with pytest.raises(TapeError, match=message):
            tape.gradient(y, z if "depend" in message else x)
