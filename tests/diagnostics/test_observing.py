"""Diagnostics of a loop: the file, windows, spikes, and a resumed run of the same bytes."""

import csv
from dataclasses import dataclass

import numpy as np
import pytest

from mlpengine import Adam, Mlp, Sgd, SoftmaxCrossEntropy, TrainingStep
from mlpengine.core.errors import NumericalError, UsageError
from mlpengine.diagnostics import Diagnostics
from mlpengine.diagnostics.samples import Columns, Series
from mlpengine.diagnostics.spikes import Spikes
from mlpengine.diagnostics.thresholds import CAPACITY, MIN_WINDOW_ROWS
from mlpengine.diagnostics.units import UnitWindow
from mlpengine.models.task import Classification, Split
from mlpengine.step.packing import pack, unpack
from mlpengine.training.diagnose import LoopDiagnostics
from mlpengine.training.loop import Callback, Loop


def part(rows=130, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 5)).astype("f4")
    y = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 1)
    return Split(x, y)


@dataclass
class StopAt(Callback):
    """Ends training after a step."""

    step: int

    def on_train_batch_end(self, loop):
        if loop.steps == self.step:
            loop.stop()


def loop(path, *more, stop_at=0, every=7, dropout=0.0, epochs=8):
    mlp = Mlp([5, 16, 8, 3], seed=2, dropout=dropout)
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), Adam(mlp, lr=1e-2), 16, clip_norm=1.0)
    watcher = LoopDiagnostics(path, every=every)
    return Loop(
        step,
        Classification(3),
        part(),
        part(60, 1),
        epochs=epochs,
        callbacks=[watcher, StopAt(stop_at), *more],
    ), watcher


@pytest.mark.parametrize(("stop_at", "every"), [(1, 7), (7, 7), (20, 1), (33, 7)])
def test_a_resumed_run_writes_the_same_bytes(tmp_path, stop_at, every):
    whole, watcher = loop(tmp_path / "whole.csv", every=every, dropout=0.2)
    whole.run()
    held = {}

    class Save(Callback):
        def on_train_batch_end(self, running):
            if running.steps == stop_at:
                arrays, plain = pack(running.state_dict())
                held["state"] = {k: v.copy() for k, v in arrays.items()}, plain

    broken, _ = loop(tmp_path / "parts.csv", Save(), stop_at=stop_at, every=every, dropout=0.2)
    broken.run()
    with (tmp_path / "parts.csv").open("a") as file:
        file.write("9999,0,made,after the checkpoint\n")
    resumed, other = loop(tmp_path / "parts.csv", every=every, dropout=0.2)
    resumed.load_state_dict(unpack(*held["state"]))
    resumed.run()
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert other.table() == watcher.table()
    assert other.verdicts() == watcher.verdicts()


def test_the_file_is_in_long_form(tmp_path):
    running, watcher = loop(tmp_path / "d.csv")
    running.run()
    with (tmp_path / "d.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert set(rows[0]) == {"step", "layer", "quantity", "value"}
    assert {row["step"] for row in rows} == {"1", *(str(s) for s in range(7, 73, 7))}
    found = {(r["layer"], r["quantity"]): float(r["value"]) for r in rows if r["step"] == "70"}
    for (layer, quantity), value in zip(watcher.core.columns, watcher.core.values, strict=True):
        assert np.isnan(value) == ((layer, quantity) not in found)
        assert np.isnan(value) or found[layer, quantity] == value
    assert ("2", "dead_share") not in found


def test_short_steps_are_sampled_less_often_after_a_while():
    mlp = Mlp([2, 3, 2])
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), Sgd(mlp, lr=0.0), 2)
    seen = Diagnostics(mlp)
    x, y = np.ones((2, 2), "f4"), np.array([0, 1])
    step(x, y)
    sampled = [
        number
        for number in range(1, 3201)
        if seen.after_step(step.scratch, step.grads, number, norm=1.0)
    ]
    assert sampled == [1, *range(50, 1001, 50), 1500, 2000, 2500, 3000]


def test_the_update_is_unknown_where_a_step_was_not_shown():
    mlp = Mlp([2, 3, 2])
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), Sgd(mlp, lr=0.1), 2)
    seen = Diagnostics(mlp, every=10)
    step(np.ones((2, 2), "f4"), np.array([0, 1]))
    assert seen.after_step(step.scratch, step.grads, 20)
    assert np.isnan(seen.values[seen.columns.index("update_ratio", 0)])
    assert seen.values[seen.columns.index("gradient_rms", 1)] > 0


@pytest.mark.parametrize("every", [0, -1])
def test_every_must_be_positive(every):
    with pytest.raises(UsageError, match="every must be at least 1"):
        Diagnostics(Mlp([2, 2]), every=every)


