"""The rules behind verdicts.  A rule checks one condition; `thresholds` has the limits."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import isfinite, isnan, nan, sqrt
from typing import NamedTuple

import numpy as np

from mlpengine.core.wording import plural
from mlpengine.diagnostics import data_rules as data
from mlpengine.diagnostics import run_rules as run
from mlpengine.diagnostics import thresholds as limits
from mlpengine.diagnostics.derived import (
    dropout_gain,
    input_size,
    layer_ratios,
    lr_fix,
    rates,
    reference_loss,
    rounded,
    start_ratio,
    stuck,
    suited_lr_fix,
    total_steps,
    training_share,
    usual_lr,
    worst,
    zero_logits,
)
from mlpengine.diagnostics.monitor import Diagnostics
from mlpengine.diagnostics.samples import median
from mlpengine.diagnostics.units import range_of
from mlpengine.diagnostics.verdict import NOTE, Verdict, Verdicts, brief, percent, two_digits
from mlpengine.ops import MeanSquaredError
from mlpengine.optim import FullBatch, Optimizer
from mlpengine.settings import (
    EarlyStopping,
    FeatureSettings,
    Fix,
    NetworkSettings,
    TrainingSettings,
)
from mlpengine.settings.network import OWN_OPTIONS
from mlpengine.settings.run import VERDICTS

STANDARDIZE = [Fix(FeatureSettings, "standardize", "standard")]
ANOTHER_INITIALIZER = Fix(NetworkSettings, "initializer", None)
UNSATURATED = [Fix(NetworkSettings, "activation", "relu"), ANOTHER_INITIALIZER]
NO_SCALE = "the initial weights have a usual size"


class VerdictRule(NamedTuple):
    """A function that returns a verdict or None, and the names of the verdicts that it may return.

    `causes` are names of other verdicts; if one of these is reported, the rule is skipped.
    """

    check: Callable[[Diagnostics], Verdict | None]
    names: tuple[str, ...]
    causes: frozenset[str]


RULES: list[VerdictRule] = []
"""The rules, causes first."""

LR_RULES = {"clip_low", "few_steps", "lr_high", "lr_low", "noise_scale", "unfinished", "unsteady"}
"""Verdicts that do not apply to full-batch optimizers, because these search their step length."""


def add_rule(
    check: Callable[[Diagnostics], Verdict | None],
    *names: str,
    causes: Collection[str] = (),
) -> None:
    """Add a rule after the known rules; a rule that is defined again replaces its old version.

    Args:
        check: returns a verdict, or None if its condition does not hold.
        names: names of the verdicts that `check` may return; by default the name of the function.
        causes: names of verdicts; if one of these is reported, the rule is skipped.
    """
    place = check.__module__, check.__qualname__
    names = names or (check.__name__,)
    RULES[:] = [r for r in RULES if (r.check.__module__, r.check.__qualname__) != place]
    RULES.append(VerdictRule(check, names, frozenset(causes)))
    VERDICTS.update(dict.fromkeys(names))


@np.errstate(all="ignore")  # a diverged run may overflow
def verdicts(diagnostics: Diagnostics) -> Verdicts:
    """Return the verdicts on a run: causes first, notes last, and none with a reported cause."""
    reported: dict[str, Verdict] = {}
    ignored = LR_RULES if isinstance(diagnostics.optimizer, FullBatch) else ()
    for check, _, causes in RULES:
        if causes.isdisjoint(reported):
            verdict = check(diagnostics)
            if verdict is not None and verdict.name not in ignored:
                reported[verdict.name] = verdict
    if not reported and (verdict := LAST_RESORT(diagnostics)) is not None:
        reported[verdict.name] = verdict
    ordered = sorted(reported.values(), key=lambda verdict: verdict.severity == NOTE)
    return Verdicts(_for_network(diagnostics, verdict) for verdict in ordered)


def _for_network(diagnostics: Diagnostics, verdict: Verdict) -> Verdict:
    """Return a verdict that suits the network; an `Mlp` needs no change of the verdict.

    For other networks, add the name of the layer, and remove settings that the network lacks.
    """
    kind = diagnostics.facts.kind
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
    return replace(verdict, layer_name=name, fix=fix, no_fix=no_fix, others=())


def input_scale(diagnostics: Diagnostics) -> Verdict | None:
    """The features, or a single feature, are far from unit size."""
    size, headline = input_size(diagnostics), "Features are not standardized"
    advice, fix = "Standardize them: set data.standardize to standard.", STANDARDIZE
    if not (limits.SMALL_INPUT <= size <= limits.LARGE_INPUT or isnan(size)):
        limit = limits.LARGE_INPUT if size > limits.LARGE_INPUT else limits.SMALL_INPUT
        evidence = f"Their root mean square is {two_digits(size)}; about 1 is usual."
        return Verdict("input_scale", None, headline, evidence, size, limit, advice, fix)
    number, largest = worst(diagnostics.feature_sizes)
    if not largest > limits.LARGE_FEATURE:
        return None
    large = int(np.count_nonzero(diagnostics.feature_sizes > limits.LARGE_FEATURE))
    evidence = (
        f"A tenth of the values of feature {brief(diagnostics.feature_names[number])!r} exceed "
        f"{two_digits(largest)} in size; 1 to 3 is usual. {large:,} of "
        f"{plural(len(diagnostics.feature_sizes), 'feature')} are too large."
    )
    limit = limits.LARGE_FEATURE
    return Verdict("input_scale", None, headline, evidence, largest, limit, advice, fix)


def target_scale(diagnostics: Diagnostics) -> Verdict | None:
    """The targets of a regression, or the loss, are far from unit size."""
    size, limit = diagnostics.target_rms, limits.LARGE_TARGET
    usual = isinstance(diagnostics.loss, MeanSquaredError) and diagnostics.baseline > 0
    times = size / sqrt(diagnostics.baseline) if usual else nan
    small = 0 < diagnostics.baseline < limits.SMALL_LOSS
    if not (size > limit or times > limits.OFF_CENTER or small):
        return None
    headline = "Target is not standardized"
    evidence = f"Its root mean square is {two_digits(size)}; about 1 is usual."
    advice, no_fix = "Standardize it: set data.standardize_target to true.", ""
    fix = [Fix(FeatureSettings, "standardize_target", True)]
    if small and not size < limits.SMALL_TARGET:  # also if the size is unknown
        headline = "Values of the loss are too small"
        size, limit = diagnostics.baseline, limits.SMALL_LOSS
        evidence = f"Predicting a constant has a loss of {size:.1e}, so the gradients are nearly 0."
        advice = "Multiply the formula of the loss so that this value becomes about 1."
        fix, no_fix = [], "a factor of the loss is not a setting"
    elif times > limits.OFF_CENTER and not size > limit:
        headline, mean = "Target is not centered", sqrt(max(times**2 - 1, 0.0))
        evidence = f"Its mean is {two_digits(mean)} times its standard deviation; 0 is usual."
    return Verdict("target_scale", None, headline, evidence, size, limit, advice, fix, no_fix)


def no_gradient(diagnostics: Diagnostics) -> Verdict | None:
    """A layer of zeros passes no gradient to the layers before it."""
    views = diagnostics.facts.params
    for number, layer in enumerate(diagnostics.layers[:-1]):
        weights = [views[name] for name in layer.weights] if layer.weighs_all else []
        if weights and not any(weight.any() for weight in weights):
            headline = "All weights of a layer are zero"
            evidence = "Weights of 0 pass neither a signal nor a gradient to other layers."
            advice, fix = "Set model.initializer to null, the default.", [ANOTHER_INITIALIZER]
            return Verdict("no_gradient", number, headline, evidence, 0.0, 0.0, advice, fix)
    return None


def frozen(diagnostics: Diagnostics) -> Verdict | None:
    """Layers that are not trained."""
    fixed = diagnostics.facts.frozen
    layers = [
        layer for layer in diagnostics.layers if layer.weights and {*layer.weights} <= {*fixed}
    ]
    if not layers:
        return None
    suffers = run.lags(diagnostics) or training_share(diagnostics) > limits.WELL_LEARNED
    headline, count = "Layers are frozen", len(layers)
    evidence = f"{plural(count, 'layer')} of {len(diagnostics.layers)} kept the initial weights."
    advice = "Unless these weights are pretrained, set training.freeze to []."
    fix = [Fix(TrainingSettings, "freeze", ())]
    return Verdict("frozen", None, headline, evidence, count, 0.0, advice, fix,
                   severity="warning" if suffers else NOTE)  # fmt: skip


def start(diagnostics: Diagnostics) -> Verdict | None:
    """The first loss is far above the loss of a constant prediction."""
    first = diagnostics.first_loss
    usual = max(diagnostics.baseline, zero_logits(diagnostics))  # rare classes lower the baseline
    times = first / usual if usual > 0 else nan
    if not times > limits.START_TIMES * dropout_gain(diagnostics):
        return None
    headline = "First loss is too large"
    evidence = (
        f"The first loss was {two_digits(first)}; 1 to 3 times the loss of a constant prediction "
        f"({two_digits(usual)}) is usual."
    )
    size = input_size(diagnostics)
    advice = "Make the initial weights of the last layer smaller, or use another model.initializer."
    fix, no_fix = [ANOTHER_INITIALIZER], ""
    if not odd_weights(diagnostics):
        fix, no_fix = [], NO_SCALE
    if size > limits.UNUSUAL_INPUT:
        advice = f"Standardize the features: their root mean square is {two_digits(size)}."
        fix, no_fix = STANDARDIZE, ""
    limit = limits.START_TIMES
    return Verdict("start", None, headline, evidence, times, limit, advice, fix, no_fix)


def nonfinite(diagnostics: Diagnostics) -> Verdict | None:
    """A number was not finite, so the run ended or skipped steps."""
    skipped = diagnostics.skipped
    if not (diagnostics.failure or skipped):
        return None
    headline = "Numbers are not finite"
    evidence = f"{plural(skipped, 'step')} with infinite or NaN gradients changed no weight."
    if diagnostics.failure:
        found = diagnostics.failure.replace("loss and gradients must be", "a number was not")
        evidence = f"The run stopped in {found}."
    lr = usual_lr(diagnostics)
    rate = "" if isnan(lr) else f" (now {two_digits(lr)})"
    advice = (
        "Look for infinite or wrong values in the data; if there are none, lower "
        f"optimizer.lr{rate} or set training.clip_norm."
    )
    fix = [
        Fix(TrainingSettings, "on_nonfinite", "skip"),
        Fix(TrainingSettings, "nonfinite_limit", 1000),  # a bad row comes up in every epoch
        Fix(TrainingSettings, "clip_norm", 1.0),
    ]
    others = rates(diagnostics, 0.1, 0.01)
    if "monitor" in diagnostics.failed_setting:  # the loss is finite, a metric is not
        advice, others = "Let the loss choose the best epoch.", []
        fix = [Fix(TrainingSettings, "early_stopping", EarlyStopping())]
    return Verdict("nonfinite", None, headline, evidence, skipped, 0.0, advice, fix, others=others)


def lr_high(diagnostics: Diagnostics) -> Verdict | None:
    """Steps change the weights by a large share of their norm, and learning suffers."""
    ratios = layer_ratios(diagnostics)
    if not ratios.size or run.decay_dominates(diagnostics):
        return None
    number, largest = worst(ratios.max(axis=0))
    lasting = median(ratios[:, number]) > limits.FAST_RATIO / 3
    harmed = stuck(diagnostics) or dead(diagnostics)
    high = largest > limits.FAST_RATIO and (largest > limits.VERY_FAST_RATIO or lasting or harmed)
    gain = 1.0 / (1.0 - getattr(diagnostics.optimizer, "momentum", 0.0))
    driven = not high and gain * start_ratio(diagnostics) > limits.FAST_RATIO and harmed
    if not (high or driven):
        return None
    headline = "Learning rate is too high"
    ratio, more = largest, ""
    if driven:
        ratio = start_ratio(diagnostics)
        more = f", and momentum makes later steps up to {two_digits(gain)} times as large"
    evidence = (
        f"A step changed the weights by {two_digits(ratio)} times their norm{more}; about "
        f"{limits.GUIDE_RATIO} is usual (up to {limits.AIM} in the first step)."
    )
    times = max(2.0, start_ratio(diagnostics) / limits.AIM)
    fix = lr_fix(diagnostics, 1 / times)
    advice = lr_advice(fix, f"Divide optimizer.lr by {two_digits(times)}.")
    limit, no_fix, others = limits.FAST_RATIO, unknown(fix), rates(diagnostics, 0.1, 0.01)
    return Verdict("lr_high", number, headline, evidence, largest, limit, advice, fix, no_fix,
                   others=others)  # fmt: skip


def clip_low(diagnostics: Diagnostics) -> Verdict | None:
    """Clipping reduces nearly every gradient to a small share of its norm."""
    share = median(diagnostics.series.of("clipped_share"))
    norms = diagnostics.series.of("gradient_norm")
    clipped = diagnostics.series.of("clipped_norm")
    usual, limit = median(norms[norms > 0]), limits.COEFFICIENT
    coefficient = median(clipped[norms > 0]) / usual
    scaled = hasattr(diagnostics.optimizer, "betas") or hasattr(diagnostics.optimizer, "alpha")
    if scaled or not (share > limits.CLIPPED and coefficient < limit):
        return None  # steps of Adam and RMSprop do not depend on the scale of the gradient
    headline, norm = "Gradients are clipped too much", rounded(usual)
    evidence = (
        f"The gradient was clipped in {percent(share)} of the steps, usually to "
        f"{two_digits(coefficient)} times its norm."
    )
    advice = f"Set training.clip_norm to {norm:g}, the usual norm."
    fix = [Fix(TrainingSettings, "clip_norm", norm)]
    return Verdict("clip_low", None, headline, evidence, coefficient, limit, advice, fix)


def lr_low(diagnostics: Diagnostics) -> Verdict | None:
    """No step changed the weights much, and the loss has hardly fallen."""
    ratios, limit = layer_ratios(diagnostics), limits.SLOW_RATIO
    largest = float(ratios.max()) if ratios.size else nan
    last = diagnostics.series.of("update_ratio", diagnostics.columns.layers - 1)
    still = largest == 0 and (last == 0).any() and usual_lr(diagnostics) < limits.GUIDE_RATIO
    if not still and (not 0 < largest < limit or training_share(diagnostics) < 0.7):
        return None
    headline = "Learning rate is too low"
    evidence = (
        f"No step changed the weights by more than {two_digits(largest)} times their norm; about "
        f"{limits.GUIDE_RATIO} is usual (up to {limits.AIM} in the first step)."
    )
    fix = suited_lr_fix(diagnostics)
    if still:
        evidence, fix = "No step changed any weight.", [Fix(Optimizer, "lr", limits.GUIDE_RATIO)]
    advice = lr_advice(fix, f"Multiply it by {two_digits(limits.AIM / start_ratio(diagnostics))}.")
    no_fix, others = unknown(fix), rates(diagnostics, 100.0, 1000.0)
    return Verdict("lr_low", None, headline, evidence, largest, limit, advice, fix, no_fix,
                   others=others)  # fmt: skip


def dead(diagnostics: Diagnostics) -> Verdict | None:
    """Many rectifier units never fire, and the network has not learned well."""
    shares = np.array([dead_share(diagnostics, n) for n in range(diagnostics.columns.layers)])
    for layer, at_end in diagnostics.dead_at_end.items():
        if at_end == 1 or not training_share(diagnostics) < limits.WELL_LEARNED:
            shares[layer] = np.fmax(shares[layer], at_end)
    several = [layer.units > 1 for layer in diagnostics.layers]
    shares = np.where(several, shares, nan)  # one unit is too few for a share
    (number, share), limit = worst(shares), limits.DEAD
    few = total_steps(diagnostics) < limits.FAR_TOO_FEW_STEPS
    short = few and 0 < len(diagnostics.epochs) < limits.MIN_EPOCHS
    if not share > limit or (short and share < 1):
        return None
    ratios = diagnostics.series.of("update_ratio", number)
    largest = float(np.nanmax(ratios)) if np.isfinite(ratios).any() else nan
    headline = "Many units are dead"
    evidence = (
        f"{percent(share)} of the units gave 0 for each of hundreds of rows; up to "
        f"{percent(limit)} is usual"
    )
    leaky = [Fix(NetworkSettings, "activation", "leaky_relu")]
    if not largest > 10 * limits.GUIDE_RATIO:
        advice = "Use leaky_relu (model.activation), or check the initial weights and biases."
        return Verdict("dead", number, headline, f"{evidence}.", share, limit, advice, leaky)
    evidence += (
        f". A step changed the weights by {two_digits(largest)} times their norm; about "
        f"{limits.GUIDE_RATIO} is usual."
    )
    advice = "Lower optimizer.lr, or use leaky_relu (model.activation)."
    fix = [*leaky, *lr_fix(diagnostics, 0.3)]
    others = [leaky, fix[1:], *rates(diagnostics, 0.03)]
    return Verdict("dead", number, headline, evidence, share, limit, advice, fix, others=others)


def dead_share(diagnostics: Diagnostics, layer: int) -> float:
    """Return the layer's share of dead units in the last sample with a loss above `WELL_LEARNED`.

    Units that die later do no harm, because a network that memorizes its rows needs fewer units.
    """
    if not training_share(diagnostics) < limits.WELL_LEARNED:
        return diagnostics.dead_share(layer)
    unlearned = diagnostics.series.of("loss") > limits.WELL_LEARNED * reference_loss(diagnostics)
    shares = diagnostics.series.of("dead_share", layer)[unlearned]
    known = shares[~np.isnan(shares)]
    return float(known[-1]) if known.size else nan


def saturated(diagnostics: Diagnostics) -> Verdict | None:
    """Many activations are at the ends of their range, where gradients are nearly 0."""
    layers = range(diagnostics.columns.layers - 1)
    shares = np.array([median(diagnostics.series.of("saturated_share", n)) for n in layers])
    (number, share), limit = worst(shares), limits.SATURATED_SHARE
    if not share > limit:
        return None
    headline = "Activations are saturated"
    evidence = (
        f"{percent(share)} of the activations are at the ends of their range, where gradients "
        f"vanish; up to {percent(limit)} is usual."
    )
    advice = "Make initial weights or features smaller, lower the learning rate, or use relu."
    fix = unsaturated(diagnostics)
    others = [UNSATURATED, *rates(diagnostics, 0.1)]
    severity = NOTE if training_share(diagnostics) < limits.WELL_LEARNED else "warning"
    return Verdict("saturated", number, headline, evidence, share, limit, advice, fix,
                   others=others, severity=severity)  # fmt: skip


def depth(diagnostics: Diagnostics) -> Verdict | None:
    """Gradients shrink or grow from the last layer to the first."""
    slopes, limit = diagnostics.series.of("depth_slope"), limits.STEEP
    middles = median(slopes), median(slopes[:3])
    slope = max(middles, key=lambda middle: abs(np.nan_to_num(middle)))
    if slope < 0 and is_slowed(diagnostics):
        limit = limits.STEEP_IF_BEHIND
    if not abs(slope) > limit:
        return None
    first = next((n for n, layer in enumerate(diagnostics.layers) if layer.weights), 0)
    times = two_digits(10.0 ** abs(slope))
    if slope < 0:
        headline = "Gradients vanish"
        evidence = f"The last layer's gradient is {times} times the first layer's gradient."
        advice, fix = "Use relu, fewer layers or another initializer.", unsaturated(diagnostics)
        return Verdict("vanishing", first, headline, evidence, slope, -limit, advice, fix,
                       others=[UNSATURATED])  # fmt: skip
    headline = "Gradients explode"
    evidence = f"The first layer's gradient is {times} times the last layer's gradient."
    advice = "Make the initial weights smaller, or set training.clip_norm to 1."
    fix = [Fix(TrainingSettings, "clip_norm", 1.0)]
    return Verdict("exploding", first, headline, evidence, slope, limit, advice, fix)


def is_slowed(diagnostics: Diagnostics) -> bool:
    """Return whether a network with bounded activations ends worse than a simple model."""
    ranges = [range_of(layer.activation) for layer in diagnostics.layers[:-1]]
    bounded = any(isfinite(high - low) for low, high in ranges)
    behind = run.lags(diagnostics) or data.behind_linear(diagnostics)
    if not (bounded and behind and len(diagnostics.epochs) >= limits.MIN_EPOCHS):
        return False
    return not (run.few_steps(diagnostics) or run.unfinished(diagnostics))


def signal(diagnostics: Diagnostics) -> Verdict | None:
    """In the first step, activations shrink from layer to layer, so outputs are constant."""
    last, limit = diagnostics.columns.layers - 2, limits.SMALL_SIGNAL
    if last < 1 or not all(diagnostics.layers[n].is_passage for n in (0, last)):
        return None
    spreads = [diagnostics.series.of("activation_std", layer)[:1] for layer in (0, last)]
    share = median(spreads[1]) / median(spreads[0]) if median(spreads[0]) > 0 else nan
    if not share < limit:
        return None
    headline = "Activations vanish"
    evidence = (
        "In the first step, the standard deviation of this layer's outputs, over rows and units, "
        f"is {two_digits(share)} times as large as in {brief(diagnostics.layers[0].name)}; 0.1 to "
        "1 is usual."
    )
    advice, fix = "Use another initializer or fewer layers.", unsaturated(diagnostics)
    return Verdict("vanishing", last, headline, evidence, share, limit, advice, fix,
                   others=[UNSATURATED])  # fmt: skip


def unsaturated(diagnostics: Diagnostics) -> list[Fix]:
    """Return the fix for saturated or vanishing activations and for vanishing gradients."""
    return [ANOTHER_INITIALIZER] if odd_weights(diagnostics) else UNSATURATED


def odd_weights(diagnostics: Diagnostics) -> bool:
    """Return whether initial weights are smaller or larger than usual initializers make them."""
    scale = diagnostics.weight_scale
    return not (isnan(scale) or limits.LOWEST_SCALE <= scale <= limits.HIGHEST_SCALE)


def outlier(diagnostics: Diagnostics) -> Verdict | None:
    """The gradient of one row outweighs all other rows of its batch."""
    norms = diagnostics.series.of("gradient_norm")
    lowest = limits.OUTLIER_NORM * float(norms[0]) if norms.size else 0.0
    spikes = [
        spike
        for spike in diagnostics.noted
        if spike.times > limits.OUTLIER_TIMES
        and spike.share > limits.OUTLIER_SHARE
        and spike.norm > lowest
    ]
    if not spikes:
        return extreme(diagnostics)
    largest = max(spikes, key=lambda spike: spike.times)
    headline = "One row outweighs its batch"
    evidence = (
        f"In step {largest.step}, the gradient norm was {two_digits(largest.times)} times as large "
        f"as usual; {percent(largest.share)} came from {diagnostics.name_row(largest.row)}."
    )
    advice = "Correct that row if a value is wrong"
    advice, fix, no_fix = or_clip(diagnostics, advice, rounded(largest.norm / largest.times))
    limit = limits.OUTLIER_TIMES
    return Verdict("outlier", None, headline, evidence, largest.times, limit, advice, fix, no_fix)


def extreme(diagnostics: Diagnostics) -> Verdict | None:
    """One value of a feature or target is far from all others of its column."""
    (row, column, times), limit = diagnostics.extreme, limits.EXTREME_TIMES
    if not times > limit:
        return None
    headline = "One value is far off"
    name = "target" if column < 0 else f"feature {brief(diagnostics.feature_names[column])!r}"
    evidence = (
        f"In {diagnostics.name_row(row)} the {name} is {two_digits(times)} times the fifth largest "
        "value of its column."
    )
    usual = median(diagnostics.series.of("gradient_norm"))
    advice = "Correct the value if it is wrong"
    advice, fix, no_fix = or_clip(diagnostics, advice, rounded(usual) if usual > 0 else 1.0)
    return Verdict("outlier", None, headline, evidence, times, limit, advice, fix, no_fix)


def or_clip(diagnostics: Diagnostics, advice: str, norm: float) -> tuple[str, list[Fix], str]:
    """Return `advice`, or else to clip at `norm`, the fix, and why there is no fix.

    Gradients that are already clipped at about the usual norm need no lower limit.
    """
    norms, clipped = map(diagnostics.series.of, ("gradient_norm", "clipped_norm"))
    if 0 < clipped[clipped < norms].max(initial=0.0) <= 10 * norm:
        return f"{advice}; its gradient is clipped.", [], "gradients are clipped already"
    fix = [Fix(TrainingSettings, "clip_norm", norm)]
    return f"{advice}, or set training.clip_norm to {norm:g}.", fix, ""


def unsteady(diagnostics: Diagnostics) -> Verdict | None:
    """The gradient norm was unusually large in many steps."""
    share, limit = diagnostics.spikes.count / max(diagnostics.spikes.steps, 1), limits.SPIKES
    if not share > limit:
        return None
    headline = "Gradient norm often jumps"
    evidence = (
        f"{two_digits(100 * share)} % of the steps had several times the usual gradient norm; "
        f"up to {percent(limit)} is usual."
    )
    fix = lr_fix(diagnostics, 0.3)
    advice, no_fix = lr_advice(fix, "Lower the learning rate or clip the gradients."), unknown(fix)
    severity = "warning" if training_share(diagnostics) > limits.FITTED else NOTE
    return Verdict("spikes", None, headline, evidence, share, limit, advice, fix, no_fix,
                   severity=severity)  # fmt: skip


def lr_advice(fix: Sequence[Fix], otherwise: str) -> str:
    """Return the advice to set the learning rate of `fix`, or `otherwise` for an empty fix."""
    return f"Set the learning rate (optimizer.lr) to {fix[0].value:g}." if fix else otherwise


def unknown(fix: object) -> str:
    """Return the reason for an empty `fix` of the learning rate; "" for other fixes."""
    return "" if fix else "the learning rate is unknown"


SCALES = {"input_scale", "target_scale", "class_codes"}
WRONG_STEPS = {
    "lr_high", "lr_low", "momentum_high", "eps_large", "clip_low", "decay_high", "schedule",
    "small_batch",
}  # fmt: skip
BROKEN = {
    "start", "no_gradient", "dropout_high", "output_clamped", "nonfinite", "labels", "frozen",
    "wrong_loss",
}  # fmt: skip
STOPPED = {"vanishing", "saturated", "dead"}
SHORT_RUNS = {"few_steps", "unfinished"}
"""Verdicts on the length of a run."""
UNLEARNED = SCALES | WRONG_STEPS | BROKEN
"""Verdicts that explain why a network learned little."""

for rule, causes, *names in (
    (run.output_clamped, ()),
    (data.class_codes, ()),
    (data.moved, (), "labels"),
    (input_scale, ()),
    (target_scale, {"output_clamped", "class_codes"}),
    (run.momentum_high, SCALES | {"output_clamped"}),
    (run.schedule, ()),
    (frozen, ()),
    (data.wrong_loss, SCALES | {"frozen", "schedule"}),
    (start, SCALES | {"wrong_loss"}),
    (lr_high, {"momentum_high", "start", "input_scale", "target_scale"}),
    (run.small_batch, SCALES),
    (run.dropout_high, SCALES | {"momentum_high", "lr_high"}),
    (run.decay_high, SCALES | {"momentum_high", "lr_high", "small_batch"}),
    (no_gradient, {"momentum_high", "lr_high", "target_scale", "decay_high"}),
    (clip_low, ()),
    (run.eps_large, {"clip_low", "no_gradient"}),
    (lr_low, {"clip_low", "no_gradient", "eps_large", "schedule", "target_scale"}),
    (dead, SCALES | {"no_gradient", "lr_high", "momentum_high", "decay_high", "small_batch"}),
    (saturated, {"input_scale"}),
    (depth, SCALES | {"no_gradient", "lr_high", "decay_high"}, "vanishing", "exploding"),
    (signal, {"no_gradient", "class_codes", "vanishing"}, "vanishing"),
    (outlier, {"input_scale"}),
    (nonfinite, ()),
    (data.shifted, ()),
    (data.too_good, {"shifted"}),
    (data.labels, UNLEARNED | STOPPED | {"shifted"}),
    (data.noisy_labels, {"labels"}),
    (
        unsteady,
        {"target_scale", "outlier", "lr_high", "vanishing", "momentum_high", "labels"}
        | {"noisy_labels", "lr_low"},
        "spikes",
    ),
    (run.few_steps, UNLEARNED),
    (run.unfinished, UNLEARNED | STOPPED | {"few_steps"}),
    (
        run.overfitting,
        SCALES | WRONG_STEPS | {"labels", "nonfinite", "shifted", "noisy_labels", "unfinished"},
    ),
    (run.imbalance, UNLEARNED),
    (data.underfitting, UNLEARNED | STOPPED | SHORT_RUNS | {"shifted", "noisy_labels"}),
    (
        data.behind_linear,
        UNLEARNED | STOPPED | SHORT_RUNS | {"shifted", "underfitting", "outlier"},
    ),
    (run.noise_scale, UNLEARNED | {"few_steps"}),
):
    add_rule(rule, *names, causes=causes)

LAST_RESORT = run.nothing_learned
"""The rule for runs without any other verdict."""

OF_COLUMNS = ("leak", "sentinel", "text_numbers", "constant", "target_unit")
VERDICTS.update(dict.fromkeys((*OF_COLUMNS, LAST_RESORT.__name__)))
