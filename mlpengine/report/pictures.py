"""Charts as PNG, SVG and PDF files; needs the extra ``plots``.

They are drawn without pyplot, so no window opens and no figure stays behind, and in a style of
their own, whatever the caller's.  Colors are told apart by the color-blind, and lines by their
dashes in gray.
"""

import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from mlpengine.config.standing import PART_PHRASES, held_out
from mlpengine.core.errors import UsageError, importing
from mlpengine.core.files import write_atomically
from mlpengine.core.palette import DARK, LIGHT
from mlpengine.diagnostics import Diagnostics, verdicts
from mlpengine.models.metrics import confusion_matrix
from mlpengine.models.task import Classification, Regression

from .chart_types import (
    DASHES,
    SHADES,
    Band,
    Bars,
    Chart,
    Diagonal,
    HeatMap,
    HorizontalLine,
    LegendEntry,
    Line,
    Mark,
    Points,
    Shape,
    Spans,
    opacity,
)
from .charts import (
    by_epoch,
    confusion_chart,
    gradient_charts,
    loss_by_step,
    prediction_charts,
    training_charts,
)
from .collect import RunData, epochs_of, gradients_of
from .markup import shortened
from .predictions import predictions_of

with importing("drawing pictures", "plots"):
    from matplotlib import style
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap, to_rgba
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

__all__ = ["save_charts", "save_pictures"]

UNDATED = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
"""Picture formats, and the metadata left out of each so that equal runs give equal bytes."""

INCHES_WIDE, INCHES_HIGH = 5.0, 3.6
"""Size of a chart in inches."""

LINE_LENGTH = 72
"""Characters of small text that are as wide as a chart."""

GRAY = "#888888"
RULE: dict[str, Any] = {"color": GRAY, "linestyle": (0, (2, 2)), "linewidth": 1.3}
SHOWN_VERDICTS, VERDICT_LENGTH = 3, 200


