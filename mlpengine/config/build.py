"""Construction of the network, loss, optimizer and loop from a checked config."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from mlpengine.config.load import ConfigFile
from mlpengine.config.reader import KeyPath
from mlpengine.config.schema import Config
from mlpengine.config.tables import Tables, read_tables
from mlpengine.data import Preprocessor, class_weights
from mlpengine.data.batches import steps_of_epoch
from mlpengine.data.unlike import NewRows
from mlpengine.nn import Front, Mlp
from mlpengine.nn.layers import parameter_specs, plan_layers
from mlpengine.ops import LOSSES, losses_of
from mlpengine.ops._loss import Loss
from mlpengine.ops.cross_entropy import SoftmaxCrossEntropy
from mlpengine.ops.losses import BinaryCrossEntropyWithLogits
from mlpengine.optim import SCHEDULES, Optimizer, Schedule, ScheduleLike
from mlpengine.spec import Array
from mlpengine.tape.flat import Flat
from mlpengine.train.best import EarlyStopping
from mlpengine.train.calibration import Residuals, cool, error_of_mean
from mlpengine.train.diagnose import LoopDiagnostics
from mlpengine.train.ensemble import SEEDS_APART, EnsembleLoop
from mlpengine.train.evaluate import MEASURED_AS_TRAINED, Scorer
from mlpengine.train.executors import choose_backend
from mlpengine.train.kinds import best_mean, equal_shares, inputs_of, readings
from mlpengine.train.loop import Callback, Loop
from mlpengine.train.model import Model
from mlpengine.train.population import Population
from mlpengine.train.ranks import Ranks
from mlpengine.train.recipes import LINEAR, Kind
from mlpengine.train.shards import shards_problem
from mlpengine.train.skipping import NonfiniteRule
from mlpengine.train.step import TrainingStep
from mlpengine.train.task import (
    BinaryClassification,
    Classification,
    Regression,
    Split,
    Task,
    part_of,
    task_for,
)
from mlpengine.train.threads import cores, pinned
from mlpengine.wording import plural

_log = logging.getLogger("mlpengine")

SMALL_STEP = 2**20
"""Parameters times rows of a batch below which two ranks are no faster than one: compiled steps of
64-128-10 on 64 rows took 46 us for 43 us of one rank (two-core Intel Xeon, November 2026)."""


class Member(NamedTuple):
    """A network of an experiment: its step, its seed, and the rows that it learns from.

    `rows` are numbers of rows of the training part, None for all of them.
    """

    step: TrainingStep
    seed: int
    rows: Array | None
    validation: Split | None


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything that a config describes, ready to run.

    `ranks` share the work, if there are any: the batches of one network, or several networks.
    After `calibrated`, `shares` are those of kinds of networks in the mean, by kind, and
    `temperature` is the number that logits were divided by; `mean_error` is the error of that mean
    as a share of one network's (`error_of_mean`).
    """

    file: ConfigFile
    tables: Tables
    task: Task
    parts: dict[str, Split]
    model: Model
    loss: Loss
    members: tuple[Member, ...]
    threads: int
    ranks: Ranks | None = None
    shares: dict[Kind, float] = field(default_factory=dict)
    temperature: float = 1.0
    mean_error: Array | None = None

    @property
    def step(self) -> TrainingStep:
        """The step of the network, or of the first of several."""
        return self.members[0].step

    @property
    def scored_loss(self) -> Loss:
        """The loss of scores: that of training or, of calibrated outputs, that of evaluation."""
        return self.loss if self.temperature == 1 else self.model.plain_loss

    def pinned(self) -> AbstractContextManager[None]:
        """Limit BLAS and predictions to the threads of the config.

        BLAS has one beside a compiled step or several networks, which have threads of their own.
        """
        alone = self.step.executor != "compiled" and len(self.members) == 1
        return pinned(self.threads if alone else 1, self.threads)

    def loop(
        self, callbacks: Sequence[Callback] = (), *, of_first: Sequence[Callback] = ()
    ) -> Loop | EnsembleLoop:
        """Return the training loop; callbacks `of_first` are called after each step.

        Of several networks, these steps are those of the first.
        """
        if self.model.members is None:
            return self._loop_of(self.members[0], [*callbacks, *of_first])
        firsts = [of_first, *([()] * (len(self.members) - 1))]
        loops = [self._loop_of(*pair) for pair in zip(self.members, firsts, strict=True)]
        kinds = 0 if self.tables.folds is None else len(self.file.config.trained_kinds) or 1
        return EnsembleLoop(
            loops, threads=self.threads, kinds=kinds, callbacks=callbacks, ranks=self.ranks
        )

    def diagnostics(self, path: Path | None = None) -> LoopDiagnostics | None:
        """Return what measures a run, and writes its samples to `path`; None if switched off."""
        settings = self.file.config.diagnostics
        if settings is None:
            return None
        every = None if settings.every == "auto" else settings.every
        return LoopDiagnostics(path, every=every, silence=settings.silence)

    def _loop_of(self, member: Member, callbacks: Sequence[Callback]) -> Loop:
        config = self.file.config
        rule = config.training.early_stopping
        early = EarlyStopping(rule.patience, rule.monitor, rule.min_delta) if rule else None
        return Loop(
            member.step,
            self.task,
            self.parts["train"],
            member.validation,
            epochs=config.training.epochs,
            early_stopping=early,
            rows=member.rows,
            seed=np.random.Generator(np.random.PCG64([member.seed, 1])),
            callbacks=callbacks,
            on_nonfinite=NonfiniteRule(
                config.training.on_nonfinite, limit=config.training.nonfinite_limit
            ),
            drop_last=config.training.drop_last,
        )

    def out_of_fold(self) -> Array:
        """Return for each training row the output of the member that did not train on it."""
        folds = self.tables.folds
        assert folds is not None
        return self.model.mean.out_of_fold(self.parts["train"].x, folds)

    def calibrated(self) -> "Experiment":
        """Return the same with a model that knows what rows tell that did not train it.

        With folds it has the best shares of several kinds of networks, and residuals of numbers.
        If the config asks for it, the last layers are divided by a temperature of classes, which
        rows out of fold or the validation part choose.
        """
        folds, train, task, model = self.tables.folds, self.parts["train"], self.task, self.model
        if folds is None:
            return self._cooled(self.parts.get("validation"), model.forward)
        shares: dict[Kind, float] = {}
        numbers = model.preprocessor.numbers
        if (kinds := self.file.config.kinds) and numbers is not None:
            mean, shares = best_mean(
                model.mean,
                kinds,
                (self.loss, model.plain_loss),
                train,
                folds,
                readings(numbers, model.preprocessor.n_features),
                threads=self.threads,
            )
            model = model.with_mean(mean)
        mean = model.mean
        chosen = replace(self, model=model, shares=shares)
        chosen = chosen._cooled(train, lambda x: mean.out_of_fold(x, folds))
        scorer = Scorer(chosen.scored_loss, task, task.outputs, model.mlp.dtype)
        share = error_of_mean(task, mean.by_fold, folds, train, scorer.mean_loss)
        if isinstance(task, Regression):
            errors = task.predict(mean.out_of_fold(train.x, folds)) - train.truth
            model = replace(model, residuals=Residuals.of(errors, share))
        return replace(chosen, model=model, mean_error=share)

    def _cooled(self, rows: Split | None, forward: Callable[[Array], Array]) -> "Experiment":
        """Divide the last layers by the best temperature of the outputs for `rows`, if wanted."""
        wanted = self.file.config.training.calibration != "none"
        if rows is None or not wanted or isinstance(self.task, Regression):
            return self
        output = forward(rows.x)
        return replace(self, temperature=cool(self.model.networks, self.task, output, rows))


