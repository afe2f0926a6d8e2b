"""`mlpengine check`: what is wrong, or merely odd, with a config and its data."""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from mlpengine.config import ConfigFile, load_config, parse_override
from mlpengine.config.build import check_size, loss_and_task
from mlpengine.config.tables import Tables, profiled_table, read_source, read_tables
from mlpengine.data import profile
from mlpengine.data.checks import Profile, more_features
from mlpengine.data.progress import Progress
from mlpengine.train.task import Task
from mlpengine.wording import plural

from .progress import Meter
from .streams import say

ROWS_AT_ONCE = 1 << 16

EPILOG = """\b
Examples:
  mlpengine check titanic.yaml
  mlpengine check titanic.yaml --set 'data.drop=[]' --json
"""


@click.command("check", epilog=EPILOG)
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override, as in data.drop=[a, b]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
def command(config: Path, settings: tuple[str, ...], as_json: bool) -> None:
    """Read CONFIG and its data, and report problems of the data before training.

    Shows types, missing values, constant and leaking columns, class balance and repeated rows.
    Nothing is trained or written.  Data that cannot be trained on are an error, with exit code 2.
    """
    file = load_config(config, [parse_override(text) for text in settings])
    with Meter(f"reading {file.config.data.source}") as meter:
        table, targets = read_source(file, meter)
    kind = None if file.config.data.task == "auto" else file.config.data.task
    with Meter(f"looking at {plural(len(table.names), 'column')}") as meter:
        facts = profile(profiled_table(file, table), targets, task=kind, progress=meter)
    dropped = reasons(file, facts)
    shown = facts.warnings(dropped)
    if not as_json:
        for key, (before, now) in sorted(file.overridden.items()):
            here, there = json.dumps(now), json.dumps(before)
            say(f"base: {key} is {here} here ({there} in {file.config.base})")
        lines = [f"dropped: {n}" + (f" ({why})" if why else "") for n, why in dropped.items()]
        say("\n".join([*facts.lines(), *lines, *map("warning: {}".format, shown)]))
    tables = read_tables(file, (table, targets))
    with Meter("reading every cell as training does") as meter:
        _, task = loss_and_task(file, tables.preprocessor)
        check_size(file, tables.preprocessor, task.outputs)
        require_usable(tables, task, meter)
    fitted = after(tables, task)
    if fitted["features"] > tables.rows["train"]:
        shown.append(more_features(fitted["features"], tables.rows["train"]))
        if not as_json:
            say(f"warning: {shown[-1]}")
    if as_json:
        shown_facts = {**facts.as_dict(), "warnings": shown, "dropped": dropped}
        click.echo(json.dumps({**shown_facts, **fitted}))
        return
    rows = ", ".join(f"{count:,} {name}" for name, count in fitted["rows"].items())
    for line in tables.remarks:
        say(line)
    say(f"rows: {rows}\nfeatures: {fitted['features']}, outputs: {fitted['outputs']}")
    if fitted["constant_in_training"]:
        say(f"constant in the training rows: {', '.join(fitted['constant_in_training'])}")
    say(plural(len(shown), "warning"))


def require_usable(tables: Tables, task: Task, progress: Progress) -> None:
    """Raise DataError for the first cell, in any part, that training would refuse."""
    total, done = sum(tables.rows.values()), 0
    for table, rows in tables.parts.values():
        numbers = np.arange(table.n_rows) if rows is None else rows
        for start in range(0, len(numbers), ROWS_AT_ONCE):
            some = numbers[start : start + ROWS_AT_ONCE]
            target = tables.preprocessor.transform(table, some).target
            if target is not None:
                task.truth(table.rows(some), target)
            done += len(some)
            progress(done / total)


def reasons(file: ConfigFile, facts: Profile) -> dict[str, str]:
    """Return the columns that the config leaves out, with what the data say of them."""
    data = file.config.data
    known = {leak.column: leak.reason for leak in facts.leaks}
    shown = {name: known.get(name) or facts.drop.get(name, "") for name in data.drop}
    dates = {column.name for column in facts.columns if column.kind == "date"}
    for use, name in (("groups", data.split.group), ("times", data.split.time)):
        if name:
            shown[name] = f"{use} of the split"
    if data.split.time in dates - {*data.drop}:
        shown[data.split.time] += "; its place in day, week and year is a feature"
    return shown


def after(tables: Tables, task: Task) -> dict[str, Any]:
    """Return what the preprocessing made of the columns."""
    preprocessor = tables.preprocessor
    return {
        "rows": tables.rows,
        "left_out": tables.remarks,
        "features": preprocessor.n_features,
        "feature_names": preprocessor.feature_names,
        "constant_in_training": preprocessor.constant,
        "outputs": task.outputs,
    }
