"""Numbers that several rules compute from `Diagnostics`; NaN stands for unknown."""

from math import hypot, isnan, log, nan, sqrt

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.diagnostics.monitor import Diagnostics
from mlpengine.diagnostics.samples import median
from mlpengine.diagnostics.thresholds import AIM, LEARNED
from mlpengine.optim import Optimizer
from mlpengine.settings import Fix


def input_size(diagnostics: Diagnostics) -> float:
    """Return the typical root mean square of the input; NaN if unknown."""
    of = diagnostics.series.of
    return hypot(median(of("input_mean")), median(of("input_std")))


def layer_ratios(diagnostics: Diagnostics) -> Array:
    """Return the update ratios (samples, layers); unknown ratios are 0.

    The first step of RMSprop is larger than later steps by a known factor.  The ratios of the first
    step are divided by this factor.
    """
    layers = [diagnostics.series.of("update_ratio", n) for n in range(diagnostics.columns.layers)]
    ratios: Array = np.nan_to_num(np.stack(layers, axis=1), nan=0.0)
    if len(ratios) and diagnostics.series.steps[0] == 1:
        ratios[0] *= sqrt(1.0 - getattr(diagnostics.optimizer, "alpha", 0.0))
    return ratios


def dropout_gain(diagnostics: Diagnostics) -> float:
    """Return the factor by which dropout in the hidden layers enlarges the output's mean square."""
    return float(1.0 / np.prod([1.0 - rate for rate in diagnostics.dropout]))


def reference_loss(diagnostics: Diagnostics) -> float:
    """Return the loss of a constant prediction or, if this is unknown, the first loss."""
    return diagnostics.first_loss if isnan(diagnostics.baseline) else diagnostics.baseline


def zero_logits(diagnostics: Diagnostics) -> float:
    """Return the loss of outputs of 0, or an upper bound; 0 for losses without a known bound.

    The bound for `quantile` holds for standardized targets: half of their mean absolute value.
    """
    name = diagnostics.loss.name if diagnostics.loss else ""
    if name == "softmax_cross_entropy":
        return log(diagnostics.facts.outputs)
    known = {"bce_with_logits": log(2), "binary_focal": log(2), "quantile": 0.5}
    return known.get(name, 0.0)


def training_share(diagnostics: Diagnostics) -> float:
    """Return the last training loss / `reference_loss`; NaN if unknown.

    The last training loss is the loss of the last epoch or, without a complete epoch, the mean over
    the last quarter of the samples.
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
    """Return the validation losses of all epochs, or an empty array if one is not finite."""
    losses = np.array([validation for _, validation in diagnostics.epochs])
    return losses if np.isfinite(losses).all() else losses[:0]


def worst(values: Array) -> tuple[int, float]:
    """Return index and value of the largest number; the value is NaN if no number is finite."""
    if not np.isfinite(values).any():
        return 0, nan
    index = int(np.nanargmax(values))
    return index, float(values[index])


def total_steps(diagnostics: Diagnostics) -> int:
    """Return the number of steps so far, or without epochs the step of the last sample."""
    return len(diagnostics.epochs) * diagnostics.steps_per_epoch or diagnostics.sampled


def usual_lr(diagnostics: Diagnostics) -> float:
    """Return the largest learning rate of all samples, the peak of a schedule."""
    rates = diagnostics.series.of("lr")
    return float(np.nanmax(rates)) if np.isfinite(rates).any() else nan


def start_ratio(diagnostics: Diagnostics) -> float:
    """Return the largest update ratio of a layer in the first step, scaled to `usual_lr`."""
    ratios, rates = layer_ratios(diagnostics).max(axis=1, initial=0.0), diagnostics.series.of("lr")
    known = np.flatnonzero((ratios > 0) & ~(rates == 0))
    if not known.size:
        return nan
    first = known[0]
    warm_up = 1.0 if isnan(rates[first]) else usual_lr(diagnostics) / rates[first]
    return float(ratios[first] * warm_up)


def suited_lr_fix(diagnostics: Diagnostics) -> list[Fix]:
    """Return the fix with a learning rate that gives the first step the update ratio `AIM`."""
    return lr_fix(diagnostics, AIM / start_ratio(diagnostics))


def lr_fix(diagnostics: Diagnostics, factor: float) -> list[Fix]:
    """Return the fix with the learning rate times `factor`, or [] if the product is unknown."""
    lr = usual_lr(diagnostics) * factor
    return [Fix(Optimizer, "lr", rounded(lr))] if lr > 0 else []


def rates(diagnostics: Diagnostics, *factors: float) -> list[list[Fix]]:
    """Return `lr_fix` for each factor."""
    return [lr_fix(diagnostics, factor) for factor in factors]


def rounded(value: float) -> float:
    """Return a number with two significant digits for a config."""
    return float(f"{value:.2g}")
