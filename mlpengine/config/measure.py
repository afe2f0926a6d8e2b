"""The metrics of an experiment after training, by part, and how far they can be trusted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from mlpengine.config.build import Experiment
from mlpengine.nn import Mlp
from mlpengine.spec import Array
from mlpengine.train.calibration import calibration_error
from mlpengine.train.ensemble import EnsembleLoop
from mlpengine.train.evaluate import Evaluator, Scorer, standard_errors
from mlpengine.train.loop import Loop
from mlpengine.train.model import Model
from mlpengine.train.task import Regression, Split

OUT_OF_FOLD = "out_of_fold"
"""The name of the training rows, each predicted by the network that did not train on it."""

ONE_NETWORK, DEVIATION, OF_MEAN = "one network", "+-", "mean of all"
"""The titles of spreads: the mean over networks; a standard deviation or standard error; and the
score out of fold as that of the mean of all networks."""

Metrics = dict[str, float]


@dataclass
class Measured:
    """Loss and headline metrics by part.

    `spreads` hold further metrics by part and title: out of fold the standard error and an estimate
    of the mean of all networks (of classes the loss alone); with several seeds mean and deviation.
    `calibration_error` is that of probabilities out of fold.  `last` is name, rows and outputs of
    the last part.
    """

    metrics: dict[str, Metrics] = field(default_factory=dict)
    spreads: dict[str, dict[str, Metrics]] = field(default_factory=dict)
    calibration_error: float | None = None
    last: tuple[str, Split, Array] | None = None


def measure(experiment: Experiment, loop: Loop | EnsembleLoop) -> Measured:
    """Measure the model of an experiment that was trained by `loop`.

    The loss is that of training or, of calibrated probabilities, that of evaluation.
    """
    measured = Measured()
    model, task, folds = experiment.model, experiment.task, experiment.tables.folds
    loss = experiment.scored_loss
    if isinstance(loop, Loop):
        evaluator = loop.evaluator
        if loss is not experiment.loss:
            evaluator = Evaluator(model.mlp, loss, task, loop.step.ranks)
        for name, part in experiment.parts.items():
            measured.metrics[name] = evaluator.run(part)
            measured.last = name, part, evaluator.output
        return measured
    scorer = Scorer(loss, task, task.outputs, model.mlp.dtype)
    for name, part, output in outputs(experiment):
        measured.metrics[name] = scorer.run(output, part)
        measured.last = name, part, output
        if name == OUT_OF_FOLD:
            errors = standard_errors(scorer, output, part, _dependent(experiment))
            measured.spreads[name] = {DEVIATION: errors}
            of_mean = _of_mean(experiment, scorer, output, part)
            if of_mean:
                measured.spreads[name][OF_MEAN] = of_mean
            chances = task.probabilities(output)
            if chances is not None:
                error = calibration_error(chances, part.truth, part.weights)
                measured.calibration_error = error
        elif folds is None:
            measured.spreads[name] = _over_networks(scorer, part, model.networks)
    return measured


def recorded(experiment: Experiment, measured: Measured) -> Model:
    """Return the model of an experiment with the record of its training."""
    if measured.last is None:
        return experiment.model
    part, config = measured.last[0], experiment.file.config
    values = {n: float(f"{v:.6g}") for n, v in measured.metrics[part].items() if isfinite(v)}
    record = {
        "source": Path(config.data.source).name,
        "seed": config.seed,
        "folds": config.training.folds,
        "rows": dict(experiment.tables.rows),
        "part": part,
        "metrics": values,
    }
    return replace(experiment.model, record=record)


def outputs(experiment: Experiment) -> Iterator[tuple[str, Split, Array]]:
    """Yield name, rows and outputs of each part that the model of an experiment predicts."""
    for name, part in experiment.parts.items():
        if name == "train" and experiment.tables.folds is not None:
            yield OUT_OF_FOLD, part, experiment.out_of_fold()
        else:
            yield name, part, experiment.model.forward(part.x)


def explained_rows(
    experiment: Experiment, limit: int
) -> tuple[str, Split, Callable[[Array], Array]]:
    """Return at most `limit` rows that did not train the model, and what predicts them.

    They are evenly spaced rows out of fold, or of the test, validation or training part.
    """
    model, folds, parts = experiment.model, experiment.tables.folds, experiment.parts
    first = "train" if folds is not None else "test"
    name = next(n for n in (first, "validation", "train") if n in parts)
    chosen = np.arange(0, len(parts[name]), -(-len(parts[name]) // limit))
    rows = parts[name].rows(chosen)
    if folds is None:
        return name, rows, model.forward
    of_rows = folds[chosen]
    return OUT_OF_FOLD, rows, lambda x: model.mean.out_of_fold(x, of_rows)


def _over_networks(scorer: Scorer, part: Split, networks: Sequence[Mlp]) -> dict[str, Metrics]:
    scores = [scorer.run(network.predict(part.x), part) for network in networks]
    return {
        ONE_NETWORK: {name: fmean(s[name] for s in scores) for name in scores[0]},
        DEVIATION: {name: stdev(s[name] for s in scores) for name in scores[0]},
    }


def _of_mean(
    experiment: Experiment, scorer: Scorer, output: Array, part: Split
) -> dict[str, float]:
    """Return the metrics of the mean of all networks on new rows, as far as they are known.

    Of numbers those out of fold with smaller errors, unless outputs are something else than the
    numbers; of classes the loss.
    """
    share, task = experiment.mean_error, experiment.task
    if share is None:
        return {}
    if not isinstance(task, Regression):
        return {"loss": scorer.mean_loss(output, part) * float(share[0])}
    if output.shape != part.y.shape or task.loss.log_link:
        return {}
    return scorer.run(part.y + (output - part.y) * np.sqrt(share), part)


def _dependent(experiment: Experiment) -> Array | None:
    """Return the fold of each training row where rows of a fold depend on each other."""
    split = experiment.file.config.data.split
    return experiment.tables.folds if split.group or split.time else None
