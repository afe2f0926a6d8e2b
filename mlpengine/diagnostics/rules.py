"""The rules that draw verdicts.  Each looks at one thing and speaks only when it is surely wrong.

Thresholds stand apart from everything seen in the healthy set-ups of benchmarks/
diagnostics_corpus.py by a factor of two or more; the comments give the extremes met there.
"""

from collections.abc import Callable, Iterator
from math import hypot, isnan, nan

import numpy as np

from mlpengine.diagnostics.observer import Diagnostics
from mlpengine.diagnostics.units import ROWS
from mlpengine.diagnostics.verdicts import Verdict, percent, power
from mlpengine.spec import Array
from mlpengine.wording import plural

GUIDE_RATIO = 1e-3
"""The update ratio of a network that learns well, to an order of magnitude."""

FAST_RATIO = 0.3  # healthy: up to 0.07
SLOW_RATIO = 1e-4  # healthy: from 2.8e-3 in the best sample of the best layer
STEEP = 2.0  # healthy: down to -0.8
DEAD = 0.4  # healthy: up to 0.19
SATURATED = 0.5  # healthy: up to 0.18
LARGE_INPUT, SMALL_INPUT = 30.0, 0.01  # healthy: 0.5 to 1
LARGE_TARGET = 30.0  # healthy: 1
START = 10.0  # healthy: up to 2.7
CLIPPED, COEFFICIENT = 0.9, 0.05  # healthy: 0.1 of the steps
OUTLIER_TIMES, OUTLIER_SHARE = 20.0, 0.9  # healthy: up to 260 and 1, late, when norms are tiny ...
OUTLIER_NORM = 5.0  # ... and so below the norm of the first step
SPIKES = 0.02  # healthy: up to 0.004
LEARNED = 0.98
"""Share of the loss of a constant prediction that counts as having learned something."""
LABELS_LEARNED, LABELS_EPOCHS = 0.9, 5
BY_HEART, WORSE = 0.7, 1.2
"""Of constant predictions' losses: training below, validation above in the end."""

Rule = Callable[[Diagnostics], Verdict | None]


def all_verdicts(seen: Diagnostics) -> Iterator[Verdict]:
    """Yield what is wrong, causes before their consequences; consequences alone are left out."""
    found: set[str] = set()
    for rule, causes in RULES:
        if not causes & found:
            verdict = rule(seen)
            if verdict is not None:
                found.add(verdict.name)
                yield verdict
    last = None if found else LAST_RESORT(seen)
    if last is not None:
        yield last


def input_scale(seen: Diagnostics) -> Verdict | None:
    """The features are far from unit size."""
    mean, deviation = (median(seen.series.of(q)) for q in ("input_mean", "input_std"))
    size = hypot(mean, deviation)
    if SMALL_INPUT <= size <= LARGE_INPUT or isnan(size):
        return None
    limit = LARGE_INPUT if size > LARGE_INPUT else SMALL_INPUT
    finding = f"the features have a root mean square of {power(size)} (guide 1)"
    advice = "standardize them (data.standardize: standard)"
    return Verdict("input_scale", None, finding, size, limit, advice)


def target_scale(seen: Diagnostics) -> Verdict | None:
    """The targets of a regression are far from unit size."""
    size = seen.target_rms
    if not size > LARGE_TARGET:
        return None
    finding = f"the targets have a root mean square of {power(size)} (guide 1)"
    advice = "standardize them (data.standardize_target: true)"
    return Verdict("target_scale", None, finding, size, LARGE_TARGET, advice)


def no_gradient(seen: Diagnostics) -> Verdict | None:
    """A layer of zeros passes nothing on."""
    for number, weight in enumerate(seen.mlp.weights):
        if number + 1 < len(seen.mlp.weights) and not weight.any():
            finding = "all weights are 0: its units stay alike, and layers below learn nothing"
            return Verdict("no_gradient", number, finding, 0.0, 0.0, "choose another initializer")
    return None


def start(seen: Diagnostics) -> Verdict | None:
    """The first loss is far above that of a constant prediction."""
    first = seen.first_loss
    times = first / seen.baseline if seen.baseline > 0 else nan
    if not times > START:
        return None
    finding = (
        f"the first loss was {power(first)}, {power(times)} times that of a constant prediction "
        f"({power(seen.baseline)}; guide 1 to 3)"
    )
    return Verdict("start", None, finding, times, START, "make the initial weights smaller")


