"""Metrics of times until an event, which may be censored.

Shapes: times (rows,), negative for censored rows; weights of rows (rows,) or None.
"""

from typing import NamedTuple

import numpy as np

from mlpengine.core.spec import Array

GRID = 20
"""Number of times of `grid`, for the integrated Brier score."""

GROUPS = 5
"""Number of groups of rows with similar probability in `calibration`."""


class Steps(NamedTuple):
    """A step curve that starts at 1 and falls to `values` at increasing `times`."""

    times: Array
    values: Array

    def at(self, times: Array) -> Array:
        """Return the values of the curve at `times`, in the shape of `times`."""
        places = np.searchsorted(self.times, times, side="right")
        return np.concatenate([[1.0], self.values])[places]


def kaplan_meier(times: Array, weights: Array | None = None, *, censoring: bool = False) -> Steps:
    """Return the estimated share of rows without an event so far, by time.

    With `censoring`, return the share of rows that are not censored so far.  At equal times, events
    come before censoring.

    Source: Kaplan and Meier 1958, "Nonparametric estimation from incomplete observations".
    """
    rows = np.ones(len(times)) if weights is None else np.asarray(weights, np.float64)
    steps, place = np.unique(np.abs(times), return_inverse=True)
    seen, every = np.bincount(place, rows * (times > 0)), np.bincount(place, rows)
    at_risk = every[::-1].cumsum()[::-1]
    gone = every - seen if censoring else seen
    at_risk = at_risk - seen if censoring else at_risk
    shares = np.divide(gone, at_risk, out=np.zeros_like(gone), where=at_risk > 0)
    return Steps(steps, np.cumprod(1 - shares))


def concordance(
    times: Array, predicted: Array, weights: Array | None = None, bounds: Array | None = None
) -> float:
    """Return the share of comparable pairs of rows with predicted times in the right order.

    A pair is comparable if the row with the shorter time had its event.  With `bounds` (rows,), a
    negative time -t means an event between t and the bound; a pair is comparable if the intervals
    do not overlap.  Equal predictions count as half.  The result is NaN if no pair is comparable.

    Source: Harrell, Lee and Mark 1996, "Multivariable prognostic models", section 5.5.
    """
    place, rank, rows, events = _ranks(times, predicted, weights, bounds)
    right, comparable = _pairs(place, rank, rows)
    total = events @ comparable
    return float(events @ right / total) if total > 0 else float("nan")


def concordance_influences(
    times: Array, predicted: Array, weights: Array | None = None, bounds: Array | None = None
) -> Array:
    """Return the derivatives (rows,) of `concordance`, as `metrics.influences` defines them."""
    place, rank, rows, events = _ranks(times, predicted, weights, bounds)
    after = np.array(_pairs(place, rank, rows)) * (events > 0)
    top = np.max(place, initial=0)
    before = _pairs((top - place[1], top - place[0]), rank.max(initial=0) - rank, events)
    right, comparable = after + before
    total = rows @ comparable
    return np.asarray(2 * (right - rows @ right / total * comparable) * rows.sum() / total)


def _ranks(
    times: Array, predicted: Array, weights: Array | None, bounds: Array | None
) -> tuple[tuple[Array, Array], Array, Array, Array]:
    """Return `place` of `_later`, ranks of predictions, and weights of all rows and of events."""
    rows = np.ones(len(times)) if weights is None else np.asarray(weights, np.float64)
    seen = times > 0
    last = np.where(seen, times, np.inf if bounds is None else bounds)
    start, end = 2 * np.unique([np.abs(times), last], return_inverse=True)[1].reshape(2, -1)
    rank = np.unique(predicted, return_inverse=True)[1]
    return (start + ~seen, end), rank, rows, rows * (last < np.inf)


