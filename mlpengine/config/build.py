"""Construction of the network, loss, optimizer and loop from a checked config."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

import numpy as np

from mlpengine.config import options
from mlpengine.config.load import ConfigFile
from mlpengine.config.schema import ClipSection
from mlpengine.config.tables import Tables, read_tables
from mlpengine.data import Preprocessor, class_weights
from mlpengine.errors import UsageError
from mlpengine.nn import Mlp
from mlpengine.ops import REGISTRY
from mlpengine.ops._loss import Loss
from mlpengine.ops.cross_entropy import SoftmaxCrossEntropy
from mlpengine.ops.formulas import FormulaLoss
from mlpengine.ops.losses import (
    BinaryCrossEntropyWithLogits,
    BinaryFocal,
    Huber,
    Quantile,
)
from mlpengine.optim import (
    OPTIMIZERS,
    AdaptiveClip,
    Clip,
    ConstantSchedule,
    CosineSchedule,
    CosLogSchedule,
    ExponentialSchedule,
    FlatCosineSchedule,
    LinearSchedule,
    NormClip,
    OneCycleSchedule,
    Optimizer,
    PercentileClip,
    PlateauSchedule,
    Schedule,
    StepSchedule,
)
from mlpengine.train.best import EarlyStopping
from mlpengine.train.executors import choose_backend
from mlpengine.train.loop import Callback, Loop
from mlpengine.train.model import Model
from mlpengine.train.skipping import NonfiniteRule
from mlpengine.train.step import TrainingStep
from mlpengine.train.task import (
    LOSSES,
    BinaryClassification,
    Classification,
    Regression,
    Split,
    Task,
    part_of,
    task_for,
)

MEASURED_AS_TRAINED = (BinaryFocal, FormulaLoss, Huber, Quantile)
"""Losses whose options are part of what is measured; of others they only weigh the training."""


@dataclass(frozen=True)
class Experiment:
    """Everything that a config describes, ready to run."""

    file: ConfigFile
    tables: Tables
    task: Task
    parts: dict[str, Split]
    model: Model
    loss: Loss
    step: TrainingStep
    threads: int

    @property
    def blas_threads(self) -> int:
        """Threads of BLAS: one beside a compiled step, which has its own threads."""
        return 1 if self.step.executor == "compiled" else self.threads

    def loop(self, callbacks: Sequence[Callback] = ()) -> Loop:
        """Return the training loop."""
        config = self.file.config
        rule = config.training.early_stopping
        early = EarlyStopping(rule.patience, rule.monitor, rule.min_delta) if rule else None
        return Loop(
            self.step,
            self.task,
            self.parts["train"],
            self.parts.get("validation"),
            epochs=config.training.epochs,
            early_stopping=early,
            seed=np.random.Generator(np.random.PCG64([config.seed, 1])),
            callbacks=callbacks,
            on_nonfinite=NonfiniteRule(
                config.training.on_nonfinite, limit=config.training.nonfinite_limit
            ),
        )


def build(
    file: ConfigFile, preprocessor: Preprocessor | None = None, tables: Tables | None = None
) -> Experiment:
    """Read the data of a config and create everything that trains on it.

    A fitted `preprocessor`, that of a model or checkpoint, replaces a new one; `tables` are what
    `read_tables` returned, if it was called before.

    Raises: ConfigError if settings do not fit the data or each other; DataError.
    """
    config = file.config
    if tables is None:
        tables = read_tables(file, preprocessor=preprocessor)
    loss, task = loss_and_task(file, tables.preprocessor)
    _check_monitor(file, task)
    dtype = np.dtype(config.training.dtype)
    stream = config.training.batch_size if config.data.stream else None
    if stream and config.training.dtype != "float32":
        raise file.wrong(("data", "stream"), "streamed features are float32 (training.dtype)")
    parts = {
        part: part_of(table, rows, tables.preprocessor, task, dtype, stream=stream)
        for part, (table, rows) in tables.parts.items()
    }
    mlp = _network(file, tables.preprocessor.n_features, task.outputs)
    loss = _balanced(file, loss, parts["train"], task)
    batch_size = min(config.training.batch_size, len(parts["train"]))
    steps_per_epoch = -(-len(parts["train"]) // batch_size)
    optimizer = _optimizer(file, mlp, steps_per_epoch=steps_per_epoch)
    backend: str = config.training.backend
    if backend == "auto":
        backend = choose_backend(config.training.epochs * steps_per_epoch, mlp.sizes, batch_size)
    threads = config.training.threads
    if threads == "auto":
        threads = 1
    step = TrainingStep(
        mlp,
        loss,
        optimizer,
        batch_size,
        clip_norm=config.training.clip_norm,
        clip=_clip(config.training.clip),
        weighted=parts["train"].weights is not None,
        backend=backend,
        threads=threads,
        rematerialization=config.training.rematerialization,
    )
    if short := len(parts["train"]) % batch_size:
        step.bound(short)  # from here on `step.executor` is that of the whole run
    options = asdict(loss) if isinstance(loss, MEASURED_AS_TRAINED) else {}
    model = Model(mlp, tables.preprocessor, loss.name, options)
    return Experiment(file, tables, task, parts, model, loss, step, threads)


def loss_and_task(file: ConfigFile, preprocessor: Preprocessor) -> tuple[Loss, Task]:
    """Return the loss without class weights, and how to read the outputs.

    Raises: ConfigError for a loss that does not suit the target.
    """
    kind, given = str(preprocessor.task), file.config.loss
    suited = LOSSES[kind]
    name = suited[0] if given.name == "auto" else given.name
    if name not in suited:
        raise file.wrong(("loss",), f"{kind} takes {' or '.join(suited)} (got {name!r})")
    options = given.model_dump(exclude={"name"})
    if "formula" in options:
        options = {"text": options["formula"]}
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    try:
        loss = cast("Loss", REGISTRY[name](**options))
    except UsageError as error:
        raise file.wrong(("loss",), str(error)) from error
    task = task_for(preprocessor.target, loss)
    classes = len(preprocessor.classes)
    if isinstance(task, BinaryClassification) and classes > 2:
        text = f"{name} needs two classes (the target has {classes})"
        raise file.wrong(("loss",), f"{text}: use softmax_cross_entropy")
    if isinstance(task, Regression) and len(set(task.column_names)) < len(task.column_names):
        listed = ", ".join(task.column_names)
        raise file.wrong(("data", "target"), f"predictions need names of their own ({listed})")
    return loss, task


def _check_monitor(file: ConfigFile, task: Task) -> None:
    rule = file.config.training.early_stopping
    known = ("loss", *task.headline)
    if rule and rule.monitor not in known:
        text = f"this task has {', '.join(known)} (got {rule.monitor!r})"
        raise file.wrong(("training", "early_stopping", "monitor"), text)


def _network(file: ConfigFile, in_dim: int, out_dim: int) -> Mlp:
    model = file.config.model
    activation = model.activation
    if len(activation) == 1:
        activation = activation * len(model.hidden)
    try:
        return Mlp(
            [in_dim, *model.hidden, out_dim],
            activation=activation,
            dropout=model.dropout,
            initializer=model.initializer,
            seed=file.config.seed,
            dtype=file.config.training.dtype,
        )
    except UsageError as error:
        raise file.wrong(("model",), str(error)) from error


def _balanced(file: ConfigFile, loss: Loss, train: Split, task: Task) -> Loss:
    """Return the loss with the class weights that the config asks for."""
    if file.config.data.class_weights != "balanced":
        return loss
    if not isinstance(task, Classification):
        raise file.wrong(("data", "class_weights"), "only classification has class weights")
    match loss:
        case SoftmaxCrossEntropy():
            weights = class_weights(train.y, task.outputs)
            return replace(loss, class_weights=tuple(weights.tolist()))
        case BinaryCrossEntropyWithLogits():
            ones = float(train.truth.mean())
            return replace(loss, positive_weight=(1.0 - ones) / ones)
    text = f"{loss.name} has its own weights, if any"
    raise file.wrong(("data", "class_weights"), text)


def _optimizer(file: ConfigFile, mlp: Mlp, steps_per_epoch: int) -> Optimizer:
    settings = file.config.optimizer.model_dump(exclude={"name"})
    if "betas" in settings:
        settings["betas"] = tuple(settings["betas"])
    try:
        schedule = _schedule(file, steps_per_epoch)
    except UsageError as error:
        raise file.wrong(("schedule",), str(error)) from error
    try:
        kind = OPTIMIZERS[file.config.optimizer.name]
        return kind(mlp, schedule=schedule, **settings)
    except UsageError as error:
        raise file.wrong(("optimizer",), str(error)) from error


def _clip(given: ClipSection | None) -> Clip | None:
    if given is None:
        return None
    if given.percentile is not None:
        return PercentileClip(given.percentile, history=given.history)
    return AdaptiveClip(given.agc) if given.agc is not None else NormClip(given.norm or 0.0)


def _schedule(file: ConfigFile, steps_per_epoch: int) -> Schedule | None:
    """Return the schedule, None for a rate that never changes; a config counts epochs."""
    given = file.config.schedule
    total = file.config.training.epochs * steps_per_epoch
    warmup = round(given.warmup_epochs * steps_per_epoch)
    match given:
        case options.StepSchedule():
            every = max(1, round(given.every_epochs * steps_per_epoch))
            return StepSchedule(every, given.factor, warmup_steps=warmup)
        case options.ExponentialSchedule():
            decay = given.factor ** (1.0 / steps_per_epoch)
            return ExponentialSchedule(decay, warmup_steps=warmup)
        case options.CosineSchedule():
            return CosineSchedule(total, given.final, warmup_steps=warmup)
        case options.FlatCosineSchedule():
            return FlatCosineSchedule(total, warmup_steps=warmup)
        case options.CosLogSchedule():
            return CosLogSchedule(total, given.cycles, warmup_steps=warmup)
        case options.LinearSchedule():
            return LinearSchedule(total, given.final, warmup_steps=warmup)
        case options.OneCycleSchedule():
            return OneCycleSchedule(total, given.rise, warmup_steps=warmup)
        case options.PlateauSchedule():
            return PlateauSchedule(given.patience, given.factor, warmup_steps=warmup)
    return ConstantSchedule(warmup_steps=warmup) if warmup else None
