"""Values and gradients of every op agree with PyTorch over random shapes and options."""

import numpy as np
import pytest
import torch_arrays
import torch_elementwise
from torch_rows import Draw, torch

from mlpengine.ops import REGISTRY
from mlpengine.tape import Program, Tape

pytestmark = pytest.mark.torch

ROWS = torch_elementwise.ROWS | torch_arrays.ROWS
DRAWS = 24
TOLERANCE = {np.dtype("float64"): 1e-10, np.dtype("float32"): 1e-5}
WITHOUT = {
    "dropout",  # random: no two libraries draw the same mask
    "formula",  # what a text of the user says; the same formulas are compared under their names
    "formula_activation",
}


def tupled(value):
    return value if isinstance(value, tuple | list) else (value,)


def our_results(draw: Draw, seeds) -> list[np.ndarray]:
    """Return values and gradients by a program."""
    tape = Tape()
    leaves = [
        tape.input(a.shape, a.dtype, name=f"x{i}", wants_grad=a.dtype.kind == "f")
        for i, a in enumerate(draw.operands)
    ]
    program = Program(tape, *tupled(draw.ours(*leaves)))
    inputs = {f"x{i}": a for i, a in enumerate(draw.operands)}
    values = [np.copy(v) for v in tupled(program.forward(**inputs))]
    weights = [s.astype(v.dtype) for s, v in zip(seeds(values), values, strict=True)]
    program.backward(weights if len(weights) > 1 else weights[0])
    return values + [program.grad(n) for n in leaves if n.wants_grad]


def their_results(draw: Draw, seeds) -> list[np.ndarray]:
    leaves = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in draw.operands]
    values = tupled(draw.theirs(*leaves))
    found = [v.detach().numpy() for v in values]
    weights = [torch.tensor(s, dtype=v.dtype) for s, v in zip(seeds(found), values, strict=True)]
    wanted = [x for x in leaves if x.requires_grad]
    grads = torch.autograd.grad(values, wanted, weights)
    return found + [g.numpy() for g in grads]


def error(mine: np.ndarray, theirs: np.ndarray) -> float:
    """Return the largest difference, relative to the larger of 1 and the largest entry."""
    assert mine.shape == theirs.shape
    if not mine.size:
        return 0.0
    return float(np.max(np.abs(mine - theirs)) / max(1.0, np.max(np.abs(theirs))))


def disagreements(draw: Draw, seed: int, tolerance: float) -> list[str]:
    """Return a line for each value, gradient or state that differs by more than `tolerance`."""

    def seeds(values):
        rng = np.random.default_rng(seed)
        return [np.asarray(rng.standard_normal(v.shape)) for v in values]

    mine, theirs = our_results(draw, seeds), their_results(draw, seeds)
    pairs = [*zip(mine, theirs, strict=True), *((a, np.asarray(b)) for a, b in draw.state())]
    shapes = [a.shape for a in draw.operands]
    return [
        f"draw {seed}, operands {shapes}, result {i}: off by {error(a, b):.2e}"
        for i, (a, b) in enumerate(pairs)
        if not error(a, b) <= tolerance
    ]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients_agree(name, dtype):
    wrong = []
    for seed in range(DRAWS):
        draw = ROWS[name](np.random.default_rng(seed), dtype)
        wrong += disagreements(draw, seed, TOLERANCE[dtype])
    assert wrong == []


def test_every_op_that_pytorch_has_is_compared():
    assert {op for op in REGISTRY if REGISTRY[op].__module__.startswith("mlpengine.")} == (
        set(ROWS) | WITHOUT
    )


def test_the_comparison_can_fail():
    draw = ROWS["tanh"](np.random.default_rng(0), np.dtype("float64"))
    draw.theirs = lambda x: torch.tanh(x) * (1 + 1e-9)
    assert len(disagreements(draw, 0, 1e-10)) == 2
    draw.theirs = lambda x: torch.tanh(x).detach() + x * 0
    assert [line.split(": ")[0][-8:] for line in disagreements(draw, 0, 1e-10)] == ["result 1"]
