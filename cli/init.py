"""`mlpengine init`: from a table to a config that trains."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from mlpengine.config.other_tasks import other_settings
from mlpengine.config.proposal import Division, decisions, doubts, fitting_division, propose
from mlpengine.core.errors import DataError, UsageError
from mlpengine.core.files import is_device, keep_other_kinds, pasted, similar_file, write_atomically
from mlpengine.core.wording import plural, suggestion
from mlpengine.data.features import Profile, profile
from mlpengine.data.features.checks import CORRECT, KEEP_IF, more_features
from mlpengine.data.features.targets import fit_target
from mlpengine.data.tables import DATASETS, Table, read_table
from mlpengine.data.tables.detect import detect
from mlpengine.data.tables.dialect import CsvDialect
from mlpengine.data.tables.rows import has_target

from .options import AS_JSON, OutputPath
from .progress import Meter
from .schema import SCHEMA_FILE, write_schema
from .streams import say, write_file

MIN_ROWS_TO_SPLIT = 3
"""Smallest number of rows of a class that can be in all parts of a split."""

EPILOG = """\b
Examples:
  mlpengine init diamonds.csv --target price -o diamonds.yaml
  mlpengine check diamonds.yaml
  mlpengine train diamonds.yaml
  mlpengine init train.csv --test test.csv --target price
  mlpengine init visits.csv --target effect --group patient
  mlpengine init patients.csv --target days --event died
  mlpengine init sensors.csv --target left --target right -o -
"""


@click.command("init", epilog=EPILOG)
@click.argument("data", type=str)
@click.option("--target", multiple=True, metavar="COL", help="Column to predict; may be repeated.")
@click.option(
    "-o",
    "--out",
    type=OutputPath(),
    metavar="FILE",
    help="The config; by default <data>.yaml; - is stdout.",
)
@click.option(
    "--test",
    metavar="FILE",
    help="A separate table for the final score (data.test_source); by default a fifth of DATA.",
)
@click.option(
    "--group",
    metavar="COL",
    help="Group column, such as patient: rows of a group stay together (data.split.group).",
)
@click.option(
    "--time",
    metavar="COL",
    help="Time column: the newest rows are the test rows (data.split.time).",
)
@click.option(
    "--event",
    metavar="COL",
    help="If the target is a survival time: column with 1 = event, 0 = censored (data.event).",
)
@click.option("--force", is_flag=True, help="Overwrite a config that exists.")
@AS_JSON
def command(
    data: str,
    target: tuple[str, ...],
    out: str | None,
    test: str | None,
    group: str | None,
    time: str | None,
    event: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a commented config that predicts a column of the table DATA.

    Some columns are dropped, with a comment: copies of the target in another coding, row numbers,
    and columns with a different text in nearly every row.  A column that alone predicts the target
    almost perfectly is kept, with a warning.  A schema file is written beside the config; editors
    use it to complete and check the config.
    """
    if Path(data).suffix in (".yaml", ".yml"):
        raise UsageError(
            f"{data}: this is a config, not a table; train it with: mlpengine train {pasted(data)}"
        )
    detected = detect(data, target=target, group=group, progress=Meter(f"reading {data}"))
    table = detected.table
    if not target and data in DATASETS:
        target = (DATASETS[data],)
    if not target:
        known = ", ".join(table.names[:20]) + (", ..." if len(table.names) > 20 else "")
        raise UsageError(
            f"init: give the column to predict by --target COL (the columns are {known})"
        )
    name = (
        "".join(c if c.isalnum() or c == "_" else "-" for c in Path(data).name.split(".")[0])
        or "config"
    )
    path = None if out == "-" else Path(out or f"{name}.yaml")
    device = path is not None and is_device(path)
    if path is not None and path.exists() and not (force or device):
        raise UsageError(f"{path}: exists already; choose another name with -o, or add --force")
    if path is not None:
        _check_out(path, f"{name}.yaml")
    source = data if data in DATASETS else _beside(Path(data), path)
    _check_name(data, source)
    test_source = None
    if test is not None:
        _check_file(Path(test), Path(data))
        test_source = _beside(Path(test), path)
        _check_name(test, test_source)
    names = list(dict.fromkeys(target))
    divides = {key: name for key, name in (("group", group), ("time", time)) if name is not None}
    _check_columns(table.names, names, divides, event)
    meter = Meter(f"looking at {plural(len(table.names), 'column')}")
    facts = profile(
        table.drop([event] if event else []),
        names,
        task="survival" if event else None,
        progress=meter,
    )
    with_target = has_target(table, names)
    rows, parts = int(with_target.sum()), 3 if test is None else 2
    if rows < parts:
        needed = plural(parts, "row")
        raise DataError(f"{data}: at least {needed} with a target are needed (got {rows})")
    # raises DataError for a target that training would reject
    fit_target(table.rows(with_target), names, facts.task, standardize=True, event=event)
    others = other_settings(facts, table.rows(with_target), names, time)
    facts, division = _divided(facts, table.rows(with_target), divides, own_test=test is not None)
    _check_test(test, [name for name in table.names if name not in facts.drop], detected.reading)
    text = propose(
        facts,
        names,
        source=source,
        schema=SCHEMA_FILE,
        test=test_source,
        reading=detected.reading,
        division=division,
        event=event,
        others=others,
    )
    decided = decisions(facts, names, division)
    decided += [f"not set: {one}; use it {why}" for one, why in others.items()]
    shown_remarks = [
        *detected.notes,
        *doubts(facts, names),
        *remarks(facts),
        *_one_day(facts, time),
    ]
    if path is not None:
        write_atomically(path, text.encode())
        if not device:
            write_schema(path.with_name(SCHEMA_FILE))
    if as_json:
        shown = {
            "config": text,
            "decided": decided,
            "dropped": facts.drop,
            "warnings": shown_remarks,
        }
        click.echo(json.dumps(shown if path is None else {"out": str(path), **shown}))
        return
    if path is None:
        write_file(text)
    for line in shown_remarks:
        say(f"warning: {line}", err=True)
    for line in decided:
        say(f"decided: {line}", err=True)
    if path is not None and not device:
        say(f"wrote {path} and {path.with_name(SCHEMA_FILE)}")
        say(f"next: mlpengine check {pasted(path)}; mlpengine train {pasted(path)}")


