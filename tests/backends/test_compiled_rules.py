"""Every row of the compiled tables against the op's own NumPy rule."""

import numpy as np
import pytest

from mlpengine import Program, SoftmaxCrossEntropy, Tape
from mlpengine.backends.compiled import (
    LossInstruction,
    UnsupportedError,
    available_targets,
    compile_program,
)
from mlpengine.backends.compiled.lower import lower
from mlpengine.backends.rules import find_rule
from mlpengine.ops import (
    REGISTRY,
    Abs,
    Activation,
    Clamp,
    Cos,
    Dropout,
    Elu,
    Exp,
    Gelu,
    LeakyRelu,
    Linear,
    Philox,
    Pow,
    Sin,
    Softmax,
)
from mlpengine.tape.binding import Instruction

ROWS, COLUMNS = 7, 13

OPS = {
    **{name: op() for name, op in REGISTRY.items() if issubclass(op, Activation)},
    "leaky_relu": LeakyRelu(0.2),
    "elu": Elu(0.6),
    "gelu_tanh": Gelu("tanh"),
    "dropout": Dropout(0.4, Philox(0)),
    "sin": Sin(),
    "cos": Cos(),
    "abs": Abs(),
    "exp": Exp(),
    "clamp": Clamp(-1, 2),
    "pow": Pow(3),
}
"""Activations and some other functions, also with other options than their defaults."""

TOLERANCE = {"float32": (3e-6, 2e-7), "float64": (1e-13, 2e-15)}


