"""A sweep in its directory, with its trials in a journal of Optuna.

A worker locks the run directory of its trial.  The operating system releases the lock when the
process ends for any reason.  Then an unfinished trial is queued again.
"""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import islice, repeat
from math import isfinite, isnan
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mlpengine.config import ConfigFile, load_config, parse_override
from mlpengine.config.space import overrides
from mlpengine.config.sweep import BEST, SETTINGS, SWEEP, SpaceSection
from mlpengine.core.errors import MlpEngineError, RunError, UsageError, importing
from mlpengine.core.files import read_file, similar_file
from mlpengine.models.metrics import higher_is_better
from mlpengine.models.model import MODEL_FILE
from mlpengine.training.run_directory import LOCK_FILE, RunDirectory

with importing("mlpengine sweep", "sweep"):
    import optuna
    from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
    from optuna.storages import RetryHeartbeatStaleTrialCallback as _Retry
    from optuna.storages.journal import (
        JournalFileBackend,
        JournalFileOpenLock,
        JournalStorage,
    )
    from optuna.trial import FrozenTrial, Trial, TrialState

TRIALS, JOURNAL_FILE = "trials", "journal.log"

RETRIES = 3
"""Maximum retries of a trial after its worker was killed."""

WARMUP = 5
"""The median pruner ends no trial in the first ``epochs // WARMUP`` epochs."""

START_TIME = timedelta(minutes=1)
"""Time after which a running trial without a run directory counts as lost."""

SLOT, REASON = "slot", "reason"
"""Attributes of a trial: its number in the sweep (equal for retries), and why it failed."""

optuna.logging.set_verbosity(optuna.logging.ERROR)


@dataclass(frozen=True)
class Claim:
    """A trial that this process runs; `directory` is locked."""

    trial: Trial
    values: dict[str, Any]
    directory: RunDirectory