def _pairs(place: tuple[Array, Array], rank: Array, weights: Array) -> tuple[Array, Array]:
    """For each row, return the total weight of later rows of higher rank, and of all later rows.

    Equal ranks count as half.
    """
    right = _later(place, rank, weights) / 2
    for bit in range(int(rank.max(initial=0)).bit_length()):
        is_high = rank >> bit & 1
        right += _later(place, rank >> (bit + 1), weights * is_high, is_high)
    return right, _later(place, np.zeros_like(rank), weights)


def _later(
    place: tuple[Array, Array], group: Array, weights: Array, left_out: Array | None = None
) -> Array:
    """For each row, return the weight of all rows of its group that begin after the row ends.

    `place` has the beginning and the end of each row.  Rows with a nonzero `left_out` get 0.
    `concordance` compares ranks bit by bit.  Ranks with equal higher bits are a group; within a
    group, ranks with the next bit 1 are higher than ranks with 0.
    """
    places = int(np.max(place, initial=0)) + 1
    key, last = (group * places + one for one in place)
    order = np.argsort(key, kind="stable")
    ascending, total = key[order], np.concatenate([[0.0], np.cumsum(weights[order])])
    ends = np.searchsorted(ascending, (group + 1) * places)
    sums = total[ends] - total[np.searchsorted(ascending, last, side="right")]
    return sums if left_out is None else np.where(left_out, 0.0, sums)


def brier(times: Array, chances: Array, at: Array, weights: Array | None = None) -> Array:
    """Return the Brier score of `chances` (rows, times) at each time in `at`.

    `chances` are probabilities that the event has not happened by a time; the score is their mean
    squared error.  Rows that were censored before a time t do not count.  To compensate, a row with
    an event at time e before t has the weight 1 / share(e), and a row with a time after t has the
    weight 1 / share(t).  share(t) is the share of rows that are not censored until t.

    Source: Graf et al. 1999, "Assessment and comparison of prognostic classification schemes for
    survival data", section 4.
    """
    uncensored, time = kaplan_meier(times, weights, censoring=True), np.abs(times)
    own, then = (
        np.where(share > 0, share, np.inf) for share in map(uncensored.at, (time[:, None], at))
    )
    happened = (times > 0)[:, None] & (time[:, None] <= at)
    errors = np.where(happened, chances**2 / own, 0.0)
    errors = np.where(time[:, None] > at, (1 - chances) ** 2 / then, errors)
    return np.average(errors, axis=0, weights=weights)


def grid(times: Array) -> Array:
    """Return `GRID` evenly spaced times that span the middle 80 % of the seen events."""
    low, high = np.quantile(times[times > 0], (0.1, 0.9))
    return np.linspace(low, high, GRID)


def integrated(scores: Array, at: Array) -> float:
    """Return the mean of scores over the span of the times `at`, by the trapezoidal rule."""
    span, widths = at[-1] - at[0], np.diff(at)
    return float(widths @ (scores[1:] + scores[:-1]) / 2 / span) if span > 0 else float(scores[0])


def calibration(
    times: Array, chances: Array, at: float, weights: Array | None = None
) -> tuple[Array, Array, Array]:
    """Compare probabilities (rows,) that no event has happened by the time `at` with real events.

    The `GROUPS` groups have rows with similar probabilities.  Return, for each group, the mean
    probability, the share of rows without an event (`kaplan_meier`), and the weight.
    """
    rows = np.ones(len(times)) if weights is None else np.asarray(weights, np.float64)
    groups = np.array_split(np.argsort(chances, kind="stable"), min(GROUPS, len(times)))
    means = [np.average(chances[g], weights=rows[g]) for g in groups]
    shares = [kaplan_meier(times[g], rows[g]).at(np.array(at)) for g in groups]
    return np.array(means), np.array(shares), np.array([rows[g].sum() for g in groups])


def calibration_error(
    times: Array, chances: Array, at: float, weights: Array | None = None
) -> float:
    """Return the mean difference of probabilities and shares in the groups of `calibration`."""
    means, shares, sizes = calibration(times, chances, at, weights)
    return float(np.average(np.abs(means - shares), weights=sizes))
