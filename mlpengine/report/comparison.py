"""Compare two runs on the same rows: the lead of the better run, with its standard error."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpengine.config.baselines import ScoredRows
from mlpengine.core.wording import quoted
from mlpengine.models import baselines
from mlpengine.models.comparison import Lead, paired_lead
from mlpengine.models.metrics import higher_is_better
from mlpengine.models.task import Regression, Threshold

from .collect import Collected

ON_NEW_ROWS = "; in Python, model.compare(other, table) compares the models on new rows"
"""Advice for runs of one target that share no rows to compare them on."""


def lead_of(
    collected: Sequence[Collected], thresholds: Sequence[Threshold | None] = ()
) -> Lead | str:
    """Return the lead of the better of two runs, or the reason why they cannot be compared.

    If a run's threshold has costs, the metric is the mean cost, with the costs of the first such
    run; if both predict the same quantiles, it is the pinball loss.  Runs cannot be compared if
    they differ in metric, table, target, classes or predicted rows, if the table has changed since
    a run was trained, or if a warm start may have been trained on the predicted rows.
    """
    if changed := [one for one in collected if one.changed]:
        runs = " and ".join(one.data["path"] for one in changed)
        return f"{changed[0].changed[0]} has changed since the training of {runs}" + ON_NEW_ROWS
    scored = [one.scored for one in collected if one.scored]
    for one in collected:
        if not (one.scored and one.data.get("model") and one.data.get("score")):
            return str([f"{one.data['name']} has no score", *one.data["notes"]][-1])
    models = [one.data["model"] for one in collected]
    for what, key in (("targets", "target"), ("classes", "classes"), ("tables", "source")):
        if reason := _difference(what, [model[key] for model in models]):
            return reason + ON_NEW_ROWS * (key == "source")
    tasks = [one.task for one in scored]
    names = [one.target.names if isinstance(one, Regression) else [] for one in tasks]
    if reason := _difference("targets", names):  # counts and rates
        return reason
    if any(one.data["result"].get("warm_start") for one in collected):
        return "rows of this table may have trained the networks of the warm start" + ON_NEW_ROWS
    judge = next((one for one in thresholds if one and one.costs), None)
    metrics = ["cost" if judge else one.data["score"]["metric"] for one in collected]
    first, other = scored
    metric = metrics[0]
    if not judge and baselines.by_pinball(tasks, first.rows.truth):
        metric = "pinball"
    elif "pinball" in metrics or metrics[0] != metrics[1]:
        levels = _difference("quantiles", [[*task.levels] for task in tasks])
        return levels or _difference("metrics", metrics) or "targets are missing"
    pair = paired(first, other, metric, judge)
    if pair is None:
        return "they predicted different rows" + ON_NEW_ROWS
    value, error, level = pair
    sign = 1 if higher_is_better(metric) else -1
    ahead = int(sign * value < 0)
    value, error = float(f"{abs(value):.6g}"), float(f"{error:.6g}")
    return Lead(metric, first.part, ahead, value, error, level)


def _difference(what: str, pair: Sequence[Any]) -> str:
    """Return the difference of two runs as text; "" if there is none."""
    first, other = pair
    if isinstance(first, list) and {*first} != {*other}:  # leave out what both have
        first, other = ([one for one in a if one not in b] for a, b in (pair, pair[::-1]))
    return f"their {what} differ ({quoted(first)} and {quoted(other)})" if first != other else ""


def paired(
    first: ScoredRows, other: ScoredRows, metric: str, judge: Threshold | None = None
) -> tuple[float, float, float] | None:
    """Return the lead of `first` over `other` in a metric, its standard error and `Lead.level`.

    Rows have the weights of `first`; if it has none, of `other`.
    Returns None if the runs did not predict the same rows.
    """
    places = [scored.rows.places for scored in (first, other)]
    if None in places or first.part != other.part or len(first.rows) != len(other.rows):
        return None
    origins = [place.rows.origin for place in places if place]
    same = origins[0] is not None and origins[1] is not None and (origins[0] == origins[1]).all()
    if not same or not np.array_equal(first.rows.truth, other.rows.truth, equal_nan=True):
        return None
    losses = [one.task.pinball_losses(one.rows.truth, one.output) for one in (first, other)]
    given = first.predicted, other.predicted
    guesses = [baselines.Guess(p, None, judge, own) for p, own in zip(given, losses, strict=True)]
    weights = other.rows.weights if first.rows.weights is None else first.rows.weights
    value, error, level = paired_lead(metric, first.rows.truth, weights, *guesses)
    return value, error * float(np.sqrt(len(first.rows) / first.total)), level