def build(
    file: ConfigFile,
    preprocessor: Preprocessor | None = None,
    tables: Tables | None = None,
    start: Model | None = None,
    ranks: Ranks | None = None,
) -> Experiment:
    """Read the data of a config and create everything that trains on it.

    A fitted `preprocessor`, that of a model or checkpoint, replaces a new one; `tables` are what
    `read_tables` returned, if it was called before. Training starts from the weights of `start`,
    whose preprocessing it uses, if one is given. Several `ranks` share the work of the training
    step; each calls this function.

    Raises: ConfigError if settings do not fit the data or each other; DataError.
    """
    config = file.config
    if tables is None:
        if start is not None:
            preprocessor = start.preprocessor
        tables = read_tables(file, preprocessor=preprocessor)
    if start is not None and not config.data.stream:
        _warn_of_new_rows(tables)
    loss, task = loss_and_task(file, tables.preprocessor)
    _watch(file, task)
    dtype = np.dtype(config.training.dtype)
    stream = config.training.batch_size if config.data.stream else None
    window = config.data.stream.window if config.data.stream else 1
    if stream and config.training.dtype != "float32":
        raise file.wrong(("data", "stream"), "streamed features are float32 (training.dtype)")
    if stream and config.training.folds:
        raise file.wrong(
            ("training", "folds"), "streamed features take no folds: give data.split.validation"
        )
    parts = {
        part: part_of(table, rows, tables.preprocessor, task, dtype, stream=stream, window=window)
        for part, (table, rows) in tables.parts.items()
    }
    loss = _balanced(file, loss, parts["train"], task)
    mlp = _network(file, tables.preprocessor, task.outputs)
    with file.errors_at("training", "freeze"):
        mlp.freeze(config.training.freeze)
    seeds = _seeds(config)
    population = Population(mlp, len(seeds), seeds=seeds) if len(seeds) > 1 else None
    _set_kinds(file, tables.preprocessor, population or [mlp])
    if config.model.initializer == "unit_variance":
        features = parts["train"].x
        if stream:
            raise file.wrong(("model", "initializer"), "unit_variance needs features in memory")
        for network, seed in zip(population or [mlp], seeds, strict=True):
            network.initialize_from(features, seed=seed)
    options = asdict(loss) if isinstance(loss, MEASURED_AS_TRAINED) else {}
    mlp = population[0] if population else mlp
    equal = equal_shares(len(config.trained_kinds))
    model = Model(mlp, tables.preprocessor, loss.name, options, population, shares=equal)
    if start is not None:
        _start_from(file, start.networks, model.networks)
    given = config.training.threads
    threads = cores() if given == "auto" else given
    if given == "auto" and population:
        threads = min(threads, len(seeds))
    if ranks is not None:
        if threads > ranks.cores and given != "auto":
            _log.warning("warning: training.threads: each rank takes %d, its share", ranks.cores)
        threads = min(threads, ranks.cores)
        if 1 < len(seeds) < ranks.size:
            text = "warning: training: %d of %d ranks have none of the %d networks"
            _log.warning(text, ranks.size - len(seeds), ranks.size, len(seeds))
    of_step = (1, None) if population else (threads, ranks)
    members = tuple(_StepBuilder(file, loss, model, parts, *of_step).members(tables.folds, seeds))
    if given == "auto" and not population:
        threads = members[0].step.threads_used
    return Experiment(file, tables, task, parts, model, loss, members, threads, ranks)


