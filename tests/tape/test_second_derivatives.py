"""Gradients of gradients agree with PyTorch's double backward, on random networks."""

import numpy as np
import pytest

from mlpengine.ops import REGISTRY
from mlpengine.tape import Program, Tape, apply

ACTIVATIONS = ["tanh", "sigmoid", "softsign", "silu", "gelu", "sin", "elu", "mish"]
ROWS = 7


def arrays_of(seed):
    """Return rows, targets, weights, biases and vectors of products, all drawn from `seed`."""
    rng = np.random.default_rng(seed)
    sizes = [*rng.integers(1, 9, rng.integers(2, 5)), int(rng.integers(1, 4))]
    weights = [rng.standard_normal(s) for s in zip(sizes[1:], sizes[:-1], strict=True)]
    parameters = [p for w in weights for p in (w, rng.standard_normal(len(w)))]
    vectors = [rng.standard_normal(p.shape) for p in parameters]
    rows = rng.standard_normal((ROWS, sizes[0]))
    return rows, rng.standard_normal((ROWS, sizes[-1])), parameters, vectors


def ours(seed):
    """Return the gradient of |dy/dx|^2 by x, and the Hessian of a loss times the vectors."""
    rows, targets, parameters, vectors = arrays_of(seed)
    tape = Tape()
    x = tape.input(rows.shape, "float64", name="x", wants_grad=True)
    nodes = [tape.parameter(p, name=str(i)) for i, p in enumerate(parameters)]
    y, activation = x, REGISTRY[ACTIVATIONS[seed % len(ACTIVATIONS)]]()
    for i in range(0, len(nodes), 2):
        y = y.linear(nodes[i], nodes[i + 1])
        y = y if i == len(nodes) - 2 else apply(activation, y)
    second = tape.gradient(tape.gradient(y, x) ** 2, x)
    slopes = tape.gradient(((y - targets) ** 2).mean(), *nodes)
    parts = [(g * v).sum() for g, v in zip(slopes, vectors, strict=True)]
    products = tape.gradient(sum(parts[1:], parts[0]), *nodes)
    return Program(tape, second, *products).forward(x=rows)


def theirs(torch, seed):
    """Return the same by `torch.autograd.grad` in float64."""
    rows, targets, parameters, vectors = (
        torch.from_numpy(a) if isinstance(a, np.ndarray) else [*map(torch.from_numpy, a)]
        for a in arrays_of(seed)
    )
    functions = {"sin": torch.sin, "tanh": torch.tanh, "sigmoid": torch.sigmoid}
    name = ACTIVATIONS[seed % len(ACTIVATIONS)]
    activation = functions.get(name) or getattr(torch.nn.functional, name)
    for leaf in (rows, *parameters):
        leaf.requires_grad_()
    y = rows
    for i in range(0, len(parameters), 2):
        y = torch.nn.functional.linear(y, parameters[i], parameters[i + 1])
        y = y if i == len(parameters) - 2 else activation(y)
    (slope,) = torch.autograd.grad(y.sum(), rows, create_graph=True)
    (second,) = torch.autograd.grad((slope**2).sum(), rows, retain_graph=True)
    slopes = torch.autograd.grad(((y - targets) ** 2).mean(), parameters, create_graph=True)
    total = sum((g * v).sum() for g, v in zip(slopes, vectors, strict=True))
    return [p.numpy() for p in (second, *torch.autograd.grad(total, parameters))]


def agree(got, expected, limit):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=limit * max(1.0, np.abs(b).max()))


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(40))
def test_numpy_agrees_with_pytorch(seed):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing is compared")
    agree(ours(seed), theirs(torch, seed), 1e-12)


def test_a_wrong_hessian_is_noticed():
    right = ours(3)
    with pytest.raises(AssertionError):
        agree([right[0] * (1 + 1e-6), *right[1:]], right, 1e-12)
