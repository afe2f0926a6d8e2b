"""Settings of a network and its training, as `Trainer` takes them.

Configs and estimators make them; none of the fields has a default here, where none is declared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mlpengine.errors import UsageError
from mlpengine.nn import Front, Mlp
from mlpengine.ops import Loss
from mlpengine.optim import OPTIMIZERS, Clip, Group, Optimizer
from mlpengine.optim._optimizer import ScheduleLike
from mlpengine.optim.schedules import named_schedule
from mlpengine.tape.rematerialization import Rematerialization
from mlpengine.train.best import EarlyStopping
from mlpengine.train.recipes import Kind, in_order, trained
from mlpengine.train.shards import Reduce
from mlpengine.train.skipping import Action


@dataclass(frozen=True)
class NetworkSettings:
    """The network between the features and the target."""

    hidden: tuple[int, ...]
    activation: Any
    learned_activation: bool
    front: Front
    parametrization: Any
    dropout: Any
    dropout_schedule: str
    initializer: str | None


@dataclass(frozen=True)
class ScheduleSettings:
    """A schedule by its name in configs, in epochs."""

    name: str
    options: Mapping[str, Any]
    warmup_epochs: float = 0.0

    def over(self, total_steps: int, steps_per_epoch: int) -> ScheduleLike | None:
        """Return the schedule of a run; None for a factor that is always 1."""
        warmup = round(self.warmup_epochs * steps_per_epoch)
        return named_schedule(
            self.name, total_steps, steps_per_epoch, warmup_steps=warmup, **self.options
        )


@dataclass(frozen=True)
class OptimizerSettings:
    """An optimizer by its name in configs, and its options."""

    name: str
    options: Mapping[str, Any]
    groups: Mapping[str, Group] | None = None
    decay_schedule: str = "constant"

    def make(
        self,
        mlp: Mlp,
        schedule: ScheduleLike | None = None,
        total_steps: int = 0,
        steps_per_epoch: int = 1,
    ) -> Optimizer:
        """Return the optimizer of a network in a training of so many steps."""
        if self.name not in OPTIMIZERS:
            known = ", ".join(OPTIMIZERS)
            raise UsageError(f"optimizer: must be one of {known} (got {self.name!r})")
        decay = named_schedule(self.decay_schedule, total_steps, steps_per_epoch)
        return OPTIMIZERS[self.name](
            mlp, groups=self.groups, schedule=schedule, decay_schedule=decay, **self.options
        )


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained."""

    loss: Loss
    optimizer: OptimizerSettings
    schedule: ScheduleSettings | ScheduleLike | None
    folds: int | None
    seeds: int | None
    members: tuple[Kind, ...]
    calibration: Literal["none", "temperature"]
    epochs: int
    batch_size: int
    drop_last: bool
    freeze: tuple[int, ...]
    shards: int
    reduce: Reduce
    clip: Clip | None
    on_nonfinite: Action
    nonfinite_limit: int
    early_stopping: EarlyStopping | None
    threads: int | Literal["auto"]
    backend: str
    rematerialization: Rematerialization
    dtype: Any

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of networks in each fold, linear last; none where all networks are alike."""
        return in_order(self.members) if self.folds else []

    @property
    def trained_kinds(self) -> list[Kind]:
        """The kinds that are trained by steps."""
        return trained(self.kinds)


@dataclass(frozen=True)
class DiagnosticsSettings:
    """Measurements of gradients, updates and units during training."""

    every: int | Literal["auto"]
    silence: Sequence[str]


@dataclass(frozen=True)
class RunSettings:
    """A network, its training and its diagnostics, and the seed of all."""

    network: NetworkSettings
    training: TrainingSettings
    diagnostics: DiagnosticsSettings | None
    seed: int
