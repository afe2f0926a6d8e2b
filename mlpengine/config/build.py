"""Load the rows of a checked config, and make its task, loss and trainer."""

import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

import numpy as np

from mlpengine.config.load import ConfigFile, load_config
from mlpengine.config.reader import KeyPath
from mlpengine.config.tables import Tables, changed_files, read_tables, with_preprocessing
from mlpengine.core.errors import DataError, UsageError
from mlpengine.core.files import pasted
from mlpengine.core.fork_locks import cached_property
from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array
from mlpengine.core.wording import label_text, quoted
from mlpengine.data.features import Preprocessor, class_weights
from mlpengine.data.features.drift import NewRows
from mlpengine.models.background import MEAN_ROWS
from mlpengine.models.model import Model
from mlpengine.models.task import (
    BinaryClassification,
    Classification,
    OrderedClasses,
    Regression,
    Split,
    Task,
    make_split,
    task_for,
)
from mlpengine.models.threshold import check_threshold
from mlpengine.ops import LOSSES, EntryLoss, KnownTargets, losses_of
from mlpengine.ops.cross_entropy import SoftmaxCrossEntropy
from mlpengine.ops.loss import Loss
from mlpengine.ops.losses import BinaryCrossEntropyWithLogits
from mlpengine.step.ranks import Ranks
from mlpengine.training.measure import Measured
from mlpengine.training.result import OTHER_ROWS, TOO_GOOD
from mlpengine.training.run_directory import resolved_config
from mlpengine.training.trainer import Member, Trainer, step_rows
from mlpengine.training.transfer import TransferSet

_log = logging.getLogger("mlpengine")

CHANGED = "has changed since the run was trained; its test rows may have been training rows"
"""Warning about a data file of a run."""


@dataclass(frozen=True, eq=False)
class LoadedData:
    """The data of a config, ready for training: rows by part (such as train), task and loss."""

    file: ConfigFile
    tables: Tables
    task: Task
    loss: Loss
    parts: dict[str, Split]
    given: TransferSet | None = None
    """A transfer set in memory, in place of the config's `data.transfer_set`."""
    warm_start: str | None = None
    """`OTHER_ROWS` if the networks of a warm start may have been trained on some of these rows."""
    loss_remarks: Sequence[str] = ()
    """Warnings about the loss for these targets."""

    @cached_property
    def transfer(self) -> TransferSet | None:
        """The predictions of a teacher that a student learns; None without a teacher."""
        name = self.file.config.data.transfer_set
        if self.given is not None or name is None:
            return self.given
        path = self.file.find(name)
        if path is None:
            text = f"there is no such file ({name}); null trains on the rows' own targets"
            raise self.file.wrong(("data", "transfer_set"), text)
        return TransferSet.load(path)

    @property
    def folds(self) -> Array | None:
        """The fold of each training row, if there are folds."""
        return self.tables.folds

    @property
    def blocks(self) -> Array | None:
        """The fold of each training row if `data.split` has a group or time column; else None."""
        split = self.file.config.data.split
        return self.folds if split.group or split.time else None

    @property
    def checksum(self) -> int:
        """Checksum of the rows of each part and of the folds."""
        folds = b"" if self.folds is None else self.folds.tobytes()
        return zlib.crc32(repr(fingerprints(self.parts)).encode() + folds)

    @property
    def batch_size(self) -> int:
        """Number of rows of a step."""
        return step_rows(self.file.config.training.batch_size, len(self.parts["train"]), self.folds)

    def recorded(self, model: Model, measured: Measured) -> Model:
        """Return the model with a record of its training, and with rows for `explain_row`."""
        table, rows = self.tables.parts["train"]
        some = rows[evenly_spaced(len(rows), MEAN_ROWS)]
        model = model.with_background(table.select(model.preprocessor.columns).rows(some))
        if measured.last is None:
            return model
        part, config = measured.last[0], self.file.config
        values = {n: float(f"{v:.6g}") for n, v in measured.metrics[part].items() if isfinite(v)}
        record = {
            "source": Path(config.data.source).name,
            "seed": config.seed,
            "folds": config.training.folds,
            "rows": dict(self.tables.rows),
            "part": part,
            "metrics": values,
            "checksum": self.checksum,
            **({"warm_start": self.warm_start} if self.warm_start else {}),
        }
        return replace(model, record=record)


