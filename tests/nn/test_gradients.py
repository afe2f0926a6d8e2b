"""Gradients of short batches."""

import numpy as np
import pytest

from mlpengine import Mlp


@pytest.mark.parametrize("rows", [0, 1, 5, 8])
def test_short_batches_replay_on_the_same_memory(rows):
    mlp = Mlp([4, 6, 3], seed=0)
    scratch, grads = mlp.scratch(8), mlp.gradients(8, input_gradient=True)
    short, short_grads = scratch.for_rows(rows), grads.for_rows(rows)
    assert short is scratch.for_rows(rows)
    assert np.shares_memory(short.input, scratch.input) or rows == 0
    assert short_grads.flat is grads.flat
    x = np.random.default_rng(1).standard_normal((rows, 4)).astype("f4")
    mlp.forward(x, short)
    short_grads.d_output[...] = 1
    mlp.backward(short, short_grads)
    alone, alone_grads = mlp.scratch(rows), mlp.gradients(rows)
    mlp.forward(x, alone)
    alone_grads.d_output[...] = 1
    mlp.backward(alone, alone_grads)
    np.testing.assert_array_equal(short.output, alone.output)
    np.testing.assert_array_equal(short_grads.flat, alone_grads.flat)
