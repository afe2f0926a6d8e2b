"""The update of an optimizer as data, for all backends but NumPy."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.formula import Expr


class ParameterRange(NamedTuple):
    """A range of parameters, and factors of the step's learning rate and weight decay for it."""

    start: int
    stop: int
    lr: float
    weight_decay: float


class Update(NamedTuple):
    """The result of `Optimizer.describe_update`.

    Attributes:
        numbers: numbers of a step, such as bias corrections, by name, as formulas of ``lr``, the
            step ``t`` from 1, and `hyper`.
        outputs: new moments and the new parameter ``p``, by name, as formulas of the old moments,
            ``p``, the gradient ``g``, `hyper` and `numbers`.
        params: the flat vector of parameters.
        moments: flat vectors by name.
        hyper: hyper-parameters by name.
        weight_decay: weight decay of a step.
        ranges: ranges of trained parameters, in order; other parameters are frozen.
        flush_every: number of steps after which tiny entries of moments are replaced.
        floors: minimum for the entries of each moment that averages squares.
        threshold: size below which entries of other moments become zero.
    """

    numbers: Mapping[str, Expr]
    outputs: Mapping[str, Expr]
    params: Array
    moments: Mapping[str, Array]
    hyper: Mapping[str, float]
    weight_decay: float
    ranges: Sequence[ParameterRange]
    flush_every: int
    floors: Mapping[str, float]
    threshold: float

    @property
    def decayed(self) -> list[tuple[int, int]]:
        """Starts and stops of the ranges of parameters that decay."""
        return [(run.start, run.stop) for run in self.ranges if run.weight_decay]

    @property
    def is_plain(self) -> bool:
        """Whether all parameters have one learning rate, and one weight decay or none."""
        return all(run.lr == 1 and run.weight_decay in (0, 1) for run in self.ranges)


def largest_factor(ranges: Sequence[ParameterRange]) -> float:
    """Return the largest factor of the learning rate in `ranges`, but at least 1."""
    return max([1.0, *(run.lr for run in ranges)])


def largest_update(dtype: "np.dtype[np.floating]", ranges: Sequence[ParameterRange]) -> float:
    """Return the largest valid product of a step's learning rate and gradient norm, by dtype.

    A step with a larger product is refused, because weights or momentum would overflow; momentum
    can grow to a hundred gradients.  The learning rate does not include the factors of `ranges`.
    """
    return float(np.finfo(dtype).max) / 1024 / largest_factor(ranges)
