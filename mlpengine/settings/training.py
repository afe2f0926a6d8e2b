"""How a network is trained."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Le

from mlpengine.backends import BackendName
from mlpengine.core.fields import Checked, Count, NonNegative, Positive
from mlpengine.ops import Loss
from mlpengine.optim import (
    Adam,
    Clip,
    ConstantSchedule,
    OptimizerSettings,
    Schedule,
    settings_class,
)
from mlpengine.optim.clipping import clip_rule
from mlpengine.optim.schedules import ScheduleLike
from mlpengine.tape.rematerialization import Rematerialization

Kind: TypeAlias = Literal["plain", "piecewise", "periodic", "linear"]
"""A kind of networks, of which folds have one each."""

LINEAR: Kind = "linear"
"""The kind that is not trained by steps: its weights of least loss are computed."""

Action: TypeAlias = Literal["stop", "skip"]

MAX_NETWORKS = 1_000
"""Largest number of networks that are trained together."""

Several: TypeAlias = Annotated[int, Ge(2), Le(MAX_NETWORKS)]


def linear_last(kinds: Iterable[Kind]) -> list[Kind]:
    """Return kinds in the order of their networks: the linear one is last."""
    return sorted(kinds, key=LINEAR.__eq__)


def trained(kinds: Iterable[Kind]) -> list[Kind]:
    """Return the kinds that are trained by steps."""
    return [kind for kind in kinds if kind != LINEAR]


@dataclass(frozen=True)
class EarlyStopping(Checked):
    """When to end before the last epoch.

    Args:
        patience: Epochs without a better value before stopping.
        monitor: The validation metric to watch: any that training.metrics may name.
        min_delta: Smallest improvement that counts.
    """

    patience: Count = 20
    monitor: str = "loss"
    min_delta: NonNegative = 0.0


@dataclass(frozen=True)
class TrainingSettings(Checked):
    """How a network is trained.

    Args:
        loss: What training minimizes; by default cross-entropy for classes, BCE for several labels,
            MSE for numbers.
        optimizer: How weights change.
        schedule: How lr changes.
        folds: Number of networks, each trained without one fold of the rows; the other folds choose
            its best epoch; the prediction is their mean.
        seeds: Number of networks that differ only in their seeds; the prediction is their mean.
        kinds: Kinds of networks, one of each kind per fold (ignored without folds). plain reads
            numbers, piecewise also their quantile bins, periodic also their cosines; linear is a
            linear model. The mean weights the kinds by what is best out of fold.
        calibration: temperature: divide logits by a number that is fitted out of fold or, without
            folds, on validation rows.
        refit: true: train once more on training and validation rows, up to the best epoch.
        epochs: Passes over the training rows, at most.
        batch_size: Rows per step.
        drop_last: Whether an epoch leaves out rows that do not fill a batch.
        metrics: Further metrics after every epoch: any that evaluate shows, or, of numbers,
            pinball_LEVEL such as pinball_0.9.
        freeze: Layers that are not trained: 0 is the first, -1 the last.
        shards: Parts of a batch whose gradients are added: a power of two, and a multiple of the
            ranks under mpiexec.
        clip_norm: Largest global gradient norm, or another rule for large gradients.
        on_nonfinite: What to do at a step whose loss or gradient is not finite.
        nonfinite_limit: Steps that may be skipped in a run.
        early_stopping: When to end before the last epoch: false, true, or its settings.
        threads: Threads of BLAS or compiled steps; auto: 1 for BLAS, else all cores that pay.
        backend: What runs the steps; auto: compiled code in runs of much arithmetic, else NumPy.
        rematerialization: Keep activations for backward, or compute cheap ones again (balanced).
        dtype: Type of all numbers.
    """

    loss: Loss | None = None
    optimizer: OptimizerSettings = field(default_factory=settings_class(Adam))
    schedule: Schedule | ScheduleLike = field(default_factory=ConstantSchedule)
    folds: Several | None = None
    seeds: Several | None = None
    kinds: tuple[Kind, ...] = ()
    calibration: Literal["temperature", "none"] = "none"
    refit: bool = False
    epochs: Count = 100
    batch_size: Count = 32
    drop_last: bool = False
    metrics: tuple[str, ...] = ()
    freeze: tuple[int, ...] = ()
    shards: Count = 1
    clip_norm: Positive | Clip | None = None
    on_nonfinite: Action = "stop"
    nonfinite_limit: Count = 10
    early_stopping: EarlyStopping | None = None
    threads: Literal["auto"] | Count = "auto"
    backend: BackendName = "auto"
    rematerialization: Rematerialization = "keep"
    dtype: Literal["float32", "float64"] = "float32"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield options that exclude each other."""
        if self.folds and self.seeds:
            yield "seeds", "give folds or seeds, not both"
        if self.kinds and len(set(self.kinds)) < len(self.kinds):
            yield "kinds", "each kind must be given once"
        if len(self.kinds) == 1:
            yield "kinds", f"give two kinds or more (got {self.kinds[0]!r})"
        if self.refit and (self.folds or self.seeds):
            yield "refit", "needs one network (with folds, all rows train already)"
        if self.refit and self.calibration != "none":
            yield "refit", "no rows are left for a temperature: leave one out"

    @property
    def fold_kinds(self) -> list[Kind]:
        """The kinds of networks in each fold, linear last; none where all networks are alike."""
        return linear_last(self.kinds) if self.folds else []

    @property
    def trained_kinds(self) -> list[Kind]:
        """The kinds that are trained by steps."""
        return trained(self.fold_kinds)

    @property
    def clip(self) -> Clip | None:
        """A clipping rule without history, for one network."""
        rule = clip_rule(self.clip_norm)
        return rule and rule.fresh()
