"""Compare two runs on the same rows: the lead of the better run, with its standard error."""

from collections.abc import Sequence

import numpy as np

from mlpengine.config.baselines import ScoredRows
from mlpengine.models import baselines
from mlpengine.models.comparison import Lead, paired_lead
from mlpengine.models.metrics import higher_is_better
from mlpengine.models.task import Threshold

from .collect import Collected


def lead_of(
    collected: Sequence[Collected], thresholds: Sequence[Threshold | None] = ()
) -> Lead | None:
    """Return the lead of the better of two runs.

    If a run's threshold has costs, the metric is the mean cost, with the costs of the first such
    run; if both predict the same quantiles, it is the pinball loss.  Returns None if the runs
    differ in metric, table, target, classes or predicted rows, or if a warm start may have been
    trained on the predicted rows.
    """
    scores = [one.data["score"] for one in collected if one.data.get("score")]
    models = [one.data["model"] for one in collected if one.data.get("model")]
    scored = [one.scored for one in collected if one.scored]
    judge = next((one for one in thresholds if one and one.costs), None)
    metrics = {"cost" if judge else score["metric"] for score in scores}
    tables = {(model["source"], *model["target"], *model["classes"]) for model in models}
    too_good = any(one.data["result"].get("warm_start") for one in collected)
    if len(scores) < 2 or len(scored) < 2 or len(metrics) != 1 or len(tables) != 1 or too_good:
        return None
    (metric,) = metrics
    first, other = scored
    if not judge and baselines.by_pinball([first.task, other.task], first.rows.truth):
        metric = "pinball"
    elif metric == "pinball":  # of other levels
        return None
    pair = paired(first, other, metric, judge)
    if pair is None:
        return None
    value, error, level = pair
    sign = 1 if higher_is_better(metric) else -1
    ahead = int(sign * value < 0)
    value, error = float(f"{abs(value):.6g}"), float(f"{error:.6g}")
    return Lead(metric, first.part, ahead, value, error, level)


def paired(
    first: ScoredRows, other: ScoredRows, metric: str, judge: Threshold | None = None
) -> tuple[float, float, float] | None:
    """Return the lead of `first` over `other` in a metric, its standard error and `Lead.level`.

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
    value, error, level = paired_lead(metric, first.rows.truth, first.rows.weights, *guesses)
    return value, error * float(np.sqrt(len(first.rows) / first.total)), level
