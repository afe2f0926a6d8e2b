"""Settings that suit a target if it is a time, a count, an ordered class or a series."""

import re
from collections.abc import Sequence

from mlpengine.config.writer import quoted_yaml
from mlpengine.data.features import Profile
from mlpengine.data.tables import Table

EVENTS = {"event", "status", "dead", "died", "death", "failed", "churned", "censored"}
"""Words in the names of event columns (survival analysis)."""

EXPOSURES = {"exposure", "insured", "population"}
"""Words in the names of exposure columns (insurance, epidemiology)."""

ORDERS = (
    ("very low", "low", "medium", "moderate", "high", "very high"),
    ("very bad", "bad", "poor", "fair", "average", "good", "very good", "excellent", "ideal"),
    ("never", "rarely", "sometimes", "often", "always"),
    ("none", "mild", "moderate", "severe"),
    ("tiny", "small", "medium", "large", "huge"),
    ("strongly disagree", "disagree", "neutral", "agree", "strongly agree"),
)
"""Names of ordered classes, each list from the lowest to the highest."""


def other_settings(
    facts: Profile, table: Table, target: Sequence[str], time: str | None = None
) -> dict[str, str]:
    """Return settings of the section `data` as YAML, each with the condition under which it fits.

    `facts` describes the columns that may be features; `time` is the column that orders the rows.
    """
    if len(target) != 1 or facts.task == "survival":
        return {}
    proposed, column = dict[str, str](), table[target[0]]
    name, classes = quoted_yaml(target[0]), {_spaced(text): text for text in facts.classes}
    for order in ORDERS:
        if len(classes) > 2 and classes.keys() <= {*order}:
            listed = ", ".join(quoted_yaml(classes[one]) for one in order if one in classes)
            proposed[f"classes: [{listed}]"] = "with loss: ordinal, if the classes are ordered"
    if column.kind != "number":
        return proposed
    lowest, predicts_numbers = column.values[~column.missing].min(), facts.task == "regression"
    for one in facts.columns:
        if one.name == target[0] or one.distinct < 2 or one.missing:
            continue
        value, words, other = quoted_yaml(one.name), {*_spaced(one.name).split()}, table[one.name]
        is_date = one.kind == "date" and not one.is_of_one_day
        if predicts_numbers and lowest > 0 and words & EVENTS and other.is_binary:
            why = f"if {name} is the time until an event, and 1 means that it happened (survival)"
            proposed[f"event: {value}"] = why
        elif column.is_integer and lowest == 0 and words & EXPOSURES and other.kind == "number":
            why = f"with loss: poisson, if {name} is a number of events in this exposure"
            proposed[f"exposure: {value}"] = why
        elif (is_date or one.name == time) and predicts_numbers and one.distinct == facts.n_rows:
            why = f"with split: {{time: {value}}}, if the rows are a time series"
            proposed[f"lags: {{{name}: [1, 2, 3]}}"] = why
    return proposed


def _spaced(text: str) -> str:
    """Return the words of a text in lower case with spaces between them."""
    return " ".join(re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower()))
