"""Start a run and train it, for all commands that train."""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from errno import EPIPE
from pathlib import Path
from typing import Any, NamedTuple

from mlpengine.config import Override, load_config
from mlpengine.config.build import LoadedData, load_data, trainer_of
from mlpengine.config.sweep import SETTINGS
from mlpengine.core.errors import NumericalError, RunError, UsageError
from mlpengine.core.files import pasted
from mlpengine.core.wording import plural
from mlpengine.models.members import networks_text
from mlpengine.models.model import Model
from mlpengine.step.ranks import Ranks
from mlpengine.training.checkpoint import Checkpoint
from mlpengine.training.loading import restored_model
from mlpengine.training.loop import Callback
from mlpengine.training.progress import Progress
from mlpengine.training.run_directory import RESOLVED, RunDirectory
from mlpengine.training.trainer import Trainer

from .outcome import outcome_data, shortest
from .ranks import on_all
from .session import (
    WARM_START_MODEL,
    Session,
    check_header,
    check_same_config,
    find_checkpoint,
)
from .stopping import Stopping
from .streams import CLOSED, complain, say

_log = logging.getLogger("mlpengine")


class Start(NamedTuple):
    """The inputs of a new run, or of an earlier run that is resumed.

    `model` is the model of a warm start, or None.  For an earlier run, `checkpoint` is its newest
    checkpoint, `epochs` a new number of epochs, and `directory` its open directory (on rank 0).
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
        """Return the inputs to resume the run in an open directory.

        Raises: RunError if the run has no config yet, or if its config was edited; UsageError if
        `epochs` is given and the run has no checkpoint, or for a sweep.
        """
        if (directory.path / SETTINGS).is_file():
            sweep = pasted(shortest(directory.path))
            raise UsageError(f"--resume: {sweep} is a sweep: mlpengine sweep --join {sweep}")
        if not (directory.path / RESOLVED).is_file():
            raise RunError(
                f"{directory.path}: was stopped before {RESOLVED} was written; there is nothing to "
                "resume: train again"
            )
        checkpoint = find_checkpoint(directory)
        check_same_config(directory, checkpoint)
        overrides = _longer(directory, checkpoint, epochs)
        weights = directory.path / WARM_START_MODEL
        model = Model.load(weights) if weights.is_file() else None
        config = directory.path / RESOLVED
        return cls(config, overrides, None, model, checkpoint, epochs, directory)

    def load(self, ranks: Ranks | None = None) -> tuple[LoadedData, Trainer]:
        """Read config and data, and make the trainer."""
        file, model = load_config(self.config, self.overrides), self.model
        preprocessor = None
        if self.checkpoint is not None:
            check_header(self.checkpoint)
            preprocessor = restored_model(self.checkpoint).preprocessor
        data = load_data(file, preprocessor, warm_start=model)
        return data, trainer_of(data, model, ranks)

    def session(
        self,
        data: LoadedData,
        trainer: Trainer,
        callbacks: Sequence[Callback],
        opened: ExitStack,
    ) -> Session:
        """Return the session.  `opened` will close the directory that is made for a new run.

        Raises: UsageError if the earlier run already has `epochs` epochs.
        """
        if self.directory is None:
            directory = RunDirectory.create(self.out or Path("runs") / data.file.name)
            if self.out is not None and directory.path.name != self.out.name:
                complain(f"{self.out} is in use; the run is {shortest(directory.path)}")
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
    """Return the inputs to resume a run; only rank 0 opens and locks the run directory.

    `epochs` replaces the number of epochs of the run.
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
    """Return the overrides for a resumed run; `epochs`, unless None, replaces its epochs."""
    if checkpoint is None:
        if epochs is None:
            return []
        text = "holds no checkpoint to resume from; leave out --epochs"
        raise UsageError(f"--epochs: {directory.path} {text}")
    check_header(checkpoint)
    overrides = []
    number = epochs or checkpoint.header.get("epochs")
    if number is not None:
        overrides.append(Override("--epochs", ("training", "epochs"), str(number)))
    if epochs is not None:
        backend = checkpoint.header["environment"].get("backend")
        asked = load_config(directory.path / RESOLVED).config.training.backend
        # `auto` chooses by the number of steps; another backend would change the bits of the run
        if backend and asked == "auto":
            overrides.append(Override("--epochs", ("training", "backend"), backend))
    return overrides


