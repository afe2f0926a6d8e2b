"""The rules behind verdicts.  Each rule checks one condition and reports it only when it is clear.

Thresholds differ from everything measured in the healthy set-ups of benchmarks/
diagnostics_corpus.py by a factor of two or more; the comments give the extremes measured there.
"""

from collections.abc import Callable
from math import hypot, isnan, nan

import numpy as np

from mlpengine.diagnostics.observer import Diagnostics
from mlpengine.diagnostics.units import ROWS
from mlpengine.diagnostics.verdict import Verdict, percent, power
from mlpengine.spec import Array
from mlpengine.wording import plural

GUIDE_RATIO = 1e-3
"""The update ratio of a network that learns well, to an order of magnitude."""

FAST_RATIO = 0.3  # healthy: up to 0.07
VERY_FAST_RATIO = 1.0
"""An update ratio above this is reported even if the training loss falls."""
SLOW_RATIO = 1e-4  # healthy: from 2.8e-3 in the best sample of the best layer
STEEP = 2.0  # healthy: down to -0.8
SMALL_SIGNAL = 1e-3  # healthy: from 0.2
DEAD = 0.4  # healthy: up to 0.19
SATURATED = 0.5  # healthy: up to 0.18
LARGE_INPUT, SMALL_INPUT = 30.0, 0.01  # healthy: 0.5 to 1
LARGE_FEATURE = 20.0  # healthy: up to 2.1
UNUSUAL_INPUT = 3.0
"""Above this root mean square of the input, features are named among the causes of a large loss."""
LARGE_TARGET = 30.0  # healthy: 1
START = 10.0  # healthy: up to 2.7
CLIPPED, COEFFICIENT = 0.9, 0.05  # healthy: 0.1 of the steps
OUTLIER_TIMES, OUTLIER_SHARE = 30.0, 0.9  # healthy: up to 260 and 1, late, when norms are tiny ...
OUTLIER_NORM = 5.0  # ... and so below the norm of the first step
SPIKES = 0.02  # healthy: up to 0.004
LARGE_DROPOUT = 0.6  # healthy: 0.3
LEARNED = 0.98
"""Share of the loss of a constant prediction that counts as having learned something."""
WELL_LEARNED = 0.5
"""Share of the loss of a constant prediction below which dead units do no harm."""
MIN_EPOCHS = 5
"""Epochs before curves are judged."""
CHANCE = 0.8
"""Best validation loss, in constant predictions, that no network reaches on unrelated targets."""
GAP = 0.04
"""Least difference of validation and training loss, in constant predictions, without a relation."""
FITTED = 0.9
"""Share of the loss of a constant prediction above which training rows are not overfitted."""
RISE, RELATIVE_RISE = 0.08, 0.1  # healthy: up to 0.04
"""Rise of the validation loss over its lowest, in constant predictions and in units of the lowest,
that counts as overfitting."""

Rule = Callable[[Diagnostics], Verdict | None]


def verdicts(diagnostics: Diagnostics) -> list[Verdict]:
    """Return what is wrong, causes first; what another verdict explains is left out."""
    reported: dict[str, Verdict] = {}
    for rule, causes in RULES:
        if causes.isdisjoint(reported):
            verdict = rule(diagnostics)
            if verdict is not None:
                reported[verdict.name] = verdict
    if not reported:
        verdict = LAST_RESORT(diagnostics)
        return [verdict] if verdict is not None else []
    return list(reported.values())


def input_scale(diagnostics: Diagnostics) -> Verdict | None:
    """The features are far from unit size, all together or one of them."""
    size = input_size(diagnostics)
    advice = "standardize them (data.standardize: standard)"
    if not (SMALL_INPUT <= size <= LARGE_INPUT or isnan(size)):
        limit = LARGE_INPUT if size > LARGE_INPUT else SMALL_INPUT
        finding = f"the features have a root mean square of {power(size)} (guide 1)"
        return Verdict("input_scale", None, finding, size, limit, advice)
    number, largest = worst(diagnostics.feature_sizes)
    if not largest > LARGE_FEATURE:
        return None
    large = int(np.count_nonzero(diagnostics.feature_sizes > LARGE_FEATURE))
    finding = (
        f"one value in ten of feature {diagnostics.feature_names[number]!r} is beyond "
        f"{power(largest)} (guide 1 to 3; {plural(large, 'feature')} above {power(LARGE_FEATURE)})"
    )
    return Verdict("input_scale", None, finding, largest, LARGE_FEATURE, advice)


