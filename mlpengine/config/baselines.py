"""Comparison of a model with baselines, on rows that did not train the model."""

from math import nan
from typing import Any, NamedTuple

import numpy as np

from mlpengine.config.build import LoadedData
from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array
from mlpengine.diagnostics.baselines import BaselineScore
from mlpengine.models import baselines
from mlpengine.models.members import NetworkMean
from mlpengine.models.metrics import higher_is_better
from mlpengine.models.task import OUT_OF_FOLD, PART_PHRASES, Classification, Split, Task, Threshold
from mlpengine.settings import Fix, NetworkSettings, TrainingSettings
from mlpengine.settings.base import options_of
from mlpengine.settings.network import OWN_OPTIONS
from mlpengine.settings.training import LINEAR

SCORED, SCORED_VALUES = 10_000, 1 << 24
"""Maximum rows, evenly spaced, and maximum output values of these rows, for metrics and charts."""

WORK = 5e8
"""Maximum multiplications for the linear prediction right after training, about 0.1 s."""

COMPARED, COMPARED_WORK = 2_000, 1.5e8
"""Maximum rows, and maximum multiplications of the linear prediction, in `linear_comparison`."""

LINEAR_STEPS = 2_000
"""Minimum steps of an advised linear model: at 0.001 a step, Adam reaches weights of about 1."""


class ScoredRows(NamedTuple):
    """Rows of one part, with the model's outputs and predictions.

    `numbers` are the row indices in the part; `total` is the number of all rows of the part.
    """

    part: str
    rows: Split
    output: Array
    predicted: Array
    numbers: Array
    total: int
    task: Task


