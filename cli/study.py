"""The study of a sweep in Optuna: its storage, and which worker runs which trial.

A trial belongs to the worker that holds the lock of its run directory.  The system releases the
lock when that process ends, however it ends; then another worker continues the trial, from its
newest checkpoint.
"""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from math import isfinite, isnan
from pathlib import Path
from platform import node
from typing import Any

import numpy as np

from mlpengine.config.sweep import (
    JOURNAL,
    SETTINGS,
    SpaceSection,
    SweepSection,
)
from mlpengine.core import system
from mlpengine.core.errors import MlpEngineError, RunError, UsageError, importing
from mlpengine.core.files import locked, write_all, writing
from mlpengine.core.redaction import redacted, with_values, without_values
from mlpengine.models.metrics import higher_is_better
from mlpengine.training.checkpoint import CHECKPOINTS, Checkpoints
from mlpengine.training.run_directory import LOCK_FILE, RunDirectory

with importing("mlpengine sweep", "sweep"):
    import optuna
    from optuna.storages import BaseStorage
    from optuna.storages.journal import JournalFileBackend, JournalStorage
    from optuna.trial import FrozenTrial, Trial, TrialState

TRIALS, JOURNAL_FILE, SQLITE_LOCK = "trials", "journal.log", "sqlite.lock"
MAX_DEATHS = 3
"""So many workers may die in one trial, without a newer checkpoint, before it counts as failed."""

WARMUP = 5
"""The median pruner leaves the first of so many parts of a trial alone."""

REASON, DEATHS, REACHED, LEFT_IN_ORDER = "reason", "deaths", "reached", "left"
"""Attributes of a trial: why it failed; workers that died since its newest checkpoint, whose name
is the next; whether a worker left it in order."""

DIRECTORY, HOST = "directory", "host"
"""Attributes of a study: the directory of its sweep, and the machine."""

optuna.logging.set_verbosity(optuna.logging.ERROR)


@dataclass(frozen=True)
class Claim:
    """A trial that this process runs, with the lock of its run directory."""

    trial: Trial
    values: dict[str, Any]
    directory: RunDirectory


class Journal(JournalFileBackend):
    """Optuna's journal in a file.

    Other processes read a record at once; it is on disk after `sync`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append records, after removing a line that a killed process or a full disk cut off."""
        lines = [json.dumps(log, separators=(",", ":")) + "\n" for log in logs]
        file = system.open_file(self._path, os.O_RDWR | os.O_APPEND)
        try:
            system.lock(file)
            size = os.fstat(file).st_size
            if size and system.read_at(file, 1, size - 1) != b"\n":
                os.ftruncate(file, self._path.read_bytes().rfind(b"\n") + 1)
            write_all(file, "".join(lines).encode())
        finally:
            os.close(file)

    def sync(self) -> None:
        """Have every record on disk when this returns."""
        system.flush_to_disk(self._path)


