"""One run of `mlpengine train`, new or resumed: callbacks, checkpoints, result."""

import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from os import fsencode
from statistics import fmean
from typing import TYPE_CHECKING, Any, NotRequired

from typing_extensions import TypedDict

from mlpengine.config.baselines import linear_comparison, score_of, scored_rows
from mlpengine.config.build import LoadedData, fingerprints
from mlpengine.config.columns import cell_verdicts, column_verdicts, merged_verdicts
from mlpengine.config.tables import digests
from mlpengine.core.errors import (
    CheckpointError,
    NumericalError,
    RunError,
)
from mlpengine.core.files import read_file, read_mapping, remove_unfinished
from mlpengine.core.redaction import redacted
from mlpengine.core.structure import finite
from mlpengine.core.system import peak_bytes
from mlpengine.core.wording import differing
from mlpengine.diagnostics.verdict import Verdict, without
from mlpengine.models.card import facts_of
from mlpengine.models.model import MODEL_FILE, Model
from mlpengine.models.task import Split
from mlpengine.settings.structure import conform
from mlpengine.training.checkpoint import CHECKPOINTS, Checkpoint, Checkpointer, Checkpoints
from mlpengine.training.diagnose import DIAGNOSTICS_FILE
from mlpengine.training.history import METRICS_FILE, TIMINGS_FILE, CsvLog, EpochRow, csv_lines
from mlpengine.training.loop import Callback, Loop, Result
from mlpengine.training.measure import DEVIATION, OF_MEAN, ONE_NETWORK, Measured, measure
from mlpengine.training.run_directory import (
    ENVIRONMENT_FILE,
    FAILURE_FILE,
    GIVEN_CONFIG,
    RESOLVED,
    RESULT_FILE,
    RunDirectory,
    environment,
)
from mlpengine.training.trainer import Fitted, Trainer

from .streams import say

if TYPE_CHECKING:
    from mlpengine.training.mlflow import MlflowLog

WARM_START_MODEL = "warm_start.safetensors"
"""File of the model that gave the initial weights; only runs with a warm start have it."""

CONFIG_DIGEST = "config_sha256"
AFFECTS_REPRODUCIBILITY = ("packages", "python", "machine", "blas", "backend", "target")
"""Keys of the environment that may change the last bits of a result."""

_log = logging.getLogger("mlpengine")


class EpochLogs(Callback):
    """Writes metrics.csv and timings.csv.  Equal seeds give an equal metrics.csv."""

    def __init__(self, directory: RunDirectory) -> None:
        self._path = directory.path
        self._logs: list[CsvLog] = []

    def on_train_start(self, loop: Loop) -> None:
        rows, path = loop.history.rows, self._path
        values = [row.values() for row in rows]
        self._metrics = CsvLog(path / METRICS_FILE, csv_lines(loop.history.columns, *values))
        self._logs.append(self._metrics)
        times = [(row.epoch, row.seconds, row.samples_per_second) for row in rows]
        columns = "epoch", "seconds", "samples_per_second"
        self._timings = CsvLog(path / TIMINGS_FILE, csv_lines(columns, *times))
        self._logs.append(self._timings)

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        self._metrics.append(row.values())
        self._timings.append([row.epoch, row.seconds, row.samples_per_second])

    def on_fit_end(self, loop: Loop, result: Result) -> None:
        for log in self._logs:
            log.sync()
        self.close()

    def close(self) -> None:
        """Close both files, unless they are closed."""
        while self._logs:
            self._logs.pop().close()


class CheckpointEnvironment(TypedDict):
    """The part of a checkpoint that describes the machine that wrote it."""

    backend: str
    blas: Any
    compiler: NotRequired[str | None]
    cores: int
    machine: str
    packages: dict[str, Any]
    platform: str
    processor: NotRequired[str | None]
    python: str
    target: NotRequired[str | None]
    threads: int


