"""Pictures of a finished run as PNG, SVG or PDF files; needs the extra ``plots``.

They are drawn without pyplot, so no window opens and no figure stays behind, and in a style of
their own, whatever the caller's: dark on opaque white, which prints, and is legible on dark pages.
Colors are told apart by the color-blind, and lines by their dashes in gray.
"""

import csv
import warnings
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.diagnostics.dashboard import UNDATED, picture_format
from mlpengine.errors import UsageError, importing
from mlpengine.files import write_atomically
from mlpengine.palette import LIGHT, shown_name
from mlpengine.spec import Array
from mlpengine.train.explain import Dependence
from mlpengine.train.history import History
from mlpengine.train.metrics import confusion_matrix, higher_is_better
from mlpengine.train.task import Classification, Regression, Split, Task

with importing("mlpengine.plots", "plots"):
    from matplotlib import style
    from matplotlib.axes import Axes
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

BLUE, ORANGE, GREEN = LIGHT[:3]
GRAY = "#666666"
STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelcolor": "#222222",
    "axes.edgecolor": "#888888",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.formatter.useoffset": False,
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.1,
    "font.size": 10,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "savefig.dpi": 150,
    "savefig.facecolor": "white",
    "text.parse_math": False,  # a $ in a label is a $
}

MARKED_EPOCHS = 30
"""Up to here each epoch gets a dot, so that a run of one epoch shows something."""

SHOWN_POINTS = 5_000
SHOWN_TARGETS = 4
NUMBERED_CLASSES = 20
LABELED_CLASSES = 60
LABEL_LENGTH = 18