class Study:
    """The trials of one sweep, in the storage that all its workers share.

    Raises: RunError if the storage cannot be used.
    """

    def __init__(
        self, directory: Path, sweep: SweepSection, *, name: str, seed: int, epochs: int
    ) -> None:
        self.directory, self.sweep, self._seed = directory, sweep, seed
        self._name, self._epochs = name, epochs
        self.sign = -1.0 if higher_is_better(sweep.metric) else 1.0
        self.is_sqlite = sweep.storage.startswith("sqlite")
        with ExitStack() as on_failure, self.storage_errors():
            is_journal = sweep.storage == JOURNAL
            self._journal = Journal(directory / JOURNAL_FILE) if is_journal else None
            self._storage = (
                JournalStorage(self._journal) if self._journal else _database(sweep.storage)
            )
            on_failure.callback(self.close)
            self._study = self._created()
            on_failure.pop_all()

    def _created(self) -> optuna.Study:
        return optuna.create_study(
            storage=self._storage,
            study_name=self._name,
            direction="maximize" if self.sign < 0 else "minimize",
            load_if_exists=True,
            pruner=_pruner(self.sweep.pruner, self._epochs),
        )

    def close(self) -> None:
        """Close the connections to a database."""
        self._storage.remove_session()
        if engine := getattr(self._storage, "engine", None):
            engine.dispose()

    def start(self) -> None:
        """Mark a new study as that of the directory, and queue the trials of a grid.

        It replaces one of that name whose directory is gone, or was left as it began.
        Raises: UsageError if the storage holds another study of that name.
        """
        with self._recorded():
            known = self._study.user_attrs
            other = known.get(DIRECTORY)
            if other is not None or self._study.trials:
                if not (known.get(HOST) == node() and self._is_over(Path(str(other)))):
                    raise UsageError(
                        f"{shown_storage(self.sweep.storage)}: holds a sweep of the name "
                        f"{self._name!r} ({other}); resume that one by --join, or "
                        "give this one another name"
                    )
                optuna.delete_study(study_name=self._name, storage=self._storage)
                self._study = self._created()
            self._study.set_user_attr(HOST, node())
            self._study.set_user_attr(DIRECTORY, str(self.directory))
            if self.sweep.sampler == "grid":
                for values in islice(self.sweep.grid, self.sweep.count):
                    self._study.enqueue_trial(
                        {
                            k: _stored(v) if self.sweep.space[k].choice else v
                            for k, v in values.items()
                        }
                    )

    def _is_over(self, other: Path) -> bool:
        """Return whether a directory of this machine holds no sweep, and none begins in it."""
        if other == self.directory:  # which is new
            return True
        if (other / SETTINGS).is_file():
            return False
        try:
            RunDirectory.open(other).close()
        except UsageError:  # there is none, or none of a run
            return True
        except RunError:
            return False
        return True

    def lost(self) -> int:
        """Return how many trials have a directory and no record: the storage was cut short.

        Raises: RunError if the storage knows nothing of the sweep.
        """
        begun = [path.name for path in (self.directory / TRIALS).glob("*")]  # after their records
        with self.storage_errors():
            if self._study.user_attrs.get(DIRECTORY) is None:
                raise RunError(
                    f"{shown_storage(self.sweep.storage)}: holds nothing of the sweep "
                    f"{self.directory} (it was emptied, removed or replaced): the results are "
                    "gone; restore it from a copy, or begin a new sweep"
                )
            known = len(self._study.get_trials(deepcopy=False))
        return sum(name.isdigit() and int(name) >= known for name in begun)

    def claim(self) -> Claim | None:
        """Return a trial to run: one whose worker is gone, or a new one; None if none is left."""
        with self._lock(), self.storage_errors():
            chosen = self._chosen()
        if chosen is None:
            return None
        trial, directory = chosen
        with self._recorded():  # other workers choose meanwhile
            return Claim(trial, self._values(trial), directory)

    def path(self, number: int) -> Path:
        """Return the run directory of a trial."""
        return self.directory / TRIALS / f"{number:04d}"

    def report(self, claim: Claim, epoch: int, value: float) -> bool:
        """Tell the metric after an epoch; return whether the trial is to end."""
        if self.sweep.pruner == "none" or not isfinite(value):
            return False
        with self.storage_errors(), warnings.catch_warnings():
            # a resumed trial repeats the epochs after its checkpoint
            warnings.filterwarnings("ignore", "The reported value is ignored")
            claim.trial.report(value, epoch)
            return claim.trial.should_prune()

    def complete(self, claim: Claim, value: float) -> None:
        """Tell the final value of a trial."""
        with self._recorded():
            self._study.tell(claim.trial, value)

    def prune(self, claim: Claim) -> None:
        """Tell that a trial was ended early."""
        with self._recorded():
            self._study.tell(claim.trial, state=TrialState.PRUNED)

    def fail(self, claim: Claim, reason: str) -> None:
        """Tell that a trial failed, and why."""
        with self._recorded():
            claim.trial.set_user_attr(REASON, reason)
            self._study.tell(claim.trial, state=TrialState.FAIL)

    def leave(self, claim: Claim) -> None:
        """Leave a trial to another worker, or to a later command; this is no death."""
        with suppress(RunError), self._recorded():
            claim.trial.set_user_attr(LEFT_IN_ORDER, True)

    def trials(self) -> list[FrozenTrial]:
        """Return all trials by number."""
        with self.storage_errors():
            trials = list(self._study.get_trials(deepcopy=False))
            for trial in trials:
                self._check(trial)
        return trials

    def best(self) -> FrozenTrial | None:
        """Return the best trial that is complete; of equal ones the first."""
        done = [t for t in self.trials() if t.state == TrialState.COMPLETE and t.value is not None]
        return min(done, key=lambda t: (self.sign * (t.value or 0.0), t.number), default=None)

    def described(self, frozen: FrozenTrial) -> dict[str, Any]:
        """Return a trial as plain data."""
        return {
            "number": frozen.number,
            "state": "failed" if frozen.state == TrialState.FAIL else frozen.state.name.lower(),
            "value": frozen.value if frozen.state == TrialState.COMPLETE else None,
            "reason": frozen.user_attrs.get(REASON),
            "run_dir": str(self.path(frozen.number)),
            "values": self.values(frozen),
        }

    def values(self, frozen: FrozenTrial | Trial) -> dict[str, Any]:
        """Return the values of a trial by key path."""
        return {
            key: json.loads(frozen.params[key]) if entry.choice else frozen.params[key]
            for key, entry in self.sweep.space.items()
            if key in frozen.params
        }

    def _check(self, frozen: FrozenTrial) -> None:
        """Raise an error unless a trial has what a sweep writes."""
        values, attributes = self.values(frozen), frozen.user_attrs
        numbers = [v for key, v in values.items() if not self.sweep.space[key].choice]
        texts = [attributes.get(name) or "" for name in (REASON, REACHED)]
        whole = True
        if frozen.state == TrialState.COMPLETE:
            numbers.append(frozen.value)
            whole = len(values) == len(self.sweep.space)
        if not (
            whole
            and all(isinstance(n, int | float) and not isnan(n) for n in numbers)
            and all(isinstance(text, str) for text in texts)
        ):
            raise ValueError(f"trial {frozen.number} is damaged")

    def importance(self) -> dict[str, float]:
        """Return the share of each key in the spread of the metric; empty for too few trials."""
        complete = [t for t in self.trials() if t.state == TrialState.COMPLETE]
        if len(complete) < 4 or len({t.value for t in complete}) < 2:
            return {}
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        with warnings.catch_warnings(), self.storage_errors():
            warnings.simplefilter("ignore")  # that the evaluator is experimental
            return dict(optuna.importance.get_param_importances(self._study, evaluator=evaluator))

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Have what the context tells the storage on disk when it ends."""
        with self.storage_errors():
            yield
            if self._journal:
                self._journal.sync()

    @contextmanager
    def storage_errors(self) -> Iterator[None]:
        """Turn errors of the storage into a RunError that names it without its password."""
        try:
            yield
        except MlpEngineError:
            raise
        except Exception as error:  # a damaged journal leads to any kind
            cause = error.__cause__ or error
            reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
            reason = without_values(reason, self.sweep.storage)
            storage = shown_storage(self.sweep.storage)
            text = f"{storage}: the sweep's storage cannot be used ({reason})"
            begun = (self.directory / SETTINGS).is_file()
            raise RunError(f"{text}{self._advice}" if begun else text) from error

    @contextmanager
    def resumable(self) -> Iterator[None]:
        """Say in a RunError how the sweep is resumed."""
        try:
            yield
        except RunError as error:
            text = str(error)
            raise RunError(text if self._advice in text else f"{text}{self._advice}") from error

    @property
    def _advice(self) -> str:
        return f"; nothing is lost: mlpengine sweep --join {self.directory}"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the only place for a worker on SQLite.  Raises: RunError if it is taken."""
        with locked(self.directory / SQLITE_LOCK, wait=False) as held:
            if not held:
                raise RunError(
                    f"{self.directory}: another worker is at work, and SQLite is for one; wait "
                    "for it, or begin a sweep with storage: journal or PostgreSQL"
                )
            yield

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Let one worker at a time choose a trial."""
        path = self.directory / LOCK_FILE
        with writing(path):
            file = system.open_file(path, os.O_RDWR)
        try:
            with writing(path):
                system.lock(file)
            yield
        finally:
            os.close(file)

    def _chosen(self) -> tuple[Trial, RunDirectory] | None:
        """Return a trial without a worker or a new one, and its directory; None if none is left."""
        for frozen in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            try:
                directory = self._locked(frozen.number)
            except RunError:  # a worker holds it
                continue
            # its worker may have ended it before it released the lock
            state = self._study.get_trials(deepcopy=False)[frozen.number].state
            self._study.sampler = self._sampler(frozen.number)
            trial = self._opened(frozen.number)
            if state == TrialState.RUNNING and not self._has_failed(trial, directory):
                return trial, directory
            directory.close()
        known = self._study.get_trials(deepcopy=False)
        waiting = any(frozen.state == TrialState.WAITING for frozen in known)
        if not waiting and len(known) >= self.sweep.count:
            return None
        self._study.sampler = self._sampler(len(known))
        trial = self._study.ask()
        return trial, self._locked(trial.number)

    def _locked(self, number: int) -> RunDirectory:
        """Return the directory of a trial, locked.  Raises: RunError if a worker holds it."""
        path = self.path(number)
        exists = (path / LOCK_FILE).is_file()
        return RunDirectory.open(path) if exists else RunDirectory.create(path)

    def _opened(self, number: int) -> Trial:
        study = self._storage.get_study_id_from_name(self._study.study_name)
        return Trial(
            self._study, self._storage.get_trial_id_from_study_id_trial_number(study, number)
        )

    def _has_failed(self, trial: Trial, directory: RunDirectory) -> bool:
        """Count the death of a trial's worker; return whether too many died without progress."""
        if trial.user_attrs.get(LEFT_IN_ORDER):
            trial.set_user_attr(LEFT_IN_ORDER, False)
            return False
        paths = Checkpoints(directory.path / CHECKPOINTS).paths()
        deaths, reached = 0, paths[-1].name if paths else ""
        if reached <= trial.user_attrs.get(REACHED, ""):
            deaths = trial.user_attrs.get(DEATHS, 0)
        deaths += 1
        trial.set_user_attr(DEATHS, deaths)
        trial.set_user_attr(REACHED, reached)
        if deaths < MAX_DEATHS:
            return False
        trial.set_user_attr(REASON, f"its worker died {deaths} times without progress")
        self._study.tell(trial, state=TrialState.FAIL)
        return True

    def _values(self, trial: Trial) -> dict[str, Any]:
        """Return the values of a trial, drawn now where it has none yet."""
        for key, entry in self.sweep.space.items():
            _suggest(trial, key, entry)
        return self.values(trial)

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """Return the sampler of one trial, whose seed is that of the config and the number.

        So a resumed sweep continues as it would have, and no two workers draw the same.
        """
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        if self.sweep.sampler == "tpe":
            return optuna.samplers.TPESampler(seed=seed)
        return optuna.samplers.RandomSampler(seed=seed)


