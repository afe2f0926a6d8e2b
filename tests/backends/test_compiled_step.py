"""A compiled training step against the same step in NumPy."""

from pathlib import Path

import numpy as np
import pytest
from compiled_table import BY_NAME, CASES, StepCase
from scipy.special import log_softmax, softmax
from uncompiled import uncompiled

from mlpengine import MeanSquaredError, Mlp, Sgd, SoftmaxCrossEntropy, TrainingStep
from mlpengine.backends.compiled import executor, target
from mlpengine.backends.compiled.cache import chosen_target
from mlpengine.backends.compiled.executor import FINISHED, compile_program
from mlpengine.backends.compiled.kernel import LossInstruction
from mlpengine.backends.compiled.target import FLAGS, CompileTarget
from mlpengine.core.errors import (
    CompileError,
    DataError,
    IndexRangeError,
    NumericalError,
    ShapeError,
    UsageError,
)
from mlpengine.core.spec import Spec
from mlpengine.ops import MeanAbsoluteError
from mlpengine.optim import Group
from mlpengine.step.auto_backend import choose_backend, seconds_to_compile

STEPS = 6
TOLERANCE = {"float32": (2e-4, 2e-6), "float64": (1e-11, 1e-14)}


def agree(case, ours, theirs, what=""):
    relative, absolute = TOLERANCE[case.dtype]
    scale = np.abs(theirs).max(initial=1.0)
    np.testing.assert_allclose(ours, theirs, rtol=relative, atol=absolute * scale, err_msg=what)


def compare(case: StepCase, threads: int = 1) -> TrainingStep:
    """Make the same steps on both backends and compare everything that can be read."""
    compiled, plain = case.step("compiled", threads), case.step("numpy")
    assert compiled.backend == "compiled"
    for number in range(STEPS):
        rows = case.batch - 1 if case.short and number == 3 else case.batch
        x, y, weights = (
            None if a is None else a[number * case.batch :][:rows]
            for a in case.data(STEPS * case.batch)
        )
        ours, theirs = (step(x, y, weights) for step in (compiled, plain))
        agree(case, ours, theirs, "loss")
        agree(case, compiled.grad_norm, plain.grad_norm, "norm")
        agree(case, compiled.clipped_norm, plain.clipped_norm, "clipped norm")
        agree(case, compiled.grads.flat, plain.grads.flat, "gradients")
        for mine, other in zip(
            compiled.scratch.activations, plain.scratch.activations, strict=True
        ):
            agree(case, mine, other, "activations")
        for mine, other in zip(compiled.grads.d_hidden, plain.grads.d_hidden, strict=True):
            agree(case, mine, other, "hidden gradients")
    assert compiled.optimizer.steps == plain.optimizer.steps == STEPS
    assert compiled.optimizer.current_lr == plain.optimizer.current_lr
    agree_on_params(case, compiled, plain)
    return compiled


def agree_on_params(case, compiled, plain):
    # Adam divides by the root of a gradient that may be all rounding; what counts is the way made.
    moved = np.abs(plain.mlp.params.flat - case.step("numpy").mlp.params.flat).max()
    way = max(plain.optimizer.lr * STEPS, moved)
    apart = np.abs(compiled.mlp.params.flat - plain.mlp.params.flat)
    assert np.quantile(apart, 0.98) <= (1e-9 if case.dtype == "float64" else 2e-3) * way
    assert apart.max() <= 2 * way


WIDE = StepCase("wide", (100, 200, 1024, 40), 72, "relu", clip_norm=0.2)
"""Products of several groups of panels, whose columns threads divide or claim, and packed rows."""


@pytest.mark.parametrize("case", [*CASES, WIDE], ids=lambda c: c.name)
def test_steps_agree_with_numpy(case, monkeypatch):
    monkeypatch.setattr(target, "FLAGS", FLAGS)  # other tests compile without optimization
    assert (compare(case).bound(case.batch).fused is not None) == case.fused


