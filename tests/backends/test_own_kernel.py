"""An op with its own C kernel, added from outside: two classes and a row of a table."""

import ctypes

import numpy as np
import pytest

from mlpengine import Adam, MeanSquaredError, Mlp, Program, Tape, TrainingStep
from mlpengine.backends.compiled import cache
from mlpengine.backends.compiled.cache import chosen_target
from mlpengine.backends.compiled.kernel import Kernel
from mlpengine.backends.compiled.lower import KERNELS
from mlpengine.backends.compiled.row_loops import lane_loop
from mlpengine.backends.compiled.statements import (
    Assign,
    ForLoop,
    Variable,
    element,
    load_vector,
    store,
    whole,
)
from mlpengine.backends.scalar.definitions import Functions, ScalarFunction, c_definitions
from mlpengine.backends.scalar.math import mathematics
from mlpengine.backends.scalar.scalar_step import write_step
from mlpengine.backends.values import UnsupportedError
from mlpengine.core.buffers import address_of
from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Spec, call
from mlpengine.export.c_train import export_training
from mlpengine.formula import constant, variable
from mlpengine.ops import REGISTRY, GradOp


class Centered(GradOp, name="centered_in_test"):
    """Deviations from the mean of a row, y = x - mean(x); backward: dx = dy - mean(dy)."""

    def infer(self, x):
        return x

    def work(self, x):
        return {"means": Spec((x.shape[0], 1), x.dtype)}

    def forward(self, x, *, out, means):
        yield call(np.add.reduce, x, 1, None, means, True)
        yield call(np.divide, means, x.dtype.type(x.shape[1]), means)
        yield call(np.subtract, x, means, out)

    def backward(self, dy, *, out, means):
        yield from self.forward(dy, out=out[0], means=means)


del REGISTRY["centered_in_test"]  # whose names are compared with the op table


class CenteredRows(Kernel):
    """Both directions of `Centered`."""

    def __init__(self, op, x, y):
        self.text, self.reads, self.writes = f"{y.name} = {op.name}", [x], [y]

    @classmethod
    def lower(cls, instruction, values):
        if not isinstance(instruction.op, Centered):
            return None
        (x,), (y,) = instruction.reads, instruction.writes
        return [cls(instruction.op, values.read(x), values.write(y, "centered_"))]

    def emit(self, writer, name):
        layout, (x,), (y,) = writer.layout, self.reads, self.writes
        at = load_vector(layout.at(x, "i", "j"), "n")
        centered = store(layout.at(y, "i", "j"), f"{at} - splat(mean)", "n")
        row = [
            "vec sum = {0};",
            *lane_loop(x.columns, layout.lanes, [f"sum += {at};"]),
            f"const real mean = sum_lanes(sum) / {x.columns};",
            *lane_loop(x.columns, layout.lanes, [centered]),
        ]
        body = [ForLoop("i", "first", "last", row)]
        writer.add(name, "rows", y.rows, self.text, body, self.reads, self.writes)


class ScalarCenteredRows(CenteredRows):
    """The same, for devices too."""

    def emit_scalar(self, writer):
        (x,), (y,) = self.reads, self.writes
        value, total = element("x", "i"), variable("sum")
        centered = Assign(element("y", "i"), value - total / whole("n"))
        row = [
            Variable("sum", constant(0)),
            ForLoop("i", 0, "n", [Assign(total, value, "+")]),
            ForLoop("i", 0, "n", [centered]),
            "x += n;",
            "y += n;",
        ]
        function = writer.functions.add(
            "center",
            {"x": "reads", "y": "writes", "rows": "count", "n": "count"},
            [ForLoop("row", 0, "rows", row)],
            about="y = x - mean(x), row by row",
        )
        return [f"{function}({writer.places(x, y)}, {x.rows}, {x.columns});"]


@pytest.fixture
def add(monkeypatch):
    """Return a function that adds a kernel to the table for a test; the op is registered."""
    monkeypatch.setitem(REGISTRY, Centered.name, Centered)
    monkeypatch.setattr("mlpengine.backends.compiled.lower.KERNELS", kernels := [*KERNELS])
    return kernels.append


def trained(backend, threads=1):
    mlp = Mlp([5, 19, 3], activation=Centered(), seed=0)
    step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp), 24, backend=backend, threads=threads)
    rng = np.random.default_rng(0)
    for rows in (24, 24, 7):
        step(*(rng.standard_normal((rows, n)).astype("f4") for n in (5, 3)))
    return step


