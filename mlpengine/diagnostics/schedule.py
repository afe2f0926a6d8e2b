"""The choice of the steps that are measured: `SamplingSchedule`."""

from mlpengine.core.errors import UsageError
from mlpengine.diagnostics.thresholds import DENSE_STEPS, EVERY, SHORT_STEP, STRETCH


class SamplingSchedule:
    """Decides which steps are samples; the parameters are copied one step before a sample.

    Args:
        every: steps between samples; None means `EVERY`, later multiplied by `stretch`.

    Attributes:
        sample_at: step of the next sample.
        due: next step with a sample or a copy.
        stretch: factor of `every` after `DENSE_STEPS` steps; 0 until `set_step_size`.

    Raises: UsageError if `every` is below 1.
    """

    def __init__(self, every: int | None) -> None:
        if every is not None and every < 1:
            raise UsageError(f"diagnostics: every must be at least 1 (got {every})")
        self.every, self.stretch = every or EVERY, 1 if every else 0
        self.plan(0)

    def set_step_size(self, parameters: int, batch_size: int) -> None:
        """Set `stretch`, which is larger for short steps; later calls do nothing."""
        if not self.stretch:
            self.stretch = STRETCH if parameters * batch_size < SHORT_STEP else 1

    def plan(self, step: int) -> None:
        """Set `sample_at` and `due` after `step` steps."""
        every = self.every
        if self.stretch > 1 and step >= DENSE_STEPS:
            every *= self.stretch
        self.sample_at = (step // every + 1) * every if step else 1
        before = self.sample_at - 1
        self.due = before if before > step else self.sample_at
