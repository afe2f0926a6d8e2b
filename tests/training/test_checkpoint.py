"""Checkpoints: exact resume of everything, damage, full disks, what is kept."""

import logging
import random

import numpy as np
import pytest
from runs import CLASSES, EarlyStopping, part

from mlpengine import Adam, AdamW, CosineSchedule, Mlp, Sgd, SoftmaxCrossEntropy, TrainingStep
from mlpengine.core.errors import CheckpointError, NumericalError
from mlpengine.models.task import Classification
from mlpengine.nn.safetensors_file import read_tensors
from mlpengine.optim import PlateauSchedule, RmsProp, StepSchedule
from mlpengine.step.packing import pack, unpack
from mlpengine.training.checkpoint import Checkpointer, Checkpoints, read_checkpoint
from mlpengine.training.loop import Callback, Loop

EPOCHS = 5
SETTINGS = {
    "adamw, cosine, dropout, weights": {
        "optimizer": lambda mlp, s: AdamW(mlp, lr=1e-2, schedule=s, average=0.9),
        "schedule": lambda: CosineSchedule(20, 0.1, warmup_epochs=3),
        "dropout": 0.5,
        "clip": 0.1,
        "weighted": True,
    },
    "rmsprop, plateau, early stopping": {
        "optimizer": lambda mlp, s: RmsProp(mlp, lr=1e-2, momentum=0.5, schedule=s),
        "schedule": lambda: PlateauSchedule(1, 0.5),
        "early_stopping": EarlyStopping(1, "accuracy"),
    },
    "sgd, steps, float64, numexpr, no validation": {
        "optimizer": lambda m, s: Sgd(m, lr=0.1, momentum=0.9, nesterov=True, schedule=s),
        "schedule": lambda: StepSchedule(3, 0.5),
        "validation": False,
        "dtype": "float64",
        "backend": "numexpr",
    },
}


def make(*, callbacks=(), seed=3, **given):
    weighted = given.get("weighted", False)
    dtype = given.get("dtype", "float32")
    mlp = Mlp([4, 8, CLASSES], dropout=given.get("dropout", 0.0), seed=seed, dtype=dtype)
    schedule = given.get("schedule", lambda: None)()
    optimizer = given.get("optimizer", lambda m, s: Adam(m, lr=1e-2, schedule=s))(mlp, schedule)
    train = part(50, 1, noise=0.5, weights=weighted)
    valid = part(20, 2, noise=0.5)
    if dtype == "float64":
        train, valid = (type(p)(p.x.astype(dtype), p.y, p.truth, None) for p in (train, valid))
    step = TrainingStep(
        mlp,
        SoftmaxCrossEntropy(),
        optimizer,
        16,
        weighted=weighted,
        clip_norm=given.get("clip"),
        backend=given.get("backend", "numpy"),
    )
    return Loop(
        step,
        Classification(CLASSES),
        train,
        valid if given.get("validation", True) else None,
        epochs=EPOCHS,
        early_stopping=given.get("early_stopping"),
        seed=seed,
        callbacks=callbacks,
    )


class StopAt(Callback):
    """Stops a loop after so many steps."""

    def __init__(self, steps):
        self.steps = steps

    def on_train_batch_end(self, loop):
        if loop.steps == self.steps:
            loop.stop()


def outcome(loop):
    result = loop.run()
    values = [row.values() for row in result.history.rows]
    return result.ending, result.best_epoch, values, loop.step.mlp.params.flat.tobytes()


@pytest.mark.parametrize("name", SETTINGS)
def test_a_resumed_loop_ends_with_the_same_bits(name, tmp_path):
    whole = outcome(make(**SETTINGS[name]))
    steps = whole[2][-1][1]
    for at in (1, 4, 5, steps - 1):  # 4 steps are an epoch
        store = Checkpoints(tmp_path / str(at))
        saver = Checkpointer(store, {})
        stopped = make(**SETTINGS[name], callbacks=[StopAt(at), saver]).run()
        assert stopped.ending == "interrupted" or at == steps
        found = store.newest()
        again = make(**SETTINGS[name], seed=9)  # all that the seed decides is in the checkpoint
        again.load_state_dict(found.state)
        assert again.steps == at
        assert outcome(again) == whole


