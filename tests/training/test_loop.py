"""The loop: order, history, best weights, early stopping, callbacks, stopping."""

from copy import deepcopy

import numpy as np
import pytest
from runs import EarlyStopping, make_loop

from mlpengine import Adam, MeanSquaredError, Mlp, Sgd, TrainingStep
from mlpengine.core.errors import DataError, NumericalError, UsageError
from mlpengine.data.features.targets import NumberTarget
from mlpengine.models.task import Regression, Split
from mlpengine.ops import Poisson
from mlpengine.optim import PlateauSchedule
from mlpengine.training.best import Best
from mlpengine.training.checkpoint import Checkpointer, Checkpoints
from mlpengine.training.learner import SkipBudget
from mlpengine.training.loop import HOOKS, Callback, Loop


class Watcher(Callback):
    """Notes every event; stops the loop after `stop_after` steps."""

    def __init__(self, stop_after=None):
        self.events, self.rows, self.stop_after = [], [], stop_after
        self.weights, self.values = {}, {}

    def on_train_start(self, loop):
        self.events.append("start")

    def on_train_batch_end(self, loop):
        self.events.append("step")
        self.rows.append(loop.batch_rows.tolist())
        if loop.steps == self.stop_after:
            loop.stop()

    def on_train_epoch_end(self, loop, row):
        self.events.append("epoch")
        self.weights[row.epoch] = loop.step.mlp.params.flat.copy()
        self.values[row.epoch] = row.validation

    def on_fit_end(self, loop, result):
        self.events.append("end")


def test_every_epoch_learns_from_every_row_once_in_a_new_order():
    watcher = Watcher()
    make_loop(rows=50, batch_size=16, epochs=2, callbacks=[watcher]).run()
    assert [len(rows) for rows in watcher.rows] == [16, 16, 16, 2] * 2
    epochs = np.concatenate(watcher.rows).reshape(2, 50)
    assert (np.sort(epochs) == np.arange(50)).all()
    assert (epochs[0] != epochs[1]).any()
    whole = Watcher()
    make_loop(rows=50, batch_size=16, epochs=2, callbacks=[whole], drop_last=True).run()
    assert whole.rows == watcher.rows[:3] + watcher.rows[4:7]


def test_history_holds_means_over_rows_and_steps():
    losses, norms = [], []

    class Measure(Callback):
        def on_train_batch_end(self, loop):
            losses.append(loop.step.loss_value * len(loop.batch_rows))
            norms.append(loop.step.grad_norm)

    result = make_loop(rows=50, batch_size=16, epochs=1, callbacks=[Measure()]).run()
    (row,) = result.history.rows
    assert row.train_loss == pytest.approx(sum(losses) / 50, rel=1e-12)
    assert row.gradient_norm == pytest.approx(np.mean(norms), rel=1e-12)
    assert row.steps == 4
    assert row.samples_per_second == pytest.approx(50 / row.seconds)
    assert len(row.values()) == len(result.history.columns)


@pytest.mark.parametrize(
    ("monitor", "patience"), [("loss", 4), ("loss", None), ("accuracy", 4), ("loss", "auto")]
)
def test_the_weights_of_the_best_epoch_are_kept(monitor, patience):
    watcher = Watcher()
    early = patience is not None
    rule = EarlyStopping(patience=patience, monitor=monitor) if early else None
    epochs = 40 if patience == "auto" else 12
    loop = make_loop(epochs=epochs, lr=0.3, noise=1.0, callbacks=[watcher], early_stopping=rule)
    result = loop.run()
    sign = 1 if monitor == "loss" else -1
    values = {epoch: sign * found[monitor] for epoch, found in watcher.values.items()}
    best = min(values, key=values.get)  # the first of equals
    assert result.best_epoch == best < result.epochs
    assert np.array_equal(loop.step.mlp.params.flat, watcher.weights[best])
    waited = 4 if patience == 4 else max(6, best)
    made = ("early", best + waited) if early and best + waited < epochs else ("epochs", epochs)
    assert (result.ending, result.epochs) == made


def test_a_metric_that_is_equal_in_all_epochs_is_reported(caplog):
    for monitor, warned in (("accuracy", True), ("loss", False)):
        caplog.clear()
        make_loop(epochs=3, lr=1e-9, early_stopping=EarlyStopping(monitor=monitor)).run()
        assert ("in all epochs" in caplog.text) is warned


