"""Convolutions in compiled steps: patches and products, with every geometry."""

import numpy as np
import pytest

from mlpengine import Adam, MeanSquaredError, TrainingStep
from mlpengine.backends.compiled import emitter
from mlpengine.nn import Network

ROWS = 9

GEOMETRIES = {
    "plain": ({}, (3, 2)),
    "padded": ({"padding": (1, 2)}, (3, 3)),
    "strided, dilated": ({"stride": (2, 1), "dilation": (1, 2), "padding": 1}, (2, 2)),
    "of one pixel": ({"stride": 2}, (1, 1)),
}


class Images(Network):
    """Two convolutions, of which the second has a gradient of its input."""

    def __init__(self, options, kernel, **others):
        self.options = dict(options)
        shapes = {
            "first": (3, 2, *kernel),
            "first.bias": 3,
            "second": (4, 3, *kernel),
            "out": (2, 4),
        }
        super().__init__((2, 7, 8), shapes, **others)

    def record(self, tape, x):
        p = tape.parameter
        h = x.conv2d(p("first"), p("first.bias"), **self.options).tanh()
        h = h.conv2d(p("second"), **self.options).tanh()
        return h.mean(axis=(2, 3)).linear(p("out"))


def make_step(name, backend, dtype="float64", **options):
    network = Images(*GEOMETRIES[name], seed=1, dtype=dtype)
    adam = Adam(network, lr=1e-2)
    return TrainingStep(network, MeanSquaredError(), adam, ROWS, backend=backend, **options)


def losses(step, count=20):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((ROWS, *n)).astype(step.mlp.dtype) for n in ((2, 7, 8), (2,)))
    ends = [ROWS - 4 * (i % 3 == 2) for i in range(count)]
    return [step(x[:n], y[:n]) for n in ends]


@pytest.mark.parametrize("name", GEOMETRIES)
def test_steps_are_one_program_and_those_of_numpy(name):
    step = make_step(name, "compiled")
    np.testing.assert_allclose(losses(step), losses(make_step(name, "numpy")), rtol=1e-10)
    assert step.fused


@pytest.mark.parametrize("chunk", [0, None])
def test_threads_change_no_bit_in_chunks_and_without(chunk, monkeypatch):
    monkeypatch.setattr(emitter, "STEP_TERMS_PER_THREAD", 1)
    if chunk is not None:
        monkeypatch.setattr(emitter, "STREAM_BYTES", chunk)
        monkeypatch.setattr(emitter, "CHUNK_BYTES", chunk)
    one, two = (make_step("padded", "compiled", "float32", threads=n) for n in (1, 2))
    assert losses(one) == losses(two)
    assert one.mlp.params.flat.tobytes() == two.mlp.params.flat.tobytes()
    assert "#define THREADS 2\n" in two.emit_c()


def test_rows_become_images_and_their_sums_rows_of_as_many_columns():
    class Reshaped(Network):
        def record(self, tape, x):
            h = x.linear(tape.parameter("in")).tanh().reshape(-1, 1, 1, 8)
            h = h.conv2d(tape.parameter("filter")).reshape(-1, 6).tanh()
            return h.linear(tape.parameter("out"))

    losses = []
    for backend in ("numpy", "compiled"):
        network = Reshaped(3, {"in": (8, 3), "filter": (1, 1, 1, 3), "out": (2, 6)}, seed=1)
        step = TrainingStep(network, MeanSquaredError(), Adam(network), ROWS, backend=backend)
        x = np.random.default_rng(0).standard_normal((ROWS, 3)).astype(np.float32)
        losses.append([step(x, np.sin(x[:, :2])) for _ in range(20)])
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert step.fused


def test_groups_of_channels_stay_in_numpy_and_say_so():
    class Grouped(Network):
        def record(self, tape, x):
            h = x.conv2d(tape.parameter("w"), groups=2)
            return h.reshape(x.shape[0], -1).linear(tape.parameter("out"))

    network = Grouped((2, 3, 3), {"w": (4, 1, 2, 2), "out": (1, 16)})
    step = TrainingStep(network, MeanSquaredError(), Adam(network), 4, backend="compiled")
    assert "NumPy (conv2d forward)" in step.summary()
