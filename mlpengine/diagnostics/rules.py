"""The rules behind verdicts.  Each rule checks one condition and reports it only when it is clear.

Their limits stand in `thresholds`.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from mlpengine.core.wording import plural
from mlpengine.diagnostics import data_rules as data
from mlpengine.diagnostics import run_rules as run
from mlpengine.diagnostics.derived import (
    dropout_gain,
    input_size,
    layer_ratios,
    lr_fix,
    reference_loss,
    rounded,
    start_ratio,
    stuck,
    suited_lr_fix,
    training_share,
    worst,
    zero_logits,
)
from mlpengine.diagnostics.monitor import Diagnostics
from mlpengine.diagnostics.samples import median
from mlpengine.diagnostics.thresholds import (
    AIM,
    CLIPPED,
    COEFFICIENT,
    DEAD,
    EXTREME_TIMES,
    FAST_RATIO,
    GUIDE_RATIO,
    HIGHEST_SCALE,
    LARGE_FEATURE,
    LARGE_INPUT,
    LARGE_TARGET,
    LOWEST_SCALE,
    MIN_WINDOW_ROWS,
    OUTLIER_NORM,
    OUTLIER_SHARE,
    OUTLIER_TIMES,
    SATURATED_SHARE,
    SLOW_RATIO,
    SMALL_INPUT,
    SMALL_SIGNAL,
    SPIKES,
    START_TIMES,
    STEEP,
    UNUSUAL_INPUT,
    VERY_FAST_RATIO,
    WELL_LEARNED,
)
from mlpengine.diagnostics.verdict import Verdict, Verdicts, brief, percent, two_digits
from mlpengine.nn import NETWORKS
from mlpengine.settings import FeatureSettings, Fix, NetworkSettings, TrainingSettings
from mlpengine.settings.network import OWN_OPTIONS
from mlpengine.settings.run import VERDICTS

STANDARDIZE = [Fix(FeatureSettings, "standardize", "standard")]
ANOTHER_INITIALIZER = Fix(NetworkSettings, "initializer", None)
UNSATURATED = [Fix(NetworkSettings, "activation", "relu"), ANOTHER_INITIALIZER]
NO_SCALE = "a config does not scale the initial weights"


class VerdictRule(NamedTuple):
    """A function that returns a verdict or None, and the names of verdicts that explain it."""

    check: Callable[[Diagnostics], Verdict | None]
    causes: frozenset[str]


RULES: list[VerdictRule] = []
"""The rules, causes first."""


def add_rule(
    check: Callable[[Diagnostics], Verdict | None],
    *names: str,
    causes: Collection[str] = (),
) -> None:
    """Add a rule after the known rules; a rule that is defined again replaces its old version.

    Args:
        check: returns a verdict, or None where its condition does not hold.
        names: names of the verdicts that it may return; by default the name of the function.
        causes: names of the verdicts that explain its own verdict.
    """
    place = check.__module__, check.__qualname__
    names = names or (check.__name__,)
    RULES[:] = [r for r in RULES if (r.check.__module__, r.check.__qualname__) != place]
    RULES.append(VerdictRule(check, frozenset(causes)))
    VERDICTS.update(dict.fromkeys(names))


def verdicts(diagnostics: Diagnostics) -> Verdicts:
    """Return the verdicts on a run, causes first, without those that another verdict explains."""
    reported: dict[str, Verdict] = {}
    for check, causes in RULES:
        if causes.isdisjoint(reported):
            verdict = check(diagnostics)
            if verdict is not None:
                reported[verdict.name] = verdict
    if not reported and (verdict := LAST_RESORT(diagnostics)) is not None:
        reported[verdict.name] = verdict
    return Verdicts(_suited(diagnostics, verdict) for verdict in reported.values())


def _suited(diagnostics: Diagnostics, verdict: Verdict) -> Verdict:
    """Return a verdict with the layer's name, unless the name is only a number in an `Mlp`.

    Settings that the network does not have are removed from the fix.
    """
    kind = next((n for n, one in NETWORKS.items() if isinstance(diagnostics.mlp, one)), "")
    if kind == "mlp":
        return verdict
    name = "" if verdict.layer is None else diagnostics.layers[verdict.layer].name
    others = {option for n, options in OWN_OPTIONS.items() if n != kind for option in options}
    fix = [
        one
        for one in verdict.fix
        if not issubclass(one.of, NetworkSettings) or (kind and one.name not in others)
    ]
    no_fix = "this network has no such setting" if verdict.fix and not fix else verdict.no_fix
    return replace(verdict, layer_name=name, fix=fix, no_fix=no_fix)


def input_scale(diagnostics: Diagnostics) -> Verdict | None:
    """The features are far from unit size, all together or one of them."""
    size = input_size(diagnostics)
    advice, fix = "standardize them (data.standardize: standard)", STANDARDIZE
    if not (SMALL_INPUT <= size <= LARGE_INPUT or isnan(size)):
        limit = LARGE_INPUT if size > LARGE_INPUT else SMALL_INPUT
        finding = f"the features have a root mean square of {two_digits(size)} (should be about 1)"
        return Verdict("input_scale", None, finding, size, limit, advice, fix)
    number, largest = worst(diagnostics.feature_sizes)
    if not largest > LARGE_FEATURE:
        return None
    large = int(np.count_nonzero(diagnostics.feature_sizes > LARGE_FEATURE))
    finding = (
        f"10 % of the values of {brief(diagnostics.feature_names[number], 24)!r} are beyond "
        f"{two_digits(largest)} (should be 1 to 3; {plural(large, 'feature')} above "
        f"{two_digits(LARGE_FEATURE)})"
    )
    return Verdict("input_scale", None, finding, largest, LARGE_FEATURE, advice, fix)


def target_scale(diagnostics: Diagnostics) -> Verdict | None:
    """The targets of a regression are far from unit size."""
    size = diagnostics.target_rms
    if not size > LARGE_TARGET:
        return None
    finding = f"the targets have a root mean square of {two_digits(size)} (should be about 1)"
    advice = "standardize them (data.standardize_target: true)"
    fix = [Fix(FeatureSettings, "standardize_target", True)]
    return Verdict("target_scale", None, finding, size, LARGE_TARGET, advice, fix)


def no_gradient(diagnostics: Diagnostics) -> Verdict | None:
    """A layer of zeros passes no gradient to the layers before it."""
    views = diagnostics.mlp.params.views
    for number, layer in enumerate(diagnostics.layers[:-1]):
        weights = [views[name] for name in layer.weights] if layer.weighs_all else []
        if weights and not any(weight.any() for weight in weights):
            finding = (
                "100 % of the weights are 0 (should be 0 %), so that earlier layers learn nothing"
            )
            advice, fix = "choose another initializer", [ANOTHER_INITIALIZER]
            return Verdict("no_gradient", number, finding, 0.0, 0.0, advice, fix)
    return None


def start(diagnostics: Diagnostics) -> Verdict | None:
    """The first loss is far above the loss of a constant prediction."""
    first = diagnostics.first_loss
    usual = max(diagnostics.baseline, zero_logits(diagnostics))  # the first is low for rare classes
    times = first / usual if usual > 0 else nan
    if not times > START_TIMES * dropout_gain(diagnostics):
        return None
    finding = (
        f"the first loss was {two_digits(first)}, {two_digits(times)} times that of a constant "
        f"prediction ({two_digits(usual)}; should be 1 to 3)"
    )
    size = input_size(diagnostics)
    fix = STANDARDIZE if size > UNUSUAL_INPUT else []
    no_fix = "" if fix else NO_SCALE
    return Verdict("start", None, finding, times, START_TIMES, start_advice(size), fix, no_fix)


def start_advice(size: float) -> str:
    """Return the way out of a large first loss for features with this root mean square."""
    if size > UNUSUAL_INPUT:
        return f"standardize the features (root mean square {two_digits(size)}, should be about 1)"
    return "make the initial weights smaller"


def nonfinite(diagnostics: Diagnostics) -> Verdict | None:
    """The run ended at a number that is not finite, or left out the steps that had one."""
    skipped = diagnostics.skipped
    finding = (
        f"{plural(skipped, 'step')} had numbers that are not finite (should be 0), and no update"
    )
    if diagnostics.failure:
        place = diagnostics.failure.replace("loss and gradients must be finite ", "")
        finding = f"{brief(place, 90)} (should be 0)"
    if not (diagnostics.failure or skipped):
        return None
    advice = "look at the rows named, lower lr, or clip gradients"
    fix = [
        Fix(TrainingSettings, "on_nonfinite", "skip"),
        Fix(TrainingSettings, "nonfinite_limit", 1000),  # a bad row comes again in every epoch
        Fix(TrainingSettings, "clip_norm", 1.0),
    ]
    return Verdict("nonfinite", None, finding, skipped, 0.0, advice, fix)


def lr_high(diagnostics: Diagnostics) -> Verdict | None:
    """Steps change the weights by a large share of their norm, and learning suffers."""
    ratios = layer_ratios(diagnostics)
    if not ratios.size or run.decay_dominates(diagnostics):
        return None
    number, largest = worst(ratios.max(axis=0))
    lasting = median(ratios[:, number]) > FAST_RATIO / 3
    harmed = stuck(diagnostics) or dead(diagnostics)
    high = largest > FAST_RATIO and (largest > VERY_FAST_RATIO or lasting or harmed)
    gain = 1.0 / (1.0 - getattr(diagnostics.optimizer, "momentum", 0.0))
    driven = not high and gain * start_ratio(diagnostics) > FAST_RATIO and harmed
    if not (high or driven):
        return None
    times = f", {two_digits(gain)} times over by momentum" if driven else ""
    finding = (
        f"a step changed the weights by {two_digits(largest)} times their norm{times} (should be "
        f"about {GUIDE_RATIO})"
    )
    advice = f"divide lr by {two_digits(start_ratio(diagnostics) / AIM)}, to begin with"
    fix = suited_lr_fix(diagnostics)
    return Verdict("lr_high", number, finding, largest, FAST_RATIO, advice, fix, unknown(fix))


def clip_low(diagnostics: Diagnostics) -> Verdict | None:
    """Nearly every step is clipped to a small part of the gradient."""
    share = median(diagnostics.series.of("clipped_share"))
    norms = diagnostics.series.of("gradient_norm")
    clipped = diagnostics.series.of("clipped_norm")
    coefficient = median(clipped[norms > 0] / norms[norms > 0])
    if not (share > CLIPPED and coefficient < COEFFICIENT):
        return None
    finding = (
        f"{percent(share)} of the steps were clipped, to {two_digits(coefficient)} times the "
        f"gradient (should be {COEFFICIENT:g} or more)"
    )
    advice = f"raise training.clip_norm (the norm is usually {two_digits(median(norms))})"
    fix = [Fix(TrainingSettings, "clip_norm", rounded(median(norms)))]
    return Verdict("clip_low", None, finding, coefficient, COEFFICIENT, advice, fix)


def lr_low(diagnostics: Diagnostics) -> Verdict | None:
    """No step ever changes the weights much, and the loss has not fallen."""
    ratios = layer_ratios(diagnostics)
    largest = float(ratios.max()) if ratios.size else nan
    if not 0 < largest < SLOW_RATIO or training_share(diagnostics) < 0.7:
        return None
    finding = (
        f"no step changed the weights by more than {two_digits(largest)} times their norm "
        f"(should be about {GUIDE_RATIO})"
    )
    advice = f"multiply lr by {two_digits(AIM / start_ratio(diagnostics))}, to begin with"
    fix = suited_lr_fix(diagnostics)
    return Verdict("lr_low", None, finding, largest, SLOW_RATIO, advice, fix, unknown(fix))


def dead(diagnostics: Diagnostics) -> Verdict | None:
    """Dead (dying) units: rectifiers that never fire, while there is something left to learn."""
    shares = np.array([dead_share(diagnostics, n) for n in range(diagnostics.columns.layers)])
    number, share = worst(shares)
    if not share > DEAD:
        return None
    ratios = diagnostics.series.of("update_ratio", number)
    largest = float(np.nanmax(ratios)) if np.isfinite(ratios).any() else nan
    finding = (
        f"{percent(share)} of the units fired on none of {MIN_WINDOW_ROWS} or more rows "
        f"(should be below {percent(DEAD)})"
    )
    if not largest > 10 * GUIDE_RATIO:
        advice, no_fix = "look at the initial weights and biases", "a config does not set biases"
        return Verdict("dead", number, finding, share, DEAD, advice, no_fix=no_fix)
    advice = f"lower lr (update ratio up to {two_digits(largest)}) or use leaky_relu"
    fix = [Fix(NetworkSettings, "activation", "leaky_relu"), *lr_fix(diagnostics, 0.3)]
    return Verdict("dead", number, finding, share, DEAD, advice, fix)


def dead_share(diagnostics: Diagnostics, layer: int) -> float:
    """Return the share of a layer's dead units while the loss was above `WELL_LEARNED`.

    Units that die after the loss has become small do no harm: a network that memorizes its rows
    needs fewer and fewer units.
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
    if not share > SATURATED_SHARE:
        return None
    finding = (
        f"{percent(share)} of the activations are beyond 0.97 of their range (should be below "
        f"{percent(SATURATED_SHARE)})"
    )
    advice = "make the initial weights or the features smaller, or lower lr"
    fix, no_fix = unsaturated(diagnostics)
    return Verdict("saturated", number, finding, share, SATURATED_SHARE, advice, fix, no_fix)


