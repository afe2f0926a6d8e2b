"""Compare two versions of the engine: which rows of a benchmark became slower.

``python benchmarks/peers.py --against TREE`` (or another script in `ROWS`) times the engine's rows
of the script's table, in this tree and in another tree, such as a checkout of a release. Each tree
has a process on one thread, with its own package, tests and version of the script. The processes
are timed in turn, in windows of equal length, so that changes of the machine's speed affect both.
Units: microseconds of processor time, including processes that a row starts (other programs on the
machine disturb processor time least); the ratio of the minima of wall time is shown, too. A row is
slower if the ratios of the medians and of the minima are above `LIMIT` in each of its timings.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, mkdtemp
from types import ModuleType

import numpy as np
from threadpoolctl import threadpool_limits

LIMIT = 1.03
"""A row is slower if the ratio of new to old time exceeds this number."""

WINDOWS = (16, 32, 32)
"""Windows of each timing of a row; a row is timed again while it is slower."""

LONG = 0.5
"""Seconds of a run above which a row has a quarter of the windows, of a run each."""

WINDOWS_IN_PLACE = 8
"""Windows until a row gets new arrays; their position in memory may change its time by a fifth."""

Run = Callable[[], object]
Rows = Iterator[tuple[str, Callable[[], Run]]]
"""Rows of a table: the name, and the function that makes the timed call."""


def _peers(script: ModuleType) -> Rows:
    script.cores = lambda: 1
    kinds: dict[str, Callable[..., tuple[Run, int]]] = {
        "looped": script.engine_looped,
        "per call": lambda work: script.engine(work, "compiled"),
        "NumPy": lambda work: script.engine(work, "numpy"),
    }
    for work in script.WORKLOADS:
        for kind, make in kinds.items():
            yield f"{work.name}, {kind}", lambda w=work, m=make: m(w)[0]


def _population(script: ModuleType, members: int) -> Rows:
    rng = np.random.default_rng(0)
    for work, steps in script.WORKLOADS:
        length = max(1, steps // 10) * work.batch  # more would only lengthen a run
        orders = rng.integers(0, 4 * work.batch, (members, length))
        yield f"{work.name}, population", lambda w=work, o=orders: script.population(w, o, 1)[0]
        yield f"{work.name}, single runs", lambda w=work, o=orders: script.single_runs(w, o)[0]


def path_of_commands(tree: Path, folder: str) -> str:
    """Return a PYTHONPATH with which ``-m mlpengine_cli.main`` runs the commands of a tree.

    A link to the commands is made in `folder`.
    """
    Path(folder, "mlpengine_cli").symlink_to(tree / "cli", target_is_directory=True)
    return os.pathsep.join([folder, str(tree)])


def _runs(script: ModuleType, rows: int, epochs: int | None) -> Rows:
    folder = TemporaryDirectory()
    os.environ["PYTHONPATH"] = path_of_commands(Path(script.__file__).parents[1], folder.name)

    def make(run) -> Run:
        directory = Path(mkdtemp(dir=folder.name))
        return partial(script.Contestants(run, directory, rows).seconds, script.BASE)

    for run in script.RUNS:
        yield run.title, partial(make, replace(run, epochs=epochs or run.epochs))


ROWS: dict[str, Callable[..., Rows]] = {
    "peers": _peers,
    "population": _population,
    "runs": _runs,
}
"""The rows of each script, in the version of the timed tree."""


def _clocks() -> np.ndarray:
    """Return processor time, including ended child processes, and wall time, in seconds."""
    children = 0.0
    if sys.platform != "win32":
        from resource import RUSAGE_CHILDREN, getrusage

        children = sum(getrusage(RUSAGE_CHILDREN)[:2])
    return np.array([time.process_time() + children, time.perf_counter()])


def serve(tree: str, name: str, options: dict[str, object]) -> None:
    """Time rows on request: read lines with a count and a row, and print seconds per run."""

    def seconds(count: int) -> list[float]:
        start = _clocks()
        for _ in range(count):
            run()
        return [*map(float, (_clocks() - start) / count)]

    sys.path[:0] = [tree, f"{tree}/benchmarks"]
    np.seterr(all="ignore")
    makers = dict(ROWS[name](import_module(name), **options))
    print(json.dumps([*makers]), flush=True)
    with threadpool_limits(1):
        for line in sys.stdin:
            count, row = line.rstrip("\n").split(" ", 1)
            if count == "0":
                run = makers[row]()
                run()
                answer = seconds(1)
                if answer[0] < LONG:
                    answer = min(seconds(1) for _ in range(3))
            else:
                answer = seconds(int(count))
            print(json.dumps(answer), flush=True)


class Worker:
    """A process that times the rows of a tree.

    `options` are the options of the function in `ROWS`.
    """

    def __init__(self, tree: Path, name: str, **options: object) -> None:
        call = f"import against; against.serve({str(tree)!r}, {name!r}, {options!r})"
        path = {"PYTHONPATH": str(Path(__file__).parent), "PYTHONSAFEPATH": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", call],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | path,
        )
        self.rows = json.loads(self.process.stdout.readline())

    def seconds(self, row: str, count: int) -> tuple[float, float]:
        """Return processor time and wall time per run, in seconds, of `count` runs.

        With `count` 0, the row is made again, in other memory, before a few runs; this is the first
        request for a row.
        """
        self.process.stdin.write(f"{count} {row}\n")
        self.process.stdin.flush()
        return tuple(json.loads(self.process.stdout.readline()))


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--against``."""
    text = "only time the engine, here and in the package of another tree"
    parser.add_argument("--against", type=Path, metavar="TREE", help=text)


