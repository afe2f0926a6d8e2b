"""Networks of one's own resume, train on threads and are diagnosed as an `Mlp` is."""

import pickle

import numpy as np
import pytest
from own_networks import BATCH, EIGHT, SEVERAL, data, loop_of, losses_of, make_step
from traced import least_peak

from mlpengine.backends.compiled import emitter
from mlpengine.training.loop import Callback

BACKENDS = ("numpy", "compiled")

RESUMED = ("residual with dropout", "two tables", "autoencoder", "batch norm")
"""Networks with dropout, several losses, samples and running averages."""


class Keeper(Callback):
    """Keeps the state of a loop after ten steps, within its third epoch."""

    def on_train_batch_end(self, loop):
        if loop.steps == 10:
            self.state = pickle.dumps(loop.state_dict())


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, "numpy") for name in RESUMED), ("two tables", "compiled")],
)
def test_a_loop_continues_from_its_state_with_the_same_bits(name, backend):
    keeper = Keeper()
    whole, second = loop_of(name, 6, backend, [keeper]), loop_of(name, 6, backend)
    result = whole.run()
    second.load_state_dict(pickle.loads(keeper.state))
    assert second.run().best_epoch == result.best_epoch
    assert second.step.mlp.params.flat.tobytes() == whole.step.mlp.params.flat.tobytes()
    history = [row.validation for row in whole.history.rows]
    assert history == [row.validation for row in second.history.rows]
    losses = [row["loss"] for row in history]
    assert min(losses[1:]) < losses[0]
    if name in SEVERAL:
        weights = whole.step.loss.weights.items()
        totals = [sum(weight * row[f"loss of {n}"] for n, weight in weights) for row in history]
        assert losses == pytest.approx(totals, rel=1e-12)
        return
    held, network = whole.validation, whole.step.mlp
    output = network.predict(held.x)  # of the best weights, without dropout
    expected = whole.step.loss(output, held.y, np.empty_like(output))
    assert min(losses) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float32") for name in ("residual with dropout", "two tables")),
        *((name, "float64") for name in ("batch norm of layers",)),
    ],
)
def test_threads_change_no_bit(name, dtype, monkeypatch):
    """Those of convolutions, and parts around a pooling, have tests of their own."""
    monkeypatch.setattr(emitter, "STEP_TERMS_PER_THREAD", 1)
    options = {"dtype": dtype, "backend": "compiled"}
    steps = [make_step(name, threads=threads, **options) for threads in (1, 2)]
    count = 40 if name in EIGHT else 32  # a short batch of the others has a program of its own
    one, two = (
        (losses_of(step, name, count=count), step.mlp.params.flat.tobytes()) for step in steps
    )
    assert one == two
    assert [step.threads_used for step in steps] == [1, 2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_steps_allocate_nothing(backend):
    name = "two tables"
    step, (x, y), held = make_step(name, backend=backend), data(name, BATCH), []
    for count in (2, 100, 700):
        order = np.arange(count * BATCH) % BATCH
        losses, norms = step.run_many(x, y, order)
        assert len(losses) == count
        peak = least_peak(step.run_many, x, y, order)
        held.append(peak - losses.nbytes - norms.nbytes)
    assert held[2] - held[1] < 8 * 600  # 8 bytes a step: less than any object
