"""Learning-rate schedules: functions from the number of steps so far to a factor of the base rate.

Every schedule is ``schedule(step) -> factor``; the first step is step 0.  With ``warmup_steps=w``
the schedule starts after w steps, and before that its first factor is multiplied by a ramp,
(step + 1) / (w + 1), which is not 0 at the first step (Goyal et al. 2017, arXiv 1706.02677, section
2.2).  Below, s = max(0, step - w), and a `total_steps` of N counts the warm-up: T = N - w.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import cos, inf, log2, pi
from typing import Any

import numpy as np

from mlpengine.errors import UsageError
from mlpengine.locks import cached_property
from mlpengine.optim._checks import count, number, positive
from mlpengine.optim._state import State, checked_state
from mlpengine.spec import Array

AT_ONCE = 256
"""Number of steps whose factors are computed at once."""

MAX_CYCLES = 30
"""Maximum waves of a `CosLogSchedule`: with more, the first one is shorter than any step."""


@dataclass(frozen=True)
class Schedule(ABC):
    """Base class: the warm-up ramp times the schedule after it."""

    warmup_steps: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        count(self._where, "warmup_steps", self.warmup_steps)
        self._check()

    def __call__(self, step: int) -> float:
        """Return the factor of the base learning rate after `step` steps."""
        left = self.warmup_steps - step
        if left <= 0:
            return self._factor(-left)
        return (step + 1) / (self.warmup_steps + 1) * self._factor(0)

    @property
    def _where(self) -> str:
        return type(self).__name__

    @abstractmethod
    def _check(self) -> None:
        """Raise UsageError if a field is out of range."""

    @abstractmethod
    def _factor(self, step: int) -> float:
        """Return the factor `step` steps after the warm-up."""


@dataclass(frozen=True)
class _TimedSchedule(Schedule):
    """Base class of schedules that end; after `total_steps` the factor is constant."""

    total_steps: int

    @cached_property
    def _span(self) -> int:
        """Steps after the warm-up."""
        return self.total_steps - self.warmup_steps

    def _check(self) -> None:
        count(self._where, "total_steps", self.total_steps, minimum=1)
        if self._span < 1:
            raise UsageError(
                f"{self._where}: total_steps must be more than warmup_steps "
                f"(total_steps {self.total_steps}, warmup_steps {self.warmup_steps})"
            )


@dataclass(frozen=True)
class ConstantSchedule(Schedule):
    """The base rate throughout: 1."""

    def _check(self) -> None:
        pass

    def _factor(self, step: int) -> float:
        return 1.0


@dataclass(frozen=True)
class StepSchedule(Schedule):
    """A drop after each `every` steps: factor ** (s // every).

    Source: He et al. 2016, arXiv 1512.03385, section 3.4.
    """

    every: int
    factor: float = 0.1

    def _check(self) -> None:
        count(self._where, "every", self.every, minimum=1)
        positive(self._where, "factor", self.factor)

    def _factor(self, step: int) -> float:
        return float(self.factor ** (step // self.every))


@dataclass(frozen=True)
class ExponentialSchedule(Schedule):
    """A constant ratio from step to step: decay ** s.

    Source: Darken and Moody 1990, "Note on learning rate schedules for stochastic optimization".
    """

    decay: float

    def _check(self) -> None:
        if positive(self._where, "decay", self.decay) > 1.0:
            raise UsageError(f"{self._where}: decay must be at most 1 (got {self.decay!r})")

    def _factor(self, step: int) -> float:
        return float(self.decay**step)


@dataclass(frozen=True)
class LinearSchedule(_TimedSchedule):
    """A straight line to `final`: 1 + (final - 1) * min(1, s / T).

    Source: Li et al. 2020, arXiv 1905.04753, section 2.
    """

    final: float = 0.0

    def _check(self) -> None:
        super()._check()
        number(self._where, "final", self.final, minimum=0.0)

    def _factor(self, step: int) -> float:
        return 1.0 + (self.final - 1.0) * min(1.0, step / self._span)


@dataclass(frozen=True)
class CosineSchedule(_TimedSchedule):
    """Half a cosine to `final`: final + (1 - final) * (1 + cos(pi * min(1, s / T))) / 2.

    Source: Loshchilov and Hutter 2017, arXiv 1608.03983, equation 5, without restarts.
    """

    final: float = 0.0

    def _check(self) -> None:
        super()._check()
        number(self._where, "final", self.final, minimum=0.0)

    def _factor(self, step: int) -> float:
        return _cosine(1.0, self.final, step / self._span)


@dataclass(frozen=True)
class FlatCosineSchedule(_TimedSchedule):
    """1 in the first half, then half a cosine to 0 with its end at s = T.

    Source: Holzmueller et al. 2024, arXiv 2407.04491, section 3.
    """

    def _factor(self, step: int) -> float:
        return _cosine(1.0, 0.0, max(0.0, 2.0 * step / self._span - 1.0))


@dataclass(frozen=True)
class CosLogSchedule(_TimedSchedule):
    """Waves from 0 to 1 and back that grow longer: (1 - cos(2 pi log2(1 + (2^cycles - 1) t))) / 2.

    t is min(1, s / T); each wave takes twice as many steps as the one before.

    Source: Holzmueller et al. 2024, arXiv 2407.04491, section 3.
    """

    cycles: int = 4

    def _check(self) -> None:
        super()._check()
        if count(self._where, "cycles", self.cycles, minimum=1) > MAX_CYCLES:
            raise UsageError(
                f"{self._where}: cycles must be at most {MAX_CYCLES} (got {self.cycles!r})"
            )

    def _factor(self, step: int) -> float:
        waves = log2(1.0 + (2**self.cycles - 1) * min(1.0, step / self._span))
        return (1.0 - cos(2.0 * pi * waves)) / 2.0


@dataclass(frozen=True)
class OneCycleSchedule(_TimedSchedule):
    """Up from `initial` to 1 and down to `final`, each along half a cosine.

    The peak is at s = rise * T - 1 and the end at s = T - 1, as in PyTorch's OneCycleLR, whose
    ``max_lr`` is the base rate here, ``1 / div_factor`` is `initial` and
    ``1 / (div_factor * final_div_factor)`` is `final`.

    Source: Smith and Topin 2018, arXiv 1708.07120, section 3, with cosines instead of lines.
    """

    rise: float = 0.3
    initial: float = 1 / 25
    final: float = 1 / 250_000

    def _check(self) -> None:
        super()._check()
        number(self._where, "rise", self.rise, minimum=0.0, below=1.0)
        number(self._where, "initial", self.initial, minimum=0.0)
        number(self._where, "final", self.final, minimum=0.0)

    def _factor(self, step: int) -> float:
        last = self._span - 1.0
        peak = max(0.0, self.rise * self._span - 1.0)
        if step < peak:
            return _cosine(self.initial, 1.0, step / peak)
        return _cosine(1.0, self.final, (step - peak) / (last - peak or 1.0))


@dataclass
class _PlateauState:
    """The state of a plateau schedule."""

    scale: float = 1.0
    best: float = inf
    bad: int = 0
    resting: int = 0


@dataclass(frozen=True)
class PlateauSchedule(Schedule):
    """A drop whenever a metric has stopped falling; pass the metric to `observe`.

    A value is better if it is below the best by more than ``threshold * abs(best)``.  After more
    than `patience` values in a row that are not, the factor is multiplied by `factor` (but not
    below `min_factor`), and the next `cooldown` values are not counted.  NaN is never better.  For
    a metric that should rise, observe its negative.

    The fields do not change; the state is in `state_dict` and is saved with the optimizer's.  Use
    one for each optimizer.
    Source: PyTorch's ReduceLROnPlateau, mode min, with a threshold that also works below zero.
    """

    patience: int = 10
    factor: float = 0.1
    threshold: float = 1e-4
    cooldown: int = 0
    min_factor: float = 0.0
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
        """Set the state that `state_dict` returned; raise CheckpointError if it does not fit."""
        state = checked_state(self._where, self.state_dict(), state)
        vars(self._state).update(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_state": replace(self._state)}

    def _check(self) -> None:
        count(self._where, "patience", self.patience)
        if positive(self._where, "factor", self.factor) >= 1.0:
            raise UsageError(f"{self._where}: factor must be less than 1 (got {self.factor!r})")
        number(self._where, "threshold", self.threshold, minimum=0.0, below=1.0)
        count(self._where, "cooldown", self.cooldown)
        number(self._where, "min_factor", self.min_factor, minimum=0.0)

    def _factor(self, step: int) -> float:
        return self._state.scale


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": lambda total, epoch, **given: ConstantSchedule(**given),
    "step": lambda total, epoch, every_epochs=10, factor=0.5, **given: StepSchedule(
        max(1, round(every_epochs * epoch)), factor, **given
    ),
    "exponential": lambda total, epoch, factor=0.95, **given: ExponentialSchedule(
        factor ** (1.0 / epoch), **given
    ),
    "cosine": lambda total, epoch, **given: CosineSchedule(total, **given),
    "flat_cosine": lambda total, epoch, **given: FlatCosineSchedule(total, **given),
    "coslog": lambda total, epoch, **given: CosLogSchedule(total, **given),
    "linear": lambda total, epoch, **given: LinearSchedule(total, **given),
    "one_cycle": lambda total, epoch, **given: OneCycleSchedule(total, **given),
    "plateau": lambda total, epoch, patience=5, factor=0.5, **given: PlateauSchedule(
        patience, factor, **given
    ),
}
"""The schedules by their names in configs, from the steps of a training and of an epoch."""


def named_schedule(
    name: str, total_steps: int, steps_per_epoch: int, *, warmup_steps: int = 0, **settings: Any
) -> Schedule | None:
    """Return a schedule with the settings of configs, which count epochs.

    None for a factor that is always 1.  Raises: UsageError for an unknown name, or settings that
    do not fit.
    """
    if name not in SCHEDULES:
        known = ", ".join(SCHEDULES)
        raise UsageError(f"schedule: must be one of {known}, or a function (got {name!r})")
    if name == "constant" and not warmup_steps:
        return None
    return SCHEDULES[name](total_steps, steps_per_epoch, warmup_steps=warmup_steps, **settings)


def factors(schedule: Callable[[int], float], steps: range) -> Array:
    """Return the factors after each of these numbers of steps, (steps,) of float64, to be read.

    Those of a schedule that follows from the step alone are computed many at once, and kept.
    """
    if not isinstance(schedule, Schedule) or isinstance(schedule, PlateauSchedule):
        return np.array([*map(schedule, steps)], np.float64)
    first, last = steps.start // AT_ONCE, (steps.stop - 1) // AT_ONCE
    try:
        parts = [_factors(schedule, number) for number in range(first, last + 1)]
    except OverflowError:  # which a step that is never made may have
        return np.array([*map(schedule, steps)], np.float64)
    known = parts[0] if first == last else np.concatenate(parts)
    return known[steps.start - first * AT_ONCE : steps.stop - first * AT_ONCE]


@lru_cache(maxsize=16)
def _factors(schedule: Schedule, number: int) -> Array:
    """Return the factors after number * AT_ONCE steps and more."""
    start, warm = number * AT_ONCE, schedule.warmup_steps
    steps = range(start, start + AT_ONCE)
    each = map(schedule, steps)
    if start >= warm:  # half the time
        each = map(schedule._factor, range(start - warm, start - warm + AT_ONCE))
    return np.array([*each], np.float64)


def _cosine(first: float, last: float, progress: float) -> float:
    """Return the value between `first` and `last` along half a cosine; past the end, `last`."""
    return last + (first - last) * (1.0 + cos(pi * progress if progress < 1.0 else pi)) / 2.0
