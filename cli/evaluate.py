"""`mlpengine evaluate`: the metrics of a trained model on rows with known targets."""

import json
import sys
from math import isfinite
from pathlib import Path
from typing import Any

import click

from mlpengine.config import load_config
from mlpengine.config.build import build
from mlpengine.data import read_table
from mlpengine.data.rows import usable_rows
from mlpengine.errors import UsageError
from mlpengine.train.evaluate import Evaluator
from mlpengine.train.metrics import confusion_matrix
from mlpengine.train.model import Model, load
from mlpengine.train.task import Classification, Split, part_of

from .report import metrics_table, mistakes
from .session import RESOLVED
from .streams import say

EPILOG = """\b
Examples:
  mlpengine evaluate runs/digits
  mlpengine evaluate runs/penguins --data new.csv
  mlpengine evaluate runs/penguins --data - --json < new.csv
"""


@click.command("evaluate", epilog=EPILOG)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--data",
    type=str,
    metavar="FILE",
    help="A table with the target column; - reads CSV from stdin.  By default the run's own parts.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
def command(run: Path, data: str | None, as_json: bool) -> None:
    """Measure the model of RUN, a run directory or a model file, with every metric of its task.

    The loss is the plain one, without class weights or label smoothing, and for numbers in
    standardized units; all other metrics are in the target's own units.
    """
    model = load(run)
    parts = own_parts(run, model) if data is None else {"data": read_part(model, data)}
    measured = measure(model, parts)
    sizes = {name: len(part) for name, part in parts.items()}
    table = {name: result["metrics"] for name, result in measured.items()}
    if as_json:
        shown: dict[str, Any] = {"run": str(run), "rows": sizes, **table}
        if isinstance(model.task, Classification):
            shown["classes"] = model.preprocessor.classes
            shown["confusion_matrix"] = {n: f["confusion_matrix"] for n, f in measured.items()}
        click.echo(json.dumps(shown))
        return
    lines = metrics_table(table, sizes, model.task)
    last = list(parts)[-1]
    labels = model.preprocessor.classes
    lines += ["", *mistakes(model.task, parts[last], measured[last]["output"], labels, last)]
    say("\n".join(lines).rstrip())


def measure(model: Model, parts: dict[str, Split]) -> dict[str, dict[str, Any]]:
    """Return the metrics of each part, the outputs, and for classes the confusion matrix."""
    task = model.task
    evaluator = Evaluator(model.mlp, model.plain_loss, task)
    results: dict[str, dict[str, Any]] = {}
    for name, part in parts.items():
        metrics = evaluator.run(part, full=True)
        plain = {key: value if isfinite(value) else None for key, value in metrics.items()}
        results[name] = {"metrics": plain, "output": evaluator.output.copy()}
        if isinstance(task, Classification):
            classes = len(model.preprocessor.classes)
            predicted = task.predict(evaluator.output)
            counts = confusion_matrix(part.truth, predicted, classes, part.weights)
            results[name]["confusion_matrix"] = counts.tolist()
    return results


def read_part(model: Model, source: str) -> Split:
    """Return the rows of a file as the model takes them, with their targets."""
    stream: Any = sys.stdin.buffer if source == "-" else source
    table = read_table(stream, **model.preprocessor.read_arguments)
    target = model.preprocessor.target
    usable = usable_rows(
        table, target.columns if target else [], model.preprocessor.rows_in_use(table)
    )
    for line in usable.remarks:
        say(line, err=True)
    return part_of(table, usable.rows, model.preprocessor, model.task, model.mlp.dtype)


def own_parts(run: Path, model: Model) -> dict[str, Split]:
    """Return the parts that a run was trained and measured on."""
    if not (run / RESOLVED).is_file():
        raise UsageError(f"{run}: holds no {RESOLVED}; say which rows to use with --data FILE")
    return build(load_config(run / RESOLVED), model.preprocessor).parts
