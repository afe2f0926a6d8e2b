"""`mlpengine report`: a run, several runs, or a sweep as one HTML page."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlpengine.config.sweep import SETTINGS
from mlpengine.core.errors import UsageError
from mlpengine.report import (
    QUICK,
    REPORT_FILE,
    collect,
    collect_sweep,
    compare,
    read_run,
    run_page,
    runs_page,
    sweep_page,
    write_page,
)

from .options import FILE_PATH
from .outcome import shortest
from .streams import say

if TYPE_CHECKING:
    from .study import Study

MAX_RUNS = 30

EPILOG = """\b
Examples:
  mlpengine report runs/digits
  mlpengine report runs/digits -o digits.html
  mlpengine report runs/digits runs/digits-002 runs/digits-003 -o three.html
  mlpengine report runs/sweep
  mlpengine report runs/digits --json
"""


@click.command("report", epilog=EPILOG)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    type=FILE_PATH,
    help=f"The page; by default {REPORT_FILE} in the run directory, or here for several runs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all numbers as JSON; write no page.")
def command(runs: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Show the run directory RUN, or several, or a sweep's, on one HTML page.

    The page needs no network. It shows how good the model is against a constant and a linear
    prediction, what is wrong and how to fix it, curves, predictions, what drives them, gradients,
    the data and the hardest rows. Of several runs it shows which settings differ, and by how much
    their scores do on the same rows.
    """
    if len(runs) > MAX_RUNS:
        raise UsageError(f"report: at most {MAX_RUNS} runs fit on a page (got {len(runs)})")
    data, page, path = _collected(runs)
    if as_json:
        click.echo(json.dumps(data, allow_nan=False))
        return
    write_page(out or path, page(data))
    say(str(shortest(out or path)))


def _collected(
    paths: tuple[Path, ...],
) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], str], Path]:
    """Return the numbers of runs or of a sweep, what makes their page, and its usual path."""
    if len(paths) > 1:
        runs = [read_run(path) for path in paths]
        return compare(runs, [collect(run, QUICK) for run in runs]), runs_page, Path(REPORT_FILE)
    if paths[0].is_file():
        raise UsageError(f"report: RUN must be a directory ({paths[0]}); see mlpengine summary")
    path = paths[0] / REPORT_FILE
    sweep = sweep_of(paths[0])
    if sweep is not None:
        return sweep, sweep_page, path
    return collect(read_run(paths[0])).data, run_page, path


def sweep_of(path: Path) -> dict[str, Any] | None:
    """Return the numbers of a sweep from its directory; None if it is not a sweep."""
    if not (path / SETTINGS).is_file():
        return None
    from .study import Study

    with closing(Study(path)) as study:
        return sweep_data(study, study.summary())


def sweep_data(study: "Study", outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a sweep with a known outcome."""
    best = outcome["best"]
    chosen = collect(read_run(Path(best["run_dir"])), QUICK) if best else None
    path = shortest(study.directory)
    return collect_sweep(study.name, path, outcome, study.importance(), chosen)
