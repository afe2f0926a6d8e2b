"""What eight folds cost: seconds of `mlpengine train` with eight networks, and with one.

``python benchmarks/folds.py`` (``--smoke`` for seconds, ``--rounds 3``) writes the config that
`init` proposes for small, middle and large tables, with the presets plain and realmlp.  It trains
eight folds of one kind of network, and one network on as many rows as each of those learns from,
for the same number of epochs.  Whole processes run in turn, after one of each that fills the cache
of compiled steps.  It prints medians of seconds, and their ratio: on two cores 4 is the least where
training is all there is, and less where starting takes a share.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from machine import describe, figure, restart_clean, table

FOLDS = 8


class Case(NamedTuple):
    """A table, how many rows it has if it is generated, and epochs by preset."""

    name: str
    target: str
    rows: int
    epochs: dict[str, int]


CASES = (
    Case("penguins", "species", 0, {"plain": 200, "realmlp": 100}),
    Case("diabetes", "progression", 0, {"plain": 200, "realmlp": 60}),
    Case("digits", "digit", 0, {"plain": 60, "realmlp": 8}),
    Case("generated", "y", 40_000, {"plain": 12, "realmlp": 2}),
)


def generate(path: Path, rows: int) -> None:
    """Write a table of six numbers, three texts, and a target that depends on all of them."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(rows, 6)).round(3)
    levels = rng.integers(0, 6, (rows, 3))
    y = np.sin(numbers[:, 0]) + numbers[:, 1] * numbers[:, 2] + 0.3 * levels.sum(axis=1)
    y = (y + 0.1 * rng.normal(size=rows)).round(4)
    with path.open("w", encoding="utf-8") as file:
        file.write("a,b,c,d,e,f,u,v,w,y\n")
        for row, texts, value in zip(numbers, levels, y, strict=True):
            file.write(",".join([*map(str, row), *(f"level{k}" for k in texts), str(value)]) + "\n")


def mlpengine(folder: Path, *words: str) -> float:
    """Run a command in a folder; return its seconds."""
    began = time.perf_counter()
    line = [sys.executable, "-m", "mlpengine_cli.main", *words]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, env=os.environ)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{' '.join(line)}: {done.stderr.strip()}")
    return seconds


def train(folder: Path, networks: int, epochs: int) -> tuple[float, float]:
    """Return the seconds of the whole process, and the seconds of its training loop."""
    run = f"run{time.perf_counter_ns()}"
    test = 0.2
    settings = {
        "training.epochs": epochs,
        "training.early_stopping": "false",
        "training.members": "null",
        "training.backend": "compiled",  # auto would not choose it for one network and few steps
        "data.encoding": "none",
        "report": "false",
        **(
            {"training.folds": networks}
            if networks > 1
            else {"training.folds": "null", "data.split.validation": (1 - test) / FOLDS}
        ),
        "data.split.test": test,
    }
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    seconds = mlpengine(folder, "train", "config.yaml", "-q", "--out", run, *options)
    result = json.loads((folder / run / "result.json").read_text(encoding="utf-8"))
    return seconds, result["seconds"]


def compare(case: Case, preset: str, rounds: int) -> list[str]:
    """Return a line of the table: seconds of one and of eight networks, and their ratio."""
    epochs = case.epochs[preset]
    with tempfile.TemporaryDirectory() as name:
        folder, source = Path(name), case.name
        if case.rows:
            source = f"{case.name}.csv"
            generate(folder / source, case.rows)
        mlpengine(
            folder, "init", source, "--target", case.target, "--preset", preset, "-o", "config.yaml"
        )
        for networks in (1, FOLDS):
            train(folder, networks, epochs)
        measured = [
            [train(folder, networks, epochs) for networks in (1, FOLDS)] for _ in range(rounds)
        ]
    times = np.array(measured)  # (rounds, networks, whole and loop)
    cells = [case.name, preset, str(epochs)]
    for part in times.transpose(2, 0, 1):
        one, eight = (statistics.median(each) for each in part.T)
        ratio = statistics.median(part[:, 1] / part[:, 0])
        cells += [figure(one), figure(eight), f"{ratio:.2f}"]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="one table, two epochs, once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="names of tables")
    parser.add_argument("--presets", nargs="*", default=["plain", "realmlp"])
    args = parser.parse_args()
    cases = [case for case in CASES if not args.only or case.name in args.only]
    if args.smoke:
        cases, args.presets, args.rounds = [CASES[0]._replace(epochs={"plain": 2})], ["plain"], 1
    lines = []
    for case in cases:
        for preset in args.presets:
            lines.append(compare(case, preset, args.rounds))
            print(*lines[-1], sep="  ", flush=True)
    describe()
    head = ["table", "preset", "epochs", "process: one, s", "eight folds, s", "ratio"]
    head += ["training loop: one, s", "eight folds, s", "ratio"]
    print(f"\n{table(head, lines)}")


if __name__ == "__main__":
    restart_clean()
    main()
