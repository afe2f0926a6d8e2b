"""Steps that callbacks allow to skip are made many at once, and change no bit of anything."""

import numpy as np
import pytest
from runs import CLASSES, part

from mlpengine import Adam, CosineSchedule, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.core.errors import NumericalError
from mlpengine.models.task import Classification
from mlpengine.optim import PlateauSchedule
from mlpengine.step.many_steps import CompiledSteps
from mlpengine.step.packing import pack
from mlpengine.training.checkpoint import Checkpointer, Checkpoints
from mlpengine.training.diagnose import LoopDiagnostics
from mlpengine.training.learner import SkipBudget
from mlpengine.training.loop import Callback, Loop

EPOCHS, ROWS, BATCH = 6, 16 * 40 + 5, 16
SETTINGS = {
    "weights, a schedule, dropout": {
        "weighted": True, "schedule": lambda: CosineSchedule(200), "dropout": 0.3
    },
    "clip, plateau, two threads": {
        "clip_norm": 0.5, "schedule": lambda: PlateauSchedule(1, 0.5), "threads": 2
    },
}  # fmt: skip
CLIP = {"clip_norm": 0.5}


class EveryStep(Callback):
    """A callback without a skip budget."""

    def on_train_batch_end(self, loop):
        pass


def make(path, callbacks=(), *, data=None, backend="compiled", seed=3, every=7, **given):
    schedule = given.get("schedule", lambda: None)()
    dropout = given.get("dropout", 0.0)
    mlp = Mlp([4, 8, CLASSES], activation="relu", dropout=dropout, seed=seed)
    weighted = given.get("weighted", False)
    step = TrainingStep(
        mlp,
        SoftmaxCrossEntropy(),
        Adam(mlp, lr=1e-2, schedule=schedule),
        BATCH,
        clip_norm=given.get("clip_norm"),
        weighted=weighted,
        backend=backend,
        threads=given.get("threads", 1),
    )
    return Loop(
        step,
        Classification(CLASSES),
        data or part(ROWS, 1, noise=0.5, weights=weighted),
        part(20, 2, noise=0.5),
        epochs=EPOCHS,
        seed=seed,
        callbacks=[LoopDiagnostics(path, every=every), *callbacks],
        on_nonfinite=given.get("rule", "stop"),
        nonfinite_limit=4,
    )


class Last(Callback):
    """Keeps all of the state in which a loop stops, its times aside."""

    def on_train_end(self, loop):
        state = loop.state_dict()
        (own,) = state["members"]
        state["history"] = own["history"] = state["history"]["rows"][:, :-2]
        arrays, plain = pack(state)
        self.state = {name: array.tobytes() for name, array in arrays.items()}, plain


def outcome(path, callbacks=(), state=None, **given):
    """Run to the end and return all that is left, with the message of an error."""
    last = Last()
    loop = make(path, [*callbacks, last], **given)
    if state:
        loop.load_state_dict(state)
    try:
        text = loop.run().ending
    except NumericalError as error:
        text = str(error)
    watcher = loop.callback("diagnostics")
    return last.state, text, watcher.verdicts(), list(watcher.core.noted), path.read_bytes()


def both(tmp_path, **given):
    """Run with skipped steps and without; return both outcomes and the steps made at once."""
    made = []
    real = CompiledSteps.make

    def counting(many, start, count, norm):
        real(many, start, count, norm)
        made.append(count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledSteps, "make", counting)
        quick = outcome(tmp_path / "quick.csv", **given)
        count = sum(made)
        seen = outcome(tmp_path / "seen.csv", [EveryStep()], **given)
    assert sum(made) == count
    return quick, seen, count


@pytest.mark.parametrize(("name", "every"), [*zip(SETTINGS, (7, 1000), strict=True)])
def test_skipped_steps_change_no_bit(name, every, tmp_path):
    quick, seen, count = both(tmp_path, every=every, **SETTINGS[name])
    assert quick == seen
    assert count > EPOCHS * 40 * 0.6


