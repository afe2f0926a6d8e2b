"""The trials of a sweep: each an ordinary run in a directory below the sweep's.

Which trial a worker runs, and whether one whose worker died is tried again, `study` decides.
"""

import json
from contextlib import ExitStack, closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

from mlpengine.config import ConfigFile, load_config, parse_override
from mlpengine.config.build import LoadedData, load_data, trainer_of
from mlpengine.config.space import overrides
from mlpengine.config.sweep import BEST, SETTINGS, SWEEP
from mlpengine.config.tables import Tables
from mlpengine.core.errors import (
    CheckpointError,
    MlpEngineError,
    NumericalError,
    RunError,
    ShapeError,
    UsageError,
)
from mlpengine.core.files import flush, read_file, similar_file, unflushed
from mlpengine.core.system import is_orphan
from mlpengine.core.wording import as_setting, plural
from mlpengine.models.model import MODEL_FILE
from mlpengine.training.history import EpochRow
from mlpengine.training.loop import Loop, Result
from mlpengine.training.measure import OUT_OF_FOLD
from mlpengine.training.run_directory import RunDirectory

from .progress import Progress
from .session import Session, check_same_config, find_checkpoint
from .stopping import Stopping
from .streams import say
from .study import Claim, Study
from .train import Start

QUIET = ("report=false", "training.threads=1")
"""Settings of every trial: no page, and one thread, as the workers share the cores."""


REPEATED_SECONDS = 10.0
"""Files of the first so many seconds of a trial are not flushed to disk, but its weights are.

After a power cut, a trial that was under way is repeated from the checkpoint that is whole.
"""