class Study:
    """The trials of the sweep in a directory.

    Raises: UsageError or RunError if the directory belongs to no sweep, or if the journal
    cannot be used.
    """

    def __init__(self, directory: Path, *, begins: bool = False) -> None:
        self.directory = directory.absolute()
        self.name, self._settings = _read(self.directory)
        file = self.config({})
        if file.config.sweep is None:
            raise RunError(f"{self.directory / SWEEP}: has no section sweep")
        self.sweep, self._seed = file.config.sweep, file.config.seed
        self.sign = -1.0 if higher_is_better(self.sweep.metric) else 1.0
        with self._journal_errors():
            path = str(self.directory / JOURNAL_FILE)
            self._storage = JournalStorage(JournalFileBackend(path, JournalFileOpenLock(path)))
            pruner = _pruner(self.sweep.pruner, file.config.training.epochs)
            if begins:
                self._begin("maximize" if self.sign < 0 else "minimize")
            # hyperband derives a random seed from the name of the study
            self._study = optuna.load_study(
                study_name=self.name, storage=self._storage, pruner=pruner
            )

    def _begin(self, direction: Literal["maximize", "minimize"]) -> None:
        """Create the study and queue all trials; a queued trial of a grid has its values."""
        study = optuna.create_study(
            storage=self._storage, study_name=self.name, direction=direction
        )
        values = self.sweep.grid if self.sweep.sampler == "grid" else repeat({})
        for slot, one in enumerate(islice(values, self.sweep.count)):
            fixed = {key: _stored(self.sweep.space[key], value) for key, value in one.items()}
            study.enqueue_trial(fixed, user_attrs={SLOT: slot})

    def config(self, values: Mapping[str, Any], *settings: str) -> ConfigFile:
        """Return the config of a trial, with further settings."""
        given = [parse_override(text) for text in (*self._settings, *settings)]
        return load_config(self.directory / SWEEP, [*given, *overrides(values)])

    def path(self, number: int) -> Path:
        """Return the run directory of a trial."""
        return self.directory / TRIALS / f"{number:04d}"

    def claim(self) -> Claim | None:
        """Return a trial to run, or None if none is left."""
        with self._journal_errors():
            while True:
                if not self._is_waiting():
                    self._queue_lost()
                if not self._is_waiting():
                    return None
                try:
                    trial = self._study.ask()
                except UpdateFinishedTrialError:  # another worker took and ended a waiting trial
                    continue
                slot = trial.user_attrs.get(SLOT)
                if slot is None:  # other workers took the queued trials; this trial is new
                    self._study.tell(trial, state=TrialState.FAIL)
                    continue
                directory = RunDirectory.create(self.path(trial.number))
                self._study.sampler = self._sampler(slot)
                for key, entry in self.sweep.space.items():
                    _suggest(trial, key, entry)
                return Claim(trial, self._values(trial), directory)

    def _is_waiting(self) -> bool:
        return bool(self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))

    def _queue_lost(self) -> None:
        """Queue the trials of killed workers again."""
        for frozen in self._study.get_trials(states=(TrialState.RUNNING,)):
            path = self.path(frozen.number)
            if not (path / LOCK_FILE).is_file():
                if datetime.now() - (frozen.datetime_start or datetime.now()) > START_TIME:
                    self._run_again(frozen, "its worker was killed", RETRIES)
                continue
            with suppress(RunError), RunDirectory.open(path):  # RunError: a worker holds the lock
                if self._study.trials[frozen.number].state == TrialState.RUNNING:
                    self._run_again(frozen, "its worker was killed", RETRIES)

    def _run_again(self, frozen: FrozenTrial, reason: str, retries: int | None = None) -> None:
        """Mark a trial as failed, and queue it again unless it was queued `retries` times."""
        study = self._storage.get_study_id_from_name(self.name)
        trial = self._storage.get_trial_id_from_study_id_trial_number(study, frozen.number)
        self._storage.set_trial_user_attr(trial, REASON, reason)
        self._study.tell(frozen.number, state=TrialState.FAIL)
        _Retry(max_retry=retries)(self._study, frozen)

    def report(self, claim: Claim, epoch: int, value: float) -> bool:
        """Store the metric after an epoch; return whether the pruner ends the trial."""
        if self.sweep.pruner == "none" or not isfinite(value):
            return False
        with self._journal_errors():
            claim.trial.report(value, epoch)
            return claim.trial.should_prune()

    def end(
        self,
        claim: Claim,
        state: Literal["complete", "pruned", "fail"],
        value: float | None = None,
        reason: str = "",
    ) -> None:
        """Store the final value of a trial, or the reason of its failure."""
        with self._journal_errors():
            if reason:
                claim.trial.set_user_attr(REASON, reason)
            self._study.tell(claim.trial, value, TrialState[state.upper()])

    def leave(self, claim: Claim) -> None:
        """Queue an interrupted trial again."""
        with suppress(RunError), self._journal_errors():
            self._run_again(self._study.trials[claim.trial.number], "interrupted")

    def summary(self) -> dict[str, Any]:
        """Return the trials that have begun, by number, and the best trial.

        Among equal values, the first trial is the best.  A trial that was queued again counts once.
        """
        with self._journal_errors():
            known = self._study.get_trials(deepcopy=False)
            again = {number for one in known for number in _Retry.retry_history(one)}
            trials = [
                self._described(one)
                for one in known
                if SLOT in one.user_attrs
                and one.number not in again
                and one.state != TrialState.WAITING
            ]
        done = [one for one in trials if one["value"] is not None]
        best = min(done, key=lambda one: self.sign * one["value"], default=None)
        if best:
            model = self.path(best["number"]) / MODEL_FILE
            best = {**best, "config": str(self.directory / BEST), "model": str(model)}
        return {
            "sweep_dir": str(self.directory),
            "metric": self.sweep.metric,
            "trials": trials,
            "best": best,
        }

    def _described(self, frozen: FrozenTrial) -> dict[str, Any]:
        """Return a trial as plain data.  Raises: ValueError for values of a damaged journal."""
        complete, values = frozen.state == TrialState.COMPLETE, self._values(frozen)
        numbers = [v for key, v in values.items() if not self.sweep.space[key].choice]
        numbers += [frozen.value] if complete else []
        if not all(isinstance(n, int | float) and not isnan(n) for n in numbers) or (
            complete and len(values) < len(self.sweep.space)
        ):
            raise ValueError(f"trial {frozen.number} is damaged")
        return {
            "number": frozen.number,
            "state": "failed" if frozen.state == TrialState.FAIL else frozen.state.name.lower(),
            "value": frozen.value if complete else None,
            "reason": frozen.user_attrs.get(REASON),
            "run_dir": str(self.path(frozen.number)),
            "values": values,
        }

    def _values(self, trial: FrozenTrial | Trial) -> dict[str, Any]:
        return {
            key: json.loads(trial.params[key]) if entry.choice else trial.params[key]
            for key, entry in self.sweep.space.items()
            if key in trial.params
        }

    def importance(self) -> dict[str, float]:
        """Return the importance of each key for the metric (the sum is 1); {} for few trials."""
        with self._journal_errors():
            complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            if len(complete) < 4 or len({trial.value for trial in complete}) < 2:
                return {}
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            return dict(optuna.importance.get_param_importances(self._study, evaluator=evaluator))

    @contextmanager
    def _journal_errors(self) -> Iterator[None]:
        """Turn any error of the journal into a RunError."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)  # retries, importance
                yield
        except MlpEngineError:
            raise
        except Exception as error:  # a damaged journal may raise any error
            cause = error.__cause__ or error
            reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
            raise RunError(
                f"{JOURNAL_FILE}: the sweep's journal cannot be used ({reason})"
            ) from error

    def _sampler(self, slot: int) -> optuna.samplers.BaseSampler:
        """Return the sampler of one trial, seeded by the config's seed and the slot."""
        seed = int(np.random.SeedSequence([self._seed, slot]).generate_state(1)[0])
        if self.sweep.sampler == "tpe":
            return optuna.samplers.TPESampler(seed=seed)
        return optuna.samplers.RandomSampler(seed=seed)


def _read(directory: Path) -> tuple[str, tuple[str, ...]]:
    """Return name and settings of a sweep."""
    if not directory.exists():
        raise UsageError(f"{directory}: there is no such sweep{similar_file(directory)}")
    if not (directory / SETTINGS).is_file():
        raise UsageError(f"{directory}: is not the directory of a sweep (there is no {SETTINGS})")
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
    return name, settings


def _pruner(name: str, epochs: int) -> optuna.pruners.BasePruner:
    if name == "median":
        return optuna.pruners.MedianPruner(n_warmup_steps=epochs // WARMUP)
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=epochs)
    return optuna.pruners.NopPruner()


def _suggest(trial: Trial, key: str, entry: SpaceSection) -> None:
    """Draw the value of a key unless the trial has a value."""
    if entry.choice:
        trial.suggest_categorical(key, [_stored(entry, value) for value in entry.choice])
    elif entry.int:
        trial.suggest_int(key, *entry.int)
    else:
        low, high = entry.ends
        trial.suggest_float(key, low, high, log=entry.log is not None)


def _stored(entry: SpaceSection, value: Any) -> Any:
    """Return a value in the form that Optuna stores: a choice as JSON text."""
    return json.dumps(value) if entry.choice else value
