"""The samples of a run as curves with a limited number of points."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpengine.core.rows import evenly_spaced
from mlpengine.diagnostics.samples import Series
from mlpengine.diagnostics.thresholds import DEAD, GUIDE_RATIO
from mlpengine.drawing.chart_types import thinned

SHOWN_LAYERS, SHOWN_SAMPLES = 6, 120
NET = ("loss", "gradient_norm", "clipped_norm", "noise_scale", "lr")
LAYERS = ("update_ratio", "gradient_rms", "dead_share", "saturated_share")


def gradients_of(
    series: Series, batch_size: int | None, names: Sequence[str] = (), *, dead: bool = False
) -> dict[str, Any]:
    """Return evenly spaced samples of gradients, updates and units, as data for charts.

    `names` are the names of all layers; by default, layers have numbers.  With `dead`, the chart of
    units shows the limit of the verdict "dead".
    """
    kept = thinned(np.nan_to_num(series.of("gradient_norm")), 240)
    few = evenly_spaced(len(series), SHOWN_SAMPLES)
    layers = series.columns.layers
    shown = evenly_spaced(layers, SHOWN_LAYERS)
    named = {n: names[n] if names else f"layer {n}" for n in shown.tolist()}
    clipped, norms = series.of("clipped_norm"), series.of("gradient_norm")
    is_clipped = clipped < norms * (1 - 1e-6)
    return {
        "steps": series.steps[kept],
        "net": {name: series.of(name)[kept] for name in NET},
        "clip": clipped[is_clipped].max() if is_clipped.any() else None,
        "clipped": is_clipped.mean(),
        "spikes": np.nan_to_num(series.of("spikes")).max(),
        "layer_steps": series.steps[few],
        "layers": layers,
        "by_layer": {
            quantity: {name: series.of(quantity, n)[few] for n, name in named.items()}
            for quantity in LAYERS
        },
        "batch_size": batch_size,
        "guide": GUIDE_RATIO,
        "too_many": DEAD if dead else None,
    }