def epoch_lines(quiet: bool) -> list[Callback]:
    """Return a callback that prints a line for each epoch, or no callback if `quiet`."""
    return [] if quiet else [Progress(True, live=False)]


class Shown(NamedTuple):
    """How a run prints: `quiet` prints no progress, `as_json` prints the result as JSON."""

    quiet: bool
    as_json: bool


def run_session(
    session: Session, state: Stopping, ranks: Ranks | None, shown: Shown
) -> dict[str, Any]:
    """Run a session to its end; print its result, write its report, and return the result."""
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
            say("evaluating the best epoch of each network (* above: a network improved)", err=True)
        outcome = session.finish(result)
        lost: OSError | None = None
        try:
            say(json.dumps(outcome) if shown.as_json else outcome_data(session, result, outcome))
        except OSError as error:  # stdout is closed or its disk is full; still write the report
            lost = error
        files = [] if state.code else write_run_page(session, outcome)
    run = str(shortest(session.directory.path))
    if files and not shown.as_json and lost is None:
        with suppress(BrokenPipeError):
            say("\n".join(str(shortest(file)) for file in files))
    if lost and not isinstance(lost, BrokenPipeError):
        ending = "was stopped" if state.code else "is complete"
        raise RunError(f"stdout: {lost.strerror}; the run {ending}: {run}")
    if lost and lost.strerror == CLOSED and not state.code:
        raise BrokenPipeError(EPIPE, CLOSED, run)
    return outcome


def write_run_page(session: Session, outcome: Mapping[str, Any], failure: str = "") -> list[Path]:
    """Write the report of a run that has ended or failed, unless the config switches it off.

    A report that cannot be written is only a warning, because the run itself is complete.
    """
    if not session.data.file.config.report.html:
        return []
    from mlpengine.report import QUICK, REPORT_FILE, RunData, save_report

    core = getattr(session.diagnostics, "core", None)
    run = RunData(
        shortest(session.directory.path),
        outcome,
        session.data,
        session.model,
        trained=not failure,
        series=core.series if core else None,
        known=session.measured.last,
        score=session.score,
        failure=failure,
    )
    path = session.directory.path / REPORT_FILE
    try:
        save_report(path, run, QUICK)
    except RunError as error:
        _log.warning("warning: %s", error)
        return []
    return [path]


def opening(data: LoadedData, trainer: Trainer, session: Session | None = None) -> str:
    """Return lines about the data, the network and the run directory, with warnings."""
    mlp, counts = trainer.networks[0], data.tables.rows
    parts = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    rows = f"{plural(sum(counts.values()), 'row')} ({parts})"
    threads = plural(trainer.threads, "thread")
    count = sum(len(network.params) for network in trainer.networks)
    size = f"{plural(count, 'parameter')}, {mlp.dtype}"
    if ranks := trainer.ranks:
        threads = f"{ranks.size} ranks of {threads}"
    lines = [
        f"data     {data.file.config.data.source}: {rows}, {plural(mlp.sizes[0], 'feature')}",
        f"network  {networks_text(trainer.networks)}, {size}, {threads}",
    ]
    later = [
        one
        for one in trainer.settings.training.fold_members
        if one not in trainer.settings.training.trained_members
    ]
    lines += [f"         {' and '.join(later)} members are added after the epochs"] * bool(later)
    lines[1:1] = [f"         {line}" for line in data.tables.remarks]
    if session:
        lines[1:1] = [f"         warning: {verdict}" for verdict in session.column_verdicts]
        lines.append(f"run      {session.directory.path}")
    if session and session.resumed:
        done = len(session.loop.history.rows)
        lines.append(f"resumed  {session.resumed.path.name}, after {plural(done, 'whole epoch')}")
        if session.loop.ending:
            more = f"--resume {pasted(shortest(session.directory.path))} --epochs {2 * done}"
            lines.append(f"complete the run has ended; for more epochs: train {more}")
    return "\n".join(lines)