def picture_format(path: str | Path) -> str:
    """Return the picture format of a file name.  Raises: UsageError if there is none."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in UNDATED:
        raise UsageError(f"{path}: a picture must be named .png, .svg or .pdf")
    return kind


def save_charts(
    charts: Sequence[Chart], path: str | Path, *, title: str = "", dark: bool = False
) -> None:
    """Draw charts side by side into a PNG, SVG or PDF file, whole or not at all.

    Raises: UsageError for another name.
    """
    kind = picture_format(path)
    with style.context(theme(dark=dark), after_reset=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label in a script that the font lacks
        picture = BytesIO()
        draw(charts, title).savefig(picture, format=kind, metadata={UNDATED[kind]: None})
    write_atomically(Path(path), picture.getvalue())


def draw(charts: Sequence[Chart], title: str = "") -> Figure:
    """Return charts side by side as a figure of matplotlib."""
    columns = len(charts) if len(charts) < 4 else 2 if len(charts) == 4 else 3
    rows = -(-len(charts) // columns)
    wide = min(14.0, max(INCHES_WIDE, *(0.45 * len(chart.x.ticks) for chart in charts)))
    tall = min(13.0, max(INCHES_HIGH, *(0.32 * len(chart.y.ticks) for chart in charts)))
    figure = Figure(figsize=(columns * wide, rows * tall + 0.2 * len(title.splitlines())))
    panels = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for row in range(rows):
        chosen = slice(row * columns, (row + 1) * columns)
        lines = max(_legend_size(chart)[0] for chart in charts[chosen])
        for axes, chart in zip(panels[chosen], charts[chosen], strict=False):
            _draw_chart(axes, chart, lines)
    for axes in panels[len(charts) :]:
        axes.set_visible(False)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    return figure


def save_pictures(directory: str | Path, run: RunData) -> list[Path]:
    """Write the pictures of a run into `directory`, made if need be; return their paths.

    Several yes/no labels have no second picture.  Raises: UsageError if no epoch has ended.
    """
    directory, epochs, loaded = Path(directory), epochs_of(run), run.loaded
    if epochs is None or loaded is None or run.model is None:
        raise UsageError(f"{run.path}: holds no epochs to be drawn")
    directory.mkdir(parents=True, exist_ok=True)
    norm = by_epoch("Gradient norm", [("norm", epochs["curves"]["gradient_norm"])], powers=True)
    pictures = {"training.png": ("", [*training_charts(epochs), *norm])}
    held = held_out(loaded, run.model.mean, run.known)
    title = f"{len(held.rows):,} {PART_PHRASES[held.part]}"
    if isinstance(loaded.task, Classification):
        classes = run.model.preprocessor.classes
        counts = confusion_matrix(held.rows.truth, held.predicted, len(classes))
        pictures["confusion_matrix.png"] = title, [confusion_chart(counts, classes)]
    elif isinstance(loaded.task, Regression):
        predictions = predictions_of(run.model, loaded.task, held)
        pictures["residuals.png"] = title, prediction_charts(predictions)
    for name, (title, charts) in pictures.items():
        save_charts(charts, directory / name, title=title)
    return [directory / name for name in pictures]


def save_dashboard(
    diagnostics: Diagnostics, path: str | Path, *, dark: bool = False, title: str = ""
) -> None:
    """Draw losses, gradients, updates and units of a run by step, below its verdicts.

    Raises: UsageError for another name.
    """
    samples = gradients_of(diagnostics.series, diagnostics.batch_size) | {
        "epochs": diagnostics.epochs,
        "baseline": diagnostics.baseline,
        "noted": [(spike.step, spike.norm) for spike in diagnostics.noted],
    }
    texts = [shortened(verdict, VERDICT_LENGTH) for verdict in verdicts(diagnostics)]
    lines = [title, *(texts[:SHOWN_VERDICTS] or ["nothing unusual"])]
    if len(texts) > SHOWN_VERDICTS:
        lines.append(f"and {len(texts) - SHOWN_VERDICTS} more")
    charts = [loss_by_step(samples), *gradient_charts(samples)]
    save_charts(charts, path, title="\n".join(filter(None, lines)), dark=dark)


def theme(*, dark: bool) -> dict[str, Any]:
    """Return the style: dark on white, for print, or light on nearly black."""
    ground, ink, faint = ("white", "#222222", "#dddddd")
    if dark:
        ground, ink, faint = ("#16181d", "#e6e6e6", "#3a3f4a")
    inks = ("axes.label", "axes.title", "legend.label", "text.", "xtick.", "ytick.")
    return {
        **{f"{name}color": ink for name in inks},
        **{f"{name}.facecolor": ground for name in ("axes", "figure", "savefig")},
        **{f"axes.spines.{side}": False for side in ("left", "right", "top")},
        "axes.axisbelow": True,
        "axes.edgecolor": GRAY,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.labelsize": 9,
        "axes.prop_cycle": f"cycler('color', {list(DARK if dark else LIGHT)})",
        "axes.titlelocation": "left",
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "figure.constrained_layout.h_pad": 0.12,
        "figure.constrained_layout.use": True,
        "figure.constrained_layout.w_pad": 0.12,
        "font.size": 9.5,
        "grid.color": faint,
        "grid.linewidth": 0.7,
        "legend.borderaxespad": 0,
        "legend.borderpad": 0.3,
        "legend.fontsize": 8.5,
        "legend.frameon": False,
        "lines.linewidth": 1.7,
        "savefig.dpi": 150,
        "svg.hashsalt": "mlpengine",  # without one, names of clips are random
        "text.parse_math": False,  # a $ in a label is a $
        "ytick.major.size": 0,
    }


def _legend_size(chart: Chart) -> tuple[int, int]:
    """Return the lines and columns of a legend."""
    longest = max((len(key.name) + 8 for key in chart.legend), default=LINE_LENGTH)
    columns = max(1, LINE_LENGTH // longest)
    return -(-len(chart.legend) // columns), columns


def _draw_chart(axes: Axes, chart: Chart, lines: int) -> None:
    """Draw a chart whose title has space for `lines` of a legend below it."""
    axes.set_title(chart.title, pad=6 + 15 * lines)
    for axis, set_scale, set_limits in (
        (chart.x, axes.set_xscale, axes.set_xlim),
        (chart.y, axes.set_yscale, axes.set_ylim),
    ):
        set_scale("log" if axis.log else "linear")
        set_limits(axis.low, axis.high)
    names = [text for _, text in chart.x.ticks]
    upright = sum(len(text) + 2 for text in names) > LINE_LENGTH
    axes.set_xticks([at for at, _ in chart.x.ticks], names, rotation=90 if upright else 0)
    axes.set_yticks([at for at, _ in chart.y.ticks], [text for _, text in chart.y.ticks])
    axes.minorticks_off()
    for shape in chart.shapes:
        _draw_shape(axes, chart, shape)
    axes.set_xlabel("\n".join([chart.below, *wrap(chart.note, LINE_LENGTH)]))
    if keys := chart.legend:
        handles, names = [_handle(key) for key in keys], [key.name for key in keys]
        _, columns = _legend_size(chart)
        axes.legend(handles, names, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns)


def _draw_shape(axes: Axes, chart: Chart, shape: Shape) -> None:
    match shape:
        case Line(x, y, color):
            dotted = shape.dots or len(x) == 1
            axes.plot(x, y, marker="o" if dotted else "", markersize=3.5, **_look(color))
        case Points(x, y, color):
            size, alpha = (3, 0.45) if len(x) > 400 else (4, 0.65) if len(x) > 100 else (5, 0.85)
            axes.plot(x, y, "o", color=f"C{color - 1}", markersize=size, alpha=alpha,
                      markeredgewidth=0)  # fmt: skip
        case Bars(edges, counts):
            axes.bar(edges[:-1], counts, np.diff(edges), align="edge", color="C0", alpha=0.85)
        case Spans(x, low, high):
            axes.vlines(x, low, high, color="C0", linewidth=1.5)
        case HeatMap():
            _draw_cells(axes, shape)
        case HorizontalLine(value):
            if chart.shows(shape):
                axes.axhline(value, **RULE)
        case Mark(value):
            axes.axvline(value, **RULE)
        case Band(low, high):
            axes.axhspan(low, high, color="C2", alpha=0.14, linewidth=0)
        case Diagonal():
            ends = [chart.x.low, chart.x.high]
            axes.plot(ends, ends, **RULE)


def _draw_cells(axes: Axes, cells: HeatMap) -> None:
    rows = len(cells.levels)
    shades = ListedColormap([_shade(level) for level in range(1, SHADES + 1)])
    blank = np.ma.masked_equal(cells.levels, 0)
    axes.pcolormesh(cells.x, range(rows + 1), blank, cmap=shades, vmin=0.5, vmax=SHADES + 0.5)
    axes.grid(visible=False)
    middles = ((cells.x[:-1] + cells.x[1:]) / 2).tolist()
    for row, texts in enumerate(cells.texts):
        for x, text, level in zip(middles, texts, cells.levels[row], strict=True):
            color = axes.get_facecolor() if level > SHADES / 2 else None
            axes.text(x, row + 0.5, text, ha="center", va="center", fontsize=8.5, color=color)


def _shade(level: int) -> tuple[float, float, float, float]:
    return to_rgba("C0", opacity(level))


def _look(color: int) -> dict[str, Any]:
    """Return color and dashes of a curve."""
    dashes = DASHES[(color - 1) % len(DASHES)]
    return {"color": f"C{color - 1}", "linestyle": (0, dashes) if dashes else "-"}


def _handle(key: LegendEntry) -> Artist:
    """Return the sign of an entry of a legend."""
    match key.kind:
        case "rule":
            return Line2D([], [], **RULE)
        case "band":
            return Patch(facecolor="C2", alpha=0.14)
        case "shade":
            return Patch(facecolor=_shade(key.number))
        case "dots":
            return Line2D([], [], color=f"C{key.number - 1}", linestyle="", marker="o")
        case _:
            return Line2D([], [], **_look(key.number))
