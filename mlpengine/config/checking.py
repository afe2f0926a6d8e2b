"""Problems of a table before training: `TableCheck`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mlpengine.config.load import ConfigFile
from mlpengine.config.tables import history_of, profiled_table, unread_columns
from mlpengine.core.wording import plural
from mlpengine.data.features.checks import Profile, profile
from mlpengine.data.tables import Table
from mlpengine.data.tables.progress import OnProgress


class TableCheck(NamedTuple):
    """The columns of a table, and their problems.

    Attributes:
        facts: types, missing values and ranges of columns; classes, leaks, duplicate rows.
        dropped: the columns that training leaves out, each with the reason in the data, or "".
        warnings: a line for each problem of a column that is not dropped, and for each dropped
            column that encodes the target.
    """

    facts: Profile
    dropped: dict[str, str]
    warnings: list[str]

    @classmethod
    def of(
        cls,
        file: ConfigFile,
        table: Table,
        targets: Sequence[str],
        progress: OnProgress | None = None,
    ) -> "TableCheck":
        """Describe the table of a config.  Raises: DataError for a target that cannot be used."""
        data, rows = file.config.data, profiled_table(file, table)
        kind = None if data.task == "auto" else data.task
        if data.event is not None:
            rows, kind = rows.drop([data.event]), "survival"
        earlier = history_of(file).names  # lags of the target are no leaks
        facts = profile(rows, targets, task=kind, trusted=earlier, progress=progress)
        used = (data.weight, data.exposure)
        facts = replace(facts, drop={n: why for n, why in facts.drop.items() if n not in used})
        if unread := unread_columns(file):
            text = "not read: data.drop of a table with data.stream"
            columns = [replace(c, summary=text) if c.name in unread else c for c in facts.columns]
            drop = {name: why for name, why in facts.drop.items() if name not in unread}
            facts = replace(facts, columns=columns, drop=drop)
        dropped = reasons(file, facts)
        return cls(facts, dropped, [*facts.recodings(dropped), *facts.warnings(dropped)])

    def as_dict(self) -> dict[str, Any]:
        """Return everything as data for JSON."""
        return {**self.facts.as_dict(), "warnings": self.warnings, "dropped": self.dropped}

    def __repr__(self) -> str:
        size = f"{plural(self.facts.n_rows, 'row')}, {plural(len(self.facts.columns), 'column')}"
        dropped, warnings = f"{len(self.dropped)} dropped", plural(len(self.warnings), "warning")
        return f"TableCheck({size}, {dropped}, {warnings})"

    def __str__(self) -> str:
        lines = []
        for name, why in self.dropped.items():
            warned = any(why in line for line in self.warnings)  # a warning has the reason, too
            lines.append(f"dropped: {name}" + (f" ({why})" if why and not warned else ""))
        warnings = map("warning: {}".format, self.warnings)
        return "\n".join([*self.facts.lines(), *lines, *warnings])

    def _repr_html_(self) -> str:
        from mlpengine.drawing.cell import cell_html
        from mlpengine.drawing.markup import scrolling_table, shortened, tag

        rows = []
        for one in self.facts.columns:
            why = self.dropped.get(one.name)
            left = "" if why is None else f"dropped: {why}" if why else "dropped"
            counts = (f"{one.distinct:,}", f"{one.missing:,}")
            cells = [shortened(one.name), one.kind, shortened(one.summary, 60), *counts]
            rows.append([*cells, tag("td", left)])
        head = ["column", "type", "range, or frequent values", "distinct", "missing", ""]
        size = f"{plural(self.facts.n_rows, 'row')}, {plural(len(rows), 'column')}"
        table = scrolling_table(head, rows, size, words=3)
        return cell_html(table, tag("ul", *(tag("li", line) for line in self.warnings)))


def reasons(file: ConfigFile, facts: Profile) -> dict[str, str]:
    """Return the columns that the config leaves out, with reasons found in the data."""
    data = file.config.data
    known = {leak.column: leak.reason for leak in facts.leaks}
    shown = {name: known.get(name) or facts.drop.get(name, "") for name in data.drop}
    dates = {column.name for column in facts.columns if column.kind == "date"}
    for use, name in (("groups", data.split.group), ("times", data.split.time)):
        if name:
            shown[name] = f"{use} of the split"
    if data.split.time in dates - {*data.drop}:
        shown[data.split.time] += "; features of hour, weekday or season come from it"
    return shown
