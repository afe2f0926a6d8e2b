"""Which steps are looked at more closely."""

from mlpengine.errors import UsageError

EVERY, STRETCH, DENSE_STEPS = 50, 10, 2000
"""Steps between samples, how much rarer they become for short steps, and after how many."""

SHORT_STEP = 4_000_000
"""Parameters times rows below which a step is short: half a millisecond.

A sample costs 0.4 ms and a fifth of a step, with what the steps after it lose because the caches
hold other things.  At 50 steps apart that is 15 per cent of the smallest step (4-32-32-1, 32 rows);
the 2,000 steps for which it stays so take a tenth of a second."""

LOOKS = 5
"""Times from sample to sample that units are asked whether they fire, in the first 2,000 of short
steps; elsewhere once, with the sample."""


class Spacing:
    """The steps at which something is due: samples, looks at units, copies before a sample.

    Args:
        every: steps between samples; None for `EVERY`, stretched for short steps.

    Attributes:
        sample_at, look_at: the next step of either kind.
        due: the next step at which anything is to be done.
        stretch: factor between samples after `DENSE_STEPS`; 0 until `settle`.

    Raises: UsageError if `every` is below 1.
    """

    def __init__(self, every: int | None, *, looks: bool) -> None:
        if every is not None and every < 1:
            raise UsageError(f"diagnostics: every must be at least 1 (got {every})")
        self.every, self.stretch = every or EVERY, 1 if every else 0
        self._looks = looks
        self.plan(0)

    def settle(self, parameters: int, batch_size: int) -> None:
        """Decide, once, whether steps are short."""
        if not self.stretch:
            self.stretch = STRETCH if parameters * batch_size < SHORT_STEP else 1

    def plan(self, step: int) -> None:
        """Decide what comes next after `step` steps."""
        every, looks = self.every, 1
        if self.stretch > 1:
            dense = step < DENSE_STEPS
            every, looks = (every, LOOKS) if dense else (every * self.stretch, 1)
        self.sample_at = (step // every + 1) * every if step else 1
        look = max(1, every // looks)
        self.look_at = (step // look + 1) * look
        before = self.sample_at - 1
        self.due = before if before > step else self.sample_at
        if self._looks:
            self.due = min(self.due, self.look_at)