def load_data(
    file: ConfigFile,
    preprocessor: Preprocessor | None = None,
    tables: Tables | None = None,
    *,
    warm_start: Model | None = None,
) -> LoadedData:
    """Read the data of a config.

    A preprocessor is fitted, unless `preprocessor` is given or the model `warm_start` has one.
    Warnings tell how the rows differ from the rows that trained the model `warm_start`.  `tables`
    is the result of an earlier `read_tables`.

    Raises: ConfigError if settings do not fit the data or each other; DataError.
    """
    if warm_start:
        preprocessor = warm_start.preprocessor
        file = with_preprocessing(file, preprocessor)
    config = file.config
    if tables is None:
        tables = read_tables(file, preprocessor=preprocessor)
    if warm_start and not config.data.stream:
        _warn_of_new_rows(tables)
    loss, task = loss_and_task(file, tables.preprocessor)
    stream = config.training.batch_size if config.data.stream else None
    window = config.data.stream.window if config.data.stream else 1
    dtype = np.dtype(config.training.dtype)
    parts = {
        part: make_split(
            table,
            rows,
            tables.preprocessor,
            task,
            dtype,
            weights=tables.weights if part == "train" else None,
            stream=stream,
            window=window,
        )
        for part, (table, rows) in tables.parts.items()
    }
    _check_folds(parts["train"], tables.folds)
    _check_classes(parts["train"], task, tables.preprocessor)
    if isinstance(loss, EntryLoss):
        try:
            loss.check_bounded(parts["train"].y)
        except UsageError as error:
            scaled = isinstance(task, Regression) and config.data.standardize_target
            scaled = scaled and not loss.has_target_range
            advice = (
                "; set data.standardize_target to false to keep the unit of the target"
                if scaled
                else ""
            )
            raise file.wrong(("loss",), f"{error}{advice}") from error
    remarks = _prediction_remarks(loss, parts["train"].y)
    for line in remarks:
        _log.warning(f"warning: {line}")
    loss = _balanced(file, loss, parts["train"], task)
    learned = [part for name, part in parts.items() if name != "test"]
    if isinstance(task, Regression) and any(np.isnan(part.y).any() for part in learned):
        loss = KnownTargets(task.loss)
    data = LoadedData(file, tables, task, loss, parts, loss_remarks=remarks)
    if warm_start is None:
        return data
    record = warm_start.record
    if record.get("checksum") == data.checksum and "warm_start" not in record:
        return data
    _log.warning("warning: %s: %s", tables.parts["train"][0].source, TOO_GOOD)
    return replace(data, warm_start=OTHER_ROWS)


def fingerprints(parts: Mapping[str, Split]) -> dict[str, int]:
    """Return a checksum of the rows of each part; the checksums detect changed data."""
    checksums = {}
    for name, part in parts.items():
        total = zlib.crc32(repr(part.x.shape).encode())
        total = getattr(part.x, "checksum", total)  # features in a file store their checksum
        for array in (part.x, part.y, part.weights):
            if getattr(array, "nbytes", 0):
                total = zlib.crc32(memoryview(array).cast("B"), total)  # type: ignore[arg-type]
        checksums[name] = total
    return checksums


def load_run_data(run: Path, preprocessor: Preprocessor | None, command: str = "") -> LoadedData:
    """Read the data of a run again, and warn of files that have changed since its training.

    Raises: UsageError if the run has no config; the message advises `command` with a file of rows.
    """
    advice = f"; say which rows to use: mlpengine {command} {pasted(run)} FILE" if command else ""
    file = load_config(resolved_config(run, advice))
    for name in changed_files(run, file):
        _log.warning(f"warning: {name}: {CHANGED}")
    return load_data(file, preprocessor)


