"""`mlpengine compare`: the differences between two runs, and which run is better."""

import json
from collections.abc import Mapping
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from mlpengine.config.load import ConfigFile, Override, differing_settings, load_config
from mlpengine.core.wording import error_text, metric_text, printable
from mlpengine.models.comparison import NO_LEAD, Lead, lead_text
from mlpengine.report import QUICK, collect, lead_of, read_run
from mlpengine.training.measure import ONE_NETWORK
from mlpengine.training.result import TOO_GOOD, read_result
from mlpengine.training.run_directory import resolved_config

from .options import AS_JSON, DIRECTORY_PATH
from .outcome import SHOWN_PARTS, part_title
from .streams import say

EPILOG = """\b
Examples:
  mlpengine compare runs/digits runs/digits-002
  mlpengine compare runs/digits runs/digits-002 --json
"""

LOSS_UNITS = {"data.class_weights", "data.standardize_target", "data.transform_target"}
"""Settings of the data that change weights or units of the loss."""

SAME_ROWS = LOSS_UNITS | {"data.standardize", "data.clip", "data.encoding", "data.bins"}
SAME_ROWS |= {"data.missing", "data.min_count", "data.max_levels", "data.bound_predictions"}
"""Settings of the data that do not choose the rows of training."""


class Score(NamedTuple):
    """A metric with its standard error; what is unknown is None."""

    value: float | None = None
    error: float | None = None

    def __str__(self) -> str:
        return metric_text(self.value) + (f" +- {error_text(self.error)}" if self.error else "")


@click.command("compare", epilog=EPILOG)
@click.argument("first", type=DIRECTORY_PATH)
@click.argument("second", type=DIRECTORY_PATH)
@AS_JSON
def command(first: Path, second: Path, as_json: bool) -> None:
    """Compare the run directories FIRST and SECOND: settings, results, and which run is better.

    The better run has the higher accuracy or R2 on rows that did not train the models.  If a run
    has costs (training.threshold), the better run has the lower mean cost, by the costs of FIRST if
    both have costs.  If both predict the same quantiles, it has the lower pinball loss.  Rows have
    the weights of FIRST, or, if it has none, of SECOND; a note says so if they differ.  The
    standard error of the difference is computed from the predictions row by row.  If the runs
    predicted different rows, no run is called better.
    """
    data, lines = comparison(first, second)
    say(json.dumps(data) if as_json else "\n".join(lines))


