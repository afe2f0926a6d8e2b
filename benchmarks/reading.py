"""Reading tables: `read_table` against pandas, pyarrow and polars, in time and memory.

``python benchmarks/reading.py`` (``--smoke`` for seconds, ``--rows`` for another length).  A
million rows of twenty columns, as CSV and as Parquet: of plain decimals, and of decimals, shortest
floats, whole numbers, texts of few and of many values, days and moments, and gaps.  Each reading is
a process of its own, which has read a small file before; all contestants take part in each round,
in turn.  Prints medians: seconds, seconds of all processors together, and megabytes at the peak
beyond those before; and ours over theirs in processor seconds, by the least of all rounds, which
busy neighbors change least.  A contestant that is not installed is left out.
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

Reader = dict[str, Callable[[str], object]]
"""Functions that read a file, by its suffix."""


def write(path: Path, rows: int, make: Callable[..., Iterator[list[str]]]) -> None:
    """Write the table, a chunk of rows at a time."""
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(f"c{i}" for i in range(20)) + "\n")
        for start in range(0, rows, CHUNK):
            columns = list(make(rng, min(CHUNK, rows - start)))
            file.writelines(f"{','.join(cells)}\n" for cells in zip(*columns, strict=True))


def decimals(rng: np.random.Generator, rows: int) -> Iterator[list[str]]:
    """Yield the cells of each column, of plain decimals."""
    for _ in range(20):
        yield [f"{value:.3f}" for value in rng.normal(0, 9, rows).tolist()]


def mixed(rng: np.random.Generator, rows: int) -> Iterator[list[str]]:
    """Yield the cells of each column, of many kinds."""
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


TABLES = {"decimals": decimals, "mixed": mixed}


def with_mlpengine() -> Reader:
    from mlpengine.data.tables import read_table

    return {".csv": read_table, ".parquet": read_table}


def with_pandas() -> Reader:
    import pandas as pd

    return {".csv": pd.read_csv, ".parquet": pd.read_parquet}


def with_pyarrow() -> Reader:
    from pyarrow import csv, parquet

    return {".csv": csv.read_csv, ".parquet": parquet.read_table}


def with_polars() -> Reader:
    import polars

    return {".csv": polars.read_csv, ".parquet": polars.read_parquet}


READERS = {
    "mlpengine": with_mlpengine,
    "pandas": with_pandas,
    "pyarrow": with_pyarrow,
    "polars": with_polars,
}


def megabytes(*, restart: bool = False) -> float:
    """Return the peak memory of this process, or, with `restart`, its present memory.

    Linux keeps the peak of a parent's memory in ``ru_maxrss``, and the peak of a process in VmHWM.
    """
    own = Path("/proc/self")
    if not own.is_dir():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1 << 20) if sys.platform == "darwin" else peak / 1024
    if restart:
        (own / "clear_refs").write_text("5", encoding="utf-8")
    status = (own / "status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def small_beside(path: str) -> str:
    """Return the path of a small file of the same columns."""
    return str(Path(path).with_stem("small"))


def measure(name: str, path: str) -> None:
    """Read the file once and print its time and memory."""
    read = READERS[name]()[Path(path).suffix]
    read(small_beside(path))  # what is imported or set up once is not measured
    before, began, worked = megabytes(restart=True), time.perf_counter(), time.process_time()
    result = read(path)
    seconds, processor = time.perf_counter() - began, time.process_time() - worked
    rows = result.num_rows if hasattr(result, "num_rows") else len(result)
    print(json.dumps([seconds, processor, megabytes() - before, rows]))


def compare(path: Path, rows: int, rounds: int) -> None:
    """Let all contestants read a file, and print their times and memory."""
    names = [name for name in READERS if find_spec(name)]
    taken: dict[str, list[list[float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            command = [sys.executable, __file__, "--reader", name, "--file", str(path)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            *figures, count = json.loads(done.stdout)
            if count != rows:
                sys.exit(f"{name}: {count} rows of {rows}")
            taken[name].append(figures)
    minima = {name: min(processor for _, processor, _ in taken[name]) for name in names}
    lines = []
    for name in names:
        s, p, m = (statistics.median(f) for f in zip(*taken[name], strict=True))
        ratio = f"{minima['mlpengine'] / minima[name]:.2f}"
        lines.append([name, f"{s:.2f}", f"{p:.2f}", f"{m:,.0f}", ratio])
    print(f"\n{path.name}: {rows:,} rows of 20 columns, {path.stat().st_size / 1e6:,.0f} MB")
    print(table(["reader", "seconds", "processor s", "MB", "ours over it"], lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="few rows, one round")
    parser.add_argument("--reader", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        measure(options.reader, options.file)
        return
    rows, rounds = (5_000, 1) if options.smoke else (options.rows, options.rounds)
    describe()
    with TemporaryDirectory() as folder:
        for name, make in TABLES.items():
            path = Path(folder) / f"{name}.csv"
            write(path, rows, make)
            write(Path(small_beside(str(path))), 5_000, make)
            compare(path, rows, rounds)
            if find_spec("pyarrow"):
                from pyarrow import csv, parquet

                for source in (str(path), small_beside(str(path))):
                    parquet.write_table(csv.read_csv(source), Path(source).with_suffix(".parquet"))
                compare(path.with_suffix(".parquet"), rows, rounds)


if __name__ == "__main__":
    restart_clean()
    main()
