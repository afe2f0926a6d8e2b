"""Rules about the curves of a run and its settings: epochs, batches, optimizer, regularization."""

from collections.abc import Sequence
from math import exp, inf, isfinite, isnan, nan, sqrt

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.core.wording import plural, shown_name
from mlpengine.diagnostics import thresholds as limits
from mlpengine.diagnostics.derived import (
    rates,
    rounded,
    start_ratio,
    stuck,
    suited_lr_fix,
    total_steps,
    training_share,
    usual_lr,
    validation_losses,
)
from mlpengine.diagnostics.monitor import Diagnostics
from mlpengine.diagnostics.samples import median
from mlpengine.diagnostics.units import range_of
from mlpengine.diagnostics.verdict import NOTE, Verdict, brief, percent, two_digits
from mlpengine.optim import Adam, Optimizer, PlateauSchedule, Sgd
from mlpengine.settings import (
    EarlyStopping,
    FeatureSettings,
    Fix,
    NetworkSettings,
    TrainingSettings,
)
from mlpengine.settings.training import Averaging

LOGITS = ("softmax_cross_entropy", "bce_with_logits")
"""Losses that take logits, so the network must not end in an activation."""


def output_clamped(diagnostics: Diagnostics) -> Verdict | None:
    """The output activation cannot reach the targets, or the loss expects logits."""
    activation = diagnostics.layers[-1].activation
    if activation is None:
        return None
    last, no_fix = diagnostics.columns.layers - 1, "a config has no output activation"
    name, advice = activation.name, f"Remove the {activation.name} after the last layer."
    if diagnostics.loss and diagnostics.loss.name in LOGITS:
        headline = "Output activation does not fit"
        evidence = (
            f"The network ends in {name}, and the loss {diagnostics.loss.name} takes logits, the "
            "outputs before an activation."
        )
        return Verdict("output_clamped", last, headline, evidence, 1.0, 0.0, advice, no_fix=no_fix)
    low, high = range_of(activation)
    lowest, highest = diagnostics.target_range
    outside = max(low - lowest, highest - high)
    if not outside > 1e-6 * (highest - lowest):
        return None
    headline = "Output cannot reach the targets"
    evidence = (
        f"The {name} of the last layer gives {low:g} to {high:g}, and the targets are "
        f"{two_digits(lowest)} to {two_digits(highest)}."
    )
    return Verdict("output_clamped", last, headline, evidence, outside, 0.0, advice, no_fix=no_fix)


def momentum_high(diagnostics: Diagnostics) -> Verdict | None:
    """Momentum averages gradients over too many steps: the loss swings or does not fall."""
    optimizer = diagnostics.optimizer
    betas = getattr(optimizer, "betas", None)
    momentum = betas[0] if betas else getattr(optimizer, "momentum", 0.0)
    losses = np.array([train for train, _ in diagnostics.epochs])
    limit = limits.LARGE_MOMENTUM
    if not momentum > limit or not losses.size:
        return None
    steps = total_steps(diagnostics)
    slow = steps < 10 / (1 - momentum)
    rise = float((losses - np.minimum.accumulate(losses)).max())
    swings = rise > limits.SWINGS * diagnostics.baseline
    if not (slow or swings or stuck(diagnostics)):
        return None
    headline, averaged = "Momentum is too high", two_digits(1 / (1 - momentum))
    evidence = f"Momentum {momentum:g} averages the last {averaged} gradients, and "
    if swings and not slow:
        times = two_digits(rise / diagnostics.baseline)
        evidence += f"the training loss rose by {times} times the loss of a constant prediction."
    else:
        evidence += f"the run has {plural(steps, 'step')}."
    fix = Fix(Adam, "betas", (0.9, betas[1])) if betas else Fix(Sgd, "momentum", 0.9)
    advice = f"Set optimizer.{'betas[0]' if betas else 'momentum'} to 0.9."
    return Verdict("momentum_high", None, headline, evidence, momentum, limit, advice, [fix])


