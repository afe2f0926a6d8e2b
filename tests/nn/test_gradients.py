"""Gradients: norms, clipping, scaling, short batches."""

import numpy as np
import pytest

from mlpengine import Mlp


@pytest.fixture
def trained():
    mlp = Mlp([4, 6, 3], seed=0)
    scratch, grads = mlp.scratch(8), mlp.gradients(8, input_gradient=True)
    rng = np.random.default_rng(0)
    mlp.forward(rng.standard_normal((8, 4)), scratch)
    grads.d_output[...] = rng.standard_normal((8, 3))
    mlp.backward(scratch, grads)
    return mlp, scratch, grads


def test_views_tile_the_flat_vector(trained):
    mlp, _, grads = trained
    assert grads.flat.size == mlp.params.flat.size
    parts = [a for pair in zip(grads.d_weights, grads.d_biases, strict=True) for a in pair]
    np.testing.assert_array_equal(np.concatenate([p.ravel() for p in parts]), grads.flat)
    for part in parts:
        assert np.shares_memory(part, grads.flat)


@pytest.mark.parametrize("rows", [0, 1, 5, 8])
def test_short_batches_replay_on_the_same_memory(trained, rows):
    mlp, scratch, grads = trained
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