class CheckpointHeader(TypedDict):
    """The data that a run stores in its checkpoints beside the state of the loop."""

    format: int
    model: dict[str, Any]
    environment: CheckpointEnvironment
    data: dict[str, int]
    config_sha256: NotRequired[str]
    epochs: NotRequired[int]


MAX_THREADS = 1_024
"""Largest number of threads that a checkpoint may ask for."""


class Session:
    """A training run in its directory.

    Attributes:
        model: the model with the initial weights; `finish` replaces it by the trained model.
        fitted: the trained networks, set by `finish`; None if the training was interrupted.
        loop: the training loop.
        resumed: the checkpoint that gave the state of the loop; None in a new run.
        warm_start: the model that gives the initial weights; None without a warm start.
        measured: the metrics of all parts, set by `finish` unless the training was interrupted.
        score: the comparison with a linear model, set by `finish` if a report is written.
    """

    def __init__(
        self,
        data: LoadedData,
        trainer: Trainer,
        directory: RunDirectory,
        callbacks: Sequence[Callback],
        checkpoint: Checkpoint | None = None,
        warm_start: Model | None = None,
    ) -> None:
        self.warm_start = warm_start
        self.directory, self.resumed = directory, checkpoint
        self.data, self.trainer = data, trainer
        self.model = trainer.model(data.tables.preprocessor)
        self.fitted: Fitted | None = None
        self.measured = Measured()
        self.score: dict[str, Any] | None = None
        self.column_verdicts = without(cell_verdicts(data.file, data.tables), data.file.silenced)
        if checkpoint:
            threads = checkpoint.header["environment"]["threads"]
            if trainer.ranks is not None:
                threads = min(threads, trainer.threads)
            trainer.threads = threads
        resolved = directory.path / RESOLVED
        self._config = read_file(resolved) if resolved.is_file() else data.file.resolved().encode()
        self.environment = environment(trainer.threads, trainer.step.backend)
        self.diagnostics = trainer.diagnostics(directory.path / DIAGNOSTICS_FILE)
        self.logs = EpochLogs(directory)
        self.checkpointers, self.mlflow = self._checkpointer(), self._mlflow_log()
        self.loop = trainer.loop(
            [
                *([self.diagnostics] if self.diagnostics else []),
                *(self.logs, *callbacks, *self._tensorboard(), *self.mlflow, *self.checkpointers),
            ]
        )
        if checkpoint:
            self._load(checkpoint)

    def write_inputs(self) -> None:
        """Write the inputs of the run; the resolved config is last, because resuming needs it."""
        file = self.data.file
        if self.warm_start is not None:
            self.warm_start.save(self.directory.path / WARM_START_MODEL)
        raw = file.document.raw
        self.directory.write(GIVEN_CONFIG, raw)
        digest = {CONFIG_DIGEST: sha256(self._config).hexdigest()}
        command = [redacted(word) for word in sys.argv]
        record = {
            "started": _now(),
            "data": file.config.data.source,
            "data_sha256": digests(file),
            "command": command,
        }
        self.directory.write_json(ENVIRONMENT_FILE, {**self.environment, **digest, **record})
        self.directory.write(RESOLVED, self._config)

    def run(self, *, quiet: bool = False) -> Result:
        """Train.  If training fails with a number that is not finite, save and print verdicts."""
        (self.directory.path / FAILURE_FILE).unlink(missing_ok=True)
        try:
            return self.loop.run()
        except NumericalError as error:
            self.column_verdicts += column_verdicts(self.data.file, self.data.tables)
            told = [verdict.as_dict() for verdict in self.verdicts()]
            self.directory.write_json(FAILURE_FILE, {"error": str(error), "verdicts": told})
            for one in told if not quiet else ():
                say(f"  {one['text']}", err=True)
            raise

    def verdicts(self) -> list[Verdict]:
        """Return all verdicts so far, warnings first; leaks are searched when the run ends."""
        of_run = self.diagnostics.verdicts() if self.diagnostics else []
        return merged_verdicts(self.data.file, self.column_verdicts, of_run, self.measured)

    def close(self) -> None:
        """Close the files and unlock the run directory."""
        self.logs.close()
        self.directory.close()

    def finish(self, result: Result) -> dict[str, Any]:
        """Measure the model on every part, save model and result, and return the result.

        After an interrupt, the result has only the validation metrics of the best epoch.
        """
        data, directory = self.data, self.directory
        preprocessor = data.tables.preprocessor
        if result.ending == "interrupted":
            measured = self._best_epoch()
            self.model = self.trainer.model(preprocessor)
        else:
            self.fitted = self.trainer.finish(result)
            self.measured = measure(
                self.fitted,
                data.parts,
                data.folds,
                blocks=data.blocks,
                beside=data.transfer.beside if data.transfer else None,
            )
            measured = self.measured.metrics
            self.model = data.recorded(self.fitted.model(preprocessor), self.measured)
        self.model.save(directory.path / MODEL_FILE)
        if self.fitted:
            self._compare(self.fitted)
            self.column_verdicts += column_verdicts(data.file, data.tables)
        weights = self.fitted.ensemble_weights if self.fitted else {}
        facts = facts_of(self.model)
        outcome = {
            "run_dir": fsencode(directory.path).decode(errors="backslashreplace"),
            **{name: facts[name] for name in ("parameters", "networks", "linear_models")},
            "epochs": result.epochs,
            "max_epochs": self.trainer.settings.training.epochs,
            **(
                {
                    "member_epochs": [len(one.history.rows) for one in self.loop.members],
                    "best_epochs": self.loop.best_epochs,
                }
                if len(self.loop.members) > 1
                else {"best_epoch": result.best_epoch}
            ),
            "seconds": round(result.seconds, 6),
            "samples_per_second": round(result.samples_per_second, 1),
            **{name: {} for name in ("train", "validation", "test")},
            **{name: finite(values) for name, values in measured.items()},
            **self._spread(),
            **self._calibration(),
            **({"ensemble_weights": weights} if weights else {}),
            **({"threshold": self.model.threshold._asdict()} if self.model.threshold else {}),
            **({"warm_start": data.warm_start} if data.warm_start else {}),
            "ending": result.ending,
            "ended": _now(),
            "skipped_steps": self.loop.skipped,
            "peak_bytes": peak_bytes(),
            "verdicts": [verdict.as_dict() for verdict in self.verdicts()],
        }
        directory.write_json(RESULT_FILE, outcome)
        for log in self.mlflow:
            log.add_result(outcome, [directory.path / MODEL_FILE])
        return outcome

    def _compare(self, fitted: Fitted) -> None:
        """Compare the model with a linear model, for the report and the verdicts."""
        data = self.data
        if data.file.config.report.html:
            scored = scored_rows(data, fitted.mean, self.measured.last)
            self.score = score_of(data, scored, threshold=self.model.threshold)
        if self.diagnostics:
            self.diagnostics.core.baseline_score = linear_comparison(data, fitted.mean)

    def _calibration(self) -> dict[str, Any]:
        error = self.measured.calibration_error
        temperature = self.fitted.temperature if self.fitted else 1.0
        known = {"expected_calibration_error": error, "temperature": temperature}
        return {"calibration": known} if error is not None or temperature != 1 else {}

    def _spread(self) -> dict[str, Any]:
        names = {DEVIATION: "deviation", ONE_NETWORK: "mean", OF_MEAN: "of_mean"}
        spread = {
            part: {names.get(title, title): finite(values) for title, values in lines.items()}
            for part, lines in self.measured.spreads.items()
        }
        return {"spread": spread} if spread else {}

    def _best_epoch(self) -> dict[str, dict[str, float]]:
        """Return the validation metrics of the best epochs, averaged over the networks."""
        best = [(m.history.rows, m.best.epoch) for m in self.loop.members if m.best.epoch]
        rows = [history[epoch - 1] for history, epoch in best]
        names = self.loop.history.metrics if rows else ()
        return {"validation": {n: fmean(row.validation[n] for row in rows) for n in names}}

    def _tensorboard(self) -> list[Callback]:
        if not self.data.file.config.report.tensorboard:
            return []
        from mlpengine.training.tensorboard import TensorBoard

        return [TensorBoard(self.directory.path / "tensorboard")]

    def _mlflow_log(self) -> "list[MlflowLog]":
        file = self.data.file
        if not file.config.report.mlflow:
            return []
        from mlpengine.training.mlflow import MlflowLog

        return [MlflowLog(self.directory.path.name, parameters=file.flat)]

    def _checkpointer(self) -> list[Checkpointer]:
        settings = self.data.file.config.training.checkpoint
        if settings is None:
            return []
        header = {
            "model": self.model.to_dict(),
            CONFIG_DIGEST: sha256(self._config).hexdigest(),
            "environment": self.environment,
            "data": fingerprints(self._learned_parts),
            "epochs": self.trainer.settings.training.epochs,
        }
        store = Checkpoints(self.directory.path / CHECKPOINTS)
        return [Checkpointer(store, header, **vars(settings))]

    @property
    def _learned_parts(self) -> dict[str, Split]:
        """Return the rows of all parts, and the rows that a student learns from."""
        parts, learned = self.data.parts, self.trainer.train
        return parts if learned is parts["train"] else {**parts, "transfer set": learned}

    def _load(self, checkpoint: Checkpoint) -> None:
        here, there = fingerprints(self._learned_parts), checkpoint.header["data"]
        changed = [name for name in here.keys() | there if here.get(name) != there.get(name)]
        if changed:
            raise RunError(
                f"{self.directory.path}: its data have changed since it began "
                f"({', '.join(sorted(changed))} rows differ); train a new run"
            )
        for name in (*AFFECTS_REPRODUCIBILITY, "processor"):
            now, then = self.environment[name], checkpoint.header["environment"].get(name)
            if name == "packages":  # compare only packages that were installed at the checkpoint
                then = {package: version for package, version in then.items() if version}
                now = {package: now.get(package) for package in then}
            if None not in (now, then) and now != then:
                _log.warning(
                    "warning: not as in the checkpoint: %s (%s, now %s); "
                    "the last bits of the result may differ, too",
                    name, *differing(then, now),
                )  # fmt: skip
        self.loop.load_state_dict(checkpoint.state)
        Checkpoints(checkpoint.path.parent).remove_after(checkpoint.path)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def find_checkpoint(directory: RunDirectory) -> Checkpoint | None:
    """Remove unfinished files, and return the newest complete checkpoint of a run, or None."""
    remove_unfinished(directory.path)
    remove_unfinished(directory.path / CHECKPOINTS)
    return Checkpoints(directory.path / CHECKPOINTS).newest()


def check_same_config(directory: RunDirectory, checkpoint: Checkpoint | None) -> None:
    """Raise RunError if the resolved config has changed since the run began."""
    header: Any = checkpoint.header if checkpoint else None
    if header is None:
        with suppress(OSError, ValueError):
            header = read_mapping(directory.path / ENVIRONMENT_FILE)
    expected = header.get(CONFIG_DIGEST) if header else None
    digest = sha256(read_file(directory.path / RESOLVED)).hexdigest()
    if expected not in (None, digest):
        raise RunError(
            f"{directory.path / RESOLVED}: must be unchanged since the run began (it was edited or "
            "damaged); restore it, or train a new run with other settings"
        )


def check_header(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError unless the header of a checkpoint is valid."""
    conform(checkpoint.header, CheckpointHeader, str(checkpoint.path))
    if not 1 <= checkpoint.header["environment"]["threads"] <= MAX_THREADS:
        raise CheckpointError(f"{checkpoint.path}: threads must be from 1 to {MAX_THREADS:,}")
    if checkpoint.header.get("epochs", 1) < 1:
        raise CheckpointError(f"{checkpoint.path}: epochs must be at least 1")
