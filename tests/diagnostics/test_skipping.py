"""Steps that are not finite: nothing is applied, the rows are named, and skipping has a limit."""

import numpy as np
import pytest

from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep
from mlpengine.core.errors import NumericalError, UsageError
from mlpengine.data.features import NumberTarget
from mlpengine.models.task import Regression, Split
from mlpengine.training.loop import Loop

ROWS, BATCH = 24, 4


def failing_loop(place, *, epochs=2, **options):
    """Return a loop that meets a number that is not finite at `place`."""
    mlp = Mlp([3, 5, 2], seed=0)
    step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp), BATCH)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((ROWS, 3)).astype("f4"), rng.standard_normal((ROWS, 2)).astype("f4")
    if place == "input":
        x[7, 1] = np.nan
    elif place == "target":
        y[7, 0] = np.inf
    else:
        mlp.weights[0][0, 0] = 3e38
        x[:, 0] = 2
    task = Regression(NumberTarget(["a", "b"], [0.0] * 2, [1.0] * 2))
    return Loop(step, task, Split(x, y), epochs=epochs, **options)


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ("input", r"step \d: .*input is not, in row \d of the batch.*; training row 7$"),
        ("target", r"step \d: .*the target is not, in row \d of the batch\); training row 7$"),
        ("weight", r"step 1: .*layer 0, forward.*; training rows \d+, \d+, \d+, \d+$"),
    ],
)
def test_the_message_names_step_layer_direction_and_rows(place, wanted):
    loop = failing_loop(place)
    with np.errstate(all="ignore"), pytest.raises(NumericalError, match=wanted):
        loop.run()


def test_skipping_has_a_limit_that_survives_a_checkpoint():
    options = {"on_nonfinite": "skip", "nonfinite_limit": 2}
    loop = failing_loop("input", **options)
    loop.run()
    assert loop.skipped == 2
    resumed = failing_loop("input", epochs=3, **options)
    resumed.load_state_dict(loop.state_dict())
    with pytest.raises(NumericalError, match="training row 7; 2 steps were skipped already"):
        resumed.run()


@pytest.mark.parametrize(
    ("options", "text"),
    [({"on_nonfinite": "go"}, "must be stop or skip"), ({"nonfinite_limit": 0}, "at least 1")],
)
def test_wrong_settings(options, text):
    with pytest.raises(UsageError, match=text):
        failing_loop("input", **options)
