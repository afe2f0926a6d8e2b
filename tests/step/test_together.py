"""Steps of several networks at once: each has the bits of a run of its own."""

import heapq
import logging
import math
import pickle
from copy import copy
from functools import partial
from itertools import chain

import numpy as np
import pytest
from own_networks import NETWORKS, Residual, rows

from mlpengine import (
    Adam,
    AdamW,
    CosineSchedule,
    MeanSquaredError,
    Mlp,
    Population,
    Sgd,
    SoftmaxCrossEntropy,
    TrainingStep,
    run_together,
)
from mlpengine.backends.compiled import cache
from mlpengine.core.errors import (
    CheckpointError,
    DataError,
    IndexRangeError,
    NumericalError,
    ShapeError,
    UsageError,
)
from mlpengine.optim import PercentileClip, RmsProp
from mlpengine.step import together

SEEDS = (5, 1, 8)
LRS = (0.1, 0.01, 0.003)
DECAYS = (0.1, 0.01, 0.02)

SHAPES = {
    "tiny": ([3, 4, 2], 5),
    "small": ([10, 16, 16, 3], 16),
    "medium": ([33, 70, 5], 40),
    "linear": ([7, 2], 1),
}

CASES = {
    "plain": {},
    "clip_norm": {"clip_norm": 0.1},
    "clip with a state": {"clip": partial(PercentileClip, 50.0)},
    "weighted": {"weighted": True},
    "weights of each": {"weighted": True, "each": True},
    "momentum": {"optimizer": partial(Sgd, momentum=0.9)},
    "schedule": {"optimizer": partial(RmsProp, schedule=CosineSchedule(6))},
    "decay": {"weight_decay": DECAYS},
    "dropout": {"mlp": {"dropout": 0.3}},
    "softmax inside": {"mlp": {"output_activation": "softmax"}},
    "float64": {"mlp": {"dtype": "float64", "initializer": "lecun_uniform"}},
    "classes": {"loss": SoftmaxCrossEntropy()},
    "lengths": {"steps": (7, 0, 3)},
}

TOGETHER = {
    "weights": {"weighted": True, "clip_norm": 0.1, **CASES["float64"]},
    "weights of each": {
        **CASES["weights of each"],
        **CASES["clip with a state"],
        **CASES["decay"],
        **CASES["lengths"],
    },
    "momentum": {**CASES["momentum"], **CASES["dropout"]},
    "schedule": {**CASES["schedule"], **CASES["softmax inside"], **CASES["classes"]},
}
"""The same options in fewer programs: each is compiled."""


def data(mlp: Mlp, rows: int, *, classes: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, mlp.sizes[0])).astype(mlp.dtype)
    if classes:
        return x, rng.integers(0, mlp.sizes[-1], rows)
    return x, rng.standard_normal((rows, mlp.sizes[-1])).astype(mlp.dtype)


def steps_of(members, loss, optimizer, batch, *, lr=LRS, weight_decay=None, clip=None, **options):
    """Return a step for each network, with its own rates."""
    given = {} if weight_decay is None else {"weight_decay": weight_decay}
    return [
        TrainingStep(
            member,
            loss,
            optimizer(member, lr=lr[k], **{name: v[k] for name, v in given.items()}),
            batch,
            clip_norm=clip() if clip else None,
            **options,
        )
        for k, member in enumerate(members)
    ]


