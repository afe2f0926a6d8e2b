"""Observing allocates nothing that grows with the batch."""

import tracemalloc

import numpy as np
import pytest

from mlpengine import Adam, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.diagnostics import Diagnostics


def peak(rows, activation, spoil=None):
    """Return the peak of traced memory while one step is sampled."""
    mlp = Mlp([8, 16, 12, 4], activation=activation, dropout=0.1, seed=0)
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), Adam(mlp), rows)
    seen = Diagnostics(mlp, every=1)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((rows, 8)).astype("f4"), rng.integers(0, 4, rows)

    def after_step(number):
        step(x, y)
        if number == 4:
            tracemalloc.start()
        sampled = seen.after_step(step.scratch, step.grads, number, norm=step.grad_norm, rows=y)
        assert sampled
        if spoil is not None:
            spoil(step)

    for number in (1, 2, 3, 4):
        after_step(number)
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return highest


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_a_sample_needs_no_memory_that_grows_with_the_batch(activation):
    assert abs(peak(65_536, activation) - peak(16_384, activation)) < 1024


def test_the_measurement_sees_memory_that_grows():
    def spoil(step):
        step.scratch.activations[0].copy()

    assert peak(65_536, "relu", spoil) - peak(16_384, "relu", spoil) > 1_000_000
