"""`mlpengine report`: a run, or several, as one HTML page."""

import json
from pathlib import Path

import click

from mlpengine.report import REPORT_FILE, collect, read_run, run_page, write_page

from .outcome import shortest
from .streams import say

EPILOG = """\b
Examples:
  mlpengine report runs/digits
  mlpengine report runs/digits -o digits.html
  mlpengine report runs/digits --json
"""


@click.command("report", epilog=EPILOG)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...",
                type=click.Path(path_type=Path))  # fmt: skip
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"The page; by default {REPORT_FILE} in the directory of the run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all numbers as JSON; write no page.")
def command(runs: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Write the page of the run directory RUN: one HTML file that needs no network.

    It shows how good the model is against a constant and a linear prediction, what is wrong and
    how to mend it, curves, predictions, what drives them, gradients, the data and the hardest rows.
    """
    collected = [collect(read_run(run)) for run in runs]
    if as_json:
        click.echo(json.dumps(collected[0].data, allow_nan=False))
        return
    path = out or runs[0] / REPORT_FILE
    write_page(path, run_page(collected[0].data))
    say(str(shortest(path)))