@pytest.mark.parametrize("name", ["relu", "smoothed", "dropout", "some features"])
def test_one_program_takes_every_number_of_rows(name):
    case = BY_NAME[name]
    compiled, plain = case.step("compiled"), case.step("numpy")
    x, y, weights = case.data(case.batch)
    for rows in (case.batch, 1, case.batch - 1, 2, case.batch, 5):
        given = [None if a is None else a[-rows:] for a in (x, y, weights)]
        agree(case, *(step(*given) for step in (compiled, plain)), f"loss of {rows} rows")
        agree(case, compiled.grads.flat, plain.grads.flat, f"gradients of {rows} rows")
        assert compiled.bound(rows).fused.source is compiled.bound(case.batch).fused.source


@pytest.mark.parametrize(
    ("case", "threads"),
    [(CASES[0], 3), (BY_NAME["dropout"], 2), *zip(CASES[-3:], (2, 3, 2), strict=True), (WIDE, 3)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_threads_give_the_same_bits(case, threads, monkeypatch):
    alone = case.step("compiled")
    monkeypatch.setattr("mlpengine.backends.compiled.emitter.STEP_TERMS_PER_THREAD", 1)
    together = case.step("compiled", threads=threads)
    text = together.emit_c()
    assert f"#define THREADS {threads}\n" in text
    assert ("&from, &to" in text and "&first, &last" in text) == (case is WIDE)  # panels, tiles
    x, y, weights = case.data(3 * case.batch)
    order = np.random.default_rng(0).permutation(3 * case.batch)
    call = together.bound(case.batch).fused.call
    # The caller alone, all threads, and as the pool chooses.
    for call.threads, shared in ((1, {0}), (threads, {3}), (0, {0, 1, 2, 3})):
        for step in (alone, together):
            step.run_many(x, y, order, weights)
        assert call.together in shared
        assert alone.mlp.params.flat.tobytes() == together.mlp.params.flat.tobytes()
        assert alone.loss_value == together.loss_value
    rows = order[: case.batch]
    values = [
        step(x[rows], y[rows], None if weights is None else weights[rows])
        for step in (alone, together)
    ]
    assert values[0] == values[1]


def test_threads_that_would_not_pay_are_not_started():
    small = StepCase("small", (4, 32, 32, 1), 32, loss=MeanSquaredError())
    large = StepCase("large", (784, 256, 10), 64)
    with uncompiled():
        assert "#define THREADS 1\n" in small.step("compiled", threads=2).emit_c()
        assert "#define THREADS 2\n" in large.step("compiled", threads=2).emit_c()


@pytest.mark.parametrize("backend", ["compiled", "numpy"])
@pytest.mark.parametrize("name", ["tiny", "smoothed", "dropout"])
def test_many_steps_at_once_are_the_same_as_one_by_one(name, backend):
    case = BY_NAME[name]
    at_once, single = case.step(backend), case.step(backend)
    x, y, weights = case.data(4 * case.batch)
    order = np.random.default_rng(0).permutation(4 * case.batch)
    losses, norms = at_once.run_many(x, y, order, weights)
    for i, rows in enumerate(order.reshape(4, -1)):
        assert single(x[rows], y[rows], None if weights is None else weights[rows]) == losses[i]
        assert single.grad_norm == norms[i]
    assert at_once.mlp.params.flat.tobytes() == single.mlp.params.flat.tobytes()
    assert at_once.optimizer.steps == 4


@pytest.mark.parametrize("backend", ["compiled", "numpy"])
@pytest.mark.parametrize(("factor", "clip_norm"), [(1.0, None), (1e4, 1e-2)])
def test_an_update_that_overflows_is_refused(factor, backend, clip_norm):
    mlp = Mlp([4, 8, 1], seed=0)
    optimizer = Sgd(mlp, lr=3e38 / factor, groups={"biases": Group(lr=factor)})
    step = TrainingStep(mlp, MeanSquaredError(), optimizer, 6, backend=backend, clip_norm=clip_norm)
    x, y, _ = StepCase("x", (4, 8, 1), 6, loss=MeanSquaredError()).data(6)
    before = mlp.params.flat.copy()
    with pytest.raises(NumericalError, match=r"step 1: .*lr 3e\+38"):
        step(x, y)
    assert mlp.params.flat.tobytes() == before.tobytes()
    assert optimizer.steps == 0
    optimizer.lr = 1e-2
    assert np.isfinite(step(x, y))


def test_an_exception_of_a_signal_leaves_the_steps_that_were_made(monkeypatch):
    """Python raises it, such as KeyboardInterrupt, where the call of machine code returns."""
    monkeypatch.setattr("mlpengine.step.step.steps_at_once", lambda *_: 2)
    case = BY_NAME["dropout"]
    step, other = case.step("compiled"), case.step("compiled")
    x, y, weights = case.data(4 * case.batch)
    order = np.arange(4 * case.batch)
    program = step.bound(case.batch).fused
    make = program.step

    def interrupted() -> None:
        make()
        raise KeyboardInterrupt

    program.step = interrupted
    with pytest.raises(KeyboardInterrupt):
        step(x[: case.batch], y[: case.batch])
    with pytest.raises(KeyboardInterrupt):
        step.run_many(x, y, order, weights)
    assert step.optimizer.steps == 3
    program.step = make
    other(x[: case.batch], y[: case.batch])
    other.run_many(x, y, order[: 2 * case.batch], weights)
    assert step.run_many(x, y, order)[0].tolist() == other.run_many(x, y, order)[0].tolist()


def test_many_steps_stop_at_the_first_that_is_not_finite():
    step = CASES[1].step("compiled")
    x, y, _ = CASES[1].data(96)
    x[50] = np.nan
    with pytest.raises(NumericalError, match=r"step 4: .* order\[72:96\]: row 50\)"):
        step.run_many(x, y, np.roll(np.arange(96), 24))
    assert step.optimizer.steps == 3


def test_a_label_out_of_range_is_named():
    step = CASES[1].step("compiled")
    x, y, _ = CASES[1].data(24)
    y[5] = 10
    before = step.mlp.params.flat.copy()
    with pytest.raises(IndexRangeError, match="row 5 has 10"):
        step(x, y)
    assert step.mlp.params.flat.tobytes() == before.tobytes()


def test_a_binary_target_outside_0_to_1_is_named():
    case = BY_NAME["bce"]
    step = case.step("compiled")
    x, y, weights = case.data(case.batch)
    before = step.mlp.params.flat.copy()
    for value in (-0.25, 2.0):
        y[7, 1] = value
        with pytest.raises(IndexRangeError, match=rf"row 7 has {value:g}"):
            step(x, y, weights)
    assert step.mlp.params.flat.tobytes() == before.tobytes()


@pytest.mark.parametrize(
    ("mlp", "batch", "seconds", "too_few"),
    [
        (Mlp([64, 256, 128, 10], dropout=0.3), 32, 1.34, 2_850),
        (Mlp([10, 256, 256, 256, 1], activation="mish"), 256, 0.83, 410),
    ],
    ids=["digits", "wide"],
)
def test_auto_weighs_the_time_to_compile(mlp, batch, seconds, too_few):
    """`seconds` are what the compiler took, as `benchmarks/compiling.py` prints them."""
    assert seconds / 2 < seconds_to_compile(mlp) < seconds * 2
    assert choose_backend(too_few, mlp, batch) == "numpy"
    assert choose_backend(round(1.05 * too_few), mlp, batch) == "compiled"


def test_a_program_has_no_lines_for_each_feature():
    lines = []
    for features in (48, 144):
        mlp = Mlp([features, 256, 256, 256, 1], activation="mish", reads=((0, 4), (5, features)))
        with uncompiled():
            step = TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=0.1), 64, backend="compiled")
        lines.append(step.emit_c().count("\n"))
    assert lines[1] - lines[0] < 48  # of 96 features