def compare(sizes, batch, backend, threads, options):
    """Train three members, and three networks of their own, and compare all bits."""
    options = dict(options)
    network = options.pop("mlp", {})
    optimizer = options.pop("optimizer", Adam)
    loss = options.pop("loss", MeanSquaredError())
    counts, decays = options.pop("steps", (7, 7, 7)), options.pop("weight_decay", None)
    norm, each = options.pop("clip_norm", None), options.pop("each", False)
    clip = options.pop("clip", lambda: norm)
    options |= {"backend": backend}
    mlp = Mlp(sizes, activation="tanh", seed=99, **network)
    x, y = data(mlp, 60, classes=isinstance(loss, SoftmaxCrossEntropy))
    rng = np.random.default_rng(0)
    orders = [rng.integers(0, 60, n * batch) for n in counts]
    if len(set(counts)) == 1:
        orders = np.stack(orders)
    weights = rng.uniform(0.5, 2, (3, 60)).astype(x.dtype) if options.get("weighted") else None
    shared = weights if weights is None or each else weights[0]

    members = Population(mlp, 3, seeds=SEEDS)
    steps = steps_of(members, loss, optimizer, batch, weight_decay=decays, clip=clip, **options)
    results = [run_together(steps, x, y, orders, shared, threads=threads) for _ in range(2)]
    assert {step.backend for step in steps} == {backend}
    for k, seed in enumerate(SEEDS):
        own = Mlp(sizes, activation="tanh", seed=seed, **network)
        settings = {"lr": LRS[k]} if decays is None else {"lr": LRS[k], "weight_decay": decays[k]}
        single = TrainingStep(
            own, loss, optimizer(own, **settings), batch, clip_norm=clip(), **options
        )
        given = weights[k if each else 0] if weights is not None else None
        for losses, norms, _ in results:
            expected, expected_norms = single.run_many(x, y, orders[k], given)
            assert losses[k, : counts[k]].tobytes() == expected.tobytes()
            assert norms[k, : counts[k]].tobytes() == expected_norms.tobytes()
            assert np.isnan(losses[k, counts[k] :]).all()
        assert members.params[k].tobytes() == own.params.flat.tobytes()
        moments = steps[k].optimizer.moments
        for name, moment in single.optimizer.moments.items():
            assert moments[name].tobytes() == moment.tobytes()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_members_of_any_shape_have_the_bits_of_single_runs(shape, backend, threads):
    compare(*SHAPES[shape], backend, threads, {})


@pytest.mark.parametrize(
    ("options", "backend"),
    [
        *(pytest.param(options, "numpy", id=name) for name, options in CASES.items()),
        *(pytest.param(options, "compiled", id=f"{n}-c") for n, options in TOGETHER.items()),
    ],
)
def test_members_with_any_option_have_the_bits_of_single_runs(options, backend):
    compare(*SHAPES["tiny"], backend, 2, options)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_stretches_change_no_bit(threads, monkeypatch):
    """Members in turn, a few steps each, on more threads than cores, and than members."""
    monkeypatch.setattr(together, "steps_at_once", lambda *_: 2)
    monkeypatch.setattr(together, "SLICE_SECONDS", 0.0)
    compare(*SHAPES["tiny"], "compiled", threads, CASES["lengths"])


def test_the_last_slices_are_short(monkeypatch):
    """Whatever the speed of each, no thread makes many steps while the other has none."""
    slices = []
    take = together._Work.next_slice

    def record(work):
        taken = take(work)
        if taken is not None:
            slices.append(taken[2] - taken[1])
        return taken

    monkeypatch.setattr(together._Work, "next_slice", record)
    monkeypatch.setattr(together, "steps_at_once", lambda *_: 64)
    monkeypatch.setattr(together, "SLICE_SECONDS", math.inf)
    compare(*SHAPES["tiny"], "compiled", 2, {"steps": (640, 640, 640)})
    assert slices[0] > 64
    assert slices[-1] <= 64 / together.SHORTEST
    assert sum(slices) == 2 * 3 * 640  # two calls


@pytest.mark.parametrize("seconds", [(1.0, 1.0), (1.0, 1.3), (2.0, 1.0, 1.0)], ids=str)
def test_threads_end_together(seconds):
    """Each thread needs so many seconds for a step; nothing is computed."""
    work = together._Work([None] * 16)
    work._threads, work._counts, work._left = len(seconds), [640] * 16, [640] * 16
    work._stretch = 64
    work._waiting = [*range(16)]
    ends, times, slices = [], [(0.0, i) for i in range(len(seconds))], {}
    while times:
        now, thread = heapq.heappop(times)
        if thread in slices:
            k, _, last = slices.pop(thread)
            work._left[k] = 640 - last
            work._waiting += [k] if last < 640 else []
        if (taken := work.next_slice()) is None:
            ends.append(now)
        else:
            slices[thread] = taken
            heapq.heappush(times, (now + (taken[2] - taken[1]) * seconds[thread], thread))
    assert work._left == [0] * 16
    shortest = 64 / together.SHORTEST
    assert max(ends) - min(ends) <= 8 * shortest * max(seconds)
    assert max(ends) <= 1.005 * 16 * 640 / sum(1 / s for s in seconds)


