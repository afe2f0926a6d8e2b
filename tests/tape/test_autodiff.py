"""The eager face: tracking, gradients, containers, errors, memory, and the bits of a program."""

import gc
import weakref

import numpy as np
import pytest
from dags import Naive, dags
from hypothesis import given, settings
from traced import traced

from mlpengine.core.errors import DtypeError, ShapeError, TapeError
from mlpengine.tape import (
    EagerGradients,
    GradientAccumulator,
    Tape,
    Tensor,
    backward,
    from_inner,
    no_grad,
    quantize,
    where,
)
from mlpengine.tape.record import as_tuple

RNG = np.random.default_rng(8)
X, Y = RNG.standard_normal((4, 3)), RNG.standard_normal((4, 3))


def tracked(array=X) -> Tensor:
    return from_inner(np.array(array)).require_grad()


def test_a_root_of_any_shape_is_seeded_with_ones():
    x = tracked()
    np.testing.assert_array_equal(backward(x * 3).grad(x), np.full((4, 3), 3.0))
    np.testing.assert_array_equal(backward(x).grad(x), np.ones((4, 3)))


def test_untracked_and_unreached_tensors_have_no_gradient():
    x, aside, plain = tracked(), tracked(Y), from_inner(Y)
    hidden = x * plain
    grads = backward(hidden.sum())
    assert grads.grad(x) is not None
    assert grads.grad(plain) is None
    assert grads.grad(aside) is None
    assert grads.grad(hidden) is None
    assert len(grads) == 1


def test_grad_replace_replaces_and_registers_an_absent_key():
    x, aside = tracked(), tracked(Y)
    grads = backward(x.sum())
    grads.grad_replace(x, Y)
    grads.grad_replace(aside, X)
    np.testing.assert_array_equal(grads.grad_remove(x), Y)
    assert grads.grad(x) is None
    np.testing.assert_array_equal(grads.grad(aside), X)
    with pytest.raises(ShapeError, match=r"grad_replace: must be float64\[4, 3\]"):
        grads.grad_replace(x, np.ones(3))
    with pytest.raises(DtypeError, match="grad_replace: must be float64"):
        grads.grad_replace(x, X.astype(np.float32))


@pytest.mark.parametrize("array", [np.arange(6), np.array([True, False]), np.int8([1, 2])])
def test_integer_and_bool_arrays_pass_through_untracked(array):
    tensor = from_inner(array)
    assert tensor.inner() is array
    assert not tensor.wants_grad
    with pytest.raises(DtypeError, match="require_grad: only float32 and float64"):
        tensor.require_grad()


def test_quantized_arrays_are_no_operands():
    quantized = quantize(X)
    assert from_inner(quantized).inner() is quantized
    with pytest.raises(DtypeError, match="dequantized first"):
        from_inner(quantized) + 1


def test_integer_operands_take_part_without_gradients():
    table, rows = tracked(), from_inner(np.array([0, 2, 2]))
    grads = backward(table.embedding(rows).sum())
    np.testing.assert_array_equal(grads.grad(table).sum(axis=1), [3, 0, 6, 0])
    mask = from_inner(X > 0)
    x = tracked()
    np.testing.assert_array_equal(backward(where(mask, x, 0.0)).grad(x), X > 0)


def test_retained_results_report_their_gradient():
    x = tracked()
    h = (x * 2).retain_grad()
    grads = backward((h * h).sum())
    np.testing.assert_allclose(grads.grad(h), 4 * X)
    np.testing.assert_allclose(grads.grad(x), 8 * X)
    root = (x * 3).retain_grad()
    np.testing.assert_array_equal(backward(root).grad(root), np.ones((4, 3)))


def test_a_second_backward_through_a_consumed_graph_is_an_error():
    x = tracked()
    root = (x * x).sum()
    first = backward(root, retain_graph=True)
    second = root.backward()
    np.testing.assert_array_equal(first.grad(x), second.grad(x))
    with pytest.raises(TapeError, match=r"was consumed by an earlier backward.*retain_graph"):
        backward(root)


def test_untracked_roots_are_refused():
    with pytest.raises(TapeError, match="the root must be tracked"):
        backward(from_inner(X) * 2)


def test_a_gradient_of_a_gradient_is_refused_with_the_way_out():
    x = tracked()
    with pytest.raises(TapeError, match=r"Gradients are plain arrays.*Tape\.gradient"):
        backward(backward(x.sum()).grad(x))