def test_auto_compiles_where_it_pays(monkeypatch):
    small, large = (Mlp([4, 8, 1]), 16), (Mlp([26, 256, 128, 1]), 256)
    assert choose_backend(10**6, *small) == "compiled"
    assert choose_backend(6_000, *small) == "numpy"
    assert choose_backend(6_000, *large) == "compiled"
    assert choose_backend(100, *large) == "numpy"
    digits = [64, 256, 128, 10]
    for dropout, backend in ((0.3, "compiled"), ([0.3, 0.1], "compiled"), (0.0, "numpy")):
        assert choose_backend(3_000, Mlp(digits, dropout=dropout), 32) == backend
    for compiler in ("/no/such/compiler", 'cc "x'):
        monkeypatch.setenv("CC", compiler)
        assert choose_backend(10**6, *small) == "numpy"


def test_a_network_of_no_rows_is_not_compiled():
    with pytest.raises(UsageError, match=r"batch_size.*0"):
        Mlp([2, 1]).compile(0)


@pytest.mark.parametrize(("columns", "dtype"), [(1, "float32"), (17, "float64")])
def test_deviations_whose_sum_overflows_have_a_mean(columns, dtype):
    """All near the largest number: their mean is theirs, and each gradient 1 / entries."""
    mlp = Mlp([1, columns], seed=0, dtype=dtype)
    step = TrainingStep(mlp, MeanAbsoluteError(), Sgd(mlp, lr=0.0), 4, backend="compiled")
    assert step.backend == "compiled"
    huge = 0.9 * float(np.finfo(dtype).max)
    x, y = np.zeros((4, 1), dtype), np.full((4, columns), -huge, dtype)
    assert step(x, y) == pytest.approx(huge, rel=1e-6)
    np.testing.assert_allclose(step.grads.d_output, 1 / (4 * columns), rtol=1e-6)