def test_members_and_other_rates_share_one_program_that_is_built_once(tmp_path, monkeypatch):
    """Rates of learning and dropout are in memory: trials of a sweep that vary them share it."""
    built = []
    build = cache._build
    monkeypatch.setattr(cache, "_loaded", {})
    monkeypatch.setenv("MLPENGINE_CACHE", str(tmp_path / "programs"))
    monkeypatch.setattr(cache, "_build", lambda *args: (built.append(args), build(*args)))
    steps = []
    for rate in (0.1, 0.4):
        members = Population(Mlp([3, 5, 2], dropout=rate), 4)
        lr = [1e-1, 1e-2, 1e-3, 0]
        steps += steps_of(members, MeanSquaredError(), Adam, 4, lr=lr, backend="compiled")
    assert len(built) == 1
    assert len({id(s._full.fused.library) for s in steps}) == 1


def small_steps(backend: str = "numpy", **options) -> tuple[Population, list[TrainingStep]]:
    members = Population(Mlp([3, 4, 2], activation="tanh"), 3, seeds=SEEDS)
    arguments = {"optimizer": Sgd, "batch": 5, "backend": backend, **options}
    return members, steps_of(members, MeanSquaredError(), **arguments)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_network_whose_step_is_not_finite_stops_alone(backend, threads, caplog):
    members, steps = small_steps(backend)
    others, other = small_steps(backend)
    x, y = data(members[0], 60)
    x[7] = np.nan
    orders = np.arange(60).reshape(3, 20)
    orders[0, 5:10] = 0
    orders[1] = np.r_[10:20, 3:13]  # row 7 is in its third batch of four
    with caplog.at_level(logging.WARNING, "mlpengine"):
        losses, norms, failures = run_together(steps, x, y, orders, threads=threads)
    expected = (
        "network 1: step 3: loss and gradients must be finite (the input is not, in row 4 of the "
        "batch: column 0)"
    )
    assert [record.getMessage() for record in caplog.records] == [f"warning: {expected}"]
    assert {k: str(error) for k, error in failures.items()} == {1: expected}
    assert np.isfinite(losses).tolist() == [[True] * 4, [True, True, False, False], [True] * 4]
    same, same_norms, none = run_together([other[0], other[2]], x, y, orders[[0, 2]])
    np.testing.assert_array_equal(losses[[0, 2]], same)
    np.testing.assert_array_equal(norms[[0, 2]], same_norms)
    assert not none
    np.testing.assert_array_equal(members.params[[0, 2]], others.params[[0, 2]])
    own = Mlp([3, 4, 2], activation="tanh", seed=SEEDS[1])
    single = TrainingStep(own, MeanSquaredError(), Sgd(own, lr=LRS[1]), 5, backend=backend)
    single.run_many(x, y, orders[1, :10])
    np.testing.assert_array_equal(members.params[1], own.params.flat)
    single.run_many(x, y, orders[2])  # and goes on where it stopped
    run_together(steps, x, y, orders[[2, 2, 2]])
    np.testing.assert_array_equal(members.params[1], own.params.flat)


def test_a_step_that_is_not_made_has_no_loss(backend):
    """Where machine code computes one, infinite, before it is refused."""
    members, steps = small_steps(backend)
    x, y = data(members[0], 60)
    y[32] = 1e30
    losses, norms, failures = run_together(steps, x, y, np.arange(60).reshape(3, 20))
    assert list(failures) == [1]
    made = [[True] * 4, [True, True, False, False], [True] * 4]
    for values in (losses, norms):
        assert (~np.isnan(values)).tolist() == made


def test_a_call_in_which_all_networks_fail_raises(backend):
    members, steps = small_steps(backend)
    x, y = data(members[0], 60)
    x[...] = np.inf
    with pytest.raises(NumericalError, match="network 0: step 1: loss and gradients"):
        run_together(steps, x, y, np.arange(60).reshape(3, 20), threads=2)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_label_out_of_range_ends_the_call_with_its_place(backend, threads):
    members = Population(Mlp([3, 4, 2]), 3)
    steps = steps_of(members, SoftmaxCrossEntropy(), Sgd, 5, backend=backend)
    x, y = data(members[0], 60, classes=True)
    y[31] = 2
    with pytest.raises(IndexRangeError, match="2"):
        run_together(steps, x, y, np.arange(60).reshape(3, 20), threads=threads)
    assert np.isfinite(members.params).all()


