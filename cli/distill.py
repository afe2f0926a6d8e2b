"""`mlpengine distill`: train one small network to imitate the ensemble of a run."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click

from mlpengine.config import ConfigFile, load_config, parse_override
from mlpengine.config.build import load_data, trainer_of
from mlpengine.config.distilling import Teacher, student_config
from mlpengine.config.load import with_overrides
from mlpengine.config.tables import Tables, changed_files, read_source, read_tables
from mlpengine.core.errors import RunError, UsageError
from mlpengine.training.loading import load
from mlpengine.training.run_directory import (
    GIVEN_CONFIG,
    RunDirectory,
    resolved_config,
)
from mlpengine.training.transfer import TRANSFER_FILE

from .options import AS_JSON, DIRECTORY_PATH, MODEL_ARGUMENT, QUIET_OPTION, overrides_like
from .session import Session
from .starting import Shown, epoch_lines, run_session
from .stopping import leave, stops
from .streams import say

EPILOG = """\b
Examples:
  mlpengine distill runs/price -o runs/price-small
  mlpengine distill runs/price --set 'model.hidden=[32, 16]' --made 200000
  mlpengine distill runs/price --set training.epochs=40
  mlpengine export runs/price-student --format c-train -o price.c
"""


@click.command("distill", epilog=EPILOG)
@MODEL_ARGUMENT
@click.option(
    "-o", "--out", type=DIRECTORY_PATH, help="Run directory; by default runs/<name>-student."
)
@click.option(
    "--made",
    type=click.IntRange(0),
    metavar="N",
    help="Number of synthetic rows; by default twenty for each training row, at most 100,000.",
)
@overrides_like("training.epochs=9")
@QUIET_OPTION
@AS_JSON
def command(
    run: Path,
    out: Path | None,
    made: int | None,
    settings: tuple[str, ...],
    quiet: bool,
    as_json: bool,
) -> None:
    """Train one small network on the predictions of the ensemble of RUN.

    The network (the student) learns the predictions of RUN (the teacher), on the training rows and
    on synthetic rows.  A synthetic row is a training row with some values of a near row.  The
    result compares three models on the test rows of RUN: the student, the teacher, and a network
    that has the student's size and was trained on the true targets.  All other commands also work
    with the new run.
    """
    teacher = load(run)
    file = load_config(resolved_config(run))
    if file.config.data.stream:
        raise UsageError(
            f"{run}: distill needs all features in memory (the run has data.stream); "
            "train the teacher without data.stream"
        )
    if changed := changed_files(run, file):
        raise RunError(
            f"{run}: its table has changed since the run was trained ({', '.join(changed)}); "
            "restore it, or train the run again"
        )
    source = read_source(file, fitted=teacher.preprocessor)
    known = read_tables(file, source, teacher.preprocessor)
    overrides = [parse_override(text) for text in settings]
    student = student_config(file, teacher, known.rows["train"], GIVEN_CONFIG)
    student = with_overrides(student, overrides)
    _check_overrides(file, student)
    tables = read_tables(student, source)
    _check_same_rows(tables, known)
    with stops() as state, ExitStack() as opened:
        data = load_data(student, tables=tables)
        directory = RunDirectory.create(out or Path("runs") / student.name)
        opened.callback(directory.close)
        if not quiet:
            say(f"labeling {run} predicts the training rows and synthetic rows", err=True)
        transfer = Teacher(teacher, data).transfer_set(made)
        transfer.save(directory.path / TRANSFER_FILE)
        file = replace(student, path=directory.path / GIVEN_CONFIG)
        data = replace(data, file=file, given=transfer)
        trainer = trainer_of(data)
        session = Session(data, trainer, directory, epoch_lines(quiet))
        session.write_inputs()
        run_session(session, state, None, Shown(quiet, as_json))
    leave(state)


def _check_overrides(file: ConfigFile, student: ConfigFile) -> None:
    """Raise UsageError for overrides that a student cannot have."""
    before, data = file.config.data, student.config.data
    names = ("source", "validation_source", "test_source", "target")
    changed = [f"data.{name}" for name in names if getattr(before, name) != getattr(data, name)]
    if data.stream:
        changed.append("data.stream")
    if student.config.training.folds:
        changed.append("training.folds")
    if changed:
        raise UsageError(
            "distill: a student is one network in memory, with the tables and the target of its "
            f"teacher; leave out --set of {', '.join(changed)}"
        )


def _check_same_rows(tables: Tables, known: Tables) -> None:
    """Raise UsageError unless each part has the same rows as in the teacher's run."""
    pairs = ((tables.parts[part][1], rows) for part, (_, rows) in known.parts.items())
    if tables.rows != known.rows or any((own != rows).any() for own, rows in pairs):
        raise UsageError(
            "distill: student and teacher must have the same training, validation and test rows; "
            "leave seed and data.split unchanged"
        )
