"""How the rows of a table are divided."""

from typing import Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from mlpengine.core.fields import Fraction
from mlpengine.settings.base import STRICT, rule

VALIDATION = 0.15
"""Default share of validation rows, without folds and without a table of validation rows."""


@dataclass(frozen=True, config=STRICT)
class SplitSettings:
    """How rows are divided into training, validation and test rows."""

    validation: Fraction | None = Field(
        default=None,
        description="Share of rows that choose the best epoch; by default 0.15, or 0 with folds.",
    )
    test: Fraction = Field(default=0.15, description="Share of rows held out for the final score.")
    group: str | None = Field(
        default=None, description="Column of groups; the rows of a group stay together."
    )
    time: str | None = Field(
        default=None,
        description="Column of times: the newest rows are test rows. The time itself is no "
        "feature, but the hour, weekday and season of a date are.",
    )

    @model_validator(mode="after")
    def _one_division(self) -> Self:
        if self.group and self.time:
            raise rule("give group or time, not both", "time")
        return self
