"""`mlpengine train`: from a config to a run directory with a model."""

import json
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import click

from mlpengine.config import Override, load_config, parse_override
from mlpengine.config.build import LoadedData, load_data, trainer_of
from mlpengine.core.errors import NumericalError, RunError, UsageError
from mlpengine.core.wording import plural
from mlpengine.models.model import Model
from mlpengine.step.ranks import Ranks
from mlpengine.training.checkpoint import Checkpoint
from mlpengine.training.loading import load
from mlpengine.training.loop import Callback
from mlpengine.training.progress import Progress
from mlpengine.training.run_directory import RESOLVED, RunDirectory
from mlpengine.training.trainer import Trainer

from .options import AS_JSON, DIRECTORY_PATH, QUIET_OPTION, overrides_like
from .outcome import outcome_data, shortest
from .ranks import aborting, follow, is_root, on_all, on_each, require_equal_ranks, start_ranks
from .run_page import write_run_page
from .session import (
    WARM_START_MODEL,
    Session,
    check_header,
    check_same_config,
    find_checkpoint,
    saved_preprocessor,
)
from .stopping import Stopping, leave, stops
from .streams import say

EPILOG = """\b
Examples:
  mlpengine train configs/digits.yaml
  mlpengine train configs/digits.yaml --set optimizer.lr=3e-3 --set 'model.hidden=[64, 32]'
  mlpengine train configs/digits.yaml --out runs/first --set seed=7 --json
  mlpengine train configs/digits.yaml --fix
  mlpengine train --resume runs/first
  mlpengine train --resume runs/first --epochs 200
  mlpengine train --warm-start runs/first --set data.source=new.csv --set training.epochs=20
  mpiexec -n 2 mlpengine train configs/digits.yaml --set training.shards=2
"""


