"""Recording, binding and replaying: fan-out, seeds, several outputs, several programs, errors."""

import numpy as np
import pytest

from mlpengine.core.errors import DtypeError, NumericalError, ShapeError, TapeError
from mlpengine.ops import Softmax
from mlpengine.tape import Flat, Program, Tape, apply, cat, from_inner

RNG = np.random.default_rng(11)
X = RNG.standard_normal((5, 3))


def tape_of(**arrays):
    """Return a tape with a float64 parameter for each array, and the parameters."""
    tape = Tape()
    return tape, *(tape.parameter(np.asarray(a, np.float64), name=n) for n, a in arrays.items())


def gradients(program, seed=None):
    program.forward()
    program.backward(seed)
    return program.grads.views


def test_one_node_on_both_sides_gets_both_gradients():
    tape, x = tape_of(x=X)
    np.testing.assert_allclose(gradients(Program(tape, x * x))["x"], 2 * X)
    tape, x = tape_of(x=X)
    np.testing.assert_allclose(gradients(Program(tape, x - x))["x"], np.zeros_like(X))


def test_a_node_used_plain_and_broadcast_gets_the_sum():
    tape, b = tape_of(b=[1.0, -2.0, 0.5])
    x = tape.constant(X)
    value = ((x + b) * b).sum() + (b * 3).sum()
    np.testing.assert_allclose(
        gradients(Program(tape, value))["b"], X.sum(0) + 10 * np.array([1, -2, 0.5]) + 3
    )


def test_three_consumers_of_one_value_add_up():
    tape, x = tape_of(x=X)
    h = x.tanh()
    value = h.exp() + h * h + h.sum(axis=0)
    t = np.tanh(X)
    expected = (np.exp(t) + 2 * t + len(X)) * (1 - t**2)
    np.testing.assert_allclose(gradients(Program(tape, value))["x"], expected, rtol=1e-12)


def test_several_outputs_take_a_seed_each():
    tape, x = tape_of(x=X)
    y = x * 2
    z = y.sum(axis=1)  # an output that another output is made of
    program = Program(tape, y, z)
    first, second = program.forward()
    np.testing.assert_array_equal(first, 2 * X)
    np.testing.assert_allclose(second, 2 * X.sum(1))
    seeds = RNG.standard_normal((5, 3)), RNG.standard_normal(5)
    program.backward(seeds)
    np.testing.assert_allclose(program.grads.views["x"], 2 * (seeds[0] + seeds[1][:, None]))
    program.backward([None, seeds[1]])
    np.testing.assert_allclose(program.grads.views["x"], 2 * (np.ones((5, 3)) + seeds[1][:, None]))
    program.backward()
    np.testing.assert_array_equal(program.grads.views["x"], np.full((5, 3), 4.0))


def test_what_no_output_depends_on_gets_zeros():
    tape, x, unused = tape_of(x=X, unused=[1.0, 2.0])
    dead = unused * 3
    program = Program(tape, x.sum(), retain=[dead])
    program.forward()
    program.grads.flat.fill(np.nan)
    program.backward()
    assert (program.grads.views["unused"] == 0).all()
    assert (program.grad(dead) == 0).all()


def test_keep_and_retain_show_what_is_inside():
    tape, x = tape_of(x=X)
    h = (x * 2).tanh()
    y = h.exp().sum()
    program = Program(tape, y, keep=[h], retain=[h])
    program.forward()
    program.backward()
    np.testing.assert_allclose(program.value(h), np.tanh(2 * X))
    np.testing.assert_allclose(program.grad(h), np.exp(np.tanh(2 * X)))
    program = Program(tape, y)
    inside = tape.nodes[1]
    with pytest.raises(TapeError, match="ask for it with keep"):
        program.value(inside)
    with pytest.raises(TapeError, match="ask for it with retain"):
        program.grad(inside)


def test_values_and_gradients_are_kept_where_no_leaf_needs_them():
    tape = Tape()
    x = tape.input((3,), "float64", name="x")
    h = x * 2
    aside = x + 1  # not on the way to the output
    program = Program(tape, (h * h).sum(), keep=[aside], retain=[h])
    program.forward(x=[1.0, 2.0, 3.0])
    program.backward()
    np.testing.assert_array_equal(program.value(aside), [2, 3, 4])
    np.testing.assert_array_equal(program.grad(h), [4, 8, 12])


