"""Everything derived from the formula of a loss: slopes (derivatives), link, best constant."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite, log, log2

import numpy as np

from mlpengine.core.fork_locks import cached_property
from mlpengine.core.spec import Array
from mlpengine.formula import Expr, Plan, bound, evaluate, order, plan

DOUBLINGS = 40
"""Maximum number of doublings of the range -1 to 1 in `turning_point`."""

HALVINGS = 64
"""Maximum number of halvings of the range in `turning_point`, enough for float64 precision."""

NEAR = 1e-2
"""`turning_point` stops if its range is narrower than this and a secant step stays in place."""

BESIDE = 1e-3
"""Where the slope is 0, `turning_point` reads it also this share of the range to each side."""

COLUMN_PASSES = 50
"""Maximum number of rounds in `lowest`."""

CLOSE = 1e-12
"""`lowest` ends after a round that moves no column by more than this."""

ZERO_SLOPE = 1e-9
"""Tolerance for slopes that must be zero, at outputs and targets near 1."""


@dataclass(frozen=True, eq=False)
class LossFormulas:
    """Everything that is derived from a loss's formula.

    The loss of an entry is ``value_scale * entry``.  Its derivative by output column k is
    ``scales[k] * slopes[k]``.  The last slopes are derivatives by the target columns.  The constant
    factors are separate, so that backward multiplies by scales[k] / (number of entries) once.
    """

    outputs: tuple[Expr, ...]
    targets: tuple[Expr, ...]
    entry: Expr
    value_scale: float
    slopes: tuple[Expr, ...]
    scales: tuple[float, ...]

    @cached_property
    def saved(self) -> tuple[Expr, ...]:
        """The value that forward keeps for backward, for each output column.

        Usually this is the slope.  If the slope is a function of one value that forward computes
        anyway, forward keeps this value.  Forward then computes one function fewer.
        """
        forward = set(order([self.entry]))
        saved = []
        for slope in self.slopes[: len(self.outputs)]:
            computed = [a for a in slope.args if a.args]
            is_at_hand = len(computed) == 1 and computed[0] in forward and not computed[0].is_mask
            saved.append(computed[0] if is_at_hand and slope not in forward else slope)
        return tuple(saved)

    @property
    def given(self) -> tuple[Expr, ...]:
        """The operands of backward: outputs, target and the saved values."""
        return (*self.outputs, *self.targets, *self.saved)

    @cached_property
    def forward(self) -> Plan:
        """A plan that computes the entry and the saved values from outputs and targets."""
        return plan([self.entry, *self.saved], [*self.outputs, *self.targets])

    @cached_property
    def backward(self) -> tuple[Plan, ...]:
        """A plan for each slope; the plan computes the slope from `given`."""
        return tuple(plan([slope], self.given) for slope in self.slopes)

    def slope(self, k: int, outputs: Sequence[Array], targets: Sequence[Array]) -> Array:
        """Return the derivative by output column `k`, or by the last target column for k = -1."""
        value = evaluate(self.slopes[k], self.named(outputs, targets)) * self.scales[k]
        return np.broadcast_to(value, targets[0].shape)

    def values(self, outputs: Sequence[Array], targets: Sequence[Array]) -> Array:
        """Return the loss of each entry."""
        return evaluate(self.entry, self.named(outputs, targets)) * self.value_scale

    def named(self, outputs: Sequence[Array], targets: Sequence[Array]) -> dict[str, Array]:
        """Return the arrays by the names of the variables in the formulas."""
        leaves = (*self.outputs, *self.targets)
        return {str(x.leaf): v for x, v in zip(leaves, (*outputs, *targets), strict=True)}

    @cached_property
    def log_link(self) -> bool:
        """Whether the loss is lowest where the first output is log(target), not the target."""
        y = np.linspace(-1.5, 1.5, 8)
        outputs = [y, *(np.full_like(y, 0.3) for _ in self.outputs[1:])]

        def is_best(target: Array) -> bool:
            slope = self.slope(0, outputs, [target] * len(self.targets))
            return bool(np.allclose(slope, 0, atol=ZERO_SLOPE))

        return is_best(np.exp(y)) and not is_best(y)

    @cached_property
    def scaling(self) -> float | None:
        """The exponent p of `EntryLoss.scaling`, measured with c = 2, or None."""
        y, t = np.linspace(-1.5, 1.5, 8), [np.linspace(0.2, 0.9, 8)] * len(self.targets)
        others = [np.full_like(y, 0.3) for _ in self.outputs[1:]]
        small, large = (
            self.slope(0, [y, *others], t),
            self.slope(0, [y + log(2), *others], [2 * one for one in t]),
        )
        factor = float(small @ large / (small @ small))
        alike = factor > 0 and np.allclose(large, factor * small, atol=ZERO_SLOPE)
        return log2(factor) if alike else None

    @cached_property
    def locations(self) -> tuple[int, ...]:
        """The output columns that shift with the target.

        The slopes by these columns add up to minus the slope by the target.
        """
        rng, count = np.random.default_rng(0), len(self.outputs)
        points = rng.normal(size=(count, 8 * count + 8))
        targets = [rng.uniform(0.1, 0.9, points.shape[1:])] * len(self.targets)
        slopes = [self.slope(k, [*points], targets) for k in range(-1, count)]
        of_target, of_outputs = slopes[0], np.stack(slopes[1:], 1)
        if not np.isfinite(slopes).all():
            return ()
        shares = np.linalg.lstsq(of_outputs, -of_target)[0]
        chosen = shares > 0.5
        moves = np.allclose(of_outputs[:, chosen].sum(axis=1), -of_target, atol=ZERO_SLOPE)
        return tuple(np.flatnonzero(chosen).tolist()) if moves and chosen.any() else ()

    def lowest(self, targets: Sequence[Array], total: Callable[[Array], Array]) -> list[Array]:
        """Return, for each output column, the constant (1,) with the lowest loss.

        Coordinate descent: each round sets one column after the other to the point where the slope
        by this column turns from negative to positive.  Moves of successive rounds shrink by a
        nearly constant factor.  Every second round therefore adds the sum of all later moves
        (Aitken 1926, "On Bernoulli's numerical solution of algebraic equations").

        Shapes: each of `targets` (rows, entries).  ``total(slopes)`` is the sum (1,) of slopes
        (rows, entries).
        """
        best = [np.zeros(1) for _ in self.outputs]
        columns = range(len(best))
        named = self.named(best, targets)
        slopes = [bound(self.slopes[k], named) for k in columns]

        def slope(k: int, values: Array) -> Array:
            best[k][...] = values
            return total(np.broadcast_to(slopes[k]() * self.scales[k], targets[0].shape))

        earlier: list[Array] = []
        for _ in range(COLUMN_PASSES):
            before = [one.copy() for one in best]
            for k in columns:
                best[k][...] = turning_point(partial(slope, k), best[k].shape)
            moves = [new - old for new, old in zip(best, before, strict=True)]
            if len(best) == 1 or np.allclose(moves, 0, atol=CLOSE):
                break
            for one, move, last in zip(best, moves, earlier, strict=False):
                with np.errstate(all="ignore"):
                    share = move / last
                    one += np.where((share > 0) & (share < 1), move * share / (1 - share), 0.0)
            earlier = [] if earlier else moves
        return best


def turning_point(slope: Callable[[Array], Array], shape: tuple[int, ...]) -> Array:
    """Return, for each entry, the point where the slope turns from negative to positive.

    The search alternates secant steps and halvings of the range.  If the slope does not change its
    sign between -2**40 and 2**40, there is no lowest value, and the point is 0.
    """
    with np.errstate(all="ignore"):
        low, high = np.full(shape, -1.0), np.full(shape, 1.0)
        for _ in range(DOUBLINGS + 1):
            falls, rises = slope(high) < 0, slope(low) > 0
            if not (falls.any() or rises.any()):
                break
            high[falls] *= 2
            low[rises] *= 2
        at_low, at_high, best = slope(low), slope(high), (low + high) / 2
        for count in range(2 * HALVINGS):
            point = (low + high) / 2
            if count % 2 == 0:
                crossing = low - at_low * (high - low) / (at_high - at_low)
                point = np.where((low < crossing) & (crossing < high), crossing, point)
                is_near = (high - low).max(initial=0.0) < NEAR
                if is_near and np.allclose(point, best, rtol=1e-15, atol=1e-18):
                    break
                best = point
            at = slope(point)
            if (at == 0).any():  # also at a maximum: do not stop where a step to a side lowers it
                after = slope(point + (high - point) * BESIDE)
                before = slope(point - (point - low) * BESIDE)
                at = np.where(at != 0, at, np.where(after < 0, after, np.maximum(before, 0.0)))
            down, up = at <= 0, at >= 0
            low, at_low = np.where(down, point, low), np.where(down, at, at_low)
            high, at_high = np.where(up, point, high), np.where(up, at, at_high)
    return np.where(falls | rises, 0.0, best)


def without_factor(formula: Expr) -> tuple[Expr, float]:
    """Split a formula into a formula without constant factors and the product of these factors."""
    number = formula.args[-1].number if formula.args else None
    if formula.name == "neg":
        inner, scale = without_factor(formula.args[0])
        return inner, -scale
    if formula.name == "mul" and number is not None and isfinite(number):
        inner, scale = without_factor(formula.args[0])
        return inner, scale * number
    return formula, 1.0
