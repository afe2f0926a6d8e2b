"""Learning-rate schedules: functions from the number of completed steps to a factor of `lr`.

Every schedule is ``schedule(step) -> factor``; the first step is step 0.  An epoch has
`steps_per_epoch` steps, by default one.  With a warm-up of w steps, the schedule starts after w
steps.  During the warm-up, the factor is the schedule's first factor times (step + 1) / (w + 1)
(Goyal et al. 2017, arXiv 1706.02677, section 2.2, but not 0 at the first step).  In the docstrings
below, s = max(0, step - w) and T = `total_steps` - w; `total_steps` includes the warm-up.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import cos, inf, nan, pi
from typing import Annotated, Any, ClassVar, Self, TypeAlias

from mlpengine.core.errors import UsageError
from mlpengine.core.fields import (
    Fraction,
    Given,
    Limits,
    NonNegative,
    Positive,
    as_float,
    check_options,
)
from mlpengine.core.fork_locks import cached_property
from mlpengine.optim._state import State, matching_state

ScheduleLike: TypeAlias = Callable[[int], float]
"""A function from the number of completed steps to a factor of the learning rate."""

SCHEDULES: dict[str, type["Schedule"]] = {}
"""The schedules by the names that configs and estimators use."""


@dataclass(frozen=True)
class Schedule(ABC):
    """Base class of schedules: a linear warm-up, then the factors of the subclass.

    A schedule from a config does not know the length of the run; `over` returns a copy that does.
    """

    name: ClassVar[str] = ""

    warmup_epochs: Annotated[
        NonNegative, "Epochs at the start in which the learning rate rises from near zero."
    ] = field(default=0.0, kw_only=True)
    steps_per_epoch: Annotated[int, Limits(at_least=0, whole=True), Given, "Steps of an epoch."] = (
        field(default=1, kw_only=True)
    )

    def __init_subclass__(cls, *, name: str = "", **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if name:
            cls.name, SCHEDULES[name] = name, cls

    def __post_init__(self) -> None:
        check_options(self)

    def __call__(self, step: int) -> float:
        """Return the factor of the learning rate after `step` steps."""
        left = self.warmup_steps - step
        if left <= 0:
            return self._factor(-left)
        return (step + 1) / (self.warmup_steps + 1) * self._factor(0)

    @cached_property
    def warmup_steps(self) -> int:
        """Steps of the warm-up."""
        return round(self.warmup_epochs * self.steps_per_epoch)

    def over(self, total_steps: int, steps_per_epoch: int) -> "Schedule | None":
        """Return the schedule for a run of `total_steps` steps; None if the factor is always 1.

        Raises: UsageError if the warm-up is as long as the run.
        """
        return replace(self, steps_per_epoch=steps_per_epoch)

    @abstractmethod
    def _factor(self, step: int) -> float:
        """Return the factor `step` steps after the warm-up."""


@dataclass(frozen=True)
class _TimedSchedule(Schedule):
    """Base class of schedules that end after `total_steps`; the factor is then constant."""

    total_steps: Annotated[
        int,
        Limits(at_least=0, whole=True),
        Given,
        "Steps of the training, including the warm-up; 0 if not yet known.",
    ] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.total_steps:
            _ = self._span  # raises if the warm-up is too long

    def over(self, total_steps: int, steps_per_epoch: int) -> Self:
        return replace(self, total_steps=total_steps, steps_per_epoch=steps_per_epoch)

    @cached_property
    def _span(self) -> int:
        """Number of steps after the warm-up."""
        name, span = type(self).__name__, self.total_steps - self.warmup_steps
        if not self.total_steps:
            raise UsageError(f"{name}: total_steps is needed, such as {name}(total_steps=1000)")
        if span < 1:
            raise UsageError(
                f"{name}: total_steps must be more than the steps of the warm-up "
                f"(total_steps {self.total_steps}, warm-up {self.warmup_steps})"
            )
        return span


def factor_of(schedule: ScheduleLike, step: int) -> float:
    """Return the factor of a step; NaN if the schedule returns no number."""
    factor = schedule(step)
    try:
        return as_float(factor)
    except (TypeError, ValueError):
        return nan


def factors_of(schedule: ScheduleLike, steps: range) -> Iterable[float]:
    """Return the factor of each step."""
    if isinstance(schedule, _TimedSchedule):
        return _timed_factors(schedule, steps)
    return (factor_of(schedule, step) for step in steps)


@lru_cache(2)
def _timed_factors(schedule: _TimedSchedule, steps: range) -> tuple[float, ...]:
    """Return the factor of each step, cached for networks that train in turn."""
    return tuple(map(schedule, steps))


@dataclass(frozen=True)
class ConstantSchedule(Schedule, name="constant"):
    """A constant learning rate: the factor is 1."""

    def over(self, total_steps: int, steps_per_epoch: int) -> Schedule | None:
        """Return the schedule of a run; None without a warm-up."""
        run = super().over(total_steps, steps_per_epoch)
        return run if run and run.warmup_steps else None

    def _factor(self, step: int) -> float:
        return 1.0


@dataclass(frozen=True)
class StepSchedule(Schedule, name="step"):
    """Multiplication by `factor` every `every_epochs` epochs: factor ** (s // every).

    `every` is the number of steps in `every_epochs`, at least 1.

    Source: He et al. 2016, arXiv 1512.03385, section 3.4.
    """

    every_epochs: Annotated[Positive, "Epochs between two drops."] = 10.0
    factor: Annotated[Positive, "Factor of the learning rate at a drop."] = 0.1

    @cached_property
    def _every(self) -> int:
        return max(1, round(self.every_epochs * self.steps_per_epoch))

    def _factor(self, step: int) -> float:
        return float(self.factor ** (step // self._every))


@dataclass(frozen=True)
class ExponentialSchedule(Schedule, name="exponential"):
    """Decay by `factor` per epoch: factor ** (s / steps_per_epoch).

    Source: Darken and Moody 1990, "Note on learning rate schedules for stochastic optimization".
    """

    factor: Annotated[
        float, Limits(above=0, at_most=1), "Factor of the learning rate per epoch."
    ] = 0.95

    @cached_property
    def _ratio(self) -> float:
        return float(self.factor ** (1.0 / self.steps_per_epoch))

    def _factor(self, step: int) -> float:
        return float(self._ratio**step)


@dataclass(frozen=True)
class LinearSchedule(_TimedSchedule, name="linear"):
    """A line from 1 to `final`: 1 + (final - 1) * min(1, s / T).

    Source: Li et al. 2020, arXiv 1905.04753, section 2.
    """

    final: Annotated[NonNegative, "Share of the base learning rate at the end."] = 0.0

    def _factor(self, step: int) -> float:
        return 1.0 + (self.final - 1.0) * min(1.0, step / self._span)


@dataclass(frozen=True)
class CosineSchedule(_TimedSchedule, name="cosine"):
    """Half a cosine from 1 to `final`: final + (1 - final) * (1 + cos(pi * min(1, s / T))) / 2.

    Source: Loshchilov and Hutter 2017, arXiv 1608.03983, equation 5, without restarts.
    """

    final: Annotated[NonNegative, "Share of the base learning rate at the end."] = 0.0

    def _factor(self, step: int) -> float:
        return _cosine(1.0, self.final, step / self._span)


@dataclass(frozen=True)
class OneCycleSchedule(_TimedSchedule, name="one_cycle"):
    """A rise from `initial` to 1, then a fall to `final`, each along half a cosine.

    The peak is at s = rise * T - 1 and the end at s = T - 1, as in PyTorch's OneCycleLR with
    ``max_lr`` = lr, ``1 / div_factor`` = `initial` and
    ``1 / (div_factor * final_div_factor)`` = `final`.

    Source: Smith and Topin 2018, arXiv 1708.07120, section 3, with cosines instead of lines.
    """

    rise: Annotated[Fraction, "Share of the steps before the highest learning rate."] = 0.3
    initial: Annotated[NonNegative, Given, "Share of the base learning rate at the start."] = 1 / 25
    final: Annotated[NonNegative, Given, "Share of the base learning rate at the end."] = (
        1 / 250_000
    )

    def _factor(self, step: int) -> float:
        last = self._span - 1.0
        peak = max(0.0, self.rise * self._span - 1.0)
        if step < peak:
            return _cosine(self.initial, 1.0, step / peak)
        return _cosine(1.0, self.final, (step - peak) / (last - peak or 1.0))


@dataclass
class _PlateauState:
    scale: float = 1.0
    best: float = inf
    bad: int = 0
    resting: int = 0


@dataclass(frozen=True)
class PlateauSchedule(Schedule, name="plateau"):
    """Multiplication by `factor` when a metric stops improving; pass the metric to `observe`.

    A value is better if it is below the best value by more than ``threshold * abs(best)``.  After
    more than `patience` values in a row without improvement, the scale is multiplied by `factor`,
    but not below `min_factor`.  Then the next `cooldown` values are ignored.  NaN is never better.
    For a metric that should rise, observe its negative.

    The optimizer saves the state of the schedule, `state_dict`, with its own state.  Each optimizer
    needs its own schedule object.

    Source: PyTorch's ReduceLROnPlateau, mode min; the threshold also works for negative values.
    """

    patience: Annotated[
        int, Limits(at_least=0, whole=True), "Epochs without a better value before a drop."
    ] = 10
    factor: Annotated[float, Limits(above=0, below=1), "Factor of the learning rate at a drop."] = (
        0.1
    )
    threshold: Annotated[Fraction, Given, "Minimum improvement, as a share of the best value."] = (
        1e-4
    )
    cooldown: Annotated[
        int, Limits(at_least=0, whole=True), Given, "Epochs after a drop that are ignored."
    ] = 0
    min_factor: Annotated[NonNegative, Given, "Smallest factor of the learning rate."] = 0.0
    _state: _PlateauState = field(
        default_factory=_PlateauState, init=False, repr=False, compare=False
    )

    def observe(self, metric: float) -> bool:
        """Process a value of the metric; return whether the learning rate dropped."""
        state = self._state
        better = metric < state.best - self.threshold * abs(state.best) or (
            state.best == inf and metric < inf
        )
        state.best = float(metric) if better else state.best
        state.bad = 0 if better else state.bad + 1
        if state.resting:
            state.resting -= 1
            state.bad = 0
        if state.bad <= self.patience:
            return False
        state.bad, state.resting = 0, self.cooldown
        before, state.scale = state.scale, max(self.min_factor, state.scale * self.factor)
        return state.scale < before

    def state_dict(self) -> State:
        """Return the state: ``scale``, ``best``, ``bad`` and ``resting``."""
        return dict(vars(self._state))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a `state_dict`.  Raises: CheckpointError if it does not fit."""
        state = matching_state(type(self).__name__, self.state_dict(), state)
        vars(self._state).update(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_state": replace(self._state)}

    def _factor(self, step: int) -> float:
        return self._state.scale


def _cosine(first: float, last: float, progress: float) -> float:
    """Return a value between `first` and `last` along half a cosine; after the end, `last`."""
    return last + (first - last) * (1.0 + cos(pi * progress if progress < 1.0 else pi)) / 2.0
