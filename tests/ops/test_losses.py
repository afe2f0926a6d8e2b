"""The losses as callables: what they write, remember, refuse and allocate."""

from math import fsum

import numpy as np
import pytest
from traced import least_peak

from mlpengine import Loop, Mlp, Sgd, TrainingStep
from mlpengine.core.errors import DtypeError, IndexRangeError, ShapeError
from mlpengine.core.spec import Spec
from mlpengine.models import Classification, Split
from mlpengine.ops import (
    BinaryCrossEntropyWithLogits,
    Gamma,
    GaussianNll,
    Huber,
    KnownTargets,
    MeanAbsoluteError,
    MeanSquaredError,
    Ordinal,
    Poisson,
    Quantile,
    SoftmaxCrossEntropy,
)
from mlpengine.ops.loss import MAX_BINDINGS, row_totals, wide_spec

DISTANCES = [MeanSquaredError(), MeanAbsoluteError(), Huber(0.7), BinaryCrossEntropyWithLogits(2)]
ALL = [*DISTANCES, SoftmaxCrossEntropy(), SoftmaxCrossEntropy(label_smoothing=0.1)]
every_loss = pytest.mark.parametrize("loss", ALL, ids=lambda x: x.name)
every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def batch(loss, rows=6, dtype="float32", seed=0):
    """Return an output, a target and sample weights."""
    rng = np.random.default_rng(seed)
    output = rng.standard_normal((rows, 4)).astype(dtype)
    if isinstance(loss, SoftmaxCrossEntropy):
        target = rng.integers(0, 4, rows)
    else:
        target = rng.random((rows, 4)).astype(dtype)
    return output, target, rng.random(rows).astype(dtype)


def differences(loss, output, target, weight):
    """Return the gradient by the output, entry by entry, from float64 values."""
    output = output.astype(np.float64)
    target = target.astype(np.float64) if target.dtype.kind == "f" else target
    found = np.empty_like(output)
    for place in np.ndindex(output.shape):
        ends = []
        for sign in (1, -1):
            moved = output.copy()
            moved[place] += sign * 1e-6
            ends.append(loss(moved, target, None, weight))
        found[place] = (ends[0] - ends[1]) / 2e-6
    return found


@every_loss
@every_dtype
@pytest.mark.parametrize("weighted", [False, True])
def test_a_call_returns_the_value_and_overwrites_the_gradient(loss, dtype, weighted):
    output, target, weight = batch(loss, dtype=dtype)
    weight = weight if weighted else None
    d_output = np.full_like(output, np.nan)
    value = loss(output, target, d_output, weight)
    assert type(value) is float
    assert value == pytest.approx(loss(output, target, sample_weight=weight), rel=1e-12)
    expected = differences(loss, output, target, weight)
    np.testing.assert_allclose(d_output, expected, atol=2e-7 if dtype == "float32" else 1e-9)


def peak_of_a_call(loss, rows):
    """Return the peak of traced memory of a call on arrays that were bound before."""
    output, target, weight = batch(loss, rows=rows)
    d_output = np.empty_like(output)
    loss(output, target, d_output, weight)
    known = list(vars(loss)["_bindings"].values())
    peak = least_peak(loss, output, target, d_output, weight)
    assert list(vars(loss)["_bindings"].values()) == known
    return peak


@every_loss
def test_a_second_call_on_the_same_arrays_binds_nothing_and_allocates_nothing(loss):
    assert peak_of_a_call(loss, 32768) - peak_of_a_call(loss, 16384) < 1024


@every_loss
def test_bindings_are_few_and_never_mixed_up(loss):
    pairs = [batch(loss, rows=rows, seed=rows) for rows in range(1, 2 * MAX_BINDINGS)]
    gradients = [np.empty_like(output) for output, *_ in pairs]
    once = [loss(o, t, d, w) for (o, t, w), d in zip(pairs, gradients, strict=True)]
    again = [loss(o, t, d, w) for (o, t, w), d in zip(pairs, gradients, strict=True)]
    assert once == again
    assert len(vars(loss)["_bindings"]) == MAX_BINDINGS


@every_loss
def test_a_bound_loss_replays_on_its_buffers(loss):
    output, target, weight = batch(loss)
    d_output = np.empty_like(output)
    bound = loss.bind(output, d_output, weighted=True)
    for seed in (1, 2):
        new, target, weight = batch(loss, seed=seed)
        output[...], bound.target[...], bound.sample_weight[...] = new, target, weight
        for call in bound.calls:
            call()
        expected = np.empty_like(output)
        assert float(bound.value) == loss(new, target, expected, weight)
        np.testing.assert_array_equal(d_output, expected)


