"""Time training on a table larger than memory, with limited address space.

``python benchmarks/stream.py`` (``--smoke`` takes seconds; ``--megabytes`` sets the size) writes a
CSV file, and trains two epochs with ``data.stream``.  The process may use 600 MiB of address space
in addition to its address space after the imports.  A second run trains on the prepared files.  The
script prints the seconds, and megabytes of CSV per second, of each run and epoch, and the largest
additional address space.
"""

import argparse
import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
from machine import describe, restart_clean

LIMIT = 600 * 2**20
FEATURES, BLOCK_ROWS = 18, 5_000
CONFIG = """\
name: {name}
data: {{source: {source}, target: y, stream: {{directory: {directory}}}}}
model: {{hidden: [64]}}
training: {{epochs: 2, batch_size: 256, checkpoint: false}}
report: false
"""
CHILD = """\
import json, resource, sys
import mlpengine_cli.train, mlpengine.step.step_builder, numexpr
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
    """Write a table: one block of random rows, repeated."""
    x = np.random.default_rng(0).standard_normal((BLOCK_ROWS, FEATURES))
    y = 2 * x[:, 0] - np.tanh(x[:, 1])
    block = StringIO()
    np.savetxt(block, np.column_stack([x, y]), "%.6f", ",")
    rows = block.getvalue()
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join([*(f"x{i}" for i in range(FEATURES)), "y"]) + "\n")
        for _ in range(int(megabytes * 1e6 / len(rows)) + 1):
            file.write(rows)


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
    parser.add_argument("--directory", type=Path, help="where the table is written")
    options = parser.parse_args()
    megabytes = 3.0 if options.smoke else options.megabytes
    restart_clean()
    describe()
    with TemporaryDirectory(dir=options.directory) as name:
        source = Path(name, "t.csv")
        write_csv(source, megabytes)
        size = source.stat().st_size / 1e6
        print(f"{size:.0f} MB of CSV")
        print(f"{'run':8}{'s':>8}{'MB/s':>8}{'epoch 1':>9}{'epoch 2':>9}{'MiB':>8}")
        for run in ("first",) if options.smoke else ("first", "second"):
            one = train(Path(name), source, run)
            epochs = "".join(f"{size / seconds:9.0f}" for seconds in one["epochs"])
            seconds, space = one["seconds"], one["space"] / 2**20
            print(f"{run:8}{seconds:8.1f}{size / seconds:8.1f}{epochs}{space:8.0f}", flush=True)
    print(f"limit: {LIMIT / 2**20:.0f} MiB of address space beyond the imports")


if __name__ == "__main__":
    main()