def test_an_interrupt_ends_all_threads_after_the_steps_in_hand(monkeypatch):
    members, steps = small_steps("compiled")
    x, y = data(members[0], 60)
    monkeypatch.setattr(together, "steps_at_once", lambda *_: 1)
    first = steps[0].make_steps

    def interrupted(*args):
        first(*args)
        raise KeyboardInterrupt

    monkeypatch.setitem(vars(steps[0]), "make_steps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_together(steps, x, y, np.tile(np.arange(60), (3, 10_000)), threads=2)
    made = [s.optimizer.steps for s in steps]
    assert made[0] == 1
    assert max(made) < 120_000
    monkeypatch.undo()
    run_together(steps, x, y, np.arange(15).reshape(3, 5), threads=2)
    assert [s.optimizer.steps for s in steps] == [n + 1 for n in made]


def test_members_lie_in_one_block_and_predict_as_networks_do():
    mlp = Mlp([4, 6, 3], activation=["tanh"], initializer="lecun_uniform", dropout=0.2)
    members = Population(mlp, 3, seeds=SEEDS)
    x = np.random.default_rng(0).standard_normal((9, 4))
    outputs = members.predict(x)
    assert outputs.shape == (3, 9, 3)
    for k, seed in enumerate(SEEDS):
        own = Mlp([4, 6, 3], activation="tanh", initializer="lecun_uniform", dropout=0.2, seed=seed)
        np.testing.assert_array_equal(members[k].params.flat, own.params.flat)
        np.testing.assert_array_equal(outputs[k], own.predict(x))
        assert np.shares_memory(members[k].weights[0], members.params[k])
    assert len(members) == 3
    assert [*members] == [members[0], members[1], members[-1]]
    np.testing.assert_allclose(
        members.mean(x), outputs.astype("f8").mean(axis=0), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(Population(mlp, 2).params[1], mlp.like(seed=1).params.flat)


def test_what_a_step_reads_starts_at_a_cache_line():
    members = Population(Mlp([4, 5, 3], seed=0), 3)
    for step in (TrainingStep(m, MeanSquaredError(), Adam(m), 7) for m in members):
        moments = step.optimizer.moments.values(), copy(step.optimizer).moments.values()
        arrays = step.mlp.params.flat, step.grads.flat, *chain(*moments), *step.bound(7).buffers[:1]
        assert all(array.ctypes.data % 64 == 0 for array in (*arrays, step.grads.d_output))


def test_weights_of_a_network_from_a_description_are_drawn():
    mlp = Mlp.from_dict(Mlp([4, 6, 3]).to_dict())
    np.testing.assert_array_equal(
        Population(mlp, 1, seeds=[3])[0].params.flat, Mlp([4, 6, 3], seed=3).params.flat
    )


def test_state_goes_out_and_in_by_name():
    mlp = Mlp([4, 6, 3])
    members, other = Population(mlp, 3), Population(mlp, 3, seeds=SEEDS)
    state = members.state_dict()
    assert {name: array.shape for name, array in state.items()} == {
        "0.weight": (3, 6, 4),
        "0.bias": (3, 6),
        "2.weight": (3, 3, 6),
        "2.bias": (3, 3),
    }
    other.load_state_dict(state)
    np.testing.assert_array_equal(other.params, members.params)
    before = other.params.copy()
    with pytest.raises(CheckpointError, match=r"0\.weight must be \(3, 6, 4\).*2\.bias must"):
        other.load_state_dict({**state, "0.weight": state["0.weight"][0]} | {"2.bias": 0})
    np.testing.assert_array_equal(other.params, before)


MISUSE = {
    "no members": (lambda: Population(Mlp([2, 1]), 0), UsageError, "at least one member"),
    "seeds": (lambda: Population(Mlp([2, 1]), 2, seeds=[1]), UsageError, r"each of 2 \(got 1\)"),
    "a negative seed": (lambda: Population(Mlp([2, 1]), 1, seeds=[-1]), UsageError, "whole"),
    "threads": (lambda: run_together(*TWO_ROWS, threads=0), UsageError, "one thread"),
    "no steps": (lambda: run_together([], *TWO_ROWS[1:]), UsageError, "at least one step"),
}
TWO_ROWS = small_steps()[1], np.zeros((2, 3), "f4"), np.zeros((2, 2), "f4"), [[0] * 5] * 3


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_refused(name):
    make, kind, message = MISUSE[name]
    with pytest.raises(kind, match=message):
        make()


ORDERS = np.zeros((3, 10), np.int64)
BAD_ROWS = {
    "members": (ORDERS[:2], {}, ShapeError, r"needs 3 orders, one for each network \(got 2\)"),
    "dtype": (ORDERS.astype("i4"), {}, ShapeError, r"network 0: order must be an array of int64"),
    "length": ([ORDERS[0], ORDERS[0, :7], ORDERS[0]], {}, ShapeError, "network 1: .*multiple of 5"),
    "row": (
        np.add(ORDERS, [[0], [0], [60]]),
        {},
        DataError,
        "network 2: order must name rows 0 to 59",
    ),
    "x": (ORDERS, {"x": np.zeros((60, 3))}, DataError, "network 0: rows must be as the step's"),
    "weights": (ORDERS, {"sample_weight": np.ones(60, "f4")}, DataError, "weighted step"),
    "weights of two": (
        ORDERS,
        {"sample_weight": np.ones((2, 60), "f4")},
        ShapeError,
        r"\(rows,\) or \(3, rows\) \(got \(2, 60\)\)",
    ),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_do_not_fit_are_refused_before_any_step(name):
    orders, changed, kind, message = BAD_ROWS[name]
    members, steps = small_steps()
    x, y = data(members[0], 60)
    before = members.params.copy()
    with pytest.raises(kind, match=message):
        run_together(steps, **{"x": x, "y": y, "orders": orders, **changed})
    np.testing.assert_array_equal(members.params, before)


@pytest.mark.parametrize("name", ["residual with dropout", "tied", "gated"])
def test_members_of_any_class_have_the_bits_of_networks_of_their_own(name, backend):
    x, y = rows(60, name)
    orders = np.random.default_rng(0).integers(0, 60, (3, 7 * 16))
    members = Population(NETWORKS[name](seed=99), 3, seeds=SEEDS)
    settings = {"weight_decay": DECAYS, "clip": lambda: 0.5, "backend": backend}
    steps = steps_of(members, MeanSquaredError(), AdamW, 16, **settings)
    losses, norms, _ = run_together(steps, x, y, orders, threads=2)
    assert {step.backend for step in steps} == {backend}
    for k, seed in enumerate(SEEDS):
        own = NETWORKS[name](seed=seed)
        optimizer = AdamW(own, lr=LRS[k], weight_decay=DECAYS[k])
        single = TrainingStep(
            own, MeanSquaredError(), optimizer, 16, clip_norm=0.5, backend=backend
        )
        expected, expected_norms = single.run_many(x, y, orders[k])
        assert losses[k].tobytes() == expected.tobytes()
        assert norms[k].tobytes() == expected_norms.tobytes()
        assert members[k].params.flat.tobytes() == own.params.flat.tobytes()
        np.testing.assert_array_equal(members.predict(x)[k], own.predict(x))
    np.testing.assert_array_equal(members.mean(x), members.predict(x).mean(axis=0))
    pickled = pickle.loads(pickle.dumps(members))
    np.testing.assert_array_equal(pickled.params, members.params)


def test_networks_like_another_have_its_settings_and_what_it_freezes():
    network = Residual(8, outputs=3, dtype="float64", seed=7)
    network.freeze(["in"])
    other = network.like(blocks=1, seed=7)
    assert isinstance(other, Residual)
    assert (other.blocks, other.outputs, other.dtype) == (1, 3, np.dtype("float64"))
    assert other.params.frozen == {"in.weight", "in.bias"}
    expected = Residual(8, 1, 3, dtype="float64", seed=7)
    np.testing.assert_array_equal(other.params.flat, expected.params.flat)
