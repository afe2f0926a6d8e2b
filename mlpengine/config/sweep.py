"""The section `sweep`: which keys vary over which values, and how trials are chosen."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, model_validator
from pydantic.dataclasses import dataclass

from mlpengine.core.fields import Limits, Positive
from mlpengine.settings.base import STRICT, rule

SWEEP, SETTINGS = "sweep.yaml", "sweep.json"
"""Files in a sweep's directory: the given config, and its name, overrides and digest."""

BEST = "best.yaml"
"""The config of the best trial."""

KINDS = ("log", "range", "int", "choice")
"""The ways to give the values of a key."""

Bounds = Annotated[list[Annotated[float, Strict()]], Field(min_length=2, max_length=2)]
WholeBounds = Annotated[list[Annotated[int, Strict()]], Field(min_length=2, max_length=2)]
Choices = Annotated[list[Any], Field(min_length=1)]


@dataclass(frozen=True, config=STRICT)
class SpaceSection:
    """The values to try for one key: exactly one of the four fields."""

    log: Bounds | None = Field(default=None, description="[low, high], sampled on a log scale.")
    range: Bounds | None = Field(default=None, description="[low, high], sampled uniformly.")
    int: WholeBounds | None = Field(default=None, description="[low, high], whole numbers.")
    choice: Choices | None = Field(default=None, description="A list of values.")

    @model_validator(mode="after")
    def _one_kind(self) -> "SpaceSection":
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            names = ", ".join(KINDS)
            raise rule(f"give one of {names} (got {', '.join(given) or 'none'})")
        if self.choice is None:
            low, high = getattr(self, given[0])
            if not low < high:
                raise rule(f"low must be below high (got {low:g}, {high:g})", given[0])
            if self.log and low <= 0:
                raise rule(f"low must be greater than 0 (got {low:g})", "log")
        return self

    @property
    def ends(self) -> Sequence[Any]:
        """The values to check: both bounds of a range, or every choice."""
        if self.choice is not None:
            return self.choice
        return self.int or [float(end) for end in self.log or self.range or ()]

    @property
    def values(self) -> Sequence[Any] | None:
        """All values, or None where there are too many to list."""
        if self.int:
            low, high = self.int
            return range(low, high + 1)
        return self.choice


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SweepSection:
    """Trials of a config with different values of some keys."""

    trials: Annotated[int, Limits(at_least=1, at_most=10_000, whole=True)] = Field(
        default=60, description="Number of trials, including pruned and failed trials."
    )
    seconds: Positive | None = Field(
        default=None, description="No trial begins after this many seconds."
    )
    metric: str = Field(
        default="loss",
        description="Metric that compares trials, on validation or out-of-fold rows: any that "
        "training.early_stopping.monitor accepts.",
    )
    sampler: Literal["tpe", "random", "grid"] = Field(
        default="tpe",
        description="tpe: guided by earlier trials; random; grid: all combinations.",
    )
    pruner: Literal["none", "median", "hyperband"] = Field(
        default="none", description="Rule that ends a trial early if its metric is bad."
    )
    space: dict[str, SpaceSection] = Field(
        description="Key paths of the config, each with the values to try."
    )

    @model_validator(mode="after")
    def _something_varies(self) -> "SweepSection":
        if not self.space:
            raise rule("must have a key, such as optimizer.lr: {log: [1e-4, 1e-1]}", "space")
        return self

    @property
    def grid(self) -> Iterator[dict[str, Any]]:
        """Every combination of values, for `sampler: grid`."""
        for values in product(*(entry.values or () for entry in self.space.values())):
            yield dict(zip(self.space, values, strict=True))

    @property
    def count(self) -> int:
        """Number of trials: `trials`, but for a grid at most the number of combinations."""
        if self.sampler != "grid":
            return self.trials
        return min(self.trials, prod(len(entry.values or ()) for entry in self.space.values()))
