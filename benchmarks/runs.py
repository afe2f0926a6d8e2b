"""Time whole runs, from the start of a process to the model file: mlpengine, PyTorch, scikit-learn.

``python benchmarks/runs.py`` (``--smoke`` takes seconds; ``--busy`` runs two busy loops at the same
time; ``--rounds 7``, ``--only digits``, ``--epochs 4``).  All libraries train the same network for
the same number of epochs at the same batch size.  The tables are scanned digits, and a generated
table of the size of diamonds (53,940 rows, six numbers, three categories).  On the second table,
they also train the networks that ``mlpengine init`` proposes, without early stopping, for fewer
epochs, on inputs of the same kind.

mlpengine runs its command with default settings (checkpoints, diagnostics, report), with an empty
and with a filled cache of compiled steps.  The scripts of the other libraries
(benchmarks/run_scripts.py) read the same CSV file, train, measure validation rows after each epoch,
and save the model.  PyTorch has the same dropout, clipping, decay and schedule, and runs with its
default number of threads and with one thread.  The runs are timed in turn; figures are medians of
seconds, and medians of the ratios to mlpengine with a filled cache.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from against import add_option, compare
from machine import busy_loops, describe, figure, restart_clean, table

from mlpengine.config import load_config
from mlpengine.core.wording import plural

ROOT = Path(__file__).parents[1]
SCRIPTS = Path(__file__).with_name("run_scripts.py")
BASE = "mlpengine"
ONE_THREAD = "torch, one thread"
COMMAND = [sys.executable, "-m", "mlpengine_cli.main"]
BUSY = 2


@dataclass(frozen=True)
class Run:
    """A table, a network and a training length; `classes` is 0 for a number as target.

    With folds, the config that `init` writes gives the number of folds, network and batch size.
    """

    name: str
    target: str
    classes: int
    hidden: tuple[int, ...]
    epochs: int
    batch: int
    folds: int = 0

    @property
    def title(self) -> str:
        hidden = "-".join(map(str, self.hidden))
        several = f"{self.folds} networks of " if self.folds else ""
        shape = f"{several}{hidden} hidden"
        return f"{self.name}, {shape}, {plural(self.epochs, 'epoch')}, batch {self.batch}"


RUNS = (
    Run("digits", "digit", 10, (256, 128), 80, 32),
    Run("diamonds-like", "price", 0, (128, 64), 10, 256),
    Run("diamonds-like by init", "price", 0, (128, 128), 6, 256, folds=8),
)


def write_table(run: Run, path: Path, rows: int) -> None:
    """Write the CSV file of a run, with at most `rows` rows."""
    if run.name == "digits":
        source = ROOT / "mlpengine" / "data" / "datasets" / "digits.csv.gz"
        lines = gzip.decompress(source.read_bytes()).splitlines(keepends=True)
        path.write_bytes(b"".join(lines[: rows + 1]))
        return
    rng = np.random.default_rng(0)
    carat = rng.lognormal(-0.4, 0.55, rows).round(2) + 0.01
    x, y, z = (6.4 * scale * carat ** (1 / 3) for scale in (1.0, 1.005, 0.62))
    depth, width = rng.normal(61.7, 1.4, rows), rng.normal(57.5, 2.2, rows)
    cut, color, clarity = (rng.integers(0, n, rows) for n in (5, 7, 8))
    price = 4_000 * carat**1.7 * (1 + 0.03 * cut - 0.06 * color + 0.1 * clarity)
    price *= rng.lognormal(0.0, 0.1, rows)
    with path.open("w", encoding="utf-8") as file:
        file.write("carat,cut,color,clarity,depth,table,price,x,y,z\n")
        for i in range(rows):
            file.write(
                f"{carat[i]:.2f},cut {cut[i]},{'DEFGHIJ'[color[i]]},clarity {clarity[i]},"
                f"{depth[i]:.1f},{width[i]:.0f},{price[i]:.0f},{x[i]:.2f},{y[i]:.2f},{z[i]:.2f}\n"
            )


def config(run: Run, path: Path) -> str:
    """Return the config of a run; `path` is the path of the table."""
    if run.folds:
        out = path.with_suffix(".yaml")
        command = [*COMMAND, "init", path.name, "--target", run.target, "-o", out.name]
        subprocess.run(command, cwd=path.parent, check=True, capture_output=True)
        text = out.read_text(encoding="utf-8")
        text = re.sub(r"epochs: \d+", f"epochs: {run.epochs}", text)
        return re.sub(r".*early_stopping.*\n?", "", text)
    if run.name == "digits":
        text = (ROOT / "configs" / "digits.yaml").read_text(encoding="utf-8")
        text = text.replace("source: digits ", f"source: {path.name}\n  target: {run.target} ")
        lines = [line for line in text.splitlines() if "early_stopping" not in line]
        text = "\n".join(lines).replace("epochs: 80", f"epochs: {run.epochs}")
        return text.replace("warmup_epochs: 1}", "warmup_epochs: 0}")
    return (
        f"seed: 0\ndata: {{source: {path.name}, target: {run.target}}}\n"
        f"model: {{hidden: {list(run.hidden)}}}\noptimizer: {{name: adamw, lr: 1e-3}}\n"
        f"training: {{epochs: {run.epochs}, batch_size: {run.batch}}}\n"
    )


class Contestants:
    """The processes of a run.  Each process leaves a model file in the directory."""

    def __init__(self, run: Run, directory: Path, rows: int) -> None:
        self.directory = directory
        csv = directory / f"{run.name}.csv"
        write_table(run, csv, rows)
        (directory / "run.yaml").write_text(config(run, csv), encoding="utf-8")
        settings = load_config(directory / "run.yaml").config
        training, hidden = settings.training, tuple(settings.model.hidden)
        run = replace(run, hidden=hidden, batch=training.batch_size, folds=training.folds or 0)
        self.run = run
        bins = settings.data.bins if settings.data.encoding == "piecewise" else 0
        job = {"csv": str(csv), "target": run.target, "classes": run.classes}
        job |= {"hidden": run.hidden, "epochs": run.epochs, "batch": run.batch}
        job |= {"folds": run.folds, "bins": bins}
        optimizer, schedule = settings.optimizer, settings.schedule
        job |= {"lr": optimizer.lr, "weight_decay": optimizer.weight_decay}
        job |= {"cosine": schedule.name == "cosine", "clip_norm": training.clip_norm}
        dropout = settings.model.dropout
        job["dropout"] = [*dropout, *dropout[-1:] * (len(run.hidden) - len(dropout))]
        self.job = job | {"out": str(directory / "model")}
        for threads in (0, 1):
            text = json.dumps(self.job | {"threads": threads})
            (directory / f"job-{threads}.json").write_text(text, encoding="utf-8")
        self.names = [BASE, "mlpengine, empty cache"]
        if has("torch"):
            self.names += ["torch", ONE_THREAD]
        if has("sklearn"):
            self.names.append("scikit-learn")

    def seconds(self, name: str) -> float:
        """Return the wall time of one process, from its start to its end."""
        environment = dict(os.environ)
        if name.startswith(BASE):
            cache = self.directory / "cache"
            if name != BASE:
                cache = self.directory / "empty"
                shutil.rmtree(cache, ignore_errors=True)
            cache.mkdir(mode=0o700, exist_ok=True)
            environment["MLPENGINE_CACHE"] = str(cache)
            shutil.rmtree(self.directory / "run", ignore_errors=True)
            command = [*COMMAND, "train", "run.yaml", "--out", "run", "--quiet"]
            model = self.directory / "run" / "model.safetensors"
        else:
            job = f"job-{int(name == ONE_THREAD)}.json"
            library, model = name.partition(",")[0], Path(self.job["out"])
            command = [sys.executable, SCRIPTS, library, job]
            model.unlink(missing_ok=True)
        start = time.perf_counter()
        subprocess.run(
            [*map(str, command)],
            cwd=self.directory,
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - start
        if not model.is_file():
            raise SystemExit(f"{name} left no model")
        return seconds


def has(package: str) -> bool:
    """Return whether a library and pandas, with which the scripts read tables, are installed."""
    return find_spec(package) is not None and find_spec("pandas") is not None


def measure(run: Run, rows: int, rounds: int) -> tuple[Contestants, list[float], list[float]]:
    """Return all contestants, their median seconds, and median ratios to mlpengine."""
    with TemporaryDirectory() as name:
        contestants = Contestants(run, Path(name), rows)
        if rounds > 1:
            for each in contestants.names:
                contestants.seconds(each)  # warm up: files in memory, compiled code in the cache
        times = {each: [] for each in contestants.names}
        for _ in range(rounds):
            for each, values in times.items():
                values.append(contestants.seconds(each))
    medians = [statistics.median(values) for values in times.values()]
    ratios = [
        statistics.median(a / b for a, b in zip(values, times[BASE], strict=True))
        for values in times.values()
    ]
    return contestants, medians, ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="one short run of each, on one table")
    parser.add_argument("--busy", action="store_true", help=f"beside {BUSY} busy loops")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=[run.name for run in RUNS])
    parser.add_argument("--epochs", type=int, help="other than those of the runs")
    add_option(parser)
    args = parser.parse_args()
    describe()
    rows, epochs = (300, 1) if args.smoke else (53_940, args.epochs)
    only = args.only or (RUNS[-1].name if args.smoke else None)
    if args.against:
        texts = [f"{only},"] if only else [""]
        compare("runs", args.against, only=texts, seconds=0.05, rows=rows, epochs=epochs)
        return
    if not (has("torch") and has("sklearn")):
        print("not every contestant is installed: pip install '.[bench]'")
    lines: list[list[str]] = []
    names: list[str] = []
    with busy_loops(BUSY if args.busy else 0):
        for run in (r for r in RUNS if only in (None, r.name)):
            run = replace(run, epochs=epochs or run.epochs)
            contestants, medians, ratios = measure(run, rows, 1 if args.smoke else args.rounds)
            names = contestants.names
            cells = zip(medians, ratios, strict=True)
            lines.append([contestants.run.title, *(f"{figure(s)} ({figure(r)})" for s, r in cells)])
            print(*(f"{n} {s:.2f} s" for n, s in zip(names, medians, strict=True)), sep="   ")
            sys.stdout.flush()
    title = f"seconds (times mlpengine){f', beside {BUSY} busy loops' if args.busy else ''}"
    print(f"\n{table([title, *names], lines)}")


if __name__ == "__main__":
    restart_clean()
    main()
