"""Predictions of scored rows, compared with the true values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpengine.config.baselines import ScoredRows
from mlpengine.config.build import LoadedData
from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array
from mlpengine.models import censored
from mlpengine.models.metrics import (
    commonest_mistakes,
    confusion_matrix,
    counts_above,
    log_losses,
    precision,
    recall,
    roc_auc,
)
from mlpengine.models.model import Model
from mlpengine.models.task import (
    OUT_OF_FOLD,
    CensoredTimes,
    Classification,
    MultiLabel,
    Regression,
    Task,
    Threshold,
)

SHOWN_POINTS, SHOWN_TARGETS = 1_000, 4
MAX_MATRIX = 12
"""Maximum classes for a confusion matrix; with more, the commonest mistakes are listed."""

MISTAKES, RELIABILITY_BINS, HARDEST = 10, 10, 10
INTERVAL_LEVELS = 0.5, 0.8, 0.9, 0.95
INTERVAL_ROWS = 2_000


def predictions_of(model: Model, task: Task, scored: ScoredRows) -> dict[str, Any]:
    """Return predicted against true values, and the calibration of probabilities and intervals."""
    result: dict[str, Any] = {"part": scored.part, "rows": len(scored.rows)}
    if isinstance(task, Classification):
        result |= _classes(scored, task.labels)
        if len(task.labels) == 2:
            threshold = model.threshold or Threshold()
            result["curves"] = _curves(task, scored, threshold, task.labels[threshold.positive])
    elif isinstance(task, CensoredTimes):
        result["calibration"] = _outlasting(task, scored)
    elif isinstance(task, Regression):
        result["targets"] = [
            of_numbers(scored.rows.truth[:, k], scored.predicted[:, k], name)
            for k, name in enumerate(task.target.names[:SHOWN_TARGETS])
            if not np.isnan(scored.rows.truth[:, k]).all()
        ]
        result["more_targets"] = max(0, len(task.target.columns) - SHOWN_TARGETS)
    elif isinstance(task, MultiLabel):
        result["labels"] = _labels(scored, task.labels)
    if not isinstance(task, Regression):
        result["calibration"] = _calibration(task, scored)
    if scored.part == OUT_OF_FOLD:
        return result
    if model.residuals is not None:
        result["intervals"] = _intervals(model, scored)
    if model.sets is not None:
        result["sets"] = _sets(model, scored)
    return result


def hardest_of(loaded: LoadedData, scored: ScoredRows, columns: Sequence[str]) -> dict[str, Any]:
    """Return the rows with the largest loss, and their values in some columns."""
    task = loaded.task
    truth, rows = scored.rows.truth, scored.rows
    losses, chances = _row_losses(task, scored), task.probabilities(scored.output)
    order = np.argsort(-losses, kind="stable")[:HARDEST]
    table, numbers = loaded.tables.parts["train" if scored.part == OUT_OF_FOLD else scored.part]
    table = table.rows(numbers[scored.numbers[order]])
    table = loaded.tables.preprocessor.with_computed(table)
    shown = [name for name in columns if name in table]
    hardest = []
    for k, row in enumerate(order.tolist()):
        one: dict[str, Any] = {
            "place": rows.places.rows.place(row) if rows.places else f"row {row}",
            "loss": float(losses[row]),
        }
        if isinstance(task, Classification) and chances is not None:
            one["target"] = task.labels[int(truth[row])]
            one["predicted"] = task.labels[int(scored.predicted[row])]
            one["probability"] = float(chances[row, int(truth[row])])
        else:
            one["target"] = truth[row].tolist()
            if isinstance(task, CensoredTimes):
                one["target"] = _known_of(*truth[row])
            one["predicted"] = scored.predicted[row].tolist()
        one["cells"] = [table[name].text(k) for name in shown]
        hardest.append(one)
    unit = "pinball losses, " * bool(task.levels) + "in standard deviations of the target"
    if "r2" in task.headline and np.isnan(task.metric("r2", scored.output, rows)):
        unit = "in the target's unit, because the true values are equal"
    unit = "negative log-likelihoods" if isinstance(task, CensoredTimes | MultiLabel) else unit
    return {"part": scored.part, "columns": shown, "rows": hardest, "unit": unit}


def _classes(scored: ScoredRows, labels: list[str]) -> dict[str, Any]:
    truth, weights = scored.rows.truth.astype(np.int64), scored.rows.weights
    count = len(labels)
    shares = {"recall": recall, "precision": precision}
    by_class: dict[str, list[float]] = {}
    for name, function in shares.items():
        values = np.zeros(count)
        some = function(truth, scored.predicted, weights)
        values[: len(some)] = some[:count]
        by_class[name] = values.tolist()
    result: dict[str, Any] = {
        "classes": labels,
        "weighted": weights is not None,
        "class_rows": np.bincount(truth, minlength=count).tolist(),
        **by_class,
        "mistakes": [
            {"true": labels[actual], "predicted": labels[taken], "rows": rows}
            for actual, taken, rows in commonest_mistakes(truth, scored.predicted, MISTAKES)
        ],
    }
    if count <= MAX_MATRIX:
        result["confusion"] = confusion_matrix(truth, scored.predicted, count).tolist()
    return result


def _curves(
    task: Classification, scored: ScoredRows, threshold: Threshold, label: str
) -> dict[str, Any] | None:
    """Return recall and other metrics by threshold, and at the model's threshold and at 0.5.

    Returns None if all rows have the same class.
    """
    chances = task.probabilities(scored.output)[:, threshold.positive]
    is_positive = scored.rows.truth == threshold.positive
    counts = counts_above(is_positive, chances, scored.rows.weights)
    true, false = (np.append(0.0, count) for count in counts)
    if not true[-1] or not false[-1]:
        return None
    levels = np.unique(chances)
    precise = true[1:] / (true + false)[1:]
    shares = {
        "recall": true / true[-1],
        "false_positive_rate": false / false[-1],
        "precision": np.append(precise[0], precise),
        "rows": (true + false) / (true[-1] + false[-1]),
    }
    shown = np.union1d(evenly_spaced(len(true), SHOWN_POINTS // 4), len(true) - 1)
    decisions = []
    for value in dict.fromkeys([threshold.value, 0.5]):
        chosen, own = (
            int((levels > value).sum()),
            task.with_threshold(threshold._replace(value=value)),
        )
        names = ["accuracy", *["cost"] * (threshold.costs is not None)]
        decisions.append(
            {"threshold": value}
            | {name: own.metric(name, scored.output, scored.rows) for name in names}
            | {name: float(values[chosen]) for name, values in shares.items()}
        )
    return {
        "of": label,
        "threshold": threshold.value,
        "area": roc_auc(scored.rows.truth, task.probabilities(scored.output), scored.rows.weights),
        "decisions": decisions,
        **{name: values[shown] for name, values in shares.items()},
    }


def of_numbers(truth: Array, predicted: Array, name: str) -> dict[str, Any]:
    """Return true and predicted numbers, and the distribution of their differences."""
    truth, predicted = truth[known := ~np.isnan(truth)], predicted[known]
    every = -(-len(truth) // SHOWN_POINTS)
    off = predicted - truth
    known = off[np.isfinite(off)]
    off = known if known.size else np.zeros(1)
    low, high = np.quantile(off, (0.005, 0.995)) if len(off) > 200 else (off.min(), off.max())
    bins = int(np.clip(2 * np.sqrt(len(off)), 5, 40))
    least = bins * np.spacing(max(abs(low), abs(high)))  # narrower bins would have equal edges
    if not high - low > least:
        low, high = low - max(0.5, least), high + max(0.5, least)
    counts, edges = np.histogram(off, bins, (low, high))
    return {
        "name": name,
        "true": truth[::every],
        "predicted": predicted[::every],
        "residuals": {
            "mean": off.mean(),
            "deviation": off.std(),
            "quantiles": dict(
                zip(("5 %", "50 %", "95 %"), np.quantile(off, (0.05, 0.5, 0.95)), strict=True)
            ),
            "largest": off[np.abs(off).argmax()],
            "edges": edges,
            "counts": counts,
        },
    }


def _labels(scored: ScoredRows, names: Sequence[str]) -> list[dict[str, Any]]:
    truth, weights = scored.rows.truth, scored.rows.weights
    recalls, precisions = (f(truth, scored.predicted, weights) for f in (recall, precision))
    return [
        {
            "name": name,
            "share": float(truth[:, k].mean()),
            "recall": recalls[k],
            "precision": precisions[k],
        }
        for k, name in enumerate(names)
    ]


def _calibration(task: Task, scored: ScoredRows) -> dict[str, Any]:
    """Return mean probability and share of hits, in bins of the probability."""
    chances, truth = task.predicted_numbers(scored.output), scored.rows.truth
    if isinstance(task, MultiLabel):
        said, right, of = chances.ravel(), truth.ravel() > 0.5, "labels"
    elif isinstance(task, Classification) and len(task.labels) == 2:
        said, right, of = chances[:, 1], truth == 1, f"class {task.labels[1]}"
    else:
        said, right, of = chances.max(axis=1), scored.predicted == truth, "predicted class"
    number = np.minimum((said * RELIABILITY_BINS).astype(np.int64), RELIABILITY_BINS - 1)
    counts = np.bincount(number, minlength=RELIABILITY_BINS)
    filled = counts > 0
    divided = np.maximum(counts, 1)
    return {
        "of": of,
        "probability": (np.bincount(number, said, RELIABILITY_BINS) / divided)[filled],
        "share": (np.bincount(number, right, RELIABILITY_BINS) / divided)[filled],
        "rows": counts[filled],
    }


def _known_of(time: float, bound: float) -> list[float] | str:
    """Return a time as its value or, if the event was not seen, its bounds as text."""
    if time > 0:
        return [float(time)]
    return f"more than {-time:.6g}" if bound == np.inf else f"{-time:.6g} to {bound:.6g}"


def _outlasting(task: CensoredTimes, scored: ScoredRows) -> dict[str, Any]:
    """Return predicted and observed shares of rows without an event until the median event time."""
    times, weights = scored.rows.truth[:, 0], scored.rows.weights
    if task.event is None or not (times > 0).any():
        return {}
    at = float(np.median(times[times > 0]))
    chances = task.survival(scored.output, np.array([at]))[:, 0]
    means, shares, sizes = censored.calibration(times, chances, at, weights)
    return {"of": f"no event by {at:.4g}", "probability": means, "share": shares, "rows": sizes}


def _intervals(model: Model, scored: ScoredRows) -> dict[str, list[dict[str, float]]]:
    """Return the share of targets inside their intervals, for each nominal share."""
    rows = scored.rows.rows(evenly_spaced(len(scored.rows), INTERVAL_ROWS))
    output, levels = model.forward(rows.x), []
    for level in INTERVAL_LEVELS:
        low, high = model.interval_of(output, level)
        inside = (low <= rows.truth) & (rows.truth <= high)
        share = inside[~np.isnan(rows.truth)].mean()
        levels.append({"level": level, "share": float(share), "rows": len(rows)})
    return {"levels": levels}


def _sets(model: Model, scored: ScoredRows) -> dict[str, list[dict[str, float]]]:
    """Return the share of true classes in their sets, and the set sizes, for each nominal share."""
    rows, levels = np.arange(len(scored.rows)), []
    for level in INTERVAL_LEVELS:
        sets = model.set_of(scored.output, level)
        share = sets[rows, scored.rows.truth.astype(np.int64)].mean()
        size = sets.sum(axis=1).mean()
        levels.append(
            {"level": level, "share": float(share), "rows": len(rows), "size": float(size)}
        )
    return {"levels": levels}


def _row_losses(task: Task, scored: ScoredRows) -> Array:
    """Return the loss of each row: its log loss, or its mean error in standard deviations.

    For quantiles, the loss is the pinball loss in standard deviations, and for censored times the
    negative log-likelihood.
    """
    truth = scored.rows.truth
    if isinstance(task, CensoredTimes):
        return task.row_losses(scored.output, truth)
    if isinstance(task, Regression):
        scale = np.nanstd(np.where(np.isnan(truth).all(axis=0), 0.0, truth), axis=0)
        scale = np.where(np.fmin.reduce(truth) < np.fmax.reduce(truth), scale, 1.0)
        off: Array = np.abs(scored.predicted - truth) / scale
        if task.levels and len(scale) == 1:
            off = np.asarray(task.pinball_losses(truth, scored.output))[:, None] / scale
        losses: Array = np.nanmean(off, axis=1)
        return losses
    kind = truth.dtype if isinstance(task, MultiLabel) else np.int64
    return log_losses(truth.astype(kind), task.predicted_numbers(scored.output))
