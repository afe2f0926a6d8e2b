"""Two versions of the engine in one interleaved run: which rows of a benchmark became slower.

``python benchmarks/peers.py --against TREE`` (or another script of `ROWS`) times the engine's rows
of that script in this tree and in another one, say a checkout of a release. Each tree has a process
with its own package, tests and version of the script, on one thread; windows alternate, so that a
change of the machine's speed hits both alike. Units: microseconds of processor time, which
neighbors disturb least, also of the processes that a row starts; the ratio of the minima of wall
time stands beside it. A row counts as slower where the ratios of the medians and of the minima are
both above `LIMIT`, each time that it is timed.
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
"""The ratio of new to old above which a row is slower."""

WINDOWS = (16, 32, 32)
"""Windows of each time that a row is timed, until it is not slower."""

LONG = 0.5
"""Seconds of a run above which a row has a quarter of the windows, of a run each."""

WINDOWS_IN_PLACE = 8
"""Windows after which a row is made anew: where its arrays lie may change its time by a fifth."""

Run = Callable[[], object]
Rows = Iterator[tuple[str, Callable[[], Run]]]
"""Names of rows, each with the function that makes it."""


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
    """Return a PYTHONPATH on which ``-m mlpengine_cli.main`` runs the commands of a tree.

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
"""The rows of a script, from the version of it that the timed tree has."""


def _clocks() -> np.ndarray:
    """Return seconds: processor time, also of children that have ended, and wall time."""
    children = 0.0
    if sys.platform != "win32":
        from resource import RUSAGE_CHILDREN, getrusage

        children = sum(getrusage(RUSAGE_CHILDREN)[:2])
    return np.array([time.process_time() + children, time.perf_counter()])


def serve(tree: str, name: str, options: dict[str, object]) -> None:
    """Time rows on request: lines with a count and a row, answered by seconds a run."""

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
    """A process that times the rows of a tree.  Its scripts may lack modules of this folder.

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
        """Return the seconds of processor time and of wall time of a run, of `count` runs.

        With `count` 0 the row is made anew, in other memory, before a few runs; the first request
        for a row is this.
        """
        self.process.stdin.write(f"{count} {row}\n")
        self.process.stdin.flush()
        return tuple(json.loads(self.process.stdout.readline()))


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--against``."""
    text = "only time the engine, here and in the package of another tree"
    parser.add_argument("--against", type=Path, metavar="TREE", help=text)


def time_row(row: str, workers: Sequence[Worker], seconds: float, windows: int) -> tuple[str, bool]:
    """Return the line of a row, and whether it is slower in the last of `workers`."""
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
    """Print times and ratios of the rows of script `name` with a text of `only` in their names.

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