def target_scale(diagnostics: Diagnostics) -> Verdict | None:
    """The targets of a regression are far from unit size."""
    size = diagnostics.target_rms
    if not size > LARGE_TARGET:
        return None
    finding = f"the targets have a root mean square of {power(size)} (guide 1)"
    advice = "standardize them (data.standardize_target: true)"
    return Verdict("target_scale", None, finding, size, LARGE_TARGET, advice)


def no_gradient(diagnostics: Diagnostics) -> Verdict | None:
    """A layer of zeros passes no gradient to the layers before it."""
    for number, weight in enumerate(diagnostics.mlp.weights):
        if number + 1 < len(diagnostics.mlp.weights) and not weight.any():
            finding = "all weights are 0: its units stay equal, and earlier layers learn nothing"
            return Verdict("no_gradient", number, finding, 0.0, 0.0, "choose another initializer")
    return None


def start(diagnostics: Diagnostics) -> Verdict | None:
    """The first loss is far above that of a constant prediction."""
    first = diagnostics.first_loss
    times = first / diagnostics.baseline if diagnostics.baseline > 0 else nan
    if not times > START * dropout_gain(diagnostics):
        return None
    finding = (
        f"the first loss was {power(first)}, {power(times)} times that of a constant prediction "
        f"({power(diagnostics.baseline)}; guide 1 to 3)"
    )
    advice = start_advice(input_size(diagnostics))
    return Verdict("start", None, finding, times, START, advice)


def start_advice(size: float) -> str:
    """Return the way out of a large first loss for features with this root mean square."""
    if size > UNUSUAL_INPUT:
        return f"standardize the features (root mean square {power(size)}, guide 1)"
    return "make the initial weights smaller"


def nonfinite(diagnostics: Diagnostics) -> Verdict | None:
    """The run ended at a number that is not finite, or left out the steps that had one."""
    skipped = diagnostics.skipped
    finding = f"{plural(skipped, 'step')} had numbers that are not finite and had no update"
    if not (diagnostics.failure or skipped):
        return None
    advice = "look at the rows it names, lower lr, or clip the gradients"
    return Verdict("nonfinite", None, diagnostics.failure or finding, skipped, 0.0, advice)


def lr_high(diagnostics: Diagnostics) -> Verdict | None:
    """Steps change the weights by much of their norm, and learning suffers."""
    ratios = layer_ratios(diagnostics)
    if not ratios.size:
        return None
    number, largest = worst(ratios.max(axis=0))
    lasting = median(ratios[:, number]) > FAST_RATIO / 3
    harmful = largest > VERY_FAST_RATIO or lasting or stuck(diagnostics) or dead(diagnostics)
    if not (largest > FAST_RATIO and harmful):
        return None
    finding = (
        f"a step changed the weights by {power(largest)} times their norm (guide {GUIDE_RATIO})"
    )
    advice = f"divide lr by {power(largest / GUIDE_RATIO / 10)}, to begin with"
    return Verdict("lr_high", number, finding, largest, FAST_RATIO, advice)


def clip_low(diagnostics: Diagnostics) -> Verdict | None:
    """Nearly every step is clipped to a small part of the gradient."""
    share = median(diagnostics.series.of("clipped_share"))
    norms = diagnostics.series.of("gradient_norm")
    clipped = diagnostics.series.of("clipped_norm")
    coefficient = median(clipped[norms > 0] / norms[norms > 0])
    if not (share > CLIPPED and coefficient < COEFFICIENT):
        return None
    finding = (
        f"{percent(share)} of the steps were clipped, to {power(coefficient)} times the gradient"
    )
    advice = f"raise clip_norm (the norm is usually {power(median(norms))})"
    return Verdict("clip_low", None, finding, coefficient, COEFFICIENT, advice)


