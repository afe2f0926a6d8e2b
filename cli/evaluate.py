"""`mlpengine evaluate`: the metrics of a trained model on rows with known targets."""

import json
import operator
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import click

from mlpengine.config.build import load_run_data
from mlpengine.core.errors import UsageError
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

from .options import AS_JSON, HISTORY_OPTION, MODEL_ARGUMENT, check_history, with_threshold
from .outcome import NOT_MET, metrics_table, mistakes, part_title
from .streams import say

EPILOG = """\b
Examples:
  mlpengine evaluate runs/digits
  mlpengine evaluate runs/penguins new.csv
  mlpengine evaluate runs/penguins - --json < new.csv
  mlpengine evaluate runs/price --metric pinball_0.9
  mlpengine evaluate runs/churn --threshold 0.3
  mlpengine evaluate runs/power today.csv --history week.csv
  mlpengine evaluate runs/price new.csv --require "r2 > 0.3" --require "mae <= 2"
"""

COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Requirement(NamedTuple):
    """A condition that a model must meet, such as ``r2 > 0.3``."""

    text: str
    metric: str
    comparison: str
    limit: float

    def is_met(self, value: float | None) -> bool:
        """Return whether a measured value meets the requirement; None (not finite) does not."""
        return value is not None and COMPARISONS[self.comparison](value, self.limit)


def read_requirement(text: str) -> Requirement:
    """Parse ``metric > number``.  Raises: UsageError."""
    known = re.fullmatch(r"([^<>]*[^<>= ]) *([<>]=?)([^<>=]+)", text)
    with suppress(ValueError):
        if known and known[1].strip() and not isnan(limit := float(known[3])):
            return Requirement(" ".join(text.split()), known[1].strip(), known[2], limit)
    raise UsageError(
        f'--require: write a metric, <, <=, > or >=, and a number, as "r2 > 0.3" (got {text!r})'
    )


@click.command("evaluate", epilog=EPILOG)
@MODEL_ARGUMENT
@click.argument("file", type=str, required=False)
@click.option(
    "--metric",
    "names",
    multiple=True,
    metavar="NAME",
    help="A further metric, such as pinball_0.9; may be repeated.",
)
@click.option(
    "--threshold",
    metavar="SHARE",
    help="Predict the positive class above this probability (two classes).",
)
@click.option(
    "--require",
    "required",
    multiple=True,
    metavar="CONDITION",
    help='Exit with code 3 unless this holds, such as "r2 > 0.3"; may be repeated.',
)
@HISTORY_OPTION
@AS_JSON
def command(
    run: Path,
    file: str | None,
    names: tuple[str, ...],
    threshold: str | None,
    required: tuple[str, ...],
    history: str | None,
    as_json: bool,
) -> int:
    """Measure the model of RUN, a run directory or a model file, with every metric of its task.

    FILE is a table with the target column (- is stdin).  Without FILE, the training, validation and
    test rows of the run are measured.

    The loss is computed without class weights and label smoothing.  The loss of a regression is
    computed from standardized targets; all other metrics are in the units of the target.
    --threshold replaces the model's threshold (0.5, or the result of training.threshold).

    --require tests the metrics on FILE.  Without FILE, it tests the metrics on the test rows; if
    there are none, on the validation rows.
    """
    check_history(history, file)
    requirements = [read_requirement(text) for text in required]
    model = with_threshold(load(run), threshold)
    _watching(model, "--metric", names)
    wanted = [one.metric for one in requirements]
    _watching(model, "--require", wanted)
    names = (*names, *wanted)
    task = model.task_with(names)
    if file is None:
        loaded = load_run_data(run, model.preprocessor, "evaluate")
        task = model.task_with([*loaded.file.config.training.metrics, *names])
        parts = [*outputs(model.mean, loaded.parts, loaded.folds)]
        in_time = loaded.file.config.data.split.time is not None
    else:
        table = read_rows(model, file, history)
        part = make_split(
            table, None, model.preprocessor, model.task, model.mlp.dtype, on_demand=True
        )
        parts, in_time = [("data", part, model.forward(part.x))], False
    measured = measure_parts(model, task, parts)
    sizes = {name: len(part) for name, part, _ in parts}
    scores = {name: result["metrics"] for name, result in measured.items()}
    name, part, output = parts[-1]
    values = [scores[name][one.metric] for one in requirements]
    met = [one.is_met(value) for one, value in zip(requirements, values, strict=True)]
    if as_json:
        shown: dict[str, Any] = {"run": str(run), "rows": sizes, **scores}
        if isinstance(task, Classification):
            shown["classes"] = model.preprocessor.classes
            shown["confusion_matrix"] = {n: f["confusion_matrix"] for n, f in measured.items()}
        if requirements:
            rows = zip(requirements, values, met, strict=True)
            shown["required"] = [
                {"condition": one.text, "part": name, "value": value, "met": is_met}
                for one, value, is_met in rows
            ]
        click.echo(json.dumps(shown))
    else:
        warm = parts[-1][0] != "data" and "warm_start" in model.record
        lines = metrics_table(scores, sizes, task, in_time=in_time, warm_start=warm)
        lines += ["", *mistakes(task, part, output, part_title(name))]
        say("\n".join(lines).rstrip())
    for one, value, is_met in zip(requirements, values, met, strict=True):
        if not is_met:
            measured_as = "not finite" if value is None else f"{value:.6g}"
            say(f"not met: {one.text} ({part_title(name)}: {measured_as})", err=True)
    return 0 if all(met) else NOT_MET


def measure_parts(
    model: Model, task: Task, parts: Sequence[tuple[str, Split, Array]]
) -> dict[str, dict[str, Any]]:
    """Return the metrics of each part, and for classes the confusion matrix.

    Each part is a tuple of its name, its rows and the model's outputs for the rows.
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


def _watching(model: Model, option: str, names: Sequence[str]) -> None:
    """Check that the task has the metrics of an option.  Raises: UsageError."""
    try:
        model.task_with(names)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None


def file_table(model: Model, source: str, history: str | None = None) -> Table:
    """Read a file (- is stdin) as a table, with the column kinds of the training table.

    `history` is a file of earlier rows, for lags and windows.
    """
    stream: Any = sys.stdin.buffer if source == "-" else source
    own = model.preprocessor
    table = read_table(stream, **own.read_arguments, **own.used_columns)
    return model.table(table, history)


def read_rows(model: Model, source: str, history: str | None = None) -> Table:
    """Read a file; return the rows with a target, and print remarks and warnings."""
    table = file_table(model, source, history)
    target = model.preprocessor.target
    usable = usable_rows(
        table, target.columns if target else [], model.preprocessor.rows_in_use(table)
    )
    for line in usable.remarks:
        say(line, err=True)
    in_use = table if usable.rows is None else table.rows(usable.rows)
    new = NewRows(model.preprocessor, has_history=history is not None)
    for line in new.add(in_use).lines():
        say(f"warning: {table.source}: {line}", err=True)
    return in_use
