"""An optimizer's step as data, for backends other than NumPy."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.formula import Expr


class ParameterRange(NamedTuple):
    """A range of the flat vector, of parameters that are updated alike.

    `lr` and `weight_decay` are factors of the step's learning rate and weight decay.
    """

    start: int
    stop: int
    lr: float
    weight_decay: float


class Update(NamedTuple):
    """The result of `Optimizer.describe_update`.

    Attributes:
        numbers: the numbers of a step, by name, as formulas of ``lr``, ``t``, `hyper` and
            `carried`.
        outputs: the new moments and ``p``, by name, as formulas of the old moments and ``p``,
            ``g``, `hyper` and `numbers`.
        params: the flat vector.
        moments: flat vectors by name.
        hyper: hyper-parameters by name.
        carried: names of the numbers that a step reads from the previous step.
        carried_values: their values, for step t in row ``t % 2``.
        weight_decay: the weight decay of a step, if no schedule changes it.
        is_scheduled: whether a schedule changes the weight decay.
        ranges: ranges of the parameters that are updated, in order; other parameters are frozen.
        flush_every: steps between two flushes of entries near zero.
        floors: the minimum of the moments that are squares; in other moments, entries smaller than
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
        """The ranges of parameters that decay."""
        return [(run.start, run.stop) for run in self.ranges if run.weight_decay]

    @property
    def is_plain(self) -> bool:
        """Whether all parameters have one learning rate, and decaying ones one weight decay."""
        factors = all(run.lr == 1 and run.weight_decay in (0, 1) for run in self.ranges)
        return factors and not self.is_scheduled


def largest_factor(ranges: Sequence[ParameterRange]) -> float:
    """Return the largest factor of the learning rate, at least 1."""
    return max([1.0, *(run.lr for run in ranges)])


def largest_update(dtype: "np.dtype[np.floating]", ranges: Sequence[ParameterRange]) -> float:
    """Return the largest product of learning rate and gradient norm of a step in that dtype.

    A step with a larger product is refused: weights, or momentum that grows a hundredfold, would
    overflow.  The learning rate is the rate of the step, before the factors of `ranges`.
    """
    return float(np.finfo(dtype).max) / 1024 / largest_factor(ranges)