def shown_storage(storage: str) -> str:
    """Return a storage for messages, without its password."""
    return JOURNAL_FILE if storage == JOURNAL else redacted(storage)


def _database(storage: str) -> BaseStorage:
    """Open a database.  Raises: UsageError for a URL that is none or has no driver."""
    from optuna.storages import RDBStorage
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    url = with_values(storage)
    kind, place = url.split("://", 1)
    if kind in ("postgres", "postgresql"):
        url = f"postgresql+psycopg://{place}"  # the driver that the extra installs
    try:
        host = make_url(url).host or ""
        reason = ": an @ in a password is written %40" if "@" in host else ""
    except ArgumentError:
        reason = ": it cannot be read"
    except ValueError:  # whose text is what was to be the port, perhaps a password
        reason = ": a port is a number, and a password stands before @"
    try:
        if not reason:
            return RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    except (ImportError, ArgumentError) as error:
        reason = f": {without_values(str(error.__cause__ or error), storage)}"
    raise UsageError(
        "must be the URL of a database whose driver is installed, such as "
        f"postgresql://user@host/name (got {shown_storage(storage)}{reason})"
    )


def _pruner(name: str, epochs: int) -> optuna.pruners.BasePruner:
    if name == "median":
        return optuna.pruners.MedianPruner(n_warmup_steps=epochs // WARMUP)
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=epochs)
    return optuna.pruners.NopPruner()


def _suggest(trial: Trial, key: str, entry: SpaceSection) -> None:
    """Draw the value of a key, unless the trial has one."""
    if entry.choice:
        trial.suggest_categorical(key, [_stored(value) for value in entry.choice])
    elif entry.int:
        trial.suggest_int(key, *entry.int)
    else:
        low, high = entry.ends
        trial.suggest_float(key, low, high, log=entry.log is not None)


def _stored(value: Any) -> str:
    """Return a choice as Optuna stores it: lists and mappings too, as JSON."""
    return json.dumps(value)