def test_a_step_with_an_op_of_ones_own_is_one_program(add, monkeypatch):
    add(CenteredRows)
    monkeypatch.setattr("mlpengine.backends.compiled.emitter.STEP_TERMS_PER_THREAD", 1)
    one, two = trained("compiled"), trained("compiled", threads=2)
    assert one.fused
    assert "centered_in_test" in one.emit_c()
    np.testing.assert_allclose(one.mlp.params.flat, trained("numpy").mlp.params.flat, rtol=1e-4)
    assert one.mlp.params.flat.tobytes() == two.mlp.params.flat.tobytes()


def recorded():
    """Return the instructions of the op alone, its input and its output."""
    tape = Tape()
    x = tape.input((4, 6), name="x")
    program = Program(tape, tape.apply(Centered(), x), backend="numpy")
    values = np.random.default_rng(1).standard_normal((4, 6)).astype("f4")
    return program.instructions, values, program.forward(x=values)


def written(functions):
    instructions, values, y = recorded()
    (first,) = instructions
    fixed = {address_of(first.reads[0]): "x", address_of(first.writes[0]): "y"}
    return write_step(instructions, functions, fixed, first.reads).statements, values, y


def test_a_kernel_without_scalar_c_is_refused_by_name(add, tmp_path):
    with pytest.raises(UnsupportedError, match=r"^centered_in_test forward$"):
        written(Functions())
    add(CenteredRows)
    with pytest.raises(UnsupportedError, match=r"^centered_\d = centered_in_test$"):
        written(Functions())
    mlp = Mlp([2, 3, 1], activation=Centered(), seed=0)
    with pytest.raises(UsageError, match=r"^export: .*centered_in_test"):
        export_training(mlp, tmp_path / "net.c", optimizer=Adam, loss=MeanSquaredError())


def test_a_kernel_with_scalar_c_runs(add):
    add(ScalarCenteredRows)
    functions = Functions()
    statements, values, expected = written(functions)
    y = np.empty_like(values)
    run_scalar(functions, statements, {"x": values}, {"y": y})
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)


def run_scalar(functions, statements, reads, writes):
    """Compile statements to a C function of arrays by name, and call it."""
    roles = dict.fromkeys(reads, "reads") | dict.fromkeys(writes, "writes")
    step = ScalarFunction("step", roles, statements, static=False)
    body = c_definitions([*functions.definitions, step])
    head = "#include <math.h>\n#include <stddef.h>\n#include <string.h>\n"
    head += "#define STEP_REAL float\n#define STEP_DOUBLE 0\n"
    library = cache.load_library(head + mathematics(body, "STEP") + body, chosen_target())
    library.step(*(ctypes.c_void_p(address_of(a)) for a in (reads | writes).values()))


@pytest.mark.parametrize("asked", [("dh", "dx"), ("dx",)])
def test_a_gradient_between_layers_is_written_where_it_is_asked_for(asked):
    rng = np.random.default_rng(0)
    x, dy, w = (rng.standard_normal(shape).astype("f4") for shape in ((1, 4), (1, 3), (3, 4)))
    tape = Tape()
    node = tape.input(x.shape, name="x", wants_grad=True)
    program = Program(tape, node.tanh().linear(tape.constant(w)), backend="numpy")
    program.forward(x=x)
    program.backward(dy)
    dense = next(i for i in program.instructions if i.kind == "backward")
    given, arrays = dense.reads[0], {"x": program.inputs["x"], "dx": program.grad(node)}
    arrays |= {"dy": given, "dh": dense.writes[0]}
    functions, fixed = Functions(), {address_of(a): name for name, a in arrays.items()}
    ends = [arrays[name] for name in asked]
    step = write_step(program.instructions, functions, fixed, [arrays["x"], given], ends)
    made = {name: np.full((1, 4), np.nan, "f4") for name in asked}
    made["scratch"] = np.zeros(step.size, "f4")
    run_scalar(functions, step.statements, {"x": x, "dy": dy}, made)
    truth = {"dh": dy @ w, "dx": dy @ w / np.cosh(x) ** 2}
    for name in asked:
        np.testing.assert_allclose(made[name], truth[name], rtol=1e-5)
