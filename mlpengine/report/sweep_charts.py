"""The charts of sweeps, made from the data of a report."""

from collections.abc import Sequence

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.core.wording import as_setting, shown_name
from mlpengine.drawing.chart_types import Axis, Chart, Line, Points, Shape, array_of, axis
from mlpengine.drawing.charts import Data, by_name
from mlpengine.drawing.markup import shortened
from mlpengine.models.metrics import higher_is_better

SHOWN_KEYS, SHOWN_CHOICES = 9, 12


def sweep_charts(sweep: Data) -> list[Chart]:
    """Return charts of the metric by trial and by each setting, the important settings first."""
    done = _complete(sweep)
    keys = list(dict.fromkeys(key for one in done for key in one["values"]))
    ranked = sorted(keys, key=lambda key: -sweep["importance"].get(key, 0.0))
    return [*trial_charts(sweep), *(_against(sweep, key, done) for key in ranked[:SHOWN_KEYS])]


def trial_charts(sweep: Data) -> list[Chart]:
    """Return a chart of the metric by trial number, with the best value so far."""
    done = sorted(_complete(sweep), key=lambda one: one["number"])
    if not done:
        return []
    numbers, values = array_of(t["number"] for t in done), array_of(t["value"] for t in done)
    best = np.maximum if higher_is_better(sweep["metric"]) else np.minimum
    shapes: list[Shape] = [
        Points(numbers, values, 1, "trial"),
        Line(numbers, best.accumulate(values), 2, "best so far"),
    ]
    title = f"Trials: {shown_name(sweep['metric'])}"
    up = _metric_axis(sweep, values)
    return [Chart(title, axis(numbers, whole=True), up, shapes, below="trial")]


def _complete(sweep: Data) -> list[Data]:
    return [one for one in sweep["trials"] if one["value"] is not None]


def _metric_axis(sweep: Data, values: Array) -> Axis:
    return axis(values, log=False if higher_is_better(sweep["metric"]) else None)


def _against(sweep: Data, key: str, done: Sequence[Data]) -> Chart:
    pairs = [(one["values"][key], one["value"]) for one in done if key in one["values"]]
    y = array_of(value for _, value in pairs)
    title, metric = shortened(key), shown_name(sweep["metric"])
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v, _ in pairs):
        x = array_of(value for value, _ in pairs)
        across = axis(x, log=float(x.max()) > 50 * float(x.min()) > 0)
        below = f"value (vertical axis: {metric})"
        return Chart(title, across, _metric_axis(sweep, y), [Points(x, y)], below=below)
    by_choice: dict[str, list[float]] = {}
    for value, measured in pairs:
        by_choice.setdefault(as_setting(value), []).append(measured)
    shown = dict(list(by_choice.items())[:SHOWN_CHOICES])
    means = array_of(float(np.mean(values)) for values in shown.values())
    return by_name(title, [*shown], means, f"mean {metric}")
