"""Stop training at random moments, resume it, and compare the files byte for byte.

    python benchmarks/kill.py                     # 30 times each kill -9, SIGINT, SIGTERM
    python benchmarks/kill.py --times 1000 --signals KILL
    python benchmarks/kill.py --smoke             # once each

A run is stopped and resumed, once or twice, until it ends; then its weights, metrics and
diagnostics must equal those of an undisturbed run.  The moments are spread over the whole life of
the process, its start and its last writes included.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

COMPARED = ("model.safetensors", "metrics.csv", "diagnostics.csv")
CODES = {"KILL": -9, "INT": 130, "TERM": 143}
LIMIT = 2.0
"""Seconds within which a run must end after SIGINT or SIGTERM."""

CONFIG = """\
data: {source: digits}
model: {hidden: [48, 32], activation: relu, dropout: 0.2}
optimizer: {name: adamw, lr: 2e-3}
schedule: {name: plateau, patience: 2, warmup_epochs: 1}
training:
  epochs: 40
  batch_size: 16
  clip_norm: 1.0
  early_stopping: {patience: 30}
  checkpoint: {every_seconds: 0.2, every_steps: 61}
diagnostics: {every: 10}
report: false
"""
COMMAND = [sys.executable, "-m", "mlpengine_cli.main", "train", "--json"]


def start(*args: object) -> subprocess.Popen[str]:
    """Start `mlpengine train`."""
    command = [*COMMAND, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def go_on(config: Path, run: Path) -> subprocess.Popen[str]:
    """Start the run, or resume it if its config was written."""
    if (run / "config.resolved.yaml").exists():
        return start("--resume", run)
    shutil.rmtree(run, ignore_errors=True)
    return start(config, "--out", run)


def await_start(process: subprocess.Popen[str]) -> None:
    """Wait until training begins, or the process has ended."""
    assert process.stderr
    for line in process.stderr:
        if line.startswith("run "):
            return


def stop(process: subprocess.Popen[str], name: str, moment: float) -> str:
    """Send the signal after `moment` seconds; return the fault of the ending, or ""."""
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        if name != "KILL":  # Python has its own handlers until the command starts
            await_start(process)
        process.send_signal(getattr(signal, f"SIG{name}"))
    began = time.perf_counter()
    with process:
        _, error = process.communicate()
    spent = time.perf_counter() - began
    if process.returncode not in (0, CODES[name]):
        return f"exit code {process.returncode}: {error.strip()}"
    if "Traceback" in error:
        return error
    return f"took {spent:.1f} s to end" if name != "KILL" and spent > LIMIT else ""


def attempt(name: str, config: Path, whole: Path, seconds: float, stops: int) -> str:
    """Stop a run `stops` times, let it end, and return the differences from the whole one."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        for _ in range(stops):
            wrong = stop(go_on(config, run), name, random.uniform(0, seconds))
            if wrong:
                return wrong
        with go_on(config, run) as process:
            _, error = process.communicate()
        if process.returncode:
            return f"resuming: exit code {process.returncode}: {error.strip()}"
        differing = [f for f in COMPARED if (run / f).read_bytes() != (whole / f).read_bytes()]
        return f"differs in {', '.join(differing)}" if differing else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--times", type=int, default=30, help="runs to stop, for each signal")
    parser.add_argument("--signals", default="KILL,INT,TERM", help="of KILL, INT, TERM")
    parser.add_argument("--seed", type=int, default=None, help="of the moments")
    parser.add_argument("--set", action="append", default=[], help="override of the config")
    parser.add_argument("--smoke", action="store_true", help="once for each signal")
    options = parser.parse_args()
    random.seed(options.seed)
    names = options.signals.split(",")
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        config, whole = Path(folder) / "kill.yaml", Path(folder) / "whole"
        config.write_text(CONFIG)
        settings = [part for text in options.set for part in ("--set", text)]
        began = time.perf_counter()
        with start(config, "--out", whole, *settings) as process:
            _, error = process.communicate()
        seconds = time.perf_counter() - began
        if process.returncode:
            print(error)
            return 1
        resolved = Path(folder) / "resolved.yaml"
        shutil.copy(whole / "config.resolved.yaml", resolved)
        print(f"the whole run takes {seconds:.1f} s", flush=True)
        for number, name in product(range(1 if options.smoke else options.times), names):
            stops = random.choice((1, 1, 2))
            wrong = attempt(name, resolved, whole, seconds, stops)
            failures += bool(wrong)
            print(f"{number + 1:4d} SIG{name:<4} x {stops}: {wrong or 'identical'}", flush=True)
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
