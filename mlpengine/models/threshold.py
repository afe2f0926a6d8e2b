"""The choice of a threshold: the probability above which the positive class is predicted."""

from typing import Any, Literal, cast

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array
from mlpengine.core.wording import label_index, suggestion
from mlpengine.models.metrics import higher_is_better
from mlpengine.models.task import Classification, Split, Task, Threshold
from mlpengine.settings.structure import conform
from mlpengine.settings.training import ThresholdChoice

CANDIDATES = 99
"""Number of thresholds to compare; they are quantiles of the probabilities."""

BANDWIDTH = 0.2
"""Standard deviation, in log odds, of a Gaussian filter of scores over thresholds.

Without the filter, chance would choose the threshold among few rows.  On eight tables of 300 to
6,700 rows, 0.15 and 0.3 gave lower costs and better F1 than 0 (no filter), 0.05, 0.5 and 0.8.
"""


def restored_threshold(state: object) -> Threshold:
    """Return a threshold from the data of `Threshold._asdict`.  Raises: CheckpointError."""
    conform(state, Threshold, "threshold")
    known = {"costs": None, **cast("dict[str, Any]", state)}
    return Threshold(**{**known, "costs": known["costs"] and tuple(known["costs"])})


def check_threshold(choice: ThresholdChoice, task: Task) -> Threshold:
    """Return a threshold of 0.5 with the positive class and the costs in `choice`."""
    if not isinstance(task, Classification) or len(task.labels) != 2:
        count = f"{len(task.labels)} classes" if isinstance(task, Classification) else "no classes"
        raise UsageError(f"is for two classes (the target has {count})")
    metric, known = choice.metric, task.decision_metrics
    positive: Literal[0, 1] = 1
    if metric is not None and metric not in known:
        listed = ", ".join(known)
        raise UsageError(
            f"metric must be one of {listed} (got {metric!r}){suggestion(metric, known)}"
        )
    if choice.positive is not None:
        index = label_index(choice.positive, task.labels)
        if index is None:
            both = " or ".join(map(repr, task.labels))
            raise UsageError(f"positive must be {both} (got {str(choice.positive)!r})")
        positive = cast("Literal[0, 1]", index)
    costs = None
    if choice.costs is not None:
        given = {"false_negative": 1.0, "false_positive": 1.0, **choice.costs}
        costs = given["false_negative"], given["false_positive"]
    return Threshold(0.5, positive, costs)


def choose_threshold(
    choice: ThresholdChoice, task: Classification, output: Array, part: Split
) -> Threshold:
    """Return the threshold with the best score, for the networks' outputs of unseen rows.

    The score of a threshold is a weighted mean over near thresholds (`BANDWIDTH`).
    """
    start = check_threshold(choice, task)
    name = choice.metric or "cost"
    chances = task.probabilities(output)[:, start.positive]
    shares = np.linspace(0, 1, CANDIDATES + 2)[1:-1]
    values = np.unique(np.quantile(chances, shares, method="nearest")).clip(1e-9, 1 - 1e-9)
    scores = np.array(
        [
            task.with_threshold(start._replace(value=value)).metric(name, output, part)
            for value in values.tolist()
        ]
    )
    odds = np.log(values / (1 - values))
    near = np.exp(-0.5 * ((odds[:, None] - odds) / BANDWIDTH) ** 2)
    means = near @ scores / near.sum(axis=1)
    best = means.argmax() if higher_is_better(name) else means.argmin()
    return start._replace(value=float(values[best]))
