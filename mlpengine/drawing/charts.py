"""The charts of runs, made from the data of a report.

Color k of a curve is the k-th color in `LIGHT` and `DARK`; the first color is 1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.core.wording import plural, shown_name
from mlpengine.data.tables.table import number_text

from .chart_types import (
    LIGHT,
    SHADES,
    Axis,
    Bars,
    Chart,
    Diagonal,
    HorizontalLine,
    Line,
    Mark,
    Points,
    Shape,
    Spans,
    array_of,
    axis,
    name_axis,
    thinned,
)
from .markup import number, shortened

Data = Mapping[str, Any]

AT_MOST_ONE = {*map(shown_name, ("accuracy", "macro_f1", "r2"))}
"""Names of metrics with the maximum 1."""

MEAN_CURVES = (
    "Each curve is the mean of the networks in training; it may jump if one of them stops."
)

FEW = 6
"""Maximum number of whole numbers on an axis with a tick for each."""

DOTTED_POINTS = 30
"""Maximum number of points of a curve that are drawn as dots, too."""


def training_charts(epochs: Data) -> list[Chart]:
    """Return charts of losses, metrics and learning rate by epoch."""
    curves, best = epochs["curves"], epochs.get("best")
    prefix = "validation_"
    measured = [n.removeprefix(prefix) for n in curves if n.startswith(prefix)]
    panels: list[tuple[str, list[tuple[str, str]]]] = [
        ("Loss", [("train_loss", "training"), ("validation_loss", "validation")])
    ]
    shares = [n for n in measured if n in ("accuracy", "macro_f1", "r2")]
    if shares:
        names = [(prefix + n, shown_name(n)) for n in shares]
        panels.append(("Validation " + (names[0][1] if len(names) == 1 else "scores"), names))
    errors = [n for n in measured if n in ("mae", "rmse")]
    if errors:
        panels.append(("Validation errors", [(prefix + n, shown_name(n)) for n in errors]))
    other = [n for n in measured if n not in (*shares, *errors, "loss")]
    panels += [(f"Validation {shown_name(n)}", [(prefix + n, shown_name(n))]) for n in other[:3]]
    rates = [value for value in curves.get("lr", {}).get("value", ()) if value]
    if rates and max(rates) > min(rates):
        panels.append(("Learning rate", [("lr", "learning rate")]))
    charts = []
    for title, lines in panels:
        marks = [Mark(best, f"best: {best}")] if isinstance(best, int) else []
        marks = [] if title == "Learning rate" else marks
        known = [(name, curves[key]) for key, name in lines if key in curves]
        charts += by_epoch(title, known, marks, powers=title == "Loss")
    return charts


def curves_of(columns: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Return the columns of a `History` as curves over the epochs, thinned for a screen."""
    epochs, curves = columns["epoch"], {}
    for name, values in columns.items():
        if name != "epoch":
            kept = thinned(values)
            curves[name] = {"epoch": epochs[kept].astype(int), "value": values[kept]}
    return curves


def by_epoch(
    title: str,
    curves: Iterable[tuple[str, Data]],
    marks: Sequence[Mark] = (),
    *,
    powers: bool = False,
) -> list[Chart]:
    """Return one chart of curves (name, {"epoch": ..., "value": ...}); [] without points."""
    known = [
        (name, array_of(curve["epoch"]), array_of(curve["value"]))
        for name, curve in curves
        if len(curve["value"])
    ]
    if not known:
        return []
    values = np.concatenate([y for *_, y in known])
    if any(name == "R²" for name, *_ in known):
        values = np.maximum(values, -1.0)  # the axis leaves out lower values
    lines = [
        Line(x, y, color, name, dots=len(x) <= DOTTED_POINTS)
        for color, (name, x, y) in enumerate(known, start=1)
    ]
    across = axis(*(x for _, x, _ in known), whole=True, margin=0.01)
    most = 1.0 if AT_MOST_ONE.issuperset(name for name, *_ in known) else np.inf
    up = axis(values, log=None if powers else False, most=most)
    return [Chart(title, across, up, [*lines, *marks], below="epoch")]


