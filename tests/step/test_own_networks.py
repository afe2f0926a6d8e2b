"""Networks of one's own train by `TrainingStep` and `Loop` as an `Mlp` does, on each backend."""

import numpy as np
import pytest
from own_networks import BATCH, EIGHT, IN_DIM, losses_of, make_step, rows

from mlpengine import Adam, MeanSquaredError, Sgd, TrainingStep
from mlpengine.core.errors import NumericalError
from mlpengine.nn import Network
from mlpengine.tape import cat

BACKENDS = ("numpy", "compiled")
NORMED = ("batch norm", "batch norm of pixels")


@pytest.mark.parametrize(
    ("name", "dtype", "near"),
    [
        *((name, "float32", 1e-5) for name in EIGHT),  # programs that other tests run, too
        *((name, "float64", 1e-9) for name in ("computed",)),
        *((name, "float64", 1e-9) for name in ("stopped", "penalized")),
        *((name, "float64", 1e-8) for name in NORMED[1:]),
        (NORMED[0], "float32", 2e-4),
    ],
)
def test_compiled_steps_agree_with_numpy(name, dtype, near):
    plain = make_step(name, dtype=dtype)
    step = make_step(name, dtype=dtype, backend="compiled")
    count = 40 if name in (*EIGHT, NORMED[0]) else 32  # a short batch is one more program
    expected = losses_of(plain, name, count=count)
    np.testing.assert_allclose(losses_of(step, name, count=count), expected, rtol=near)
    assert min(expected[-3:]) < expected[0]
    assert (step.backend, step.not_compiled) == ("compiled", "")
    in_parts = name in ("digits", *NORMED)  # NumPy computes poolings and running averages
    assert step.fused != in_parts, step.summary()
    if count > 32 and step.fused:  # the short batch of 8 rows has the program of whole ones
        assert step.bound(8).fused.source is step.bound(BATCH).fused.source
    assert step.losses == pytest.approx(plain.losses, rel=near)
    weights = getattr(step.loss, "weights", {"output": 1.0})
    total = sum(weights[n] * v for n, v in step.losses.items())
    assert total == pytest.approx(step.loss_value, rel=1e-12)
    np.testing.assert_allclose(step.mlp.params.flat, plain.mlp.params.flat, atol=50 * near)


class TimesMaximum(Network):
    """A maximum of what a layer computes, whose gradient only NumPy has."""

    def __init__(self, **options):
        super().__init__(IN_DIM, {"in": (3, IN_DIM), "out": (2, 3)}, **options)

    def record(self, tape, x):
        h = x.linear(tape.parameter("in"))
        return (h * h.max(axis=1, keepdims=True)).linear(tape.parameter("out"))


def test_a_forward_keeps_what_a_gradient_in_numpy_reads():
    (x, y), found = rows(BATCH, dtype="float64"), []
    for backend in BACKENDS:
        network = TimesMaximum(seed=1, dtype="float64")
        step = TrainingStep(network, MeanSquaredError(), Sgd(network), BATCH, backend=backend)
        found.append((step(x, y), *step.grads.flat))
    assert "program" in step.summary()
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_what_has_a_gradient_may_be_joined_between_what_has_none():
    class Joined(Network):
        def record(self, tape, x):
            return cat([x, x.linear(tape.parameter("w")), x.detach()], axis=1)

    network = Joined(2, {"w": np.array([[1.0, -2.0]])}, dtype="float64")
    step = TrainingStep(network, MeanSquaredError(), Sgd(network), 3, backend="numpy")
    x, y = (np.random.default_rng(seed).standard_normal((3, n)) for seed, n in ((0, 2), (1, 5)))
    step(x, y)
    error = x @ [[1.0], [-2.0]] - y[:, 2:3]
    np.testing.assert_allclose(step.grads.views["w"], 2 / 15 * error.T @ x, rtol=1e-12)


