"""The rules about rows: errors of simple models on them, and differences between the parts."""

from math import isnan

import numpy as np

from mlpengine.core.wording import plural
from mlpengine.diagnostics.derived import validation_losses
from mlpengine.diagnostics.monitor import Diagnostics
from mlpengine.diagnostics.run_rules import faster_fix, lags, narrowest, weighs_classes
from mlpengine.diagnostics.samples import median
from mlpengine.diagnostics.thresholds import (
    BEHIND,
    CLEAR,
    CONTRADICTED,
    EVEN,
    MATERIAL,
    SHIFT,
    SIGNAL,
    SIGNIFICANT,
    SMALL_LAYER,
    UNRELATED,
)
from mlpengine.diagnostics.verdict import Verdict, brief, percent, shown_name, two_digits
from mlpengine.settings import Fix, NetworkSettings


def shifted(diagnostics: Diagnostics) -> Verdict | None:
    """Features of the validation rows are distributed differently from training."""
    known = diagnostics.baselines
    limit = max(SHIFT, known.shift_limit)
    if not known.shifts or not max(known.shifts) > limit:
        return None
    number, count = int(np.argmax(known.shifts)), sum(shift > limit for shift in known.shifts)
    name = brief(diagnostics.feature_names[number], 24)
    finding = (
        f"the validation rows differ in {plural(count, 'feature')}, most in {name!r}: "
        f"distance {two_digits(known.shifts[number])} (should be below {two_digits(limit)})"
    )
    advice, no_fix = "check the split, time and groups", "the split must be checked"
    return Verdict("shifted", None, finding, max(known.shifts), limit, advice, no_fix=no_fix)


def underfitting(diagnostics: Diagnostics) -> Verdict | None:
    """The network explains its own rows worse than a simple model explains rows new to it."""
    if not lags(diagnostics):
        return None
    known = diagnostics.baselines
    behind = known.error - known.best
    finding = (
        f"the error on training rows is {two_digits(known.error)} of a constant prediction's "
        f"(should be {two_digits(known.best)}, by {known.best_name})"
    )
    faster = faster_fix(diagnostics) if narrowest(diagnostics) > SMALL_LAYER else None
    if faster:
        advice = "raise lr"
        return Verdict("underfitting", None, finding, behind, BEHIND, advice, faster)
    units = [layer.units for layer in diagnostics.layers[:-1]]
    wider = [max(64, 2 * size) for size in units] or [64]
    advice, fix = (
        "use wider layers (model.hidden), or other features",
        [Fix(NetworkSettings, "hidden", wider)],
    )
    return Verdict("underfitting", None, finding, behind, BEHIND, advice, fix)


def behind_linear(diagnostics: Diagnostics) -> Verdict | None:
    """A linear prediction of new rows is clearly better than the network's."""
    known = diagnostics.baseline_score
    if known is None or weighs_classes(diagnostics):
        return None
    behind = known.linear - known.value
    limit = max(CLEAR * known.error, MATERIAL * (known.linear - known.constant))
    if not behind > limit:
        return None
    finding = (
        f"{shown_name(known.metric)} on {known.rows} is {known.value:.3g}, behind a linear "
        f"prediction by {two_digits(behind)} +- {two_digits(known.error)} (should be ahead)"
    )
    if not known.fix:
        advice, no_fix = "compare log loss, too", "the mean of the networks has a linear model"
        return Verdict("behind_linear", None, finding, behind, limit, advice, no_fix=no_fix)
    first = known.fix[0]
    advice = f"train a linear model ({first.key}: [{', '.join(first.plain)}])"
    return Verdict("behind_linear", None, finding, behind, limit, advice, known.fix)


def noisy_labels(diagnostics: Diagnostics) -> Verdict | None:
    """Rows have another class than a simple model says, even where it is sure."""
    known = diagnostics.baselines
    certain = known.contradicted - SIGNIFICANT * known.contradicted_error > CONTRADICTED
    even = known.contradicted > EVEN * known.doubtful
    if not (certain and even and known.signal > SIGNAL):
        return None
    some = brief(", ".join(map(diagnostics.name_row, known.contradicting_rows[:2])), 40)
    finding = (
        f"{percent(known.contradicted)} of the rows that are surest by {known.best_name} have "
        f"another class (should be below {percent(CONTRADICTED)}): {some}"
    )
    advice, no_fix = "look at these rows", "the rows must be checked"
    return Verdict(
        "noisy_labels", None, finding, known.contradicted, CONTRADICTED, advice, no_fix=no_fix
    )


def unrelated(diagnostics: Diagnostics) -> Verdict | None:
    """Neither the network nor a simple model predicts the targets better than a constant does."""
    known, losses = diagnostics.baselines, validation_losses(diagnostics)
    constant = diagnostics.validation_baseline
    if isnan(known.signal) or not constant > 0 or not losses.size:
        return None
    share = median(losses[len(losses) // 2 :]) / constant
    if not (known.signal < SIGNAL and share > UNRELATED):
        return None
    finding = (
        f"the validation loss stays at {two_digits(share)} times that of a constant prediction "
        f"(should be below {UNRELATED:g}), and simple models fail, too"
    )
    advice, no_fix = "check that labels belong to their rows", "the data must be checked"
    return Verdict("labels", None, finding, share, UNRELATED, advice, no_fix=no_fix)