def nonfinite(seen: Diagnostics) -> Verdict | None:
    """The run ended at a number that is not finite, or left out the steps that had one."""
    skipped = seen.skipped
    finding = f"{plural(skipped, 'step')} had numbers that are not finite and had no update"
    if not (seen.failure or skipped):
        return None
    advice = "look at the rows it names, lower lr, or clip the gradients"
    return Verdict("nonfinite", None, seen.failure or finding, skipped, 0.0, advice)


def lr_high(seen: Diagnostics) -> Verdict | None:
    """Steps change the weights by much of their size, and it does not go well."""
    ratios = layer_ratios(seen)
    if not ratios.size:
        return None
    number, largest = worst(ratios.max(axis=0))
    lasting = median(ratios[:, number]) > FAST_RATIO / 3
    if not largest > FAST_RATIO or not (lasting or stuck(seen) or dead(seen)):
        return None
    finding = f"a step changed the weights by {power(largest)} of their norm (guide {GUIDE_RATIO})"
    advice = f"lower lr (by {power(largest / GUIDE_RATIO / 10)}, to begin with)"
    return Verdict("lr_high", number, finding, largest, FAST_RATIO, advice)


def clip_low(seen: Diagnostics) -> Verdict | None:
    """Nearly every step is clipped to a small part of the gradient."""
    share = median(seen.series.of("clipped_share"))
    norms = seen.series.of("gradient_norm")
    rest = median(seen.series.of("clipped_norm")[norms > 0] / norms[norms > 0])
    if not (share > CLIPPED and rest < COEFFICIENT):
        return None
    finding = f"{percent(share)} of the steps were clipped, to {power(rest)} of the gradient"
    advice = f"raise clip_norm (the norm is usually {power(median(norms))})"
    return Verdict("clip_low", None, finding, rest, COEFFICIENT, advice)


def lr_low(seen: Diagnostics) -> Verdict | None:
    """No step ever changes the weights much, and they have not learned yet."""
    ratios = layer_ratios(seen)
    largest = float(ratios.max()) if ratios.size else nan
    losses = [train for train, _ in seen.epochs]
    if not 0 < largest < SLOW_RATIO or not losses or losses[-1] < 0.7 * seen.baseline:
        return None
    finding = (
        f"no step changed the weights by more than {power(largest)} of their norm "
        f"(guide {GUIDE_RATIO})"
    )
    advice = f"raise lr (by {power(GUIDE_RATIO / largest)}, to begin with)"
    return Verdict("lr_low", None, finding, largest, SLOW_RATIO, advice)


def dead(seen: Diagnostics) -> Verdict | None:
    """Rectifier units that never fire."""
    number, share = worst(np.array([seen.dead_share(n) for n in range(seen.columns.layers)]))
    if not share > DEAD:
        return None
    ratios = seen.series.of("update_ratio", number)
    largest = float(np.nanmax(ratios)) if np.isfinite(ratios).any() else nan
    finding = f"{percent(share)} of the units fired on none of {ROWS} or more rows looked at"
    advice = f"lower lr (update ratio up to {power(largest)}, guide {GUIDE_RATIO})"
    if not largest > 10 * GUIDE_RATIO:
        advice = "look at the initial weights and biases"
    return Verdict("dead", number, finding, share, DEAD, f"{advice} or use leaky_relu")


def saturated(seen: Diagnostics) -> Verdict | None:
    """Activations at the ends of their range, where nothing changes."""
    layers = range(seen.columns.layers - 1)
    shares = np.array([median(seen.series.of("saturated_share", n)) for n in layers])
    number, share = worst(shares)
    if not share > SATURATED:
        return None
    finding = f"{percent(share)} of the activations are beyond 0.97 of their range"
    advice = "make the initial weights or the features smaller, or lower lr"
    return Verdict("saturated", number, finding, share, SATURATED, advice)


def depth(seen: Diagnostics) -> Verdict | None:
    """Gradients that shrink or grow from the last layer to the first."""
    slope = median(seen.series.of("depth_slope"))
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