def test_the_patience_auto_grows_with_the_best_epoch():
    assert [EarlyStopping("auto").epochs_after(best) for best in (0, 5, 37)] == [6, 6, 37]


def test_without_validation_the_last_epoch_is_the_best():
    watcher = Watcher()
    loop = make_loop(validation=False, epochs=3, callbacks=[watcher])
    result = loop.run()
    assert (result.ending, result.best_epoch) == ("epochs", 3)
    assert result.history.rows[-1].validation == {}
    assert np.array_equal(loop.step.mlp.params.flat, watcher.weights[3])


def test_stopping_finishes_the_step_and_keeps_the_best_epoch():
    watcher = Watcher(stop_after=6)
    loop = make_loop(rows=50, batch_size=16, epochs=9, callbacks=[watcher])
    result = loop.run()
    assert (result.ending, result.epochs, result.best_epoch, loop.steps) == ("interrupted", 1, 1, 6)
    assert np.array_equal(loop.step.mlp.params.flat, watcher.weights[1])


@pytest.mark.parametrize("validation", [True, False])
def test_a_plateau_lowers_the_learning_rate(validation):
    schedule = PlateauSchedule(patience=1, factor=0.5)
    loop = make_loop(
        epochs=30, lr=2.0, noise=3.0, schedule=schedule, validation=validation, rows=32
    )
    rates = [row.lr for row in loop.run().history.rows]
    assert rates[0] == 2.0
    assert rates[-1] < 2.0


def test_a_task_without_a_loss_predicts_what_the_loss_of_the_step_defines():
    x = np.random.default_rng(0).normal(size=(40, 2))
    part, mlp = Split(x, np.exp(x[:, :1])), Mlp([2, 1], dtype="float64")
    loop = Loop(TrainingStep(mlp, Poisson(), Adam(mlp), 8), Regression(1), part, part, epochs=1)
    row = loop.run().history.rows[-1]
    assert row.validation["mae"] == pytest.approx(np.abs(np.exp(mlp.predict(x)) - part.y).mean())


def odd_validation(value, *, place, **options):
    """Return a regression loop with one odd value in its validation part."""
    rng = np.random.default_rng(0)
    parts = []
    for rows in (60, 20):
        x = rng.standard_normal((rows, 2)).astype("float32")
        y = (x @ np.float32([[1.0], [-0.5]])).astype("float32")
        parts.append(Split(x, y, y.astype("float64")))
    (parts[1].x if place == "feature" else parts[1].y)[7, 0] = value
    mlp = Mlp([2, 8, 1], seed=1)
    target = NumberTarget(["y"], [0.0], [1.0])
    step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp, lr=1e-2), 20)
    return Loop(step, Regression(target), *parts, **options)


@pytest.mark.parametrize("place", ["feature", "target"])
def test_no_epoch_is_the_best_if_no_validation_loss_is_finite(place, caplog):
    loop = odd_validation(1e25, place=place, epochs=3)
    with pytest.raises(NumericalError, match=rf"{place} 0 of row 7 is 1e\+25"):
        loop.run()
    assert loop.best_epoch == 0
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("epochs", "ending"), [(3, "epochs"), (4, "early")])
def test_the_last_epoch_is_not_an_early_end(epochs, ending):
    rule = EarlyStopping(patience=2, min_delta=1e9)  # waiting begins with the first epoch
    result = make_loop(epochs=epochs, early_stopping=rule).run()
    assert (result.ending, result.best_epoch, result.epochs) == (ending, 3, 3)


@pytest.mark.parametrize("odd", [np.nan, -np.inf])
@pytest.mark.parametrize("monitor", ["loss", "accuracy"])
def test_an_epoch_that_is_not_finite_is_never_the_best(odd, monitor):
    params = np.zeros(1, np.float32)
    best = Best(params, EarlyStopping(monitor=monitor))
    losses = [odd, 0.5, odd, 0.4]
    for epoch, loss in enumerate(losses, start=1):
        params[0] = epoch
        best.update(epoch, {"loss": loss, "accuracy": -loss})
    assert (best.epoch, best.weights.item()) == (4, 4.0)


