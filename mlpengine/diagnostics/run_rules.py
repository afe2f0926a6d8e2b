"""Rules about the curves of a run and its settings: epochs, batches, optimizer, regularization."""

from math import inf, isfinite, nan, sqrt

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.diagnostics.derived import (
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
from mlpengine.diagnostics.thresholds import (
    BEHIND,
    CHANCE,
    COMMON_RECALL,
    DROPOUT_SHARE,
    DROPOUT_TIMES,
    FALL,
    FAR_TOO_FEW_SHARE,
    FAR_TOO_FEW_STEPS,
    FEW_BATCHES,
    FEW_STEPS,
    FEW_STEPS_FALL,
    FEW_STEPS_SHARE,
    FITTED,
    GAP,
    HUGE_DECAY,
    HURRIED_BATCH,
    HURRIED_SHARE,
    LARGE_BATCH,
    LARGE_DECAY,
    LARGE_DROPOUT,
    LARGE_EPS,
    LARGE_MOMENTUM,
    LEARNED,
    MANY_STEPS,
    MEMORIZED,
    MEMORIZED_GAP,
    MIN_BATCH,
    MIN_EPOCHS,
    RARE_SHARE,
    RECALL,
    RELATION,
    RELATIVE_FALL,
    RELATIVE_RISE,
    RISE,
    SIGNAL,
    SLOW_START,
    SMALL_LAYER,
    STILL_FALLING,
    SWINGS,
    UNLEARNED,
    USUAL_EPS,
)
from mlpengine.diagnostics.units import range_of
from mlpengine.diagnostics.verdict import Verdict, brief, percent, two_digits
from mlpengine.optim import Adam, Optimizer, Sgd
from mlpengine.settings import (
    EarlyStopping,
    FeatureSettings,
    Fix,
    NetworkSettings,
    TrainingSettings,
)

LOGITS = ("softmax_cross_entropy", "bce_with_logits")
"""Losses that take logits, so that the output needs no activation."""


def output_clamped(diagnostics: Diagnostics) -> Verdict | None:
    """The output activation cannot reach the targets, or precedes a loss that takes logits."""
    activation = diagnostics.layers[-1].activation
    if activation is None:
        return None
    last, advice = diagnostics.columns.layers - 1, "leave the output activation out"
    no_fix = "a config has no output activation"
    if diagnostics.loss and diagnostics.loss.name in LOGITS:
        finding = f"1 {activation.name} (should be 0) precedes {diagnostics.loss.name} of logits"
        return Verdict("output_clamped", last, finding, 1.0, 0.0, advice, no_fix=no_fix)
    low, high = range_of(activation)
    lowest, highest = diagnostics.target_range
    outside = max(low - lowest, highest - high)
    if not outside > 1e-6 * (highest - lowest):
        return None
    finding = (
        f"{activation.name} reaches {low:g} to {high:g} (should span the targets, "
        f"{two_digits(lowest)} to {two_digits(highest)})"
    )
    return Verdict("output_clamped", last, finding, outside, 0.0, advice, no_fix=no_fix)


def momentum_high(diagnostics: Diagnostics) -> Verdict | None:
    """Momentum averages gradients over too many steps: the loss swings or does not fall."""
    optimizer = diagnostics.optimizer
    betas = getattr(optimizer, "betas", None)
    momentum = betas[0] if betas else getattr(optimizer, "momentum", 0.0)
    losses = np.array([train for train, _ in diagnostics.epochs])
    if not momentum > LARGE_MOMENTUM or not losses.size:
        return None
    steps = total_steps(diagnostics)
    slow = steps < 10 / (1 - momentum)
    rise = float((losses - np.minimum.accumulate(losses)).max())
    swings = rise > SWINGS * diagnostics.baseline
    if not (slow or swings or stuck(diagnostics)):
        return None
    finding = (
        f"momentum of {momentum:g} (should be at most {LARGE_MOMENTUM:g}) averages over "
        f"{two_digits(1 / (1 - momentum))} of {plural(steps, 'step')}"
    )
    fix = Fix(Adam, "betas", (0.9, betas[1])) if betas else Fix(Sgd, "momentum", 0.9)
    advice = f"lower optimizer.{'betas[0]' if betas else 'momentum'} to 0.9"
    return Verdict("momentum_high", None, finding, momentum, LARGE_MOMENTUM, advice, [fix])


def dropout_high(diagnostics: Diagnostics) -> Verdict | None:
    """Dropout is so high that the training loss stays at the loss of a constant prediction."""
    dropout = max(diagnostics.dropout, default=0.0)
    share = training_share(diagnostics)
    without, baseline = validation_losses(diagnostics)[-1:], diagnostics.validation_baseline
    costs = share > DROPOUT_SHARE and bool((share * baseline > DROPOUT_TIMES * without).any())
    if not (dropout > LARGE_DROPOUT and (share > LEARNED or costs or lags(diagnostics))):
        return None
    finding = (
        f"dropout of {dropout:g} (should be at most 0.5) leaves the training loss at "
        f"{two_digits(share)} times that of a constant prediction"
    )
    advice, fix = "lower model.dropout to 0.1", [Fix(NetworkSettings, "dropout", 0.1)]
    return Verdict("dropout_high", None, finding, dropout, LARGE_DROPOUT, advice, fix)


def decay_dominates(diagnostics: Diagnostics) -> bool:
    """Return whether a step's decay alone changes the weights much, whatever the gradient."""
    decay = getattr(diagnostics.optimizer, "weight_decay", 0.0)
    return bool(decay >= HUGE_DECAY and decay * usual_lr(diagnostics) > HUGE_DECAY / 100)


def decay_high(diagnostics: Diagnostics) -> Verdict | None:
    """Weight decay shrinks the weights faster than the gradient enlarges them."""
    decay = getattr(diagnostics.optimizer, "weight_decay", 0.0)
    exponent = decay * usual_lr(diagnostics) * total_steps(diagnostics)
    unlearned = training_share(diagnostics) > FITTED or lags(diagnostics)
    if not (exponent > LARGE_DECAY and unlearned):
        return None
    finding = (
        f"weight decay of {decay:g} shrinks weights to e^-{two_digits(exponent)} (should be above "
        f"e^-{LARGE_DECAY:g}); the loss is {two_digits(training_share(diagnostics))} of a constant "
        "prediction's"
    )
    lower = rounded(0.1 * decay / exponent)
    advice = f"lower optimizer.weight_decay to {lower:g}"
    fix = [Fix(Optimizer, "weight_decay", lower)]
    return Verdict("decay_high", None, finding, exponent, LARGE_DECAY, advice, fix)


def eps_large(diagnostics: Diagnostics) -> Verdict | None:
    """The optimizer's eps exceeds the root of the second moment, so that steps are small."""
    eps = getattr(diagnostics.optimizer, "eps", 0.0)
    norms = diagnostics.series.of("gradient_norm")
    norms = np.sort(norms[~np.isnan(norms)])
    norm = float(norms[norms.size * 3 // 4]) if norms.size else nan
    usual = norm / sqrt(len(diagnostics.mlp.params))
    times = eps / usual if usual > 0 else 0.0
    if not (times > LARGE_EPS and eps > USUAL_EPS):
        return None
    finding = (
        f"eps of {eps:g} is {two_digits(times)} times the usual gradient of a weight (should be at "
        f"most {LARGE_EPS:g})"
    )
    advice, fix = "lower optimizer.eps to 1e-8", [Fix(Adam, "eps", 1e-8)]
    return Verdict("eps_large", None, finding, times, LARGE_EPS, advice, fix)


def labels(diagnostics: Diagnostics) -> Verdict | None:
    """The relation learned on the training rows does not hold on others."""
    constant = diagnostics.validation_baseline
    losses = validation_losses(diagnostics)
    if len(losses) < MIN_EPOCHS or not constant > 0:
        return None
    learned = training_share(diagnostics)
    share = median(losses[len(losses) // 2 :]) / constant
    lasting = min(share, median(losses[-3:]) / constant)
    signal = diagnostics.baselines.signal
    hopeless = signal < SIGNAL or float(np.sort(losses)[len(losses) // 10]) > CHANCE * constant
    unrelated = lasting > LEARNED and hopeless and not signal > RELATION
    if not (unrelated and learned < LEARNED and share - learned > GAP):
        return None
    finding = (
        f"the training loss fell to {two_digits(diagnostics.epochs[-1][0])}, but the validation "
        f"loss stays at {two_digits(share * constant)} (should be below a constant prediction's "
        f"{two_digits(constant)})"
    )
    advice = "check that labels belong to their rows"
    no_fix = "the data must be checked"
    return Verdict("labels", None, finding, share, LEARNED, advice, no_fix=no_fix)


def overfitting(diagnostics: Diagnostics) -> Verdict | None:
    """The validation loss rises while the training loss falls on."""
    losses = validation_losses(diagnostics)
    if len(losses) < MIN_EPOCHS:
        return None
    constant = diagnostics.validation_baseline
    best = int(losses.argmin())
    lowest, final = float(losses[best]), median(losses[-3:])
    scale = constant if constant > 0 else float(losses[0])
    rise, last = final - lowest, training_share(diagnostics)
    falls = diagnostics.epochs[-1][0] < diagnostics.epochs[best][0]
    rises = rise > RISE * scale and rise > RELATIVE_RISE * lowest and last < FITTED
    half = len(losses) // 2
    memorized = (  # of numbers; with classes the loss of wrong rows rises
        diagnostics.target_rms > 0
        and losses[:half].min() < (1 + RELATIVE_RISE) * final
        and final / scale - last > MEMORIZED_GAP
        and final / scale > MEMORIZED * last
    )
    if not ((falls and rises) or memorized):
        return None
    moved = f"rose from {two_digits(lowest)} in epoch {best + 1} to {two_digits(final)}"
    finding = (
        f"the validation loss {moved} (should be within {percent(RELATIVE_RISE)}), the training "
        "loss fell"
    )
    if not rises:
        finding = (
            f"after epoch {half} the validation loss stays near {two_digits(final)}, "
            f"{two_digits(final / scale / max(last, 1e-9))} times the training loss (should be at "
            f"most {MEMORIZED:g})"
        )
    advice = "stop early, or use fewer units, dropout, decay"
    fix = [Fix(TrainingSettings, "early_stopping", EarlyStopping())]
    return Verdict("overfitting", None, finding, rise / scale, RISE, advice, fix)


def imbalance(diagnostics: Diagnostics) -> Verdict | None:
    """A rare class is hardly ever predicted, although something is learned."""
    if stuck(diagnostics):
        return None
    counts, recalls = diagnostics.class_counts, diagnostics.recalls
    small = counts < RARE_SHARE * counts.mean() if counts.size else np.zeros(0, np.bool_)
    rare = small & (recalls < RECALL)
    if not rare.any() or not np.nan_to_num(recalls[~small]).mean() > COMMON_RECALL:
        return None
    number = int(np.argmax(np.where(rare, counts, -1)))
    names = diagnostics.class_names
    name = brief(names[number], 24) if number < len(names) else f"class {number}"
    finding = (
        f"{name!r}, {counts[number]} of {plural(int(counts.sum()), 'training row')}, is predicted "
        f"for {percent(recalls[number])} of its rows (should be above {percent(RECALL)})"
    )
    advice = "use class weights (data.class_weights: balanced)"
    fix = [Fix(FeatureSettings, "class_weights", "balanced")]
    return Verdict("imbalance", None, finding, float(recalls[number]), RECALL, advice, fix)


def few_steps(diagnostics: Diagnostics) -> Verdict | None:
    """The whole run has too few updates, and the loss still falls."""
    steps, batch = total_steps(diagnostics), diagnostics.batch_size
    share, falls = training_share(diagnostics), fall(diagnostics)[0]
    if steps < FAR_TOO_FEW_STEPS:
        learning = falls > STILL_FALLING / 2 or lags(diagnostics)
        few = share > FAR_TOO_FEW_SHARE and learning
    else:
        whole = diagnostics.steps_per_epoch <= FEW_BATCHES
        limit, fallen = (
            (FAR_TOO_FEW_SHARE, STILL_FALLING) if whole else (FEW_STEPS_SHARE, FEW_STEPS_FALL)
        )
        few = steps < FEW_STEPS and share > limit and falls > fallen
    if not few:
        return None
    smallest = max(1, min(8, batch // 2))
    rows = max(smallest, min(batch // 4, batch * steps // (4 * FEW_STEPS)))
    finding = f"the whole run was {plural(steps, 'step')} (should be {FEW_STEPS} or more)"
    advice = f"use smaller batches (training.batch_size, {rows}) or more epochs"
    fix = [Fix(TrainingSettings, "batch_size", rows)]
    return Verdict("few_steps", None, finding, steps, FEW_STEPS, advice, fix)


def unfinished(diagnostics: Diagnostics) -> Verdict | None:
    """The best epoch is among the last, and the loss still falls."""
    epochs, (last, relative) = len(diagnostics.epochs), fall(diagnostics)
    falls = last > FALL and relative > RELATIVE_FALL
    lagging = last > STILL_FALLING and lags(diagnostics) and narrowest(diagnostics) > SMALL_LAYER
    faster = faster_fix(diagnostics)
    if epochs < (MIN_EPOCHS if faster else 2 * MIN_EPOCHS) or not (falls or lagging):
        return None
    finding = (
        f"over the last quarter of {epochs} epochs the loss fell by {percent(last)} of that of a "
        f"constant prediction (should be at most {percent(STILL_FALLING)})"
    )
    advice = "raise lr" if faster else "train longer (training.epochs)"
    fix = faster or [Fix(TrainingSettings, "epochs", 3 * epochs)]
    return Verdict("unfinished", None, finding, last, FALL, advice, fix)


def noise_scale(diagnostics: Diagnostics) -> Verdict | None:
    """Batches are so large that most of their rows do not improve the step."""
    scale, batch = median(diagnostics.series.of("noise_scale")), diagnostics.batch_size
    times = batch / max(scale, 1.0)
    share = training_share(diagnostics)
    hurried = total_steps(diagnostics) <= MANY_STEPS and fall(diagnostics)[0] > STILL_FALLING
    limit = HURRIED_BATCH if hurried and share > HURRIED_SHARE else LARGE_BATCH
    if not (times > limit and batch >= MIN_BATCH and share > UNLEARNED):
        return None
    rows = 2 ** round(np.log2(max(8.0, sqrt(batch * max(scale, 1.0)))))
    finding = (
        f"the batch of {batch} rows is {two_digits(times)} times the gradient noise scale of "
        f"{two_digits(scale)} (should be at most {limit:g})"
    )
    advice = f"use batches of {rows} rows (training.batch_size)"
    fix = [Fix(TrainingSettings, "batch_size", rows)]
    return Verdict("noise_scale", None, finding, times, limit, advice, fix)


def faster_fix(diagnostics: Diagnostics) -> list[Fix]:
    """Return a higher learning rate; nothing if the rate is usual."""
    return suited_lr_fix(diagnostics) if start_ratio(diagnostics) < SLOW_START else []


def narrowest(diagnostics: Diagnostics) -> float:
    """Return the number of units of the smallest hidden layer; infinite without one."""
    return min((layer.units for layer in diagnostics.layers[:-1]), default=inf)


def lags(diagnostics: Diagnostics) -> bool:
    """Return whether the network explains its own rows worse than a simple model explains new rows.

    False for weighted classes, because the network does not learn to make the fewest errors then.
    """
    known = diagnostics.baselines
    if weighs_classes(diagnostics):
        return False
    return known.error - known.best > max(BEHIND, 3 * known.deviation)


def weighs_classes(diagnostics: Diagnostics) -> bool:
    """Return whether the loss weighs classes, so that it does not minimize the number of errors."""
    loss = diagnostics.loss
    weights = getattr(loss, "class_weights", None)
    return bool(weights) or getattr(loss, "positive_weight", 1.0) != 1.0


def nothing_learned(diagnostics: Diagnostics) -> Verdict | None:
    """The loss stays at the loss of a constant prediction, for an unknown reason."""
    if len(diagnostics.epochs) < MIN_EPOCHS or not stuck(diagnostics):
        return None
    train = diagnostics.epochs[-1][0]
    finding = (
        f"after {plural(len(diagnostics.epochs), 'epoch')} the training loss is "
        f"{two_digits(train)} "
        f"(should be below a constant prediction's {two_digits(diagnostics.baseline)})"
    )
    advice = "check that the target depends on the features, and try other lr"
    share, no_fix = train / diagnostics.baseline, "the cause is unknown"
    return Verdict("nothing_learned", None, finding, share, LEARNED, advice, no_fix=no_fix)


def fall(diagnostics: Diagnostics) -> tuple[float, float]:
    """Return how much the loss fell over the last quarter of the epochs.

    The first number is in units of a constant prediction's loss, the second in units of the mean
    loss of the quarter.  The loss is the validation loss if it is known.  The fall is 0 unless it
    exceeds twice its standard error and the lowest loss is in the last quarter.
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