def test_evaluation_buffers_and_those_of_another_network_are_refused():
    mlp, other = Mlp([2, 3, 2]), Mlp([2, 4, 2])
    with pytest.raises(UsageError, match="diagnostics: scratch must be of"):
        Diagnostics(mlp).after_step(other.scratch(4), other.gradients(4), 1)
    scratch, grads = mlp.scratch(4, training=False), mlp.gradients(4)
    with pytest.raises(UsageError, match="rematerialization='keep'"):
        Diagnostics(mlp).after_step(scratch, grads, 1)


def test_a_window_needs_an_epoch_and_enough_rows():
    window = UnitWindow(3, np.dtype("f4"), steps_per_epoch=100)
    y = np.zeros((MIN_WINDOW_ROWS // 2, 3), "f4")
    y[5, 1] = 0.1
    for step in (10, 20, 60):
        window.add(y, step)
        assert window.dead is None
    y[5] = 0
    window.add(y, 100)
    np.testing.assert_array_equal(window.dead, [True, False, True])
    assert window.dead_share == pytest.approx(2 / 3)
    window.add(y, 110)
    window.add(y, 160)
    assert window.dead_share == 1.0


@pytest.mark.parametrize("at_once", [7, 3_000])
def test_level_and_limit_are_those_of_decaying_means(at_once):
    """A norm above the limit counts as one at the limit; norms that are 0 or infinite do not."""
    rng = np.random.default_rng(0)
    norms = [2.0] * 10 + [*np.exp(rng.normal(0.0, 1.0, 3_000))]
    spikes = Spikes()
    spikes.pending += norms[:10]
    spikes.update()
    weight, total, square = (sum(0.98**k for k in range(10)) * np.log(2.0) ** p for p in (0, 1, 2))
    for start in range(10, len(norms), at_once):
        limit, some = spikes.limit, norms[start : start + at_once]
        spikes.pending += [0.0, *some, np.inf]
        spikes.update()
        for norm in some:
            log = np.log(min(norm, limit))
            weight, total, square = (
                0.98 * past + now
                for past, now in zip((weight, total, square), (1.0, log, log**2), strict=True)
            )
        mean = total / weight
        distance = max(np.log(2.0), 4.0 * np.sqrt(square / weight - mean**2))
        assert spikes.mean == pytest.approx(mean, abs=1e-9)
        assert spikes.limit == pytest.approx(np.exp(mean + distance), rel=1e-9)
    assert spikes.steps == len(norms)


@pytest.mark.parametrize("batch", [16, 3])
def test_the_row_behind_a_spike_is_named(batch):
    mlp = Mlp([5, 16, 3], seed=0)
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), Sgd(mlp, lr=0.01), batch)
    seen, data, rng = Diagnostics(mlp, every=10), part(), np.random.default_rng(0)
    for number in range(1, 80):
        rows = rng.integers(0, 100, batch)
        x = data.x[rows]
        if number == 75:
            rows[2] = 120
            x[2] = 1000.0
        step(x, data.y[rows])
        seen.after_step(step.scratch, step.grads, number, norm=step.grad_norm, rows=rows)
    spike = max(seen.noted, key=lambda one: one.times)
    assert (spike.step, spike.row) == (75, 120)
    assert (spike.share > 0.9) == (batch > 3)  # unknown for three rows
    assert spike.times > 50
    assert (seen.spikes.count == 1) == (batch > 3)


def test_a_series_spans_any_run_in_the_same_memory():
    columns = Columns(1)
    series = Series(columns)
    for step in range(1, 5 * CAPACITY):
        series.append(step, [float(step)] * len(columns))
    assert CAPACITY / 2 <= len(series) <= CAPACITY
    gaps = np.diff(series.steps)
    assert len(set(gaps.tolist())) == 1
    np.testing.assert_array_equal(series.of("loss"), series.steps)
    other = Series(columns)
    other.load_state_dict(series.state_dict())
    for one in (series, other):
        one.append(9999, [0.0] * len(columns))
    np.testing.assert_array_equal(other.steps, series.steps)


@pytest.mark.parametrize("action", ["stop", "skip"])
def test_numbers_that_are_not_finite_are_spoken_of(tmp_path, action):
    mlp = Mlp([5, 16, 8, 3], seed=2)
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), Adam(mlp, lr=1e-3), 16)
    data = part()
    data.x[17, 2] = np.nan
    watcher = LoopDiagnostics(tmp_path / "d.csv", every=5)
    running = Loop(
        step,
        Classification(3),
        data,
        epochs=3,
        callbacks=[watcher],
        on_nonfinite=action,
        nonfinite_limit=5,
    )
    if action == "stop":
        with pytest.raises(NumericalError, match="training row 17"):
            running.run()
        assert "training row 17" in watcher.verdicts()[0].evidence
    else:
        running.run()
        (verdict,) = watcher.verdicts()
        assert verdict.value == 3
        assert verdict.evidence.startswith("3 steps ")
        assert np.isfinite(mlp.params.flat).all()
    assert (tmp_path / "d.csv").read_text().startswith("step,layer,quantity,value\n")
