"""`mlpengine report`: a run or a sweep as one HTML page."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlpengine.config.sweep import SETTINGS
from mlpengine.core.errors import UsageError
from mlpengine.core.files import is_device
from mlpengine.report import (
    QUICK,
    REPORT_FILE,
    collect,
    collect_sweep,
    read_run,
    run_page,
    sweep_page,
    write_page,
)

from .options import MODEL_ARGUMENT, OUTPUT_FILE
from .outcome import shortest
from .streams import say

if TYPE_CHECKING:
    from .study import Study

EPILOG = """\b
Examples:
  mlpengine report runs/digits
  mlpengine report runs/digits -o digits.html
  mlpengine report runs/sweep
  mlpengine report runs/digits --json
"""


@click.command("report", epilog=EPILOG)
@MODEL_ARGUMENT
@click.option(
    "-o",
    "--out",
    type=OUTPUT_FILE,
    help=f"The page; by default {REPORT_FILE} in the run directory.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all numbers as JSON; write no page.")
def command(run: Path, out: Path | None, as_json: bool) -> None:
    """Write one HTML page about the run or the sweep in directory RUN.

    The page works offline.  It compares the model with a constant and a linear prediction, names
    problems and fixes, and shows curves, predictions, column importance, gradients, the data and
    the rows with the largest errors.
    """
    data, page = _collected(run)
    if as_json:
        click.echo(json.dumps(data, allow_nan=False))
        return
    path = out or run / REPORT_FILE
    write_page(path, page(data))
    say(str(shortest(path)), err=is_device(path))


def _collected(path: Path) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], str]]:
    """Return the numbers of a run or a sweep, and the function that makes their page."""
    if path.is_file():
        raise UsageError(f"report: RUN must be a directory ({path}); see mlpengine summary")
    sweep = sweep_of(path)
    if sweep is not None:
        return sweep, sweep_page
    return collect(read_run(path)).data, run_page


def sweep_of(path: Path) -> dict[str, Any] | None:
    """Return the numbers of the sweep in a directory; None if there is no sweep."""
    if not (path / SETTINGS).is_file():
        return None
    from .study import Study

    study = Study(path)
    return sweep_data(study, study.summary())


def sweep_data(study: "Study", outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a sweep; `outcome` is its summary."""
    best = outcome["best"]
    chosen = collect(read_run(Path(best["run_dir"])), QUICK) if best else None
    path = shortest(study.directory)
    return collect_sweep(study.name, path, outcome, study.importance(), chosen)
