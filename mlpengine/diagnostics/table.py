"""The last sample as a table for people: a line for each layer, and a few for the net."""

from math import isnan, sqrt

from mlpengine.diagnostics.observer import Diagnostics
from mlpengine.diagnostics.verdicts import percent, power

WIDTHS = (5, 6, 12, 10, 9, 8, 7, 9, 18, 9)
TITLES = (
    "layer",
    "units",
    "activation",
    "grad RMS",
    "update",
    "cosine",
    "dead",
    "saturated",
    "mean and std",
    "largest z",
)


def table(seen: Diagnostics) -> str:
    """Return the last sample as text: a line a layer, then the net's norms and noise.

    `update` is the norm of the step over that of the weights, `cosine` that between the step and
    the downhill direction, `largest z` the largest magnitude of a pre-activation.
    """
    if not seen.sampled:
        return "no step was sampled"
    lines = [_line(TITLES)]
    for number, layer in enumerate(seen.mlp.layers):
        get = {q: seen.get(q, number) for q in _QUANTITIES}
        dead = seen.dead_share(number)
        mean, deviation = get["activation_mean"], get["activation_std"]
        lines.append(
            _line(
                (
                    str(number),
                    str(layer.out_dim),
                    layer.activation.name if layer.activation else "-",
                    _text(get["gradient_rms"]),
                    _text(get["update_ratio"]),
                    "-" if isnan(get["update_cosine"]) else f"{get['update_cosine']:.2f}",
                    "-" if isnan(dead) else percent(dead),
                    "-" if isnan(get["saturated_share"]) else percent(get["saturated_share"]),
                    f"{_text(mean)} +- {_text(deviation)}",
                    _text(get["pre_activation_max"]),
                )
            )
        )
    return "\n".join([*lines, *_net_lines(seen)])


_QUANTITIES = (
    "gradient_rms",
    "update_ratio",
    "update_cosine",
    "saturated_share",
    "activation_mean",
    "activation_std",
    "pre_activation_max",
)


def _net_lines(seen: Diagnostics) -> list[str]:
    get = seen.get
    norm, clipped = get("gradient_norm"), get("clipped_norm")
    after = f", clipped to {power(clipped)}" if clipped < norm else ""
    lines = [
        f"step {seen.sampled}: gradient norm {power(norm)}{after}; norms of single rows: median "
        f"{power(get('example_norm_median'))}, largest {power(get('example_norm_max'))} "
        f"(row {get('hardest_row'):.0f})"
    ]
    if seen.spikes.count:
        lines.append(f"spikes: {seen.spikes.count} of {seen.spikes.steps} steps")
    return [*lines, noise_sentence(seen)]


def noise_sentence(seen: Diagnostics) -> str:
    """Return what the gradient noise scale means for the batch size."""
    scale, batch = seen.noise.value, seen.batch_size
    if batch < 2:
        return "gradient noise scale: needs batches of at least 2 rows"
    if isnan(scale):
        return (
            f"gradient noise scale: far above the batch size of {batch}; the gradient does not "
            "stand out from its noise, so larger batches, or a lower lr, average more of it away"
        )
    said = f"gradient noise scale {power(scale)} rows at batch size {batch}: "
    if batch < scale / 2:
        gain = (1 + scale / batch) / (1 + scale / (2 * batch))
        return said + (
            f"doubling the batch would make each step worth {gain:.2f} of the present ones "
            f"(up to 2 at best); beyond {power(scale)} rows it hardly helps"
        )
    if batch > 4 * scale:
        return (
            said + f"batches of {power(max(1.0, sqrt(scale * batch)))} rows would do nearly as well"
        )
    return said + "the batch size suits the noise"


def _text(value: float) -> str:
    return "-" if isnan(value) else f"{value:.2g}"


def _line(texts: tuple[str, ...]) -> str:
    cells = zip(texts, WIDTHS, strict=True)
    return " ".join(text.rjust(width) for text, width in cells).rstrip()