def time_row(row: str, workers: Sequence[Worker], seconds: float, windows: int) -> tuple[str, bool]:
    """Return the text line of a row, and whether the row is slower in the last of `workers`."""
    longest = max(worker.seconds(row, 0)[0] for worker in workers)
    runs = max(1, int(seconds / max(longest, 1e-7)))
    times = {worker: [] for worker in workers}
    for window in range(windows if longest < LONG else windows // 4):
        for worker in workers if window % 2 else workers[::-1]:
            if window and window % WINDOWS_IN_PLACE == 0:
                worker.seconds(row, 0)
            times[worker].append(worker.seconds(row, runs))
    (old, old_wall), (new, new_wall) = (zip(*pairs, strict=True) for pairs in times.values())
    medians, minima = median(new) / median(old), min(new) / min(old)
    us = f"{median(old) * 1e6:12.2f} {median(new) * 1e6:12.2f}"
    ratios = f"{medians:7.3f} {minima:7.3f} {min(new_wall) / min(old_wall):7.3f}"
    return f"{row:<60.60} {us} {ratios}", min(medians, minima) > LIMIT


def compare(
    name: str, tree: Path, *, only: Sequence[str] = ("",), seconds: float, **options: object
) -> None:
    """Print times and ratios of the rows of script `name` that have a text of `only` in the name.

    `seconds` is the length of a window.  `options` are the options of the function in `ROWS`.
    """
    if hasattr(os, "sched_setaffinity"):  # one core for both: its neighbor slows both alike
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    workers = [
        Worker(path.resolve(), name, **options) for path in (tree, Path(__file__).parents[1])
    ]
    old, new = workers
    rows = [r for r in old.rows if r in new.rows and any(text in r for text in only)]
    slow = []
    head = f"{'old':>12} {'new':>12} {'median':>7} {'minimum':>7} {'wall':>7}"
    print(f"{'us, ratio of new to old':<60} {head}", flush=True)
    for row in rows:
        for windows in WINDOWS:
            line, is_slower = time_row(row, workers, seconds, windows)
            print(line, flush=True)
            if not is_slower:
                break
        else:
            slow.append(line)
    print(f"\n{len(slow)} of {len(rows)} rows take more than {LIMIT:g} times as long here")
    print(*slow, sep="\n")
    for worker in workers:
        worker.process.stdin.close()
        worker.process.wait()
