"""Diagnostics of diverged runs: huge numbers, subnormals, infinities and NaN, without an error."""

import numpy as np
import pytest

from mlpengine import MeanSquaredError, Mlp, Sgd, SoftmaxCrossEntropy, TrainingStep
from mlpengine.diagnostics import Diagnostics, table, verdicts
from mlpengine.models.task import Classification, NumberTarget, Regression, Split
from mlpengine.training.diagnose import Trained, diagnostic_inputs, measure_rows

ODD = {
    "huge": 1e300,
    "largest": 3e38,
    "subnormal": 5e-324,
    "infinite": np.inf,
    "no number": np.nan,
    "zero": 0.0,
}


def odd_rows(value, kind, dtype, shape=(60, 3)):
    """Return random rows with an odd value in some places."""
    x = np.random.default_rng(0).standard_normal(shape)
    if kind == "one value":
        x[7, 0] = value
    elif kind == "a column":
        x[:, 0] = value
    elif kind == "all":
        x[...] = value
    else:
        x = np.sign(x) * value
    with np.errstate(over="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["one value", "a column", "all", "signs"])
@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_a_run_of_odd_numbers_is_measured(value, kind, dtype):
    x = odd_rows(value, kind, dtype)
    for task, loss, y in (
        (Classification(2), SoftmaxCrossEntropy(), np.arange(60) % 2),
        (Regression(NumberTarget(["y"], [0.0], [1.0])), MeanSquaredError(), x[:, :1].copy()),
    ):
        mlp = Mlp([3, 5, task.outputs], seed=0, dtype=dtype)
        step = TrainingStep(mlp, loss, Sgd(mlp, lr=0.1), 20, backend="numpy")
        part = Split(x, y, y)
        core = Diagnostics(mlp, every=1, **diagnostic_inputs(step, part, [part]))
        with np.errstate(all="ignore"):  # as in a loop, which names the first odd number
            for number in range(1, 4):
                mlp.forward(x[:20], step.scratch)
                value = loss(step.scratch.output, y[:20], step.grads.d_output)
                mlp.backward(step.scratch, step.grads)
                step.optimizer.step(mlp, step.grads)
                core.after_step(step.scratch, step.grads, number, loss=value)
                core.close_epoch(value, value)
            measure_rows(core, task, part, [Trained(core.mlp.predict, np.arange(len(part)), part)])
        assert all(isinstance(str(one), str) for one in verdicts(core))
        assert table(core)


def test_a_constant_prediction_is_measured_on_the_held_out_rows_of_every_fold():
    mlp = Mlp([3, 1], seed=0)
    step = TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=0.1), 20, backend="numpy")
    x, y = np.ones((60, 3), "float32"), np.zeros((60, 1), "float32")
    folds = [Split(x, y + value, y) for value in (0, 3)]
    assert diagnostic_inputs(step, Split(x, y, y), folds)["validation_baseline"] == pytest.approx(
        4.5
    )
