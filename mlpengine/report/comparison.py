"""The lead of the better of two runs, row by row if both predicted the same rows."""

from collections.abc import Sequence
from math import hypot

import numpy as np

from mlpengine.config.baselines import ScoredRows
from mlpengine.models import baselines
from mlpengine.models.comparison import Lead, paired_lead

from .collect import Collected


def lead_of(collected: Sequence[Collected]) -> Lead | None:
    """Return the lead of the better of two runs.

    Returns None unless both runs have the same metric, part, table and target.
    """
    scores = [one.data["score"] for one in collected if one.data.get("score")]
    models = [one.data["model"] for one in collected if one.data.get("model")]
    kinds = {(score["metric"], score["part"]) for score in scores}
    tables = {(model["source"], *model["target"]) for model in models}
    if len(scores) < 2 or len(kinds) != 1 or len(tables) != 1:
        return None
    metric, part = scores[0]["metric"], scores[0]["part"]
    known = [score["predictions"]["model"][metric] for score in scores]
    values, errors = ([one[key] or 0.0 for one in known] for key in ("value", "error"))
    ahead = int(known[1]["value"] is not None and values[1] > values[0])
    first, other = collected[ahead].scored, collected[1 - ahead].scored
    if first is None or other is None:
        return None
    pair = _paired(first, other, metric)
    value, error = pair or (values[ahead] - values[1 - ahead], hypot(*errors))
    return Lead(metric, part, ahead, float(f"{value:.6g}"), float(f"{error:.6g}"))


def _paired(first: ScoredRows, other: ScoredRows, metric: str) -> tuple[float, float] | None:
    """Return the lead of `first` over `other` in a metric, and its standard error."""
    places = [scored.rows.places for scored in (first, other)]
    if None in places or first.part != other.part or len(first.rows) != len(other.rows):
        return None
    origins = [place.rows.origin for place in places if place]
    same = origins[0] is not None and origins[1] is not None and (origins[0] == origins[1]).all()
    if not same or not np.array_equal(first.rows.truth, other.rows.truth, equal_nan=True):
        return None
    guesses = [baselines.Guess(one.predicted) for one in (first, other)]
    value, error = paired_lead(metric, first.rows.truth, first.rows.weights, *guesses)
    return value, error * float(np.sqrt(len(first.rows) / first.total))
