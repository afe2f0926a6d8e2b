"""`mlpengine train`: from a config to a run directory with a model."""

import json
import sys
from math import isfinite
from pathlib import Path
from typing import Any

import click

from mlpengine.config import ConfigFile, Override, load_config, parse_override
from mlpengine.config.build import Experiment, build
from mlpengine.train.history import METRICS_FILE, TIMINGS_FILE, CsvLog, EpochRow
from mlpengine.train.loop import Loop, Result
from mlpengine.train.model import MODEL_FILE
from mlpengine.train.run_directory import RunDirectory, environment
from mlpengine.train.threads import pinned

from .progress import progress
from .report import report
from .stopping import leave, stops

EPILOG = """\b
Examples:
  mlpengine train configs/digits.yaml
  mlpengine train configs/digits.yaml --set optimizer.lr=3e-3 --set 'model.hidden=[64, 32]'
  mlpengine train configs/digits.yaml --out runs/first --seed 7 --json
"""


class Files:
    """Observer that writes metrics.csv, which the same seed repeats, and timings.csv."""

    def __init__(self, directory: RunDirectory) -> None:
        self._path = directory.path

    def on_start(self, loop: Loop) -> None:
        """Start both files."""
        self._metrics = CsvLog(self._path / METRICS_FILE, loop.history.columns)
        times = ("epoch", "seconds", "samples_per_second")
        self._timings = CsvLog(self._path / TIMINGS_FILE, times)

    def on_epoch(self, loop: Loop, row: EpochRow) -> None:
        """Write one line to each."""
        self._metrics.append(row.values())
        self._timings.append([row.epoch, row.seconds, row.samples_per_second])

    def on_end(self, loop: Loop, result: Result) -> None:
        """Close both files."""
        for log in (self._metrics, self._timings):
            log.sync()
            log.close()


@click.command("train", epilog=EPILOG)
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Run directory; by default runs/<name>. One that is in use gets -002, -003, ... added.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override, as in optimizer.lr=0.1"
)
@click.option("--epochs", type=click.IntRange(1), help="Short for --set training.epochs=N.")
@click.option("--seed", type=click.IntRange(0), help="Short for --set seed=N.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
def command(
    config: Path,
    out: Path | None,
    settings: tuple[str, ...],
    epochs: int | None,
    seed: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train a network as the YAML file CONFIG says.

    Progress goes to stderr, the result to stdout, and everything else into the run directory.
    """
    overrides = [parse_override(text) for text in settings]
    if epochs is not None:
        overrides.append(Override("--epochs", ("training", "epochs"), str(epochs)))
    if seed is not None:
        overrides.append(Override("--seed", ("seed",), str(seed)))
    file = load_config(config, overrides)
    experiment = build(file)
    directory = RunDirectory.create(out or Path("runs") / file.name)
    _write_inputs(directory, file, experiment.threads)
    if not quiet:
        click.echo(_opening(experiment, directory), err=True)
    watchers = progress(quiet)
    loop = experiment.loop([Files(directory), *watchers])
    with pinned(experiment.threads), stops(loop.stop) as state:
        try:
            result = loop.run()
        finally:
            for watcher in watchers:
                watcher.close()
        outcome = finish(experiment, loop, result, directory)
    click.echo(json.dumps(outcome) if as_json else report(experiment, result, outcome))
    leave(state)


def finish(
    experiment: Experiment, loop: Loop, result: Result, directory: RunDirectory
) -> dict[str, Any]:
    """Save the model, measure it on every part, and return (and save) the result."""
    experiment.model.save(directory.path / MODEL_FILE)
    measured: dict[str, dict[str, float | None]] = {
        name: {
            key: value if isfinite(value) else None
            for key, value in loop.evaluator.run(part).items()
        }
        for name, part in experiment.parts.items()
    }
    outcome = {
        "run_dir": str(directory.path),
        "parameters": len(experiment.model.mlp.params),
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "seconds": round(result.seconds, 6),
        "samples_per_second": round(result.samples_per_second, 1),
        **{name: measured.get(name, {}) for name in ("train", "validation", "test")},
    }
    directory.write_json("result.json", outcome)
    return outcome


def _write_inputs(directory: RunDirectory, file: ConfigFile, threads: int) -> None:
    directory.write("config.yaml", file.document.raw)
    directory.write("config.resolved.yaml", file.resolved())
    directory.write_json("environment.json", {**environment(threads), "command": sys.argv})


def _opening(experiment: Experiment, directory: RunDirectory) -> str:
    config, mlp = experiment.file.config, experiment.model.mlp
    rows = ", ".join(f"{count:,} {name}" for name, count in experiment.tables.rows.items())
    sizes = "-".join(map(str, mlp.sizes))
    threads = f"{experiment.threads} thread{'s' if experiment.threads > 1 else ''}"
    return (
        f"data     {config.data.source}: {rows} rows, {mlp.sizes[0]} features\n"
        f"network  {sizes}, {len(mlp.params):,} parameters, {mlp.dtype}, {threads}\n"
        f"run      {directory.path}"
    )
