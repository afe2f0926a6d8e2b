"""`mlpengine predict`: predictions of a trained model for new rows."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import click
import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.files import keep_input
from mlpengine.core.spec import Array
from mlpengine.core.structure import finite
from mlpengine.core.wording import label_text, plural, printable
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.categories import coded
from mlpengine.data.features.drift import NewRows
from mlpengine.data.features.targets import NumberTarget
from mlpengine.data.tables import Column, Table, read_blocks, read_table
from mlpengine.data.tables.parsing import FIRST_INEXACT
from mlpengine.data.tables.reader import table_format
from mlpengine.data.tables.table import decimals
from mlpengine.models.calibration import checked_level
from mlpengine.models.model import Model
from mlpengine.models.task import Classification, MultiLabel, Regression, Task
from mlpengine.training.loading import load

from .options import HISTORY_OPTION, MODEL_ARGUMENT, SHARE, OutputPath, with_threshold
from .streams import say, write_file
from .tables import DIGITS, SUFFIXES, Coded, csv_text, plain_text, records, write_table

EPILOG = """\b
Examples:
  mlpengine predict runs/penguins new.csv -o predictions.csv
  mlpengine predict runs/titanic people.csv --id name -o survivors.parquet
  mlpengine predict runs/diamonds new.csv --interval 0.9
  mlpengine predict runs/penguins new.csv --set 0.9
  mlpengine predict runs/patients new.csv --quantile 0.25,0.75 --times 365,730
  mlpengine predict runs/power today.csv --history week.csv
  cat new.csv | mlpengine predict runs/penguins - | head
"""


@click.command("predict", epilog=EPILOG)
@MODEL_ARGUMENT
@click.argument("file", type=str)
@click.option(
    "-o",
    "--out",
    type=OutputPath(),
    default="-",
    metavar="OUT",
    help="A .csv, .parquet or .npy file; - writes CSV to stdout (the default).",
)
@click.option(
    "--interval",
    "level",
    type=SHARE,
    metavar="SHARE",
    help="Add intervals that contain this share of new targets, such as 0.9 (needs folds).",
)
@click.option(
    "--set",
    "set_level",
    type=SHARE,
    metavar="SHARE",
    help="Add prediction sets that contain this share of new true classes (needs folds).",
)
@click.option(
    "--quantile",
    "quantiles",
    metavar="SHARES",
    help="Add quantiles such as 0.1,0.9, from the loss's distribution or from out-of-fold errors.",
)
@click.option(
    "--times",
    metavar="TIMES",
    help="Add the probability of no event before these times, such as 365,730.",
)
@click.option(
    "--threshold",
    metavar="SHARE",
    help="Predict the positive class above this probability (two classes).",
)
@click.option("--by-class", is_flag=True, help="With --set: the share holds for each class.")
@HISTORY_OPTION
@click.option("--id", "key", metavar="COL", help="Column to copy; by default the line in FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(
    run: Path,
    file: str,
    out: str,
    level: float | None,
    set_level: float | None,
    quantiles: str | None,
    times: str | None,
    threshold: str | None,
    by_class: bool,
    history: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Predict the rows of FILE (- is stdin) with the model of RUN, a run directory or model file.

    Columns may be in any order; further columns are ignored.  So is the target, unless lags or
    windows read it: then FILE needs its column, with empty cells where it is not known yet.

    For classes, the output has the class and the probability of each class.  For numbers, it has
    the prediction in the units of the target, in a column with the name of the target, such as
    price.  A loss of two quantiles gives the columns price_0.1 and price_0.9; gaussian_nll gives
    price and price_std.  In CSV, a leading ' keeps a spreadsheet from running a text as a formula.
    The ' is added to texts that start with =, a tab or a line end, and to texts that start with +,
    - or @ and contain one of ( | ! =.

    --interval adds <target>_low and <target>_high, from out-of-fold errors.  --set adds
    <target>_set, such as a|b (a JSON list if a class contains |); a set is empty if no class is
    likely enough.  The sets contain the true class for the given share of all rows or, with
    --by-class, of the rows of each class; sets with --by-class are larger.  --threshold replaces
    the model's threshold (0.5, or the result of training.threshold).  --quantile adds <target>_0.1
    and so on.  For censored times, --times adds survival_365 and so on: the probability of no event
    before time 365.  A .npy file has numbers only: probabilities or predicted values, and 0 or 1
    for each class of --set.  The column of --id stays unchanged if FILE is Parquet or Feather, and
    OUT is Parquet.
    """
    _check_levels(level, set_level, by_class=by_class)
    path = None if out == "-" else Path(out)
    if path is not None and path.suffix not in SUFFIXES:
        raise UsageError(f"{out}: must end in {', '.join(SUFFIXES)}; for stdout write -o -")
    if path is not None:
        keep_input(path, file, "the table to predict")
        if history is not None:
            keep_input(path, history, "the table of earlier rows")
    model = with_threshold(load(run), threshold)
    sure = Sure(
        level,
        set_level,
        by_class,
        _listed("--quantile", quantiles),
        _listed("--times", times),
    )
    blocks = _blocks(model, sys.stdin.buffer if file == "-" else file, key, sure, history)
    digits = csv_digits(model)
    if path is None and not as_json:
        for number, (columns, _) in enumerate(blocks):
            write_file(csv_text(columns, header=not number, digits=digits))
        return
    columns, numbers = _joined(list(blocks))
    known = table_format(file)
    if key and known and known.column:
        from pyarrow import types  # importing takes long

        exact = known.column(file, key)
        if path is not None and path.suffix == ".parquet":
            columns[key] = exact
        elif path is None and types.is_integer(exact.type):  # JSON
            columns[key] = exact.to_pylist()
    rows, held = len(numbers), {"columns": list(columns)}
    about = ", ".join(map(printable, columns))
    if path is not None and path.suffix == ".npy":
        held, about = {"shape": list(numbers.shape)}, f"numbers of shape {numbers.shape}"
    if path is not None:
        write_table(path, columns, numbers, digits)
    if as_json:
        shown: dict[str, Any] = {"run": str(run), "rows": rows, **held}
        if path is None:
            shown["predictions"] = records(columns)
        if not np.isfinite(numbers).all():
            shown = finite(shown)
        click.echo(json.dumps({**shown, "out": out}, default=str))  # dates of --id
    else:
        say(f"wrote {out} ({plural(rows, 'row')}: {about})", err=True)


