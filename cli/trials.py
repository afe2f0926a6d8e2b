"""The trials of a sweep; each trial is an ordinary run in a directory below the sweep."""

from contextlib import closing
from math import inf, isfinite
from time import monotonic
from typing import Any

from mlpengine.config import ConfigFile
from mlpengine.config.build import LoadedData, load_data, trainer_of
from mlpengine.config.tables import Tables
from mlpengine.core.errors import NumericalError, ShapeError, UsageError
from mlpengine.core.files import flush, unflushed
from mlpengine.core.system import is_orphan
from mlpengine.core.wording import as_setting, plural
from mlpengine.models.model import MODEL_FILE
from mlpengine.models.task import OUT_OF_FOLD
from mlpengine.training.history import EpochRow
from mlpengine.training.loop import Callback, Loop

from .session import Session
from .stopping import Stopping
from .streams import say
from .study import Claim, Study

QUIET = ("report=false", "training.threads=1", "training.checkpoint=null")
"""Settings of every trial: no report, no checkpoints, and one thread (workers share cores)."""

UNFLUSHED_SECONDS = 10.0
"""In the first seconds of a trial, only the model is flushed to disk."""


class Reporter(Callback):
    """Reports the metric after each epoch, and ends the trial if the pruner decides so."""

    def __init__(self, study: Study, claim: Claim) -> None:
        self._study, self._claim = study, claim
        self.pruned = False

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        metric = row.validation[self._study.sweep.metric]
        if row.epoch < loop.epochs and self._study.report(self._claim, row.epoch, metric):
            self.pruned = True
            loop.stop()


class Worker:
    """Runs trials in this process until none is left or the process is stopped."""

    def __init__(self, study: Study, state: Stopping, *, quiet: bool) -> None:
        self._study, self._state, self._quiet = study, state, quiet
        self._read: tuple[ConfigFile, Tables] | None = None

    def run(self, parent: int | None = None) -> None:
        """Run trials; begin none after the sweep's time limit, or after process `parent` ended."""
        until = monotonic() + (self._study.sweep.seconds or inf)
        while not self._state.code and monotonic() < until:
            if parent is not None and is_orphan(parent):
                return
            claim = self._study.claim()
            if claim is None:
                return
            with claim.directory, unflushed(UNFLUSHED_SECONDS):
                try:
                    self._run(claim)
                except (NumericalError, ShapeError, UsageError, MemoryError) as error:
                    self._failed(claim, error)
                except BaseException:
                    self._study.leave(claim)
                    raise

    def _run(self, claim: Claim) -> None:
        study, reporter, name = self._study, Reporter(self._study, claim), claim.directory.path.name
        data = self._load(study.config(claim.values, *QUIET, f"name=trial-{name}"))
        data.task.watch(study.sweep.metric)
        session = Session(data, trainer_of(data), claim.directory, [reporter])
        session.write_inputs()
        self._state.attach(session.loop.stop)
        with closing(session), session.trainer.pinned():
            result = session.run(quiet=True)
            session.finish(result)
            if result.ending == "interrupted" and not reporter.pruned:
                study.leave(claim)
                return
            flush(claim.directory.path / MODEL_FILE)  # before the journal counts the trial
            if reporter.pruned:
                study.end(claim, "pruned")
                ending = "ended early by the pruner"
            else:
                parts, metric = session.measured.metrics, study.sweep.metric
                value = parts[OUT_OF_FOLD if OUT_OF_FOLD in parts else "validation"][metric]
                if not isfinite(value):
                    raise NumericalError(f"{metric} must be finite (got {value})")
                study.end(claim, "complete", value)
                ending = f"{metric} {short(value)}"
        self._say(claim, f"{ending}, {plural(result.epochs, 'epoch')} in {result.seconds:.1f} s")

    def _failed(self, claim: Claim, error: Exception) -> None:
        self._study.end(claim, "fail", reason=str(error) or "not enough memory")
        self._say(claim, f"failed: {error}")

    def _say(self, claim: Claim, text: str) -> None:
        if not self._quiet:
            values = ", ".join(f"{key} {short(value)}" for key, value in claim.values.items())
            say(f"trial {claim.trial.number}: {text} ({values})", err=True)

    def _load(self, file: ConfigFile) -> LoadedData:
        """Return the data of a trial; trials with equal data settings read the table once."""
        config = file.config
        if self._read is not None:
            before, tables = self._read[0].config, self._read[1]
            alike = (before.data, before.seed, before.training.dtype)
            if alike == (config.data, config.seed, config.training.dtype):
                return load_data(file, tables=tables)
        data = load_data(file)
        self._read = file, data.tables
        return data


def short(value: Any) -> str:
    """Return a value of the search space as short text."""
    return f"{value:.4g}" if isinstance(value, float) else as_setting(value)