def program_of(dtype):
    """Return a program with every op of the table, each on an input of its own."""
    tape = Tape()
    inputs = [tape.input((ROWS, COLUMNS), dtype, name=name, wants_grad=True) for name in OPS]
    outputs = [tape.apply(OPS[x.name], x) for x in inputs]
    program = Program(tape, *outputs, backend="numpy")
    rng = np.random.default_rng(2)
    values = (4 * rng.standard_normal((ROWS, COLUMNS))).astype(dtype)
    values[0, :4] = 0.0, 60.0, -60.0, 1e-4
    for buffer in program.inputs.values():
        buffer[...] = values
    seeds = [rng.standard_normal((ROWS, COLUMNS)).astype(dtype) for _ in outputs]
    return program, seeds


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_row_agrees_with_the_op(dtype):
    program, seeds = program_of(dtype)
    values = program.forward()
    program.backward(seeds)
    names = list(program.inputs)
    expected = {n: v.copy() for n, v in zip(names, values, strict=True)}
    slopes = {n: program.grad(x).copy() for n, x in zip(names, program.tape.inputs, strict=True)}
    OPS["dropout"].rng.step -= 1
    executor = compile_program(program.instructions, dtype=np.dtype(dtype), batch=ROWS)
    for value in values[: len(names)]:
        value.fill(np.nan)
    assert executor.step() == 0
    relative, absolute = TOLERANCE[dtype]
    for name, value, x in zip(names, values, program.tape.inputs, strict=True):
        np.testing.assert_allclose(value, expected[name], relative, absolute, err_msg=name)
        np.testing.assert_allclose(
            program.grad(x), slopes[name], relative, 4 * absolute, err_msg=name
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_of_rows_agree_with_their_ops(dtype):
    """Layer norm with and without its vectors, products with matrices, and gradients added up."""
    tape, rng = Tape(), np.random.default_rng(3)
    outputs, leaves = [], []

    def leaf(*shape, make=tape.parameter, **options):
        node = make(rng.standard_normal(shape).astype(dtype), **options)
        leaves.append(node)
        return node

    for columns in (1, COLUMNS, 32):
        for with_scale, with_bias in ((True, True), (True, False), (False, True), (False, False)):
            x = tape.input((ROWS, columns), dtype, name=f"x{len(outputs)}", wants_grad=True)
            leaves.append(x)
            scale = leaf(columns) if with_scale else None
            outputs.append(x.layer_norm(scale, leaf(columns) if with_bias else None, eps=1e-3))
        outputs.append(x @ leaf(columns, 5))
        outputs.append(x * 2 + x.tanh() @ leaf(columns, columns))
    fixed = tape.input((ROWS, COLUMNS), dtype, name="fixed")
    outputs.append(fixed.layer_norm(leaf(COLUMNS), leaf(COLUMNS)) @ leaf(COLUMNS, 3))
    outputs.append(fixed.layer_norm() @ leaf(COLUMNS, 3))
    program = Program(tape, *outputs, backend="numpy")
    for buffer in program.inputs.values():
        buffer[...] = 3 * rng.standard_normal(buffer.shape)
    program.inputs["x6"][2] = 1.5  # a row without variance
    values = program.forward()
    program.backward([rng.standard_normal(v.shape).astype(dtype) for v in values])
    kept = [*values, *(program.grad(node) for node in leaves)]
    expected = [array.copy() for array in kept]
    executor = compile_program(program.instructions, dtype=np.dtype(dtype), batch=ROWS)
    for array in kept:
        array.fill(np.nan)
    assert executor.step() == 0
    near = 2e-5 if dtype == "float32" else 5e-14
    for array, wanted in zip(kept, expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=near, atol=10 * near)


def bound_instruction(op, reads, out):
    return Instruction("forward", op, reads, (out,), {}, (), op.name)


def test_a_fused_map_waits_for_what_reads_its_memory():
    """A part of a step reads activations in memory that it then uses again."""
    rng = np.random.default_rng(4)
    x, w, again = (rng.standard_normal(s).astype("f4") for s in ((ROWS, 5), (8, 5), (ROWS, 8)))
    z, shares = np.empty((ROWS, 8), "f4"), np.empty((ROWS, 8), "f4")
    instructions = [
        bound_instruction(Linear(), (x, w, None), z),
        bound_instruction(Softmax(), (again,), shares),
        bound_instruction(REGISTRY["tanh"](), (z,), again),
    ]
    apart = np.exp(again.astype("f8"))
    executor = compile_program(instructions, dtype=np.dtype("f4"), batch=ROWS)
    assert executor.step() == 0
    np.testing.assert_allclose(shares, apart / apart.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(again, np.tanh(x @ w.T), rtol=1e-5, atol=1e-6)


def test_rows_that_are_not_the_batchs_are_unsupported():
    """As many rows by chance: of a parameter, and of a sum over the rows."""
    tape = Tape()
    x = tape.input((ROWS, 5), name="x")
    w = tape.parameter(np.ones((ROWS, 5), np.float32), name="w")
    program = Program(tape, x.linear(w.tanh()), backend="numpy")
    first, product, *backward = program.instructions
    options = {"dtype": np.dtype("f4"), "batch": ROWS, "gathered": [program.inputs["x"]]}
    with pytest.raises(UnsupportedError, match="in other rows than the batch's"):
        compile_program([first], **options)
    with pytest.raises(UnsupportedError, match=r"a product with .*, which is computed"):
        compile_program([first, product], **options)
    with pytest.raises(UnsupportedError, match="in other rows than the batch's"):
        compile_program(backward, dtype=np.dtype("f4"), batch=ROWS)


def test_nan_stays_nan():
    program, _ = program_of("float32")
    for buffer in program.inputs.values():
        buffer.fill(np.nan)
    instructions = [
        i for i in program.instructions if i.kind == "forward" and i.op.name != "dropout"
    ]
    executor = compile_program(instructions, dtype=np.dtype("float32"), batch=ROWS)
    executor.step()
    for instruction in instructions:
        assert np.isnan(instruction.writes[0]).all(), instruction


def test_a_rule_reads_what_its_outputs_depend_on():
    rule = find_rule(REGISTRY["silu"](), "forward")
    assert (rule.reads, rule.writes) == (("x",), ("y", "kept0"))
    assert find_rule(REGISTRY["silu"](), "backward").reads == ("dy", "y", "kept0")
    assert find_rule(REGISTRY["mul"](), "backward").limited_to(["db"]).reads == ("dy", "a")


def test_targets_may_be_rows_of_probabilities():
    rng = np.random.default_rng(0)
    loss = SoftmaxCrossEntropy(class_weights=(1.0, 2.0, 0.5), label_smoothing=0.2)
    output, target = (rng.random((5, 3)).astype("f4") for _ in range(2))
    bounds = []
    for _ in range(2):
        slot = np.zeros_like(output)
        bound = loss.bind(output, slot, weighted=True, target=target_spec(target))
        bound.target[...], bound.sample_weight[...] = (
            target,
            rng.random(5) if not bounds else (bounds[0].sample_weight),
        )
        bounds.append(bound)
    plain, ours = bounds
    for run in plain.calls:
        run()
    instruction = LossInstruction(
        loss, (output, ours.target, ours.sample_weight), (ours.d_output, ours.value)
    )
    assert compile_program([instruction], dtype=output.dtype, batch=5).step() == 0
    np.testing.assert_allclose(ours.value, plain.value, rtol=1e-6)
    np.testing.assert_allclose(ours.d_output, plain.d_output, rtol=1e-5, atol=1e-7)


def target_spec(target):
    from mlpengine.spec import Spec

    return Spec.of(target)


def test_an_op_without_a_row_is_unsupported():
    tape = Tape()
    x = tape.input((3, 4), name="x")
    program = Program(tape, tape.apply(REGISTRY["transpose"](), x), backend="numpy")
    with pytest.raises(UnsupportedError, match="transpose"):
        lower(program.instructions[:1], 8, {})


def test_compiling_never_turns_on_fast_math_and_fuses_nothing_by_itself():
    for target in available_targets():
        assert not [f for f in target.flags if "fast-math" in f or "Ofast" in f]
        assert [f for f in target.flags if "fp-contract" in f] == ["-ffp-contract=off"]