def schedule(diagnostics: Diagnostics) -> Verdict | None:
    """The learning rate falls to nearly 0 long before the end, or still rises at the end."""
    rates, steps, total = (
        diagnostics.series.of("lr"), diagnostics.series.steps, total_steps(diagnostics)
    )  # fmt: skip
    of = getattr(diagnostics.optimizer, "schedule", None)
    if isinstance(of, PlateauSchedule) or not np.isfinite(rates).all() or not rates.any():
        return None  # a plateau schedule lowers the rate only when the loss has stopped falling
    peak = int(rates.argmax())
    cosine = [Fix(TrainingSettings, "schedule", "cosine")]
    half = float(np.interp(steps[peak] / 2, steps, rates)) / rates[peak]
    if peak == len(rates) - 1 and half < limits.WARMING:
        rise = f"It still rose in the last step ({steps[peak]:,}), to {rates[peak]:.2g}."
        advice = "Set schedule to cosine, without a warm-up."
        headline = "Learning rate warms up too long"
        return Verdict("schedule", None, headline, rise, half, limits.WARMING, advice, cosine)
    faded = steps[peak:][rates[peak:] < limits.FADED * rates[peak]]
    if not faded.size or not faded[0] < limits.FADED_SHARE * total:
        return None
    headline, number, limit = "Learning rate falls too soon", int(faded[0]), limits.FADED_SHARE
    evidence = (
        f"In step {number:,} of {total:,} it was already below {percent(limits.FADED)} of its "
        f"peak {rates[peak]:g}."
    )
    advice = "Let it fall over the whole run: set schedule to cosine."
    return Verdict("schedule", None, headline, evidence, number / total, limit, advice, cosine)


def small_batch(diagnostics: Diagnostics) -> Verdict | None:
    """Batches have so few rows that gradients are mostly noise."""
    batch, usual = diagnostics.batch_size, limits.SMALL_BATCH
    if not 0 < batch < usual or diagnostics.steps_per_epoch * batch < limits.MIN_BATCH:
        return None
    fails = training_share(diagnostics) > limits.FITTED or lags(diagnostics)
    headline, fix = "Batches are too small", [Fix(TrainingSettings, "batch_size", 16)]
    evidence = f"Each step uses only {plural(batch, 'row')}, so its gradient is mostly noise."
    advice = "Set training.batch_size to 16."
    return Verdict("small_batch", None, headline, evidence, batch, usual, advice, fix,
                   severity="warning" if fails else NOTE)  # fmt: skip


def dropout_high(diagnostics: Diagnostics) -> Verdict | None:
    """Dropout is so high that the training loss stays at the loss of a constant prediction."""
    dropout = max(diagnostics.dropout, default=0.0)
    share = training_share(diagnostics)
    without, baseline = validation_losses(diagnostics)[-1:], diagnostics.validation_baseline
    costs = share > limits.DROPOUT_SHARE and bool(
        (share * baseline > limits.DROPOUT_TIMES * without).any()
    )
    if not (
        dropout > limits.LARGE_DROPOUT and (share > limits.LEARNED or costs or lags(diagnostics))
    ):
        return None
    headline, limit = "Dropout is too high", limits.LARGE_DROPOUT
    evidence = (
        f"With dropout {dropout:g} the training loss stays at {percent(share)} of the loss "
        "of a constant prediction"
    )
    reached = two_digits(float(without[0]) / baseline) if costs else ""
    other = f"; without dropout, the validation loss is {reached} times the loss of a constant"
    evidence += f"{other if costs else ''}."
    advice, fix = "Set model.dropout to 0.1.", [Fix(NetworkSettings, "dropout", 0.1)]
    return Verdict("dropout_high", None, headline, evidence, dropout, limit, advice, fix)


def decay_dominates(diagnostics: Diagnostics) -> bool:
    """Return whether weight decay alone changes the weights much in each step."""
    decay = getattr(diagnostics.optimizer, "weight_decay", 0.0)
    return bool(
        decay >= limits.HUGE_DECAY and decay * usual_lr(diagnostics) > limits.HUGE_DECAY / 100
    )