def network(rows=6):
    tape = Tape()
    x = tape.input((rows, 3), "float64", name="x")
    w = tape.parameter(RNG.standard_normal((2, 3)), name="w")
    b = tape.parameter(RNG.standard_normal(2), name="b")
    logits = x.linear(w, b)
    return tape, logits, logits.silu().mean(axis=1).sum()


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_program_fixes_the_batch_size(rows):
    tape, logits, total = network()
    program = Program(tape, total, logits, batch_size=rows)
    x = RNG.standard_normal((rows, 3))
    value, z = program.forward(x=x)
    program.backward([1.0, np.zeros((rows, 2))])
    w, b = tape.params.views["w"], tape.params.views["b"]
    s = 1 / (1 + np.exp(-z))
    np.testing.assert_allclose(z, x @ w.T + b)
    np.testing.assert_allclose(value, (z * s).mean(axis=1).sum(), atol=1e-12)
    dz = (s + z * s * (1 - s)) / 2
    np.testing.assert_allclose(program.grads.views["w"], dz.T @ x, atol=1e-12)
    np.testing.assert_allclose(program.grads.views["b"], dz.sum(0), atol=1e-12)


def test_a_recording_that_only_fits_its_batch_says_so():
    tape = Tape()
    x = tape.input((4, 3), name="x")
    program_fits_any = x + tape.constant(np.ones(3, np.float32))
    nine = Program(tape, program_fits_any, batch_size=9).forward(x=np.zeros((9, 3)))
    assert nine.shape == (9, 3)
    only_four = x + tape.constant(np.ones((4, 3), np.float32))
    with pytest.raises(ShapeError, match=r"float32\[9, 3\].*float32\[4, 3\]"):
        Program(tape, only_four, batch_size=9)


def test_an_input_without_data_is_refused():
    tape = Tape()
    x, y, z = (tape.input((2,), name=name) for name in "xyz")
    total = (x * y).sum()
    _ = z * 2  # which the output does not need
    program, other = Program(tape, total), Program(tape, total)
    for given, missing in (({}, "x, y"), ({"y": [1, 2]}, "x")):
        with pytest.raises(
            TapeError, match=rf"every input must be given \(there is no {missing}\)"
        ):
            program.forward(**given)
    assert program.forward(x=[1, 2]) == program.forward() == 5
    other.value(x)[...] = 3
    assert other.forward(y=[1, 2]) == 9
    buffer = np.ones(2, np.float32)
    assert Program(tape, total, inputs={"x": buffer}).forward(y=[1, 2]) == 3


def logged(program):
    return program.forward(x=[1.0, 0.0])


def test_the_finite_check_names_the_op_that_breaks():
    tape = Tape()
    x = tape.input((2,), "float64", name="x", wants_grad=True)
    program = Program(tape, x.log() * 2, check_finite=True)
    with np.errstate(divide="ignore"), pytest.raises(NumericalError) as caught:
        logged(program)
    assert "the value of forward   log(x)" in str(caught.value)
    assert "-inf at (1,)" in str(caught.value)
    with np.errstate(divide="ignore"):
        assert np.isinf(logged(Program(tape, x.log() * 2))).any()


def test_the_finite_check_names_the_op_that_a_bad_gradient_reaches():
    tape = Tape()
    x = tape.input((2,), "float64", name="x", wants_grad=True)
    program = Program(tape, x.exp() * 2, check_finite=True)
    program.forward(x=[0.0, 1.0])
    with pytest.raises(NumericalError, match=r"gradient that reaches .*scalar_mul.*nan at \(1,\)"):
        program.backward([1.0, np.nan])
    with np.errstate(over="ignore"), pytest.raises(NumericalError, match=r"reaches .*exp\("):
        program.backward([1e308, 1.0])
    program.backward([1e300, -1e300])  # finite, though sums of squares are not
    root = Program(tape, x.sqrt(), check_finite=True)
    root.forward(x=[0.0, 1.0])
    with np.errstate(divide="ignore"), pytest.raises(NumericalError, match="the gradient of x"):
        root.backward()


def test_a_sum_that_overflows_is_no_false_alarm():
    tape = Tape()
    x = tape.input((3,), "float32", name="x")
    huge = np.float32(3e38)
    Program(tape, -x, check_finite=True).forward(x=[huge, huge, huge])


def own(**rules):
    """Return an op with rules of its own."""
    return type("Own", (Softmax,), rules, name="own")()


def program_of_own(**rules):
    tape, x = tape_of(x=X)
    return Program(tape, apply(own(**rules), x).sum())


def late_parameter():
    tape, x = tape_of(x=X)
    Program(tape, x * 2)
    tape.parameter(X, name="late")


def mixed_parameters():
    tape, x = tape_of(x=X)
    tape.parameter(np.ones(3, np.float32), name="narrow")
    Program(tape, x * 2)


