"""How a network is trained."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from mlpengine.backends import BackendName
from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Count, Fraction, Limits, NonNegative, Positive
from mlpengine.optim import Adam, ConstantSchedule, settings_class
from mlpengine.settings.base import (
    STRICT,
    Flag,
    Texts,
    WholeNumber,
    defaults,
    one_or_more,
    rule,
    switch,
)
from mlpengine.settings.families import (
    LossOption,
    OptimizerOption,
    ScheduleOption,
)
from mlpengine.settings.structure import fault_of
from mlpengine.tape.rematerialization import Rematerialization

MemberType: TypeAlias = Literal["plain", "piecewise", "linear", "smooth"]
"""The type of an ensemble member.  Each fold has one network of each type."""

LINEAR: MemberType = "linear"
"""The type of linear models; their weights are computed after the training of the other types."""

SMOOTH: MemberType = "smooth"
"""The type of small tanh networks, trained after the others.  Each step reads all rows."""

_LAST = (LINEAR, SMOOTH)

Action: TypeAlias = Literal["stop", "skip"]

MAX_NETWORKS = 1_000
"""Largest number of networks that are trained together."""

MIN_PATIENCE = 6
"""Minimum patience in epochs with ``patience="auto"``."""

Several: TypeAlias = Annotated[int, Limits(at_least=2, at_most=MAX_NETWORKS, whole=True)]


def in_order(members: Iterable[MemberType]) -> list[MemberType]:
    """Return member types in the order of their networks: linear and smooth are last."""
    return sorted(members, key=lambda one: _LAST.index(one) if one in _LAST else -1)


def trained(members: Iterable[MemberType]) -> list[MemberType]:
    """Return the member types that the training loop trains."""
    return [one for one in members if one not in _LAST]


@dataclass(frozen=True, config=STRICT)
class EarlyStopping:
    """When training stops before the last epoch."""

    patience: Literal["auto"] | Count = Field(
        default=20,
        description="Epochs without improvement before training stops; auto: the number of the "
        f"best epoch, at least {MIN_PATIENCE}.",
    )
    monitor: str = Field(
        default="loss",
        description="Validation metric to watch: loss, or any that training.metrics accepts.",
    )
    min_delta: NonNegative = Field(
        default=0.0, description="Smallest improvement after which waiting begins anew."
    )

    @model_validator(mode="wrap")
    @classmethod
    def _of_call(cls, given: Any, handler: Callable[[Any], Self]) -> Self:
        """Raise UsageError, not ValidationError, for wrong arguments of a call."""
        try:
            return handler(given)
        except ValidationError as error:
            if not isinstance(given, ArgsKwargs):
                raise
            names = [one.name for one in fields(cls)]
            options = {**dict(zip(names, given.args, strict=False)), **(given.kwargs or {})}
            raise UsageError(f"EarlyStopping{fault_of(error, options, names)}") from None

    def epochs_after(self, best: int) -> int:
        """Return the patience in epochs if `best` is the number of the best epoch."""
        return max(best, MIN_PATIENCE) if self.patience == "auto" else self.patience


@dataclass(frozen=True, config=STRICT)
class Averaging:
    """How weights are averaged over the steps."""

    decay: Fraction = Field(default=0.99, description="Weight of the old average in the new one.")


@dataclass(frozen=True, config=STRICT)
class ThresholdChoice:
    """How the threshold of a model for two classes is chosen."""

    metric: str | None = Field(
        default=None, description="Metric of predicted classes to optimize, such as macro_f1."
    )
    costs: dict[Literal["false_negative", "false_positive"], NonNegative] | None = Field(
        default=None,
        description="Costs of a false negative and a false positive, each 1 by default. The "
        "threshold with the lowest mean cost is chosen.",
    )
    positive: Flag | int | float | str | None = Field(
        default=None,
        description="The class that is predicted above the threshold; by default the second class.",
    )

    @model_validator(mode="after")
    def _one_aim(self) -> Self:
        if (self.metric is None) == (self.costs is None):
            raise rule("give either metric or costs")
        costs = self.costs or {}
        if len(costs) == 2 and not any(costs.values()):
            raise rule("one of the costs must be above 0", "costs")
        return self


@dataclass(frozen=True, config=STRICT)
class TrainingOptions:
    """Length and details of training."""

    folds: Several | None = Field(
        default=None,
        description="Number of folds of the rows. Each network trains without one fold; the scores "
        "of the other networks choose its best epoch. The prediction is the mean of all networks.",
    )
    seeds: Several | None = Field(
        default=None,
        description="Number of networks that differ only in their seeds. The prediction is their "
        "mean.",
    )
    members: Annotated[tuple[MemberType, ...], one_or_more(MemberType)] = Field(
        default=(),
        description="Types of ensemble members, one of each per fold (ignored without folds). "
        "plain: a network; piecewise: a network that also reads quantile bins of numbers; linear: "
        "a linear model; smooth: a small tanh network, trained on all rows in each step (loss "
        "mse). The weights in the mean are fitted on out-of-fold rows.",
    )
    calibration: Literal["temperature", "none"] = Field(
        default="none",
        description="temperature: divide logits by a number, fitted on out-of-fold rows; without "
        "folds, on validation rows.",
    )
    threshold: ThresholdChoice | None = Field(
        default=None,
        description="How to choose the decision threshold of two classes, on out-of-fold rows "
        "(without folds, on validation rows). The default is a probability of 0.5.",
    )
    epochs: Count = Field(default=100, description="Maximum passes over the training rows.")
    batch_size: Count = Field(default=32, description="Rows per step.")
    drop_last: Flag = Field(
        default=False, description="Leave out the last batch of an epoch if it is not full."
    )
    metrics: Texts = Field(
        default=(),
        description="Further metrics to compute after every epoch: any that mlpengine evaluate "
        "shows except cost; for numbers also pinball_LEVEL, such as pinball_0.9.",
    )
    freeze: Annotated[tuple[WholeNumber, ...], one_or_more(int)] = Field(
        default=(), description="Layers that are not trained: 0 is the first, -1 the last."
    )
    shards: Count = Field(
        default=1,
        description="Number of parts of a batch; their gradients are added. It must be a power of "
        "two and, under mpiexec, a multiple of the number of ranks.",
    )
    clip_norm: Positive | None = Field(
        default=None, description="Largest global gradient norm; larger gradients are scaled down."
    )
    on_nonfinite: Action = Field(
        default="stop",
        description="stop: end the run at a loss or gradient that is not finite; skip: skip the "
        "step.",
    )
    nonfinite_limit: Count = Field(default=10, description="Maximum skipped steps of a run.")
    average: Annotated[Averaging | None, switch(Averaging)] = Field(
        default=None,
        description="Evaluate and keep the moving average of the weights: false, true, or its "
        "settings.",
    )
    early_stopping: Annotated[EarlyStopping | None, switch(EarlyStopping)] = Field(
        default=None, description="Stop before the last epoch: false, true, or its settings."
    )
    threads: Literal["auto"] | Count = Field(
        default="auto",
        description="Threads of compiled steps, networks and predictions; auto: all useful cores. "
        "BLAS has one thread.",
    )
    backend: BackendName = Field(
        default="auto",
        description="What computes the steps; auto: compiled code in runs with much arithmetic, "
        "else NumPy.",
    )
    rematerialization: Rematerialization = Field(
        default="keep",
        description="keep: store activations for the backward pass; balanced: compute cheap ones "
        "again.",
    )
    dtype: Literal["float32", "float64"] = Field(
        default="float32", description="Type of weights, activations and gradients."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Refuse options that exclude each other."""
        if self.folds and self.seeds:
            raise rule("give folds or seeds, not both", "seeds")
        if self.members and len(set(self.members)) < len(self.members):
            raise rule("each type must be given once", "members")
        if len(self.members) == 1:
            only = self.members[0]
            key = {"linear": "model.hidden=[]", "plain": "data.encoding=none"}.get(only)
            fix = f"; for one, write members=null and {key or 'data.encoding=piecewise'}"
            fix = fix if only != "smooth" else "; smooth needs another: write ['plain', 'smooth']"
            raise rule(f"give two types or more (got {only!r}){fix}", "members")
        return self

    @property
    def fold_members(self) -> list[MemberType]:
        """The member types in each fold, in order; empty if all networks are of one type."""
        return in_order(self.members) if self.folds else []

    @property
    def trained_members(self) -> list[MemberType]:
        """The member types that are trained by the loop."""
        return trained(self.fold_members)


@dataclass(frozen=True, config=STRICT)
class TrainingSettings(TrainingOptions):
    """How a network is trained."""

    loss: LossOption = None
    optimizer: OptimizerOption = Field(default_factory=defaults(settings_class(Adam)))
    schedule: ScheduleOption = Field(default_factory=defaults(ConstantSchedule))