def _prediction_remarks(loss: Loss, y: Array) -> list[str]:
    """Return a remark if the lowest loss of a target is at a prediction far from the target."""
    if not isinstance(loss, EntryLoss) or "regression" not in loss.tasks or loss.columns > 1:
        return []
    targets = np.nanquantile(y, [0, 0.25, 0.5, 0.75, 1]).astype(np.float64)
    best = np.array([loss.best_prediction(target) for target in targets])
    far = np.abs(best - targets)
    worst, size = int(far.argmax()), np.ptp(targets) or np.abs(targets).max()
    if not far[worst] > 0.1 * size:
        return []
    return [
        f"loss {loss.name}: is lowest at the prediction {best[worst]:.3g} for the target "
        f"{targets[worst]:.3g}; if another function of the output predicts the target, define it "
        "in the property predictions of a loss class"
    ]


def _check_folds(train: Split, folds: Array | None) -> None:
    """Raise DataError for a fold without a row of weight above 0."""
    if folds is None or train.weights is None:
        return
    empty = np.flatnonzero(np.bincount(folds, train.weights) == 0)
    if len(empty):
        source = train.places.rows.source if train.places else "table"
        raise DataError(
            f"{source}: each fold needs a row with a weight above 0 (fold {empty[0] + 1} has "
            "none); set fewer training.folds, or leave such rows out by data.where"
        )


def _check_classes(train: Split, task: Task, preprocessor: Preprocessor) -> None:
    """Raise DataError for a class without a row of weight above 0."""
    if train.weights is None or not isinstance(task, Classification):
        return
    codes = train.truth.astype(np.int64)
    without = np.setdiff1d(codes, codes[train.weights > 0])
    if len(without):
        source = train.places.rows.source if train.places else "table"
        label = label_text(preprocessor.classes[without[0]], quoted)
        raise DataError(
            f"{source}: each class needs a training row with a weight above 0 ({label} has none); "
            "leave its rows out of the table"
        )


def trainer_of(
    data: LoadedData,
    warm_start: Model | None = None,
    ranks: Ranks | None = None,
    *,
    members: Sequence[Member] = (),
    ensemble_weights: tuple[float, ...] = (),
) -> Trainer:
    """Return the trainer of a config; it begins with the weights of the model `warm_start`.

    MPI `ranks` share the work of training; each rank calls this function.  `members` and
    `ensemble_weights` continue an earlier training (see `Trainer`).
    """
    file, parts, transfer = data.file, data.parts, data.transfer
    config, train, calibration_set = file.config, parts["train"], None
    task = data.task
    if config.training.members and not config.training.folds:
        _log.warning("warning: training.members: is ignored without training.folds")
    if transfer:
        if config.data.stream or config.training.folds:
            text = "works only without training.folds and data.stream"
            raise file.wrong(("data", "transfer_set"), text)
        table, rows = data.tables.parts["train"]
        with file.errors_at("data", "transfer_set"):
            fitted = data.tables.preprocessor
            train, calibration_set = transfer.rows(table.rows(rows), fitted, task, train)
        if isinstance(task, Classification):
            task = task.with_threshold(transfer.threshold)
    split = config.data.split
    planned = "time" if split.time else "group" if split.group else ""
    with errors_of_settings(file):
        return Trainer(
            replace(config.settings, training=replace(config.settings.training, loss=data.loss)),
            task,
            train,
            parts.get("validation"),
            folds=data.folds,
            in_time=split.time is not None,
            planned_split="teacher" if transfer else planned,
            numbers=data.tables.preprocessor.numbers,
            ranks=ranks,
            warm_start=warm_start.networks if warm_start else (),
            calibration_set=calibration_set,
            members=members,
            ensemble_weights=ensemble_weights,
        )


PLACES: Mapping[tuple[str, ...], KeyPath] = {
    ("training", "optimizer"): ("optimizer",),
    ("training", "schedule"): ("schedule",),
}
"""Paths of settings in `RunSettings` with their paths in a config, where these differ."""