def test_weights_that_are_infinite_after_the_last_step_are_neither_kept_nor_saved(tmp_path):
    class Spoil(Callback):
        def on_train_batch_end(self, loop):
            loop.step.mlp.params.flat[0] = np.inf

    store = Checkpoints(tmp_path)
    saver = Checkpointer(store, {}, every_epochs=1)
    loop = make_loop(rows=16, epochs=1, callbacks=[Spoil(), saver])
    with pytest.raises(NumericalError, match="step 1: weights"):
        loop.run()
    assert loop.best_epoch == 0
    assert store.newest() is None


def test_outputs_of_the_final_weights_are_looked_at():
    loop = make_loop(rows=16, epochs=1, lr=1e35, validation=False, optimizer=Sgd)
    with pytest.raises(NumericalError, match="step 1: outputs"):
        loop.run()


@pytest.mark.parametrize(("epochs", "fails"), [(3, False), (12, True)])
def test_a_loss_that_has_exploded_fails(epochs, fails):
    x = np.random.default_rng(0).standard_normal((40, 2))
    part = Split(x, y := x[:, :1].copy(), y)
    mlp = Mlp([2, 1], dtype="float64", seed=0)
    step = TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=50.0), 40)
    task = Regression(NumberTarget(["y"], [0.0], [1.0]))
    loop = Loop(step, task, part, epochs=epochs)
    for steps, rows, options, text in [
        (step, Split(x, y.astype("f4")), {}, r"train\.y must be float64"),
        (step, part, {"seed": -1}, "seed must be a whole number from 0"),
        ([step] * 2, part, {"folds": [0, 2] * 20}, "counted from 0.*2 steps, 2 folds of 40 rows"),
        ([step] * 2, part, {}, "each step needs a network of its own"),
    ]:
        with pytest.raises((DataError, UsageError), match=text):
            Loop(steps, task, rows, epochs=1, **options)
    with pytest.raises(NumericalError, match="feature 0 of row 0 is inf"):
        Loop(deepcopy(step), task, part, Split(x * np.inf, y, y), epochs=1).run()
    if fails:
        with pytest.raises(NumericalError, match="lower the learning rate"):
            loop.run()
    else:
        assert loop.run().history.rows[-1].train_loss > 1e4


def noting_every_hook(calls):
    """Return a callback that overrides every hook and notes its name and arguments."""

    def noting(name):
        def hook(self, loop, *details):
            calls.append((name, *(type(detail).__name__ for detail in details)))

        return hook

    body = {name: noting(name) for name in HOOKS}
    body["skip_budget"] = lambda self, loop: SkipBudget(9 - loop.steps)
    return type("Noting", (Callback,), body)()


def test_every_hook_is_called_in_its_order():
    calls = []
    hooks = noting_every_hook(calls)
    make_loop(rows=16 * 9 + 3, epochs=1, backend="compiled", callbacks=[hooks]).run()
    assert calls == [
        ("on_train_start",),
        ("on_steps_skipped", "list"),
        ("on_train_batch_end",),
        ("on_train_epoch_end", "EpochRow"),
        ("on_train_end",),
        ("on_fit_end", "Result"),
    ]
    calls.clear()
    loop = make_loop(rows=16, epochs=1, callbacks=[hooks])
    loop.train.x[3, 1] = np.nan
    with pytest.raises(NumericalError):
        loop.run()
    assert calls == [("on_train_start",), ("on_train_end",), ("on_exception", "NumericalError")]


class Stateful(Callback):
    def state_dict(self):
        return {"value": 1}


@pytest.mark.parametrize(
    ("callbacks", "text"),
    [([object()], "object"), ([Stateful], "Stateful"), (Stateful(), "list"),
     ([Stateful(), Stateful()], "'Stateful'")],
)  # fmt: skip
def test_what_is_no_callback_is_refused(callbacks, text):
    with pytest.raises(UsageError, match=text):
        make_loop(callbacks=callbacks)


def test_callbacks_are_called_by_their_order_then_as_given():
    called = []

    class Noting(Callback):
        def __init__(self, label, order=0):
            self.label, self.order = label, order

        def on_train_start(self, loop):
            called.append(self.label)

    make_loop(epochs=1, callbacks=[Noting("c", 1), Noting("b"), Noting("a", -1)]).run()
    assert called == ["a", "b", "c"]
    with pytest.raises(UsageError, match="on_train_batch_end"):
        type("Mine", (Callback,), {"on_batch_end": lambda self, loop: None})