def test_a_loss_over_many_classes_takes_no_stack():
    """Three million classes: two rows of them are three times a thread's stack."""
    classes = 3_000_000
    loss = SoftmaxCrossEntropy()
    output, slot = np.zeros((1, classes), "f4"), np.zeros((1, classes), "f4")
    bound = loss.bind(output, slot)
    bound.target[...] = 7
    instruction = LossInstruction(loss, (output, bound.target, None), (slot, bound.value))
    assert compile_program([instruction], dtype=output.dtype, batch=1).step() == FINISHED
    assert bound.value == pytest.approx(np.log(classes), rel=1e-5)
    assert slot[0, 7] == pytest.approx(-1.0)
    np.testing.assert_allclose(slot[0, [0, -1]], 1 / classes, rtol=1e-4)


@pytest.mark.parametrize(
    ("classes", "dtype", "soft"),
    [(2, "f4", False), (16, "f4", True), (17, "f4", False), (3, "f8", True), (9, "f8", False)],
)
def test_a_loss_over_few_classes_is_that_of_scipy(classes, dtype, soft):
    """Up to a vector of classes, its lanes are rows, of which the last may be missing."""
    batch, smoothing, rng = 37, 0.1, np.random.default_rng(classes)
    by_class, ignored = tuple(rng.uniform(0.5, 2.0, classes).tolist()), None if soft else -1
    loss = SoftmaxCrossEntropy(by_class, smoothing, ignored)
    output = (5 * rng.standard_normal((batch, classes))).astype(dtype)
    labels, slot = rng.integers(-1, classes, batch), np.zeros_like(output)
    hot = (labels[:, None] == np.arange(classes)).astype("f8")
    if soft:
        hot = rng.dirichlet(np.ones(classes), batch).astype(dtype)
    bound = loss.bind(output, slot, weighted=True, target=Spec.of(hot) if soft else None)
    bound.target[...] = hot if soft else labels
    weight = bound.sample_weight
    weight[...] = rng.uniform(0.1, 3.0, batch)
    instruction = LossInstruction(loss, (output, bound.target, weight), (slot, bound.value))
    program = compile_program([instruction], dtype=output.dtype, batch=batch)
    counts = 1.0 if soft else (labels >= 0).astype("f8")[:, None]
    q = ((1 - smoothing) * hot + smoothing / classes) * np.array(by_class) * counts
    for rows in (batch, 16, 5, 1):
        slot.fill(np.nan)
        assert program.for_rows(rows).step() == FINISHED
        logits, shares = output[:rows].astype("f8"), q[:rows] * weight[:rows, None] / rows
        value = -(shares * log_softmax(logits, axis=1)).sum()
        slopes = shares.sum(axis=1, keepdims=True) * softmax(logits, axis=1) - shares
        close = {"rtol": 2e-6 if dtype == "f4" else 1e-14, "atol": 1e-7 if dtype == "f4" else 1e-15}
        np.testing.assert_allclose(bound.value, value, **close)
        np.testing.assert_allclose(slot[:rows], slopes, **close)
        assert np.isnan(slot[rows:]).all()


