"""`mlpengine evaluate`: the metrics of a trained model on rows with known targets."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mlpengine.config import load_config
from mlpengine.config.build import load_data
from mlpengine.core.spec import Array
from mlpengine.core.structure import finite
from mlpengine.data.features.drift import NewRows
from mlpengine.data.tables import Table, read_table
from mlpengine.data.tables.rows import usable_rows
from mlpengine.models.metrics import confusion_matrix
from mlpengine.models.model import Model
from mlpengine.models.task import Classification, Split, Task, make_split
from mlpengine.training.loading import load
from mlpengine.training.measure import outputs
from mlpengine.training.run_directory import resolved_config

from .options import AS_JSON, MODEL_ARGUMENT
from .outcome import metrics_table, mistakes, part_title
from .streams import say

EPILOG = """\b
Examples:
  mlpengine evaluate runs/digits
  mlpengine evaluate runs/penguins new.csv
  mlpengine evaluate runs/penguins - --json < new.csv
"""


@click.command("evaluate", epilog=EPILOG)
@MODEL_ARGUMENT
@click.argument("file", type=str, required=False)
@AS_JSON
def command(run: Path, file: str | None, as_json: bool) -> None:
    """Measure the model of RUN, a run directory or a model file, with every metric of its task.

    FILE is a table with the target column (- is stdin), by default the run's own parts.

    The loss is the plain one, without class weights or label smoothing, and for numbers in
    standardized units; all other metrics are in the target's own units.
    """
    model = load(run)
    task = model.task
    if file is None:
        config = resolved_config(run, f"; say which rows to use: mlpengine evaluate {run} FILE")
        loaded = load_data(load_config(config), model.preprocessor)
        parts = [*outputs(model.mean, loaded.parts, loaded.folds)]
        in_time = loaded.file.config.data.split.time is not None
    else:
        table = read_rows(model, file)
        part = make_split(table, None, model.preprocessor, task, model.mlp.dtype, on_demand=True)
        parts, in_time = [("data", part, model.forward(part.x))], False
    measured = measure_parts(model, task, parts)
    sizes = {name: len(part) for name, part, _ in parts}
    scores = {name: result["metrics"] for name, result in measured.items()}
    name, part, output = parts[-1]
    if as_json:
        shown: dict[str, Any] = {"run": str(run), "rows": sizes, **scores}
        if isinstance(task, Classification):
            shown["classes"] = model.preprocessor.classes
            shown["confusion_matrix"] = {n: f["confusion_matrix"] for n, f in measured.items()}
        click.echo(json.dumps(shown))
    else:
        lines = metrics_table(scores, sizes, task, in_time=in_time)
        labels = model.preprocessor.classes
        lines += ["", *mistakes(task, part, output, labels, part_title(name))]
        say("\n".join(lines).rstrip())


def measure_parts(
    model: Model, task: Task, parts: Sequence[tuple[str, Split, Array]]
) -> dict[str, dict[str, Any]]:
    """Return the metrics of each part, and for classes the confusion matrix.

    Parts are names, rows and the outputs of the model for them.
    """
    scorer = model.scorer(task)
    results: dict[str, dict[str, Any]] = {}
    for name, part, output in parts:
        results[name] = {"metrics": finite(scorer.run(output, part, full=True))}
        if isinstance(task, Classification):
            classes = len(model.preprocessor.classes)
            predicted = task.predict(output)
            counts = confusion_matrix(part.truth, predicted, classes, part.weights)
            results[name]["confusion_matrix"] = counts.tolist()
    return results


def read_rows(model: Model, source: str) -> Table:
    """Return the rows of a file with known targets."""
    stream: Any = sys.stdin.buffer if source == "-" else source
    table = read_table(stream, **model.preprocessor.read_arguments)
    target = model.preprocessor.target
    usable = usable_rows(
        table, target.columns if target else [], model.preprocessor.rows_in_use(table)
    )
    for line in usable.remarks:
        say(line, err=True)
    in_use = table if usable.rows is None else table.rows(usable.rows)
    for line in NewRows(model.preprocessor).add(in_use).lines():
        say(f"warning: {table.source}: {line}", err=True)
    return in_use
