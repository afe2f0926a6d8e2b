"""L-BFGS (limited-memory BFGS) with a line search."""

from math import inf, isfinite, sqrt
from typing import Annotated, NamedTuple

import numpy as np

from mlpengine.core.fields import Count
from mlpengine.core.spec import Array
from mlpengine.optim._optimizer import HasParams
from mlpengine.optim.full_batch import FullBatch, NoSchedule, Objective

DECREASE, CURVATURE = 1e-4, 0.9
"""Constants c1 and c2 of the strong Wolfe conditions (Nocedal and Wright 2006, section 3.1)."""

EVALUATIONS = 25
"""Maximum number of evaluations in a line search.  After these, the best point is used."""


class Point(NamedTuple):
    """A point of a line search: position along the direction, loss, and derivative of the loss."""

    at: float
    loss: float
    slope: float


class Lbfgs(FullBatch, name="lbfgs"):
    """L-BFGS: a quasi-Newton direction from the last gradients, then a line search along it.

    L-BFGS works with every loss; each batch must have all rows.  A line search ends at a point that
    meets the strong Wolfe conditions.  After 25 evaluations, it ends at the best point so far.

    Source: Nocedal and Wright 2006, Numerical Optimization, algorithms 7.4, 3.5 and 3.6.
    """

    __slots__ = ("_work", "memory")

    def __init__(
        self,
        model: HasParams,
        *,
        memory: Annotated[Count, "Number of past steps that determine the direction."] = 20,
        schedule: NoSchedule = None,
    ) -> None:
        self.memory: int = self.fit("memory", memory)
        names = [f"{kind}_{k}" for k in range(self.memory) for kind in ("step", "change")]
        super().__init__(
            model,
            schedule=schedule,
            numbers={"pairs": 0.0},
            moments=tuple(names),
        )
        self._work: Array | None = None

    def minimize(self, problem: Objective) -> tuple[float, float]:
        gradient, flat = problem.gradient, self.params.flat
        loss = problem.evaluate()
        norm = sqrt(_dot(gradient, gradient))
        if not isfinite(loss + norm) or not norm:
            return loss, norm
        if self._work is None:
            self._work = np.zeros((5, flat.size), flat.dtype)
        start, before, direction = self._work[:3]
        start[...], before[...] = flat, gradient
        self._direction(before, direction)
        slope = _dot(direction, before)
        if not slope < 0:  # caused by rounding errors: restart along the gradient
            self.numbers_of_state["pairs"] = 0.0
            np.negative(before, direction)
            slope = -norm * norm
        length = 1.0 if self.numbers_of_state["pairs"] else min(1.0, 1.0 / norm)
        if self._search(problem, Point(0.0, loss, slope), length):
            self._remember(gradient)
        else:
            flat[...] = start
            self.numbers_of_state["pairs"] = 0.0
        return loss, norm

    def _pair(self, k: int) -> tuple[Array, Array]:
        """Return the buffers of step `k`, for the changes of the parameters and of the gradient."""
        k %= self.memory
        return self.moments[f"step_{k}"], self.moments[f"change_{k}"]

    def _direction(self, gradient: Array, out: Array) -> None:
        """Write -H gradient into `out`, with H the approximate inverse Hessian."""
        assert self._work is not None
        count, part = int(self.numbers_of_state["pairs"]), self._work[3]
        used = [self._pair(k) for k in range(max(0, count - self.memory), count)]
        np.negative(gradient, out)
        factors = []
        for step, change in reversed(used):
            factors.append(_dot(step, out) / _dot(step, change))
            np.multiply(change, factors[-1], part)
            out -= part
        if used:
            step, change = used[-1]
            out *= _dot(step, change) / _dot(change, change)
        for (step, change), factor in zip(used, reversed(factors), strict=True):
            np.multiply(step, factor - _dot(change, out) / _dot(step, change), part)
            out += part

    def _remember(self, gradient: Array) -> None:
        """Store the changes of parameters and gradient unless rounding errors dominate them."""
        assert self._work is not None
        start, before, _, moved, changed = self._work
        np.subtract(self.params.flat, start, moved)
        np.subtract(gradient, before, changed)
        if _dot(moved, changed) > np.finfo(moved.dtype).eps * _dot(changed, changed):
            step, change = self._pair(int(self.numbers_of_state["pairs"]))
            step[...], change[...] = moved, changed
            self.numbers_of_state["pairs"] += 1

    def _search(self, problem: Objective, origin: Point, length: float) -> bool:
        """Move along the direction to a point that meets the Wolfe conditions, or to a lower point.

        `length` is the first position.  Return whether there is such a point; the last evaluation
        is then at this point.
        """
        low, high = origin, None
        at = length
        for _ in range(EVALUATIONS):
            point = self._at(problem, at)
            falls = point.loss <= origin.loss + DECREASE * at * origin.slope
            if not falls or (point.loss >= low.loss and low.at):
                high = point
            elif abs(point.slope) <= -CURVATURE * origin.slope:
                return True
            else:
                if point.slope * ((inf if high is None else high.at) - low.at) >= 0:
                    high = low
                low = point
            if high is None:
                at *= 2
            else:
                at = _between(low, high)
                if at in (low.at, high.at):
                    break
        if low.at:
            self._at(problem, low.at)
        return bool(low.at)

    def _at(self, problem: Objective, at: float) -> Point:
        assert self._work is not None
        start, _, direction, part, _ = self._work
        np.multiply(direction, at, part)
        np.add(start, part, self.params.flat)
        loss = problem.evaluate()
        loss = loss if isfinite(loss) else inf
        return Point(at, loss, _dot(problem.gradient, direction))


def _dot(one: Array, other: Array) -> float:
    return float(np.dot(one, other))


def _between(low: Point, high: Point) -> float:
    """Return the minimum of a cubic interpolation, limited to the middle 80 % between two points.

    If the cubic has no minimum, return the middle.  Source: Nocedal and Wright 2006, eq. 3.59.
    """
    width = high.at - low.at
    middle = low.at + width / 2
    if not isfinite(high.loss + high.slope):
        return low.at + width / 10
    first = low.slope + high.slope - 3 * (low.loss - high.loss) / (low.at - high.at)
    square = first * first - low.slope * high.slope
    if square < 0:
        return middle
    second = sqrt(square) if width > 0 else -sqrt(square)
    below = high.slope - low.slope + 2 * second
    if not below:
        return middle
    at = high.at - width * (high.slope + second - first) / below
    lowest, highest = sorted((low.at + 0.1 * width, high.at - 0.1 * width))
    return min(max(at, lowest), highest)
