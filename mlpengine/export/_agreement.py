"""Compare the predictions of an exported file with the predictions of mlpengine."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.core.wording import label_text
from mlpengine.data.features.targets import Label
from mlpengine.data.tables import Table
from mlpengine.models.model import Model
from mlpengine.models.task import MultiLabel, Regression

EXPORT_TOLERANCE = 1e-5
"""Maximum difference of probabilities, or of predicted numbers in scaled units.

The difference of numbers is relative to the largest number if this number exceeds 1."""


def label_array(classes: Sequence[Label]) -> Array:
    """Return labels in the dtype of the output: int64 if all are whole numbers, else text."""
    if all(isinstance(label, int) and not isinstance(label, bool) for label in classes):
        return np.array(classes, np.int64)
    return np.array([*map(label_text, classes)], object)


def largest_difference(model: Model, table: Table, outputs: list[Any]) -> float:
    """Return the largest difference between `outputs` for a table and mlpengine's outputs.

    The difference is infinite if a label differs, unless both labels are almost equally likely.
    """
    ours, task = model.forward(model.preprocessor.features_of(table)), model.task
    expected = task.predicted_numbers(ours)
    if isinstance(task, Regression):
        count, theirs = len(task.loss.predictions), outputs[0]
        if task.target.log:
            expected, theirs = np.log(expected), np.log(theirs)
        center, scale = (np.repeat(a, count) for a in (task.target.center, task.target.scale))
        theirs, expected = (theirs - center) / scale, (expected - center) / scale
        return float(row_errors(theirs, expected).max(initial=0.0))
    labels = task.predict(ours)
    if isinstance(task, MultiLabel):
        sure = np.abs(expected - 0.5) > EXPORT_TOLERANCE
    else:
        labels = label_array(model.preprocessor.classes)[labels]
    if (threshold := model.threshold) is not None:
        sure = np.abs(expected[:, threshold.positive] - threshold.value) > EXPORT_TOLERANCE
    elif not isinstance(task, MultiLabel):
        ordered = np.sort(expected, axis=1)
        sure = ordered[:, -1] - ordered[:, -2] > 2 * EXPORT_TOLERANCE
    agree = bool((outputs[1] == labels)[sure].all())
    return float(row_errors(outputs[0], expected).max(initial=0.0)) if agree else np.inf


def row_errors(outputs: Array, ours: Array) -> Array:
    """Return the largest differences (rows,) between two arrays (rows, columns).

    In a column, differences are divided by the largest value of `ours` if this value exceeds 1.
    Equal infinities do not differ, nor do two NaN.
    """
    wide = ours.astype(np.float64)
    scale = np.abs(wide).max(axis=0, initial=1.0, where=np.isfinite(wide))
    differ = ~((outputs == wide) | (np.isnan(outputs) & np.isnan(wide)))
    errors = np.subtract(outputs, wide, out=np.zeros_like(wide), where=differ)
    rows: Array = (np.abs(errors) / scale).reshape(len(ours), -1).max(axis=1, initial=0.0)
    return rows
