"""The lead of the better of two runs, row by row if both predicted the same rows."""

from collections.abc import Sequence
from math import hypot

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

    If a threshold has costs, the metric is the mean cost; the first such costs count for both runs.
    Returns None unless both runs have the same metric, part, table, target and classes.
    """
    scores = [one.data["score"] for one in collected if one.data.get("score")]
    models = [one.data["model"] for one in collected if one.data.get("model")]
    scored = [one.scored for one in collected if one.scored]
    judge = next((one for one in thresholds if one and one.costs), None)
    kinds = {("cost" if judge else score["metric"], score["part"]) for score in scores}
    tables = {(model["source"], *model["target"], *model["classes"]) for model in models}
    if len(scores) < 2 or len(scored) < 2 or len(kinds) != 1 or len(tables) != 1:
        return None
    ((metric, part),) = kinds
    if judge:
        known = [_mean_cost(one, judge) for one in scored]
    else:
        known = [score["predictions"]["model"][metric] for score in scores]
    values, errors = ([one[key] or 0.0 for one in known] for key in ("value", "error"))
    sign = 1 if higher_is_better(metric) else -1
    ahead = int(known[1]["value"] is not None and sign * (values[1] - values[0]) > 0)
    pair = paired(scored[ahead], scored[1 - ahead], metric, judge)
    value, error = pair or (values[ahead] - values[1 - ahead], hypot(*errors))
    return Lead(metric, part, ahead, float(f"{sign * value:.6g}"), float(f"{error:.6g}"))


def _mean_cost(scored: ScoredRows, judge: Threshold) -> dict[str, float]:
    rows, guess = scored.rows, baselines.Guess(scored.predicted, threshold=judge)
    table = baselines.baseline_scores(["cost"], rows.truth, {"model": guess}, rows.weights)
    known = table["model"]["cost"]
    return {**known, "error": known["error"] * float(np.sqrt(len(rows) / scored.total))}


def paired(
    first: ScoredRows, other: ScoredRows, metric: str, judge: Threshold | None = None
) -> tuple[float, float] | None:
    """Return the lead of `first` over `other` in a metric, and its standard error.

    Returns None if they do not predict the same rows.
    """
    places = [scored.rows.places for scored in (first, other)]
    if None in places or first.part != other.part or len(first.rows) != len(other.rows):
        return None
    origins = [place.rows.origin for place in places if place]
    same = origins[0] is not None and origins[1] is not None and (origins[0] == origins[1]).all()
    if not same or not np.array_equal(first.rows.truth, other.rows.truth, equal_nan=True):
        return None
    guesses = [baselines.Guess(one.predicted, threshold=judge) for one in (first, other)]
    value, error = paired_lead(metric, first.rows.truth, first.rows.weights, *guesses)
    return value, error * float(np.sqrt(len(first.rows) / first.total))
