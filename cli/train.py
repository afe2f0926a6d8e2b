"""`mlpengine train`: from a config to a run directory with a model."""

from contextlib import ExitStack
from math import inf
from pathlib import Path
from time import perf_counter

import click

from mlpengine.config import Override, parse_override
from mlpengine.core.errors import UsageError
from mlpengine.core.fields import POSITIVE
from mlpengine.training.loading import load
from mlpengine.training.run_directory import RESOLVED

from .options import AS_JSON, DIRECTORY_PATH, QUIET_OPTION, overrides_like
from .ranks import aborting, follow, on_all, on_each, require_equal_ranks, start_ranks
from .starting import Shown, Start, epoch_lines, reopened, run_session
from .stopping import leave, stops

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
    help="Run directory; by default runs/<name>. A name in use gets -002, -003, ...",
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
    help="Fine-tune RUN: begin with its weights and preprocessing; by default use its config.",
)
@overrides_like("optimizer.lr=0.1")
@click.option(
    "--epochs", type=click.IntRange(1), metavar="N", help="The same as --set training.epochs=N."
)
@click.option(
    "--time-limit",
    type=float,
    metavar="SECONDS",
    help="Train for at most this time, but at least one epoch; then measure the best epoch.",
)
@click.option(
    "--log",
    "logs",
    type=click.Choice(["mlflow", "tensorboard"]),
    multiple=True,
    help="Log the run to this tool, too; the same as --set report.mlflow=true.",
)
@click.option("--mpi", is_flag=True, help="Train on the ranks of a launcher other than mpiexec.")
@click.option(
    "--fix",
    is_flag=True,
    help="Train again with settings that fix the problems that were found, and compare. --json "
    "prints a line for each run and one for the comparison.",
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
    logs: tuple[str, ...],
    mpi: bool,
    fix: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train a network with the settings of the YAML file CONFIG.

    Progress goes to stderr, the result to stdout, and everything else into the run directory.
    Ctrl-C ends training after the current step and saves its state; --resume continues from there.
    --resume RUN --epochs N continues a run to N epochs, from its last weights and optimizer state.
    Then the learning rate follows the schedule of N epochs, and early stopping counts its patience
    from 0.  Under mpiexec, the ranks divide the networks of training.folds or training.seeds.  If
    there is one network, the ranks divide each batch; then training.shards must be a multiple of
    the number of ranks.
    """
    ranks = start_ranks(mpi)
    root, began = ranks is None or ranks.rank == 0, perf_counter()
    quiet = quiet or not root

    def start() -> Start:
        if resume is not None and any([config, out, warm_start, settings, logs]):
            raise UsageError(
                "--resume: a run keeps its settings; leave CONFIG out, and give --epochs or none"
            )
        if resume is None and config is None and warm_start is None:
            raise UsageError("train: give a CONFIG, --resume RUN or --warm-start RUN (see --help)")
        if fix and (ranks or resume is not None):
            raise UsageError("--fix: needs a new run of one process (got --resume or mpiexec)")
        if time_limit is not None and (ranks or fix):
            raise UsageError("--time-limit: limits one run of one process (got --fix or mpiexec)")
        if time_limit is not None:
            POSITIVE.check("--time-limit", time_limit)
        overrides = [parse_override(text) for text in settings]
        if epochs is not None:
            if any(one.path == ("training", "epochs") for one in overrides):
                raise UsageError("--epochs: must not be given with --set training.epochs")
            overrides.append(Override("--epochs", ("training", "epochs"), str(epochs)))
        overrides += [Override("--log", ("report", name), "true") for name in logs]
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
            on_all(ranks, lambda: None)  # wait while rank 0 opens the run
            anew = begin.epochs is not None
            follow(data, trainer, ranks, begin.checkpoint, state, waits_anew=anew)
        else:
            callbacks = epoch_lines(quiet)
            session = on_all(ranks, lambda: begin.session(data, trainer, callbacks, opened))
            session.loop.until = began + (time_limit or inf)
            shown = Shown(quiet, as_json)
            if fix:
                from .fixing import run_and_fix  # a slow import

                run_and_fix(begin, session, state, shown)
            else:
                run_session(session, state, ranks, shown)
    leave(state)


OWN_TARGETS = Override("--warm-start", ("data", "transfer_set"), "null")
"""Override for a student: fine-tune on true targets, not on the teacher's predictions."""


def _config_of(run: Path | None) -> Path:
    if run is None or not (run / RESOLVED).is_file():
        raise UsageError(f"--warm-start: {run} holds no {RESOLVED}; give a CONFIG, too")
    return run / RESOLVED