def prediction_charts(predictions: Data) -> list[Chart]:
    """Return charts of predictions against true values, and of calibration."""
    charts = [chart for one in predictions.get("targets", ()) for chart in _target(one)]
    if known := predictions.get("curves"):
        charts += _threshold_charts(known)
    if known := predictions.get("calibration"):
        values = (array_of(known[key]) for key in ("probability", "share", "rows"))
        charts.append(
            _shares(
                f"Calibration, {known['of']}", 0.0, "observed share", *values,
                below="mean probability of a bin",
                note="The observed share of each bin, with two standard errors. "
                "On the dotted line it equals the mean probability.",
            )
        )  # fmt: skip
    if known := predictions.get("sets"):
        levels = known["levels"]
        held = _columns(levels, "level", "share", "rows")
        sizes = ", ".join(f"{number(one['size'], 3)} for {one['level']:g}" for one in levels)
        charts.append(
            _shares(
                "Prediction sets", 0.4, "share inside", *held,
                below="nominal share",
                note="The share of true classes inside, with two standard errors. "
                f"Mean number of classes: {sizes}.",
            )
        )  # fmt: skip
    if known := predictions.get("intervals"):
        held = _columns(known["levels"], "level", "share", "rows")
        charts.append(
            _shares(
                "Prediction intervals", 0.4, "share inside", *held,
                below="nominal share",
                note="The share of true values inside, with two standard errors.",
            )
        )  # fmt: skip
    return charts


def _target(one: Data) -> list[Chart]:
    true, predicted, off = array_of(one["true"]), array_of(one["predicted"]), one["residuals"]
    both, name = axis(true, predicted), shortened(one["name"])
    edges, counts = array_of(off["edges"]), array_of(off["counts"])
    middle, deviation = off["quantiles"]["50 %"], off["deviation"]
    zero = [Mark(0.0)] if edges[0] < 0 < edges[-1] else []
    return [
        Chart(
            f"Predicted {name} against true", both, both, [Diagonal(), Points(true, predicted)],
            below="true",
            words=[f"{plural(len(true), 'row')}; the dotted line is a perfect prediction"],
        ),
        Chart(
            f"Predicted - true {name}", axis(edges, margin=0), axis(counts, zero=True),
            [Bars(edges, counts), *zero],
            below=f"median {number(middle, 3)}, standard deviation {number(deviation, 3)}",
            words=[f"mean {number(off['mean'])}, largest {number(off['largest'])}"],
        ),
        Chart(
            f"Errors by prediction, {name}", axis(predicted), axis(predicted - true),
            [Points(predicted, predicted - true), HorizontalLine(0.0)],
            below="predicted",
        ),
    ]  # fmt: skip


def _threshold_charts(known: Data) -> list[Chart]:
    """Return the ROC, precision-recall and gain curves, with a dot at the threshold."""
    unit, at = axis([0.0, 1.0], margin=0.02), known["decisions"][0]
    of, dot = shortened(known["of"], 24), f"threshold {number(known['threshold'], 3)}"

    def chart(title: str, across: str, up: str, below: str, *more: Shape, note: str) -> Chart:
        line = Line(array_of(known[across]), array_of(known[up]), 1, up.replace("_", " "))
        point = Points(array_of([at[across]]), array_of([at[up]]), 2, dot)
        return Chart(f"{title}, {of}", unit, unit, [*more, line, point], below=below, note=note)

    area = number(known["area"], 3)
    return [
        chart("ROC curve", "false_positive_rate", "recall", "false positive rate", Diagonal(),
              note=f"Area under the curve: {area}."),
        chart("Precision and recall", "recall", "precision", "recall",
              note=f"At the threshold: precision {number(at['precision'], 3)}, "
              f"recall {number(at['recall'], 3)}."),
        chart("Gain", "rows", "recall", "share of rows, likeliest first", Diagonal(),
              note=f"Above the threshold: {_percent(at['rows'])} of the rows, "
              f"with {_percent(at['recall'])} of class {of}."),
    ]  # fmt: skip


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def _shares(
    title: str, low: float, name: str, wanted: Array, share: Array, rows: Array, **words: str
) -> Chart:
    """Return a chart of measured shares, with two standard errors, against nominal shares."""
    unit, curve = axis([low, 1.0], margin=0), Line(wanted, share, 1, name, dots=True)
    return Chart(title, unit, unit, [Diagonal(), _errors(wanted, share, rows), curve], **words)


