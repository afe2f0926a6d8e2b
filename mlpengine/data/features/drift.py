"""How new rows differ from the training rows: texts, numbers, missing values, drift."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple
from unicodedata import normalize

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.core.wording import nearest, plural, quoted
from mlpengine.data.features.preprocessing import Preprocessor
from mlpengine.data.features.sources import check_numeric
from mlpengine.data.features.summary import ColumnState, bounds, shares_of
from mlpengine.data.features.thresholds import (
    COMPARED_TEXTS,
    KS_LIMIT,
    LISTED_COLUMNS,
    LISTED_TEXTS,
    ODDS,
)
from mlpengine.data.tables.table import Column, Table, number_text


class NewRows:
    """Counts differences between new rows and the training rows, table by table.

    `has_history` tells whether lags and windows had a table of earlier rows to read.
    """

    def __init__(self, preprocessor: Preprocessor, *, has_history: bool = False) -> None:
        self._has_history = has_history
        self._preprocessor = preprocessor
        self._columns = preprocessor.summary["columns"]
        self._trained_rows = preprocessor.summary["rows"]
        self._rows = 0
        self._texts: dict[str, Counter[str]] = {}
        self._far: dict[str, tuple[int, str]] = {}
        self._gaps: dict[str, int] = {}

    def add(self, table: Table) -> "NewRows":
        """Count the rows of a table."""
        self._rows += table.n_rows
        for name, texts in self._preprocessor.unknown_texts(table).items():
            self._texts.setdefault(name, Counter()).update(texts)
        for name, column in ((n, table.columns[n]) for n in self._columns if n in table):
            self._gaps[name] = self._gaps.get(name, 0) + int(column.missing.sum())
            if column.kind == "text" or "quantiles" not in self._columns[name]:
                continue
            low, high = bounds(self._columns[name])
            far = np.flatnonzero((column.values < low) | (column.values > high))
            if len(far):
                _count(self._far, name, len(far), column.text(int(far[0])))
        return self

    def lines(self) -> list[str]:
        """Return a line for each difference from the training rows."""
        texts = unknown_remarks(self._preprocessor, self._texts)
        far = far_remarks(self._preprocessor, self._far)
        gaps, derived = [], False
        for name, count in self._gaps.items():
            share = self._columns[name]["missing"]
            # rule of succession: the probability of a missing value is above 0 in any case
            likely = (share * self._trained_rows + 1) / (self._trained_rows + 2)
            expected = self._rows * likely
            if count > expected + ODDS * np.sqrt(expected * (1 - likely)):
                derived = derived or name in self._preprocessor.history.names
                gaps.append(
                    f"column {name!r}: {count:,} of {plural(self._rows, 'value')} missing, more "
                    f"than in training ({_percent(share)})"
                )
        hint = (
            "lags and windows lack earlier rows; give them in the same table or request, by "
            "--history, or by model.table(rows, history)"
        )
        if self._has_history:
            hint = "lags and windows lack values of earlier rows (new rows may have no target yet)"
        return [
            *_first(texts, "with texts unknown to the model"),
            *_first(far, "with rows far outside the training range"),
            *_first(gaps, "with more missing values than in training"),
            *([hint] if derived else []),
        ]


def _first(lines: list[str], what: str) -> list[str]:
    """Return at most `LISTED_COLUMNS` lines, then a line with the number of further columns."""
    more = len(lines) - LISTED_COLUMNS
    return lines if more <= 0 else [*lines[:-more], f"{plural(more, 'more column')} {what}"]


def unknown_remarks(preprocessor: Preprocessor, unknown: Mapping[str, Counter[str]]) -> list[str]:
    """Return a line for each column in `unknown`, with some texts and the most similar levels."""
    options = preprocessor.options
    why = f"new, or in fewer than {plural(options.min_count, 'training row')}"
    if options.max_levels is not None:
        why += f", or not among the {options.max_levels} most frequent"
    levels = {category.column: category.levels for category in preprocessor.categories}
    remarks = []
    for name, texts in unknown.items():
        found = texts.most_common(COMPARED_TEXTS)
        similar = {text: nearest(text, levels[name]) for text, _ in found}
        found.sort(key=lambda one: similar[one[0]] is None)  # misspelt levels first
        listed = []
        for text, count in found[:LISTED_TEXTS]:
            near = similar[text] or ""
            show = ascii if normalize("NFC", text) == normalize("NFC", near) else quoted
            told = f", near {show(near)}" * bool(near)
            listed.append(f"{show(text)} ({plural(count, 'row')}{told})")
        if (more := len(texts) - len(listed)) > 0:
            listed.append(plural(more, "other text"))
        remarks.append(
            f"column {name!r}: {plural(texts.total(), 'row')} with a text unknown to the model: "
            f"{', '.join(listed)}; such texts are {why}"
        )
    return remarks


def far_remarks(preprocessor: Preprocessor, far: Mapping[str, tuple[int, str]]) -> list[str]:
    """Return a line for each column in `far`: the number of far rows, and an example."""
    columns = preprocessor.summary["columns"]
    return [
        f"column {name!r}: {plural(count, 'row')} far outside the training range, such as {value} "
        f"({_range(columns[name], preprocessor.kinds[name] == 'date')})"
        for name, (count, value) in far.items()
    ]


def _count(counts: dict[str, tuple[int, str]], name: str, count: int, value: str) -> None:
    before, first = counts.get(name, (0, value))
    counts[name] = before + count, first


def _range(one: ColumnState, is_date: bool) -> str:
    ends = [one["quantiles"][place] for place in (0, -1)]
    texts = [number_text("date", end) if is_date else f"{end:.6g}" for end in ends]
    return " to ".join(texts)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


class Drift(NamedTuple):
    """How far a column's new values are from its training values, 0 to 1.

    For numbers, `values` is the largest difference between the distribution functions (Kolmogorov
    and Smirnov).  For texts, `values` is the largest difference between the shares of a text.
    `values` ignores missing values.  `missing` and `trained_missing` are the shares of missing
    values in new rows and in training.  `is_odd` is True if chance does not explain the drift.
    """

    column: str
    values: float
    missing: float
    trained_missing: float
    is_odd: bool

    @property
    def value(self) -> float:
        """The larger of the two differences: of values, and of the shares of missing values."""
        return max(self.values, abs(self.missing - self.trained_missing))


def drifts(preprocessor: Preprocessor, table: Table) -> list[Drift]:
    """Return the drift of each column of a table, the largest first."""
    preprocessor.features_of(table)
    levels = {category.column: category for category in preprocessor.categories}
    columns = []
    for name, one in preprocessor.summary["columns"].items():
        column = table[name]
        values = 0.0
        known = int((~column.missing).sum())
        if known and name in levels:
            shares = shares_of(levels[name], table)
            values = float(np.abs(shares - np.array(one["shares"])).max())
        elif known and "quantiles" in one:
            check_numeric(table, name)
            values = _distance(column, np.array(one["quantiles"]))
        missing = float(column.missing.mean())
        before = preprocessor.summary["rows"] * (1 - one["missing"])
        limit = KS_LIMIT * np.sqrt(1 / max(known, 1) + 1 / max(before, 1))
        spread = np.sqrt(max(one["missing"] * (1 - one["missing"]), 1e-12) / table.n_rows)
        is_odd = values > limit or abs(missing - one["missing"]) > ODDS * spread
        columns.append(Drift(name, values, missing, one["missing"], bool(is_odd)))
    return sorted(columns, key=lambda drift: -drift.value)


def _distance(column: Column, quantiles: Array) -> float:
    """Return the largest difference between the distribution functions at the stored quantiles."""
    known = np.sort(column.values[~column.missing].astype(np.float64))
    places = np.unique(quantiles)
    steps = len(quantiles) - 1
    largest = 0.0
    for side in ("left", "right"):
        share = np.searchsorted(known, places, side) / len(known)
        rank = np.searchsorted(quantiles, places, side)
        # the share of training values up to a place is between low and high
        low, high = np.maximum(rank - 1, 0) / steps, np.minimum(rank, steps) / steps
        largest = max(largest, float(np.maximum(low - share, share - high).max()))
    return largest
