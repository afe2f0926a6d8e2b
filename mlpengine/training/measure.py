"""The metrics of trained networks on each part of the rows, with their uncertainty."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array
from mlpengine.models.evaluate import Evaluator, Scorer, standard_errors
from mlpengine.models.forward import outputs_of
from mlpengine.models.members import NetworkMean
from mlpengine.models.metrics import calibration_error
from mlpengine.models.task import OUT_OF_FOLD, Classification, Regression, Split
from mlpengine.nn import TabularNetwork
from mlpengine.training.trainer import Fitted

ONE_NETWORK, DEVIATION, OF_MEAN = "one network", "+-", "mean of all"
"""Titles of spreads: the mean over networks, a standard deviation or standard error, and an
out-of-fold estimate for the mean of all networks."""

TEACHER, DIRECT = "teacher", "direct"
"""Titles of the models compared with a student: its teacher, and a directly trained network."""

SPREADS = {
    ONE_NETWORK: "one network: mean and standard deviation (+-) over networks of different seeds",
    DIRECT: "direct: a network of the same size, trained on the targets of the table",
    DEVIATION: "+-: the standard error of each metric or, with seeds, the standard deviation",
    OF_MEAN: "mean of all: estimate for new rows, which all networks predict together",
}
"""Explanations of titles."""

Metrics = dict[str, float]


@dataclass
class Measured:
    """Loss and main metrics by part.

    `spreads` are further metrics by part and title.  With folds: the out-of-fold standard error,
    and an estimate for the mean of all networks (only the loss for classes).  With several seeds:
    mean and deviation.  For a student: the metrics of its teacher and of a directly trained
    network.  `calibration_error` belongs to the out-of-fold probabilities.  `last` has name, rows
    and outputs of the last part.
    """

    metrics: dict[str, Metrics] = field(default_factory=dict)
    spreads: dict[str, dict[str, Metrics]] = field(default_factory=dict)
    calibration_error: float | None = None
    last: tuple[str, Split, Array] | None = None

    @property
    def equals_teacher(self) -> bool:
        """Whether a student's loss is at most 5 % above its teacher's loss, on any part."""
        return any(
            self.metrics[part]["loss"] - scores[TEACHER]["loss"] <= 0.05 * scores[TEACHER]["loss"]
            for part, scores in self.spreads.items()
            if TEACHER in scores
        )


def measure(
    fitted: Fitted,
    parts: Mapping[str, Split],
    folds: Array | None = None,
    blocks: Array | None = None,
    beside: Mapping[str, Mapping[str, Array]] | None = None,
) -> Measured:
    """Measure trained networks on each part; with folds, the training part is out-of-fold.

    For two classes, the area under the ROC curve is measured, too; if costs chose the threshold,
    also the mean cost of a row.  The loss is the training loss or, for calibrated probabilities,
    the evaluation loss.

    `blocks` has a number for each training row; rows with equal numbers depend on each other.
    `beside` has outputs of other models by part and title; their metrics become `spreads`.
    """
    measured, mean, loss = Measured(), fitted.mean, fitted.scored_loss
    task, networks, evaluator = copy(mean.task), mean.networks, fitted.evaluator
    if isinstance(task, Classification) and task.outputs <= 2:
        task.watch("roc_auc")
        if task.threshold is not None and task.threshold.costs is not None:
            task.watch("cost")
    if evaluator is not None:
        evaluator = Evaluator(networks[0], loss, task, evaluator.ranks)
        for name, part in parts.items():
            measured.metrics[name] = evaluator.run(part)
            measured.last = name, part, evaluator.output
            if others := (beside or {}).get(name):
                scorer = Scorer(loss, task, task.outputs, networks[0].dtype)
                scores = {title: scorer.run(output, part) for title, output in others.items()}
                measured.spreads[name] = scores
        return measured
    scorer = Scorer(loss, task, task.outputs, networks[0].dtype)
    for name, part, output in outputs(mean, parts, folds):
        measured.metrics[name] = scorer.run(output, part)
        measured.last = name, part, output
        if name == OUT_OF_FOLD:
            errors = standard_errors(scorer, output, part, blocks)
            measured.spreads[name] = {DEVIATION: errors}
            if of_mean := _of_mean(fitted, scorer, output, part):
                measured.spreads[name][OF_MEAN] = of_mean
            chances = task.probabilities(output)
            if chances is not None:
                measured.calibration_error = calibration_error(part.truth, chances, part.weights)
        elif folds is None:
            measured.spreads[name] = _over_networks(scorer, part, networks)
    return measured


def outputs(
    mean: NetworkMean, parts: Mapping[str, Split], folds: Array | None
) -> Iterator[tuple[str, Split, Array]]:
    """Yield name, rows and outputs of each part; outputs of training rows are out-of-fold."""
    for name, part in parts.items():
        if name == "train" and folds is not None:
            yield OUT_OF_FOLD, part, mean.out_of_fold(part.x, folds)
        else:
            yield name, part, mean.forward(part.x)


def explained_rows(
    mean: NetworkMean, parts: Mapping[str, Split], folds: Array | None, limit: int
) -> tuple[str, Split, Callable[[Array], Array]]:
    """Return name, at most `limit` evenly spaced rows, and a function that predicts these rows.

    With folds, the rows are training rows, predicted out-of-fold.  Without folds, the rows are from
    the test part; if it is missing, from the validation or the training part.  The function takes
    the features of these rows, or several copies of all rows one after another.
    """
    first = "train" if folds is not None else "test"
    name = next(n for n in (first, "validation", "train") if n in parts)
    chosen = evenly_spaced(len(parts[name]), limit)
    rows = parts[name].rows(chosen)
    if folds is None:
        return name, rows, mean.forward
    of_rows = folds[chosen]
    return OUT_OF_FOLD, rows, lambda x: mean.out_of_fold(x, np.resize(of_rows, len(x)))


def _over_networks(
    scorer: Scorer, part: Split, networks: Sequence[TabularNetwork]
) -> dict[str, Metrics]:
    scores = [scorer.run(output, part) for output in outputs_of(networks, part.x)]
    values = np.array([[*one.values()] for one in scores])
    with np.errstate(over="ignore", invalid="ignore"):  # a metric may be infinite
        both = {ONE_NETWORK: values.mean(axis=0), DEVIATION: values.std(axis=0, ddof=1)}
    return {title: dict(zip(scores[0], of.tolist(), strict=True)) for title, of in both.items()}


def _of_mean(fitted: Fitted, scorer: Scorer, output: Array, part: Split) -> Metrics:
    """Return estimated metrics for the mean of all networks on new rows."""
    share, task = fitted.mean_error, fitted.mean.task
    if share is None:
        return {}
    if not isinstance(task, Regression) or not task.has_errors:
        return {"loss": scorer.mean_loss(output, part) * float(share[0])}
    if output.shape != part.y.shape or task.loss.log_link:
        return {}
    return scorer.run(part.y + (output - part.y) * np.sqrt(share), part)
