"""One picture of a run, 2 x 3, readable at a glance; needs the extra ``plots``.

    losses            gradient norm        update ratios
    gradient RMS      dead and saturated   noise scale and batch size

It is drawn without pyplot, so no window opens and no figure stays in memory.
"""

from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.diagnostics.monitor import Diagnostics
from mlpengine.diagnostics.rules import DEAD, FAST_RATIO, GUIDE_RATIO, SLOW_RATIO, verdicts
from mlpengine.errors import UsageError, importing
from mlpengine.files import write_atomically
from mlpengine.palette import DARK, LIGHT
from mlpengine.quantiles import evenly_spaced
from mlpengine.spec import Array

FEW_DECADES, HEAT_DECADES = 2.0, 6.0
DASHES = ("-", "--", "-.", ":")
SHOWN_LAYERS = 8
SHOWN_VERDICTS = 3
WIDTH = 100


UNDATED = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
"""Picture formats, and the metadata left out of each so that equal runs give equal bytes."""


def picture_format(path: str | Path) -> str:
    """Return the picture format of a file name.  Raises: UsageError if there is none."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in UNDATED:
        raise UsageError(f"{path}: a picture must be named .png, .svg or .pdf")
    return kind


def theme(*, dark: bool) -> dict[str, Any]:
    """Return the style: dark on white, for print, or light on nearly black."""
    ground, ink, faint = (
        ("#16181d", "#e6e6e6", "#3a3f4a") if dark else ("white", "#222222", "#dddddd")
    )
    return {
        "axes.axisbelow": True,
        "axes.prop_cycle": f"cycler('color', {list(DARK if dark else LIGHT)})",
        "axes.edgecolor": "#888888",
        "axes.facecolor": ground,
        "axes.grid": True,
        "axes.labelcolor": ink,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": ink,
        "axes.titlelocation": "left",
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "figure.constrained_layout.h_pad": 0.09,
        "figure.constrained_layout.w_pad": 0.09,
        "figure.facecolor": ground,
        "font.size": 9.5,
        "grid.color": faint,
        "grid.linewidth": 0.7,
        "legend.fontsize": 8.5,
        "legend.edgecolor": "none",
        "legend.facecolor": ground,
        "legend.framealpha": 0.8,
        "legend.labelcolor": ink,
        "lines.linewidth": 1.7,
        "savefig.dpi": 150,
        "savefig.facecolor": ground,
        "text.color": ink,
        "text.parse_math": False,
        "xtick.color": ink,
        "ytick.color": ink,
    }


def save_dashboard(
    diagnostics: Diagnostics, path: str | Path, *, dark: bool = False, title: str = ""
) -> None:
    """Draw the samples of a run into a PNG, SVG or PDF file, whole or not at all.

    Raises: UsageError for another name; MissingExtraError without matplotlib.
    """
    kind = picture_format(path)
    with importing("the dashboard", "plots"):
        from matplotlib import style
        from matplotlib.figure import Figure
    with style.context(["default", theme(dark=dark)]):
        figure = Figure(figsize=(15, 8), layout="constrained")
        axes = figure.subplots(2, 3).ravel()
        panels = (_losses, _norms, _updates, _heat, _units, _noise)
        for panel, ax in zip(panels, axes, strict=True):
            panel(diagnostics, ax)
            ax.set_xlim(0, max(1, int(diagnostics.series.steps[-1])))
        figure.suptitle(_headline(diagnostics, title), x=0.01, ha="left", fontsize=11)
        picture = BytesIO()
        figure.savefig(picture, format=kind, metadata={UNDATED[kind]: None})
    write_atomically(Path(path), picture.getvalue())


def _headline(diagnostics: Diagnostics, title: str) -> str:
    texts = [str(verdict) for verdict in verdicts(diagnostics)]
    lines = [_shortened(text) for text in texts[:SHOWN_VERDICTS]] or ["nothing unusual"]
    if len(texts) > SHOWN_VERDICTS:
        lines.append(f"and {len(texts) - SHOWN_VERDICTS} more")
    return "\n".join(filter(None, [title, *lines]))


def _shortened(text: str) -> str:
    return text if len(text) <= 2 * WIDTH else f"{text[: 2 * WIDTH - 1]}…"


def _losses(diagnostics: Diagnostics, ax: Any) -> None:
    steps, last = diagnostics.series.steps, max(int(diagnostics.series.steps[-1]), 1)
    ax.plot(steps, diagnostics.series.of("loss"), color="#999999", lw=0.9, label="batches")
    if diagnostics.epochs:
        at = np.arange(1, len(diagnostics.epochs) + 1) * last / len(diagnostics.epochs)
        for column, (name, color) in enumerate((("train", "C0"), ("validation", "C1"))):
            losses = np.array(diagnostics.epochs)[:, column]
            if np.isfinite(losses).any():
                ax.plot(
                    at,
                    losses,
                    color=color,
                    ls=DASHES[column],
                    marker="." if len(at) < 30 else "",
                    label=name,
                )
    _guide(ax, diagnostics.baseline, "constant prediction")
    _finish(ax, "Loss", "", log=_all_positive(diagnostics.series.of("loss")))


def _norms(diagnostics: Diagnostics, ax: Any) -> None:
    norms, clipped = diagnostics.series.of("gradient_norm"), diagnostics.series.of("clipped_norm")
    is_clipped = bool((clipped < norms).any())
    name = "before clipping" if is_clipped else "norm"
    ax.plot(diagnostics.series.steps, norms, color="C0", label=name)
    if is_clipped:
        ax.plot(diagnostics.series.steps, clipped, color="C1", ls="--", label="after clipping")
        _guide(ax, float(clipped[clipped < norms].max()), "clip")
    for number, spike in enumerate(diagnostics.noted):
        ax.plot(spike.step, spike.norm, "v", color="C3", label="" if number else "spike")
    _finish(ax, "Gradient norm", "", log=_all_positive(norms))


def _updates(diagnostics: Diagnostics, ax: Any) -> None:
    ratios = [diagnostics.series.of("update_ratio", n) for n in range(diagnostics.columns.layers)]
    for number, look in _shown(diagnostics):
        ax.plot(diagnostics.series.steps, ratios[number], label=f"layer {number}", **look)
    ax.axhspan(GUIDE_RATIO / 10, GUIDE_RATIO * 10, color="C2", alpha=0.12, lw=0)
    _guide(ax, GUIDE_RATIO, "guide")
    _finish(ax, "Update ratio", "norm of the step / norm of the weights", log=True)
    known = np.concatenate(ratios)
    known = known[known > 0]
    low, high = (known.min(), known.max()) if known.size else (GUIDE_RATIO, GUIDE_RATIO)
    ax.set_ylim(min(low / 2, SLOW_RATIO), max(high * 2, FAST_RATIO))


def _heat(diagnostics: Diagnostics, ax: Any) -> None:
    series, layers = diagnostics.series, range(diagnostics.columns.layers)
    rms = np.stack([series.of("gradient_rms", layer) for layer in layers])
    logs = np.log10(np.where(rms > 0, rms, np.nan))
    known = logs[np.isfinite(logs)]
    highest = float(known.max()) if known.size else 0.0
    lowest = max(float(known.min()) if known.size else 0.0, highest - HEAT_DECADES)
    ax.grid(visible=False)
    edges = np.concatenate([[0], series.steps])  # a sample stands for the steps before it
    image = ax.pcolormesh(
        edges,
        np.arange(len(rms) + 1) - 0.5,
        logs,
        cmap="viridis",
        vmin=lowest,
        vmax=max(highest, lowest + 0.1),
    )
    if len(rms) <= 2 * SHOWN_LAYERS:
        ax.set_yticks(range(len(rms)))
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label("log10; blank: no gradient")
    _finish(ax, "Gradient RMS by layer", "layer", legend=False)


def _units(diagnostics: Diagnostics, ax: Any) -> None:
    drawn, series = False, diagnostics.series
    for number, look in _shown(diagnostics):
        for quantity, name in (("dead_share", "dead"), ("saturated_share", "saturated")):
            shares = series.of(quantity, number)
            if np.isfinite(shares).any():
                drawn = True
                ax.plot(series.steps, 100 * shares, label=f"layer {number}, {name}", **look)
    if drawn:
        _guide(ax, 100 * DEAD, "too many")
        ax.set_ylim(-3, 103)
    else:
        _say(ax, "no layer can die or saturate,\nor no window is complete yet")
    _finish(ax, "Dead units, saturated activations", "%", legend=drawn)


def _noise(diagnostics: Diagnostics, ax: Any) -> None:
    scale = diagnostics.series.of("noise_scale")
    ax.plot(diagnostics.series.steps, scale, color="C0", label="noise scale")
    log = _all_positive(scale)
    if not log:
        _say(ax, "the gradient never stood out\nfrom its noise")
    _guide(ax, float(diagnostics.batch_size), "batch size")
    _finish(ax, "Gradient noise scale", "rows", log=log)


def _shown(diagnostics: Diagnostics) -> list[tuple[int, dict[str, Any]]]:
    """Return the layers to draw, evenly spaced if there are many, and the style of each."""
    layers = diagnostics.columns.layers
    chosen = evenly_spaced(layers, SHOWN_LAYERS).tolist()
    looks = zip(chosen, cycle(f"C{i}" for i in range(6)), cycle(DASHES))
    return [(number, {"color": color, "ls": dash}) for number, color, dash in looks]


def _guide(ax: Any, value: float, name: str) -> None:
    if np.isfinite(value) and value > 0:
        ax.axhline(value, color="#888888", ls=(0, (2, 2)), lw=1.3, label=name)


def _say(ax: Any, text: str) -> None:
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color="#888888")


def _all_positive(values: Array) -> bool:
    known = values[np.isfinite(values)]
    return bool(known.size) and bool((known > 0).all())


def _finish(ax: Any, title: str, label: str, *, log: bool = False, legend: bool = True) -> None:
    ax.set_title(title)
    ax.set_xlabel("step")
    ax.set_ylabel(label)
    if log:
        _decades(ax)
    if legend:
        ax.legend(loc="best", ncols=2 if len(ax.lines) > 5 else 1)


def _decades(ax: Any) -> None:
    """Make the y axis logarithmic, with plain numbers at its ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_yscale("log")
    low, high = ax.get_ylim()
    few = np.log10(high / low) < FEW_DECADES
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=9))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