@every_loss
def test_a_loss_of_a_shorter_batch_reads_the_memory_of_the_whole_one(loss):
    output, target, weight = batch(loss)
    whole = loss.bind(output, np.empty_like(output), weighted=True)
    d_output = np.empty((4, 4), "f4")
    short = loss.bind(output[:4], d_output, weighted=True, memory=whole)
    whole.target[...], whole.sample_weight[...] = target, weight
    expected = np.empty_like(d_output)
    assert short.run() == loss(output[:4], target[:4], expected, weight[:4])
    np.testing.assert_array_equal(d_output, expected)


@every_dtype
@pytest.mark.parametrize("shape", [(40_000, 1), (12_000, 3), (700, 32), (500, 33), (1, 40_000)])
def test_rows_are_added_in_float64(shape, dtype):
    x = np.random.default_rng(3).standard_normal(shape).astype(dtype)
    out = np.full(len(x), np.nan)
    wide = np.full(wide_spec(Spec.of(x)).shape, np.nan)
    for run in row_totals(x, wide, out):
        run()
    np.testing.assert_allclose(out, [fsum(row) for row in x.tolist()], rtol=0, atol=1e-11)


@every_dtype
def test_the_value_is_summed_in_float64(dtype):
    tenths, ones = np.full((1 << 20, 1), 0.1, dtype), np.ones((1 << 20, 1), dtype)
    exact = float(np.square(tenths[0, 0], dtype=dtype))
    loss, zeros = MeanSquaredError(), np.zeros_like(ones)
    assert loss(tenths, zeros) == pytest.approx(exact, rel=1e-12)
    assert loss(ones, zeros, None, tenths[:, 0]) == pytest.approx(float(tenths[0, 0]), rel=1e-12)


@every_loss
def test_a_value_that_is_not_finite_is_returned_as_it_is(loss):
    output, target, _ = batch(loss)
    output[2, 1] = np.nan
    d_output = np.empty_like(output)
    assert np.isnan(loss(output, target, d_output))
    assert np.isnan(d_output[2, 1])
    assert np.isfinite(np.delete(d_output, 2, axis=0)).all()


