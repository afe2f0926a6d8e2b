"""Several networks trained side by side: members are single runs, and predict their mean."""

import numpy as np
import pytest
from runs import CLASSES, EarlyStopping, part
from scipy.special import expit, log_softmax, logit, softmax
from scipy.stats import gmean

from mlpengine import Adam, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.core.errors import CheckpointError, NumericalError, UsageError
from mlpengine.data.features import NumberTarget, fold_rows
from mlpengine.models.evaluate import Scorer, standard_errors
from mlpengine.models.task import (
    BinaryClassification,
    Classification,
    MultiLabel,
    Regression,
    Split,
)
from mlpengine.nn.population import Population
from mlpengine.ops import Poisson
from mlpengine.optim import CosineSchedule
from mlpengine.training.loop import Callback, Loop

FOLDS, ROWS = 8, 90
RULE = EarlyStopping(patience=2)


def step_of(mlp, backend):
    return TrainingStep(
        mlp,
        SoftmaxCrossEntropy(),
        Adam(mlp, lr=3e-2, schedule=CosineSchedule(60)),
        16,
        clip_norm=1.0,
        backend=backend,
    )


def several(train, valid=None, *, backend="numpy", dropout=0.0, epochs=9, **options):
    """Return the loop of eight networks that differ in their seeds."""
    members = Population(Mlp([4, 8, CLASSES], dropout=dropout), FOLDS, seeds=range(5, 5 + FOLDS))
    steps = [step_of(mlp, backend) for mlp in members]
    task = Classification(CLASSES)
    return Loop(steps, task, train, valid, epochs=epochs, early_stopping=RULE, **options)