def comparison(first: Path, second: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the differences between two runs and the better run, as data and as lines of text."""
    results = [read_result(run) for run in (first, second)]
    settings = differing_settings([*map(config_of, (first, second), results)])
    scored = [run_scores(one) for one in results]
    table = {label: [one.get(label, Score()) for one in scored] for label in scored[0] | scored[1]}
    names, runs = [str(first), str(second)], [read_run(path) for path in (first, second)]
    collected = [collect(run, QUICK, whole=False) for run in runs]
    lead = lead_of(collected, [run.model.threshold if run.model else None for run in runs])
    if isinstance(lead, Lead) and lead.metric == "cost":
        costs = table[f"{part_title(lead.part)} cost"]
        for k, other in enumerate(reversed(costs)):
            if costs[k].value is None and other.value is not None:
                gap = lead.value if lead.ahead != k else -lead.value
                costs[k] = Score(float(f"{other.value + gap:.6g}"))
    if isinstance(lead, Lead) and lead.metric == "pinball":
        table[f"{part_title(lead.part)} pinball"] = [
            Score(float(np.average(np.asarray(losses), weights=one.rows.weights)))
            for one in (each.scored for each in collected if each.scored)
            for losses in [one.task.pinball_losses(one.rows.truth, one.output)]
        ]
    errors = {label: [one.error for one in row] for label, row in table.items()}
    weights: list[Any] = [one.scored.rows.weights for one in collected if one.scored]
    differ = isinstance(lead, Lead) and not np.array_equal(*weights)
    data = {
        "runs": names,
        "settings": settings,
        "metrics": {label: [one.value for one in row] for label, row in table.items()},
        "standard_errors": {label: row for label, row in errors.items() if any(row)},
        "weights": names[1 if weights[0] is None else 0] if differ else None,
        **(lead.as_dict(names) if isinstance(lead, Lead) else NO_LEAD | {"reason": lead}),
    }
    return data, comparison_text(results, table, data)


def config_of(run: Path, result: Mapping[str, Any]) -> ConfigFile:
    """Return the config of a run; if `train --resume --epochs` continued it, with these epochs."""
    number = result.get("max_epochs")
    longer = Override("--epochs", ("training", "epochs"), str(number))
    return load_config(resolved_config(run), [longer] * (number is not None))


def run_scores(result: Mapping[str, Any]) -> dict[str, Score]:
    """Return the metrics of a run by part and name, in the order of the parts.

    With several seeds, the mean metrics of the single networks are added, with standard errors.
    """
    shown: dict[str, Score] = {}
    for part in SHOWN_PARTS:
        spread = result.get("spread", {}).get(part, {})
        deviations, means = spread.get("deviation", {}), spread.get("mean", {})
        for name, value in result.get(part, {}).items():
            error = None if means else deviations.get(name)
            shown[f"{part_title(part)} {name}"] = Score(value, error)
        for name, value in means.items():
            count = result.get("networks", 1) + result.get("linear_models", 0)
            error = (deviations.get(name) or 0.0) / sqrt(count)
            shown[f"{part_title(part)} {name}, {ONE_NETWORK}"] = Score(value, error)
    return shown


def comparison_text(
    results: list[dict[str, Any]], table: Mapping[str, list[Score]], data: Mapping[str, Any]
) -> list[str]:
    """Return the comparison as text."""
    names, settings = data["runs"], data["settings"]
    width = max([24, *(len(key) + 2 for key in [*settings, *table])])
    cells = [str(score) for row in table.values() for score in row]
    column = max(16, *(len(text) + 2 for text in [*names, *cells]))

    def line(title: str, *cells: str) -> str:
        return title.ljust(width) + "".join(cell.rjust(column) for cell in cells)

    lines = [line("", *names), "settings that differ" if settings else "the settings are the same"]
    for key, values in settings.items():
        texts = [printable(json.dumps(value, ensure_ascii=False)) for value in values]
        if max(map(len, texts)) + 2 <= column:
            lines.append(line(f"  {key}", *texts))
        else:  # too long: one below the other
            rows = (f"    {name}: {text}" for name, text in zip(names, texts, strict=True))
            lines += [f"  {key}", *rows]
    lines.append("results")
    for key in ("parameters", "networks", "linear_models", "epochs", "best_epoch", "seconds"):
        if any(key in one for one in results):  # an ensemble has no best epoch
            shown = (f"{one.get(key, '-')}" for one in results)
            lines.append(line(f"  {key.replace('_', ' ')}", *shown))
    lines += [line(f"  {label}", *map(str, row)) for label, row in table.items()]
    if any(score.error for row in table.values() for score in row):
        lines.append("+-: standard error")
    if any(one.get("warm_start") for one in results):
        lines.append(f"warning: {TOO_GOOD}")
    elif any(key == "seed" or key.startswith("data.") for key in settings.keys() - SAME_ROWS):
        lines.append("note: seed or data settings differ; the runs may have trained on other rows")
    lines += [
        f"note: {name} was interrupted, so it has no test metrics; the last line is about its model"
        for name, one in zip(names, results, strict=True)
        if one.get("ending") == "interrupted"
    ]
    if any(key.startswith("loss.") or key in LOSS_UNITS for key in settings):
        lines.append(
            "note: losses differ in function, weights or unit; do not compare their values"
        )
    costs = [values for key, values in settings.items() if ".threshold.costs." in key]
    if any(None not in values for values in costs):
        lines.append(f"note: the costs differ; the last line has the costs of {names[0]}")
    if run := data.get("weights"):
        text = "metrics have the row weights of their run; the last line has the weights of"
        lines.append(f"note: {text} {run}")
    return [*lines, lead_text(data)]
