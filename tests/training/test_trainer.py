"""`Trainer`: what stands in it alone, against networks and loops that are made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from runs import CLASSES, part

from mlpengine import AdamW, MeanSquaredError, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.core.errors import UsageError
from mlpengine.data.features import NumberTarget
from mlpengine.data.features.numbers import Numbers
from mlpengine.data.features.sources import Source
from mlpengine.estimators import MlpRegressor
from mlpengine.models.task import Classification, Regression, Split
from mlpengine.optim import CosineSchedule, settings_class
from mlpengine.settings import NetworkSettings, RunSettings, TrainingSettings
from mlpengine.settings.training import Averaging, EarlyStopping
from mlpengine.training.loop import Callback, Loop
from mlpengine.training.trainer import Trainer

FOLDS = np.arange(50) % 3


def settings(network=(), **training):
    given = {"loss": SoftmaxCrossEntropy(), "epochs": 3, "batch_size": 16, "backend": "numpy"}
    return RunSettings(
        network=NetworkSettings(**{"hidden": (8,), **dict(network)}),
        training=TrainingSettings(
            **{
                **given,
                "optimizer": settings_class(AdamW)(lr=0.01),
                "schedule": CosineSchedule(),
                **training,
            }
        ),
        seed=7,
    )


def trainer(network=(), *, folds=None, train=None, **training):
    rows = part(50, 1) if train is None else train
    if folds is not None:
        training["folds"] = int(folds.max()) + 1
    return Trainer(settings(network, **training), Classification(CLASSES), rows, folds=folds)


def by_hand(seed, steps_per_epoch):
    mlp = Mlp([4, 8, CLASSES], seed=seed)
    adamw = AdamW(mlp, lr=0.01, schedule=CosineSchedule(total_steps=3 * steps_per_epoch))
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), adamw, 16)
    order = np.random.Generator(np.random.PCG64([seed, 1]))
    return Loop(step, Classification(CLASSES), part(50, 1), epochs=3, seed=order)


@pytest.mark.parametrize(("several", "seeds"), [({}, [7]), ({"seeds": 2}, [7_000, 7_001])])
def test_networks_are_trained_as_by_hand(several, seeds):
    made = trainer(**several)
    fitted = made.fit()
    assert made.seeds == seeds
    assert [*fitted.result.best_epochs] == [3] * len(seeds)
    for mlp, seed in zip(fitted.mean.networks, seeds, strict=True):
        loop = by_hand(seed, 4)
        loop.run()
        np.testing.assert_array_equal(mlp.params.flat, loop.step.mlp.params.flat)


def test_networks_of_folds_know_nothing_of_their_fold_but_its_loss():
    rows = part(50, 1)
    changed = np.where(FOLDS == 1, -3.0, 1.0).astype("float32")[:, None] * rows.x
    for one in (trainer({}, folds=FOLDS, train=each) for each in (rows, replace(rows, x=changed))):
        assert [one.row_count(k) for k in range(3)] == [33, 33, 34]
        orders = [member.batches.order for member in one.loop().members]
        assert not any((FOLDS[kept] == k).any() for k, kept in enumerate(orders))


@pytest.mark.parametrize("size", [16, 33, 40])
def test_a_step_has_no_more_rows_than_any_network_learns_from(size):
    made = trainer(folds=FOLDS, batch_size=size)
    assert [step.batch_size for step in made.steps] == [min(size, 33)] * 3


def test_kinds_read_their_inputs_and_share_the_mean():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = x[:, :1] + np.abs(x[:, 1:])
    edges = [np.quantile(column, np.linspace(0, 1, 5)) for column in x.T]
    numbers = Numbers([Source("a"), Source("b")], np.zeros(2), np.ones(2), np.zeros(2), edges=edges)
    features = np.empty((60, numbers.width), "float32")
    assert numbers.write(x, None, features)
    target = NumberTarget(["y"], [0.0], [1.0])
    made = Trainer(
        settings(loss=MeanSquaredError(), folds=3, members=("linear", "piecewise", "plain")),
        Regression(target),
        Split(features, y.astype("float32"), y),
        folds=np.arange(60) % 3,
        numbers=numbers,
    )
    assert [mlp.n_inputs for mlp in made.networks] == [numbers.width] * 3 + [2] * 3
    fitted = made.fit()
    assert [*fitted.ensemble_weights] == ["piecewise", "plain", "linear"]
    assert sum(fitted.ensemble_weights.values()) == pytest.approx(1)
    members = made.members_of(fitted)
    assert [member.mlp for member in members] == [*fitted.mean.networks]
    own = Split(features, y.astype("float32"), y)
    for member in members:
        before, linear = member.mlp.params.flat.copy(), member.mlp.is_linear
        member.drop_schedules()
        member.learn_once(own)
        assert (member.mlp.params.flat != before).any()
        assert member.mlp.is_linear == linear
    assert fitted.residuals.errors.shape == (60, 1)


@pytest.mark.parametrize("in_time", [False, True])
def test_intervals_in_time_are_made_from_the_newest_folds(in_time):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(64, 3)).astype("float32")
    y = x[:, :1].astype("float64") + rng.normal(size=(64, 1))
    folds = np.arange(64) // 8
    made = Trainer(
        settings(loss=MeanSquaredError(), folds=8),
        Regression(NumberTarget(["y"], [0.0], [1.0])),
        Split(x, y.astype("float32"), y),
        folds=folds,
        in_time=in_time,
    )
    fitted = made.fit()
    kept = fitted.residuals.errors * fitted.residuals.scales
    errors = y[:, 0] - [made.networks[k].predict(x[i : i + 1])[0, 0] for i, k in enumerate(folds)]
    if in_time:
        assert fitted.mean_error is None
        np.testing.assert_allclose(kept[:, 0], np.sort(errors[40:]), rtol=1e-5)
    else:
        shrunk = np.sort(errors) * fitted.mean_error**0.5
        np.testing.assert_allclose(kept[:, 0], shrunk, rtol=1e-5)


WRONG = {
    "freeze": ({"freeze": (5,)}, ("training", "freeze"), "5"),
    "shards": ({"shards": 3}, ("training", "shards"), "3"),
    "schedule": (
        {"schedule": CosineSchedule(warmup_epochs=9)},
        ("training", "schedule"),
        "total_steps",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_says_which_setting_is_at_fault(name):
    training, setting, text = WRONG[name]
    with pytest.raises(UsageError, match=text) as error:
        trainer(**training)
    assert error.value.setting == setting


def test_weights_of_another_network_are_refused():
    with pytest.raises(UsageError, match="hidden: must be as in the model") as error:
        Trainer(settings(), Classification(CLASSES), part(50, 1), warm_start=[Mlp([4, 9, CLASSES])])
    assert error.value.setting == ("network", "hidden")


def test_smooth_members_do_not_start_other_networks():
    smooth = Mlp([4, 30, CLASSES], activation="tanh")
    with pytest.raises(UsageError, match="they are smooth or linear members"):
        Trainer(settings(), Classification(CLASSES), part(50, 1), warm_start=[smooth])


def test_a_warm_start_goes_on_with_all_networks_of_a_fit_with_folds():
    """The first alone learned."""
    x = np.random.default_rng(0).normal(size=(40, 3))
    model = MlpRegressor(hidden=4, folds=2, epochs=2, random_state=0).fit(x, x[:, 0])
    before = [mlp.params.flat.copy() for mlp in model.mlps_]
    model.set_params(folds=None, warm_start=True).fit(x, x[:, 0])
    changed = [(a != m.params.flat).any() for a, m in zip(before, model.mlps_, strict=True)]
    assert len(changed) > 1
    assert all(changed)


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_averaged_weights_are_measured_and_kept(backend):
    """Weights after each step come from a run without an average."""
    early, task = EarlyStopping(9), Classification(CLASSES)
    made, plain = (
        Trainer(
            settings(backend=backend, average=average, early_stopping=early),
            task,
            part(50, 1),
            part(40, 2),
        )
        for average in (Averaging(0.8), None)
    )
    params, averages = plain.networks[0].params.flat, []
    average = params.astype("f8")

    class Following(Callback):
        def on_train_batch_end(self, loop, *_):
            average[...] = 0.8 * average + 0.2 * params

        def on_train_epoch_end(self, *_):
            averages.append(average.copy())

    plain.fit([Following()])
    fitted = made.fit()
    assert not np.array_equal(averages[-1], params)
    (best,) = fitted.result.best_epochs
    mlp = made.networks[0]
    np.testing.assert_allclose(mlp.params.flat, averages[best - 1], 1e-5, 1e-6)
    losses = [row.validation["loss"] for row in fitted.result.history.rows]
    assert min(losses) == losses[best - 1]