def save_plots(
    directory: str | Path,
    history: History | str | Path,
    task: Task,
    part: Split,
    output: Array,
    *,
    labels: Sequence[object] = (),
    best_epoch: int | None = None,
) -> list[Path]:
    """Write the pictures of a run into `directory`, made if need be; return their paths.

    `output` is the network's for `part`, and `labels` are those of the classes, by number.
    Several yes/no labels have no second picture.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / "training.png"]
    plot_training(history, paths[0], best_epoch=best_epoch)
    predicted = task.predict(output)
    if isinstance(task, Classification):
        paths.append(directory / "confusion_matrix.png")
        plot_confusion_matrix(part.truth, predicted, labels, paths[1])
    elif isinstance(task, Regression):
        paths.append(directory / "residuals.png")
        plot_residuals(part.truth, predicted, task.target.columns, paths[1])
    return paths


def plot_training(
    history: History | str | Path, path: str | Path, *, best_epoch: int | None = None
) -> None:
    """Draw losses, metrics, gradient norm and learning rate by epoch.

    `history` may be a metrics.csv.  Raises: UsageError if it has no epoch.
    """
    columns = _columns(history)
    if not len(columns["epoch"]):
        raise UsageError("plots: a run needs at least one whole epoch to be drawn")

    def draw(figure: Figure) -> None:
        panels = _panels(columns)
        grid = figure.subplots(2, 2, sharex=True)
        for axes, (title, lines) in zip(grid.flat, panels.items(), strict=True):
            _curves(axes, columns["epoch"], lines, title)
            if best_epoch:
                axes.axvline(best_epoch, color=GRAY, linestyle=":", linewidth=1.2, zorder=0)
        if best_epoch:
            text = f"dotted: epoch {best_epoch}, the best"
            grid[0, 1].set_title(text, loc="right", color=GRAY, fontsize=9, fontweight="normal")
        for axes in grid[1]:
            axes.set_xlabel("epoch")

    _save(draw, path, (10, 6.4))


def plot_confusion_matrix(
    truth: Array, predicted: Array, labels: Sequence[object], path: str | Path
) -> None:
    """Draw how many rows of each class were taken for which; colors are shares of the class.

    `truth` and `predicted` are class numbers; `labels` are the names by number.
    """
    counts = confusion_matrix(truth, predicted, len(labels))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    names = [_short(label) for label in labels]
    size = float(np.clip(2.6 + 0.42 * len(names), 4.2, 12))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.grid(visible=False)
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        every = -(-len(names) // LABELED_CLASSES)
        places = range(0, len(names), every)
        axes.set_xticks(places, names[::every], rotation=90 if len(max(names, key=len)) > 3 else 0)
        axes.set_yticks(places, names[::every])
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        right = float(np.trace(counts) / max(counts.sum(), 1))
        axes.set_title(f"{right:.1%} of {int(counts.sum()):,} rows are right")
        figure.colorbar(image, ax=axes, shrink=0.8, label="share of the true class")
        if len(names) <= NUMBERED_CLASSES:
            for (row, column), count in np.ndenumerate(counts):
                if count:
                    color = "white" if shares[row, column] > 0.55 else "#222222"
                    text = f"{int(count):,}"
                    axes.text(column, row, text, ha="center", va="center", color=color, fontsize=9)

    _save(draw, path, (size + 1.4, size))


def plot_residuals(truth: Array, predicted: Array, names: Sequence[str], path: str | Path) -> None:
    """Draw predictions against true values (rows, targets), and the spread of their differences.

    Of more than four targets the first four are drawn, and of many rows an even selection.
    """
    shown = min(len(names), SHOWN_TARGETS)

    def draw(figure: Figure) -> None:
        grid = figure.subplots(shown, 2, squeeze=False)
        for i in range(shown):
            _scatter(grid[i, 0], truth[:, i], predicted[:, i], _short(names[i]))
            _histogram(grid[i, 1], predicted[:, i] - truth[:, i])

    _save(draw, path, (10, 0.6 + 4.0 * shown))


def plot_dependence(curves: Sequence[Dependence], outputs: Sequence[str], path: str | Path) -> None:
    """Draw partial dependence, a panel for each column; `outputs` name what is predicted.

    Of more than three outputs the first three are drawn.
    """
    columns = min(3, len(curves))
    rows = -(-len(curves) // columns)

    def draw(figure: Figure) -> None:
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes in list(grid.flat)[len(curves) :]:
            axes.set_visible(False)
        looks = list(zip((BLUE, ORANGE, GREEN), ("-", (0, (5, 2)), (0, (1, 1.2))), strict=True))
        for axes, curve in zip(grid.flat, curves, strict=False):
            texts = any(isinstance(value, str) for value in curve.values)
            x: Any = range(len(curve.values)) if texts else curve.values
            if curve.kind == "date":
                x = (np.array(x) * 1e6).astype("datetime64[us]")
                locator = AutoDateLocator(maxticks=5)  # type: ignore[no-untyped-call]
                formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
                axes.xaxis.set_major_locator(locator)
                axes.xaxis.set_major_formatter(formatter)
            for k, (color, dashes) in enumerate(looks[: curve.predictions.shape[1]]):
                style = "" if texts else dashes
                axes.plot(
                    x, curve.predictions[:, k], color=color, linestyle=style,
                    marker="o" if texts else None, label=_short(outputs[k]),
                )  # fmt: skip
            axes.set_title(_short(curve.column))
            if texts:
                axes.set_xticks(x, [_short(value) for value in curve.values], rotation=45)
        if curves[0].predictions.shape[1] > 1:
            grid[0, 0].legend(loc="best")

    _save(draw, path, (3.6 * columns, 3.0 * rows))


def plot_sweep(values: Mapping[int, float], metric: str, path: str | Path) -> None:
    """Draw the metric of each trial by number, and the best so far."""
    numbers = np.array(sorted(values))
    measured = np.array([values[number] for number in numbers.tolist()])
    best = np.maximum if higher_is_better(metric) else np.minimum

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot(numbers, measured, "o", color=BLUE, markersize=4, label="trial")
        so_far = best.accumulate(measured)
        axes.step(numbers, so_far, where="post", color=ORANGE, label="best so far")
        axes.set_title(f"validation {shown_name(metric)}")
        axes.set_xlabel("trial")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if not higher_is_better(metric):
            _by_powers(axes, measured)
        axes.legend(loc="best")

    _save(draw, path, (8, 4.4))


def plot_importance(shares: Mapping[str, float], metric: str, path: str | Path) -> None:
    """Draw the share of each key of a sweep in the spread of the metric."""
    names = sorted(shares, key=lambda name: shares[name])

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.barh(names, [shares[name] for name in names], color=BLUE)
        axes.set_title(f"importance for validation {shown_name(metric)}")
        axes.set_xlabel("share")
        axes.grid(visible=False, axis="y")

    _save(draw, path, (8, 1.6 + 0.36 * len(names)))


def _columns(history: History | str | Path) -> dict[str, Array]:
    if isinstance(history, History):
        names, rows = history.columns, [row.values() for row in history.rows]
    else:
        with Path(history).open(newline="", encoding="utf-8") as file:
            names, *lines = list(csv.reader(file)) or [[]]
        rows = [[float(cell or "nan") for cell in line] for line in lines]
    table = np.array(rows, np.float64).reshape(-1, len(names))
    return dict(zip(names, table.T, strict=True))


def _panels(columns: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Return the lines of four panels by title."""
    prefix = "validation_"
    metrics = {n.removeprefix(prefix): v for n, v in columns.items() if n.startswith(prefix)}
    loss = {"training": columns["train_loss"]}
    if "loss" in metrics:
        loss["validation"] = metrics.pop("loss")
    panels = {"loss": loss}
    errors = {name: values for name, values in metrics.items() if name in ("mae", "rmse")}
    metrics = {name: values for name, values in metrics.items() if name not in errors}
    if metrics:
        only = f" {shown_name(next(iter(metrics)))}" if len(metrics) == 1 else ""
        panels[f"validation{only}"] = metrics
    if errors:
        panels["validation error"] = errors
    for name in ("gradient_norm", "steps"):
        panels[shown_name(name)] = {name: columns[name]}
    return dict(list(panels.items())[:3]) | {shown_name("lr"): {"lr": columns["lr"]}}


