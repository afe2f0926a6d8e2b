"""Rules about data: errors of simple models, and differences between training and other rows."""

from math import inf, isnan, nan

import numpy as np

from mlpengine.core.wording import error_text, shown_name
from mlpengine.diagnostics import thresholds as limits
from mlpengine.diagnostics.derived import training_share, validation_losses
from mlpengine.diagnostics.monitor import Diagnostics
from mlpengine.diagnostics.run_rules import (
    LOGITS,
    faster_fix,
    is_behind,
    lags,
    narrowest,
    raised,
    weighs_classes,
)
from mlpengine.diagnostics.verdict import NOTE, Verdict, brief, percent, two_digits
from mlpengine.ops import MeanSquaredError
from mlpengine.settings import FeatureSettings, Fix, NetworkSettings, TrainingSettings


def shifted(diagnostics: Diagnostics) -> Verdict | None:
    """Features or targets have another distribution in validation rows than in training rows."""
    known = diagnostics.baselines
    limit = max(limits.SHIFT, known.shift_limit)
    distance = max(known.shifts, default=nan)
    other_labels = diagnostics.planned_split == "teacher"
    if not (distance > limit or (known.target_shift > limit and not other_labels)):
        return None
    headline, no_fix = "Validation rows differ from training", "the split must be checked"
    advice = (
        "Check that both parts use the same units of measurement, and take validation rows at "
        "random, unless they are from another time or group on purpose."
    )
    if diagnostics.planned_split:
        advice = "Rows of another time or group often differ: expect such errors on new rows, too."
    if distance > limit:
        number, count = int(np.argmax(known.shifts)), sum(shift > limit for shift in known.shifts)
        low, high, other_low, other_high = map(two_digits, known.ranges)
        evidence = (
            f"{count:,} of {len(known.shifts):,} features differ, most of all "
            f"{brief(diagnostics.feature_names[number])!r} (Kolmogorov-Smirnov distance "
            f"{two_digits(distance)}; up to {two_digits(limit)} is usual by chance)."
        )
        if np.isfinite(known.ranges).all():
            evidence += (
                f" 90 % of its standardized values lie from {low} to {high} in training rows, and "
                f"from {other_low} to {other_high} in validation rows."
            )
        wide, narrow = np.diff(known.ranges)[[0, 2]]
        if diagnostics.planned_split == "time" and 2 * narrow < wide:
            name = brief(diagnostics.feature_names[number])
            rises = f"{name!r} rises with the time"
            advice = f"{rises}: if it only tells the time, drop its column (data.drop)."
    else:
        distance = known.target_shift
        evidence = (
            "The targets have different distributions (Kolmogorov-Smirnov distance "
            f"{two_digits(distance)}; up to {two_digits(limit)} is usual by chance)."
        )
    # Later rows and other groups usually differ.
    severity = NOTE if diagnostics.planned_split else "warning"
    return Verdict("shifted", None, headline, evidence, distance, limit, advice, no_fix=no_fix,
                   severity=severity)  # fmt: skip


def too_good(diagnostics: Diagnostics) -> Verdict | None:
    """Validation rows repeat training rows, or the network predicts them nearly without error."""
    (error, rows), best = diagnostics.validation_error, diagnostics.baselines.best
    (share, equal), limit = diagnostics.copies, limits.COPIES
    repeated = equal > limits.REPEATED
    if best * rows > limits.SOME_ERRORS and error < limits.OF_FEW_COPIES * best:
        limit = limits.FEW_COPIES
    if repeated or (share > limit and error < limits.OF_COPIES * best):
        headline, how = "Validation rows repeat training rows", "are almost copies of"
        if repeated:
            share, limit, how = equal, limits.REPEATED, "are equal to"
        evidence = (
            f"{percent(share)} of the validation rows {how} a training row, so the validation "
            "score is too good."
        )
        advice = (
            "Remove duplicates, or set data.split.group to a column with the same value in all "
            "copies of a row."
        )
        no_fix = "the split must be checked"
        return Verdict("too_good", None, headline, evidence, share, limit, advice, no_fix=no_fix)
    limit = limits.TOO_GOOD
    if not (error < limit and rows >= limits.HARD_ROWS):
        return None
    headline = "The score is too good"
    evidence = (
        f"The error on validation rows is {percent(error)} of the error of a constant prediction."
    )
    advice = "Look for columns that reveal the target, and for copies of training rows."
    no_fix = "the columns must be checked"
    return Verdict("too_good", None, headline, evidence, error, limit, advice, no_fix=no_fix,
                   severity=NOTE)  # fmt: skip


