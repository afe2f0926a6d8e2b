"""Losses that are means over the entries of the target, each defined by a formula."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from inspect import signature
from math import isfinite, isinf
from numbers import Real
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from mlpengine.core.errors import DataError, FormulaError, IndexRangeError, ShapeError, UsageError
from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array, Calls, Slots, Spec, call
from mlpengine.core.wording import plural, quoted
from mlpengine.formula import Expr, constant, evaluate, exp, gradients, variable
from mlpengine.ops._check import listing, need_floats
from mlpengine.ops.elementwise_op import expression_of, option_values
from mlpengine.ops.loss import VALUE, Loss, need_rows, row_totals, total, wide_spec
from mlpengine.ops.loss_formulas import LossFormulas, without_factor
from mlpengine.ops.op import parameters_of

BOUND_ROWS = 1_000
"""Maximum number of rows of targets that `EntryLoss.check_bounded` tries."""


class Prediction(NamedTuple):
    """A number that a network predicts for each target, such as a mean or a quantile.

    `formula` computes the prediction from the network's output columns.  The name of the
    prediction is the name of the target with `suffix`.  `location` tells whether the prediction
    shifts with the targets: true for a mean, false for a standard deviation.  For a quantile,
    `level` is the share of targets below the quantile.
    """

    suffix: str
    formula: Expr
    location: bool = True
    level: float | None = None


class EntryLoss(Loss):
    """Base class of losses that are a mean over the entries of the target.

    Shapes: output and target (batch, ...), weight (batch,).
    The method `formula` defines the loss of an entry.  A weight multiplies the losses of its row;
    the mean divides by the number of entries, not by the weights.

    A loss may need several outputs for an entry, such as a mean and a variance.  The output then
    has that many adjacent columns for each entry (`columns`), and ``formula(mean, variance,
    target)`` has a parameter for each.  A target may likewise have several `target_columns`.
    """

    tasks: ClassVar[tuple[str, ...]] = ("regression",)

    target_columns: ClassVar[int] = 1
    """Number of target columns of an entry."""

    target_range: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    """Smallest and largest valid target."""

    open_below: ClassVar[bool] = False
    """Whether the lower bound of `target_range` itself is invalid."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        ends = cls.target_range
        pair = isinstance(ends, tuple) and [isinstance(end, Real) for end in ends] == [True] * 2
        if not isinstance(ends, property) and not (pair and ends[0] < ends[1]):
            text = f"{cls.__name__}: target_range must be two numbers, the smaller first"
            raise UsageError(f"{text} (got {quoted(ends)}); write target_range = (0.0, np.inf)")

    @property
    def columns(self) -> int:
        """Number of output columns for each entry of the target."""
        return len(parameters_of(type(self).formula)) - self.target_columns

    def formula(self, *operands: Any) -> Any:
        """Return the loss of an entry as a formula of its output columns and its target."""
        raise NotImplementedError

    def gradient(self, *operands: Any) -> Any:
        """Return the derivative by each operand; subclasses may override it with a better form."""
        return gradients(self.formula(*operands), constant(1), operands)

    @property
    def log_link(self) -> bool:
        """Whether the loss is lowest where the first output is the logarithm of the target.

        Training does not shift the targets of such a loss.  If the loss also has a `scaling`,
        training divides the targets by their mean.
        """
        return self.formulas.log_link

    @property
    def scaling(self) -> float | None:
        """The exponent p with which derivatives of the loss scale, or None if no p exists.

        If all targets are multiplied by c, and log(c) is added to the first output, then the
        derivative by this output is multiplied by c**p, so the best weights do not change.
        """
        return self.formulas.scaling

    @property
    def predictions(self) -> Sequence[Prediction]:
        """The predictions for a target.

        If several outputs shift with the target, each of them is a prediction.  If only one shifts,
        this output y (the first one if none shifts) is the prediction; with a log link, exp(y).
        """
        f = self.formulas
        if len(f.locations) < 2:
            y = f.outputs[f.locations[0] if f.locations else 0]
            return [Prediction("", exp(y) if self.log_link else y)]
        return [Prediction(f"_{k}" if k else "", f.outputs[k]) for k in f.locations]

    def quantile(self, level: float) -> Expr | None:
        """Return the quantile for `level` as a formula of the output columns of a target.

        Return None if the loss does not predict this quantile.  Outputs that are quantiles must be
        in ascending order.
        """
        return None

    @property
    def takes_logs(self) -> bool:
        """Whether a model may train on log(target), and predict exp(prediction)."""
        return not self.log_link and all(one.location for one in self.predictions)

    @property
    def point(self) -> int:
        """Index of the prediction that is compared with the target."""
        return 0

    def deviance(self, target: Array, mean: Array) -> Array:
        """Return 2 * (loss(mean) - lowest loss) of each target, or NaN if undefined.

        Shapes: target, mean and result (rows, targets); mean is in the units of the target.
        """
        return np.full_like(mean, np.nan)

    @property
    def has_target_range(self) -> bool:
        """Whether an end of `target_range` is finite."""
        return any(map(isfinite, self.target_range))

    def outside(self, t: Any) -> Any:
        """Return a mask of targets outside `target_range`; `t` is an array or a formula."""
        low, high = self.target_range
        if isinf(low):
            return t > high
        below = t <= low if self.open_below else t < low
        return below if isinf(high) else below | (t > high)

    def check_targets(self, target: Array, where: Callable[[int, int], str]) -> None:
        """Check that all targets (rows, targets) are in `target_range`.

        Raises: DataError for the first invalid target; ``where(row, column)`` begins its message.
        """
        if self.has_target_range and (outside := self.outside(target)).any():
            row, column = (int(i[0]) for i in outside.nonzero())
            raise DataError(
                f"{where(row, column)}: {self.name}: a target must {self._limits} "
                f"({target[row, column]:g})"
            )

    def check_bounded(self, target: Array) -> None:
        """Check that the loss of an entry is finite, and does not fall without limit.

        Shapes: target (rows, targets).  A loss with several columns for an entry is not checked.
        Raises: UsageError if the loss is not finite at the outputs -0.5 and 0.5, or if the loss at
            the output 2**40 * m or -2**40 * m is below the loss at 2**20 * m or -2**20 * m; m is
            the largest absolute target, at least 1.
        """
        if self.columns > 1 or self.target_columns > 1:
            return
        some = target[evenly_spaced(len(target), BOUND_ROWS)].astype(np.float64)
        scale = float(np.nanmax(np.abs(some), initial=1.0))
        with np.errstate(all="ignore"):
            outputs = (np.full_like(some, sign) for sign in (-0.5, 0.5))
            bad = [~np.isfinite(self.formulas.values([y], [some])) for y in outputs]
            if (never := (bad[0] & bad[1] & ~np.isnan(some))).any():
                raise UsageError(
                    f"{self.name}: the loss must be finite (for the scaled target "
                    f"{some[never][0]:.4g}, it is not at the outputs -0.5 and 0.5)"
                )
            for sign in (-scale, scale):
                near, far = (
                    self.formulas.values([np.full_like(some, sign * size)], [some])
                    for size in (2.0**20, 2.0**40)
                )
                if (falls := (far < near - 1) | np.isneginf(far)).any():
                    raise UsageError(
                        f"{self.name}: the loss must have a lower bound (for the scaled "
                        f"target {some[falls][0]:.4g}, it falls without limit as the output "
                        f"{'grows' if sign > 0 else 'falls'}); write a loss that is lowest near "
                        "the target, such as abs(y - t)"
                    )

    def best_prediction(self, *targets: float) -> float:
        """Return the constant prediction with the lowest mean loss for some targets."""
        outputs = self.best_constant(np.array(targets)[:, None], self.columns)
        leaves = (str(one.leaf) for one in self.formulas.outputs)
        given = dict(zip(leaves, outputs[:, None], strict=True))
        return float(evaluate(self.predictions[self.point].formula, given)[0])

    @property
    def is_central(self) -> bool:
        """Whether the best prediction for symmetric targets is their center, as mean and median."""
        return abs(self.best_prediction(*np.linspace(0.1, 0.9, 33)) - 0.5) < 0.01

    @property
    def _limits(self) -> str:
        low, high = self.target_range
        if isinf(low):
            return f"be {high:g} or less"
        if isfinite(high):
            return f"lie in {low:g} to {high:g}"
        return f"be more than {low:g}" if self.open_below else f"be {low:g} or more"

    @property
    def formulas(self) -> LossFormulas:
        """Everything derived from the formula, cached by class and options."""
        options, kind = option_values(self), cast("Any", type(self))
        return _derived(kind, options, repr(options))

    def best_constant(self, target: Array, outputs: int, weights: Array | None = None) -> Array:
        """Return the constant output (outputs,) with the lowest mean loss.

        Shapes: target (rows, targets), weights (rows,) or None.
        """
        weights = np.ones(len(target)) if weights is None else weights
        best: list[Array] = []
        wide, n = target.astype(np.float64), self.target_columns
        for first in range(0, wide.shape[1], n):
            values, counts = wide[:, first : first + n], weights
            if n == 1:  # add up the weights of equal targets
                distinct, places = np.unique(values[:, 0], return_inverse=True)
                values, counts = distinct[:, None], np.bincount(places, weights)
            total = partial(np.dot, counts)
            best += self.formulas.lowest(_columns_of(values, n), total)
        return np.concatenate(best)

    def target_spec(self, output: Spec, target: Spec | None = None) -> Spec:
        n, columns = self.columns, output.shape[-1:]
        if n > 1 and (len(output.shape) != 2 or columns[0] % n):
            raise ShapeError(
                f"{self.name}: output must have {plural(n, 'column')} for each target column "
                f"({listing(output=output)})"
            )
        expected = output
        if n > 1:
            width = columns[0] // n * self.target_columns
            expected = Spec((output.shape[0], width), output.dtype)
        if target is not None and target.shape != expected.shape:
            shape = "the shape of output" if n == 1 else f"shape {list(expected.shape)}"
            raise ShapeError(
                f"{self.name}: target must have {shape} ({listing(output=output, target=target)})"
            )
        return expected

    def infer(self, output: Spec, target: Spec, weight: Spec | None = None) -> Spec:
        need_floats(self.name, output=output, target=target, weight=weight)
        self.target_spec(output, target)
        need_rows(self.name, output, weight)
        return VALUE

    def work(self, output: Spec, target: Spec, weight: Spec | None = None) -> dict[str, Spec]:
        forward, backward = self.formulas.forward, self.formulas.backward
        floats, masks = (max(getattr(p, kind) for p in backward) for kind in ("floats", "masks"))
        mask, dtype, n = np.dtype(np.bool_), output.dtype, self.target_columns
        entry = target if n == 1 else Spec((target.shape[0], target.shape[1] // n), dtype)
        return {
            "entry": entry,
            "saved": Spec((self.columns, *entry.shape), dtype),
            "wide": wide_spec(entry),
            "rows": Spec((2, 0) if weight is None else (2, *weight.shape), VALUE.dtype),
            "factors": Spec((self.columns + n,), dtype),
            "workspaces": Spec((forward.floats, *entry.shape), dtype),
            "masks": Spec((forward.masks, *entry.shape), mask),
            "backward_workspaces": Spec((floats, *entry.shape), dtype),
            "backward_masks": Spec((masks, *entry.shape), mask),
        }

    def forward(
        self,
        output: Array,
        target: Array,
        weight: Array | None,
        *,
        out: Array,
        entry: Array,
        saved: Array,
        wide: Array,
        rows: Array,
        workspaces: Array,
        masks: Array,
    ) -> Calls:
        if self.has_target_range:
            yield call(self._check_range, target)
        f = self.formulas
        given = [*_columns_of(output, self.columns), *_columns_of(target, self.target_columns)]
        yield from f.forward.calls(given, [entry, *_each(saved)], _each(workspaces), _each(masks))
        share = f.value_scale / max(entry.size, 1)
        if weight is None:
            yield from total(entry.reshape(-1), share, wide, out)
        else:
            yield from row_totals(by_row(entry), wide, rows[0])
            yield call(np.multiply, weight, np.array(share), rows[1])
            yield call(np.dot, rows[0], rows[1], out)

    def backward(
        self,
        dy: Array | None,
        output: Array,
        target: Array,
        weight: Array | None,
        *,
        out: Slots,
        saved: Array,
        rows: Array,
        factors: Array,
        backward_workspaces: Array,
        backward_masks: Array,
    ) -> Calls:
        d_output, d_target, d_weight = out
        f, n = self.formulas, self.target_columns
        share = n / max(target.size, 1)
        given = [*_columns_of(output, self.columns), *_columns_of(target, n), *_each(saved)]
        known = dict(zip(f.given, given, strict=True))
        work = _each(backward_workspaces), _each(backward_masks)
        numbers: dict[float, Array] = {}

        def gradient(k: int, slot: Array) -> Calls:
            slope = known.get(f.slopes[k], slot)
            if slope is slot:
                yield from f.backward[k].calls(given, [slot], *work)
            scale = f.scales[k]
            if scale not in numbers:
                factor = numbers[scale] = factors[k, ...]
                if -scale in numbers:
                    yield call(np.negative, numbers[-scale], factor)
                elif dy is None:
                    factor[...] = scale * share
                else:
                    yield call(np.multiply, dy, np.array(scale * share), factor)
            yield call(np.multiply, slope, numbers[scale], slot)

        if d_output is not None:
            for k, slot in enumerate(_columns_of(d_output, self.columns)):
                yield from gradient(k, slot)
            yield from weighted(d_output, weight)
        if d_target is not None:
            for k, slot in enumerate(_columns_of(d_target, n), self.columns):
                yield from gradient(k, slot)
            yield from weighted(d_target, weight)
        if d_weight is not None:
            yield call(np.multiply, rows[0], np.array(f.value_scale * share), rows[1])
            yield call(np.multiply, rows[1], np.array(1.0) if dy is None else dy, d_weight)

    def _check_range(self, target: Array) -> None:
        """Raise IndexRangeError for an invalid target; if any target is NaN, check nothing.

        `argmin` and `argmax` allocate nothing, and are faster than comparisons for small batches.
        """
        low, high = self.target_range
        least = target.item(target.argmin())
        if least < low or (self.open_below and least == low) or target.item(target.argmax()) > high:
            place = np.unravel_index(int(self.outside(target).argmax()), target.shape)
            row = place[0] if place else 0
            raise IndexRangeError(
                f"{self.name}: a target must {self._limits} (row {row} has {target[place]:g})"
            )


@lru_cache(maxsize=64)
def _derived(kind: type[EntryLoss], options: tuple[object, ...], _repr: str) -> LossFormulas:
    loss = kind(*options)
    names = ["y"] if loss.columns == 1 else [f"y{k}" for k in range(loss.columns)]
    count = loss.target_columns
    outputs = tuple(map(variable, names))
    targets = tuple(map(variable, ["t"] if count == 1 else [f"t{k}" for k in range(count)]))
    taken = signature(loss.formula)
    try:
        taken.bind(*outputs, *targets)
    except TypeError:
        outputs = ()
    if not outputs:
        raise FormulaError(f"{loss.name}: formula must take outputs and the target (got {taken})")
    formula = expression_of(loss, *outputs, *targets)
    entry, value_scale = without_factor(formula)
    gradient = loss.gradient(*outputs, *targets)
    slopes, scales = zip(*(without_factor(slope) for slope in gradient), strict=True)
    if value_scale == 0 or all(slope.number == 0 for slope in slopes[: len(outputs)]):
        listed = ", ".join(names)
        raise FormulaError(
            f"{loss.name}: the loss must change with {listed} (got {quoted(formula)})"
        )
    return LossFormulas(outputs, targets, entry, value_scale, slopes, scales)


def _columns_of(x: Array, count: int) -> list[Array]:
    """Return `count` views of `x`; view k has the columns k, k + count, k + 2 count, ..."""
    return [x] if count == 1 else [x[:, k::count] for k in range(count)]


def _each(stack: Array) -> list[Array]:
    """Return a list of the arrays along the first axis; numbers become 0-d arrays."""
    return [stack[i, ...] for i in range(len(stack))]


def by_row(x: Array) -> Array:
    """Return `x` (batch, ...) as a matrix (batch, entries)."""
    return x.reshape(len(x), x.size // max(len(x), 1))


def weighted(slot: Array, weight: Array | None) -> Calls:
    """Yield the call that multiplies each row of a gradient by its weight, if there are weights."""
    if weight is not None:
        yield call(np.multiply, by_row(slot), weight[:, None], by_row(slot))