def depth(diagnostics: Diagnostics) -> Verdict | None:
    """Gradients that shrink or grow from the last layer to the first."""
    slopes = diagnostics.series.of("depth_slope")
    middles = median(slopes), median(slopes[:3])
    slope = max(middles, key=lambda middle: abs(np.nan_to_num(middle)))
    if not abs(slope) > STEEP:
        return None
    first = next((n for n, layer in enumerate(diagnostics.layers) if layer.weights), 0)
    times = two_digits(10.0 ** abs(slope))
    if slope < 0:
        finding = (
            f"its gradient is {times} times smaller than the last layer's (should be at most 100)"
        )
        advice = "use relu, fewer layers, or another initializer"
        return Verdict(
            "vanishing", first, finding, slope, -STEEP, advice, *unsaturated(diagnostics)
        )
    finding = f"its gradient is {times} times larger than the last layer's (should be at most 100)"
    advice = "make the initial weights smaller, or clip the gradients"
    fix = [Fix(TrainingSettings, "clip_norm", 1.0)]
    return Verdict("exploding", first, finding, slope, STEEP, advice, fix)


def signal(diagnostics: Diagnostics) -> Verdict | None:
    """Activations that shrink from layer to layer at the start, so that outputs are constant."""
    last = diagnostics.columns.layers - 2
    if last < 1 or not all(diagnostics.layers[n].is_passage for n in (0, last)):
        return None
    spreads = [diagnostics.series.of("activation_std", layer)[:1] for layer in (0, last)]
    share = median(spreads[1]) / median(spreads[0]) if median(spreads[0]) > 0 else nan
    if not share < SMALL_SIGNAL:
        return None
    finding = (
        f"its activations began at {two_digits(share)} times those of {diagnostics.layers[0].name} "
        "(should be 0.1 to 1)"
    )
    advice, (fix, no_fix) = "use another initializer, or fewer layers", unsaturated(diagnostics)
    return Verdict("vanishing", last, finding, share, SMALL_SIGNAL, advice, fix, no_fix)