def decay_high(diagnostics: Diagnostics) -> Verdict | None:
    """Weight decay shrinks the weights faster than the gradient enlarges them."""
    decay = getattr(diagnostics.optimizer, "weight_decay", 0.0)
    exponent = decay * usual_lr(diagnostics) * total_steps(diagnostics)
    unlearned = training_share(diagnostics) > limits.FITTED or lags(diagnostics)
    limit = limits.LARGE_DECAY
    costs = exponent > limit and (unlearned or decay >= limits.HUGE_DECAY)
    if not (costs or exponent > limits.ERASING_DECAY):
        return None
    headline, lower = "Weight decay is too high", rounded(0.1 * decay / exponent)
    evidence = (
        f"Weight decay {decay:g} erases the weights: alone it shrinks them to "
        f"{percent(exp(-exponent))} of their size in {total_steps(diagnostics):,} steps."
    )
    advice = f"Set optimizer.weight_decay to {lower:g}."
    fix = [Fix(Optimizer, "weight_decay", lower)]
    return Verdict("decay_high", None, headline, evidence, exponent, limit, advice, fix,
                   severity="warning" if costs else NOTE)  # fmt: skip


def eps_large(diagnostics: Diagnostics) -> Verdict | None:
    """The optimizer's eps exceeds the usual gradient of a weight, so steps are small."""
    eps = getattr(diagnostics.optimizer, "eps", 0.0)
    norms = diagnostics.series.of("gradient_norm")
    norms = np.sort(norms[~np.isnan(norms)])
    norm = float(norms[norms.size * 3 // 4]) if norms.size else nan
    count = sum(weight.size for weight in diagnostics.facts.params.values())
    usual = norm / sqrt(max(count, 1))
    times = eps / usual if usual > 0 else 0.0
    limit = limits.LARGE_EPS
    if not (times > limit and eps > limits.USUAL_EPS):
        return None
    headline = "The optimizer's eps is too large"
    evidence = (
        f"Steps are small, because eps ({eps:g}) is {two_digits(times)} times a usual gradient of "
        "a weight; it should be far smaller than the gradient."
    )
    advice, fix = "Set optimizer.eps to 1e-8.", [Fix(Adam, "eps", 1e-8)]
    return Verdict("eps_large", None, headline, evidence, times, limit, advice, fix)


def overfitting(diagnostics: Diagnostics) -> Verdict | None:
    """The validation loss rises while the training loss falls on."""
    losses = validation_losses(diagnostics)
    if len(losses) < limits.MIN_EPOCHS:
        return None
    constant = diagnostics.validation_baseline
    best = int(losses.argmin())
    lowest, final = float(losses[best]), median(losses[-3:])
    scale = constant if constant > 0 else float(losses[0])
    rise, last = final - lowest, training_share(diagnostics)
    falls = diagnostics.epochs[-1][0] < diagnostics.epochs[best][0]
    rises = (
        rise > limits.RISE * scale and rise > limits.RELATIVE_RISE * lowest and last < limits.FITTED
    )
    half = len(losses) // 2
    memorized = (  # only for regression; in classification, a few wrong rows raise the loss
        diagnostics.target_rms > 0
        and diagnostics.planned_split != "teacher"  # a teacher's targets have no noise
        and losses[:half].min() < (1 + limits.RELATIVE_RISE) * final
        and final / scale - last > limits.MEMORIZED_GAP
        and final / scale > limits.MEMORIZED * last
    )
    if not ((falls and rises) or memorized):
        return None
    headline, limit = "The network overfits", limits.RISE
    evidence = (
        f"The validation loss rose from {two_digits(lowest)} in epoch {best + 1} to "
        f"{two_digits(final)} in the last epochs, while the training loss fell."
    )
    if not rises:
        evidence = (
            f"After epoch {half} the validation loss stays near {two_digits(final)}, "
            f"{two_digits(final / scale / max(last, 1e-9))} times the training loss."
        )
    hidden = [max(8, layer.units // 4) for layer in diagnostics.layers[:-1]]
    fewer = [Fix(NetworkSettings, "hidden", hidden)]
    others = [[Fix(NetworkSettings, "dropout", 0.3)], *([fewer] if fewer[0].value else [])]
    if diagnostics.stops_early:
        advice = (
            "The best epoch's weights are kept. Fewer units or more dropout may lower the loss."
        )
        no_fix = "the best epoch's weights are kept"
        return Verdict("overfitting", None, headline, evidence, rise / scale, limit, advice,
                       no_fix=no_fix, severity=NOTE)  # fmt: skip
    advice = "Set training.early_stopping, add dropout or weight decay, or use fewer units."
    fix = [Fix(TrainingSettings, "early_stopping", EarlyStopping())]
    return Verdict("overfitting", None, headline, evidence, rise / scale, limit, advice, fix,
                   others=others)  # fmt: skip


def imbalance(diagnostics: Diagnostics) -> Verdict | None:
    """A rare class is hardly ever predicted, although the network has learned something."""
    if stuck(diagnostics):
        return None
    counts, recalls = diagnostics.class_counts, diagnostics.recalls
    small = counts < limits.RARE_SHARE * counts.mean() if counts.size else np.zeros(0, np.bool_)
    limit = limits.RECALL
    rare = small & (recalls < limit)
    if not rare.any() or not np.nan_to_num(recalls[~small]).mean() > limits.COMMON_RECALL:
        return None
    number = int(np.argmax(np.where(rare, counts, -1)))
    names = diagnostics.class_names
    name = brief(names[number]) if number < len(names) else f"class {number}"
    recall, headline = float(recalls[number]), "A rare class is missed"
    evidence = (
        f"{name!r} has {counts[number]:,} of the {int(counts.sum()):,} training rows, and the "
        f"network finds {percent(recall)} of the rows of this class."
    )
    advice = "If these rows matter to you, set data.class_weights to balanced."
    fix = [Fix(FeatureSettings, "class_weights", "balanced")]
    return Verdict("imbalance", None, headline, evidence, recall, limit, advice, fix, severity=NOTE)


def few_steps(diagnostics: Diagnostics) -> Verdict | None:
    """The run has too few updates, and the loss still falls."""
    steps, batch = total_steps(diagnostics), diagnostics.batch_size
    whole = diagnostics.steps_per_epoch <= limits.FEW_BATCHES
    if len(diagnostics.epochs) < limits.MIN_EPOCHS and not whole:
        return None  # `unfinished` asks for more epochs
    share, falls = training_share(diagnostics), fall(diagnostics)[0]
    if steps < limits.FAR_TOO_FEW_STEPS:
        learning = falls > limits.STILL_FALLING / 2 or lags(diagnostics)
        few = share > limits.FAR_TOO_FEW_SHARE and learning
    else:
        limit, fallen = (
            (limits.FAR_TOO_FEW_SHARE, limits.STILL_FALLING)
            if whole
            else (limits.FEW_STEPS_SHARE, limits.FEW_STEPS_FALL)
        )
        few = steps < limits.FEW_STEPS and share > limit and falls > fallen
    if not few:
        return None
    smallest = max(1, min(8, batch // 2))
    rows = max(smallest, min(batch // 4, batch * steps // (4 * limits.FEW_STEPS)))
    headline, wanted = "Too few updates", limits.FEW_STEPS
    epochs = 5 * max(len(diagnostics.epochs), 1)
    longer = [Fix(TrainingSettings, "epochs", epochs)]
    evidence = f"The whole run made only {plural(steps, 'update')}; {wanted} or more are usual."
    advice = f"Set training.batch_size to {rows}, or train for more epochs."
    fix, others, no_fix = [Fix(TrainingSettings, "batch_size", rows)], [longer], ""
    if batch < 8:  # smaller batches are too noisy
        (advice, fix, no_fix), others = more_epochs(diagnostics, epochs), []
    return Verdict("few_steps", None, headline, evidence, steps, wanted, advice, fix, no_fix,
                   others=others)  # fmt: skip


def more_epochs(diagnostics: Diagnostics, epochs: int) -> tuple[str, list[Fix], str]:
    """Return the advice to train for `epochs` epochs, its fix, and why there is no fix.

    A moving average of the weights that is longer than the run keeps the initial weights.
    """
    if (1 - (getattr(diagnostics.optimizer, "average", None) or 0)) * total_steps(diagnostics) < 1:
        advice = "The average of the weights covers more steps: set training.average.decay to 0.99."
        return advice, [Fix(TrainingSettings, "average", Averaging())], ""
    if diagnostics.ending == "early":
        advice = "Early stopping ended it: set a longer training.early_stopping.patience."
        return advice, [], "early stopping ended the run"
    if diagnostics.ending == "time":
        return "Give it more time than this limit.", [], "a time limit ended the run"
    return f"Set training.epochs to {epochs}.", [Fix(TrainingSettings, "epochs", epochs)], ""


def unfinished(diagnostics: Diagnostics) -> Verdict | None:
    """The loss still falls at the end of the run."""
    epochs, (last, relative) = len(diagnostics.epochs), fall(diagnostics)
    lagging = lags(diagnostics) and narrowest(diagnostics) > limits.SMALL_LAYER
    falls = last > limits.FALL and relative > limits.RELATIVE_FALL
    faster, steps = faster_fix(diagnostics), total_steps(diagnostics)
    headline, limit, more = "Training ended too early", limits.FALL, max(30, 3 * epochs)
    share = f": in the last quarter it fell by {percent(last)} of the loss of a constant prediction"
    share = share if last < limits.START_TIMES else ""  # the loss of a constant is nearly 0
    evidence = f"The loss was still falling after {plural(epochs, 'epoch')}{share}."
    if epochs < limits.MIN_EPOCHS and (left := lowest_share(diagnostics)) > limits.UNLEARNED:
        faster, last, limit = [], left, limits.UNLEARNED
        lagging = steps < limits.ENOUGH_STEPS
        evidence = (
            f"The run had only {plural(epochs, 'epoch')} ({plural(steps, 'update')}). The loss is "
            f"{percent(left)} of the loss of a constant prediction; more epochs usually lower it."
        )
    if not (falls or (last > limits.STILL_FALLING and lagging)):
        return None
    advice, fix, no_fix = more_epochs(diagnostics, more)
    if faster:
        advice, fix, no_fix = raised(faster), faster, ""
    longer = [[Fix(TrainingSettings, "epochs", more)], [Fix(TrainingSettings, "epochs", 3 * more)]]
    return Verdict("unfinished", None, headline, evidence, last, limit, advice, fix, no_fix,
                   others=longer)  # fmt: skip


def noise_scale(diagnostics: Diagnostics) -> Verdict | None:
    """Batches are so large that fewer rows would give nearly the same gradient."""
    scale, batch = median(diagnostics.series.of("noise_scale")), diagnostics.batch_size
    times = batch / max(scale, 1.0)
    share = training_share(diagnostics)
    hurried = (
        total_steps(diagnostics) <= limits.MANY_STEPS
        and fall(diagnostics)[0] > limits.STILL_FALLING
    )
    limit = limits.HURRIED_BATCH if hurried and share > limits.HURRIED_SHARE else limits.LARGE_BATCH
    if not (times > limit and batch >= limits.MIN_BATCH and share > limits.UNLEARNED):
        return None
    rows = 2 ** round(np.log2(max(8.0, sqrt(batch * max(scale, 1.0)))))
    headline = "Batches are larger than useful"
    evidence = f"A batch has {batch:,} rows, and about {rows:,} rows give nearly the same gradient."
    more = two_digits(batch / rows)
    advice = f"Set training.batch_size to {rows}: {more} times as many steps at the same cost."
    fix = [Fix(TrainingSettings, "batch_size", rows)]
    return Verdict("noise_scale", None, headline, evidence, times, limit, advice, fix)


def faster_fix(diagnostics: Diagnostics) -> list[Fix]:
    """Return the fix with a higher learning rate, or [] if the rate is high enough."""
    return suited_lr_fix(diagnostics) if start_ratio(diagnostics) < limits.SLOW_START else []


def raised(faster: Sequence[Fix]) -> str:
    """Return the advice for a fix from `faster_fix`."""
    return f"Raise the learning rate (optimizer.lr) to {faster[0].value:g}."


def narrowest(diagnostics: Diagnostics) -> float:
    """Return the number of units of the smallest hidden layer; infinite without one."""
    return min((layer.units for layer in diagnostics.layers[:-1]), default=inf)


def lags(diagnostics: Diagnostics) -> bool:
    """Return whether a simple model is better on new rows than the network on training rows.

    False for weighted classes, because the loss then does not minimize the number of errors, and
    for a loss that does not lead to a mean or median, because the squared error does not judge it.
    """
    if weighs_classes(diagnostics) or not is_behind(diagnostics):
        return False
    has_classes = not isnan(diagnostics.baselines.doubtful)
    return has_classes or getattr(diagnostics.loss, "is_central", True)


def is_behind(diagnostics: Diagnostics) -> bool:
    """Return whether a simple model has a clearly smaller squared error, or fewer wrong classes."""
    known = diagnostics.baselines
    return known.error - known.best > max(limits.BEHIND, 3 * known.deviation)


def weighs_classes(diagnostics: Diagnostics) -> bool:
    """Return whether the loss has weights of classes."""
    loss = diagnostics.loss
    weights = getattr(loss, "class_weights", None)
    return bool(weights) or getattr(loss, "positive_weight", 1.0) != 1.0


def nothing_learned(diagnostics: Diagnostics) -> Verdict | None:
    """The loss stays at the loss of a constant prediction, for an unknown reason."""
    limit, known = limits.LEARNED, diagnostics.baseline_score
    behind = known and isnan(training_share(diagnostics)) and known.value < known.constant
    if len(diagnostics.epochs) < limits.MIN_EPOCHS or not (stuck(diagnostics) or behind):
        return None
    if known and 1 - known.value < limits.WELL_LEARNED * (1 - known.constant):
        return None  # the loss hides what was learned, for example with strongly smoothed labels
    headline, train = "Nothing was learned", diagnostics.epochs[-1][0]
    share, no_fix = training_share(diagnostics), "the cause is unknown"
    evidence = (
        f"After {plural(len(diagnostics.epochs), 'epoch')} the training loss is still "
        f"{two_digits(train)}; the loss of a constant prediction is "
        f"{two_digits(diagnostics.baseline)}."
    )
    if known and behind:  # the loss of a constant prediction is not above 0
        share, limit = known.value, known.constant
        evidence = (
            f"On {known.rows} the network has {shown_name(known.metric)} {known.value:.3g}, and a "
            f"constant prediction has {known.constant:.3g}."
        )
    advice = "Check that the target depends on the features, and try other learning rates."
    others = rates(diagnostics, 0.1, 10.0, 0.01)
    return Verdict("nothing_learned", None, headline, evidence, share, limit, advice, (), no_fix,
                   others=others)  # fmt: skip


def lowest_share(diagnostics: Diagnostics) -> float:
    """Return the lower of two ratios, in training and in validation: last loss / constant loss.

    The result is 0 if the validation loss rose at the end, or without an epoch.
    """
    losses = validation_losses(diagnostics)
    rose = len(losses) > 1 and losses[-1] > losses[:-1].min()
    if rose or not diagnostics.epochs or not diagnostics.baseline > 0:
        return 0.0
    validation = losses[-1] / diagnostics.validation_baseline if losses.size else nan
    return float(np.fmin(training_share(diagnostics), validation))


def fall(diagnostics: Diagnostics) -> tuple[float, float]:
    """Return how much the mean loss fell from the third to the last quarter of the epochs.

    The first number is the fall divided by the loss of a constant prediction.  The second is the
    fall divided by the mean loss of the last quarter.  Without validation, training losses count.
    Both are 0 if the fall is below two standard errors, or the lowest loss is before that quarter.
    """
    losses: Array = validation_losses(diagnostics)
    scale = diagnostics.validation_baseline
    if not losses.size or not isfinite(scale):
        losses, scale = np.array([train for train, _ in diagnostics.epochs]), diagnostics.baseline
    quarter = max(1, len(losses) // 4)
    if len(losses) < 3 or not scale > 0 or losses.argmin() < len(losses) - quarter:
        return 0.0, 0.0
    early, late = losses[-2 * quarter : -quarter], losses[-quarter:]
    error = sqrt((early.var() + late.var()) / quarter)
    difference = float(early.mean() - late.mean())
    if not difference > 2 * error:
        return 0.0, 0.0
    return difference / scale, difference / max(float(late.mean()), 1e-12)