def program_of(outputs=1, **options):
    """Return a program of the network's first outputs."""
    tape, *nodes = network()
    return Program(tape, *nodes[:outputs], **options)


def backward(seed=None, **options):
    program = program_of(**options)
    program.forward(x=np.ones((6, 3)))
    program.backward(seed)


(TAPE, LEAF), OTHER = tape_of(x=X), Tape().input((1,), name="y")
ERRORS = [
    (lambda: Program(Tape()), TapeError, "the tape is empty"),
    (lambda: Program(TAPE, OTHER), TapeError, "nodes must be on the program's tape"),
    (lambda: Program(TAPE, LEAF, LEAF), TapeError, "outputs must differ"),
    (lambda: TAPE.input((1,), name="x"), TapeError, "names of leaves must differ .*'x' twice"),
    (lambda: Tape().parameter(np.arange(3), name="w"), DtypeError, r"float64 \(got int64\[3\]"),
    (lambda: Tape().input((3,), "int64", wants_grad=True), DtypeError, "only float32 and float64"),
    (lambda: Tape().input((-1, 3)), ShapeError, "whole numbers from 0"),
    (lambda: (t := Tape()).gradient(x := t.input((1,), "int64"), x), DtypeError, "only floats"),
    (lambda: Tape().input(("a", 3)), ShapeError, "whole numbers from 0"),
    (lambda: Tape().input((4, 3), "complex64"), DtypeError, "numeric"),
    (late_parameter, TapeError, "recorded before the first program .*'late'"),
    (lambda: Tape.over(TAPE.params).parameter(X.T, name="x"), ShapeError, r"\[5, 3\] .got .*\[3,"),
    (mixed_parameters, DtypeError, r"one dtype \(x float64\[5, 3\], narrow float32\[3\]\)"),
    (lambda: program_of().forward(y=X), TapeError, r"no input 'y' \(inputs: x\)"),
    (lambda: program_of().forward(x=X), ShapeError, r"'x': .* \(6, 3\) \(got \(5, 3\)\)"),
    (lambda: program_of().forward(x=np.ones((6, 3), complex)), DtypeError, "float64 .got compl"),
    (lambda: program_of().backward(), TapeError, "needs a forward first"),
    (lambda: apply(own(infer=lambda _, x: None), LEAF), TapeError, "infer must .* .got None"),
    (lambda: apply(own(infer=lambda _, x: (5,)), from_inner(X)), TapeError, r"got \(5,\)"),
    (lambda: program_of_own(forward=lambda _, x, *, out, a: ()), TapeError, "the buffer 'a'"),
    (lambda: program_of_own(backward=lambda _, dy, *, out, a: ()), TapeError, "buffer 'a' .got"),
    (lambda: program_of_own(backward=lambda _, dy, z, *, out: ()), TapeError, "dy, y, x .*'z'"),
    (lambda: program_of_own(forward=lambda _, x, *, out: None), TapeError, "forward must yield"),
    (lambda: backward(differentiable=False), TapeError, "differentiable=False"),
    (lambda: backward(np.ones(2)), ShapeError, r"of linear_3: .* \(6, 2\) \(got \(2,\)\)"),
    (lambda: backward([1.0], outputs=2), ShapeError, "a seed for each of 2 outputs .got 1"),
]


@pytest.mark.parametrize(
    ("mistake", "error", "message"), ERRORS, ids=[message for *_, message in ERRORS]
)
def test_mistakes_are_told_where_they_are_made(mistake, error, message):
    with pytest.raises(error, match=message):
        mistake()


def test_a_flat_vector_is_tiled_by_its_views():
    flat = Flat.pack({"a": np.ones((2, 3)), "b": np.full(4, 2.0)})
    assert flat.flat.tolist() == [1] * 6 + [2] * 4
    assert all(np.shares_memory(v, flat.flat) for v in flat.views.values())
    assert len(flat) == 10
    assert repr(flat) == "Flat(float64[10] in 2 views)"


def test_joined_rows_fit_another_batch_size_where_one_part_needs_no_gradient():
    tape = Tape()
    a = tape.input((5, 3), "float64", name="a", wants_grad=True)
    b = tape.input((5, 3), "float64", name="b")
    program = Program(tape, (cat([a, b]) * 2.0).sum(), batch_size=2)
    assert program.forward(a=np.ones((2, 3)), b=np.ones((2, 3))) == 24
    program.backward()
    np.testing.assert_array_equal(program.grad(program.tape.inputs[0]), np.full((2, 3), 2.0))
