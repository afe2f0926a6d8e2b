"""Bringing one's own forward values: a tape on slots of the caller.

A separate recorder with methods such as ``record_mul(a, a_value, b, b_value)`` would say nothing
that the tape does not.
"""

import numpy as np
import pytest

from mlpengine.core.errors import DtypeError, ShapeError, TapeError
from mlpengine.tape import Flat, Program, Tape

RNG = np.random.default_rng(12)


def draw(*shape):
    return RNG.standard_normal(shape)


def slots(*arrays):
    """Return a tape with a public slot for each array; it wants a gradient."""
    tape = Tape()
    names = "abcd"[: len(arrays)]
    return tape, [
        tape.input(x.shape, x.dtype, name=name, wants_grad=True)
        for name, x in zip(names, arrays, strict=True)
    ]


def both(tape, output, arrays):
    """Return a program that reads the caller's values and writes into the caller's gradients."""
    values = dict(zip("abcd", arrays, strict=False))
    grads = {name: np.full_like(x, np.nan) for name, x in values.items()}
    program = Program(tape, output, inputs=values, gradients=grads, check_finite=True)
    program.forward()
    return program, grads


A, B, G = draw(4, 3), draw(4, 3), draw(4, 3)


def test_the_slots_are_the_callers_memory_both_ways():
    a, b = A.copy(), B.copy()
    tape, (x, y) = slots(a, b)
    program, grads = both(tape, x * y, (a, b))
    assert program.inputs["a"] is a
    assert program.grad(x) is grads["a"]
    a[...] = 7  # new values in place: no copy, no call
    program.forward()
    program.backward(np.ones((4, 3)))
    np.testing.assert_array_equal(grads["b"], np.full((4, 3), 7.0))


def test_gradients_of_parameters_may_go_into_a_flat_vector_of_the_caller():
    tape = Tape()
    w, b = tape.parameter(draw(3, 2), name="w"), tape.parameter(draw(2), name="b")
    x = tape.input((4, 3), "float64", name="x")
    mine = Flat(tape.params.specs)
    program = Program(tape, (x @ w + b).sum(), gradients=mine.views)
    program.forward(x=A)
    program.backward()
    np.testing.assert_allclose(mine.views["w"], np.repeat(A.sum(0)[:, None], 2, 1))
    np.testing.assert_array_equal(mine.views["b"], [4, 4])
    with pytest.raises(TapeError, match="the caller owns the gradients of w, b"):
        program.grads


def owns(**options):
    tape, (a, b) = slots(A, B)
    Program(tape, a * b, **options)


MISTAKES = [
    ({"gradients": {"z": A}}, TapeError, r"gradients: no leaf 'z' \(leaves: a, b\)"),
    ({"gradients": {"a": A[:2].copy()}}, ShapeError, r"float64\[4, 3\] \(got float64\[2, 3\]"),
    ({"inputs": {"a": A.astype(np.float32)}}, DtypeError, r"\(got float32\[4, 3\]\)"),
    ({"inputs": {"b": np.broadcast_to(1.0, (4, 3))}}, TapeError, "b must be contiguous"),
]


@pytest.mark.parametrize(("options", "error", "message"), MISTAKES)
def test_arrays_that_no_rule_may_use_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        owns(**options)
