"""Finding columns that give the target away: copies of it, codes for it, sums that contain it."""

from dataclasses import dataclass

import numpy as np

from mlpengine.data.categories import codes_into
from mlpengine.data.kinds import Task
from mlpengine.data.sources import LIMIT
from mlpengine.data.table import Column
from mlpengine.spec import Array

ANSWER = 0.97
"""From this share explained by one column alone, the column is nearly the answer.

Honest predictors stay below: carat explains 0.87 of a diamond's price, displacement 0.90 of the
number of cylinders, flipper length 0.66 of a penguin's species.
"""

PART = 0.9
"""Between this and ANSWER a column counts as leaking only if it may contain the target: hardly
ever below it (or hardly ever above it), and of its size, as a total and one of its summands are."""

PART_ROWS = 0.999
FEWEST_ROWS = 20
FEW_VALUES = 100
NEIGHBORS = 10


@dataclass(frozen=True, slots=True)
class Leak:
    """A column that gives the target away, the share it explains, and why it is suspected."""

    column: str
    share: float
    reason: str


def find_leak(name: str, column: Column, target: Array, task: Task) -> Leak | None:
    """Return the leak of a column into the target, or None.

    `target` holds class numbers or, for regression, values. The share explained is what the best
    guess from this column alone removes of the error of the best constant guess: of the wrong
    classes, or of the squared error. Guesses come from the other rows of the same value or, for
    numbers of many values, from the nearest ones, or from a straight line.
    """
    present = ~column.missing
    if present.sum() < FEWEST_ROWS or np.ptp(target) == 0:
        return None
    near = neighbors(column)
    if task == "classification":
        share = share_of_classes(near, target)
        reason = f"alone it tells the class of {_percent(share)} of the rows beyond guessing"
        return Leak(name, share, reason) if share >= ANSWER else None
    share = share_of_squares(near, target)
    if column.kind == "number":
        present &= np.abs(column.values) <= LIMIT
        values, known = column.values[present].astype(np.float64), target[present]
        line = share_of_line(values, known) if present.mean() > 0.5 else 0.0
        share = max(share, line)
        side = beside(values, known)
        if PART <= line < ANSWER and side:
            return Leak(name, line, f"it is never {side} the target and follows it (R2 {line:.3f})")
    reason = f"alone it explains {_percent(share)} of the target (R2 {share:.3f})"
    return Leak(name, share, reason) if share >= ANSWER else None


@dataclass(frozen=True, slots=True)
class Neighbors:
    """Rows in an order in which those of like value stand together.

    The neighbors of the i-th row in `order` are those from `start[i]` up to `stop[i]`, but itself.
    """

    order: Array
    start: Array
    stop: Array

    def totals(self, values: Array) -> Array:
        """Return the sum of a value (one per row) over the neighbors of each row in order."""
        ordered = values[self.order]
        sums = np.concatenate([[0.0], np.cumsum(ordered)])
        result: Array = sums[self.stop] - sums[self.start] - ordered
        return result


def neighbors(column: Column) -> Neighbors:
    """Return which rows are alike in a column: of equal value, or nearest in a long one."""
    distinct = column.distinct()
    codes = codes_into(distinct, column)
    codes = np.where(codes < 0, np.iinfo(np.int32).max, codes)
    # rows of equal value in random order, so that the order of the file tells nothing
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    ordered = codes[order]
    if column.kind == "text" or len(distinct) <= FEW_VALUES:
        start = np.searchsorted(ordered, ordered, "left")
        return Neighbors(order, start, np.searchsorted(ordered, ordered, "right"))
    place = np.arange(len(codes))
    start = np.maximum(place - NEIGHBORS, 0)
    return Neighbors(order, start, np.minimum(place + NEIGHBORS + 1, len(codes)))


def share_of_classes(near: Neighbors, target: Array) -> float:
    """Return the share of errors beyond the largest class that the neighbors' largest class mends.

    A row without neighbors is guessed to be of the largest class of all.
    """
    _, classes, counts = np.unique(target, return_inverse=True, return_counts=True)
    base = int(counts.argmax())
    guess, votes = np.full(len(target), base), np.zeros(len(target))
    for number in range(len(counts)):
        found = near.totals(classes == number)
        guess[found > votes] = number
        np.maximum(votes, found, out=votes)
    right = int((guess == classes[near.order]).sum())
    return float((right - counts[base]) / (len(target) - counts[base]))


def share_of_squares(near: Neighbors, target: Array) -> float:
    """Return the R2 of guessing each value by the mean of its neighbors."""
    values = target - target.mean()
    count = near.stop - near.start - 1
    errors = values[near.order] - near.totals(values) / np.maximum(count, 1)
    return 1 - float(errors @ errors) / float(values @ values)


def share_of_line(values: Array, target: Array) -> float:
    """Return the R2 of the best straight line from values to target."""
    if np.ptp(values) == 0 or np.ptp(target) == 0:
        return 0.0
    return float(np.corrcoef(values, target)[0, 1] ** 2)


def beside(values: Array, target: Array) -> str:
    """Return "below" if a column may be a sum that holds the target, "above" if a summand, or "".

    That is, on which side of the target (nearly) none of the values lie, if they are of its size.
    """
    size = np.median(np.abs(target))
    if not size or not 0.5 <= np.median(np.abs(values)) / size <= 2:
        return ""
    slack = 1e-9 * np.abs(target).max()
    if (values >= target - slack).mean() >= PART_ROWS:
        return "below"
    return "above" if (values <= target + slack).mean() >= PART_ROWS else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
