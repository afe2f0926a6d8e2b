"""Comparison of two predictions of the same rows: which is better, and is this chance?"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mlpengine.core.spec import Array
from mlpengine.core.structure import finite
from mlpengine.core.wording import error_text, metric_text, plural, shown_name
from mlpengine.diagnostics.thresholds import PROBABLE, SMALL_LEAD
from mlpengine.models.baselines import Guess, baseline_scores
from mlpengine.models.metrics import higher_is_better

NO_LEAD = dict.fromkeys(("by", "ahead", "difference", "error", "better", "reason"))
"""Data in place of `Lead.as_dict` for two runs that cannot be compared, for a `reason`."""


class Lead(NamedTuple):
    """The lead of one run or model over the other in a metric, with its standard error.

    Attributes:
        metric: name of the metric.
        part: the rows: ``data``, or the part of a run.
        ahead: number of the run or model with the better value, 0 or 1.
        value, error: the lead (not negative) and its standard error.
        level: distance of the worse value from the best possible value (1 or 0).
    """

    metric: str
    part: str
    ahead: int
    value: float
    error: float
    level: float

    @property
    def is_clear(self) -> bool:
        """Whether chance does not explain the lead, and the lead is not negligible."""
        return self.value > max(PROBABLE * self.error, SMALL_LEAD * self.level) and self.error > 0

    def as_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the lead as data; `better` is None unless the lead is clear."""
        ahead = names[self.ahead] if self.value > 0 else None  # also None for NaN
        part = "" if self.part == "data" else f"{self.part.replace('_', '-')} "
        return {
            "by": f"{part}{self.metric}",
            "ahead": ahead,
            "difference": self.value,
            "error": self.error,
            "better": ahead if self.is_clear else None,
        }


def lead_text(data: Mapping[str, Any]) -> str:
    """Return the data of `Lead.as_dict` as text."""
    if data["by"] is None:
        return f"no run is better: {data['reason']}"
    if data["ahead"] is None and data["difference"] != 0:
        return f"no model is better: {data['by']} has no value on these rows"
    if data["ahead"] is None:
        return f"equal in {data['by']}"
    if data["error"] is None or data["error"] != data["error"]:
        return f"{data['ahead']} is ahead in {data['by']}, perhaps by chance; give more rows"
    by = f"by {error_text(data['difference'])} +- {error_text(data['error'])} in {data['by']}"
    if data["better"] is None:
        return f"no clear difference: {data['ahead']} is ahead {by}"
    return f"better: {data['better']}, {by}"


def paired_lead(
    metric: str, truth: Array, weights: Array | None, first: Guess, other: Guess
) -> tuple[float, float, float]:
    """Return the metric of `first` minus the metric of `other`, its standard error and the level.

    `Lead` explains the level.
    """
    guesses = {"first": first, "other": other}
    scores = baseline_scores([metric], truth, guesses, weights)
    ahead = scores["other"]["ahead"]
    return ahead["value"], ahead["error"], level_of(metric, scores)


def level_of(metric: str, scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> float:
    """Return the largest distance of a metric from its best possible value (1 or 0)."""
    best = 1.0 if higher_is_better(metric) else 0.0
    return max(abs(best - one[metric]["value"]) for one in scores.values())


class Comparison(NamedTuple):
    """The metrics of two models on the same rows, and the better model.

    Attributes:
        names: names of the models.
        rows: number of rows.
        metrics: value and standard error of each model, by metric.
        lead: lead of the better model in the first metric; the error is from paired rows.
    """

    names: Sequence[str]
    rows: int
    metrics: Mapping[str, Sequence[tuple[float, float]]]
    lead: Lead

    def as_dict(self) -> dict[str, Any]:
        """Return everything as data for JSON, with the keys of `mlpengine compare --json`."""
        plain: dict[str, Any] = finite(
            {
                "models": list(self.names),
                "rows": self.rows,
                "metrics": {n: [value for value, _ in pair] for n, pair in self.metrics.items()},
                "standard_errors": {n: [e for _, e in pair] for n, pair in self.metrics.items()},
                **self.lead.as_dict(self.names),
            }
        )
        return plain

    def __repr__(self) -> str:
        return f"Comparison({lead_text(self.lead.as_dict(self.names))})"

    def __str__(self) -> str:
        width = max(20, *(len(name) + 2 for name in self.names))
        lines = [f"{plural(self.rows, 'row'):<16}{''.join(f'{n:>{width}}' for n in self.names)}"]
        for name, pair in self.metrics.items():
            cells = (f"{f'{metric_text(v)} +- {error_text(e)}':>{width}}" for v, e in pair)
            lines.append(f"{name:<16}{''.join(cells)}")
        return "\n".join([*lines, lead_text(self.lead.as_dict(self.names))])

    def _repr_html_(self) -> str:
        from mlpengine.drawing.cell import cell_html
        from mlpengine.drawing.markup import scrolling_table, tag, with_error

        rows = [
            [shown_name(name), *(with_error(*one) for one in pair)]
            for name, pair in self.metrics.items()
        ]
        title = f"Scores on {plural(self.rows, 'row')}, with standard errors"
        table = scrolling_table(["", *self.names], rows, title)
        return cell_html(table, tag("p", lead_text(self.lead.as_dict(self.names))))