def unsaturated(diagnostics: Diagnostics) -> tuple[list[Fix], str]:
    """Return the settings for units that saturate or vanish, or none with the reason."""
    scale = diagnostics.weight_scale
    by_hand = not (isnan(scale) or LOWEST_SCALE <= scale <= HIGHEST_SCALE)
    return ([], NO_SCALE) if by_hand else (UNSATURATED, "")


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
        return extreme(diagnostics)
    largest = max(spikes, key=lambda spike: spike.times)
    finding = (
        f"step {largest.step} had {two_digits(largest.times)} times the usual gradient norm "
        f"(should be at most {OUTLIER_TIMES:g}), {percent(largest.share)} from "
        f"{diagnostics.name_row(largest.row)}"
    )
    advice = "look at that row for a wrong value, or clip the gradients"
    fix = [Fix(TrainingSettings, "clip_norm", rounded(largest.norm / largest.times))]
    return Verdict("outlier", None, finding, largest.times, OUTLIER_TIMES, advice, fix)


def extreme(diagnostics: Diagnostics) -> Verdict | None:
    """One value of a feature or target that is far from all others of its column."""
    row, column, times = diagnostics.extreme
    if not times > EXTREME_TIMES:
        return None
    name = "target" if column < 0 else f"feature {brief(diagnostics.feature_names[column], 20)!r}"
    finding = (
        f"{brief(diagnostics.name_row(row), 40)}: its {name} is {two_digits(times)} times the "
        f"fifth largest (should be at most {EXTREME_TIMES:g})"
    )
    advice = "look for a wrong value, or clip the gradients"
    norm = median(diagnostics.series.of("gradient_norm"))
    fix = [Fix(TrainingSettings, "clip_norm", rounded(norm) if norm > 0 else 1.0)]
    return Verdict("outlier", None, finding, times, EXTREME_TIMES, advice, fix)


