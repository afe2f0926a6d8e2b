"""`mlpengine explain`: which columns drive the predictions of a model, and how."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from mlpengine.config import load_config
from mlpengine.config.build import load_data
from mlpengine.core.errors import DataError
from mlpengine.core.rows import evenly_spaced
from mlpengine.core.structure import finite
from mlpengine.core.wording import plural, printable
from mlpengine.models.explain import (
    PERMUTED_COLUMNS,
    Dependence,
    Importance,
    dependence,
    feature_columns,
    importances,
    sensitive_columns,
)
from mlpengine.models.task import Split, make_split
from mlpengine.training.loading import load
from mlpengine.training.measure import OUT_OF_FOLD, explained_rows
from mlpengine.training.run_directory import resolved_config

from .evaluate import read_rows
from .options import AS_JSON, MODEL_ARGUMENT
from .outcome import metric_text
from .streams import say

EXPLAINED_ROWS = 5_000
"""Maximum number of held-out rows that are predicted for each permutation, evenly spaced."""

CURVES = 6
"""The number of most important columns that get partial dependence."""

EPILOG = """\b
Examples:
  mlpengine explain runs/penguins
  mlpengine explain runs/diamonds --json
  mlpengine explain model.safetensors new.csv
"""


@click.command("explain", epilog=EPILOG)
@MODEL_ARGUMENT
@click.argument("file", type=str, required=False)
@AS_JSON
def command(run: Path, file: str | None, as_json: bool) -> None:
    """Tell which columns drive the predictions of the model of RUN, a run directory or model file.

    FILE is a table with the target column (- is stdin), by default the run's own rows.

    The importance of a column is how much the loss rises, and R2 or accuracy falls, when its values
    are permuted among rows that did not train the model: out-of-fold, or the test or validation
    rows.  With --json it adds partial dependence, the mean prediction where all rows hold the same
    value; the page of `mlpengine report` draws it.
    """
    model = load(run)
    if file is None:
        config = resolved_config(run, f"; say which rows to use: mlpengine explain {run} FILE")
        own = load_data(load_config(config), model.preprocessor)
        name, part, forward = explained_rows(model.mean, own.parts, own.folds, EXPLAINED_ROWS)
        table = own.tables.parts["train"][0]
    else:
        table = read_rows(model, file)
        if table.n_rows < 2:
            raise DataError(
                f"{file}: at least two rows are needed to permute values (got {table.n_rows})"
            )
        chosen = evenly_spaced(table.n_rows, EXPLAINED_ROWS)
        rows = make_split(table, None, model.preprocessor, model.task, model.mlp.dtype)
        name, part, forward = "data", rows.rows(chosen), model.forward
    columns = feature_columns(model.preprocessor)
    count = len(set(columns))
    with np.errstate(over="ignore", invalid="ignore"):  # weights may be as large as the dtype holds
        ranked = importances(
            forward,
            model.scorer(model.task),
            part,
            columns,
            permuted_columns=sensitive_columns(model.mean, part.x, columns, PERMUTED_COLUMNS),
        )
        shown = [row.column for row in ranked if row.column in table][: CURVES if as_json else 0]
        curves = [dependence(model, table, column) for column in shown]
    if as_json:
        shown_data = importance_data(name, part, count, ranked, curves)
        click.echo(json.dumps(finite(shown_data), allow_nan=False))
        return
    say("\n".join(importance_text(name, part, count, ranked, model.task.headline[0])))


def importance_data(
    name: str,
    part: Split,
    columns: int,
    ranked: Sequence[Importance],
    curves: Sequence[Dependence],
) -> dict[str, Any]:
    """Return everything as data."""
    return {
        "part": name,
        "rows": len(part),
        "columns": columns,
        "importances": [finite(row._asdict()) for row in ranked],
        "dependence": [
            {"column": c.column, "values": c.values, "predictions": c.predictions.tolist()}
            for c in curves
        ],
    }


def importance_text(
    name: str, part: Split, columns: int, ranked: Sequence[Importance], metric: str
) -> list[str]:
    """Return the importances of some columns as text lines.

    `columns` is the number of all columns.
    """
    where = "out-of-fold" if name == OUT_OF_FOLD else f"of the {name} part"
    where = "of the data" if name == "data" else where
    width = max(12, *(len(printable(row.column)) + 2 for row in ranked))
    shown = [
        f"when a column's values are permuted ({plural(len(part), 'row')} {where}):",
        f"{'':<{width}}{'loss rises by':>22}{f'{metric} falls by':>22}",
    ]
    shown += [
        f"{printable(row.column):<{width}}"
        f" {f'{metric_text(row.loss)} +- {metric_text(row.loss_error)}':>21}"
        f" {f'{metric_text(row.metric)} +- {metric_text(row.metric_error)}':>21}"
        for row in ranked
    ]
    if len(ranked) < columns:
        few = f"only the {len(ranked)} of {columns:,} columns"
        shown.append(f"{few} to which the outputs are most sensitive were permuted")
    return shown