def lr_low(diagnostics: Diagnostics) -> Verdict | None:
    """No step ever changes the weights much, and the loss has not fallen."""
    ratios = layer_ratios(diagnostics)
    largest = float(ratios.max()) if ratios.size else nan
    if not 0 < largest < SLOW_RATIO or training_share(diagnostics) < 0.7:
        return None
    finding = (
        f"no step changed the weights by more than {power(largest)} times their norm "
        f"(guide {GUIDE_RATIO})"
    )
    advice = f"multiply lr by {power(GUIDE_RATIO / largest)}, to begin with"
    return Verdict("lr_low", None, finding, largest, SLOW_RATIO, advice)


def dead(diagnostics: Diagnostics) -> Verdict | None:
    """Rectifier units that never fire, while there is something left to learn."""
    shares = np.array([dead_share(diagnostics, n) for n in range(diagnostics.columns.layers)])
    number, share = worst(shares)
    if not share > DEAD:
        return None
    ratios = diagnostics.series.of("update_ratio", number)
    largest = float(np.nanmax(ratios)) if np.isfinite(ratios).any() else nan
    finding = f"{percent(share)} of the units fired on none of {ROWS} or more rows"
    advice = f"lower lr (update ratio up to {power(largest)}, guide {GUIDE_RATIO})"
    if not largest > 10 * GUIDE_RATIO:
        advice = "look at the initial weights and biases"
    return Verdict("dead", number, finding, share, DEAD, f"{advice} or use leaky_relu")


def dead_share(diagnostics: Diagnostics, layer: int) -> float:
    """Return the share of a layer's dead units while the loss was above `WELL_LEARNED`.

    Units that die after the loss has become small do no harm: a network that learns its rows by
    heart needs ever fewer.
    """
    if not training_share(diagnostics) < WELL_LEARNED:
        return diagnostics.dead_share(layer)
    unlearned = diagnostics.series.of("loss") > WELL_LEARNED * reference_loss(diagnostics)
    shares = diagnostics.series.of("dead_share", layer)[unlearned]
    known = shares[~np.isnan(shares)]
    return float(known[-1]) if known.size else nan


def saturated(diagnostics: Diagnostics) -> Verdict | None:
    """Activations at the ends of their range, where gradients are nearly 0."""
    layers = range(diagnostics.columns.layers - 1)
    shares = np.array([median(diagnostics.series.of("saturated_share", n)) for n in layers])
    number, share = worst(shares)
    if not share > SATURATED:
        return None
    finding = f"{percent(share)} of the activations are beyond 0.97 of their range"
    advice = "make the initial weights or the features smaller, or lower lr"
    return Verdict("saturated", number, finding, share, SATURATED, advice)


def depth(diagnostics: Diagnostics) -> Verdict | None:
    """Gradients that shrink or grow from the last layer to the first."""
    slope = median(diagnostics.series.of("depth_slope"))
    if not abs(slope) > STEEP:
        return None
    times = power(10.0 ** abs(slope))
    if slope < 0:
        finding = f"its gradient is {times} times smaller than that of the last layer"
        advice = "use relu or gelu, fewer layers, or an initializer that suits the activation"
        return Verdict("vanishing", 0, finding, slope, -STEEP, advice)
    finding = f"its gradient is {times} times larger than that of the last layer"
    advice = "make the initial weights smaller, or clip the gradients"
    return Verdict("exploding", 0, finding, slope, STEEP, advice)


def signal(diagnostics: Diagnostics) -> Verdict | None:
    """Activations that shrink from layer to layer at the start, so that outputs are constant."""
    last = diagnostics.columns.layers - 2
    if last < 1:
        return None
    spreads = [diagnostics.series.of("activation_std", layer)[:1] for layer in (0, last)]
    share = median(spreads[1]) / median(spreads[0]) if median(spreads[0]) > 0 else nan
    if not share < SMALL_SIGNAL:
        return None
    finding = f"its activations began at {power(share)} times the size of those of layer 0"
    advice = "use an initializer that suits the activation (model.initializer), or fewer layers"
    return Verdict("vanishing", last, finding, share, SMALL_SIGNAL, advice)