class Noisy(Network):
    """Dropout and samples of three axes, several lines for each row."""

    def record(self, tape, x):
        h = tape.dropout(x.linear(tape.parameter("w")).reshape(-1, 2, 3).tanh(), 0.5)
        return tape.normal(h, h * h).reshape(-1, 6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_shards_draw_what_the_whole_batch_does(backend):
    (x, _), found = rows(8, dtype="float64"), []
    for shards in (1, 2):
        network = Noisy(IN_DIM, {"w": (6, IN_DIM)}, dtype="float64")
        options = {"backend": backend, "shards": shards}
        step = TrainingStep(network, MeanSquaredError(), Sgd(network), 8, **options)
        found.append([step(x[:n], np.ones((n, 6))) for n in (8, 5, 8)])
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_chunks_of_a_large_batch_add_up_to_its_gradient(monkeypatch):
    """Shared and computed weights are finished after the last chunk of rows, and only then."""
    expected = [losses_of(make_step(n, dtype="float64"), n) for n in ("tied", "attention")]
    monkeypatch.setattr("mlpengine.backends.compiled.emitter.STREAM_BYTES", 0)
    monkeypatch.setattr("mlpengine.backends.compiled.emitter.CHUNK_BYTES", 0)
    for name, losses in zip(("tied", "attention"), expected, strict=True):
        step = make_step(name, dtype="float64", backend="compiled")
        np.testing.assert_allclose(losses_of(step, name), losses, rtol=1e-9)
        assert "#define CHUNK_ROWS INT64_C(8)" in step.emit_c()


class Largest(Network):
    """The larger of two units each, which have no compiled rule."""

    def record(self, tape, x):
        h = x.linear(tape.parameter("w")).reshape(-1, 4, 2).max(axis=2)
        return h.linear(tape.parameter("out"))


def test_a_summary_tells_what_computes_each_instruction():
    network = Largest(IN_DIM, {"w": (8, IN_DIM), "out": (2, 4)}, seed=1)
    settings = MeanSquaredError(), Adam(network), BATCH
    steps = [TrainingStep(network, *settings, backend=backend) for backend in BACKENDS]
    lines = [step.summary().splitlines() for step in steps]
    by_numpy, split = ([line.split("  ")[0] for line in each] for each in lines)
    assert {*by_numpy} == {"NumPy (not compiled)", "NumPy"}
    first, second = "NumPy (max forward)", "NumPy (max backward)"
    programs = [f"program {n}" for n in (1, 2, 3, 4)]
    assert [*dict.fromkeys(split)] == [programs[0], first, programs[1], second, *programs[2:]]
    assert (steps[1].fused, lines[1][-1].split()) == (False, ["program", "4", "update", "adam"])
    whole = make_step("tied", backend="compiled").summary().splitlines()
    assert {line.split("  ")[0] for line in whole} == {"program 1"}
    shards = make_step("tied", backend="compiled", shards=2).summary().splitlines()
    assert [line.split("  ")[0] for line in shards[-2:]] == ["program 1", "program 2"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("input", "the input is not, in row 5 of the batch"),
        ("parameter", "block 1, forward: block 1.up.weight is not"),
        ("output", "block 1, forward: its output is not, in rows 0, 1, 2, 3, 4 and 11 more"),
    ],
)
def test_a_number_that_is_not_finite_is_located_by_the_layers_name(place, text, backend):
    step = make_step("residual with dropout", backend=backend)
    x, y = rows(BATCH)
    before = step.mlp.params.flat.copy()
    if place == "input":
        x[5, 1] = np.nan
    elif place == "parameter":
        step.mlp.params.views["block 1.up.weight"][0, 0] = np.inf
    else:
        step.mlp.params.views["block 1.down.weight"][...] = 1e38
    with pytest.raises(NumericalError) as error:
        step(x, y)
    assert text in str(error.value)
    assert step.optimizer.steps == 0
    assert np.count_nonzero(step.mlp.params.flat == before) >= before.size - 512