def test_only_leaves_may_ask_for_gradients():
    x = tracked()
    with pytest.raises(TapeError, match="require_grad: must be a leaf"):
        (x * 2).require_grad()
    assert x.require_grad() is x
    untracked_result = from_inner(X) * 2
    assert untracked_result.require_grad().is_leaf
    with pytest.raises(TapeError, match="retain_grad: must be tracked"):
        from_inner(X).retain_grad()


def test_no_grad_stops_tracking_inside():
    x = tracked()
    with no_grad():
        inside = x * 2
        with no_grad():
            pass
        assert not (x + 1).wants_grad
    assert not inside.wants_grad
    assert (x * 2).wants_grad
    with pytest.raises(ZeroDivisionError), no_grad():
        raise ZeroDivisionError
    assert (x * 2).wants_grad

    @no_grad()
    def evaluate():
        return x * 2

    assert not evaluate().wants_grad


def test_an_accumulator_sums_and_starts_again():
    w, accumulator = tracked(np.ones(3)), GradientAccumulator()
    rows = RNG.standard_normal((6, 3))
    first = backward((from_inner(rows[:2]) * w).sum())
    accumulator.accumulate(first)
    for part in (rows[2:5], rows[5:]):
        accumulator.accumulate(backward((from_inner(part) * w).sum()))
    np.testing.assert_allclose(first.grad(w), rows[:2].sum(0))  # left as it was
    np.testing.assert_allclose(accumulator.grads().grad(w), rows.sum(0))
    assert accumulator.grads().grad(w) is None


def step(w: Tensor, b: Tensor) -> EagerGradients:
    h = from_inner(X)
    for _ in range(5):
        h = (h @ w + b).silu()
    return backward(h.softmax().mean())


def test_a_long_loop_holds_constant_memory_and_makes_no_cycles():
    w, b = tracked(np.eye(3)), tracked(np.zeros(3))
    step(w, b)
    gc.collect()
    gc.disable()
    try:
        objects = len(gc.get_objects())
        for _ in range(8):
            step(w, b)
        assert len(gc.get_objects()) <= objects + 5
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_graph_holds_only_what_backward_reads():
    x = tracked()
    read, unread = x * 2, x + 1
    inner = [weakref.ref(t.inner()) for t in (read, unread)]
    root = read * read + unread
    del read, unread
    assert inner[0]() is not None
    assert inner[1]() is None
    assert root.wants_grad


def test_gradients_go_as_soon_as_nobody_reads_them():
    size = 100_000
    x = h = tracked(np.ones(size))
    for _ in range(30):
        h = h.tanh()
    gc.collect()
    grads, peak = traced(backward, h)
    assert grads.grad(x).size == size
    assert peak < 5 * 8 * size


def eager(tape: Tape, leaves: dict[str, np.ndarray]) -> dict[int, Tensor]:
    """Compute the records of a tape with tensors."""
    tensors = {n.index: from_inner(leaves.get(n.name, n.array)) for n in tape.nodes if n.is_leaf}
    for n in tape.parameters:
        tensors[n.index].require_grad()
    for record in tape.records:
        operands = [None if x is None else tensors[x.index] for x in record.operands]
        lead = next(x for x in operands if x is not None)
        made = as_tuple(lead._apply(record.op, *operands))
        tensors |= {y.index: t for y, t in zip(record.outputs, made, strict=True)}
    return tensors


@settings(max_examples=40, deadline=None)
@given(dags())
def test_any_computation_has_the_bits_of_the_recorded_one(drawn):
    tape, (output, *_) = drawn
    leaves = {n.name: n.array for n in tape.parameters}
    leaves["x"] = np.random.default_rng(1).standard_normal(tape.inputs[0].shape)
    for record in tape.records:
        if record.op.name == "dropout":
            record.op.rng.step = 7
    naive = Naive(tape, leaves)
    for record in tape.records:
        if record.op.name == "dropout":
            record.op.rng.step = 7
    tensors = eager(tape, leaves)
    for index, tensor in tensors.items():
        assert tensor.inner().tobytes() == np.asarray(naive.values[index]).tobytes()
    if not output.wants_grad:
        return
    expected = naive.gradients([output], [np.ones(output.shape)])
    grads = backward(tensors[output.index])
    for node in tape.parameters:
        found = grads.grad(tensors[node.index])
        if found is None:
            assert not expected.get(node.index, np.zeros(1)).any()
        else:
            assert found.tobytes() == expected[node.index].tobytes()