class Sure(NamedTuple):
    """The requested intervals, prediction sets, quantiles and survival times."""

    level: float | None = None
    set_level: float | None = None
    by_class: bool = False
    quantiles: Sequence[float] = ()
    times: Sequence[float] = ()


def csv_digits(model: Model) -> int:
    """Return the digits of CSV files: more if targets have a large mean and a small spread."""
    target = model.preprocessor.target
    if not isinstance(target, NumberTarget) or target.log:
        return DIGITS
    ratio = float(np.max(np.abs(target.center) / target.scale))
    return int(np.clip(7 + np.ceil(np.log10(ratio + 1)), DIGITS, 17))


def _check_levels(level: float | None, set_level: float | None, *, by_class: bool) -> None:
    for name, given in (("--interval", level), ("--set", set_level)):
        if given is not None:
            checked_level(given, name)
    if by_class and set_level is None:
        raise UsageError("--by-class: needs --set SHARE, and a model of classes")


def _listed(option: str, text: str | None) -> list[float]:
    """Return the numbers of an option, such as 0.1,0.9."""
    try:
        numbers = [float(one) for one in text.split(",")] if text is not None else []
    except ValueError:
        raise UsageError(
            f"{option}: must be numbers with commas between them (got {text})"
        ) from None
    if len({f"{number:.15g}" for number in numbers}) < len(numbers):
        raise UsageError(f"{option}: a number must not be repeated (got {text})")
    return numbers


def _blocks(
    model: Model,
    source: str | BinaryIO,
    key: str | None,
    sure: Sure,
    history: str | None,
) -> Iterator[tuple[dict[str, Any], Array]]:
    """Read and predict blocks of rows; yield the columns to write and their numbers."""
    how = model.preprocessor.read_arguments
    has_types = isinstance(source, str) and table_format(source) is not None
    if key and key not in model.columns and not has_types:
        how["text"] = [*how["text"], key]  # text keeps the leading zeros of codes
    own = model.preprocessor
    used = own.used_columns
    used["kept"] += filter(None, [key])
    rows = outside = 0
    new = NewRows(own, has_history=history is not None)
    if own.history.names or history is not None:  # lags need rows of other blocks
        tables = iter([model.table(read_table(source, **how, **used), history)])
    else:
        tables = read_blocks(source, kept=used["kept"], **how)
    for table in tables:
        if key:
            table.require([key], "--id")
        in_use = own.rows_in_use(table)
        rows += table.n_rows
        outside += 0 if in_use is None else int((~in_use).sum())
        new.add(table)
        with np.errstate(over="ignore", invalid="ignore"):  # large weights may overflow
            output = model.forward(own.features_of(table))
            columns, numbers = output_columns(model, output, sure)
        yield {**row_names(table, key, columns), **columns}, numbers
    if outside:
        where = model.preprocessor.options.where
        text = f"{plural(outside, 'row')} of {rows:,} outside the training filter: not {where}"
        say(f"warning: {table.source}: {text}", err=True)
    for line in new.lines():
        say(f"warning: {table.source}: {line}", err=True)


def _joined(blocks: list[tuple[dict[str, Any], Array]]) -> tuple[dict[str, Any], Array]:
    columns: dict[str, Any] = {}
    for name, column in blocks[0][0].items():
        parts = [block[name] for block, _ in blocks]
        join = np.concatenate if isinstance(column, np.ndarray) else Coded.joined
        columns[name] = join(parts)
    return columns, np.concatenate([numbers for _, numbers in blocks])


