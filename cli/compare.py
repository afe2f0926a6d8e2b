"""`mlpengine compare`: what differs between two runs, and which is better."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mlpengine.config.load import differing, load_config
from mlpengine.errors import RunError
from mlpengine.train.measure import OUT_OF_FOLD
from mlpengine.train.metrics import higher_is_better
from mlpengine.train.run_directory import RESULT_FILE

from .outcome import number, title
from .session import read_result, resolved_config
from .streams import say

EPILOG = """\b
Examples:
  mlpengine compare runs/digits runs/digits-002
  mlpengine compare runs/digits runs/digits-002 --json
"""

PARTS = ("train", OUT_OF_FOLD, "validation", "test")
PREFERRED = ("accuracy", "r2", "loss")
"""What decides which run is better: the first of these that both have measured."""


@click.command("compare", epilog=EPILOG)
@click.argument("first", type=click.Path(path_type=Path, file_okay=False))
@click.argument("second", type=click.Path(path_type=Path, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
def command(first: Path, second: Path, as_json: bool) -> None:
    """Compare the run directories FIRST and SECOND: settings, results, and which did better.

    The better run is told by its accuracy, or R2, on the validation rows, or else the training
    rows out of fold, or the test rows.
    """
    data, lines = comparison(first, second)
    say(json.dumps(data) if as_json else "\n".join(lines))


def comparison(first: Path, second: Path) -> tuple[dict[str, Any], list[str]]:
    """Return what differs between two runs, and which is better, as data and as lines."""
    results = [checked_result(run) for run in (first, second)]
    settings = differing([load_config(resolved_config(run)) for run in (first, second)])
    metrics = {
        f"{title(part)} {name}": [one.get(part, {}).get(name) for one in results]
        for part in PARTS
        for name in {**results[0].get(part, {}), **results[1].get(part, {})}
    }
    names = [str(first), str(second)]
    same_data = not {"data.source", "data.target"} & settings.keys()
    verdict = judge(metrics if same_data else {}, names)
    data = {"runs": names, "settings": settings, "metrics": metrics, **verdict}
    return data, described(names, results, settings, metrics, verdict)


def checked_result(run: Path) -> dict[str, Any]:
    """Return the result of a run.  Raises: RunError unless its parts map metrics to numbers."""
    result = read_result(run)
    for part in PARTS:
        metrics = result.get(part, {})
        if not isinstance(metrics, dict) or not all(map(_is_number, metrics.values())):
            raise RunError(
                f"{run / RESULT_FILE}: {part} must map metrics to numbers (got {_short(metrics)})"
            )
    return result


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def judge(metrics: Mapping[str, list[float | None]], names: list[str]) -> dict[str, Any]:
    """Return which run is better, by what and by how much; no `better` if they are level."""
    for part in ("validation", OUT_OF_FOLD, "test", "train"):
        for metric in PREFERRED:
            one, other = metrics.get(f"{title(part)} {metric}", (None, None))
            if one is None or other is None:
                continue
            ahead = one - other if higher_is_better(metric) else other - one
            better = None if not ahead else names[0] if ahead > 0 else names[1]
            return {"by": f"{title(part)} {metric}", "difference": abs(ahead), "better": better}
    return {"by": None, "difference": None, "better": None}


def described(
    names: list[str],
    results: list[dict[str, Any]],
    settings: Mapping[str, list[Any]],
    metrics: Mapping[str, list[float | None]],
    verdict: Mapping[str, Any],
) -> list[str]:
    """Return the comparison for a person."""
    width = max([24, *(len(key) + 2 for key in [*settings, *metrics])])
    column = max(16, *(len(name) + 2 for name in names))

    def line(title: str, *cells: str) -> str:
        return title.ljust(width) + "".join(cell.rjust(column) for cell in cells)

    lines = [line("", *names), "settings that differ" if settings else "the settings are the same"]
    lines += [line(f"  {key}", *map(_short, values)) for key, values in settings.items()]
    lines.append("results")
    for key in ("parameters", "members", "epochs", "best_epoch", "seconds"):
        lines.append(
            line(f"  {key.replace('_', ' ')}", *(f"{one.get(key, '-')}" for one in results))
        )
    lines += [line(f"  {key}", *map(number, values)) for key, values in metrics.items()]
    if any(key == "seed" or key.startswith("data.") for key in settings):
        lines.append("note: seed or data settings differ, so the rows of their parts may, too")
    if verdict["by"] is None:
        return [*lines, "which is better cannot be told: data.source or data.target differs"]
    if verdict["better"] is None:
        return [*lines, f"level in {verdict['by']}"]
    return [
        *lines,
        f"better: {verdict['better']}, by {verdict['difference']:.4g} in {verdict['by']}",
    ]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 14 else f"...{text[-11:]}"
