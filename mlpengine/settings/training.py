"""How a network is trained."""

from collections.abc import Iterable
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from mlpengine.backends import BackendName
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
from mlpengine.tape.rematerialization import Rematerialization

MemberType: TypeAlias = Literal["plain", "piecewise", "linear", "smooth"]
"""The type of an ensemble member.  Each fold has one network of each type."""

LINEAR: MemberType = "linear"
"""The type of linear models; their weights are computed after the training of the other types."""

SMOOTH: MemberType = "smooth"
"""The type of small tanh networks.  They are trained after the others, on all rows in each step."""

_LAST = (LINEAR, SMOOTH)

Action: TypeAlias = Literal["stop", "skip"]

MAX_NETWORKS = 1_000
"""Largest number of networks that are trained together."""

FEWEST_WAITED = 6
"""Minimum number of epochs for the patience `auto`."""

Several: TypeAlias = Annotated[int, Limits(at_least=2, at_most=MAX_NETWORKS, whole=True)]


def in_order(members: Iterable[MemberType]) -> list[MemberType]:
    """Return member types in the order of their networks: linear and smooth are last."""
    return sorted(members, key=lambda one: _LAST.index(one) if one in _LAST else -1)


def trained(members: Iterable[MemberType]) -> list[MemberType]:
    """Return the member types that the training loop trains."""
    return [one for one in members if one not in _LAST]


@dataclass(frozen=True, config=STRICT)
class EarlyStopping:
    """When to end before the last epoch."""

    patience: Literal["auto"] | Count = Field(
        default=20,
        description="Epochs without a better value before stopping; auto: as many as the best "
        f"epoch's number, at least {FEWEST_WAITED}.",
    )
    monitor: str = Field(
        default="loss",
        description="The validation metric to watch: any that training.metrics may name.",
    )
    min_delta: NonNegative = Field(default=0.0, description="Smallest improvement that counts.")

    def epochs_after(self, best: int) -> int:
        """Return the patience in epochs if `best` is the number of the best epoch."""
        return max(best, FEWEST_WAITED) if self.patience == "auto" else self.patience


@dataclass(frozen=True, config=STRICT)
class Averaging:
    """How weights are averaged over the steps."""

    decay: Fraction = Field(default=0.99, description="Share of the average kept at a step.")


@dataclass(frozen=True, config=STRICT)
class ThresholdChoice:
    """How the threshold of a model of two classes is chosen."""

    metric: str | None = Field(
        default=None, description="The metric of predicted classes to be best, such as macro_f1."
    )
    costs: dict[Literal["false_negative", "false_positive"], NonNegative] | None = Field(
        default=None,
        description="Costs of a false negative and a false positive, by default 1; the threshold "
        "has the lowest mean cost.",
    )
    positive: Flag | int | float | str | None = Field(
        default=None,
        description="The class that is predicted above the threshold; by default the second one.",
    )

    @model_validator(mode="after")
    def _one_aim(self) -> Self:
        if (self.metric is None) == (self.costs is None):
            raise rule("give metric or costs, one of both")
        costs = self.costs or {}
        if len(costs) == 2 and not any(costs.values()):
            raise rule("one of the costs must be above 0", "costs")
        return self


@dataclass(frozen=True, config=STRICT)
class TrainingOptions:
    """Length and details of training."""

    folds: Several | None = Field(
        default=None,
        description="Number of networks, each trained without one fold of the rows; the other "
        "folds choose its best epoch; the prediction is their mean.",
    )
    seeds: Several | None = Field(
        default=None,
        description="Number of networks that differ only in their seeds; the prediction is their "
        "mean.",
    )
    members: Annotated[tuple[MemberType, ...], one_or_more(MemberType)] = Field(
        default=(),
        description="Types of ensemble members, one of each per fold (ignored without folds). "
        "plain reads numbers, piecewise also their quantile bins; "
        "linear is a linear model, smooth a small tanh network; each step of its training has "
        "all rows (loss mse). Weights in the mean are chosen on out-of-fold rows.",
    )
    calibration: Literal["temperature", "none"] = Field(
        default="none",
        description="temperature: divide logits by a number that is fitted on out-of-fold rows or, "
        "without folds, on validation rows.",
    )
    threshold: ThresholdChoice | None = Field(
        default=None,
        description="How to choose the probability above which the positive class is predicted, on "
        "out-of-fold rows or, without folds, on validation rows. By default it is 0.5.",
    )
    epochs: Count = Field(default=100, description="Passes over the training rows, at most.")
    batch_size: Count = Field(default=32, description="Rows per step.")
    drop_last: Flag = Field(
        default=False, description="Whether an epoch leaves out rows that do not fill a batch."
    )
    metrics: Texts = Field(
        default=(),
        description="Further metrics after every epoch: any that evaluate shows, or, of numbers, "
        "pinball_LEVEL such as pinball_0.9.",
    )
    freeze: Annotated[tuple[WholeNumber, ...], one_or_more(int)] = Field(
        default=(), description="Layers that are not trained: 0 is the first, -1 the last."
    )
    shards: Count = Field(
        default=1,
        description="Parts of a batch; their gradients are added. A power of two, and a multiple "
        "of the ranks under mpiexec.",
    )
    clip_norm: Positive | None = Field(
        default=None, description="Largest global gradient norm; larger gradients are scaled down."
    )
    on_nonfinite: Action = Field(
        default="stop",
        description="End, or skip a step, when a loss or gradient is not finite.",
    )
    nonfinite_limit: Count = Field(default=10, description="Steps that may be skipped in a run.")
    average: Annotated[Averaging | None, switch(Averaging)] = Field(
        default=None,
        description="Evaluate and keep the moving average of the weights: false, true, or its "
        "settings.",
    )
    early_stopping: Annotated[EarlyStopping | None, switch(EarlyStopping)] = Field(
        default=None, description="When to end before the last epoch: false, true, or its settings."
    )
    threads: Literal["auto"] | Count = Field(
        default="auto",
        description="Threads of BLAS or compiled steps; auto: 1 for BLAS, else all useful cores.",
    )
    backend: BackendName = Field(
        default="auto",
        description="Code of the steps; auto: compiled code in runs of much arithmetic, else "
        "NumPy.",
    )
    rematerialization: Rematerialization = Field(
        default="keep",
        description="Keep activations for backward, or compute cheap ones again (balanced).",
    )
    dtype: Literal["float32", "float64"] = Field(
        default="float32", description="Type of all numbers."
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
            fix = "members=null" + ", and model.hidden=[]" * (only == "linear")
            raise rule(f"give two types or more (got {only!r}); for one, write {fix}", "members")
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
