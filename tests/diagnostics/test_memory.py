"""Observing allocates nothing that grows with the batch."""

from itertools import count

import numpy as np
import pytest
from traced import least_peak

from mlpengine import Adam, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.diagnostics import Diagnostics


def peak(rows, activation):
    """Return the peak of traced memory while one step is sampled."""
    mlp = Mlp([8, 16, 12, 4], activation=activation, dropout=0.1, seed=0)
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), Adam(mlp), rows)
    seen = Diagnostics(mlp, every=1)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((rows, 8)).astype("f4"), rng.integers(0, 4, rows)

    numbers = count(1)

    def sample():
        number = next(numbers)
        assert seen.after_step(step.scratch, step.grads, number, norm=step.grad_norm, rows=y)

    step(x, y)
    for _ in range(3):
        sample()
    return least_peak(sample)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_sample_needs_no_memory_that_grows_with_the_batch(activation):
    assert abs(peak(65_536, activation) - peak(16_384, activation)) < 1024
