"""Reading CSV: `read_table` against pandas, pyarrow and polars, in time and memory.

``python benchmarks/reading.py`` (``--smoke`` for seconds, ``--rows`` for another length).  Two
million rows of twenty columns: decimals, shortest floats, whole numbers, texts of few and of many
values, days and moments, gaps.  Each reading is a process of its own; all contestants take part in
each round, in turn.  Prints medians: seconds, seconds of all processors together, and megabytes
at the peak beyond those after the import.  A contestant that is not installed is left out.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from machine import describe, restart_clean, table

CHUNK = 50_000


def write(path: Path, rows: int) -> None:
    """Write the table, a chunk of rows at a time."""
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(f"c{i}" for i in range(20)) + "\n")
        for start in range(0, rows, CHUNK):
            columns = list(chunk(rng, min(CHUNK, rows - start)))
            file.writelines(f"{','.join(cells)}\n" for cells in zip(*columns, strict=True))


def chunk(rng: np.random.Generator, rows: int) -> Iterator[list[str]]:
    """Yield the cells of each column."""
    for _ in range(6):
        yield [f"{value:.2f}" for value in rng.normal(60, 9, rows).tolist()]
    for _ in range(3):
        yield list(map(repr, rng.normal(size=rows).tolist()))
    for limit in (2, 1_000, 100_000):
        yield list(map(str, rng.integers(0, limit, rows).tolist()))
    yield rng.choice(["Ideal", "Premium", "Good", "Fair"], rows).tolist()
    yield rng.choice([f"city {i}" for i in range(500)], rows).tolist()
    yield [f"id{i}" for i in rng.integers(0, 50_000, rows).tolist()]
    yield (np.datetime64("2015-01-01") + rng.integers(0, 3_000, rows)).astype(str).tolist()
    moments = np.datetime64("2015-01-01T00:00:00") + rng.integers(0, 10**8, rows)
    yield moments.astype(str).tolist()
    for _ in range(2):
        gaps = rng.random(rows) < 0.1
        values = rng.normal(size=rows).round(3).tolist()
        yield ["" if gap else repr(v) for gap, v in zip(gaps.tolist(), values, strict=True)]
    yield rng.choice(["north", "south", ""], rows).tolist()


def with_mlpengine() -> Callable[[str], object]:
    from mlpengine.tables import read_table

    return read_table


def with_pandas() -> Callable[[str], object]:
    import pandas as pd

    return lambda path: pd.read_csv(path, engine="c")


def with_pyarrow() -> Callable[[str], object]:
    from pyarrow import csv

    return csv.read_csv


def with_polars() -> Callable[[str], object]:
    import polars

    return polars.read_csv


READERS = {
    "mlpengine": with_mlpengine,
    "pandas": with_pandas,
    "pyarrow": with_pyarrow,
    "polars": with_polars,
}


def megabytes() -> float:
    """Return the peak memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / 1024


def measure(name: str, path: str) -> None:
    """Read the file once and print what it took."""
    read = READERS[name]()
    before, began, worked = megabytes(), time.perf_counter(), time.process_time()
    result = read(path)
    seconds, processor = time.perf_counter() - began, time.process_time() - worked
    rows = result.num_rows if hasattr(result, "num_rows") else len(result)
    print(json.dumps([seconds, processor, megabytes() - before, rows]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="few rows, one round")
    parser.add_argument("--reader", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        measure(options.reader, options.file)
        return
    rows, rounds = (5_000, 1) if options.smoke else (options.rows, options.rounds)
    names = [name for name in READERS if find_spec(name)]
    taken: dict[str, list[list[float]]] = {name: [] for name in names}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write(path, rows)
        size = path.stat().st_size / 1e6
        for _ in range(rounds):
            for name in names:
                command = [sys.executable, __file__, "--reader", name, "--file", str(path)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                *figures, count = json.loads(done.stdout)
                if count != rows:
                    sys.exit(f"{name}: {count} rows of {rows}")
                taken[name].append(figures)
    describe()
    print(f"{rows:,} rows of 20 columns, {size:,.0f} MB")
    medians = {n: [statistics.median(f) for f in zip(*taken[n], strict=True)] for n in names}
    first = medians["pandas"][0] if "pandas" in medians else None
    lines = [
        [name, f"{s:.2f}", f"{p:.2f}", f"{m:,.0f}", f"{s / first:.2f}" if first else "-"]
        for name, (s, p, m) in medians.items()
    ]
    print(table(["reader", "seconds", "processor s", "MB", "x pandas"], lines))


if __name__ == "__main__":
    restart_clean()
    main()