def underfitting(diagnostics: Diagnostics) -> Verdict | None:
    """The network predicts its training rows worse than a simple model predicts new rows."""
    if not lags(diagnostics):
        return None
    known = diagnostics.baselines
    behind = known.error - known.best
    headline, limit = "The network underfits", limits.BEHIND
    evidence = (
        f"On training rows, the error is {percent(known.error)} of the error of a constant "
        f"prediction. A simple model ({known.best_name}) reaches {percent(known.best)} on rows "
        "that it was not trained on."
    )
    faster = faster_fix(diagnostics) if narrowest(diagnostics) > limits.SMALL_LAYER else None
    if faster:
        advice = raised(faster)
        return Verdict("underfitting", None, headline, evidence, behind, limit, advice, faster)
    units = [layer.units for layer in diagnostics.layers[:-1]]
    wider = [max(64, 2 * size) for size in units] or [64]
    advice = f"Set model.hidden to {wider}, or compute further columns from these."
    fix = [Fix(NetworkSettings, "hidden", wider)]
    return Verdict("underfitting", None, headline, evidence, behind, limit, advice, fix)


def behind_linear(diagnostics: Diagnostics) -> Verdict | None:
    """On new rows, a linear model is clearly better than the network."""
    known = diagnostics.baseline_score
    if known is None or weighs_classes(diagnostics):
        return None
    behind = known.linear - known.value
    limit = max(limits.CLEAR * known.error, limits.MATERIAL * (known.linear - known.constant))
    if not behind > limit:
        return None
    headline = "A linear model beats the network"
    evidence = (
        f"On {known.rows} the network has {shown_name(known.metric)} {known.value:.3g}, and a "
        f"linear model has {known.linear:.3g} (standard error of the difference: "
        f"{error_text(known.error)})."
    )
    first, last = known.fix[0], known.fix[-1]
    advice = f"Train a linear model: set {first.key} to [{', '.join(first.plain)}]"
    if last.name == "epochs":
        advice += f" and {last.key} to {last.value}"
    return Verdict("behind_linear", None, headline, evidence, behind, limit, f"{advice}.",
                   known.fix)  # fmt: skip


def noisy_labels(diagnostics: Diagnostics) -> Verdict | None:
    """A simple model contradicts many labels of the rows where this model is surest."""
    known = diagnostics.baselines
    least = known.contradicted - limits.SIGNIFICANT * known.contradicted_error
    wrong = least > max(limits.CONTRADICTED, limits.EVEN * known.doubtful)
    if not (wrong and known.signal > limits.SIGNAL):
        return None
    some = " and ".join(map(diagnostics.name_row, known.contradicting_rows[:2]))
    headline, no_fix = "Some labels seem wrong", "the rows must be checked"
    share, limit = known.contradicted, limits.CONTRADICTED
    evidence = (
        f"Where a simple model ({known.best_name}) is most certain, it contradicts "
        f"{percent(share)} of the labels; up to {percent(limit)} is usual."
    )
    advice = f"Check such rows, beginning with {some}."
    severity = "warning" if known.signal > limits.CLEAR_SIGNAL else NOTE
    return Verdict("noisy_labels", None, headline, evidence, share, limit, advice, no_fix=no_fix,
                   severity=severity)  # fmt: skip