@contextmanager
def errors_of_settings(file: ConfigFile) -> Iterator[None]:
    """Turn a UsageError about a setting into a ConfigError at its key."""
    try:
        yield
    except UsageError as error:
        if not error.setting:
            raise
        section, *names = error.setting
        own: KeyPath = ("model" if section == "network" else section, *names)
        text = str(error).removeprefix(f"{own[-1]}: ")
        raise file.wrong(PLACES.get(error.setting, own), text) from error


def _warn_of_new_rows(tables: Tables) -> None:
    """Log a warning for each difference from the rows that fitted the preprocessor."""
    new = NewRows(tables.preprocessor)
    table, rows = tables.parts["train"]
    for line in new.add(table.rows(rows)).lines():
        _log.warning("warning: %s: %s", table.source, line)


def loss_and_task(file: ConfigFile, preprocessor: Preprocessor) -> tuple[Loss, Task]:
    """Return the loss without class weights, and the task."""
    kind = str(preprocessor.task)
    suited = losses_of(kind)
    with file.errors_at("loss"):
        loss = file.config.loss or LOSSES[suited[0]]()
        if loss.name in suited:
            loss = loss.of_classes(len(preprocessor.classes))
    name = loss.name
    if kind != "regression" and file.config.data.transform_target == "log":
        raise file.wrong(("data", "transform_target"), f"log is for regression (got {kind})")
    has_texts = any(isinstance(label, str) for label in preprocessor.classes)
    if name not in suited:
        hint = ""
        if "survival" in loss.tasks:
            hint = "; name the column of events: data.event"
        elif "regression" in loss.tasks and kind != "survival" and not has_texts:
            hint = "; write data.task: regression"
        elif "classification" in loss.tasks and kind == "regression":
            hint = "; write data.task: classification"
        text = f"{kind} takes {' or '.join(suited)} (got {name!r}){hint}"
        raise file.wrong(("loss",), text)
    task = task_for(preprocessor.target, loss)
    if isinstance(task, OrderedClasses) and has_texts and not file.config.data.classes:
        raise file.wrong(("loss",), f"{name} needs the order of text labels in data.classes")
    classes = len(preprocessor.classes)
    if isinstance(task, BinaryClassification) and classes > 2:
        text = f"{name} needs two classes (the target has {classes})"
        raise file.wrong(("loss",), f"{text}: use softmax_cross_entropy")
    if isinstance(task, Regression) and len(set(task.column_names)) < len(task.column_names):
        listed = ", ".join(task.column_names)
        raise file.wrong(("data", "target"), f"predictions need different names ({listed})")
    if file.config.training.threshold is not None:
        with file.errors_at("training", "threshold"):
            check_threshold(file.config.training.threshold, task)
    _watch(file, task)
    return loss, task


def _watch(file: ConfigFile, task: Task) -> None:
    """Let the task compute the metrics that the config names."""
    training = file.config.training
    named: dict[KeyPath, str] = {
        ("training", "metrics", k): name for k, name in enumerate(training.metrics)
    }
    if training.early_stopping:
        named["training", "early_stopping", "monitor"] = training.early_stopping.monitor
    for at, name in named.items():
        with file.errors_at(*at):
            task.watch(name)


def _balanced(file: ConfigFile, loss: Loss, train: Split, task: Task) -> Loss:
    if file.config.data.class_weights != "balanced":
        return loss
    if not isinstance(task, Classification):
        raise file.wrong(
            ("data", "class_weights"), "only classification has class weights; leave it out"
        )
    match loss:
        case SoftmaxCrossEntropy():
            weights = class_weights(train.y, task.outputs)
            return replace(loss, class_weights=tuple(weights.tolist()))
        case BinaryCrossEntropyWithLogits():
            ones = float(train.truth.mean())
            return replace(loss, positive_weight=(1.0 - ones) / ones)
    text = f"must be none with the loss {loss.name}"
    raise file.wrong(("data", "class_weights"), text)
