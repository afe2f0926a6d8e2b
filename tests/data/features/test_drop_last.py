"""Epochs that leave out the rows that do not fill a batch."""

import numpy as np
import pytest

from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep
from mlpengine.core.errors import DataError
from mlpengine.data.features import Batches, NumberTarget
from mlpengine.data.features.batches import steps_of_epoch
from mlpengine.models.task import Regression, Split
from mlpengine.training.loop import Loop


def test_an_epoch_has_whole_batches_of_other_rows_each_time():
    batches = Batches(11, 4, seed=1, drop_last=True)
    seen = set()
    for _ in range(20):
        epoch = [*batches.epoch()]
        assert [len(rows) for rows in epoch] == [4, 4]
        assert len(batches) == 2 == steps_of_epoch(11, 4, drop_last=True)
        assert len({*np.concatenate(epoch)}) == 8
        assert batches.is_done
        seen |= {*np.concatenate(epoch)}
    assert seen == {*range(11)}


def test_rows_that_fill_no_batch_are_refused():
    with pytest.raises(DataError, match="a whole batch is needed with drop_last"):
        Batches(3, 4, drop_last=True)


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_a_loop_makes_the_steps_of_whole_batches(backend):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((43, 3)).astype("f4"), rng.standard_normal((43, 1)).astype("f4")

    def network():
        mlp = Mlp([3, 5, 1])
        return mlp, TrainingStep(mlp, MeanSquaredError(), Adam(mlp), 8, backend=backend)

    mlp, step = network()
    task = Regression(NumberTarget(["y"], [0.0], [1.0]))
    loop = Loop(step, task, Split(x, y, y), epochs=3, seed=5, drop_last=True)
    loop.run()
    assert loop.steps == 3 * 5
    other, step = network()
    batches = Batches(43, 8, seed=5)
    for _ in range(3):
        for rows in [*batches.epoch()][:-1]:
            step(x[rows], y[rows])
    np.testing.assert_array_equal(mlp.params.flat, other.params.flat)
