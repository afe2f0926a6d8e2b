"""`mlpengine check`: problems of a config and its data, before training."""

import json
from pathlib import Path
from typing import Any

import click

from mlpengine.config import load_config, parse_override
from mlpengine.config.build import errors_of_settings, load_data
from mlpengine.config.checking import TableCheck
from mlpengine.config.tables import Tables, read_source, read_tables
from mlpengine.core.errors import UsageError, at_setting
from mlpengine.core.wording import plural
from mlpengine.data.features.checks import more_features
from mlpengine.models.task import Task
from mlpengine.training.loading import load
from mlpengine.training.networks import make_network

from .options import AS_JSON, HISTORY_OPTION, SHARE, check_history, overrides_like
from .outcome import NOT_MET
from .progress import Meter
from .streams import say

EPILOG = """\b
Examples:
  mlpengine check titanic.yaml
  mlpengine check titanic.yaml --set 'data.drop=[]' --json
  mlpengine check runs/titanic new.csv --drift 0.1
"""


@click.command("check", epilog=EPILOG)
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path), required=False)
@click.option(
    "--drift",
    type=SHARE,
    metavar="SHARE",
    help="Exit with code 3 if a column of NEW drifts by more than this share, such as 0.1.",
)
@overrides_like("data.drop=[a, b]")
@HISTORY_OPTION
@AS_JSON
def command(
    config: Path,
    new: Path | None,
    drift: float | None,
    settings: tuple[str, ...],
    history: str | None,
    as_json: bool,
) -> int:
    """Read CONFIG and its data, and report problems of the data before training.

    The command shows types, missing values, constant and leaking columns, class balance and
    duplicate rows.  It does not train, and writes no file but those of data.stream.  If the data
    cannot be used for training, the exit code is 2.

    With a table NEW, CONFIG is a run directory or a model file.  Then the columns of NEW are
    compared with the training rows.  The drift of a column is from 0 to 1: for numbers, the
    Kolmogorov-Smirnov statistic; for texts, the largest change of the share of a text.  The shares
    of missing values are compared, too.
    """
    check_history(history, new)
    if new is not None:
        if settings:
            raise UsageError("check: --set needs a config (got a model); leave --set out")
        return _compare(config, new, history, drift, as_json=as_json)
    if drift is not None:
        raise UsageError("--drift: a run and a new table are needed: mlpengine check RUN NEW")
    file = load_config(config, [parse_override(text) for text in settings])
    table, targets = read_source(file, Meter(f"reading {file.config.data.source}"))
    meter = Meter(f"looking at {plural(len(table.names), 'column')}")
    known = TableCheck.of(file, table, targets, meter)
    shown = known.warnings
    if not as_json:
        say(str(known))
    tables = read_tables(file, (table, targets))
    task = load_data(file, tables=tables).task
    fitted = after(tables, task)
    run, ends = file.config.settings, (fitted["features"], fitted["outputs"])
    with errors_of_settings(file):
        made = make_network(run.network, ends, seed=run.seed, dtype=run.training.dtype)
        with at_setting("training", "freeze"):
            made.freeze(run.training.freeze)
    if fitted["features"] > tables.rows["train"]:
        shown.append(more_features(fitted["features"], tables.rows["train"]))
        if not as_json:
            say(f"warning: {shown[-1]}")
    if as_json:
        click.echo(json.dumps({**known.as_dict(), **fitted}))
        return 0
    rows = ", ".join(f"{count:,} {name}" for name, count in fitted["rows"].items())
    remarks = [one for one in tables.remarks if one.removeprefix(f"{table.source}: ") not in shown]
    for line in remarks:
        say(line)
    say(f"rows: {rows}\ninputs of the network: {fitted['features']}, outputs: {fitted['outputs']}")
    if fitted["constant_in_training"]:
        say(f"constant in the training rows: {', '.join(fitted['constant_in_training'])}")
    say(
        ", ".join(
            [plural(len(shown), "warning"), *[plural(len(remarks), "remark")] * bool(remarks)]
        )
    )
    return 0


def _compare(
    run: Path, new: Path, history: str | None, limit: float | None, *, as_json: bool
) -> int:
    """Compare the columns of a new table with the training columns; return the exit code."""
    model = load(run)
    compared = model.check(model.table(new, history))
    beyond = compared.beyond(limit) if limit is not None else []
    if as_json:
        shown = compared.as_dict()
        click.echo(json.dumps({**shown, "beyond": [one.column for one in beyond]}))
    else:
        say(str(compared))
    if beyond:
        names = ", ".join(
            f"{one.column!r} {one.value:.3f}" + " (missing values)" * (one.value > one.values)
            for one in beyond
        )
        say(f"drift above {limit:g}: {names}", err=True)
    return NOT_MET if beyond else 0


def after(tables: Tables, task: Task) -> dict[str, Any]:
    """Return the rows, features and outputs after the preprocessing."""
    preprocessor = tables.preprocessor
    return {
        "rows": tables.rows,
        "left_out": tables.remarks,
        "features": preprocessor.n_features,
        "feature_names": preprocessor.feature_names,
        "constant_in_training": preprocessor.constant,
        "outputs": task.outputs,
    }
