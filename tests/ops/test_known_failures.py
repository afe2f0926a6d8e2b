"""Mistakes that other automatic-differentiation engines have shipped, each by its name."""

import numpy as np
import pytest

from mlpengine import tape as t
from mlpengine.tape import Program, Tape

RNG = np.random.default_rng(11)


def gradients(function, *arrays, seed=None):
    """Return the gradients of ``sum(function(*arrays) * seed)`` with respect to each array."""
    tape = Tape()
    leaves = [tape.parameter(a, name=f"p{i}") for i, a in enumerate(arrays)]
    program = Program(tape, function(*leaves))
    program.forward()
    program.backward(seed)
    return [program.grad(leaf) for leaf in leaves]


def value(function, *arrays):
    tape = Tape()
    output = function(*(tape.constant(a) for a in arrays))
    return Program(tape, output).forward()


def differences(function, *arrays, seed, step=1e-6):
    """Return the same gradients entry by entry, by central differences of the values."""
    found = []
    for i, array in enumerate(arrays):
        gradient = np.empty_like(array)
        for at in np.ndindex(array.shape):
            ends = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[i][at] += sign * step
                ends.append(np.sum(value(function, *moved) * seed))
            gradient[at] = (ends[0] - ends[1]) / (2 * step)
        found.append(gradient)
    return found


def assert_gradients(function, *arrays):
    seed = RNG.standard_normal(value(function, *arrays).shape)
    exact = differences(function, *arrays, seed=seed)
    for mine, theirs in zip(gradients(function, *arrays, seed=seed), exact, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)


def test_the_gradient_of_a_broadcast_bias_is_summed_over_the_batch():
    x, bias, seed = RNG.standard_normal((5, 3)), RNG.standard_normal(3), RNG.standard_normal((5, 3))
    _, dbias = gradients(lambda x, b: x + b, x, bias, seed=seed)
    np.testing.assert_allclose(dbias, seed.sum(axis=0), rtol=1e-14)


def test_a_parameter_used_plain_and_broadcast_gets_both_parts():
    p, x = RNG.standard_normal((1, 3)), RNG.standard_normal((4, 3))
    dp, _ = gradients(lambda p, x: t.sum((p + x) * p) + t.sum(p * p), p, x)
    np.testing.assert_allclose(dp, (2 * p + x).sum(axis=0, keepdims=True) + 2 * p, rtol=1e-14)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_acts_along_the_axis_it_is_given(name, axis):
    x = RNG.standard_normal((2, 3, 4))
    e = np.exp(x)
    p = e / e.sum(axis=axis, keepdims=True)
    expected = p if name == "softmax" else np.log(p)
    np.testing.assert_allclose(value(lambda x: getattr(t, name)(x, axis), x), expected, rtol=1e-13)
    assert_gradients(lambda x: getattr(t, name)(x, axis), x)


def test_layer_norm_acts_on_the_last_axis():
    x = RNG.standard_normal((2, 3, 4))
    centered = x - x.mean(axis=-1, keepdims=True)
    expected = centered / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(value(t.layer_norm, x), expected, rtol=1e-13)