def _curves(axes: Axes, epochs: Array, lines: Mapping[str, Array], title: str) -> None:
    marker = "o" if len(epochs) <= MARKED_EPOCHS else None
    looks = zip((BLUE, ORANGE, GREEN), ("-", (0, (5, 2)), (0, (1, 1.2))), strict=True)
    for (name, values), (color, dashes) in zip(lines.items(), looks, strict=False):
        axes.plot(
            epochs,
            values,
            color=color,
            linestyle=dashes,
            marker=marker,
            markersize=3.5,
            label=shown_name(name),
        )
    axes.set_title(title)
    values = np.concatenate(list(lines.values()))
    values = values[np.isfinite(values)]
    if "R²" in title and values.min(initial=0) < -1:
        axes.set_ylim(bottom=-1)  # below, it says no more than that
    elif title in ("loss", *map(shown_name, ("gradient_norm", "lr"))):
        _by_powers(axes, values)
    if len(lines) > 1:
        axes.legend(loc="best")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if len(epochs) == 1:
        axes.set_xlim(epochs[0] - 1, epochs[0] + 1)


def _by_powers(axes: Axes, values: Array) -> None:
    """Scale y by powers, with plain numbers, where positive values span nearly one."""
    if not values.size or not values.max() > 8 * values.min() > 0:
        return
    axes.set_yscale("log")
    few = values.max() < 300 * values.min()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _scatter(axes: Axes, truth: Array, predicted: Array, name: str) -> None:
    every = -(-len(truth) // SHOWN_POINTS)
    x, y = truth[::every], predicted[::every]
    axes.scatter(x, y, s=10, alpha=0.7 if len(x) < 500 else 0.3, color=BLUE, linewidths=0)
    ends = [x.min(), x.max()]
    axes.plot(ends, ends, color=GRAY, linestyle="--", linewidth=1.2)
    axes.set_title(name)
    axes.set_xlabel("true")
    axes.set_ylabel("predicted")


def _histogram(axes: Axes, residuals: Array) -> None:
    low, high = (float(edge) for edge in np.quantile(residuals, (0.005, 0.995)))
    limits = (low, high) if len(residuals) > 200 and low < high else None
    bins = int(np.clip(2 * np.sqrt(len(residuals)), 5, 41))
    axes.hist(residuals, bins=bins, range=limits, color=BLUE, alpha=0.85)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.axvline(0, color=GRAY, linestyle="--", linewidth=1.2)
    middle = float(np.median(residuals))
    axes.axvline(middle, color=ORANGE, linewidth=1.6)
    axes.set_title("predicted - true")
    axes.set_xlabel(f"median {middle:.3g}, standard deviation {residuals.std():.3g}")
    axes.set_ylabel("rows" if limits is None else "rows (the inner 99 %)")


def _short(label: object) -> str:
    text = str(label)
    return text if len(text) <= LABEL_LENGTH else text[: LABEL_LENGTH - 1] + "…"


def _save(draw: Callable[[Figure], None], path: str | Path, size: tuple[float, float]) -> None:
    """Draw and write the whole picture, or leave the file as it was."""
    kind = picture_format(path)
    with style.context(STYLE, after_reset=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label in a script that the font lacks
        figure = Figure(figsize=size)
        draw(figure)
        target = BytesIO()
        figure.savefig(target, format=kind, metadata={UNDATED[kind]: None})
    write_atomically(Path(path), target.getvalue())