def ensemble(backend="numpy", threads=1, groups=1, **options):
    """Return the loop of eight networks, each without a fold of the rows."""
    train = part(ROWS, 1, noise=1.0)
    folds = fold_rows(ROWS, FOLDS // groups, labels=train.y)
    return several(train, folds=folds, backend=backend, threads=threads, **options)


def single_run(k, backend="numpy", dropout=0.0):
    """Return the loop of one of the networks of `several`."""
    return Loop(
        step_of(Mlp([4, 8, CLASSES], dropout=dropout, seed=5 + k), backend),
        Classification(CLASSES),
        part(ROWS, 1, noise=1.0),
        part(30, 2, noise=1.0),
        epochs=9,
        early_stopping=RULE,
        seed=k,
    )


def bits(member):
    """Return everything that a run determines, but its times."""
    state = member.state_dict()
    history = [row.values() for row in member.history.rows]
    moments = {name: value.tobytes() for name, value in member.step.optimizer.moments.items()}
    best = member.best.epoch, member.best.weights.tobytes()
    return member.step.mlp.params.flat.tobytes(), history, moments, best, state["dropout"]


@pytest.mark.parametrize(
    ("backend", "threads", "dropout"),
    [("numpy", 1, 0.3), ("compiled", 3, 0.0)],
)
def test_members_have_the_bits_of_single_runs(backend, threads, dropout):
    rows = part(ROWS, 1, noise=1.0), part(30, 2, noise=1.0)
    many = several(*rows, backend=backend, threads=threads, dropout=dropout)
    result = many.run()
    for number, row in enumerate(many.history.rows):
        rows = [m.history.rows[number] for m in many.members if len(m.history.rows) > number]
        losses = [(one.train_loss, one.validation["loss"]) for one in rows]
        mean = row.train_loss, row.validation["loss"]
        np.testing.assert_allclose(mean, np.mean(losses, axis=0), rtol=1e-12)
    assert many.history.rows[-1].steps == sum(member.steps for member in many.members)
    epochs = {len(member.history.rows) for member in many.members}
    assert len(epochs) > 1  # each member stops early by itself
    assert result.ending == "early"
    for k, member in enumerate(many.members):
        own = single_run(k, backend, dropout)
        own.run()
        assert bits(member) == bits(own.members[0])
        assert member.step.backend == backend


class Stopper(Callback):
    """Stops a member within an epoch."""

    def __init__(self, step):
        self.step, self.stop = step, None

    def on_train_batch_end(self, loop):
        if loop.steps == self.step:
            self.stop()


class Weights(Callback):
    """Keeps the weights of all members after each epoch, from whole training runs."""

    def __init__(self):
        self.epochs = []

    def on_train_epoch_end(self, loop, row):
        self.epochs.append([member.step.mlp.params.flat.copy() for member in loop.members])


@pytest.mark.parametrize("groups", [1, 2])
def test_the_folds_of_the_other_members_choose_an_epoch(groups):
    weights = Weights()
    loop = ensemble(groups=groups, epochs=30, callbacks=[weights])
    result = loop.run()
    assert result.ending == "early"
    size = FOLDS // groups
    chosen = []
    for start in range(0, FOLDS, size):
        group = loop.members[start : start + size]
        curves = np.array([[r.validation["loss"] for r in m.history.rows] for m in group])
        made = curves.shape[1]  # of all members of the group alike
        last = []
        for k, member in enumerate(group):
            others = np.delete(curves, k, axis=0).mean(axis=0)
            best = int(others.argmin())
            chosen.append(best != curves[k].argmin())
            assert member.best.epoch == best + 1
            kept = weights.epochs[best][start + k]
            np.testing.assert_array_equal(member.step.mlp.params.flat, kept)
            last.append(best)
        assert max(last) + 1 + RULE.patience == made  # the last one to stop early ends all
    assert any(chosen)  # its own fold would have chosen another


def test_a_member_that_diverges_has_no_say_in_the_epochs_of_others():
    loop = ensemble(epochs=4)
    for number in range(4):
        for member in loop.members:
            member.run_epoch()
        loop.members[2].history.rows[-1].validation["loss"] = np.nan
        loop._end_epoch(number, 1.0)
    assert loop.best_epochs[2] == 0
    assert all(epoch for k, epoch in enumerate(loop.best_epochs) if k != 2)


def test_a_run_that_is_stopped_within_an_epoch_goes_on_bit_for_bit():
    whole = ensemble("compiled", 2, groups=2)
    whole.run()
    stopper, states = Stopper(13), []

    class Saver(Callback):
        def on_train_end(self, loop):
            states.append(loop.state_dict())
            states[0]["members"] = [
                {**one, "weights": {n: w.copy() for n, w in one["weights"].items()}}
                for one in states[0]["members"]
            ]

    stopped = ensemble("compiled", 2, groups=2, callbacks=[Saver()])
    third = stopped.members[2]
    third.after_step.append(lambda: stopper.on_train_batch_end(third))
    third.may_skip = False
    stopper.stop = stopped.stop
    assert stopped.run().ending == "interrupted"
    assert stopped.within_epoch
    resumed = ensemble("compiled", 1, groups=2)
    resumed.load_state_dict(states[0])
    assert len(resumed.history.rows) == 2
    for again in (resumed, stopped):
        again.run()
        assert [bits(member) for member in again.members] == [bits(m) for m in whole.members]
        rows = [[row.values() for row in loop.history.rows] for loop in (whole, again)]
        assert rows[0] == rows[1]
    with pytest.raises(CheckpointError, match=r"state of 8 networks \(got 3\)"):
        resumed.load_state_dict({**states[0], "members": states[0]["members"][:3]})


class Counting(Callback):
    """Counts steps and epochs."""

    def __init__(self):
        self.steps = self.epochs = 0

    def on_train_batch_end(self, loop):
        self.steps += 1

    def on_train_epoch_end(self, loop, row):
        self.epochs += 1


class First(Counting):
    """Counts the steps of the first network."""

    watches_first = True


def test_steps_are_shown_to_those_that_watch_the_first_network():
    blind, watching = Counting(), First()
    loop = ensemble(epochs=2, callbacks=[blind, watching])
    loop.run()
    assert (blind.steps, blind.epochs, watching.epochs) == (0, 2, 2)
    assert watching.steps == loop.members[0].steps


@pytest.mark.parametrize("threads", [1, 2])
def test_a_member_that_fails_is_named_and_ends_the_run(threads):
    failed = []

    class Watcher(Callback):
        def on_exception(self, loop, error):
            failed.append(str(error))

    loop = ensemble("compiled", threads, epochs=1000, callbacks=[Watcher()])
    third = loop.members[2]
    third.step.optimizer.lr = 1e38
    with pytest.raises(NumericalError, match=r"\Amember 3: step "):
        loop.run()
    assert len(failed) == 1
    assert max(len(member.history.rows) for member in loop.members) < 1000


@pytest.mark.parametrize(
    ("steps", "options", "message"),
    [
        (0, {}, "0"),
        (3, {"folds": np.arange(ROWS) % 2}, "3 steps, 2 folds"),
        (2, {"folds": np.zeros(ROWS, int)}, "2 steps, 1 fold"),
        (2, {"folds": np.arange(5) % 2}, "5 rows"),
        (2, {"folds": np.arange(ROWS) % 2, "validation": part(9, 1)}, "validation"),
        (2, {"seed": [1]}, "2 networks"),
        (2, {"seed": "1"}, "'1'"),
    ],
)
def test_misuse_is_refused(steps, options, message):
    made = [step_of(Mlp([4, 8, CLASSES]), "numpy") for _ in range(steps)]
    with pytest.raises(UsageError, match=message):
        Loop(made, Classification(CLASSES), part(ROWS, 1), epochs=1, **options)


NUMBERS = NumberTarget(["y", "z"], [3.0, 1.0], [2.0, 5.0])
COUNTS = NumberTarget(["y", "z"], [0.0, 0.0], [2.0, 5.0])
Y = 4 * np.random.default_rng(0).standard_normal((5, 7, 2))
BOTH = np.stack([expit(-Y), expit(Y)], axis=1)


def pooled(chances, events):
    """Return the geometric means over networks, the first axis, of chances of exclusive events."""
    means = gmean(chances, axis=0)
    return means / means.sum(axis=events, keepdims=True)


@pytest.mark.parametrize(
    ("task", "outputs", "predicted"),
    [
        (Regression(NUMBERS), Y, (Y * [2, 5] + [3, 1]).mean(axis=0)),
        (Regression(COUNTS, Poisson()), Y, (np.exp(Y) * [2, 5]).mean(axis=0)),
        (Classification(2), Y, pooled(softmax(Y, axis=2), 1)),
        (MultiLabel(2), Y, pooled(BOTH, 0)[1]),
        (BinaryClassification(1), Y[:, :, :1], pooled(BOTH, 0)[1, :, :1]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_prediction_is_the_mean_of_the_members(task, outputs, predicted):
    combined = task.combine(outputs)
    found = task.probabilities(combined)
    if found is None:
        found = task.predict(combined)
    if isinstance(task, BinaryClassification):
        np.testing.assert_allclose(combined, logit(predicted), rtol=1e-12)
        found = found[:, 1:]
    np.testing.assert_allclose(found, predicted, rtol=1e-12)
    huge = task.combine(np.sign(outputs) * 500)
    assert np.isfinite(huge).all()
    twice = task.combine(outputs[[0, 0, 3]])
    np.testing.assert_allclose(task.combine(outputs, np.array([2, 0, 0, 1, 0]) / 3), twice)


def test_standard_errors_of_rows_that_repeat_are_larger():
    """Of 40 groups of 100 equal rows they are 10 times those of 4,000 rows."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 4_000)
    output = rng.standard_normal((4_000, 3)) + 2 * np.eye(3)[truth]
    scorer = Scorer(SoftmaxCrossEntropy(), Classification(3), 3, np.dtype("f8"))
    losses = -log_softmax(output, axis=1)[np.arange(4_000), truth]
    hits = output.argmax(axis=1) == truth
    groups = np.repeat(np.arange(40), 100)
    rows = Split(np.empty((4_000, 1)), truth[groups], truth[groups])
    plain = standard_errors(scorer, output[groups], rows)
    blocked = standard_errors(scorer, output[groups], rows, groups)
    assert blocked["loss"] == pytest.approx(losses[:40].std() / np.sqrt(40), rel=0.1)
    assert blocked["accuracy"] == pytest.approx(hits[:40].std() / np.sqrt(40), rel=0.1)
    assert blocked["loss"] > 5 * plain["loss"]