@pytest.mark.parametrize("again", ["another loop", "the same loop", "other weights"])
def test_the_state_after_a_run_is_that_of_its_last_step(again):
    """Before, it had the best weights, beside the optimizer's state of the last step."""
    settings = {"optimizer": lambda mlp, s: Adam(mlp, lr=0.3, schedule=s)}
    whole = make(**settings)
    whole.epochs = 2 * EPOCHS
    expected = outcome(whole)
    loop = make(**settings)
    assert loop.run().best_epoch < EPOCHS  # else best and last weights are the same
    params = loop.step.mlp.params.flat
    assert params.tobytes() == loop.members[0].best.weights.tobytes()
    if again == "another loop":
        state, loop = loop.state_dict(), make(**settings, seed=9)
        loop.load_state_dict(state)
    elif again == "other weights":
        params[...] = 0.5
        assert (loop.state_dict()["members"][0]["weights"]["0.weight"] == 0.5).all()
    loop.epochs = 2 * EPOCHS
    assert (outcome(loop) == expected) is (again != "other weights")


def test_a_loop_that_was_stopped_goes_on_when_it_is_run_again():
    whole = outcome(make())
    for at in (1, 4, 6):  # 4 steps are an epoch
        loop = make(callbacks=[StopAt(at)])
        assert (loop.run().ending, loop.steps) == ("interrupted", at)
        assert outcome(loop) == whole


def test_a_stop_before_the_first_step_is_kept(tmp_path):
    store = Checkpoints(tmp_path)
    loop = make(callbacks=[Checkpointer(store, {})])
    loop.stop()
    assert loop.run().ending == "interrupted"
    again = make(seed=9)
    again.load_state_dict(store.newest().state)
    assert outcome(again) == outcome(make())


def test_a_state_of_another_network_is_refused(tmp_path):
    state = make().state_dict()
    other = make(optimizer=lambda mlp, s: Sgd(mlp, lr=0.1))
    with pytest.raises(CheckpointError, match="saved state must have the same names"):
        other.load_state_dict(state)
    with pytest.raises(CheckpointError, match="does not fit this run"):
        make().load_state_dict({**state, "members": [{**state["members"][0], "batches": {}}]})
    with pytest.raises(CheckpointError, match="saved with other metrics"):
        make(validation=False).load_state_dict(state)


class Strict(Callback):
    name = "strict"
    loaded = 0

    def state_dict(self):
        return {"loaded": self.loaded}

    def load_state_dict(self, state):
        self.loaded = 7
        if state["loaded"] is None:
            raise CheckpointError("strict: no state")


