"""Finding columns that give the target away: copies of it, codes for it, sums that contain it."""

from dataclasses import dataclass

import numpy as np

from mlpengine.data.categories import coded
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
MOST_BINS = 100
ROWS_PER_BIN = 20


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
    classes, or of the squared error. Guesses come from the other rows that share the row's value
    (or its bin, for many values; missing cells share one) and, for numbers, from a straight line.
    """
    present = ~column.missing
    if present.sum() < FEWEST_ROWS or np.ptp(target) == 0:
        return None
    groups = _groups(column)
    if task == "classification":
        share = share_of_classes(groups, target)
        reason = f"alone it tells the class of {_percent(share)} of the rows beyond guessing"
        return Leak(name, share, reason) if share >= ANSWER else None
    share = share_of_squares(groups, target)
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


def share_of_classes(groups: Array, target: Array) -> float:
    """Return the share of errors beyond the largest class that the groups' largest classes mend.

    A row does not vote on its own guess, so a group of one guesses the largest class of all.
    """
    _, classes = np.unique(target, return_inverse=True)
    counts = np.zeros((groups.max() + 1, classes.max() + 1))
    np.add.at(counts, (groups, classes), 1)
    total = counts.sum(axis=0)
    right = 0.0
    for number in range(len(total)):
        others = counts.copy()
        others[:, number] -= 1
        guess = np.where(others.sum(axis=1) > 0, others.argmax(axis=1), total.argmax())
        right += float(counts[guess == number, number].sum())
    base = float(total.max())
    return (right - base) / (len(target) - base)


def share_of_squares(groups: Array, target: Array) -> float:
    """Return the R2 of guessing each value by the mean of the others in its group."""
    values = target - target.mean()
    counts = np.bincount(groups)
    means = np.bincount(groups, values) / np.maximum(counts, 1)
    size = counts[groups]
    left_out = (values - means[groups]) * size / np.maximum(size - 1, 1)
    errors = np.where(size > 1, left_out, values)
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


def _groups(column: Column) -> Array:
    """Return a group number per row: its value, or its bin of neighboring values."""
    codes, texts = coded(column)
    rows = len(codes)
    bins = max(2, min(MOST_BINS, rows // ROWS_PER_BIN))
    groups = codes.astype(np.int64)
    if column.kind != "text" and len(texts) > bins:
        present = codes >= 0
        edges = np.quantile(codes[present], np.arange(1, bins) / bins)
        groups[present] = np.searchsorted(edges, codes[present], "right")
    groups[codes < 0] = groups.max() + 1
    return groups


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
