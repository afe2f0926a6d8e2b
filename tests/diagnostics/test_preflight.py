"""Pre-flight checks: they find what is wrong, stay quiet otherwise, and put everything back."""

import numpy as np
import pytest

from mlpengine import (
    Adam,
    BinaryCrossEntropyWithLogits,
    CosineSchedule,
    MeanSquaredError,
    Mlp,
    Sgd,
    SoftmaxCrossEntropy,
    TrainingStep,
)
from mlpengine.core.errors import NumericalError
from mlpengine.diagnostics.lr_range import lr_range, suggest_rate
from mlpengine.diagnostics.preflight import check_few_rows, probe, suggest_lr
from mlpengine.diagnostics.thresholds import HIGHEST_RATE, LOWEST_RATE
from mlpengine.diagnostics.trial import Rows, restored


def rows_for(loss, seed=0, count=200):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 6)).astype("f4")
    score = x @ rng.standard_normal((6, 3)).astype("f4")
    y = {
        "mse": score,
        "softmax_cross_entropy": score.argmax(axis=1),
        "bce_with_logits": (score > 0).astype("f4"),
    }[loss.name]
    return Rows(x, y)


LOSSES = [MeanSquaredError(), SoftmaxCrossEntropy(), BinaryCrossEntropyWithLogits()]


@pytest.mark.parametrize(
    ("loss", "activation"), [*zip(LOSSES, ["relu", "tanh", "sigmoid"], strict=True)]
)
def test_a_sound_network_memorizes_a_few_rows(loss, activation):
    mlp = Mlp([6, 32, 16, 3], activation=activation, dropout=0.2, seed=0)
    before, dropout = mlp.params.flat.copy(), mlp.rng.step
    check = check_few_rows(mlp, loss, rows_for(loss))
    assert check.good
    assert check.numbers["loss"] < 0.2 * check.numbers["constant"]
    np.testing.assert_array_equal(mlp.params.flat, before)
    assert mlp.rng.step == dropout


def test_rows_that_contradict_each_other_are_found():
    x = np.ones((20, 6), "f4")
    rows = Rows(x, np.arange(20) % 2)
    check = check_few_rows(Mlp([6, 8, 2], seed=0), SoftmaxCrossEntropy(), rows)
    assert not check.good
    assert "cannot be memorized" in check.text


def training_step(lr=1e-3, **options):
    mlp = Mlp([6, 32, 3], dropout=0.1, seed=0)
    optimizer = Adam(mlp, lr=lr, schedule=CosineSchedule(100))
    return TrainingStep(mlp, SoftmaxCrossEntropy(), optimizer, 16, **options)


def state_of(step):
    return {
        "flat": step.mlp.params.flat.tobytes(),
        "rng": repr(step.mlp.rng),
        "optimizer": {k: np.asarray(v).tobytes() for k, v in step.optimizer.state_dict().items()},
        "schedule": id(step.optimizer.schedule),
    }


def fail_after_a_step(step, rows):
    step(*rows.take(slice(0, 16)))
    raise ZeroDivisionError


@pytest.mark.parametrize("action", ["lr_range", "probe", "an error"])
def test_everything_is_put_back(action):
    step = training_step(clip_norm=0.5)
    rows = rows_for(step.loss)
    for _ in range(3):
        step(*rows.take(slice(0, 16)))
    before = state_of(step)
    if action == "lr_range":
        suggest_lr(step, rows, 16)
    elif action == "probe":
        assert probe(step, rows, 16, 40).sampled == 40
    else:
        with pytest.raises(ZeroDivisionError), restored(step):
            fail_after_a_step(step, rows)
    assert state_of(step) == before


def test_a_learning_rate_is_suggested_near_the_steepest_fall():
    step = training_step()
    found = lr_range(step, rows_for(step.loss, count=1000), 16)
    assert 1e-3 <= found.suggestion <= 0.2
    assert found.suggestion < found.lowest
    assert len(found.rates) == len(found.losses)


@pytest.mark.parametrize(("lr", "good"), [(1e-7, False), (1e-3, True), (1e-2, True), (50.0, False)])
def test_the_configured_rate_is_compared(lr, good):
    step = training_step(lr)
    check, _ = suggest_lr(step, rows_for(step.loss, count=1000), 16)
    assert check.good == good, check.text


RATES = np.geomspace(LOWEST_RATE, HIGHEST_RATE, 160)


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        (np.ones(160), "no rate lowered the loss"),
        (np.linspace(1.0, 0.95, 160), "no rate lowered the loss"),
        (np.linspace(1.0, 0.1, 160), "still falls at the largest rate"),
        (np.ones(10), "diverges already"),
    ],
)
def test_refusals_to_suggest(losses, reason):
    found = suggest_rate(RATES[: len(losses)].tolist(), losses.tolist())
    assert np.isnan(found.suggestion)
    assert reason in found.reason


def test_noise_before_the_fall_is_not_taken_for_it():
    fall = 1 / (1 + (RATES / 1e-2) ** 1.5) + np.where(RATES > 0.3, RATES / 0.3 - 1, 0)
    noise = 0.05 * np.random.default_rng(0).standard_normal(160) * (RATES < 1e-5)
    found = suggest_rate(RATES.tolist(), (fall + noise).tolist())
    assert 1e-2 <= found.suggestion <= 0.1


def test_a_step_that_diverges_at_once_ends_the_sweep():
    mlp = Mlp([6, 3], seed=0)
    step = TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=0.1), 16)
    rows = rows_for(step.loss)
    rows.x *= 1e25
    found = lr_range(step, rows, 16)
    assert "diverges already" in found.reason
    with np.errstate(all="ignore"), pytest.raises(NumericalError):
        step(*rows.take(slice(0, 16)))
