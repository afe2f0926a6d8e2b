"""`Explanation`: the columns that predictions depend on, as text, data and HTML."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mlpengine.core.structure import finite
from mlpengine.core.wording import (
    columns_of,
    cut_apart,
    left,
    metric_text,
    plural,
    printable,
    shown_name,
)
from mlpengine.models.explain import Dependence, Importance
from mlpengine.models.task import PART_PHRASES

if TYPE_CHECKING:
    from mlpengine.drawing.cell import Cell
    from mlpengine.drawing.markup import Markup

EXPLAINED_ROWS = 5_000
"""Maximum number of rows that are permuted and predicted; they are evenly spaced."""

CURVES = 6
"""Maximum number of columns with partial dependence, the most important ones."""


class Explanation(NamedTuple):
    """The importance of columns by permutation, and partial dependence of the most important ones.

    Attributes:
        part: the rows: ``data``, or the part of a run.
        rows: number of rows.
        metric: name of the metric besides the loss, such as accuracy or R2.
        columns: number of all columns; if there are many, `importances` has only the columns to
            which the outputs are most sensitive.
        importances: importance of columns, the largest rise of the loss first.
        dependence: a curve for each of the most important columns.
        outputs: names of the outputs in `dependence`: targets, classes or labels.
    """

    part: str
    rows: int
    metric: str
    columns: int
    importances: Sequence[Importance]
    dependence: Sequence[Dependence]
    outputs: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as data for JSON."""
        curves = [
            one._asdict() | {"predictions": one.predictions.T.tolist()} for one in self.dependence
        ]
        rows = [one._asdict() for one in self.importances]
        plain: dict[str, Any] = finite(
            {**self._asdict(), "importances": rows, "dependence": curves}
        )
        return plain

    def __repr__(self) -> str:
        first = [f"{printable(one.column)} {metric_text(one.loss)}" for one in self.importances[:3]]
        more = ", ..." if len(self.importances) > len(first) else ""
        return f"Explanation(loss rises by: {', '.join(first)}{more})"

    def __str__(self) -> str:
        where, ranked = f"{self.rows:,} {PART_PHRASES[self.part]}", self.importances
        names = cut_apart([printable(row.column) for row in ranked], 60)
        width = max(12, *(columns_of(name) + 2 for name in names))
        lines = [
            f"when a column's values are permuted ({where}; +-: standard error):",
            f"{'':<{width}}{'loss rises by':>22}{f'{self.metric} falls by':>22}",
        ]
        lines += [
            f"{left(name, width)}"
            f" {f'{metric_text(row.loss)} +- {metric_text(row.loss_error)}':>21}"
            f" {f'{metric_text(row.metric)} +- {metric_text(row.metric_error)}':>21}"
            for name, row in zip(names, ranked, strict=True)
        ]
        if len(ranked) < self.columns:
            few = f"only the {len(ranked)} of {self.columns:,} columns"
            lines.append(f"{few} to which the outputs are most sensitive were permuted")
        return "\n".join(lines)

    def plot(self) -> "Cell":
        """Return charts of partial dependence, as SVG for a notebook."""
        from mlpengine.drawing.cell import chart_cell
        from mlpengine.drawing.charts import dependence_charts

        known = self.as_dict()
        return chart_cell(repr(self), dependence_charts(known["dependence"], self.outputs))

    def _repr_html_(self) -> str:
        from mlpengine.drawing.cell import cell_html

        return cell_html(explanation_markup(self.as_dict()))


def explanation_markup(known: Mapping[str, Any]) -> "Markup":
    """Return the data of an explanation as a table and charts.

    If `known` has only the first importances, ``permuted`` is the number of all importances.
    """
    from mlpengine.drawing.charts import dependence_charts
    from mlpengine.drawing.markup import joined, scrolling_table, shortened, tag, with_error
    from mlpengine.drawing.svg import grid, strip

    ranked = known["importances"]
    permuted = known.get("permuted", len(ranked))
    bars = [(one["loss"] or 0.0, one["loss_error"] or 0.0) for one in ranked]  # or unknown
    highest = max(map(sum, bars), default=1.0)
    lines = [
        [
            shortened(one["column"]),
            strip(*bar, highest),
            with_error(one["loss"], one["loss_error"]),
            with_error(one["metric"], one["metric_error"]),
        ]
        for one, bar in zip(ranked, bars, strict=True)
    ]
    head = ["column", "", "loss rises by", f"{shown_name(known['metric'])} falls by"]
    more = known["columns"] - len(ranked)
    title = "Permutation importance of the columns" + (
        f" (the first {len(ranked)} of {known['columns']:,})" if more else ""
    )
    some = (
        f"Only {plural(known['permuted'], 'column')} to which the outputs are most sensitive were "
        "permuted. "
        if permuted < known["columns"]
        else ""
    )
    rows = f"{known['rows']:,} {PART_PHRASES[known['part']]}"
    text = (
        f"How much worse the model is on {rows} when the values of a column are permuted, with "
        f"standard errors over the rows. {some}"
    )
    charts = dependence_charts(known["dependence"], known["outputs"])
    if charts:
        text += (
            "Below, the mean prediction where all rows hold the same value of a column (partial "
            "dependence)."
        )
    table = scrolling_table(head, lines, title, words=1)
    return joined(tag("p", text, class_="soft"), table, grid(charts) if charts else None)
