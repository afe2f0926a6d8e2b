"""The plan: what shares memory, what must not, and that nobody can tell by the results."""

import numpy as np
import pytest
from dags import Naive, dags
from hypothesis import given, settings
from hypothesis import strategies as st

from mlpengine.core.errors import UsageError
from mlpengine.core.placement import ALIGNMENT, Storage, place
from mlpengine.core.spec import Spec, call
from mlpengine.ops import GradOp
from mlpengine.tape import Program, Tape
from mlpengine.tape.backward import BackwardPlan
from mlpengine.tape.binding import Arena
from mlpengine.tape.forward import ForwardPlan
from mlpengine.tape.operand import apply
from mlpengine.tape.record import as_tuple

rematerialization = st.sampled_from(["keep", "balanced"])


def restart(tape: Tape) -> None:
    for record in tape.records:
        if record.op.name == "dropout":
            record.op.rng.step = 7


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


@settings(max_examples=80, deadline=None)
@given(dags(), rematerialization, st.data())
def test_shared_memory_changes_no_bit(drawn, how, data):
    tape, outputs = drawn
    inner = st.lists(st.sampled_from([n for n in tape.nodes if n.kind == "op"]), max_size=3)
    keep, retain = data.draw(inner), data.draw(inner)
    program = Program(
        tape, *outputs, rematerialization=how, keep=keep, retain=retain, backend="numpy"
    )
    for half in (program._forward, program._backward):  # what is read too early is NaN
        half.arena.bytes.fill(0xFF)
    x = np.random.default_rng(1).standard_normal(program.inputs["x"].shape)
    seeds = [np.random.default_rng(2).standard_normal(n.shape) for n in outputs]
    restart(tape)
    naive = Naive(tape, {"x": x} | program.params.views)
    expected = naive.gradients(outputs, seeds)
    for _ in range(2):  # a second replay starts from what the first left behind
        restart(tape)
        values = as_tuple(program.forward(x=x))
        for node, value in zip(outputs, values, strict=True):
            assert same(value, naive.values[node.index])
        for node in keep:
            assert same(program.value(node), naive.values[node.index])
        program.backward(seeds if len(seeds) > 1 else seeds[0])
        for node in (*tape.parameters, *(n for n in retain if n.wants_grad)):
            gradient = expected.get(node.index, np.zeros(node.shape))
            assert same(program.grad(node), gradient)


def collisions(storages: list[Storage]) -> list[tuple[Storage, Storage]]:
    """Return pairs that live at one time and share a byte."""
    return [
        (a, b)
        for i, a in enumerate(storages)
        for b in storages[:i]
        if a.first <= b.last
        and b.first <= a.last
        and a.offset < b.offset + b.nbytes
        and b.offset < a.offset + a.nbytes
    ]


@settings(max_examples=40, deadline=None)
@given(dags(), rematerialization)
def test_no_two_live_storages_overlap(drawn, how):
    tape, outputs = drawn
    forward = ForwardPlan(tape, outputs, rematerialization=how)
    backward = BackwardPlan(forward, tape.parameters)
    for plan, storages in ((forward, forward.storages), (backward, backward.storages)):
        nbytes = plan.nbytes
        assert not collisions(storages)
        assert all(s.offset % ALIGNMENT == 0 and s.offset + s.nbytes <= nbytes for s in storages)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 12), st.integers(0, 6)), max_size=12))
def test_placing_keeps_the_living_apart(lives):
    storages = [Storage(n, first, first + length) for n, first, length in lives]
    total = place(storages)
    assert not collisions(storages)
    rounded = [-(-s.nbytes // ALIGNMENT) * ALIGNMENT for s in storages]
    assert total <= sum(rounded)
    for time in range(19):  # no plan can do better than what is alive at once
        pairs = zip(rounded, storages, strict=True)
        assert total >= sum(n for n, s in pairs if s.first <= time <= s.last)


def test_the_overlap_check_can_fail():
    a, b = Storage(8, 0, 3, offset=0), Storage(8, 2, 5, offset=4)
    assert collisions([a, b]) == [(b, a)]


def test_bytes_are_known_before_any_memory_is_taken(monkeypatch):
    tape = Tape()
    w = tape.parameter(np.ones((3, 3), np.float32), name="w")
    y = (tape.input((5, 3), name="x") @ w).tanh().sum()

    def refuse(*_: object) -> None:
        raise AssertionError("memory was taken")

    with monkeypatch.context() as patched:
        patched.setattr(Arena, "__init__", refuse)
        plan = ForwardPlan(tape, [y])
        known = plan.nbytes + BackwardPlan(plan, [w]).nbytes
    program = Program(tape, y)
    assert sum(program.planned_bytes.values()) == known


def arrays(program: Program) -> dict[str, np.ndarray]:
    """Return what each forward instruction wrote first, by the name of the op."""
    return {i.op.name: i.writes[0] for i in program._forward.instructions}


def test_an_op_writes_over_its_operand_only_where_nobody_needs_it_again():
    tape = Tape()
    x = tape.input((8,), "float64", name="x", wants_grad=True)
    y = (x * 2).tanh().exp()  # tanh needs its value, exp needs its own
    made = arrays(Program(tape, y))
    assert np.shares_memory(made["scalar_mul"], made["tanh"])
    assert not np.shares_memory(made["tanh"], made["exp"])
    inference = arrays(Program(tape, y, differentiable=False))
    assert np.shares_memory(inference["tanh"], inference["exp"])
    kept = arrays(Program(tape, y, differentiable=False, keep=[tape.nodes[1]]))
    assert not np.shares_memory(kept["scalar_mul"], kept["tanh"])


def test_nothing_writes_over_bytes_that_another_operand_views():
    class Greedy(GradOp):  # writes twice, so an alias of its first operand shows
        name = "greedy"
        in_place = ("forward",)

        def infer(self, a: Spec, b: Spec) -> Spec:
            return a

        def forward(self, a, b, *, out):
            yield call(np.multiply, a, 2, out)
            yield call(np.add, out, b[0], out)

    tape = Tape()
    h = tape.input((4,), "float64", name="x").exp()
    y = apply(Greedy(), h, h.reshape(1, 4))
    x = np.arange(4.0)
    value = Program(tape, y, differentiable=False).forward(x=x)
    np.testing.assert_array_equal(value, 3 * np.exp(x))


def test_unknown_rematerialization_is_refused():
    tape = Tape()
    tape.input((1,), name="x")
    with pytest.raises(UsageError, match="rematerialization: must be keep or balanced"):
        Program(tape, rematerialization="everything")