WRONG = {
    "batches": {"order": np.arange(3), "cursor": 0},
    "best": {"weights": np.zeros(3)},
    "history": {"rows": np.zeros((2, 3))},
    "sums": [0.0, "x", 0.0, 0.0],
    "skipped": "2",
    "callbacks": {"strict": {"loaded": None}},
    "members": [],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_state_that_does_not_fit_is_refused(wrong):
    loop = make(callbacks=[Strict()])
    state = make(callbacks=[Strict()]).state_dict()
    if wrong not in state:
        state["members"][0][wrong] = WRONG[wrong]
    else:
        state[wrong] = WRONG[wrong]
    with pytest.raises(CheckpointError):
        loop.load_state_dict(state)


def test_the_state_before_a_step_that_failed_is_saved(tmp_path):
    store = Checkpoints(tmp_path)
    loop = make(callbacks=[Checkpointer(store, {})])
    loop.train.x[7] = np.nan
    with pytest.raises(NumericalError, match="must be finite"):
        loop.run()
    (state,) = store.newest().state["members"]
    assert state["optimizer"]["steps"] == loop.steps
    assert state["batches"]["cursor"] == loop.steps % 4 * 16


CADENCES = {
    "steps": ({"every_steps": 3, "every_seconds": None}, [3, 6, 9, 12, 15, 18, 20]),
    "epochs": ({"every_epochs": 2, "every_seconds": None}, [8, 16, 20]),
    "clock": ({"every_seconds": 1e-9}, list(range(1, 21))),
    "end": ({"every_seconds": None}, [20]),
}


@pytest.mark.parametrize("name", CADENCES)
def test_cadence(name, tmp_path, monkeypatch):
    settings, expected = CADENCES[name]
    monkeypatch.setattr("mlpengine.training.checkpoint.COST_SHARE", 1e9)
    saved = []
    store = Checkpoints(tmp_path)
    monkeypatch.setattr(store, "save", lambda step, *_: saved.append(step))
    make(callbacks=[Checkpointer(store, {}, **settings)]).run()
    assert saved == expected


def test_the_first_checkpoint_by_time_comes_early(tmp_path, monkeypatch):
    now, saved, store = [0.0], [], Checkpoints(tmp_path)
    monkeypatch.setattr("mlpengine.training.checkpoint.perf_counter", lambda: now[0])
    monkeypatch.setattr(store, "save", lambda step, *_: saved.append(now[0]))

    class Clock(Callback):
        def on_train_batch_end(self, loop):
            now[0] = loop.steps * 0.6  # 20 steps

    make(callbacks=[Clock(), Checkpointer(store, {}, every_seconds=4.0)]).run()
    np.testing.assert_allclose(saved, [1.2, 5.4, 9.6, 12.0])


def test_a_finished_run_keeps_one(tmp_path):
    saver = Checkpointer(Checkpoints(tmp_path), {}, every_steps=3)
    for stop, count in ((7, 2), (99, 1)):
        make(callbacks=[saver, StopAt(stop)]).run()
        assert len(saver.checkpoints.paths()) == count


def test_the_last_two_are_kept(tmp_path):
    store = Checkpoints(tmp_path)
    for step in range(1, 6):
        store.save(step, {"a": np.arange(step)}, {})
    assert sorted(tmp_path.iterdir()) == store.paths()
    assert [len(read_checkpoint(path).state["a"]) for path in store.paths()] == [4, 5]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two real checkpoints of one run."""
    folder = tmp_path_factory.mktemp("checkpoints")
    saver = Checkpointer(Checkpoints(folder), {"note": "1e-05"}, every_epochs=4, every_seconds=None)
    make(callbacks=[StopAt(18), saver]).run()
    return folder


def flipped(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def test_any_flipped_bit_is_noticed(saved, tmp_path):
    path = Checkpoints(saved).paths()[-1]
    size = path.stat().st_size
    header = int.from_bytes(path.read_bytes()[:8], "little") + 8
    chosen = random.Random(0)
    bits = {*range(0, 64, 5), *(chosen.randrange(header * 8) for _ in range(30))}
    bits |= {chosen.randrange(size * 8) for _ in range(20)}
    for bit in sorted(bits):
        damaged = tmp_path / "damaged.safetensors"
        damaged.write_bytes(flipped(path, bit))
        with pytest.raises(CheckpointError):
            read_checkpoint(damaged)


def test_the_checkpoint_before_a_damaged_one_is_taken(saved, tmp_path, caplog):
    for path in saved.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    store = Checkpoints(tmp_path)
    older, newer = store.paths()
    newer.write_bytes(flipped(newer, 9 * 1024))
    with caplog.at_level(logging.WARNING, "mlpengine"):
        found = store.newest()
    assert found.path == older
    assert newer.name in caplog.text
    store.remove_after(older)
    assert store.paths() == [older]
    older.write_bytes(b"")
    with pytest.raises(CheckpointError, match="damaged"):
        store.newest()


def test_nothing_saved_is_no_error(tmp_path):
    assert Checkpoints(tmp_path / "none").newest() is None


TREES = {
    "NaN": {"a": float("nan"), "b": np.float64(2)},
    "floats": {"a": 0.1, "b": float("inf"), "c": [float("-inf"), 1e-300, -0.0]},
    "whole numbers": {"a": 2**127 + 1, "b": True, "c": None, "d": "text"},
    "arrays": {"a": {"b": np.arange(3), "c": [np.float32([[1, 2]])]}, "d": np.zeros((0, 2))},
    "a number as an array": {"a": np.array(0.1)},
    "columns first": {"a": np.asfortranarray(np.arange(6.0).reshape(2, 3))},
}


@pytest.mark.parametrize("name", TREES)
def test_a_tree_comes_back(name, tmp_path):
    store = Checkpoints(tmp_path)
    store.save(1, TREES[name], {})
    found = store.newest().state
    np.testing.assert_equal(found, TREES[name])
    assert np.shape(found["a"]) == np.shape(TREES[name]["a"])


def test_a_missing_array_is_an_error():
    with pytest.raises(CheckpointError, match="'a' is missing"):
        unpack({}, pack({"a": np.arange(2)})[1])


def test_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("mlpengine.training.checkpoint.CHECKPOINT_FORMAT", 2)
    path = Checkpoints(tmp_path).save(1, {}, {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="is not a checkpoint of format 1"):
        read_checkpoint(path)
    assert read_tensors(path)[1]["format"] == 2