def _check_out(path: Path, usual: str) -> None:
    if path.name == SCHEMA_FILE:
        raise UsageError(f"{path}: the schema has this name; write -o {usual}")
    keep_other_kinds(path, ".yaml", ".yml")


def _check_file(test: Path, data: Path) -> None:
    if not test.exists():
        raise UsageError(f"--test: there is no such file ({test}){similar_file(test)}")
    if not test.is_file():
        raise UsageError(f"--test: must be a file (got {test}, a directory, pipe or device)")
    if data.exists() and test.samefile(data):
        raise UsageError(f"--test: needs other rows than DATA (got {test})")


def remarks(facts: Profile) -> list[str]:
    """Return warnings about the table, a line each."""
    lines = facts.misread()
    lines += [
        f"column {leak.column!r} is kept, but {leak.reason}; {KEEP_IF}" for leak in facts.suspects
    ]
    lines += [f"{o.text}; {CORRECT}" for o in facts.outliers if o.column not in facts.drop]
    if facts.target_missing:
        lines.append(
            f"{plural(facts.target_missing, 'row')} of {facts.n_rows:,} left out: the target is "
            "missing"
        )
    lines += facts.small_classes(MIN_ROWS_TO_SPLIT)
    features = len(facts.columns) - len(facts.drop) - 1
    if features > facts.n_rows:
        lines.append(more_features(features, facts.n_rows))
    return lines


def _one_day(facts: Profile, time: str | None) -> list[str]:
    """Return a warning if the time column has times without dates."""
    return [
        f"column {time!r} has times without dates, so rows of several days are in wrong order; "
        "name a column of dates by --time, or leave it out"
        for column in facts.columns
        if column.name == time and column.is_of_one_day
    ]


def _check_columns(
    names: Sequence[str], target: Sequence[str], divides: Mapping[str, str], event: str | None
) -> None:
    if len(divides) > 1:
        raise UsageError("init: give --group or --time, not both")
    for key, name in {**divides, **({} if event is None else {"event": event})}.items():
        if name in target:
            raise UsageError(f"--{key}: must not be the target (got {name!r})")
        if name not in names:
            known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            near = suggestion(name, names) or f" (the columns are {known})"
            raise UsageError(f"--{key}: there is no column {name!r}{near}")


def _check_test(test: str | None, columns: Sequence[str], reading: CsvDialect) -> None:
    if test is not None:
        read_table(test, **reading.to_dict()).require(columns, "--test, like DATA,")


def _divided(
    facts: Profile, table: Table, divides: Mapping[str, str], *, own_test: bool
) -> tuple[Profile, Division | None]:
    """Return the profile, and the division by --group or --time; None without these options."""
    for key, name in divides.items():
        facts, division = Division.of(facts, key, name)
        try:
            return facts, fitting_division(facts, table, division, own_test=own_test)
        except DataError as error:
            text = f"{error}; choose another column, or leave out --{key}"
            raise DataError(f"--{key} {name}: {text}") from None
    return facts, None


def _check_name(given: str, source: str) -> None:
    """Check that a config can name a file."""
    try:
        source.encode()
    except UnicodeEncodeError:  # the path has bytes that are not UTF-8
        name = given.encode(errors="backslashreplace").decode()
        text = f"{name}: a config is UTF-8 and cannot name this file; rename it"
        raise UsageError(text) from None


def _beside(data: Path, config: Path | None) -> str:
    """Return the path of a data file relative to the folder of the config."""
    folder = config.parent if config else Path()
    data = data.resolve() if data.is_relative_to("/dev") else data  # a file given as /dev/stdin
    try:
        return Path(os.path.relpath(data, folder)).as_posix()
    except ValueError:  # another drive
        return data.absolute().as_posix()
