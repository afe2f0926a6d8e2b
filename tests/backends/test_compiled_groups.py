"""Which instructions are one program, where some have no compiled rule."""

import numpy as np
import pytest
from own_networks import IN_DIM, make_step
from uncompiled import uncompiled

from mlpengine import Adam, MeanSquaredError, TrainingStep
from mlpengine.backends.compiled import lower as lowering
from mlpengine.backends.compiled.group import StepGroup
from mlpengine.backends.compiled.lower import lower
from mlpengine.backends.values import Batch, UnsupportedError
from mlpengine.core.spec import call
from mlpengine.nn import Network
from mlpengine.ops import GradOp, MeanOutput
from mlpengine.ops.op import REGISTRY

ROWS = 16


class Tripled(GradOp, name="tripled in NumPy"):
    """y = 3 x, without a compiled rule."""

    def infer(self, x):
        return x

    def forward(self, x, *, out):
        yield call(np.multiply, x, 3, out)

    def backward(self, dy, *, out):
        yield call(np.multiply, dy, 3, out[0])


del REGISTRY["tripled in NumPy"]  # the table of ops has the ops of the package


class Penalized(Network):
    """Gated blocks with a penalty on the gradient of the output by the input."""

    def __init__(self, depth, width=8, **options):
        self.depth = depth
        shapes = {"in.weight": (width, IN_DIM), "out.weight": (1, width)}
        for i in range(depth):
            shapes |= {f"{i}.gate": (width, width), f"{i}.value": (width, width)}
        super().__init__(IN_DIM, shapes, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("in.weight")).tanh()
        for i in range(self.depth):
            h = h + h.linear(p(f"{i}.gate")).sigmoid() * h.linear(p(f"{i}.value"))
        y = h.linear(p("out.weight"))
        slope = tape.gradient(y.sum(), x)
        penalty = tape.apply(Tripled(), (slope * slope).sum(1).reshape(-1, 1))
        return {"y": y, "penalty": penalty}


@pytest.mark.parametrize("depth", [2, 5])
def test_an_instruction_is_lowered_a_few_times_however_many_there_are(depth, monkeypatch):
    lowered, plain = [], lowering.lower_instruction
    for module in ("lower", "group"):
        name = f"mlpengine.backends.compiled.{module}.lower_instruction"
        monkeypatch.setattr(name, lambda *given: lowered.append(given) or plain(*given))
    mlp, losses = Penalized(depth, seed=0), {"y": MeanSquaredError(), "penalty": MeanOutput()}
    with uncompiled():
        step = TrainingStep(mlp, losses, Adam(mlp), ROWS, backend="compiled")
    lines = step.summary().splitlines()
    assert [line for line in lines if line.startswith("NumPy")]
    counts = len(lowered) / len(lines)
    # alone where NumPy may need what it keeps, in its group, in a program; whole steps are tried
    assert counts < 4


def problem(instructions, step):
    batch = Batch(ROWS, (), step.mlp.params.flat)
    try:
        lower(instructions, 1, {}, batch, step.mlp.dtype.itemsize)
    except UnsupportedError as reason:
        return str(reason)
    return ""


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        *(("mixture", missing) for missing in ("RowSums", "Map")),
        *(("residual with dropout", missing) for missing in ("LayerNormRows", "ColumnSum")),
    ],
)
def test_a_group_takes_what_can_be_lowered_together(name, missing, monkeypatch):
    """Adding one by one gives the answers of lowering all that were added, again and again."""
    with uncompiled():
        step = make_step(name, backend="compiled")
    kernels = [kind for kind in lowering.KERNELS if kind.__name__ != missing]
    monkeypatch.setattr(lowering, "KERNELS", kernels)
    bound = step.bound(ROWS)
    instructions = [*bound.scratch.program.instructions]
    instructions += bound.grads.bind(bound.scratch).instructions
    problems = []
    while instructions:
        group = StepGroup(Batch(ROWS, (), step.mlp.params.flat), step.mlp.dtype.itemsize)
        for instruction in instructions:
            together = problem([*group.instructions, instruction], step)
            assert bool(group.add(instruction)) == bool(together)
            if together:
                problems.append(together)
                break
        instructions = instructions[max(1, len(group.instructions)) :]
    assert problems