def _errors(x: Array, share: Array, rows: Array) -> Spans:
    """Return intervals of two standard errors around shares of rows."""
    error = 2 * np.sqrt(np.maximum(share * (1 - share), 0.25 / rows) / rows)
    return Spans(x, np.maximum(share - error, 0), np.minimum(share + error, 1))


def _columns(rows: Sequence[Data], *names: str) -> Iterator[Array]:
    return (array_of([one[name] for one in rows]) for name in names)


def shades(counts: Array) -> Array:
    """Return shades from 0 to `SHADES` for a confusion matrix, by share of the row's sum."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    levels: Array = np.ceil(shares * SHADES * 0.999).astype(int)
    return levels


def dependence_charts(curves: Iterable[Data], outputs: Sequence[object]) -> list[Chart]:
    """Return a chart of the partial dependence on each column."""
    return [chart for curve in curves for chart in _dependence(curve, outputs)]


def _dependence(curve: Data, outputs: Sequence[object]) -> list[Chart]:
    lines = [array_of(values) for values in curve["predictions"]]
    if not lines or not len(lines[0]):
        return []
    spans = [float(np.ptp(values)) for values in lines]
    shown = sorted(np.argsort(spans, kind="stable")[::-1][:5].tolist())
    if len(lines) == 2 and len(outputs) == 2:
        shown = [1]
    values, name = curve["values"], shortened(curve["column"])
    if curve.get("kind") in ("date", "boolean"):
        values = [number_text(curve["kind"], float(round(value))) for value in values]
    if any(isinstance(value, str) for value in values):
        k = shown[-1] if len(shown) == 1 else int(np.argmax(spans))
        return [by_name(name, values, lines[k], f"mean prediction of {shortened(outputs[k], 24)}")]
    x = array_of(values)
    drawn = [
        Line(x, lines[k], color, shortened(outputs[k], 24), dots=True)
        for color, k in enumerate(shown, start=1)
    ]
    shown_output = f" of {shortened(outputs[shown[0]], 24)}" if len(shown) == 1 else ""
    up = f"Vertical axis: mean prediction{shown_output}."
    heights, across = axis(*(line.y for line in drawn)), axis(x)
    if 1 < len(x) <= FEW and (x == np.rint(x)).all():
        across = across._replace(ticks=tuple((at, number(at)) for at in sorted(x.tolist())))
    return [Chart(name, across, heights, drawn, below="value of the column", note=up)]


def by_name(
    title: str, names: Sequence[object], values: Array, below: str, *, zero: bool = False
) -> Chart:
    """Return a chart with a dot for each name, from top to bottom."""
    up = name_axis(names)
    words = [f"{name}: {number(x)}" for name, x in zip(names, values.tolist(), strict=True)]
    dots = Points(values, array_of(place for place, _ in up.ticks))
    return Chart(title, axis(values, zero=zero), up, [dots], below=below, words=words)


def contribution_chart(
    output: object, names: Sequence[object], values: Array, errors: Array, base: float
) -> Chart:
    """Return a chart of the contributions of columns to one prediction, with standard errors."""
    title, below = f"Contributions to {shortened(output)}", "change of the prediction"
    chart = by_name(title, names, values, below, zero=True)
    note = f"Start: {number(base)}, the mean over the background.  Lines: one standard error."
    ends = np.column_stack([values - errors, values + errors, values])
    rows = np.array([[place, place, np.nan] for place, _ in chart.y.ticks])
    bars = Line(ends.ravel(), rows.ravel())
    shapes = [Mark(0.0), bars, *chart.shapes]
    return chart._replace(x=axis(ends, zero=True), shapes=shapes, note=note)


def gradient_charts(samples: Data) -> list[Chart]:
    """Return charts of norms, update ratios, gradients by layer, units and the noise scale."""
    panels = (_norms, _updates, _gradients, _units, _noise)
    return [chart for chart in (panel(samples) for panel in panels) if chart is not None]


def _by_step(title: str, steps: Array, up: Axis, shapes: Sequence[Shape], note: str = "") -> Chart:
    across = axis(steps, whole=True, margin=0)
    return Chart(title, across, up, shapes, below="step", note=note)


def _norms(known: Data) -> Chart:
    steps, net = array_of(known["steps"]), known["net"]
    norms, clip = array_of(net["gradient_norm"]), known["clip"]
    shapes: list[Shape] = [Line(steps, norms, 1, "before clipping" if clip else "norm")]
    if clip:
        shapes += [Line(steps, array_of(net["clipped_norm"]), 2, "after clipping")]
        shapes += [HorizontalLine(float(f"{clip:.4g}"), "clip")]
    return _by_step("Gradient norm", steps, axis(norms, log=None), shapes)


def _updates(known: Data) -> Chart | None:
    note = "Norm of a step over the norm of the weights, by layer."
    return _by_layer("Update ratio", known, "update_ratio", known["guide"], note)


def _gradients(known: Data) -> Chart | None:
    note = "Root mean square of the gradient of the weights, by layer."
    return _by_layer("Gradient RMS by layer", known, "gradient_rms", None, note)


def _by_layer(
    title: str, known: Data, quantity: str, guide: float | None, note: str
) -> Chart | None:
    """Return a chart of a quantity of each layer by step; `guide` is a typical value.

    The axis is logarithmic and leaves out zeros, unless all values are zero.
    """
    steps = array_of(known["layer_steps"])
    layers = {layer: array_of(v) for layer, v in known["by_layer"][quantity].items()}
    every = np.concatenate([*layers.values()])
    if not np.isfinite(every).any():
        return None
    is_zero = not (np.isfinite(every) & (every > 0)).any()
    if not is_zero:
        note += " The lines leave out values of 0." if (every == 0).any() else ""
        every = np.where(every > 0, every, np.nan)
        layers = {name: np.where(values > 0, values, np.nan) for name, values in layers.items()}
    shapes: list[Shape] = [] if guide is None else [HorizontalLine(guide, "usual")]
    shapes += [
        Line(steps, values, color, layer)
        for color, (layer, values) in enumerate(layers.items(), start=1)
    ]
    up = axis([0.0, guide or 1.0]) if is_zero else axis(every, [guide or np.nan], log=True)
    return _by_step(title, steps, up, shapes, note)


def _units(known: Data) -> Chart | None:
    steps = array_of(known["layer_steps"])
    curves = [
        (f"{layer}, {title}", array_of(values))
        for key, title in (("dead_share", "dead"), ("saturated_share", "saturated"))
        for layer, values in known["by_layer"][key].items()
    ]
    curves = [(name, values) for name, values in curves if np.isfinite(values).any()]
    if not curves:
        return None
    lines = [
        Line(steps, 100 * values, color, name)
        for color, (name, values) in enumerate(curves[: len(LIGHT)], start=1)
    ]
    limit = known["too_many"]
    limits = [HorizontalLine(100 * limit, "too many")] if limit else []
    shapes: list[Shape] = [*limits, *lines]
    return _by_step("Dead and saturated units, %", steps, axis([0.0, 100.0], margin=0.02), shapes)


def _noise(known: Data) -> Chart | None:
    steps, scale = array_of(known["steps"]), array_of(known["net"]["noise_scale"])
    scale = np.where(scale > 0, scale, np.nan)
    if not np.isfinite(scale).any():
        return None
    batch = known["batch_size"] or np.nan
    shapes: list[Shape] = [
        Line(steps, scale, 1, "noise scale"),
        HorizontalLine(float(batch), "batch size"),
    ]
    note = "The batch size at which noise equals signal."
    up = axis(scale, [batch], log=None)
    return _by_step("Gradient noise scale, rows", steps, up, shapes, note)
