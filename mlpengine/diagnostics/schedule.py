"""Which steps are measured: `SamplingSchedule`."""

from mlpengine.errors import UsageError

EVERY, STRETCH, DENSE_STEPS = 50, 10, 2000
"""Steps between samples; for short steps, the factor applied to them and the step it starts at."""

SHORT_STEP = 4_000_000
"""Parameters times rows below which a step is short: half a millisecond.

A sample costs 0.4 ms, and the next step a fifth of its time, because the sample evicts training's
buffers from the caches.  Every 50 steps, that is 15 % of the smallest step (4-32-32-1, 32 rows);
the 2,000 steps with this interval take a tenth of a second."""

CHECKS = 2
"""Checks of units per sample in the first 2,000 steps, if steps are short; later one per sample.

Each ends a call of many steps.  With five, `configs/digits.yaml` takes 2 % longer, and the corpus
of diagnostics draws the same verdicts."""


class SamplingSchedule:
    """The steps at which work is due: samples, checks of units, copies before a sample.

    Args:
        every: steps between samples; None for `EVERY`, stretched for short steps.
        checks_units: whether the network has units to check between samples.

    Attributes:
        sample_at, check_at: the next step of either kind.
        due: the next step at which anything is due.
        copies_only: whether that is a copy of the parameters, which needs no buffers of the step.
        stretch: factor between samples after `DENSE_STEPS`; 0 until `set_step_size`.

    Raises: UsageError if `every` is below 1.
    """

    def __init__(self, every: int | None, *, checks_units: bool) -> None:
        if every is not None and every < 1:
            raise UsageError(f"diagnostics: every must be at least 1 (got {every})")
        self.every, self.stretch = every or EVERY, 1 if every else 0
        self._checks_units = checks_units
        self.plan(0)

    def set_step_size(self, parameters: int, batch_size: int) -> None:
        """Decide, once, whether steps are short."""
        if not self.stretch:
            self.stretch = STRETCH if parameters * batch_size < SHORT_STEP else 1

    def plan(self, step: int) -> None:
        """Compute what is due next after `step` steps."""
        every, checks = self.every, 1
        if self.stretch > 1:
            dense = step < DENSE_STEPS
            every, checks = (every, CHECKS) if dense else (every * self.stretch, 1)
        self.sample_at = (step // every + 1) * every if step else 1
        interval = max(1, every // checks)
        self.check_at = (step // interval + 1) * interval
        before = self.sample_at - 1
        self.due = before if before > step else self.sample_at
        if self._checks_units:
            self.due = min(self.due, self.check_at)
        is_check = self._checks_units and self.due == self.check_at
        self.copies_only = self.due < self.sample_at and not is_check
