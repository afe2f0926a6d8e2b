"""Values far from all others in a column: mistakes, or values that would dominate the training."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.data.features.thresholds import (
    LONE_DISTANCE,
    LONE_TIMES,
    MIN_SAMPLE_VALUES,
    OUTLIER_DISTANCE,
)
from mlpengine.data.tables.parsing import MISSING
from mlpengine.data.tables.table import Column, Table, number_text

GAP_CODES = tuple(sign * (10**k - 1) for k in range(1, 10) for sign in (1, -1))
"""Numbers that stand for missing values in some tables: 9, -9, 99, -99, up to nine digits."""

GAP_DATES = tuple(
    np.array(["9999-12-31", "1970-01-01", "1900-01-01", "0001-01-01"], "M8[s]").astype(float)
)
"""Dates that stand for missing values in some tables, in seconds since 1970."""


class Outlier(NamedTuple):
    """The value of a column that is farthest from the median.

    `times` is the distance from the median, divided by the range of the middle 90 % of the values.
    `text` is a message.  `keep` is a filter that leaves out only this value, such as "`a` <= 9".
    """

    column: str
    times: float
    text: str
    keep: str


class Gap(NamedTuple):
    """A value that may stand for missing values, its number of rows, and the range of the rest."""

    text: str
    times: int
    low: str
    high: str


def gap_code(column: Column) -> str:
    """Return a message about values that may stand for missing values, or ""."""
    if column.kind == "text":
        return _gap_texts(column)
    if (gap := find_gap(column)) is None:
        return ""
    return (
        f"{plural(gap.times, 'value is', 'values are')} {gap.text}, the others {gap.low} to "
        f"{gap.high}; if that is a missing value, add '{gap.text}' to data.na_values"
        + (", written as in the file" if column.kind == "date" else "")
    )


def find_gap(column: Column) -> Gap | None:
    """Return a number or date of a column that may stand for missing values.

    Such a value is the smallest or the largest.  Its distance to all other values exceeds twice
    their range.  A value in `GAP_CODES` or `GAP_DATES` occurs at least twice, beside three other
    values.  Another number except 0 occurs at least three times, beside ten other values.
    """
    kind, values = column.kind, column.values
    known = {"number": GAP_CODES, "date": GAP_DATES}.get(kind, ())
    for code in (np.fmin.reduce(values), np.fmax.reduce(values)):
        count, is_known = int((values == code).sum()), float(code) in known
        is_other = kind == "number" and count > 2 and code and np.isfinite(code)
        if not is_other and not (is_known and count > 1):
            continue
        others = (distinct := column.distinct())[distinct != code]
        if len(others) < (3 if is_known else 10):
            continue
        near, far = map(float, others[[0, -1]] if code < others[0] else others[[-1, 0]])
        if abs(float(code) - near) > 2 * abs(far - near):
            texts = (number_text(kind, end) for end in (code, others[0], others[-1]))
            shown, low, high = (text.removesuffix("T00:00:00") for text in texts)
            return Gap(shown, count, low, high)
    return None


def _gap_texts(column: Column) -> str:
    """Return a message about levels that usually mean missing values, or ""."""
    gaps = [level for level in column.used_levels() if level in MISSING]
    if not gaps:
        return ""
    count = int(np.isin(column.values, [column.levels.index(gap) for gap in gaps]).sum())
    texts = ", ".join(map(repr, gaps))
    return (
        f"{plural(count, 'value is', 'values are')} the text {texts}; if that is a missing value, "
        f"add {texts} to data.na_values"
    )


def find_outliers(
    table: Table,
    names: Iterable[str],
    rows: Array | None = None,
    targets: Sequence[str] = (),
) -> list[Outlier]:
    """Return the value farthest from the median in each number column, if it is an outlier.

    Distances from the median are in units of the range of the middle 90 % of the values.  If this
    range is 0, the unit is the median of all distances above 0.  An outlier is farther than
    `OUTLIER_DISTANCE`.  In a target, a single value may dominate the loss.  In `targets`, a value
    farther than `LONE_DISTANCE`, and `LONE_TIMES` as far as any other value, is also an outlier.
    A column in which `find_gap` finds a value has no outlier.
    """
    outliers = []
    for name in names:
        if name not in table or table[name].kind != "number":
            continue
        values = table[name].values if rows is None else table[name].values[rows]
        finite = np.isfinite(values)
        sample = values[:: max(1, len(values) // MIN_SAMPLE_VALUES)]
        sample = sample[np.isfinite(sample)]
        if len(sample) < 3:
            continue
        with np.errstate(all="ignore"):  # distances of huge numbers may be infinite
            # np.quantile and np.median take ten times as long, and import numpy.ma
            sample.sort()
            low, middle, high = (sample[int(share * len(sample))] for share in (0.05, 0.5, 0.95))
            distances = np.where(finite, np.abs(values - middle), 0.0)
            others = distances[distances > 0]
            spread = high - low or (np.sort(others)[len(others) // 2] if len(others) else 0.0)
            place = int(distances.argmax())
            times = float(distances[place] / spread)
            rest = values[values != values[place]]
            alone = (
                name in targets
                and times > LONE_DISTANCE
                and (distances[place] > LONE_TIMES * np.delete(distances, place).max())
            )
        if (times > OUTLIER_DISTANCE or alone) and find_gap(Column(values)) is None:
            where = table.where(name, place if rows is None else int(rows[place]))
            low, high = np.nanmin(rest), np.nanmax(rest)
            text = f"{where} is {_shown(values[place])}, the others {_shown(low)} to {_shown(high)}"
            bound = f"<= {high:.15g}" if values[place] > high else f">= {low:.15g}"
            outliers.append(Outlier(name, times, text, f"`{name}` {bound}"))
    return outliers


def _shown(value: float) -> str:
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:g}"
