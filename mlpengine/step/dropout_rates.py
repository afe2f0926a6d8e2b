"""Dropout of a training step: random bytes of each step, and scheduled rates."""

from collections.abc import Iterator

from mlpengine.core.errors import UsageError
from mlpengine.core.wording import plural, quoted
from mlpengine.nn.recording import Recordable, Recording
from mlpengine.ops.philox import scaled_limit
from mlpengine.optim.schedules import ScheduleLike, factor_of


def checked_schedule(schedule: ScheduleLike | None) -> ScheduleLike | None:
    """Return a dropout schedule.  Raises: UsageError for other values."""
    if schedule is None or callable(schedule):
        return schedule
    raise UsageError(
        f"training step: dropout_schedule must be callable (got {quoted(schedule)}), such as "
        "CosineSchedule(1000)"
    )


class DropoutRates:
    """The dropout rates of a network in each step.

    Args:
        schedule: a function from the number of completed steps to a factor (0 to 1) of the rates.
    """

    def __init__(
        self, mlp: Recordable, recording: Recording, schedule: ScheduleLike | None
    ) -> None:
        self._rng, self._rates, self._schedule = mlp.rng, recording.rates, schedule

    def begin(self, steps: int) -> None:
        """Set rates and random stream for the step after `steps` steps.  Raises: UsageError."""
        self._rng.step = steps
        if self._schedule is not None:
            self._rng.scale_rates(self._share(steps))

    def runs(self, first: int, count: int) -> Iterator[slice]:
        """Yield slices of the next `count` steps (after `first`) with constant rates."""
        if self._schedule is None:
            yield slice(0, count)
            return
        shares = [self._share(first + i) for i in range(count)]
        limits = [[scaled_limit(rate, share) for rate in self._rates] for share in shares]
        start = 0
        for i in range(1, count + 1):
            if i == count or limits[i] != limits[start]:
                yield slice(start, i)
                start = i

    def _share(self, steps: int) -> float:
        share = 1.0 if self._schedule is None else factor_of(self._schedule, steps)
        if not 0.0 <= share <= 1.0:
            raise UsageError(
                f"training step: dropout_schedule must lie in 0 to 1 "
                f"(got {share:g} after {plural(steps, 'step')})"
            )
        return share
