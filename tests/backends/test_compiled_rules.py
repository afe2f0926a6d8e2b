"""Rules of compiled programs: what they read, what has none, and how they are compiled."""

import numpy as np
import pytest
from dags import dags
from hypothesis import HealthCheck, Phase, given, settings

from mlpengine import Program, Tape
from mlpengine.backends.compiled.cache import available_targets
from mlpengine.backends.compiled.executor import compile_program
from mlpengine.backends.compiled.lower import lower
from mlpengine.backends.values import Batch, UnsupportedError
from mlpengine.ops import REGISTRY, Linear, Softmax
from mlpengine.tape.binding import Instruction

ROWS, COLUMNS = 7, 13
RANDOM_ROWS = 5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_of_rows_agree_with_their_ops(dtype):
    """Layer norm with and without its vectors, products with matrices, and gradients added up, also
    of columns, whose rows are padded."""
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
    column = leaf(ROWS, 4, 1, make=lambda x: tape.input(x.shape, dtype, wants_grad=True))
    outputs += [(column * leaf(4, 1)).sum(2), (column * 2).mean((1, 2)), column + leaf(1, 1)]
    outputs.append((column * 3).mean(2))  # of one entry each
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


def compiled_and_numpy(tape, outputs, threads):
    """Return what a program computes compiled, values and gradients, and in NumPy."""
    program = Program(tape, *outputs, backend="numpy")
    rng = np.random.default_rng(5)
    for buffer in program.inputs.values():
        buffer[...] = rng.standard_normal(buffer.shape)
    program.forward()
    seeds = [rng.standard_normal(n.shape) for n in outputs]
    program.backward(seeds if len(seeds) > 1 else seeds[0])
    kept = [*map(program.value, outputs), program.grads.flat]
    expected, found = [array.copy() for array in kept], []
    for number in threads:
        executor = compile_program(
            program.instructions,
            dtype=np.dtype("f8"),
            batch=RANDOM_ROWS,
            threads=number,
            parameters=program.params.flat,
        )
        for array in kept:
            array.fill(np.nan)
        assert executor.step() == 0
        found.append([array.copy() for array in kept])
    return found, expected


@given(dags(batch=RANDOM_ROWS))
@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # each example is compiled twice; shrinking would take minutes
    suppress_health_check=list(HealthCheck),
)
def test_random_graphs_agree_with_numpy_on_one_thread_and_three(dag):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlpengine.backends.compiled.emitter.STEP_TERMS_PER_THREAD", 1)
        (alone, together), expected = compiled_and_numpy(*dag, threads=(1, 3))
    for one, other, wanted in zip(alone, together, expected, strict=True):
        assert one.tobytes() == other.tobytes()
        np.testing.assert_allclose(
            one, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max(initial=1)
        )


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


def test_memory_is_not_used_again_by_other_rows_before_all_of_it_is_read():
    """Some rows of a batch are through all kernels before others, in chunks and on threads."""
    memory = np.zeros(ROWS * 8, "f4")
    wide, narrow = memory.reshape(ROWS, 8), memory[: ROWS * 4].reshape(ROWS, 4)
    x, made = np.ones((ROWS, 4), "f4"), np.empty((ROWS, 8), "f4")
    first = bound_instruction(REGISTRY["tanh"](), (wide,), made)
    second = bound_instruction(REGISTRY["exp"](), (x,), narrow)
    options = {"dtype": np.dtype("f4"), "batch": ROWS}
    with pytest.raises(UnsupportedError, match=r"= exp forward: overwrites input of .*tanh"):
        compile_program([first, second], **options)
    compile_program([first, bound_instruction(REGISTRY["exp"](), (made,), wide)], **options)


def test_parameters_with_as_many_rows_as_the_batch_are_not_its_rows():
    """Values that follow from them are computed once a step, gradients after all rows."""
    tape = Tape()
    x = tape.input((ROWS, 5), name="x")
    w = tape.parameter(np.ones((ROWS, 5), np.float32), name="w")
    program = Program(tape, x.linear(w.tanh()), backend="numpy")
    batch = Batch(ROWS, [program.inputs["x"], program.instructions[-1].reads[0]])
    kernels, _ = lower(program.instructions, 8, {}, batch, 4)
    assert [k.called_in for k in kernels] == ["prepare", "rows", "reduce", "finish"]


def test_rows_that_are_not_the_batchs_are_unsupported():
    """A product of parameters, one with other rows than its own, and sums over all rows."""
    tape = Tape()
    x = tape.input((ROWS, 5), name="x")
    v, w = (tape.parameter(np.ones((5, n), np.float32), name=f"w{n}") for n in (5, ROWS))
    for made, message in (
        (x @ (v @ w), "not the rows of the batch"),
        ((x @ w) @ x, "computed|not the rows of the batch"),
        (x.sum(axis=0, keepdims=True) * x, "sum of a column"),
        (x.T, "not the rows of the batch"),
        (x[1:], "not the rows of the batch"),
        (x.reshape(5, ROWS), "not the rows of the batch"),
    ):
        program = Program(tape, made, backend="numpy")
        options = {"dtype": np.dtype("f4"), "batch": ROWS, "gathered": [program.inputs["x"]]}
        with pytest.raises(UnsupportedError, match=message):
            compile_program(program.instructions[: len(program.forward_plan.steps)], **options)


def test_rows_of_other_lengths_are_unsupported_before_anything_is_written():
    """A step puts into parts what `lower` takes, and then compiles these."""
    tape = Tape()
    y = tape.input((ROWS, 2, 3), name="x").tanh().reshape(-1, 3, 2).tanh()
    instructions = Program(tape, y, backend="numpy").instructions
    with pytest.raises(UnsupportedError, match="its rows have other lengths"):
        lower(instructions, 8, {}, Batch(ROWS), 4)


def test_an_op_without_a_row_is_unsupported():
    tape = Tape()
    x = tape.input((3, 4), name="x")
    program = Program(tape, tape.apply(REGISTRY["logsumexp"](1), x), backend="numpy")
    with pytest.raises(UnsupportedError, match="logsumexp"):
        lower(program.instructions[:1], 8, {})


def test_compiling_never_turns_on_fast_math_and_fuses_nothing_by_itself():
    for target in available_targets():
        assert not [f for f in target.flags if "fast-math" in f or "Ofast" in f]
        assert [f for f in target.flags if "fp-contract" in f] == ["-ffp-contract=off"]