@pytest.mark.parametrize("classes", [10, 17])
def test_a_row_that_is_not_finite_has_no_loss(classes):
    """Neither NaN nor an infinite output of one row touches the gradients of the others."""
    output, loss = np.zeros((20, classes), "f4"), SoftmaxCrossEntropy()
    slot = np.zeros_like(output)
    bound = loss.bind(output, slot)
    instruction = LossInstruction(loss, (output, bound.target, None), (slot, bound.value))
    program = compile_program([instruction], dtype=output.dtype, batch=20)
    for bad in (np.nan, np.inf):
        for place in ((0, 0), (18, classes - 1)):
            output[...] = 0.0
            output[place] = bad
            program.step()
            assert np.isnan(bound.value)
            assert np.isnan(slot[place[0]]).any()
            others = np.delete(slot, place[0], axis=0)
            np.testing.assert_allclose(others[:, 1:], 1 / classes / 20, rtol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [((130, 10), "f4"), ((37, 2), "f4"), ((20, 1), "f8")],
    ids=str,
)
def test_outputs_of_few_columns_are_dot_products(sizes, dtype):
    """Their vectors run along the inputs, of which the last vector may be partial."""
    lanes = chosen_target().vector_bytes // np.dtype(dtype).itemsize
    sizes = sizes[0], min(sizes[1], lanes // 2 + lanes // 8)  # more columns fill vectors
    mlp = Mlp(sizes, seed=0, dtype=dtype)
    mlp.params.views["0.bias"][...] = np.arange(1, sizes[1] + 1)
    step = TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=0.0), 9, backend="compiled")
    assert "dot_products(sum, rows" in step.emit_c()
    rng = np.random.default_rng(0)
    for rows in (9, 4, 1):  # tiles of two rows, and of one
        x = rng.standard_normal((rows, sizes[0])).astype(dtype)
        step(x, np.zeros((rows, sizes[1]), dtype))
        views = {name: view.astype("f8") for name, view in mlp.params.views.items()}
        truth = x.astype("f8") @ views["0.weight"].T + views["0.bias"]
        tolerance = 2e-6 if dtype == "f4" else 1e-14
        np.testing.assert_allclose(step.scratch.output, truth, rtol=tolerance, atol=tolerance)


def test_a_height_of_rows_that_no_case_computes_traps():
    text = CASES[0].step("compiled").emit_c()
    assert text.count("switch (h)") == text.count("default: __builtin_trap()") > 0


