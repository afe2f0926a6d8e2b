"""What diagnostics cost: the training loop with them at their defaults and without.

Run ``python benchmarks/diagnostics.py`` (``--smoke`` for seconds).  Both loops of a workload run in
turn, window by window, so that a change of the machine's speed hits both, and what counts is
processor time, as one thread computes.  Printed are medians over the windows, the median of the
windows' ratios, and the ratio of the fastest windows.  Of short steps the first 1,000, a twentieth
of a second in which samples are closer together, are left out.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe, restart_clean
from step import WORKLOADS, Workload
from threadpoolctl import threadpool_limits

from mlpengine import Adam, MeanSquaredError, SoftmaxCrossEntropy, TrainingStep
from mlpengine.diagnostics.schedule import DENSE_STEPS, EVERY, SHORT_STEP, STRETCH
from mlpengine.diagnostics.yardsticks import MAX_ROWS, rows_within, yardsticks
from mlpengine.models.task import Split, Task
from mlpengine.training.diagnose import YARDSTICK_SHARE, LoopDiagnostics
from mlpengine.training.loop import Loop

BUDGET = {"tiny": 5.0}
"""Per cent of the training time, by workload; of the others 2."""


class Unmeasured(Task):
    """A task without metrics."""

    headline = ()

    def predict(self, output: np.ndarray) -> np.ndarray:
        return output

    def _own_metrics(self) -> dict[str, Any]:
        return {}


def loop(work: Workload, batches: int, watcher: LoopDiagnostics | None) -> Loop:
    """Return a loop of endless epochs over `batches` batches."""
    rng = np.random.default_rng(0)
    rows = work.batch * batches
    x = rng.standard_normal((rows, work.sizes[0])).astype("f4")
    y = (x @ rng.standard_normal((work.sizes[0], work.sizes[-1])).astype("f4")) / 10
    mlp = work.mlp()
    loss = MeanSquaredError() if work.loss == "mse" else SoftmaxCrossEntropy()
    step = TrainingStep(mlp, loss, Adam(mlp, lr=1e-3), work.batch, backend="numpy")
    target = y if work.loss == "mse" else y.argmax(axis=1)
    part = Split(x, target, target)
    callbacks = [] if watcher is None else [watcher]
    return Loop(step, Unmeasured(work.sizes[-1]), part, epochs=10**9, callbacks=callbacks)


def microseconds(training: Loop, steps: int) -> float:
    """Train for some epochs more, and return the time of a step."""
    training.epochs = len(training.history.rows) + max(1, steps // len(training.batches))
    first, start = training.steps, time.process_time()
    while training.run_epoch() and training.ending is None:
        pass
    return (time.process_time() - start) / (training.steps - first) * 1e6


def measure(work: Workload, seconds: float, folder: Path) -> None:
    """Train with and without in turn, in windows of whole gaps between samples; print a line."""
    contestants = loop(work, 10, None), loop(work, 10, LoopDiagnostics(folder / f"{work.name}.csv"))
    short = len(contestants[0].step.mlp.params) * work.batch < SHORT_STEP
    for training in contestants:
        for callback in training.callbacks:
            callback.on_train_start(training)
        microseconds(training, DENSE_STEPS if short else EVERY)
    per_step = microseconds(contestants[0], EVERY) / 1e6
    gap = EVERY * STRETCH if short else EVERY
    steps = gap * max(1, round(0.05 / per_step / gap))
    windows = min(max(5, int(seconds / steps / per_step)), 400)
    times: list[list[float]] = [[], []]
    for window in range(windows):
        for which in (0, 1) if window % 2 else (1, 0):
            times[which].append(microseconds(contestants[which], steps))
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    plain, watched = (statistics.median(t) for t in times)
    print(
        f"{work.name:<8}{plain:>12.1f} us{watched:>12.1f} us{(ratio - 1) * 100:>9.2f} %"
        f"{(min(times[1]) / min(times[0]) - 1) * 100:>13.2f} %   budget "
        f"{BUDGET.get(work.name, 2.0):g} %   {windows} windows of {steps} steps"
    )


def measure_simple_models(features: int) -> None:
    """Time the simple models on the rows that a run of a second has time for; print a line."""
    rng, rows = np.random.default_rng(0), min(MAX_ROWS, rows_within(YARDSTICK_SHARE, features))
    x, classes = rng.standard_normal((rows, features)).astype("f4"), rng.integers(0, 10, rows)
    spent = []
    for _ in range(5):
        start = time.process_time()
        yardsticks(x, classes, classes, np.arange(rows), x)
        spent.append(time.process_time() - start)
    print(
        f"simple models, {features:>3} features: {rows:>4} rows in {min(spent) * 1e3:>5.1f} ms of "
        f"a run of 1 s, budget {YARDSTICK_SHARE:.0%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a fraction of a second a workload")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each contestant")
    parser.add_argument("--workloads", nargs="+", help="names; by default all")
    args = parser.parse_args()
    describe()
    seconds = 0.2 if args.smoke else args.seconds
    workloads = WORKLOADS[:2] if args.smoke else WORKLOADS
    print(f"{'':<8}{'without':>15}{'with':>15}{'overhead':>11}{'of minima':>15}   one BLAS thread")
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        for work in workloads:
            if not args.workloads or work.name in args.workloads:
                measure(work, seconds, Path(folder))
        for features in (4, 64, 500):
            measure_simple_models(features)


if __name__ == "__main__":
    restart_clean()
    main()
