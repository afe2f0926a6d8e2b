"""Two versions of the engine in one interleaved run: which rows of a benchmark became slower.

``python benchmarks/ops.py --against TREE`` (or step.py, products.py, peers.py) times the engine's
rows of that script in this tree and in another one, say a checkout of a release.  Each tree has a
process with its own package, tests and version of the script, on one thread; windows alternate, so
that a change of the machine's speed hits both alike.  Units: microseconds of processor time, which
neighbors disturb least.  A row counts as slower where the ratios of the medians and of the minima
are both above `LIMIT`, each time that it is timed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from statistics import median
from types import ModuleType

import numpy as np
from threadpoolctl import threadpool_limits

LIMIT = 1.03
"""The ratio of new to old above which a row is slower."""

WINDOWS = (16, 32, 32)
"""Windows of each time that a row is timed, until it is not slower."""

WINDOWS_IN_PLACE = 8
"""Windows after which a row is made anew: where its arrays lie may change its time by a fifth."""

Run = Callable[[], object]
Rows = Iterator[tuple[str, Callable[[], Run]]]
"""Names of rows, each with the function that makes it."""


def _ops(script: ModuleType, elements: Sequence[int], dtypes: Sequence[str]) -> Rows:
    def make(case, size: int, dtype: str, way: str) -> Run:
        operands = case.operands(script.rows_for(case, size), dtype)
        bound = script.Bound(case.op, operands).random_dy()
        script.replayed(bound.forward_calls)()  # backward may read what it saves
        return script.replayed(getattr(bound, f"{way}_calls"))

    for size, case, dtype in product(elements, script.CASES, dtypes):
        if dtype in case.dtypes:
            for way in ("forward", "backward"):
                name = f"{case.id} {dtype} {size} {way}"
                yield name, partial(make, case, size, dtype, way)


def _step(script: ModuleType) -> Rows:
    for work in script.WORKLOADS:
        yield f"{work.name}, by hand", lambda w=work: script.by_hand(w)
        for backend in ("numpy", "compiled"):
            yield f"{work.name}, {backend}", lambda w=work, b=backend: script.engine(w, b)


def _products(script: ModuleType) -> Rows:
    for layer in script.LAYERS:
        for form in ("y", "dw", "dx"):
            name = f"{'-'.join(map(str, layer))}, {form}"
            yield name, lambda v=layer, f=form: script.compiled(f, script.operands(*v))


def _peers(script: ModuleType) -> Rows:
    script.cores = lambda: 1
    kinds: dict[str, Callable[..., tuple[Run, int]]] = {
        "looped": script.engine_looped,
        "per call": lambda work: script.engine(work, "compiled"),
        "epoch": script.engine_epoch,
        "NumPy": lambda work: script.engine(work, "numpy"),
        "five lines": script.five_lines,
    }
    for work in script.WORKLOADS:
        for kind, make in kinds.items():
            yield f"{work.name}, {kind}", lambda w=work, m=make: m(w)[0]


ROWS: dict[str, Callable[..., Rows]] = {
    "ops": _ops,
    "step": _step,
    "products": _products,
    "peers": _peers,
}
"""The rows of a script, from the version of it that the timed tree has."""


def serve(name: str, options: dict[str, object]) -> None:
    """Time rows on request: lines with a count and a row, answered by seconds a run."""
    np.seterr(all="ignore")
    makers = dict(ROWS[name](import_module(name), **options))
    print(json.dumps([*makers]), flush=True)
    made, run = "", None
    with threadpool_limits(1):
        for line in sys.stdin:
            count, row = line.rstrip("\n").split(" ", 1)
            if row != made or count == "0":
                made, run = row, makers[row]()
                for _ in range(3):
                    run()
            start = time.process_time()
            for _ in range(int(count)):
                run()
            print((time.process_time() - start) / max(1, int(count)), flush=True)


class Worker:
    """A process that times the rows of a tree, whose scripts may lack modules of this folder.

    `options` are those of the function in `ROWS`.
    """

    def __init__(self, tree: Path, name: str, **options: object) -> None:
        folders = [tree, tree / "benchmarks", tree / "tests" / "ops", Path(__file__).parent]
        path = os.pathsep.join(map(str, folders))
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"import against; against.serve({name!r}, {options!r})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        )
        self.rows = json.loads(self.process.stdout.readline())

    def seconds(self, row: str, count: int) -> float:
        """Return the seconds of processor time of a run, in a window of `count` runs.

        With `count` 0 the row is made anew, in other memory.
        """
        self.process.stdin.write(f"{count} {row}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--against``."""
    text = "only time the engine, here and in the package of another tree"
    parser.add_argument("--against", type=Path, metavar="TREE", help=text)


def time_row(row: str, workers: Sequence[Worker], seconds: float, windows: int) -> tuple[str, bool]:
    """Return the line of a row, and whether it is slower in the last of `workers`."""
    longest = max(min(w.seconds(row, 1) for _ in range(3)) for w in workers)
    runs = max(1, int(seconds / max(longest, 1e-7)))
    times = {worker: [] for worker in workers}
    for window in range(windows):
        for worker in workers if window % 2 else workers[::-1]:
            if window % WINDOWS_IN_PLACE == 0:
                worker.seconds(row, 0)
            times[worker].append(worker.seconds(row, runs))
    old, new = times.values()
    medians, minima = median(new) / median(old), min(new) / min(old)
    us = f"{median(old) * 1e6:10.2f} {median(new) * 1e6:10.2f}"
    return f"{row:<60.60} {us} {medians:7.3f} {minima:7.3f}", min(medians, minima) > LIMIT


def compare(
    name: str, tree: Path, *, only: Sequence[str] = ("",), seconds: float, **options: object
) -> None:
    """Print times and ratios of the rows of script `name` whose names contain a text of `only`.

    `seconds` is the length of a window, `options` are those of the function in `ROWS`.
    """
    if hasattr(os, "sched_setaffinity"):  # one core for both: its neighbor slows both alike
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    workers = [
        Worker(path.resolve(), name, **options) for path in (tree, Path(__file__).parents[1])
    ]
    old, new = workers
    rows = [r for r in old.rows if r in new.rows and any(text in r for text in only)]
    slow = []
    print(f"{'us, ratio of new to old':<60} {'old':>10} {'new':>10} {'median':>7} {'minimum':>7}")
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
