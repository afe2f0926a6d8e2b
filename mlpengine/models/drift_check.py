"""New rows compared with the training rows of a model, column by column."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from mlpengine.core.wording import columns_of, left, plural, printable
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.drift import Drift, NewRows, drifts
from mlpengine.data.tables import Table


class DriftCheck(NamedTuple):
    """The drift of a table's columns from the training rows.

    Attributes:
        source: name of the table.
        rows: number of rows.
        columns: drift of each column, the largest first.
        warnings: a line for each difference from the training rows (`NewRows.lines`).
    """

    source: str
    rows: int
    columns: Sequence[Drift]
    warnings: Sequence[str]

    @classmethod
    def of(cls, preprocessor: Preprocessor, table: Table) -> "DriftCheck":
        """Compare a table with the training rows of a preprocessor."""
        columns = drifts(preprocessor, table)
        lines = NewRows(preprocessor).add(table).lines()
        return cls(table.source, table.n_rows, columns, lines)

    def beyond(self, limit: float) -> list[Drift]:
        """Return the columns with a drift above `limit` that chance does not explain."""
        return [one for one in self.columns if one.is_odd and one.value > limit]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as data for JSON."""
        columns = {one.column: {**one._asdict(), "value": one.value} for one in self.columns}
        for column in columns.values():
            del column["column"]
        return {"rows": self.rows, "columns": columns, "warnings": list(self.warnings)}

    def __repr__(self) -> str:
        odd = sum(one.is_odd for one in self.columns)
        of_all = f"{odd} of {plural(len(self.columns), 'column')}"
        return f"DriftCheck({plural(self.rows, 'row')}; {of_all} differ by more than chance)"

    def __str__(self) -> str:
        width = max((columns_of(printable(one.column)) for one in self.columns), default=0)
        size = plural(self.rows, "row")
        lines = [f"{self.source}: {size}, drift of each column from the training rows (0 to 1)"]
        for one in self.columns:
            gaps = f"{one.missing:.1%} missing (training {one.trained_missing:.1%})"
            odd = "" if one.is_odd else "  not significant"
            lines.append(f"  {left(printable(one.column), width)}  {one.values:.3f}  {gaps}{odd}")
        return "\n".join([*lines, *map("warning: {}".format, self.warnings)])

    def _repr_html_(self) -> str:
        from mlpengine.drawing.cell import cell_html
        from mlpengine.drawing.markup import scrolling_table, shortened, tag
        from mlpengine.drawing.svg import strip

        rows = [
            [
                shortened(one.column),
                strip(one.values, 0.0, 1.0, "f2" if one.is_odd else "plain"),
                f"{one.values:.3f}",
                f"{one.missing:.1%}",
                f"{one.trained_missing:.1%}",
                "" if one.is_odd else "not significant",
            ]
            for one in self.columns
        ]
        head = ["column", "", "drift", "missing", "in training", ""]
        title = f"{plural(self.rows, 'row')}, compared with the training rows"
        warnings = tag("ul", *(tag("li", line) for line in self.warnings))
        return cell_html(scrolling_table(head, rows, title, words=1), warnings)