def moved(diagnostics: Diagnostics) -> Verdict | None:
    """Features predict the target of an adjacent row better than their own: a wrong join."""
    known, limit = diagnostics.baselines, limits.MOVED
    if diagnostics.planned_split:  # a time series may repeat earlier values
        return None
    own, other, side = known.beside
    if not (known.moved > limit and other - own > limits.MOVED_GAIN * (1 - own)):
        return None
    headline, way = "Targets stand one row off", "below" if side > 0 else "above"
    saved = (other - own) / (1 - own)
    evidence = (
        f"From the features of a row, the target of the row {way} can be predicted with a "
        f"{percent(saved)} smaller squared error than the target of the row itself."
    )
    advice = "Check how targets were joined to the rows."
    no_fix = "the data must be checked"
    return Verdict("labels", None, headline, evidence, known.moved, limit, advice, no_fix=no_fix)


def labels(diagnostics: Diagnostics) -> Verdict | None:
    """Neither the network, in its best epoch, nor a simple model beats a constant prediction."""
    known, losses = diagnostics.baselines, validation_losses(diagnostics)
    constant = diagnostics.validation_baseline
    counts = diagnostics.class_counts
    rare = bool(counts.size) and counts.max() > limits.COMMON_CLASS * counts.sum()
    if not losses.size or not constant > 0:
        return None
    share = float(losses.min()) / constant
    learned = len(losses) >= limits.MIN_EPOCHS and training_share(diagnostics) < limits.LEARNED
    hopeless = known.related < limits.RELATED or (isnan(known.related) and learned)
    score = diagnostics.baseline_score
    useless = score is not None and score.metric == "r2" and score.value < limits.USELESS
    useless &= diagnostics.stops_early  # the score is then from the best epoch
    close = limits.LEARNED < share < (inf if useless else limits.OVERFITTED)
    if known.linked > 1 or not (close and hopeless):
        return None
    headline = "Targets do not fit their rows"
    advice = "Check that labels belong to their rows; if so, look for columns that tell the target."
    evidence = (
        f"The best validation loss is {percent(share)} of the loss of a constant prediction, "
        "and simple models are no better than a constant prediction, either."
    )
    no_fix, limit = "the data must be checked", limits.LEARNED
    severity = NOTE if rare else "warning"  # rare classes are hard to predict
    return Verdict("labels", None, headline, evidence, share, limit, advice, no_fix=no_fix,
                   severity=severity)  # fmt: skip


def class_codes(diagnostics: Diagnostics) -> Verdict | None:
    """The numbers to predict are codes of classes."""
    known, limit = diagnostics.baselines, limits.CODES
    if not known.class_gain > limit:
        return None
    headline = "Target looks like a class"
    evidence = (
        "The target has few distinct values, and a simple classifier predicts the exact value more "
        f"often than a simple regression (by {percent(known.class_gain)} of the rows)."
    )
    advice = "If the values are codes of classes, set data.task to classification."
    fix = [Fix(FeatureSettings, "task", "classification")]
    return Verdict("class_codes", None, headline, evidence, known.class_gain, limit, advice, fix)


def wrong_loss(diagnostics: Diagnostics) -> Verdict | None:
    """The loss is low, but the squared error is high: the loss does not lead to the mean."""
    known, loss = diagnostics.baselines, diagnostics.loss
    share, limit = training_share(diagnostics), limits.LOSS_MISLEADS
    if loss is None or loss.name in (MeanSquaredError.name, *LOGITS) or not is_behind(diagnostics):
        return None
    if not isnan(known.doubtful):
        return None  # classes have no mean
    if not known.error > limit * share:
        return None
    headline = "Loss does not train for the mean"
    evidence = (
        f"Compared with a constant prediction, the {loss.name} loss is {percent(share)}, but the "
        f"squared error is {percent(known.error)}."
    )
    advice = "If you want to predict the mean, set loss to mse; if not, ignore this."
    fix = [Fix(TrainingSettings, "loss", "mse")]
    return Verdict("wrong_loss", None, headline, evidence, known.error / share, limit, advice, fix)