def dropout_high(diagnostics: Diagnostics) -> Verdict | None:
    """So many activations are dropped that the training loss stays at a constant prediction."""
    dropout, share = diagnostics.mlp.dropout, training_share(diagnostics)
    if not (dropout > LARGE_DROPOUT and share > LEARNED):
        return None
    finding = (
        f"dropout of {dropout:g} leaves the training loss at {power(share)} times that of a "
        f"constant prediction"
    )
    advice = "lower it (model.dropout, 0.5 at most)"
    return Verdict("dropout_high", None, finding, dropout, LARGE_DROPOUT, advice)


def outlier(diagnostics: Diagnostics) -> Verdict | None:
    """One row that outweighs its whole batch."""
    norms = diagnostics.series.of("gradient_norm")
    limit = OUTLIER_NORM * float(norms[0]) if norms.size else 0.0
    spikes = [
        spike
        for spike in diagnostics.noted
        if spike.times > OUTLIER_TIMES and spike.share > OUTLIER_SHARE and spike.norm > limit
    ]
    if not spikes:
        return None
    largest = max(spikes, key=lambda spike: spike.times)
    finding = (
        f"step {largest.step} had {power(largest.times)} times the usual gradient norm, "
        f"{percent(largest.share)} of it from {diagnostics.name_row(largest.row)}"
    )
    advice = "look at that row for a wrong value, or clip the gradients"
    return Verdict("outlier", None, finding, largest.times, OUTLIER_TIMES, advice)


def unsteady(diagnostics: Diagnostics) -> Verdict | None:
    """Too many steps with an unusual norm."""
    share = diagnostics.spikes.count / max(diagnostics.spikes.steps, 1)
    if not share > SPIKES:
        return None
    finding = f"{percent(share)} of the steps had several times the usual gradient norm"
    return Verdict("spikes", None, finding, share, SPIKES, "lower lr or clip the gradients")


