"""How the rows of a table are divided."""

from collections.abc import Iterator
from dataclasses import dataclass

from mlpengine.core.fields import Checked, Fraction

VALIDATION = 0.15
"""Share of rows for validation, unless given or replaced by folds or rows of their own."""


@dataclass(frozen=True)
class SplitSettings(Checked):
    """How rows are divided; those in no other part are training rows.

    Args:
        validation: Share of rows that choose the best epoch; by default 0.15, with folds none.
        test: Share of rows held out for the final score.
        stratify: Keep each class's share (classification).
        group: Column whose equal values stay together.
        time: Column to order by: the newest rows are the test. No feature; of dates the hour,
            weekday and season are.
    """

    validation: Fraction | None = None
    test: Fraction = 0.15
    stratify: bool = True
    group: str | None = None
    time: str | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield that there are two ways to divide."""
        if self.group and self.time:
            yield "time", "give group or time, not both"
