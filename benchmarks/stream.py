"""Training on a table larger than memory: time of each pass, under a limit of address space.

``python benchmarks/stream.py`` (``--smoke`` for seconds, ``--megabytes`` for another size) writes a
table as CSV and as Parquet, and trains two epochs with ``data.stream`` in a process whose address
space is limited to 600 MiB beyond what it has after its imports.  Then it trains once more on the
prepared files.  Prints seconds and megabytes of the source a second: of the first run, with both
passes and its two epochs, of the second run, and of each epoch; and the largest address space
beyond the imports.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
from machine import describe, restart_clean

LIMIT = 600 * 2**20
FEATURES, BLOCK_ROWS, BLOCKS = 18, 5_000, 40
CITIES = ("Kyiv", "Oslo", "Paris", "Rome")
CONFIG = """\
name: {name}
data: {{source: {source}, target: y, stream: {{directory: {directory}}}}}
model: {{hidden: [64]}}
training: {{epochs: 2, batch_size: 256, checkpoint: false}}
report: false
"""
CHILD = """\
import json, resource, sys
import mlpengine_cli.train, mlpengine.step.step_builder, numexpr, pyarrow.parquet
from mlpengine_cli.main import run
def pages(key):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(l.split()[1]) * 1024 for l in lines if l.startswith(key))
before = pages("VmSize")
resource.setrlimit(resource.RLIMIT_AS, (before + int(sys.argv[1]),) * 2)
code = run(["train", sys.argv[2], "-q", "--json", "--out", sys.argv[3]])
print(json.dumps({"code": code, "space": pages("VmPeak") - before}))
"""


def write_csv(path: Path, megabytes: float) -> None:
    """Write a table in which each of some blocks of rows stands many times."""
    rng = np.random.default_rng(0)
    blocks = [block(rng) for _ in range(BLOCKS)]
    size = 0
    with path.open("wb") as file:
        file.write((",".join([*(f"x{i}" for i in range(FEATURES)), "city", "y"]) + "\n").encode())
        while size < megabytes * 1e6:
            size += file.write(blocks[rng.integers(BLOCKS)])


def block(rng: np.random.Generator) -> bytes:
    """Return some rows as lines of CSV."""
    x = rng.standard_normal((BLOCK_ROWS, FEATURES))
    city = rng.integers(0, len(CITIES), BLOCK_ROWS)
    y = 2 * x[:, 0] - np.tanh(x[:, 1]) + (city == 1) + 0.1 * rng.standard_normal(BLOCK_ROWS)
    lines = []
    for row, name, value in zip(x.tolist(), city.tolist(), y.tolist(), strict=True):
        cells = [f"{cell:.6f}" for cell in row]
        lines.append(",".join([*cells, CITIES[name], f"{value:.6f}"]))
    return ("\n".join(lines) + "\n").encode()


def write_parquet(path: Path, megabytes: float) -> None:
    """Write a table of the same columns as Parquet of about this size."""
    import pyarrow
    from pyarrow import parquet

    rng = np.random.default_rng(1)
    writer = None
    while writer is None or path.stat().st_size < megabytes * 1e6:
        rows = 10 * BLOCK_ROWS
        columns = {f"x{i}": rng.standard_normal(rows) for i in range(FEATURES)}
        columns["city"] = np.array(CITIES, object)[rng.integers(0, len(CITIES), rows)]
        columns["y"] = 2 * columns["x0"] - np.tanh(columns["x1"])
        table = pyarrow.table(columns)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def train(directory: Path, source: Path, name: str) -> dict[str, float]:
    """Train in a process with limited address space; return seconds, epochs and space."""
    config, run = directory / f"{name}.yaml", directory / "runs" / name
    prepared = directory / "prepared"
    config.write_text(CONFIG.format(name=name, source=source, directory=prepared))
    began = perf_counter()
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(LIMIT), str(config), str(run)],
        capture_output=True,
        text=True,
    )
    seconds = perf_counter() - began
    lines = ran.stdout.splitlines()
    if ran.returncode or not lines or json.loads(lines[-1])["code"]:
        raise SystemExit(f"{name}: {ran.stderr}{ran.stdout}")
    timings = (run / "timings.csv").read_text().splitlines()[1:]
    epochs = [float(line.split(",")[1]) for line in timings]
    return {"seconds": seconds, "epochs": epochs, "space": json.loads(lines[-1])["space"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="a small table, in seconds")
    parser.add_argument("--megabytes", type=float, default=1_100.0)
    parser.add_argument("--directory", type=Path, help="where the tables are written")
    options = parser.parse_args()
    megabytes = 3.0 if options.smoke else options.megabytes
    restart_clean()
    describe()
    with TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name)
        tables = {"csv": directory / "t.csv", "parquet": directory / "t.parquet"}
        write_csv(tables["csv"], megabytes)
        write_parquet(tables["parquet"], megabytes)
        print(f"{'':10}{'MB':>8}{'':>10}{'s':>8}{'MB/s':>8}{'epoch 1':>9}{'epoch 2':>9}{'MiB':>8}")
        for kind, source in tables.items():
            size = source.stat().st_size / 1e6
            for run in ("first",) if options.smoke else ("first", "second"):
                one = train(directory, source, f"{kind}-{run}")
                rates = [size / seconds for seconds in one["epochs"]]
                print(
                    f"{kind:10}{size:8.0f}{run:>10}{one['seconds']:8.1f}"
                    f"{size / one['seconds']:8.1f}{rates[0]:9.0f}{rates[1]:9.0f}"
                    f"{one['space'] / 2**20:8.0f}",
                    flush=True,
                )
            source.unlink()
    print(f"limit: {LIMIT / 2**20:.0f} MiB of address space beyond the imports")


if __name__ == "__main__":
    main()
