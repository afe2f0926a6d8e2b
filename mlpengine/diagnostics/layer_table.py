"""The last sample as a table: a line for each layer, and some lines for the network."""

from functools import partial
from math import isnan
from textwrap import wrap

from mlpengine.diagnostics.monitor import Diagnostics
from mlpengine.diagnostics.thresholds import LAYER_CHARACTERS, TABLE_WIDTH
from mlpengine.diagnostics.verdict import brief, percent, two_digits

TITLE_WIDTHS = {
    "layer": 5,
    "units": 5,
    "activation": 10,
    "grad RMS": 8,
    "update": 7,
    "dead|sat": 8,
    "mean": 8,
    "std": 7,
}
"""Titles and widths of columns; with spaces, `TABLE_WIDTH` in all.  Layer names may be wider."""


LEGEND = """\
grad RMS: root mean square of the weights' gradient
update: norm of weight change / norm of weights; usually 0.001 before lr decay
dead|sat: share of units that are always 0 (relu) or saturated (tanh, sigmoid);
  -: too few rows were measured, or an output layer
mean, std: mean and standard deviation of the activations
gradient noise scale: batch size above which more rows hardly improve a step"""
"""The meaning of the columns."""


def table(diagnostics: Diagnostics) -> str:
    """Return the last sample as text: a line for each layer, then norms and noise."""
    if not diagnostics.sampled:
        return "no step was sampled"
    names = [brief(one.name.removeprefix("layer "), LAYER_CHARACTERS) for one in diagnostics.layers]
    wider = max(map(len, names)) - TITLE_WIDTHS["layer"]
    rows = [tuple(TITLE_WIDTHS)]
    for number, layer in enumerate(diagnostics.layers):
        get = partial(diagnostics.get, layer=number)
        dead = diagnostics.dead_share(number)
        stopped = get("saturated_share") if isnan(dead) else dead
        cells = (
            names[number],
            str(layer.units),
            layer.activation.name if layer.activation else "-",
            _text(get("gradient_rms")),
            _text(get("update_ratio")),
            "-" if isnan(stopped) else percent(stopped),
            _text(get("activation_mean")),
            _text(get("activation_std")),
        )
        rows.append(cells)
    lines = [_line(row, max(wider, 0)) for row in rows]
    for line in _net_lines(diagnostics):
        lines += wrap(line, TABLE_WIDTH, subsequent_indent="  ", break_long_words=False)
    return "\n".join(lines)


def _net_lines(diagnostics: Diagnostics) -> list[str]:
    get, name_row = diagnostics.get, diagnostics.name_row
    norm, clipped = get("gradient_norm"), get("clipped_norm")
    hardest = "unknown" if isnan(get("hardest_row")) else name_row(int(get("hardest_row")))
    before, limit = two_digits(norm), two_digits(clipped)
    after = f", clipped to {limit}" if clipped < norm and limit != before else ""
    first = f"measured in step {diagnostics.sampled:,}; gradient norm {before}{after}"
    if diagnostics.unknown_rows:
        why = diagnostics.unknown_rows
        return [first, f"gradient norm of single rows: unknown, because {why}"]
    lines = [
        first,
        f"gradient norm of single rows: median {two_digits(get('example_norm_median'))}, largest "
        f"{two_digits(get('example_norm_max'))} ({hardest})",
    ]
    if diagnostics.spikes.count:
        count, steps = diagnostics.spikes.count, diagnostics.spikes.steps
        lines.append(
            f"in {count} of {steps} steps, the gradient norm was several times its usual value"
        )
    return [*lines, noise_sentence(diagnostics)]


def noise_sentence(diagnostics: Diagnostics) -> str:
    """Return a line with the gradient noise scale and the batch size."""
    scale, batch = diagnostics.noise.value, diagnostics.batch_size
    if batch < 2:
        return "gradient noise scale: needs batches of at least 2 rows"
    if isnan(scale):
        return f"gradient noise scale: far above {batch} rows, the batch size"
    return f"gradient noise scale: {two_digits(scale)} rows (batch size {batch})"


def _text(value: float) -> str:
    return "-" if isnan(value) else f"{value:.2g}"


def _line(texts: tuple[str, ...], wider: int) -> str:
    (name, width), *cells = zip(texts, TITLE_WIDTHS.values(), strict=True)
    return " ".join([name.rjust(width + wider), *(t.rjust(w) for t, w in cells)]).rstrip()
