"""Jacobians and second derivatives against closed forms and, where it is installed, PyTorch."""

import numpy as np
import pytest

from mlpengine.core.errors import DtypeError, ShapeError, TapeError
from mlpengine.tape import (
    Program,
    Tape,
    gradient_difference,
    hessian_diagonal,
    hessian_vector_product,
    jacobian,
    linear,
)

RNG = np.random.default_rng(9)
A, V = RNG.standard_normal((3, 4)), RNG.standard_normal(4)
Q = RNG.standard_normal((4, 4))
POINT = RNG.standard_normal(4)


def at_point(formula, **options):
    """Return a program of a formula of one parameter, and the parameter."""
    tape = Tape()
    x = tape.parameter(POINT, name="x")
    return Program(tape, *formula(x), **options), x


def test_the_jacobian_of_a_product_is_the_matrix():
    program, x = at_point(lambda x: [(A * x).sum(axis=1)])
    np.testing.assert_allclose(jacobian(program, x), A, rtol=1e-14)


def test_the_jacobian_has_the_axes_of_output_and_leaf():
    program, x = at_point(lambda x: [x.reshape(2, 2).tanh()])
    expected = np.zeros((2, 2, 4))
    for i in range(4):
        expected[i // 2, i % 2, i] = 1 - np.tanh(POINT[i]) ** 2
    np.testing.assert_allclose(jacobian(program, x), expected, rtol=1e-14)


def test_the_jacobian_of_one_output_of_several():
    program, x = at_point(lambda x: [x.exp(), (x * x).sum()])
    np.testing.assert_allclose(jacobian(program, x, program.outputs[1]), 2 * POINT)
    np.testing.assert_allclose(
        jacobian(program, x, program.outputs[0]), np.diag(np.exp(POINT)), rtol=1e-14
    )


def quadratic(x):
    return [(x.reshape(1, 4) @ Q @ x.reshape(4, 1)).sum() / 2]


def cubic(x):
    return [(x**3).sum() + x[0] * x[1] * x[2] * x[3]]


def cubic_hessian(x):
    hessian = np.diag(6 * x)
    for i in range(4):
        for j in range(4):
            if i != j:
                hessian[i, j] = np.prod(np.delete(x, [i, j]))
    return hessian


FORMS = [
    ("quadratic", quadratic, (Q + Q.T) / 2),
    ("cubic", cubic, cubic_hessian(POINT)),
    ("exp", lambda x: [x.exp().sum()], np.diag(np.exp(POINT))),
    ("linear", lambda x: [(x * V).sum()], np.zeros((4, 4))),
    ("sum of outputs", lambda x: [x.exp(), x.sin()], np.diag(np.exp(POINT) - np.sin(POINT))),
]
every_form = pytest.mark.parametrize(
    ("formula", "hessian"), [f[1:] for f in FORMS], ids=[f[0] for f in FORMS]
)


@every_form
@pytest.mark.parametrize("how", ["keep", "balanced"])
def test_hessian_vector_products(formula, hessian, how):
    program, x = at_point(formula, rematerialization=how)
    for leaf in (x, None):
        found = hessian_vector_product(program, V, leaf)
        np.testing.assert_allclose(found, hessian @ V, rtol=1e-8, atol=1e-8)


@every_form
def test_hessian_diagonals(formula, hessian):
    program, x = at_point(formula)
    for leaf in (x, None):
        found = hessian_diagonal(program, leaf)
        np.testing.assert_allclose(found, np.diag(hessian), rtol=1e-8, atol=1e-8)


def small_network(rng=None):
    draw = np.random.default_rng(1)
    tape = Tape()
    x = tape.input((6, 3), "float64", name="x", wants_grad=True)
    w = tape.parameter(draw.standard_normal((4, 3)), name="w")
    b = tape.parameter(draw.standard_normal(4), name="b")
    h = linear(x, w, b).gelu()
    if rng is not None:
        h = h.dropout(0.4, rng)
    loss = h.softmax_cross_entropy(np.arange(6) % 4)
    program = Program(tape, loss)
    program.inputs["x"][...] = draw.standard_normal((6, 3))
    return program


@pytest.mark.torch
def test_second_derivatives_agree_with_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: Hessians NOT compared")
    program = small_network()
    x, target = torch.tensor(program.inputs["x"]), torch.arange(6) % 4
    shapes = [view.shape for view in program.params.views.values()]

    def loss(flat):
        w, b = (p.reshape(s) for p, s in zip(flat.split([12, 4]), shapes, strict=True))
        h = torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b))
        return torch.nn.functional.cross_entropy(h, target)

    hessian = torch.autograd.functional.hessian(loss, torch.tensor(program.params.flat)).numpy()
    vector = RNG.standard_normal(16)
    product = hessian_vector_product(program, vector)
    np.testing.assert_allclose(product, hessian @ vector, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(hessian_diagonal(program), np.diag(hessian), rtol=1e-7, atol=1e-8)


def test_random_ops_draw_the_same_numbers_for_both_ends():
    rng = np.random.default_rng(2)
    program = small_network(rng)
    state = rng.bit_generator.state
    b = program.tape.parameters[1]
    diagonal = hessian_diagonal(program, b)
    np.testing.assert_array_equal(hessian_diagonal(program, b), diagonal)
    assert np.abs(diagonal).max() < 10
    assert rng.bit_generator.state == state


def test_everything_is_left_as_found():
    program = small_network()
    program.forward()
    program.backward()
    x = program.tape.inputs[0]
    arrays = program.params.flat, program.grads.flat, program.inputs["x"], program.grad(x)
    before = [a.copy() for a in (*arrays, program.value(program.outputs[0]))]
    jacobian(program, x)
    hessian_vector_product(program, np.ones((6, 3)), x)
    hessian_diagonal(program, program.tape.parameters[1])
    after = *arrays, program.value(program.outputs[0])
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


def test_a_program_that_never_ran_still_has_not():
    program = small_network()
    hessian_vector_product(program, np.ones(16))
    with pytest.raises(TapeError, match="needs a forward first"):
        program.backward()


def test_a_zero_vector_gives_zeros():
    program, _ = at_point(cubic)
    np.testing.assert_array_equal(hessian_vector_product(program, np.zeros(4)), np.zeros(4))


def test_differences_of_any_gradient():
    point = np.array([1.0, 2.0])
    found = gradient_difference(lambda: point**3, point, np.array([1.0, -1.0]))
    np.testing.assert_allclose(found, 3 * np.array([1, -4.0]), rtol=1e-8)
    np.testing.assert_array_equal(point, [1, 2])


def test_the_point_is_put_back_when_the_gradient_fails():
    point = np.array([1.0, 2.0])

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gradient_difference(fail, point, np.ones(2))
    np.testing.assert_array_equal(point, [1, 2])


def narrow():
    tape = Tape()
    x = tape.parameter(POINT.astype(np.float32), name="x")
    hessian_vector_product(Program(tape, (x * x).sum()), V)


def misshapen():
    program, _ = at_point(cubic)
    hessian_vector_product(program, np.ones(3))


def of_a_gradient():
    program, x = at_point(cubic)
    jacobian(program, x, program.grads.flat)


def of_no_output():
    program, x = at_point(lambda x: [x.exp(), x.sin()])
    jacobian(program, x, x)


def unnamed():
    program, x = at_point(lambda x: [x.exp(), x.sin()])
    jacobian(program, x)


ERRORS = [
    (narrow, DtypeError, r"need float64 parameters \(got float32\[4\]\)"),
    (misshapen, ShapeError, r"direction float64\[3\], point float64\[4\]"),
    (of_a_gradient, TapeError, "not differentiable themselves, see hessian_vector_product"),
    (of_no_output, TapeError, "needs one of the outputs"),
    (unnamed, TapeError, "needs one of the outputs"),
]


@pytest.mark.parametrize(
    ("mistake", "error", "message"), ERRORS, ids=lambda e: getattr(e, "__name__", "")
)
def test_mistakes(mistake, error, message):
    with pytest.raises(error, match=message):
        mistake()