def unsteady(diagnostics: Diagnostics) -> Verdict | None:
    """Too many steps with an unusual norm."""
    share = diagnostics.spikes.count / max(diagnostics.spikes.steps, 1)
    if not share > SPIKES:
        return None
    finding = (
        f"{percent(share)} of the steps had several times the usual gradient norm (should be at "
        f"most {percent(SPIKES)})"
    )
    advice, fix = "lower lr or clip the gradients", lr_fix(diagnostics, 0.3)
    return Verdict("spikes", None, finding, share, SPIKES, advice, fix, unknown(fix))


def unknown(fix: object) -> str:
    """Return the reason why there is no `fix` of the learning rate, if there is none."""
    return "" if fix else "the learning rate is unknown"


SCALES = frozenset({"input_scale", "target_scale"})
WRONG_STEPS = frozenset(
    {"lr_high", "lr_low", "momentum_high", "eps_large", "clip_low", "decay_high"}
)
BROKEN = frozenset(
    {"start", "no_gradient", "dropout_high", "output_clamped", "nonfinite", "labels"}
)
STOPPED = frozenset({"vanishing", "saturated", "dead"})
SHORT_RUNS = frozenset({"few_steps", "unfinished"})

add_rule(run.output_clamped)
add_rule(input_scale)
add_rule(target_scale, causes={"output_clamped"})
add_rule(no_gradient)
add_rule(run.momentum_high, causes=SCALES | {"output_clamped"})
add_rule(lr_high, causes={"momentum_high"})
add_rule(run.dropout_high, causes=SCALES | WRONG_STEPS)
add_rule(run.decay_high, causes=SCALES | WRONG_STEPS)
add_rule(start, causes=SCALES | {"lr_high", "dropout_high"})
add_rule(clip_low)
add_rule(run.eps_large, causes={"clip_low", "no_gradient", "vanishing"})
add_rule(lr_low, causes={"clip_low", "no_gradient", "eps_large"})
add_rule(dead, causes={"no_gradient", "input_scale", "lr_high", "momentum_high", "decay_high"})
add_rule(saturated, causes={"input_scale"})
add_rule(
    depth,
    *("vanishing", "exploding"),
    causes={"no_gradient", "input_scale", "lr_high", "decay_high"},
)
add_rule(signal, "vanishing", causes={"no_gradient", "vanishing"})
add_rule(outlier, causes={"input_scale"})
add_rule(unsteady, "spikes", causes={"outlier", "lr_high", "vanishing", "momentum_high"})
add_rule(nonfinite)
add_rule(data.shifted)
add_rule(run.labels, causes=SCALES | {"lr_high", "nonfinite", "shifted"})
add_rule(data.unrelated, "labels", causes=SCALES | {"labels", "nonfinite", "shifted"})
add_rule(data.noisy_labels, causes={"labels"})
add_rule(
    run.overfitting,
    causes=SCALES | WRONG_STEPS | {"labels", "nonfinite", "shifted", "noisy_labels"},
)
add_rule(run.imbalance, causes=SCALES | WRONG_STEPS | BROKEN)
add_rule(run.few_steps, causes=SCALES | WRONG_STEPS | BROKEN)
add_rule(run.unfinished, causes=SCALES | WRONG_STEPS | BROKEN | STOPPED | {"few_steps"})
add_rule(
    data.underfitting,
    causes=SCALES | WRONG_STEPS | BROKEN | SHORT_RUNS | STOPPED | {"shifted", "noisy_labels"},
)
add_rule(
    data.behind_linear,
    causes=SCALES
    | WRONG_STEPS
    | BROKEN
    | SHORT_RUNS
    | STOPPED
    | {"shifted", "underfitting", "outlier"},
)
add_rule(run.noise_scale, causes=SCALES | WRONG_STEPS | BROKEN)

LAST_RESORT = run.nothing_learned
"""Applies only where no other rule does."""

VERDICTS.update(dict.fromkeys(("leak", LAST_RESORT.__name__)))  # `leak` compares columns