@pytest.mark.parametrize("label", [4, -1, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("classes", [4, 400])
def test_a_class_out_of_range_is_named_with_its_row(label, classes):
    labels = np.array([0, 3, label * (classes // 4) if label == 4 else label, 1])
    with pytest.raises(IndexRangeError, match=rf"0 to {classes - 1} \(row 2 has {labels[2]}\)"):
        SoftmaxCrossEntropy()(np.zeros((4, classes)), labels, np.zeros((4, classes)))


def test_an_ignored_index_may_lie_outside_but_others_must_not():
    loss, labels = SoftmaxCrossEntropy(ignore_index=-100), np.array([0, -100, -1])
    with pytest.raises(IndexRangeError, match=r"row 2 has -1"):
        loss(np.zeros((3, 2)), labels, np.zeros((3, 2)))
    assert loss(np.zeros((2, 2)), labels[:2], np.zeros((2, 2))) == pytest.approx(np.log(2) / 2)


DOMAINS = {
    "bce_with_logits": (BinaryCrossEntropyWithLogits(), "lie in 0 to 1", (2.0, -0.5)),
    "ordinal": (Ordinal(2), "lie in 0 to 1", (2.0, -1.0)),
    "poisson": (Poisson(), "be 0 or more", (-1e-30, -3.0)),
    "gamma": (Gamma(), "be more than 0", (0.0, -0.0, -3.0)),
}


@every_dtype
@pytest.mark.parametrize("name", DOMAINS)
def test_a_target_outside_the_domain_is_named_with_its_row(name, dtype):
    loss, wanted, values = DOMAINS[name]
    output = np.zeros((3, 2 * loss.columns), dtype)
    good = np.array([[1.0, 1.0], [-0.0, 0.5], [1.0, 1e-30]], dtype)
    good[1, 0] = 0.25 if loss.open_below else -0.0
    assert np.isfinite(loss(output, good, np.empty_like(output)))
    for value in (*values, -np.inf):
        target = good.copy()
        target[2, 1] = value
        with pytest.raises(IndexRangeError, match=rf"must {wanted} \(row 2 has {value:g}\)"):
            loss(output, target, np.empty_like(output))
    target[2, 1] = np.nan
    assert np.isnan(loss(output, target))


REFUSED = [
    (SoftmaxCrossEntropy(), (3, 1), np.zeros(3, int), None, ShapeError, "takes bce_with_logits"),
    (MeanSquaredError(), (3, 1), np.zeros(3), None, ShapeError, r"shape of output .*float64\[3\]"),
    (MeanSquaredError(), (3,), ["a", "b", "c"], None, DtypeError, "mse: target: dtype must be"),
    (MeanSquaredError(), (3, 2), np.zeros((3, 2)), np.zeros(2), ShapeError, "sample_weight: shape"),
    (MeanSquaredError(), (3,), np.zeros(3), np.zeros(3, complex), DtypeError, "sample_weight: dty"),
    (SoftmaxCrossEntropy(), (3, 2), np.zeros(2, int), None, ShapeError, "one index"),
    (SoftmaxCrossEntropy(), (3, 2), np.zeros(3, bool), None, DtypeError, "class indices"),
    (SoftmaxCrossEntropy(ignore_index=1), (3, 2), np.zeros((3, 2)), None, DtypeError, "ignore"),
    (SoftmaxCrossEntropy(), (3,), np.zeros(3, int), None, ShapeError, r"\(batch, classes\)"),
]


@pytest.mark.parametrize(("loss", "shape", "target", "weight", "error", "says"), REFUSED)
def test_targets_and_weights_that_do_not_fit_are_refused(loss, shape, target, weight, error, says):
    with pytest.raises(error, match=says):
        loss(np.zeros(shape), target, np.zeros(shape), weight)


def test_targets_and_weights_are_checked_at_every_call():
    loss, output, d_output = MeanSquaredError(), np.zeros((3, 2)), np.zeros((3, 2))
    loss(output, np.zeros((3, 2)), d_output)
    with pytest.raises(ShapeError, match="mse: target: shape"):
        loss(output, np.zeros((2, 2)), d_output)
    with pytest.raises(ShapeError, match="d_output must have the shape"):
        loss(output, np.zeros((3, 2)), np.zeros((3, 2), np.float32))


@pytest.mark.parametrize(
    ("row", "told"),
    [([1, 0, 1], "row 1 sums to 2"), ([0, -1, 0], "row 1 sums to -1, with -1 in it")],
)
def test_rows_that_are_no_probabilities_are_refused(row, told):
    mlp, loss = Mlp([2, 3], seed=0), SoftmaxCrossEntropy()
    step = TrainingStep(mlp, loss, Sgd(mlp, lr=0.1), 2)
    x, y = np.ones((2, 2), "float32"), np.array([[0.1, 0.2, 0.7], row], "float32")
    before = mlp.params.flat.copy()
    calls = (
        lambda: loss(np.zeros((2, 3), "float32"), y),
        lambda: step(x, y),
        lambda: step.run_many(x, y, np.arange(2)),
        lambda: Loop(step, Classification(3), Split(x, y, np.zeros(2, int)), epochs=1),
    )
    for call in calls:
        with pytest.raises(IndexRangeError, match=f"{told}.*BinaryCrossEntropyWithLogits"):
            call()
    np.testing.assert_array_equal(mlp.params.flat, before)


@pytest.mark.parametrize("loss", [MeanSquaredError(), GaussianNll(), Quantile((0.2, 0.7))])
def test_missing_targets_have_neither_loss_nor_gradient(loss):
    """The reference is the loss of each known entry alone."""
    rng, n = np.random.default_rng(3), loss.columns
    output, target, weight = rng.normal(size=(40, 3 * n)), rng.normal(size=(40, 3)), rng.random(40)
    target[rng.random(target.shape) < 0.4] = np.nan
    value, slope = 0.0, np.zeros_like(output)
    for i, k in np.argwhere(~np.isnan(target)):
        place, one = (slice(i, i + 1), slice(k * n, k * n + n)), np.empty((1, n))
        value += weight[i] * loss(output[place].copy(), target[i : i + 1, k : k + 1], one) / 120
        slope[place] = one * weight[i] / 120
    d_output = np.full_like(output, np.nan)
    assert KnownTargets(loss)(output, target, d_output, weight) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(d_output, slope, rtol=1e-10, atol=1e-15)
    x, weights = rng.normal(size=(40, 4)), []
    for backend in ("numpy", "numexpr", "compiled"):
        mlp = Mlp([4, 8, 3 * n], seed=1, dtype="float64")
        step = TrainingStep(mlp, KnownTargets(loss), Sgd(mlp), 40, backend=backend)
        weights.append([step(x, target), *mlp.params.flat])
    np.testing.assert_allclose(weights[1:], weights[:1] * 2, rtol=1e-10)
    best = KnownTargets(loss).best_constant(target, 3 * n)
    alone = [loss.best_constant(column[~np.isnan(column), None], n) for column in target.T]
    np.testing.assert_array_equal(best, np.concatenate(alone))
