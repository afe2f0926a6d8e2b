"""An optimizer's step as data, for all backends but NumPy."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.formula import Expr


class ParameterRange(NamedTuple):
    """A range of parameters with equal factors of the step's learning rate and weight decay."""

    start: int
    stop: int
    lr: float
    weight_decay: float


class Update(NamedTuple):
    """The result of `Optimizer.describe_update`.

    Attributes:
        numbers: numbers of a step by name, as formulas of ``lr``, ``t``, `hyper` and `carried`.
        outputs: new moments and ``p`` by name, as formulas of the old moments and ``p``, ``g``,
            `hyper` and `numbers`.
        params: the flat vector of parameters.
        moments: flat vectors by name.
        hyper: hyper-parameters by name.
        carried: names of the numbers that a step reads from the previous step.
        carried_values: their values; row ``t % 2`` belongs to step t.
        weight_decay: weight decay of a step, if it has no schedule.
        is_scheduled: whether the weight decay has a schedule.
        ranges: ranges of trained parameters, in order; other parameters are frozen.
        flush_every: steps between two flushes of entries near zero.
        floors: smallest entries of the moments that are squares; in other moments, entries below
            `threshold` become zero.
    """

    numbers: Mapping[str, Expr]
    outputs: Mapping[str, Expr]
    params: Array
    moments: Mapping[str, Array]
    hyper: Mapping[str, float]
    carried: Sequence[str]
    carried_values: Array
    weight_decay: float
    is_scheduled: bool
    ranges: Sequence[ParameterRange]
    flush_every: int
    floors: Mapping[str, float]
    threshold: float

    @property
    def decayed(self) -> list[tuple[int, int]]:
        """Ranges of parameters that decay."""
        return [(run.start, run.stop) for run in self.ranges if run.weight_decay]

    @property
    def is_plain(self) -> bool:
        """Whether all parameters have one learning rate, and all that decay one weight decay."""
        factors = all(run.lr == 1 and run.weight_decay in (0, 1) for run in self.ranges)
        return factors and not self.is_scheduled


def largest_factor(ranges: Sequence[ParameterRange]) -> float:
    """Return the largest factor of the learning rate, but at least 1."""
    return max([1.0, *(run.lr for run in ranges)])


def largest_update(dtype: "np.dtype[np.floating]", ranges: Sequence[ParameterRange]) -> float:
    """Return the largest valid product of a step's learning rate and gradient norm, by dtype.

    A step with a larger product is refused, because weights would overflow, or momentum, which can
    grow a hundredfold.  The learning rate is taken before the factors of `ranges`.
    """
    return float(np.finfo(dtype).max) / 1024 / largest_factor(ranges)
