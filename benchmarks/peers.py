"""Time the training step, compared with PyTorch, JAX and scikit-learn, each in its fastest form.

Run ``python benchmarks/peers.py`` (``--smoke`` takes seconds; ``--threads 1 2``, ``--only tiny``;
``--busy`` runs two busy loops at the same time).  Each number of threads has its own process, on as
many cores.  The libraries are timed in turn, in windows of equal length, so that changes of the
machine's speed affect all of them.  Units: microseconds per step, medians and minima over the
windows; at the end, a table of medians in Markdown.  ``products`` is the time of only the matrix
products of a step, in the fastest installed library.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from against import add_option, compare
from machine import busy_loops, cores, describe, figure, restart_clean, table
from peer_libraries import (
    LOOPED,
    Steps,
    Workload,
    jax_steps,
    product_steps,
    scikit_steps,
    torch_compiled,
    torch_steps,
)
from threadpoolctl import threadpool_limits

from mlpengine import Adam, Sgd, TrainingStep
from mlpengine.core.wording import plural

WORKLOADS = (
    Workload("tiny", (4, 32, 32, 1), 32, "tanh", "mse"),
    Workload("small", (64, 128, 10), 64),
    Workload("medium", (784, 256, 128, 10), 128),
    Workload("large", (784, 1024, 1024, 10), 256),
    Workload("two inputs", (2, 16, 1), 4, "tanh", "mse", "sgd"),
    Workload("one row", (4, 32, 32, 2), 1, "tanh", "mse", "sgd"),
    Workload("mnist sgd", (784, 128, 10), 32, optimizer="sgd"),
    Workload("mnist adam", (784, 128, 10), 32),
    Workload("middle", (256, 512, 512, 10), 128),
    Workload("width 2048", (784, 2048, 2048, 10), 256),
    Workload("narrow", (24, 8, 2), 200, "tanh", "mse", "sgd", double=True),
    Workload("whole data", (4, 32, 16, 4), 10_000, "tanh", "mse", double=True),
    Workload("deep tanh", (28, 300, 300, 300, 300, 300, 1), 100, "tanh", "mse"),
)

SMOKE = ("tiny", "two inputs")

COLUMNS = {
    "mlpengine, many steps per call": "compiled, looped",
    "mlpengine, one step per call": "compiled, per call",
    "mlpengine on NumPy": "NumPy",
    "JAX, many steps per call": "JAX, looped",
    "JAX, one step per call": "JAX, per call",
    "PyTorch eager": "torch eager",
    "torch.compile": "torch.compile",
    "scikit-learn": "scikit-learn",
}
"""Columns of the table, each with the names of the runs that it shows."""

BUSY = 2
"""Number of busy loops with ``--busy``."""

MIN_WINDOWS = 25
"""Minimum number of windows, for the largest networks."""

PAUSE, WARM = 0.12, 0.005
"""Seconds before a window: until the threads of the last library sleep, and until the threads of
the next library are awake."""


def make_step(work: Workload, backend: str, dtype: str = "float32") -> TrainingStep:
    """Return the step; it may use all cores of this process."""
    mlp = work.mlp(dtype)
    kind = Adam if work.optimizer == "adam" else Sgd
    optimizer, loss = kind(mlp, lr=1e-3), work.engine_loss()
    return TrainingStep(mlp, loss, optimizer, work.batch, backend=backend, threads=cores())


def engine(work: Workload, backend: str) -> Steps:
    """Return ``step(x, y)``, one step per call."""
    step = make_step(work, backend)
    x, y = (a[: work.batch] for a in work.data())
    return (lambda: step(x, y)), 1


def engine_looped(work: Workload, dtype: str = "float32") -> Steps:
    """Return many steps in one call, including the gathering of shuffled rows."""
    step = make_step(work, "compiled", dtype)
    (x, y), order = work.data(dtype), work.order(LOOPED)
    return (lambda: step.run_many(x, y, order)), LOOPED


def contestants(work: Workload, threads: int, *, smoke: bool) -> dict[str, Steps]:
    candidates = {
        "compiled, looped": engine_looped(work),
        "float64, looped": engine_looped(work, "float64") if work.double else None,
        "compiled, per call": engine(work, "compiled"),
        "NumPy": engine(work, "numpy"),
        "JAX, looped": jax_steps(work, looped=True),
        "JAX, per call": jax_steps(work, looped=False),
        "torch eager": torch_steps(work, threads),
        "torch.compile": None if smoke else torch_compiled(work, threads),
        "scikit-learn": scikit_steps(work),
        **product_steps(work, threads),
    }
    return {name: steps for name, steps in candidates.items() if steps is not None}


def measure(runs: dict[str, Steps], seconds: float, windows: int) -> dict[str, list[float]]:
    """Return microseconds per step of each run, one number per window; the runs are timed in turn.

    If single calls take long, there are fewer windows, but at least `MIN_WINDOWS`.
    """
    counts, times, total = {}, {}, 0.0
    for name, (run, _) in runs.items():
        for _ in range(3):
            run()
        start = time.perf_counter()
        run()
        spent = time.perf_counter() - start
        counts[name] = max(1, int(seconds / windows / spent))
        times[name] = []
        total += spent
    for _ in range(max(min(windows, MIN_WINDOWS), min(windows, int(len(runs) * seconds / total)))):
        for name, (run, steps) in runs.items():
            settle(run)
            start = time.perf_counter()
            for _ in range(counts[name]):
                run()
            spent = time.perf_counter() - start
            times[name].append(spent / counts[name] / steps * 1e6)
    return times


def settle(run: Callable[[], object]) -> None:
    """Wait until the threads of the last run sleep, then warm up the threads of this run."""
    if cores() > 1:
        time.sleep(PAUSE)
    start = time.perf_counter()
    while time.perf_counter() - start < WARM:
        run()


def report(work: Workload, times: dict[str, list[float]]) -> list[str]:
    """Print the table of a workload; return its medians as a row for the table in Markdown."""
    print(work.title)
    base = times["compiled, per call"]
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        ratio = statistics.median(a / b for a, b in zip(values, base, strict=True))
        print(
            f"  {name:<20} median {medians[name]:12.2f}   minimum {min(values):12.2f}   "
            f"ratio to compiled {ratio:7.2f}",
            flush=True,
        )
    floor = min(value for name, value in medians.items() if name.startswith("products"))
    return [work.label, *(figure(medians.get(name)) for name in COLUMNS.values()), figure(floor)]


def run_here(threads: int, args: argparse.Namespace) -> None:
    names = args.only or (SMOKE if args.smoke else [w.name for w in WORKLOADS])
    seconds, windows = (0.05, 3) if args.smoke else (args.seconds, 100 if threads == 1 else 50)
    lines = []
    title = f"{plural(threads, 'thread')}{f', beside {BUSY} busy loops' if args.busy else ''}"
    print(f"\n{title}")
    with threadpool_limits(threads), busy_loops(BUSY if args.busy else 0):
        for work in (w for w in WORKLOADS if w.name in names):
            runs = contestants(work, threads, smoke=args.smoke or args.fast)
            if not lines:
                describe()
            lines.append(report(work, measure(runs, seconds, windows)))
    print(f"\n{table([title, *COLUMNS, 'products alone'], lines)}\n", flush=True)


def hold_to(threads: int) -> None:
    """Restrict this process and its threads to a number of cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a fraction of a second a contestant")
    parser.add_argument("--fast", action="store_true", help="without torch.compile, which is slow")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", choices=[w.name for w in WORKLOADS])
    parser.add_argument(
        "--seconds",
        type=float,
        default=2.0,
        help="for each contestant, in 100 windows (50 with several threads)",
    )
    parser.add_argument("--busy", action="store_true", help=f"beside {BUSY} busy loops")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    add_option(parser)
    args = parser.parse_args()
    if args.against:
        only = [f"{name}," for name in args.only or SMOKE if args.only or args.smoke] or [""]
        compare("peers", args.against, only=only, seconds=0.001 if args.smoke else 0.05)
        return
    if args.here or args.smoke:
        hold_to(args.threads[0])
        run_here(args.threads[0], args)
        return
    for threads in args.threads:
        more = ["--only", *args.only] if args.only else []
        more += ["--fast"] if args.fast else []
        more += ["--busy"] if args.busy else []
        command = [sys.executable, __file__, "--here", "--threads", str(threads)]
        subprocess.run([*command, "--seconds", str(args.seconds), *more], check=True)


if __name__ == "__main__":
    restart_clean()
    np.seterr(all="ignore")
    main()
