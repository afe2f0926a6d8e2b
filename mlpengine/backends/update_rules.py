"""Formulas and settings of an optimizer's update, for all backends."""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.formula import Expr


class ParameterRange(NamedTuple):
    """A range of parameters, and its factors of learning rate and weight decay."""

    start: int
    stop: int
    lr: float
    weight_decay: float


class Update(NamedTuple):
    """An optimizer's update, made by `Optimizer.describe_update`.

    Attributes:
        numbers: scalars of a step by name, such as a scaled learning rate, as formulas of ``lr``,
            the step's number ``t`` from 1, and `hyper`.
        outputs: new moments and the new parameter ``p`` by name, as formulas of the old moments,
            ``p``, the gradient ``g``, `hyper` and `numbers`.
        params: the flat vector of parameters.
        moments: flat vectors by name.
        hyper: hyper-parameters by name.
        weight_decay: weight decay of a step.
        ranges: ranges of trained parameters, in order; other parameters are frozen.
        flush_every: number of steps after which tiny entries of moments are replaced.
        floors: minimum for the entries of each moment that averages squares.
        threshold: absolute value below which entries of other moments become zero.
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
        """(start, stop) of each range of parameters with weight decay."""
        return [(run.start, run.stop) for run in self.ranges if run.weight_decay]

    @property
    def is_plain(self) -> bool:
        """Whether no range has a factor of its own: lr is 1, and weight_decay is 0 or 1."""
        return all(run.lr == 1 and run.weight_decay in (0, 1) for run in self.ranges)


def largest_factor(ranges: Sequence[ParameterRange]) -> float:
    """Return the largest factor of the learning rate in `ranges`, but at least 1."""
    return max([1.0, *(run.lr for run in ranges)])


def largest_step(update: Update) -> tuple[float, float]:
    """Return the maxima of learning rate * gradient norm, and of the norm, in a valid step.

    Above the first, weights or momentum would overflow: momentum can reach a hundred times the
    gradient.  Above the second, moments that average squares would.  The learning rate does not
    include the factors of `ranges`.
    """
    largest = float(np.finfo(update.params.dtype).max) / 1024
    norm = sqrt(largest) if update.floors else float(np.finfo(np.float64).max)
    return largest / largest_factor(update.ranges), norm