def _warn_of_new_rows(tables: Tables) -> None:
    """Log what the training of an earlier run did not see in the rows of this one."""
    new = NewRows(tables.preprocessor)
    table, rows = tables.parts["train"]
    for line in new.add(table if rows is None else table.rows(rows)).lines():
        _log.warning("warning: %s: %s", table.source, line)


def _seeds(config: Config) -> list[int]:
    training = config.training
    count = (training.folds or training.seeds or 0) * max(1, len(config.trained_kinds))
    return [SEEDS_APART * config.seed + k for k in range(count)] if count else [config.seed]


@dataclass(frozen=True, eq=False)
class _StepBuilder:
    """Builds the members of an experiment; `threads` is that of each step."""

    file: ConfigFile
    loss: Loss
    model: Model
    parts: dict[str, Split]
    threads: int
    ranks: Ranks | None = None

    def members(self, folds: Array | None, seeds: Sequence[int]) -> Iterator[Member]:
        """Yield the members, each without one of `folds` if there are any."""
        training, train = self.file.config.training, self.parts["train"]
        count = self.file.config.training.folds or len(seeds)
        fold_of = [k % count for k in range(len(seeds))]
        rows = [None if folds is None else np.flatnonzero(folds != k) for k in fold_of]
        counts = [len(train) if one is None else len(one) for one in rows]
        batch_size = min(training.batch_size, *counts)
        backend: str = training.backend
        if backend == "auto":
            steps = training.epochs * sum(-(-count // batch_size) for count in counts)
            backend = choose_backend(steps, self.model.mlp, batch_size)
        validation = self.parts.get("validation")
        for k, (mlp, seed) in enumerate(zip(self.model.networks, seeds, strict=True)):
            if folds is not None:
                validation = train.rows(np.flatnonzero(folds == fold_of[k]))
            step = self._step(mlp, batch_size, counts[k], backend)
            if backend == "compiled" and step.executor != "compiled":
                backend = "auto"  # what cannot be compiled is reported once
            yield Member(step, seed, rows[k], validation)

    def _step(self, mlp: Mlp, batch_size: int, rows: int, backend: str) -> TrainingStep:
        training, ranks = self.file.config.training, self.ranks
        steps = steps_of_epoch(rows, batch_size, drop_last=training.drop_last)
        if problem := shards_problem(training.shards, batch_size, ranks.size if ranks else 1):
            raise self.file.wrong(("training", "shards"), problem)
        if ranks and len(mlp.params) * batch_size < SMALL_STEP:
            text = "warning: training: ranks do not speed up steps as small as those of %s and %s"
            size = plural(len(mlp.params), "parameter")
            _log.warning(text, size, plural(batch_size, "row"))
        step = TrainingStep(
            mlp,
            self.loss,
            _optimizer(self.file, mlp, steps),
            batch_size,
            clip=self.file.config.settings.training.clip,
            weighted=self.parts["train"].weights is not None,
            backend=backend,
            threads=self.threads,
            rematerialization=training.rematerialization,
            dropout_schedule=_dropout_schedule(self.file.config, steps),
            shards=training.shards,
            comm=ranks.comm if ranks else None,
            reduce=training.reduce,
        )
        short = rows % batch_size
        if short and not training.drop_last:
            step.bound(short)  # from here on `step.executor` is that of the whole run
        return step


def loss_and_task(file: ConfigFile, preprocessor: Preprocessor) -> tuple[Loss, Task]:
    """Return the loss without class weights, and how to read the outputs.

    Raises: ConfigError for a loss that does not suit the target.
    """
    kind = str(preprocessor.task)
    suited = losses_of(kind)
    with file.errors_at("loss"):
        loss = file.config.loss.settings or LOSSES[suited[0]]()
    name = loss.name
    if name not in suited:
        raise file.wrong(("loss",), f"{kind} takes {' or '.join(suited)} (got {name!r})")
    task = task_for(preprocessor.target, loss)
    classes = len(preprocessor.classes)
    if isinstance(task, BinaryClassification) and classes > 2:
        text = f"{name} needs two classes (the target has {classes})"
        raise file.wrong(("loss",), f"{text}: use softmax_cross_entropy")
    if isinstance(task, Regression) and len(set(task.column_names)) < len(task.column_names):
        listed = ", ".join(task.column_names)
        raise file.wrong(("data", "target"), f"predictions need names of their own ({listed})")
    return loss, task


def _watch(file: ConfigFile, task: Task) -> None:
    """Make the task compute the metrics that the config names."""
    training = file.config.training
    named: dict[KeyPath, str] = {
        ("training", "metrics", k): name for k, name in enumerate(training.metrics)
    }
    if training.early_stopping:
        named["training", "early_stopping", "monitor"] = training.early_stopping.monitor
    for at, name in named.items():
        with file.errors_at(*at):
            task.watch(name)


def check_size(file: ConfigFile, preprocessor: Preprocessor, out_dim: int) -> None:
    """Check that the parameters of the network fit into memory, without drawing them.

    Raises: ConfigError if they do not.
    """
    front, in_dim = _front(file, preprocessor), preprocessor.n_features
    sizes = [in_dim, *file.config.model.hidden, out_dim]
    with file.errors_at("model"):
        layers = plan_layers(
            sizes, [None] * (len(sizes) - 1), [0.0] * (len(sizes) - 2), front=front
        )
        Flat(parameter_specs(layers, np.dtype(file.config.training.dtype), front, in_dim))


def _front(file: ConfigFile, preprocessor: Preprocessor) -> Front | None:
    front = file.config.settings.network.front
    embedded = None if front.embedding == "none" else preprocessor.n_numbers
    front = replace(front, embedded=embedded, masked=bool(file.config.trained_kinds))
    return front if embedded is not None or front.scaling or front.masked else None


def _set_kinds(
    file: ConfigFile, preprocessor: Preprocessor, networks: Population | Sequence[Mlp]
) -> None:
    """Let each network read the inputs of its kind, and check that kinds can be as given."""
    config, mlp = file.config, networks[0]
    kinds = config.trained_kinds
    if config.training.members and not config.kinds:
        _log.warning("warning: training.members: is ignored without training.folds")
    if LINEAR in config.kinds:
        with file.errors_at("training", "members"):
            mlp.like(learned_activation=True)  # whose activations must be element-wise
    numbers = preprocessor.numbers
    if not kinds or numbers is None:
        return
    for k, network in enumerate(networks):
        kind = kinds[k * len(kinds) // len(networks)]
        in_dim = mlp.layers[0].in_dim
        network.select_inputs(inputs_of(kind, numbers, preprocessor.n_features, in_dim))


def _network(file: ConfigFile, preprocessor: Preprocessor, out_dim: int) -> Mlp:
    model = file.config.model
    count = len(model.hidden)
    with file.errors_at("model"):
        return Mlp(
            [preprocessor.n_features, *model.hidden, out_dim],
            activation=model.activation * (count if len(model.activation) == 1 else 1),
            dropout=model.dropout * (count if len(model.dropout) == 1 else 1),
            initializer=model.initializer,
            seed=file.config.seed,
            dtype=file.config.training.dtype,
            front=_front(file, preprocessor),
            learned_activation=model.learned_activation,
            parametrization=model.parametrization,
        )


def _start_from(file: ConfigFile, starts: Sequence[Mlp], networks: Sequence[Mlp]) -> None:
    """Copy the weights of a model's networks into those that read the same inputs."""
    starts = [one for one in starts if not one.is_linear]
    alone = 0
    for k, network in enumerate(networks):
        same = [one for one in starts if np.array_equal(_mask(one), _mask(network))]
        if same or len(networks) == 1 == len(starts):
            _copy_weights(file, (same or starts)[k % len(same or starts)], network)
        else:
            alone += 1
    if alone:
        text = "have initial weights: the model that training starts from has none of their kind"
        _log.warning("warning: training.members: %d of %d networks %s", alone, len(networks), text)


def _mask(mlp: Mlp) -> Array:
    """Return which inputs of layer 0 a network reads, as 0 and 1; (0,) if it reads all."""
    return mlp.params.views.get("front.mask", np.zeros(0))


def _copy_weights(file: ConfigFile, start: Mlp, mlp: Mlp) -> None:
    theirs, own = ({**net.to_dict(), "dropout": 0.0} for net in (start, mlp))
    views = dict(start.params.views)
    alphas = start.groups["alphas"]
    if not mlp.learned_activation and all((views[name] == 1).all() for name in alphas):
        theirs.pop("learned_activation", None)  # in a model that has linear networks, too
        views = {name: view for name, view in views.items() if name not in alphas}
    names = {"sizes": "hidden", "activations": "activation"}
    for key in theirs | own:
        pair = theirs.get(key), own.get(key)
        if pair[0] != pair[1]:
            section = "training" if key == "dtype" else "model"
            text = f"must be as in the model that training starts from ({pair[0]}, {pair[1]})"
            raise file.wrong((section, names.get(key, key)), text)
    for view, weights in zip(mlp.params.views.values(), views.values(), strict=True):
        view[...] = weights  # names depend on dropout


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
    training = file.config.settings.training
    total = training.epochs * steps_per_epoch
    with file.errors_at("schedule"):
        schedule = cast("Schedule", training.schedule).over(total, steps_per_epoch)
    with file.errors_at("optimizer"):
        return training.optimizer.make(mlp, schedule, total, steps_per_epoch)


def _dropout_schedule(config: Config, steps_per_epoch: int) -> ScheduleLike | None:
    name, total = config.model.dropout_schedule, config.training.epochs * steps_per_epoch
    scheduled = name != "constant" and any(config.model.dropout)
    return SCHEDULES[name]().over(total, steps_per_epoch) if scheduled else None