def output_columns(model: Model, output: Array, sure: Sure) -> tuple[dict[str, Any], Array]:
    """Return the predicted columns for network outputs (rows, out_dim), and their numbers."""
    preprocessor, task = model.preprocessor, model.task
    added = _intervals(model, output, sure)
    quantiles = _quantiles(model, output, sure)
    given = sure.set_level
    sets = None if given is None else model.set_of(output, given, "--set", by_class=sure.by_class)
    if isinstance(task, Regression):
        columns = _together(task.columns(output) | quantiles, added)
        return columns, np.stack([*columns.values()], axis=1)
    chances = task.predicted_numbers(output)
    labels = _labels(preprocessor, task, output)
    names = preprocessor.classes if isinstance(task, Classification) else _targets(preprocessor)
    of_each = {f"probability_{label_text(name)}": chances[:, i] for i, name in enumerate(names)}
    numbers = [chances, *added.values()]
    if sets is not None:
        added[f"{model.target[0]}_set"] = _sets(sets, preprocessor.classes)
        numbers.append(sets)
    return _together(labels, of_each, added), np.column_stack(numbers)


def _together(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of several parts.  Raises: UsageError if two share a name."""
    columns: dict[str, Any] = {}
    for part in parts:
        for twice in columns.keys() & part.keys():
            raise UsageError(
                f"two predicted columns would be called {twice!r}; train with another name of the "
                "target, or leave out --interval and --set"
            )
        columns |= part
    return columns


def _intervals(model: Model, output: Array, sure: Sure) -> dict[str, Any]:
    """Return the columns of interval ends."""
    added: dict[str, Any] = {}
    if sure.level is not None:
        ends = model.interval_of(output, sure.level, "--interval")
        for end, values in zip(("low", "high"), ends, strict=True):
            added |= {f"{name}_{end}": values[:, i] for i, name in enumerate(model.predicts)}
    return added


def _quantiles(model: Model, output: Array, sure: Sure) -> dict[str, Any]:
    """Return the columns of quantiles and of survival probabilities, by name."""
    columns: dict[str, Any] = {}
    for level in sure.quantiles:
        values = model.quantile_of(output, level, "--quantile")
        columns |= {f"{n}_{level:.15g}": values[:, i] for i, n in enumerate(model.predicts)}
    if sure.times:
        chances = model.survival_of(output, sure.times, "--times")
        columns |= {f"survival_{time:.15g}": chances[:, i] for i, time in enumerate(sure.times)}
    return columns


def _sets(sets: Array, classes: Sequence[object]) -> Coded:
    """Return boolean sets (rows, classes) as texts such as a|b; in Parquet and JSON, as lists.

    If a class contains "|", texts are JSON lists.
    """
    distinct, codes = np.unique(sets, axis=0, return_inverse=True)
    lists = [[classes[k] for k in np.flatnonzero(one).tolist()] for one in distinct]
    parts = [[*map(plain_text, one)] for one in lists]
    odd = any("|" in plain_text(one) for one in classes)
    texts = [json.dumps(one, ensure_ascii=False) if odd else "|".join(one) for one in parts]
    return Coded(codes, texts, lists)


def row_names(table: Table, key: str | None, taken: dict[str, Any]) -> dict[str, Any]:
    """Return {name: column} of the column that identifies the rows: `key`, or row numbers.

    The name of row numbers is `line` for lines of a text file, or `row` (from 1) for other sources.
    """
    if key is None:
        name = table.numbering
        return {f"{name}_number" if name in taken else name: table.row_numbers()}
    if key in taken:
        raise UsageError(f"--id: the model predicts {key!r}; name another column")
    codes, texts = coded(table[key])
    typed = _typed(table[key])
    if table[key].values.dtype.kind in "iu" and table[key].kind == "number":
        texts = list(map(str, typed))  # whole numbers keep every digit
    return {key: Coded(codes, [*texts, ""], [*typed, None])}


def _typed(column: Column) -> list[object]:
    """Return the distinct values of a column as Python values for Parquet and JSON."""
    if column.kind == "text":
        return list(column.levels)
    values = column.distinct()
    if column.kind == "date":
        return [np.datetime64(round(value * 1e6), "us").item() for value in values.tolist()]
    if column.kind == "boolean":
        return list(map(bool, values))
    whole = column.is_integer and (values.dtype.kind != "f" or np.abs(values).max() < FIRST_INEXACT)
    return list(map(int, values.tolist())) if whole else list(decimals(values).tolist())


def _labels(preprocessor: Preprocessor, task: Task, output: Array) -> dict[str, Any]:
    predicted = task.predict(output)
    if isinstance(task, MultiLabel):
        return dict(zip(_targets(preprocessor), predicted.T, strict=True))
    classes = preprocessor.classes
    return {_targets(preprocessor)[0]: Coded(predicted, classes)}


def _targets(preprocessor: Preprocessor) -> list[str]:
    return preprocessor.target.columns if preprocessor.target else []