def test_a_loop_that_an_exception_ended_goes_on_with_the_next_row():
    whole, loop = make(None, every=1000), make(None, every=1000)
    whole.run()
    program = loop.step.bound(BATCH).fused
    step, calls = program.step, []

    def interrupted():
        calls.append(step())
        if len(calls) == 2:
            raise KeyboardInterrupt
        return calls[-1]

    program.step = interrupted
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    loop.run()
    assert loop.steps == whole.steps
    assert loop.step.mlp.params.flat.tobytes() == whole.step.mlp.params.flat.tobytes()


def first_order():
    """Return the order of the rows in the first epoch."""
    loop = make(None, every=1000)
    batches = loop.members[0].batches
    batches.begin()
    return batches.order.copy()


def test_spikes_are_seen_among_them(tmp_path):
    rows = {3, 100, first_order()[-2]}  # the last in the short batch
    data = part(ROWS, 1, noise=0.5)
    data.x[[*rows]] *= 200
    quick, seen, count = both(tmp_path, data=data, every=50)
    assert quick == seen
    assert {spike.row for spike in quick[3]} >= rows
    assert count > 100


@pytest.mark.parametrize(("action", "row"), [("stop", 250), ("stop", None), ("skip", 3)])
def test_numbers_that_are_not_finite_are_met_as_ever(action, row, tmp_path):
    data, short = part(ROWS, 1, noise=0.5), row is None
    row = first_order()[-1] if short else row  # in the short batch
    data.x[row, 1] = np.nan
    found = []
    for name, callbacks in (("quick", []), ("seen", [EveryStep()])):
        found.append(outcome(tmp_path / name, callbacks, data=data, rule=action, every=50))
    assert found[0] == found[1]
    assert f"training row {row}" in found[0][1]
    assert ("4 steps were skipped" in found[0][1]) == (action == "skip")
    at_end = f"step {ROWS // BATCH + 1}: " in found[0][1]
    assert at_end == (short and action == "stop")


class StopBy(Callback):
    """Stops a loop at the first step that it sees from a number on."""

    def __init__(self, steps):
        self.steps = steps

    def on_train_batch_end(self, loop):
        if loop.steps >= self.steps:
            loop.stop()

    def skip_budget(self, loop):
        return SkipBudget()


@pytest.mark.parametrize("at", [1, 41, 100])
def test_a_run_goes_on_from_wherever_it_stopped(at, tmp_path):
    whole = outcome(tmp_path / "whole.csv", **CLIP)
    store, path = Checkpoints(tmp_path / "c"), tmp_path / "parts.csv"
    first = make(path, [StopBy(at), Checkpointer(store, {})], **CLIP)
    assert first.run().ending == "interrupted"
    assert at <= first.steps < at + 41
    state = store.newest().state
    assert outcome(path, [EveryStep()], state, seed=9, **CLIP) == whole


class Counting(Callback):
    """Notes the steps it sees and the norms that passed."""

    def __init__(self, every):
        self.every, self.seen, self.passed = every, [], []

    def on_train_batch_end(self, loop):
        self.seen.append(loop.steps)

    def skip_budget(self, loop):
        return SkipBudget(self.every - 1 - loop.steps % self.every)

    def on_steps_skipped(self, loop, norms):
        self.passed += norms
        assert loop.step.grad_norm == norms[-1]
        assert len(loop.batch_rows) == (loop.step.scratch.batch_size)


def test_a_callback_is_called_within_its_budget(tmp_path):
    rare, often = Counting(10), Counting(5)
    loop = make(None, [rare, often], every=1000)
    loop.run()
    assert {n for n in range(1, loop.steps + 1) if n % 5 == 0} <= set(rare.seen) == set(often.seen)
    assert len(rare.seen) + len(rare.passed) == loop.steps
    assert len(rare.passed) > loop.steps / 2
