"""`mlpengine explain`: which columns drive the predictions of a model, and how."""

import json
from pathlib import Path

import click
import numpy as np

from mlpengine.config.build import load_run_data
from mlpengine.core.errors import UsageError
from mlpengine.core.structure import finite
from mlpengine.data.tables import Table
from mlpengine.models.explanation import CURVES, EXPLAINED_ROWS
from mlpengine.training.loading import load
from mlpengine.training.measure import explained_rows

from .evaluate import file_table
from .options import AS_JSON, HISTORY_OPTION, MODEL_ARGUMENT, check_history
from .streams import say

EPILOG = """\b
Examples:
  mlpengine explain runs/penguins
  mlpengine explain runs/diamonds --json
  mlpengine explain model.safetensors new.csv
  mlpengine explain runs/penguins new.csv --row 17
"""


@click.command("explain", epilog=EPILOG)
@MODEL_ARGUMENT
@click.argument("file", type=str, required=False)
@click.option(
    "--row",
    "number",
    type=int,
    metavar="LINE",
    help="Explain the prediction of the row in this line of the file.",
)
@HISTORY_OPTION
@AS_JSON
def command(
    run: Path, file: str | None, number: int | None, history: str | None, as_json: bool
) -> None:
    """Show which columns matter for the model of RUN, a run directory or model file.

    FILE is a table with the target column (- is stdin), by default the rows of the run.

    The importance of a column is the rise of the loss, and the fall of R2 or accuracy, when the
    values of the column are permuted.  The rows of the run are rows that did not train the model:
    out-of-fold, test or validation rows.  --json adds partial dependence: the mean prediction if
    all rows have the same value in the column.  `mlpengine report` draws partial dependence.

    --row explains the prediction of one row.  LINE is the number in the first column of the output
    of `mlpengine predict`.  The contribution of a column is its Shapley value: the mean change of
    the prediction when the column changes from the values of background rows to the value of this
    row.  The model file has some background rows.  With --row, FILE needs no target.
    """
    check_history(history, file)
    model, curves = load(run), CURVES if as_json else 0
    own = load_run_data(run, model.preprocessor, "explain") if file is None else None
    table = own.tables.parts["train"][0] if own else file_table(model, str(file), history)
    if number is not None:
        reasons = model.explain_row(_row(table, number))
        say(json.dumps(finite(reasons.as_dict())) if as_json else str(reasons))
        return
    if own:
        rows = explained_rows(model.mean, own.parts, own.folds, EXPLAINED_ROWS)
        shown = model.explanation(*rows, table, curves=curves)
    else:
        shown = model.explain(table, curves=curves)
    say(json.dumps(shown.as_dict(), allow_nan=False) if as_json else str(shown))


def _row(table: Table, number: int) -> Table:
    """Return the row of a table with a line or row number.  Raises: UsageError."""
    numbers = table.row_numbers()
    places = np.flatnonzero(numbers == number)
    if not len(places):
        ends = f"{numbers[0]} to {numbers[-1]}" if len(numbers) else "none"
        place = "line that begins a row" if table.numbering == "line" else "row"
        raise UsageError(f"--row: must be a {place} of {table.source} ({ends}; got {number})")
    return table.rows(places[:1])