def labels(diagnostics: Diagnostics) -> Verdict | None:
    """What is learned of the training rows does not hold for others."""
    constant = diagnostics.validation_baseline
    losses = validation_losses(diagnostics)
    if len(losses) < MIN_EPOCHS or not constant > 0:
        return None
    learned = training_share(diagnostics)
    share = float(np.median(losses[len(losses) // 2 :])) / constant
    unrelated = share > LEARNED and losses.min() > CHANCE * constant
    if not (unrelated and learned < LEARNED and share - learned > GAP):
        return None
    finding = (
        f"the training loss fell to {power(diagnostics.epochs[-1][0])}, but the validation loss is "
        f"usually {power(share * constant)}, where a constant prediction has {power(constant)}"
    )
    advice = "the rows are learned by heart: check that labels belong to their rows"
    return Verdict("labels", None, finding, share, LEARNED, advice)


def overfitting(diagnostics: Diagnostics) -> Verdict | None:
    """The validation loss rises while the training loss falls on."""
    losses = validation_losses(diagnostics)
    if len(losses) < MIN_EPOCHS:
        return None
    constant = diagnostics.validation_baseline
    best = int(losses.argmin())
    lowest, final = float(losses[best]), float(np.median(losses[-3:]))
    scale = constant if constant > 0 else float(losses[0])
    rise = final - lowest
    falls = diagnostics.epochs[-1][0] < diagnostics.epochs[best][0]
    falls = falls and training_share(diagnostics) < FITTED
    if not (rise > RISE * scale and rise > RELATIVE_RISE * lowest and falls):
        return None
    finding = (
        f"the validation loss rose from {power(lowest)} in epoch {best + 1} to {power(final)}, "
        "while the training loss fell on"
    )
    advice = "stop early, or use fewer units, dropout, weight decay or more rows"
    return Verdict("overfitting", None, finding, rise / scale, RISE, advice)


def nothing_learned(diagnostics: Diagnostics) -> Verdict | None:
    """The loss stays that of a constant prediction, for whatever reason."""
    if len(diagnostics.epochs) < MIN_EPOCHS or not stuck(diagnostics):
        return None
    train = diagnostics.epochs[-1][0]
    finding = (
        f"after {plural(len(diagnostics.epochs), 'epoch')} the training loss is {power(train)}, "
        f"that of a constant prediction {power(diagnostics.baseline)}"
    )
    advice = "check that the target depends on the features, and try other lr"
    share = train / diagnostics.baseline
    return Verdict("nothing_learned", None, finding, share, LEARNED, advice)


def input_size(diagnostics: Diagnostics) -> float:
    """Return the usual root mean square of the input; NaN if unknown."""
    of = diagnostics.series.of
    return hypot(median(of("input_mean")), median(of("input_std")))


def layer_ratios(diagnostics: Diagnostics) -> Array:
    """Return the update ratios (samples, layers), 0 where unknown."""
    layers = [diagnostics.series.of("update_ratio", n) for n in range(diagnostics.columns.layers)]
    ratios: Array = np.nan_to_num(np.stack(layers, axis=1), nan=0.0)
    return ratios


def dropout_gain(diagnostics: Diagnostics) -> float:
    """Return how much dropout enlarges the mean square of the output, hidden layers together."""
    hidden = diagnostics.columns.layers - 1
    return float((1.0 - diagnostics.mlp.dropout) ** -hidden)


def reference_loss(diagnostics: Diagnostics) -> float:
    """Return the loss of a constant prediction; the first loss where that is unknown."""
    return diagnostics.first_loss if isnan(diagnostics.baseline) else diagnostics.baseline


def training_share(diagnostics: Diagnostics) -> float:
    """Return the last training loss in units of `reference_loss`; NaN if it is unknown.

    That of the last epoch or, where no epoch was closed, the mean over the last samples.
    """
    if diagnostics.epochs:
        loss = diagnostics.epochs[-1][0]
    else:
        losses = diagnostics.series.of("loss")
        known = losses[~np.isnan(losses)]
        loss = float(known[-max(1, len(known) // 4) :].mean()) if known.size else nan
    reference = reference_loss(diagnostics)
    return loss / reference if reference > 0 else nan


def stuck(diagnostics: Diagnostics) -> bool:
    """Return whether the run failed or ended no better than a constant prediction."""
    return bool(diagnostics.failure) or training_share(diagnostics) >= LEARNED


def validation_losses(diagnostics: Diagnostics) -> Array:
    """Return the validation loss of each epoch; none if it was not measured in every epoch."""
    losses = np.array([validation for _, validation in diagnostics.epochs])
    return losses if np.isfinite(losses).all() else losses[:0]


def median(values: Array) -> float:
    """Return the median of the numbers among `values`; NaN if there is none."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else nan


def worst(values: Array) -> tuple[int, float]:
    """Return index and value of the largest number; NaN if there is none."""
    if not np.isfinite(values).any():
        return 0, nan
    index = int(np.nanargmax(values))
    return index, float(values[index])


RULES: tuple[tuple[Rule, frozenset[str]], ...] = (
    (input_scale, frozenset()),
    (target_scale, frozenset()),
    (no_gradient, frozenset()),
    (lr_high, frozenset()),
    (dropout_high, frozenset({"input_scale", "target_scale", "lr_high"})),
    (start, frozenset({"input_scale", "target_scale", "lr_high", "dropout_high"})),
    (clip_low, frozenset()),
    (lr_low, frozenset({"clip_low", "no_gradient"})),
    (dead, frozenset({"no_gradient", "input_scale"})),
    (saturated, frozenset({"input_scale"})),
    (depth, frozenset({"no_gradient", "input_scale"})),
    (signal, frozenset({"no_gradient", "vanishing"})),
    (outlier, frozenset({"input_scale"})),
    (unsteady, frozenset({"outlier", "lr_high", "vanishing"})),
    (nonfinite, frozenset()),
    (labels, frozenset({"lr_high", "input_scale", "target_scale", "nonfinite"})),
    (overfitting, frozenset({"lr_high", "labels", "nonfinite"})),
)
"""The rules, and for each the verdicts that explain what it would report."""

LAST_RESORT: Rule = nothing_learned
"""Applies only where no other rule does."""
