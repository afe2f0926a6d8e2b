"""Contributions of columns to one prediction, by sampled Shapley values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.core.wording import columns_of, left, metric_text, printable
from mlpengine.models.background import representative
from mlpengine.models.forward import BLOCK_ROWS

if TYPE_CHECKING:
    from mlpengine.drawing.cell import Cell
    from mlpengine.drawing.chart_types import Chart

EVALUATIONS = 4_096
"""Maximum number of predicted rows per explanation; `LEAST_PAIRS` may need more rows."""

MULTIPLICATIONS = 1e9
"""Maximum number of multiplications per explanation, about 0.1 s of a core (Xeon, AVX-512)."""

LEAST_PAIRS, MOST_PAIRS = 32, 1_000
"""Minimum and maximum number of pairs of orders; see `shapley_values`.

A pair is a random order of the columns and the reverse order, both for one background row."""

PLOTTED_COLUMNS = 12
"""Maximum number of columns in a chart."""


def shapley_values(
    predict: Callable[[Array], Array],
    row: Array,
    background: Array,
    columns: Sequence[str],
    *,
    evaluations: int = EVALUATIONS,
    seed: int = 0,
) -> tuple[Array, Array, Array]:
    """Return contributions of columns to a prediction, their standard errors, and the base.

    In a random order, one column after another changes from its value in a background row to its
    value in `row`.  The contribution of a column is the mean change of the prediction in its turn,
    over many orders.  Each background row has a random order and the reverse order (antithetic).
    `base` is the mean prediction of the background; base and contributions add up to the
    prediction.  `columns` has the column of each feature.  `predict` maps features to predictions
    (rows, outputs); it gets about `evaluations` rows in total.

    Shapes: row (features,), background (rows, features); contributions and errors
    (columns, outputs), base (outputs,).

    Sources: Castro, Gomez and Tejada 2009, "Polynomial calculation of the Shapley value based on
    sampling"; Mitchell et al. 2022, arXiv 2104.12199, section 3.1, for antithetic orders.
    """
    names = {name: k for k, name in enumerate(dict.fromkeys(columns))}
    place, count = np.array([names[name] for name in columns], np.int64), len(names)
    pairs = pairs_of(count, evaluations)
    pairs -= pairs % min(len(background), pairs)  # all rows equally often
    rng = np.random.Generator(np.random.PCG64(seed))
    predicted = predict(background)
    kept = representative(predicted, predicted.mean(axis=0), pairs, rng)
    chosen = np.resize(rng.permutation(kept), pairs)
    order = np.argsort(rng.random((pairs, count)), axis=1)
    both = np.stack([order, order[:, ::-1]], axis=1)
    turn = np.argsort(both, axis=2)  # position of each column
    steps = np.arange(1, count)
    (end,) = predict(row[None])
    starts = predicted[chosen]
    values = np.empty((pairs, 2, count + 1, len(end)))
    values[:, :, 0], values[:, :, -1] = starts[:, None], end
    at_once = max(1, BLOCK_ROWS // max(1, 2 * (count - 1)))
    for first in range(0, pairs if count > 1 else 0, at_once):
        some = slice(first, first + at_once)
        changed = turn[some, :, None, :] < steps[:, None]  # (pairs, 2, steps, columns)
        x = np.where(changed[..., place], row, background[chosen[some], None, None, :])
        predicted = predict(x.reshape(-1, len(row)))
        values[some, :, 1:-1] = predicted.reshape(*x.shape[:3], -1)
    rises = np.take_along_axis(np.diff(values, axis=2), turn[..., None], axis=2).mean(axis=1)
    if len(kept) > 1:  # the pairs of one background row are no independent samples
        rises = rises.reshape(-1, len(kept), *rises.shape[1:]).mean(axis=0)
    errors = rises.std(axis=0, ddof=1) / np.sqrt(len(rises))
    return rises.mean(axis=0), errors, starts.mean(axis=0)


def pairs_of(columns: int, evaluations: int) -> int:
    """Return the number of pairs of orders for a number of columns."""
    return min(max(evaluations // (2 * columns), LEAST_PAIRS), MOST_PAIRS)


@dataclass(frozen=True, repr=False)
class RowExplanation:
    """The contributions of columns to the prediction of one row.

    Attributes:
        columns, values: names of the columns, and values of the row as text.
        outputs: names of the predictions: classes or labels (for probabilities), or numbers.
        prediction, base: prediction (outputs,) for the row, and mean prediction (outputs,) for the
            background rows.
        contributions, errors: contributions (columns, outputs) and their standard errors;
            contributions add up to `prediction` minus `base`.
        shown: indices of the outputs that `str` and HTML show.
        background: the number of background rows, and whether they were given or kept by the model.
    """

    columns: Sequence[str]
    values: Sequence[str]
    outputs: Sequence[str]
    prediction: Array
    base: Array
    contributions: Array
    errors: Array
    shown: Sequence[int]
    background: str

    def as_dict(self) -> dict[str, Any]:
        """Return everything as data for JSON."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }

    def __repr__(self) -> str:
        first = [f"{name} {metric_text(self.contributions[k, self.shown[0]])}"
                 for k, name in self._ranked[:3]]  # fmt: skip
        name, value = self.outputs[self.shown[0]], metric_text(self.prediction[self.shown[0]])
        return f"RowExplanation({printable(f'{name} {value}')}: {', '.join(map(printable, first))})"

    @property
    def _ranked(self) -> list[tuple[int, str]]:
        """Index and name of each column, the largest contribution first."""
        sizes = np.abs(self.contributions[:, list(self.shown)]).max(axis=1)
        return [(k, self.columns[k]) for k in np.argsort(-sizes, kind="stable").tolist()]

    def _lines(self, both: Callable[[float, float], str]) -> tuple[list[str], list[list[str]]]:
        """Return the titles and the lines of a table; the last line has the prediction.

        `both` writes a contribution and its error.
        """
        shown = list(self.shown)
        lines = [["mean of background", self.background, *map(metric_text, self.base[shown])]]
        lines += [
            [printable(name), printable(self.values[k]), *(
                both(c, e)
                for c, e in zip(self.contributions[k, shown], self.errors[k, shown], strict=True)
            )]
            for k, name in self._ranked
        ]  # fmt: skip
        lines.append(["prediction", "", *map(metric_text, self.prediction[shown])])
        return ["column", "value", *(printable(str(self.outputs[k])) for k in shown)], lines

    def __str__(self) -> str:
        titles, lines = self._lines(lambda c, e: f"{metric_text(c)} +- {metric_text(e)}")
        widths = [max(map(columns_of, cells)) for cells in zip(titles, *lines, strict=True)]
        return "\n".join(
            "  ".join(
                left("", width - columns_of(cell)) + cell if k > 1 else left(cell, width)
                for k, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
            for cells in (titles, *lines)
        )

    def _charts(self) -> "list[Chart]":
        from mlpengine.drawing.charts import contribution_chart

        first = self._ranked[:PLOTTED_COLUMNS]
        names, places = [name for _, name in first], [place for place, _ in first]
        return [
            contribution_chart(
                self.outputs[k],
                names,
                self.contributions[places, k],
                self.errors[places, k],
                self.base[k],
            )
            for k in self.shown
        ]

    def plot(self) -> "Cell":
        """Return charts of the largest contributions, as SVG for a notebook."""
        from mlpengine.drawing.cell import chart_cell

        return chart_cell(repr(self), self._charts())

    def _repr_html_(self) -> str:
        from mlpengine.drawing.cell import cell_html
        from mlpengine.drawing.markup import scrolling_table, with_error
        from mlpengine.drawing.svg import grid

        titles, lines = self._lines(with_error)
        table = scrolling_table(titles, lines, "Contributions of the columns", words=2)
        return cell_html(table, grid(self._charts()))
