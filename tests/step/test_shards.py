"""Shards: the gradient of a batch as a sum in an order that is fixed."""

import copy

import numpy as np
import pytest

from mlpengine import MeanSquaredError, Mlp, Sgd, SoftmaxCrossEntropy, TrainingStep
from mlpengine.core.errors import IndexRangeError, NumericalError, UsageError
from mlpengine.ops import Quantile
from mlpengine.step.shards import shard_rows

BATCH = 12

CASES = {
    "classes": {},
    "weighted": {"weighted": True, "clip_norm": 0.05},
    "numbers": {"loss": MeanSquaredError()},
    "several levels": {"loss": Quantile((0.1, 0.5, 0.9))},
    "class weights": {
        "loss": SoftmaxCrossEntropy(label_smoothing=0.1, class_weights=(1.0, 2.0, 0.5))
    },
    "an op without a compiled rule": {"mlp": {"output_activation": "softmax"}},
    "dropout": {"mlp": {"dropout": 0.4}},
    "dropout and rematerialization": {
        "mlp": {"dropout": 0.4, "activation": "gelu"},
        "rematerialization": "balanced",
    },
}


def new_step(backend, shards, *, loss=None, mlp=None, dtype="float64", **options):
    network = Mlp([5, 7, 9, 3], seed=1, dtype=dtype, **{"activation": "tanh", **(mlp or {})})
    options["clip_norm"] = copy.deepcopy(options.get("clip_norm"))
    loss = loss or SoftmaxCrossEntropy()
    optimizer = Sgd(network, lr=0.05, momentum=0.9)
    return TrainingStep(network, loss, optimizer, BATCH, backend=backend, shards=shards, **options)


def batches(loss, dtype="float64"):
    """Yield full batches, and one with fewer rows than shards."""
    rng = np.random.default_rng(0)
    for rows in (BATCH, BATCH, 3, BATCH):
        x = rng.standard_normal((rows, 5)).astype(dtype)
        if isinstance(loss, SoftmaxCrossEntropy):
            y = rng.integers(0, 3, rows)
        else:
            columns = 1 if isinstance(loss, Quantile) else 3
            y = rng.standard_normal((rows, columns)).astype(dtype)
        yield x, y, rng.uniform(0.5, 2, rows).astype(dtype)


def losses_of(step):
    values = []
    for x, y, weights in batches(step.loss, step.mlp.dtype):
        value = step(x, y, weights) if step.weighted else step(x, y)
        values += [value, step.grad_norm, step.clipped_norm]
    return values


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, "numpy") for name in CASES), ("dropout", "compiled")],
)
def test_shards_add_up_to_the_batch(name, backend):
    whole, parts = (new_step(backend, shards, **CASES[name]) for shards in (1, 4))
    np.testing.assert_allclose(losses_of(parts), losses_of(whole), rtol=1e-11)
    np.testing.assert_allclose(parts.mlp.params.flat, whole.mlp.params.flat, rtol=1e-11)
    assert parts.backend == backend


def test_the_order_of_additions_is_that_of_a_binary_tree(backend):
    """In float32, where the gradients of eight shards cancel by their order."""
    gradients = np.array([1, 1e8, -1e8, 1, 3, 1e8, 1, -1e8], np.float32)
    mlp = Mlp([1, 1], seed=0)
    mlp.params.flat[...] = 0
    step = TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=0), 8, backend=backend, shards=8)
    step(np.ones((8, 1), "f4"), -4 * gradients[:, None])  # (0 + 4 g)**2 / 8 has the slope g
    a, b, c, d, e, f, g, h = gradients
    tree = ((a + b) + (c + d)) + ((e + f) + (g + h))
    assert tree != gradients.sum(dtype=np.float64)
    np.testing.assert_array_equal(step.grads.flat, [tree, tree])


@pytest.mark.parametrize(("rows", "shards"), [(16, 4), (5, 4), (1, 4), (7, 2), (9, 8)])
def test_shards_are_even_and_the_first_has_rows(rows, shards):
    parts = shard_rows(rows, shards)
    sizes = [part.stop - part.start for part in parts]
    assert sum(sizes) == rows
    assert max(sizes) - min(sizes) <= 1
    assert sizes[0] == max(sizes)
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]


def test_a_row_that_is_not_finite_is_named_and_nothing_changes(backend):
    step = new_step(backend, 4)
    x, y, _ = next(batches(step.loss))
    before = step.mlp.params.flat.copy()
    x[8, 2] = np.nan
    with pytest.raises(NumericalError, match=r"input is not, in row 8 of the batch"):
        step(x, y)
    assert step.bad_rows == [8]
    np.testing.assert_array_equal(step.mlp.params.flat, before)
    assert step.optimizer.steps == 0
    x[8, 2] = 0
    step(x, y)


def test_a_copy_has_the_gradient_of_the_last_step():
    step = new_step("numpy", 4)
    losses_of(step)
    assert step.grads.flat.any()
    np.testing.assert_array_equal(copy.deepcopy(step).grads.flat, step.grads.flat)


def test_a_class_out_of_range_is_named():
    step = new_step("numpy", 4)
    x, y, _ = next(batches(step.loss))
    y[8] = 3
    with pytest.raises(IndexRangeError, match=r"row 2 has 3\).*row 0 is row 6 of the batch"):
        step(x, y)


@pytest.mark.parametrize(
    ("shards", "text"),
    [(3, "power of two"), (0, "power of two"), (16, "at most the batch size, 12")],
)
def test_a_wrong_number_of_shards_is_refused(shards, text):
    with pytest.raises(UsageError, match=text):
        new_step("numpy", shards)
