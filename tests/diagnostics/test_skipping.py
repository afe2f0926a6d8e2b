"""Steps that are not finite: nothing is applied, the rows are named, and skipping has a limit."""

import numpy as np
import pytest

from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep
from mlpengine.core.errors import CheckpointError, NumericalError, UsageError
from mlpengine.training.nonfinite_rule import NonfiniteRule


def failing_step(place):
    """Return a step that meets a number that is not finite at `place`, its error, its rows."""
    mlp = Mlp([3, 5, 2], seed=0)
    step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp), 4)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4, 3)).astype("f4"), rng.standard_normal((4, 2)).astype("f4")
    step(x, y)
    if place == "input":
        x[2, 1] = np.nan
    elif place == "target":
        y[1, 0] = np.inf
    else:
        mlp.weights[0][0, 0] = 3e38
        x[:, 0] = 2
    before, steps = mlp.params.flat.copy(), step.optimizer.steps
    with np.errstate(all="ignore"), pytest.raises(NumericalError) as raised:
        step(x, y)
    np.testing.assert_array_equal(mlp.params.flat, before)
    assert step.optimizer.steps == steps
    return step, raised.value, np.array([40, 41, 42, 43])


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ("input", "step 2: .*input is not, in row 2 of the batch.*; training row 42$"),
        ("target", r"step 2: .*the target is not, in row 1 of the batch\); training row 41$"),
        ("weight", "step 2: .*layer 0, forward.*; training rows 40, 41, 42, 43$"),
    ],
)
def test_the_message_names_step_layer_direction_and_rows(place, wanted):
    step, error, rows = failing_step(place)
    with pytest.raises(NumericalError, match=wanted):
        NonfiniteRule().handle(error, step, rows)


def test_skipping_has_a_limit_that_survives_a_checkpoint():
    step, error, rows = failing_step("input")
    rule = NonfiniteRule("skip", limit=2)
    rule.handle(error, step, rows)
    resumed = NonfiniteRule("skip", limit=2)
    resumed.load_state_dict(rule.state_dict())
    resumed.handle(error, step, rows)
    assert resumed.skipped == 2
    with pytest.raises(NumericalError, match="training row 42; 2 steps were skipped already"):
        resumed.handle(error, step, rows)


@pytest.mark.parametrize(
    ("options", "text"), [({"action": "go"}, "one of stop, skip"), ({"limit": 0}, "at least 1")]
)
def test_wrong_settings(options, text):
    with pytest.raises(UsageError, match=text):
        NonfiniteRule(**options)


@pytest.mark.parametrize("state", [{}, {"skipped": -1}, {"skipped": "2"}])
def test_wrong_state(state):
    with pytest.raises(CheckpointError, match="must be a count"):
        NonfiniteRule().load_state_dict(state)