def test_batch_norm_acts_per_feature_over_all_other_axes():
    x = RNG.standard_normal((2, 3, 4, 5))
    centered = x - x.mean(axis=(0, 2, 3), keepdims=True)
    expected = centered / np.sqrt(x.var(axis=(0, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(value(t.batch_norm, x), expected, rtol=1e-12)


def test_cat_of_three_axes_along_the_middle_one():
    a, b = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((2, 1, 4))
    seed = RNG.standard_normal((2, 4, 4))
    np.testing.assert_array_equal(
        value(lambda *xs: t.cat(xs, axis=1), a, b), np.concatenate([a, b], axis=1)
    )
    da, db = gradients(lambda *xs: t.cat(xs, axis=1), a, b, seed=seed)
    np.testing.assert_array_equal(da, seed[:, :3])
    np.testing.assert_array_equal(db, seed[:, 3:])


def test_gather_along_the_second_axis_accumulates_there():
    x, index = RNG.standard_normal((2, 3)), np.array([[2, 2, 0], [1, -1, 1]])
    seed = np.arange(1.0, 7.0).reshape(2, 3)
    gathered = value(lambda x: t.gather(x, index, 1), x)
    np.testing.assert_array_equal(gathered, np.take_along_axis(x, index, axis=1))
    (dx,) = gradients(lambda x: t.gather(x, index, 1), x, seed=seed)
    np.testing.assert_array_equal(dx, [[3, 0, 3], [0, 10, 5]])


def test_pow_with_exponent_zero_has_gradient_zero_at_zero():
    x = np.array([0.0, -2.0, 3.0])
    np.testing.assert_array_equal(value(lambda x: t.pow(x, 0), x), [1, 1, 1])
    (dx,) = gradients(lambda x: t.pow(x, 0), x)
    np.testing.assert_array_equal(dx, [0, 0, 0])


@pytest.mark.parametrize("field", [0, 1, 2])
def test_the_gradient_of_a_field_goes_to_that_field_only(field):
    x, sizes = RNG.standard_normal((4, 6)), (1, 3, 2)
    seed = RNG.standard_normal((4, sizes[field]))
    start = sum(sizes[:field])
    expected = np.zeros_like(x)
    expected[:, start : start + sizes[field]] = seed
    keys = ("first", "second", "third")
    for function in (
        lambda x: t.struct_field(x, field, sizes),
        lambda x: t.map_lookup(x, keys[field], keys, sizes=sizes),
    ):
        (dx,) = gradients(function, x, seed=seed)
        np.testing.assert_array_equal(dx, expected)


def test_the_gradient_of_a_record_is_the_sum_over_its_fields():
    x = RNG.standard_normal(3)
    parts = [lambda x, i=i: t.sum(t.struct_field(x, i, 3) * (i + 1.0)) for i in range(3)]
    (dx,) = gradients(lambda x: parts[0](x) + parts[1](x) + parts[2](x), x)
    np.testing.assert_array_equal(dx, [1, 2, 3])


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_scan_has_gradients_for_a_b_x_and_the_first_state(length):
    shape = (2, length, 3)
    operands = [RNG.uniform(0.3, 1.2, shape) for _ in range(3)] + [RNG.standard_normal((2, 3))]
    assert_gradients(t.ssm_scan, *operands)


def test_a_scan_really_recurs_over_a_thousand_steps():
    shape = (1, 1000, 2)
    a, b, x = RNG.uniform(0.9, 1.0, shape), RNG.standard_normal(shape), RNG.standard_normal(shape)
    h0, seed = RNG.standard_normal((1, 2)), RNG.standard_normal(shape)
    h, states = h0, []
    for step in range(1000):
        h = a[:, step] * h + b[:, step] * x[:, step]
        states.append(h)
    np.testing.assert_allclose(
        value(t.ssm_scan, a, b, x, h0)[0], np.stack(states, 1)[0], rtol=1e-11
    )
    *_, dh0 = gradients(t.ssm_scan, a, b, x, h0, seed=seed)
    expected = (seed * np.cumprod(a, axis=1)).sum(
        axis=1
    )  # every h_t depends on h0 by their product
    np.testing.assert_allclose(dh0, expected, rtol=1e-11)


def test_the_gradient_of_layer_norm_has_the_term_with_xhat():
    x, scale, bias = RNG.standard_normal((3, 5)), RNG.standard_normal(5), RNG.standard_normal(5)
    assert_gradients(t.layer_norm, x, scale, bias)
    seed = x - x.mean(axis=1, keepdims=True)  # along xhat, where that term is all there is
    (dx,) = gradients(lambda x: t.layer_norm(x, eps=0.0), x, seed=seed)
    np.testing.assert_allclose(dx, np.zeros_like(x), atol=1e-14)


def test_a_product_with_itself_has_twice_the_gradient():
    x = RNG.standard_normal((3, 2))
    (dx,) = gradients(lambda x: t.mul(x, x), x)
    np.testing.assert_array_equal(dx, 2 * x)
    (cube,) = gradients(lambda x: x * x * x, x)
    np.testing.assert_allclose(cube, 3 * x**2, rtol=1e-14)


def test_abs_has_gradient_zero_at_zero():
    (dx,) = gradients(t.abs, np.array([-2.0, 0.0, -0.0, 3.0]))
    np.testing.assert_array_equal(dx, [-1, 0, 0, 1])