def outlier(seen: Diagnostics) -> Verdict | None:
    """One row that outweighs its whole batch."""
    norms = seen.series.of("gradient_norm")
    least = OUTLIER_NORM * float(norms[0]) if norms.size else 0.0
    far = [
        s
        for s in seen.noted
        if s.times > OUTLIER_TIMES and s.share > OUTLIER_SHARE and s.norm > least
    ]
    if not far:
        return None
    most = max(far, key=lambda spike: spike.times)
    finding = (
        f"step {most.step} had {power(most.times)} times the usual gradient norm, "
        f"{percent(most.share)} of it from row {most.row} of the training rows"
    )
    advice = "look at that row for a wrong value, or clip the gradients"
    return Verdict("outlier", None, finding, most.times, OUTLIER_TIMES, advice)


def unsteady(seen: Diagnostics) -> Verdict | None:
    """Too many steps with an unusual norm."""
    share = seen.spikes.count / max(seen.spikes.steps, 1)
    if not share > SPIKES:
        return None
    finding = f"{percent(share)} of the steps had several times the usual gradient norm"
    return Verdict("spikes", None, finding, share, SPIKES, "lower lr or clip the gradients")


def labels(seen: Diagnostics) -> Verdict | None:
    """Training rows are learned, others not at all."""
    if len(seen.epochs) < LABELS_EPOCHS or not seen.validation_baseline > 0:
        return None
    train = seen.epochs[-1][0]
    best = min(validation for _, validation in seen.epochs)
    share, last = (v / seen.validation_baseline for v in (best, seen.epochs[-1][1]))
    learned = train / seen.baseline
    never = learned < LABELS_LEARNED and share > LEARNED
    by_chance = learned < BY_HEART and share > LABELS_LEARNED and last > WORSE
    if not (never or by_chance):
        return None
    finding = (
        f"the training loss fell to {power(train)}, but the validation loss at best to "
        f"{power(best)}, where a constant prediction has {power(seen.validation_baseline)}"
    )
    advice = "the rows are learned by heart: check that labels belong to their rows"
    return Verdict("labels", None, finding, share, LEARNED, advice)


def nothing_learned(seen: Diagnostics) -> Verdict | None:
    """The loss stays that of a constant prediction, for whatever reason."""
    if len(seen.epochs) < LABELS_EPOCHS or not stuck(seen):
        return None
    train = seen.epochs[-1][0]
    finding = (
        f"after {plural(len(seen.epochs), 'epoch')} the training loss is {power(train)}, "
        f"that of a constant prediction {power(seen.baseline)}"
    )
    advice = "check that the target depends on the features, and try other lr"
    share = train / seen.baseline
    return Verdict("nothing_learned", None, finding, share, LEARNED, advice)


def layer_ratios(seen: Diagnostics) -> Array:
    """Return the update ratios (samples, layers), 0 where unknown."""
    layers = [seen.series.of("update_ratio", n) for n in range(seen.columns.layers)]
    ratios: Array = np.nan_to_num(np.stack(layers, axis=1), nan=0.0)
    return ratios


def stuck(seen: Diagnostics) -> bool:
    """Return whether the run failed or ended no better than a constant prediction."""
    losses = [train for train, _ in seen.epochs]
    return bool(seen.failure) or (bool(losses) and not losses[-1] < LEARNED * seen.baseline)


def median(values: Array) -> float:
    """Return the median of the numbers among `values`; NaN if there is none."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else nan


def worst(values: Array) -> tuple[int, float]:
    """Return place and value of the largest number; NaN if there is none."""
    if not np.isfinite(values).any():
        return 0, nan
    place = int(np.nanargmax(values))
    return place, float(values[place])


RULES: tuple[tuple[Rule, frozenset[str]], ...] = (
    (input_scale, frozenset()),
    (target_scale, frozenset()),
    (no_gradient, frozenset()),
    (lr_high, frozenset()),
    (start, frozenset({"input_scale", "target_scale", "lr_high"})),
    (clip_low, frozenset()),
    (lr_low, frozenset({"clip_low", "no_gradient"})),
    (dead, frozenset({"no_gradient", "input_scale"})),
    (saturated, frozenset({"input_scale"})),
    (depth, frozenset({"no_gradient", "input_scale"})),
    (outlier, frozenset({"input_scale"})),
    (unsteady, frozenset({"outlier", "lr_high"})),
    (nonfinite, frozenset()),
    (labels, frozenset()),
)
"""The rules, and of each the verdicts that explain what it would say."""

LAST_RESORT: Rule = nothing_learned
"""Speaks only where no other rule does."""
