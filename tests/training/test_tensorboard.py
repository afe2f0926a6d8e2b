"""Event files, read back by TensorBoard."""

from contextlib import contextmanager

import numpy as np
import pytest

from mlpengine import Adam, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.core.errors import NumericalError
from mlpengine.models.task import Classification, Split
from mlpengine.training.loop import Loop

pytest.importorskip("tensorboard", reason="needs the extra tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mlpengine.training.tensorboard import TensorBoard


def make_loop(callbacks, *, epochs=3, validation=True, optimizer=Adam, **options):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 4)).astype("f4")
    y = (x[:, 0] > 0).astype("i8")
    mlp = Mlp([4, 8, 2], seed=0)
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), optimizer(mlp, **options), 16)
    part = Split(x, y, y)
    held_out = part if validation else None
    return Loop(step, Classification(2), part, held_out, epochs=epochs, callbacks=callbacks)


def scalars(directory):
    """Return {tag: [(step, value), ...]} of all event files in a directory."""
    reader = EventAccumulator(str(directory), purge_orphaned_data=True)
    reader.Reload()
    return {
        tag: [(event.step, event.value) for event in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


@contextmanager
def started(directory, loop):
    """Yield a callback with an open file."""
    board = TensorBoard(directory)
    board.on_train_start(loop)
    yield board
    board.on_exception(loop, NumericalError(""))


def test_a_run_reads_back(tmp_path):
    loop = make_loop([TensorBoard(tmp_path)])
    rows = loop.run().history.rows
    found = scalars(tmp_path)
    expected = {
        "train/loss": [row.train_loss for row in rows],
        "validation/loss": [row.validation["loss"] for row in rows],
        "validation/accuracy": [row.validation["accuracy"] for row in rows],
        "validation/macro_f1": [row.validation["macro_f1"] for row in rows],
        "epoch/lr": [row.lr for row in rows],
        "epoch/gradient_norm": [row.gradient_norm for row in rows],
        "epoch/samples_per_second": [row.samples_per_second for row in rows],
    }
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert [step for step, _ in found[name]] == [3, 6, 9]
        np.testing.assert_allclose([value for _, value in found[name]], values, rtol=1e-6)


def test_a_resumed_run_hides_what_was_beyond_its_checkpoint(tmp_path):
    with started(tmp_path, make_loop([])) as board:
        for step in (10, 20, 30):
            board.add_scalars(step, {"train/loss": 1.0})
    resumed = make_loop([])
    resumed.step.optimizer.steps = 20  # as a checkpoint would set it
    with started(tmp_path, resumed) as board:
        board.add_scalars(25, {"train/loss": 2.0})
    assert scalars(tmp_path)["train/loss"] == [(10, 1.0), (20, 1.0), (25, 2.0)]


def test_values_that_are_not_finite_are_left_out(tmp_path):
    with started(tmp_path, make_loop([])) as board:
        board.add_scalars(1, {"good": 1.5, "bad": float("nan"), "worse": float("inf")})
    assert scalars(tmp_path) == {"good": [(1, 1.5)]}
