"""Epochs that leave out the rows that do not fill a batch."""

import numpy as np

from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep
from mlpengine.data.features import Batches, NumberTarget
from mlpengine.models.task import Regression, Split
from mlpengine.training.loop import Loop


def test_a_loop_makes_the_steps_of_whole_batches():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((43, 3)).astype("f4"), rng.standard_normal((43, 1)).astype("f4")

    def network():
        mlp = Mlp([3, 5, 1])
        return mlp, TrainingStep(mlp, MeanSquaredError(), Adam(mlp), 8)

    mlp, step = network()
    task = Regression(NumberTarget(["y"], [0.0], [1.0]))
    loop = Loop(step, task, Split(x, y), epochs=3, seed=5, drop_last=True)
    loop.run()
    assert loop.steps == 3 * 5
    other, step = network()
    batches = Batches(43, 8, seed=5)
    for _ in range(3):
        for rows in [*batches.epoch()][:-1]:
            step(x[rows], y[rows])
    np.testing.assert_array_equal(mlp.params.flat, other.params.flat)