@dataclass(frozen=True)
class Sweep:
    """A sweep in its directory, as every worker reads it."""

    directory: Path
    name: str
    settings: tuple[str, ...]

    @classmethod
    def load(cls, directory: Path) -> "Sweep":
        """Read the directory of a sweep.  Raises: UsageError, RunError if it is none."""
        directory = directory.absolute()
        if not directory.exists():
            raise UsageError(f"{directory}: there is no such sweep{similar_file(directory)}")
        if not (directory / SETTINGS).is_file():
            raise UsageError(
                f"{directory}: is not the directory of a sweep (there is no {SETTINGS})"
            )
        try:
            given = json.loads(read_file(directory / SETTINGS))
            name, settings = str(given["name"]), tuple(map(str, given["settings"]))
            digest = given["config_sha256"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RunError(f"{directory / SETTINGS}: is damaged ({error!r})") from error
        if sha256(read_file(directory / SWEEP)).hexdigest() != digest:
            raise RunError(
                f"{directory / SWEEP}: must be as it was when the sweep began (it was edited or "
                "damaged); restore it, or begin a new sweep with other settings"
            )
        return cls(directory, name, settings)

    def config(self, values: dict[str, Any], *settings: str) -> ConfigFile:
        """Return the config of a trial, with further settings."""
        given = [parse_override(text) for text in (*self.settings, *settings)]
        return load_config(self.directory / SWEEP, [*given, *overrides(values)])

    def study(self) -> Study:
        """Open the study of the sweep."""
        file = self.config({})
        config = file.config
        if config.sweep is None:
            raise RunError(f"{self.directory / SWEEP}: has no section sweep")
        with file.errors_at("sweep", "storage"):
            return Study(
                self.directory,
                config.sweep,
                name=self.name,
                seed=config.seed,
                epochs=config.training.epochs,
            )

    def summary(self, study: Study) -> dict[str, Any]:
        """Return all trials and the best of them."""
        best = study.best()
        chosen = best and {
            **study.described(best),
            "config": str(self.directory / BEST),
            "model": str(study.path(best.number) / MODEL_FILE),
        }
        return {
            "sweep_dir": str(self.directory),
            "metric": study.sweep.metric,
            "trials": [study.described(trial) for trial in study.trials()],
            "best": chosen,
        }


class Reporter(Progress):
    """Tells the study the metric after each epoch, and ends the trial if the pruner says so."""

    order = -1  # before checkpoints are written: a trial that ends here saves once

    def __init__(self, study: Study, claim: Claim) -> None:
        self._study, self._claim = study, claim
        self.pruned = False

    def on_train_start(self, loop: Loop) -> None:
        """Print nothing."""

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        """Report the metric."""
        metric = row.validation[self._study.sweep.metric]
        if row.epoch < loop.epochs and self._study.report(self._claim, row.epoch, metric):
            self.pruned = True
            loop.stop()


class Worker:
    """Runs trials in this process, one after the other, until none is left or it is stopped.

    With `parent`, the id of the process that started this one, it also ends when that one has.
    """

    def __init__(
        self,
        sweep: Sweep,
        study: Study,
        state: Stopping,
        *,
        quiet: bool,
        parent: int | None = None,
    ) -> None:
        self.sweep, self.study = sweep, study
        self._state, self._quiet, self._parent = state, quiet, parent
        self._read: tuple[ConfigFile, Tables] | None = None

    def run(self, until: float) -> None:
        """Run trials; begin none after the time `until` of the monotonic clock."""
        while not self._state.code and monotonic() < until:
            if self._parent is not None and is_orphan(self._parent):
                return
            claim = self.study.claim()
            if claim is None:
                return
            with claim.directory, unflushed(REPEATED_SECONDS), self.study.resumable():
                self._run(claim)

    def _run(self, claim: Claim) -> None:
        """Run one trial to its end, or to a signal."""
        reporter = Reporter(self.study, claim)
        try:
            session = self._session(claim, reporter)
        except (UsageError, ShapeError) as error:
            self._failed(claim, error)
            return
        except BaseException:
            self.study.leave(claim)
            raise
        self._state.attach(session.loop.stop)
        with closing(session), session.trainer.pinned():
            try:
                result = session.loop.run()
                session.finish(result)
                self._end(claim, reporter, result, session)
            except NumericalError as error:
                self._failed(claim, error)
            except BaseException:
                self.study.leave(claim)
                raise

    def _end(self, claim: Claim, reporter: Reporter, result: Result, session: Session) -> None:
        """Tell the study how a trial ended.

        Several networks have the metric of their mean, or out of fold; the pruner knows the mean
        of theirs.
        """
        metric, value = self.study.sweep.metric, None
        if result.best_epoch:
            value = result.history.rows[result.best_epoch - 1].validation[metric]
        if len(session.loop.members) > 1 and result.ending != "interrupted":
            parts = session.measured.metrics
            value = parts[OUT_OF_FOLD if OUT_OF_FOLD in parts else "validation"][metric]
        if result.ending == "interrupted" and not reporter.pruned:
            self.study.leave(claim)
            return
        flush(claim.directory.path / MODEL_FILE)  # which is kept
        if reporter.pruned:
            self.study.prune(claim)
            ending = "ended early by the pruner"
        else:
            self.study.complete(claim, value or 0.0)
            ending = f"{metric} {short(value)}"
        self._say(claim, f"{ending}, {plural(result.epochs, 'epoch')} in {result.seconds:.1f} s")

    def _failed(self, claim: Claim, error: MlpEngineError) -> None:
        self.study.fail(claim, str(error))
        self._say(claim, f"failed: {error}")

    def _say(self, claim: Claim, text: str) -> None:
        if not self._quiet:
            values = ", ".join(f"{key} {short(value)}" for key, value in claim.values.items())
            say(f"trial {claim.trial.number}: {text} ({values})", err=True)

    def _session(self, claim: Claim, reporter: Reporter) -> Session:
        """Return the session of a trial, resumed from its checkpoint if another worker left one."""
        directory = claim.directory
        if _resumable(directory):
            start = Start.of(directory)
            return start.session(*start.load(), [reporter], ExitStack())
        directory.clear()
        file = self.sweep.config(claim.values, *QUIET, f"name=trial-{directory.path.name}")
        data = self._load(file)
        session = Session(data, trainer_of(data), directory, [reporter])
        session.write_inputs()
        return session

    def _load(self, file: ConfigFile) -> LoadedData:
        """Return the data of a trial; trials that read them alike read them once."""
        config = file.config
        if self._read is not None:
            before, tables = self._read[0].config, self._read[1]
            alike = (before.data, before.seed, before.training.dtype)
            if alike == (config.data, config.seed, config.training.dtype):
                return load_data(file, tables=tables)
        data = load_data(file)
        self._read = file, data.tables
        return data


def _resumable(directory: RunDirectory) -> bool:
    """Return whether a trial has a checkpoint and its config; a power cut may damage both."""
    try:
        checkpoint = find_checkpoint(directory)
        check_same_config(directory, checkpoint)
    except (CheckpointError, RunError):
        return False
    return checkpoint is not None


def short(value: Any) -> str:
    """Return a value of a space for a line of text."""
    return f"{value:.4g}" if isinstance(value, float) else as_setting(value)
