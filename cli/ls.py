"""`mlpengine ls`: the runs of a directory, side by side."""

import json
from pathlib import Path
from typing import Any

import click

from mlpengine.config.sweep import SETTINGS
from mlpengine.core.errors import RunError, UsageError
from mlpengine.core.files import is_run, missing, pasted, read_mapping
from mlpengine.core.wording import columns_of, error_text, left, metric_text, printable
from mlpengine.diagnostics.verdict import NOTE
from mlpengine.models.task import OUT_OF_FOLD
from mlpengine.training.result import read_result
from mlpengine.training.run_directory import ENVIRONMENT_FILE, FAILURE_FILE

from .options import AS_JSON
from .outcome import part_title
from .streams import say

SCORED_PARTS = ("test", OUT_OF_FOLD, "validation", "train")
"""Parts of a run; the score of the first part that exists is shown."""

COLUMNS = ("run", "started", "score", "data", "verdicts")

EPILOG = """\b
Examples:
  mlpengine ls
  mlpengine ls experiments --json
"""


@click.command("ls", epilog=EPILOG)
@click.argument("directory", type=click.Path(path_type=Path), default=Path("runs"))
@AS_JSON
def command(directory: Path, as_json: bool) -> None:
    """List the runs in DIRECTORY (by default runs), the newest last; for a sweep, its trials.

    The list shows the start of each run, its score on test rows (else on out-of-fold, validation or
    training rows), its data and the names of its verdicts.
    """
    if directory.is_file():
        raise UsageError(f"{directory}: is a file; name a directory of runs")
    if not directory.is_dir():
        raise missing(directory, "directory")
    inside = directory / "trials" if (directory / SETTINGS).is_file() else directory
    runs = [described(path) for path in sorted(inside.glob("*")) if is_run(path)]
    sweeps = sorted(file.parent for file in directory.glob(f"*/{SETTINGS}"))
    if not runs and not sweeps:
        text = "holds no runs; `mlpengine train CONFIG.yaml` makes runs/CONFIG"
        raise UsageError(f"{directory}: {text}")
    runs.sort(key=lambda run: str(run["started"] or ""))
    if as_json:
        say(json.dumps(runs))
        return
    rows = [COLUMNS, *map(cells, runs)] if runs else []
    widths = [max(map(columns_of, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(map(left, row, widths)).rstrip())
    for sweep in sweeps:
        say(f"{printable(str(sweep))} is a sweep; its trials: mlpengine ls {pasted(sweep)}")


def described(path: Path) -> dict[str, Any]:
    """Return facts about a run, ready for JSON; `ending` is None if the run has not ended."""
    try:
        environment = read_mapping(path / ENVIRONMENT_FILE)
    except (OSError, ValueError):
        environment = {}  # damaged, or not yet written
    try:
        result = read_result(path)
    except (RunError, UsageError):
        result = {}
    part = next((name for name in SCORED_PARTS if result.get(name)), None)
    scores = result.get(part, {}) if part else {}
    named = ["cost", *(name for name in scores if name != "loss"), "loss"]
    metric = next((name for name in named if name in scores), None)
    spread = result.get("spread", {}).get(part, {})
    error = None if "mean" in spread else spread.get("deviation", {}).get(metric)
    told = result.get("verdicts", [])
    warnings = [one["name"] for one in told if one.get("severity") != NOTE]
    notes = [one["name"] for one in told if one.get("severity") == NOTE]
    return {
        "run": str(path),
        "started": environment.get("started"),
        "ending": result.get("ending"),
        "failed": (path / FAILURE_FILE).exists(),
        "epochs": result.get("epochs"),
        "seconds": result.get("seconds"),
        "part": part,
        "metric": metric,
        "value": scores.get(metric),
        "warm_start": result.get("warm_start"),
        "error": error,
        "data": environment.get("data"),
        "verdicts": list(dict.fromkeys(warnings)),
        "notes": list(dict.fromkeys(notes)),
    }


def cells(run: dict[str, Any]) -> tuple[str, ...]:
    """Return the texts of one line, in the order of `COLUMNS`."""
    score = "-"
    if run["metric"]:
        error = f" +- {error_text(run['error'])}" if run["error"] else ""
        name = run["metric"].replace("_", " ")
        warm = ", warm start" * bool(run["warm_start"])
        score = f"{name} {metric_text(run['value'])}{error} ({part_title(run['part'])}{warm})"
    noted = [f"note: {name}" for name in run["notes"]]
    verdicts = ", ".join([*run["verdicts"], *noted]) or "nothing unusual"
    started = str(run["started"] or "-").replace("T", " ")[:16]
    ended = verdicts if run["ending"] else "failed" if run["failed"] else "has not ended"
    return tuple(map(printable, (run["run"], started, score, str(run["data"] or "-"), ended)))