@click.command("train", epilog=EPILOG)
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "-o",
    "--out",
    type=DIRECTORY_PATH,
    help="Run directory; by default runs/<name>. One that is in use gets -002, -003, ... added.",
)
@click.option(
    "--resume",
    type=DIRECTORY_PATH,
    metavar="RUN",
    help="Resume a run that was stopped or killed, bit for bit; takes no CONFIG.",
)
@click.option(
    "--warm-start",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Fine-tune RUN: take its weights and preprocessing, and its config without CONFIG.",
)
@overrides_like("optimizer.lr=0.1")
@click.option(
    "--epochs", type=click.IntRange(1), metavar="N", help="Short for --set training.epochs=N."
)
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Train for at most this time, and at least one epoch; then measure the best epoch.",
)
@click.option("--mpi", is_flag=True, help="Train on the ranks of a launcher other than mpiexec.")
@click.option(
    "--fix",
    is_flag=True,
    help="Train once more with the best of the settings that the verdicts ask for, and compare.",
)
@QUIET_OPTION
@AS_JSON
def command(
    config: Path | None,
    out: Path | None,
    resume: Path | None,
    warm_start: Path | None,
    settings: tuple[str, ...],
    epochs: int | None,
    time_limit: float | None,
    mpi: bool,
    fix: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train a network as the YAML file CONFIG says.

    Progress goes to stderr, the result to stdout, and everything else into the run directory.
    Ctrl-C ends training after the current step and saves it; --resume continues from there.
    --resume RUN --epochs N continues a run to N epochs, from its last weights and optimizer state:
    from there on the learning rate follows a run of N epochs, and early stopping counts its
    patience from 0. Under mpiexec the ranks share the networks of training.folds or training.seeds,
    or each batch of one network; then training.shards is a multiple of their number.
    """
    ranks = start_ranks(mpi)
    root, began = is_root(ranks), perf_counter()
    quiet = quiet or not root

    def start() -> Start:
        if resume is not None and any([config, out, warm_start, settings]):
            raise UsageError(
                "--resume: a run keeps its settings; leave CONFIG out, and give --epochs or none"
            )
        if resume is None and config is None and warm_start is None:
            raise UsageError("train: give a CONFIG, --resume RUN or --warm-start RUN (see --help)")
        if fix and (ranks or resume is not None):
            raise UsageError("--fix: needs a new run of one process (got --resume or mpiexec)")
        if time_limit is not None and (ranks or fix):
            raise UsageError("--time-limit: limits one run of one process (got --fix or mpiexec)")
        overrides = [parse_override(text) for text in settings]
        if epochs is not None:
            overrides.append(Override("--epochs", ("training", "epochs"), str(epochs)))
        model = None if warm_start is None else load(warm_start)
        own = [] if config or resume else [OWN_TARGETS]
        return Start(config or resume or _config_of(warm_start), [*own, *overrides], out, model)

    with stops(quiet=not root) as state, aborting(ranks, state), ExitStack() as opened:
        begin = on_all(ranks, start)
        if resume is not None:
            begin = reopened(resume, epochs, ranks, opened)
        data, trainer = on_each(ranks, lambda: begin.load(ranks))
        if ranks:
            on_all(ranks, lambda: require_equal_ranks(ranks, data, trainer))
        if ranks and not root:
            on_all(ranks, lambda: None)  # while rank 0 opens the run
            anew = begin.epochs is not None
            follow(data, trainer, ranks, begin.checkpoint, state, waits_anew=anew)
        else:
            callbacks = epoch_lines(quiet)
            session = on_all(ranks, lambda: begin.session(data, trainer, callbacks, opened))
            session.loop.until = began + (time_limit or inf)
            shown = Shown(quiet, as_json)
            if fix:
                from .fixing import run_and_fix

                run_and_fix(begin, session, state, shown)
            else:
                run_session(session, state, ranks, shown)
    leave(state)


OWN_TARGETS = Override("--warm-start", ("data", "transfer_set"), "null")
"""Fine-tunes a student on true targets, not on the predictions of its teacher."""


def _config_of(run: Path | None) -> Path:
    """Return the config of a run."""
    if run is None or not (run / RESOLVED).is_file():
        raise UsageError(f"--warm-start: {run} holds no {RESOLVED}; give a CONFIG, too")
    return run / RESOLVED


class Start(NamedTuple):
    """The start of a run: a config, or an earlier run with its newest checkpoint, if any.

    `model` gives the weights, if there is one.  `epochs` is given for a run that continues to more
    epochs.  `directory` is the directory of the earlier run.  It is None on a rank other than 0,
    because such a rank opens no directory.
    """

    config: Path
    overrides: Sequence[Override] = ()
    out: Path | None = None
    model: Model | None = None
    checkpoint: Checkpoint | None = None
    epochs: int | None = None
    directory: RunDirectory | None = None

    @classmethod
    def of(cls, directory: RunDirectory, epochs: int | None = None) -> "Start":
        """Return the start from which the run in an open directory continues.

        Raises: RunError if it was stopped before that, or its config was edited; UsageError for
        `epochs` of a run without a checkpoint.
        """
        if not (directory.path / RESOLVED).is_file():
            raise RunError(
                f"{directory.path}: was stopped before {RESOLVED} was written; there is nothing to "
                "resume: train again"
            )
        checkpoint = find_checkpoint(directory)
        check_same_config(directory, checkpoint)
        overrides = _longer(directory, checkpoint, epochs)
        weights = directory.path / WARM_START_MODEL
        model = Model.load(weights) if checkpoint is None and weights.is_file() else None
        config = directory.path / RESOLVED
        return cls(config, overrides, None, model, checkpoint, epochs, directory)

    def load(self, ranks: Ranks | None = None) -> tuple[LoadedData, Trainer]:
        """Read config and data, and make the trainer that takes them."""
        file, model = load_config(self.config, self.overrides), self.model
        preprocessor = saved_preprocessor(self.checkpoint) if self.checkpoint else None
        if model is not None:
            preprocessor = model.preprocessor
        data = load_data(file, preprocessor, is_new=model is not None)
        return data, trainer_of(data, model, ranks)

    def session(
        self,
        data: LoadedData,
        trainer: Trainer,
        callbacks: Sequence[Callback],
        opened: ExitStack,
    ) -> Session:
        """Return the session, of a new run in a directory of its own; `opened` closes it.

        Raises: UsageError for a number of epochs that the run has made already.
        """
        if self.directory is None:
            directory = RunDirectory.create(self.out or Path("runs") / data.file.name)
            opened.callback(directory.close)
            session = Session(data, trainer, directory, callbacks, warm_start=self.model)
            session.write_inputs()
            return session
        session = Session(data, trainer, self.directory, callbacks, self.checkpoint)
        if self.epochs is not None:
            done = len(session.loop.history.rows)
            if self.epochs <= done:
                session.logs.close()
                text = f"the run has {plural(done, 'epoch')} already (got {self.epochs})"
                raise UsageError(f"--epochs: {text}")
            for loop in session.loop.members:
                loop.best.waited = 0
        return session


def reopened(path: Path, epochs: int | None, ranks: Ranks | None, opened: ExitStack) -> Start:
    """Return the start of an earlier run; only rank 0 opens and locks its directory.

    `epochs` replaces its number of epochs.
    """

    def open_run() -> Start:
        directory = RunDirectory.open(path)
        opened.callback(directory.close)
        return Start.of(directory, epochs)

    if ranks is None:
        return open_run()
    start = on_all(ranks, open_run if ranks.rank == 0 else lambda: None)
    shared = ranks.of_root(start and start._replace(directory=None))
    return start or shared or Start(path)


def _longer(
    directory: RunDirectory, checkpoint: Checkpoint | None, epochs: int | None
) -> list[Override]:
    """Return the overrides for a run that continues to another number of epochs than its config's.

    Raises: UsageError if it has no checkpoint.
    """
    if checkpoint is None:
        if epochs is None:
            return []
        raise UsageError(f"--epochs: {directory.path} holds no checkpoint to resume from")
    check_header(checkpoint)
    overrides = []
    number = epochs or checkpoint.header.get("epochs")
    if number is not None:
        overrides.append(Override("--epochs", ("training", "epochs"), str(number)))
    if epochs is not None:
        backend = checkpoint.header["environment"].get("backend")
        asked = load_config(directory.path / RESOLVED).config.training.backend
        if backend and asked == "auto":  # the number of steps chooses the backend
            overrides.append(Override("--epochs", ("training", "backend"), backend))
    return overrides


def epoch_lines(quiet: bool) -> list[Callback]:
    """Return the callback that prints a line for each epoch, unless `quiet`."""
    return [] if quiet else [Progress(True, live=False)]


class Shown(NamedTuple):
    """The output of a run: nothing on stderr, the result as JSON."""

    quiet: bool
    as_json: bool


def run_session(
    session: Session, state: Stopping, ranks: Ranks | None, shown: Shown
) -> dict[str, Any]:
    """Run a session to its end, print and return the result, and write the page after that."""
    if not shown.quiet:
        say(opening(session.data, session.trainer, session), err=True)
    state.attach(session.loop.stop)
    with closing(session), session.trainer.pinned():
        try:
            result = session.run()
        except NumericalError as error:
            failed = {"verdicts": [verdict.as_dict() for verdict in session.verdicts()]}
            for file in write_run_page(session, failed, str(error)):
                say(f"  {shortest(file)}", err=True)
            raise
        state.share_code(ranks)
        if not (shown.quiet or state.code):
            say("measuring the weights of the best epoch", err=True)
        outcome = session.finish(result)
        with suppress(BrokenPipeError):  # the run is complete, even if the reader has left
            say(json.dumps(outcome) if shown.as_json else outcome_data(session, result, outcome))
        files = [] if state.code else write_run_page(session, outcome)
    if files and not shown.as_json:
        with suppress(BrokenPipeError):
            say("\n".join(str(shortest(file)) for file in files))
    return outcome


def opening(data: LoadedData, trainer: Trainer, session: Session | None = None) -> str:
    """Return data, network and run directory, a line each."""
    mlp, counts = trainer.networks[0], data.tables.rows
    parts = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    rows = f"{plural(sum(counts.values()), 'row')} ({parts})"
    threads = plural(trainer.threads, "thread")
    networks = len(trainer.networks)
    several = f"{networks} of " if networks > 1 else ""
    size = f"{plural(len(mlp.params), 'parameter')}, {mlp.dtype}"
    if ranks := trainer.ranks:
        threads = f"{ranks.size} ranks of {threads}"
    lines = [
        f"data     {data.file.config.data.source}: {rows}, {plural(mlp.sizes[0], 'feature')}",
        f"network  {several}{mlp.title}, {size}, {threads}",
    ]
    lines[1:1] = [f"         {line}" for line in data.tables.remarks]
    if session:
        lines[1:1] = [f"         warning: {verdict}" for verdict in session.column_verdicts]
        lines.append(f"run      {session.directory.path}")
    if session and session.resumed:
        done = len(session.loop.history.rows)
        lines.append(f"resumed  {session.resumed.path.name}, after {plural(done, 'whole epoch')}")
        if session.loop.ending:
            more = f"--resume {shortest(session.directory.path)} --epochs {2 * done}"
            lines.append(f"complete no epoch is left; to raise training.epochs: train {more}")
    return "\n".join(lines)