def scored_rows(
    data: LoadedData,
    mean: NetworkMean,
    known: tuple[str, Split, Array] | None = None,
    *,
    test: bool = True,
    most: int = SCORED,
) -> ScoredRows:
    """Return up to `most` rows of one part, evenly spaced.

    The part is the first that exists: test (unless `test=False`), out-of-fold rows (if there are
    folds), validation, training.  If outputs of a part are already computed, `known` has the name,
    the rows and the outputs of this part.
    """
    parts, folds = data.parts, data.folds
    order = ("test", "train") if folds is not None else ("test", "validation", "train")
    name = next(part for part in order[not test :] if part in parts)
    part = parts[name]
    chosen = evenly_spaced(len(part), min(most, SCORED_VALUES // data.task.outputs))
    rows = part.rows(chosen)
    title = OUT_OF_FOLD if name == "train" and folds is not None else name
    if known is not None and known[0] == title:
        output = known[2][chosen]
    elif title == OUT_OF_FOLD and folds is not None:
        output = mean.out_of_fold(rows.x, folds[chosen])
    else:
        output = mean.forward(rows.x)
    return ScoredRows(title, rows, output, mean.task.predict(output), chosen, len(part), mean.task)


def score_of(
    data: LoadedData,
    scored: ScoredRows,
    work: float = WORK,
    threshold: Threshold | None = None,
) -> dict[str, Any]:
    """Return the metrics of the model, and of a linear and a constant prediction.

    The first metric is the main metric: the first of `compared_metrics`, or the pinball loss if R2
    does not judge the quantiles.  For a student (see `distill`), the metrics of its teacher and of
    a directly trained network are included.  Standard errors are for all rows of the part, not only
    for the scored rows.  All predictions use the `threshold`; without it, they are the classes with
    the highest probability.
    """
    task, train, folds = data.task, data.parts["train"], data.folds
    if isinstance(task, Classification) and threshold is not None:
        task = task.with_threshold(threshold)
    chances = task.probabilities(scored.output)
    names = baselines.compared_metrics(task, truth := scored.rows.truth)
    predictions = {"model": baselines.Guess(task.predict(scored.output), chances)}
    beside = data.transfer.beside.get(scored.part, {}) if data.transfer else {}
    for title, outputs in beside.items():
        output = outputs[scored.numbers]
        predictions[title] = baselines.Guess(task.predict(output), task.probabilities(output))
    blocks = None
    if scored.part == OUT_OF_FOLD and folds is not None:
        of_rows = folds[scored.numbers]
        blocks = None if data.blocks is None else of_rows
        straight = baselines.out_of_fold(task, train.rows(scored.numbers), of_rows, work)
    else:
        straight = baselines.linear_prediction(task, train, scored.rows.x, work)
    if straight is not None and not misjudged(data):
        predictions["linear"] = straight
    predictions["constant"] = baselines.constant_prediction(task, train, len(scored.rows))
    predictions = {who: one.decided(threshold) for who, one in predictions.items()}
    if task.levels and misjudged(data) and not np.isnan(truth).any():
        best = data.loss.best_constant(train.y, task.outputs, train.weights)
        others = {who: output[scored.numbers] for who, output in beside.items()}
        every = {"model": scored.output, **others, "constant": np.tile(best, (len(truth), 1))}
        names = ["pinball"]
        predictions = {
            who: baselines.Guess(task.predict(one), losses=task.pinball_losses(truth, one))
            for who, one in every.items()
        }
    table = baselines.baseline_scores(names, truth, predictions, scored.rows.weights, blocks)
    share = np.sqrt(len(scored.rows) / scored.total)
    for metrics in table.values():
        for one in metrics.values():
            one["error"] *= share
    return {"part": scored.part, "rows": scored.total, "metric": names[0], "predictions": table}


def misjudged(data: LoadedData) -> bool:
    """Return whether R2 does not judge the predictions, such as one high quantile."""
    of_numbers = getattr(data.task, "has_errors", False)
    return of_numbers and not getattr(data.loss.plain(), "is_central", True)


def linear_comparison(data: LoadedData, mean: NetworkMean) -> BaselineScore | None:
    """Compare a model with a linear model, for a verdict, on out-of-fold or validation rows.

    Returns None without such rows, for a linear model, and for predictions that are not finite.
    Test rows are not used: a user who applies the fix would choose the model by its test score.
    The fix replaces the model by a linear model, or adds a linear model to each fold.  An ensemble
    with a linear model is not compared; only its own score is measured.
    """
    config = data.file.config
    if (data.folds is None and "validation" not in data.parts) or not config.model.hidden:
        return None
    if misjudged(data):
        return None
    scored = scored_rows(data, mean, test=False, most=COMPARED)
    if not np.isfinite(scored.output).all():
        return None
    members = config.training.fold_members
    if LINEAR in members:
        name = baselines.compared_metrics(data.task, scored.rows.truth)[0]
        value = data.task.metric(name, scored.output, scored.rows)
        return BaselineScore(name, PART_PHRASES[scored.part], value, nan, nan, nan)
    score = score_of(data, scored, COMPARED_WORK)
    metric, rows = score["metric"], score["predictions"]
    if "linear" not in rows or not higher_is_better(metric):
        return None
    linear_model: dict[str, Any] = {"hidden": (), "activation": "relu", "dropout": 0.0}
    if (network := config.model.network) != "mlp":
        own = {name: options_of(NetworkSettings)[name].default for name in OWN_OPTIONS[network]}
        linear_model = {"network": "mlp", **own, **linear_model}
    fix = [Fix(NetworkSettings, name, value) for name, value in linear_model.items()]
    epochs = -(-LINEAR_STEPS * data.batch_size // len(data.parts["train"]))
    if epochs > config.training.epochs:
        fix.append(Fix(TrainingSettings, "epochs", epochs))
    if config.training.folds:
        fix = [Fix(TrainingSettings, "members", (*(members or ["plain"]), LINEAR))]
    value, linear, constant = (
        rows[who][metric]["value"] for who in ("model", "linear", "constant")
    )
    error = rows["linear"]["ahead"]["error"]
    return BaselineScore(metric, PART_PHRASES[score["part"]], value, linear, constant, error, fix)