@pytest.mark.parametrize(
    ("order", "x_dtype", "message"),
    [
        (np.arange(31), "f4", "32"),
        (np.arange(32, dtype=np.int32), "f4", "int64"),
        (np.arange(1, 33), "f4", "0 to 31"),
        (np.arange(32), "f8", "float32"),
    ],
)
def test_what_does_not_fit_is_refused(order, x_dtype, message):
    step = CASES[0].step("compiled")
    x, y, _ = CASES[0].data(32)
    with pytest.raises((ShapeError, DataError), match=message):
        step.run_many(x.astype(x_dtype), y, order)
    with pytest.raises(DataError):
        step.run_many(x, y, np.arange(32), np.ones(32, "f4"))
    with pytest.raises(DataError, match="contiguous"):
        step.run_many(np.asfortranarray(x), y, np.arange(32))


def test_many_steps_do_not_let_the_process_grow():
    case = StepCase("two inputs", (2, 16, 1), 4, loss=MeanSquaredError(), optimizer=Sgd)
    step = case.step("compiled")
    x, y, _ = case.data(16)
    order = np.random.default_rng(0).integers(0, 16, 4 * 50_000)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    step.run_many(x, y, order)
    before = resident()
    step.run_many(x, y, order)
    assert resident() - before < 400  # pages of 4 kB; 0.8 MB are the losses and norms
    assert step.optimizer.steps == 100_000


def test_numbers_below_the_smallest_normal_one_are_zero_as_documented():
    gradients = []
    for backend in ("numpy", "compiled"):
        mlp = Mlp([1, 1], seed=0)
        mlp.params.flat[:] = 0
        step = TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=0.0), 1, backend=backend)
        step(np.full((1, 1), 1e-30, "f4"), np.full((1, 1), 1e-12, "f4"))
        gradients.append(float(step.grads.views["0.weight"][0, 0]))
    assert gradients == [pytest.approx(-2e-42, rel=1e-3), 0.0]


def test_a_converged_network_stays_out_of_the_denormal_numbers():
    case = StepCase("converged", (3, 8, 2), 8, "relu", MeanSquaredError(), dtype="float32")
    step = case.step("compiled")
    x, _, _ = case.data(8)
    step.run_many(x, step.mlp.predict(x), np.tile(np.arange(8), 3000))
    tiny = np.finfo(np.float32).tiny
    for moment in step.optimizer.moments.values():
        assert not np.any((moment != 0) & (np.abs(moment) < tiny))


def test_the_source_can_be_read():
    text = CASES[0].step("compiled").emit_c()
    assert "/* linear_3 = input p_0_weight^T; tanh_4 = tanh forward */" in text
    with pytest.raises(CompileError, match="the whole step must be compiled"):
        CASES[0].step("numpy").emit_c()


@pytest.mark.parametrize(
    ("sizes", "threads"), [((64, 256, 128, 10), 2), ((40, 1024, 300, 5), 1)], ids=str
)
def test_a_processor_may_read_columns_in_place_of_panels(sizes, threads, monkeypatch):
    """What is packed depends on the processor; the bits do not."""
    outcomes, texts = [], []
    for reads_columns in (False, True):
        monkeypatch.setattr(CompileTarget, "reads_columns", reads_columns)
        monkeypatch.setattr(executor, "_newest", lambda: None)
        mlp = Mlp(sizes, seed=0)
        options = {"backend": "compiled", "threads": threads}
        step = TrainingStep(mlp, SoftmaxCrossEntropy(), Sgd(mlp, lr=0.1), 96, **options)
        rng = np.random.default_rng(0)
        x, y = rng.standard_normal((96, sizes[0]), "f4"), rng.integers(0, sizes[-1], 96)
        losses, _ = step.run_many(x, y, np.tile(np.arange(96), 3))
        outcomes.append((losses.tobytes(), mlp.params.flat.tobytes()))
        texts.append(step.emit_c())
    assert texts[0] != texts[1]
    assert outcomes[0] == outcomes[1]
