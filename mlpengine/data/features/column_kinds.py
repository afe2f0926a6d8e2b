"""Infer the kind of a feature column, and the task of a target, from the values."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.core.wording import plural, quoted
from mlpengine.data.features.thresholds import (
    FEW_LEVELS,
    FEW_TEXTS,
    MARKED_LEVELS,
    MAX_MARKS,
    MIN_COUNTS,
    MIN_MARKS,
    MIXED_SHARE,
    RARER,
    ROWS_PER_CLASS,
    SAMPLED_LEVELS,
)
from mlpengine.data.tables import parsing
from mlpengine.data.tables.dialect import NUMBER_MARKS, DecimalMark, Thousands
from mlpengine.data.tables.table import Column, number_text
from mlpengine.settings.features import TaskName

Marks: TypeAlias = tuple[DecimalMark | None, Thousands | None]

FeatureKind = Literal["number", "integer", "boolean", "date", "category", "text", "mixed", "empty"]


_CURRENCY = r"(?:[A-Z]{0,3}[$€£¥₹₽₩₺]|USD|EUR|GBP|CHF|JPY|')"
_UNIT = r"[^\W\d_]{1,6}[²³]?"
_MARKED = re.compile(
    rf"(?P<negative>\()?(?P<sign>[+\u2212-]?)(?:\s*(?P<before>{_CURRENCY}))?\s*"
    r"(?P<inner>[+\u2212-]?)"
    r"(?P<number>(?:[\d.,'\u2019][\d.,'\u2019\u00a0\u202f ]*)?\d(?:[eE][+-]?\d+|[dD][+-]\d+)?)"
    rf"(?P<trailing>[\u2212-]?)\s*(?P<after>[%‰°]|°[CF]|{_CURRENCY}|{_UNIT}(?:/{_UNIT})?)?\)?"
)

_DURATION = re.compile(r"(?:(-?\d+) days?,? \+?)?(\d+):(\d\d):(\d\d(?:\.\d+)?)")
_DIGITS = re.compile(r"[+-]?[\d.,'\u2019\u00a0\u202f ]+(?:[eE][+-]?\d+)?")


def kind_of(column: Column) -> FeatureKind:
    """Return the kind of a column as a feature.

    A level is a distinct text of a text column.  A column with more than `FEW_LEVELS` levels is
    `mixed` if nearly all levels are numbers.  Codes of equal length, such as postal codes with
    leading zeros, are not `mixed`.  Another text column is a `category` if it has at most
    `FEW_LEVELS` levels, or at most half as many levels as non-missing values.  All others, such as
    names and ids, are `text`, and cannot be features.  An `integer` column is a number, unless the
    setting `categorical` lists the column.
    """
    if column.kind != "text":
        if column.missing.all():
            return "empty"
        if column.kind == "number":
            return "integer" if column.is_integer else "number"
        return column.kind
    filled = int((column.values >= 0).sum())
    levels = column.used_levels()
    if not levels:
        return "empty"
    is_code = are_codes(levels) and len({*map(len, levels)}) == 1
    if len(levels) > FEW_LEVELS and not is_code and _number_share(levels) >= MIXED_SHARE:
        return "mixed"
    return "category" if len(levels) <= max(FEW_LEVELS, filled / 2) else "text"


def are_codes(levels: Sequence[str]) -> bool:
    """Return whether all levels are codes such as 007, or whole numbers beyond 2**53."""
    return all(level.lstrip("+-").isdigit() for level in levels)


def marked_number(column: Column) -> tuple[str, str] | None:
    """Return an example, such as ("12 %", "12"), if a text column has numbers with marks.

    Marks are units, percent and currency signs, parentheses around negative numbers, the
    typographic minus sign, a minus after the number, and exponents as in 1.5D-03.  Durations become
    seconds.  The result is None unless nearly all levels are numbers, with at most `MAX_MARKS`
    different marks.
    """
    if column.kind != "text":
        return None
    levels = column.used_levels()
    sample = levels[:: -(-len(levels) // SAMPLED_LEVELS) or 1]
    numbers: list[tuple[str, str]] = []
    marks = set()
    for level in sample:
        if parts := _DURATION.fullmatch(level):
            days, hours, minutes, seconds = map(float, parts.groups("0"))
            numbers.append((level, f"{((days * 24 + hours) * 60 + minutes) * 60 + seconds:.15g}"))
            continue
        match = _MARKED.fullmatch(level)
        if match is None or bool(match["negative"]) != level.endswith(")"):
            continue
        signs = {*match.group("sign", "inner", "trailing")}
        is_negative = match["negative"] or signs & {"-", "\u2212"}
        digits = match["number"].strip().lower().replace("d", "e")
        numbers.append((level, f"{'-' if is_negative else ''}{digits}"))
        marks.add((match["before"], match["after"]))
    marked = [pair for pair in numbers if pair[0] != pair[1] and not parsing.is_number(pair[0])]
    enough = len(numbers) >= max(MARKED_LEVELS, MIXED_SHARE * len(sample))
    return (
        marked[len(marked) // 2]
        if marked and enough and len(marks - {(None, None)}) <= MAX_MARKS
        else None
    )


def comma_text(column: Column) -> str | None:
    """Return a warning about a text column with numbers such as 1,5 or 1.234,5.

    The result is None unless nearly all levels are numbers with the same decimal mark.
    """
    if column.kind != "text":
        return None
    levels = column.used_levels()
    sample = levels[:: -(-len(levels) // SAMPLED_LEVELS) or 1]
    if sum(map(bool, map(_DIGITS.fullmatch, sample))) < MIXED_SHARE * len(sample):
        return None
    texts = [level for level in levels if not parsing.is_number(level)]
    marks, read = _read_by_marks(texts)
    others = [level for level in texts if level not in read]
    if not read or len(others) > (1 - MIXED_SHARE) * len(levels):
        return None
    if others and kind_of(column) == "mixed":
        return None  # correcting the marks would not be enough
    numbers = _numbers(levels)
    points = [level for level in levels if level not in numbers and parsing.is_number(level)]
    fewer = points or list(read)
    value, known = fewer[len(fewer) // 2], {*fewer}
    count = int(np.array([*(one in known for one in column.levels), False])[column.values].sum())
    written = value.replace(".", ",") if points else number_text("number", read[value])
    advice = f"write {written}"
    if others:
        advice += f", and correct {quoted(others[0])}"
    elif isinstance(parsing.formatted_numbers(levels, *marks), list):
        keys = f"data.decimal: {marks[0] or ','!r}"
        keys += f" and data.thousands: {marks[1]!r}" if marks[1] else ""
        advice += f", or set {keys} if all columns are written so"
    else:
        advice += ", with one decimal mark in the whole column"
    rows = plural(len(column.values), "value")
    return f"{count:,} of {rows} are like {value!r}, so that all are read as text; {advice}"


def _read_by_marks(levels: Sequence[str]) -> tuple[Marks, dict[str, float]]:
    """Return the marks that read most levels as numbers, and the number of each such level."""
    return max(
        ((marks, _numbers_by(levels, marks)) for marks in NUMBER_MARKS),
        key=lambda pair: len(pair[1]),
    )


def _numbers_by(levels: Iterable[str], marks: Marks) -> dict[str, float]:
    parsed = ((level, parsing.formatted_numbers([level], *marks)) for level in levels)
    return {level: values[0] for level, values in parsed if isinstance(values, list)}


def _numbers(levels: Iterable[str], *, padded: bool = True) -> dict[str, float]:
    """Return the number of each level that is a number.

    If more levels have decimal commas than points, a point is not read as a decimal mark.
    """
    known = ((one, parsing.parse_numbers([one], frozenset(), padded=padded)) for one in levels)
    each = {level: None if value is None else float(value[0]) for level, value in known}
    numbers = {level: value for level, value in each.items() if value is not None}
    texts = [level for level, value in each.items() if value is None and _DIGITS.fullmatch(level)]
    marks, read = _read_by_marks(texts)
    points = [level for level in numbers if "." in level]
    if len(read) <= len(points):
        return numbers
    whole = {level: value for level, value in numbers.items() if "." not in level}
    return whole | read | _numbers_by(points, marks)


def odd_row(column: Column) -> int | None:
    """Return the row to report if a text column should be numbers; None if all are numbers.

    If any row is a number, the result is the first row that is not a number.  Without numbers, it
    is the first row with another format (boolean, date or text) than most rows.  If all formats are
    equal, it is the first row with a value.
    """
    numbers = _numbers(column.levels)
    if len(numbers) == len(column.levels):
        numbers = _numbers(column.levels, padded=False)
    formats = np.array(
        ["number" if level in numbers else _format_of(level) for level in column.levels] + [""]
    )
    rows = formats[column.values]
    names, counts = np.unique(rows[rows != ""], return_counts=True)
    if not len(names) or list(names) == ["number"]:
        return None
    usual = "number" if "number" in names else str(names[counts.argmax()])
    odd = np.flatnonzero((rows != usual) & (rows != ""))
    return int(odd[0]) if len(odd) else int(np.flatnonzero(rows == usual)[0])


def few_texts(column: Column) -> tuple[int, int] | None:
    """Return the first row with a text, and the number of such rows, if most rows are numbers.

    The result is None if the column is not a category, if no row is a text, or if texts are more
    than the share `FEW_TEXTS` of the non-missing values.  Codes such as 007 are texts.
    """
    if kind_of(column) != "category":
        return None
    counts = np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
    if not _numbers([column.levels[counts.argmax()]], padded=False):
        return None
    numbers = _numbers(column.used_levels(), padded=False)
    is_text = np.array([*(level not in numbers for level in column.levels), False])
    rows = np.flatnonzero(is_text[column.values])
    few = len(numbers) > 1 and 0 < len(rows) <= FEW_TEXTS * counts.sum()
    return (int(rows[0]), len(rows)) if few else None


def odd_texts(column: Column) -> list[str]:
    """Return the levels that are not numbers, including levels without rows."""
    numbers = _numbers(column.levels)
    return [level for level in column.levels if level not in numbers]


def gap_advice(value: str) -> str:
    """Return advice for reading a value in `GAPS` as missing; "" for other values."""
    from mlpengine.data.tables.detect import GAPS  # only reading needs this module

    return f", or train with {value!r} added to data.na_values" if value.lower() in GAPS else ""


def _format_of(level: str) -> str:
    if parsing.booleans([level]) is not None:
        return "boolean"
    return "text" if parsing.dates([level], frozenset()) is None else "date"


def task_of(columns: list[Column]) -> TaskName:
    """Return the task that target columns imply.

    A single column is classification if it has texts, booleans, or whole numbers with at most two
    distinct values.  Up to `FEW_LEVELS` distinct whole numbers, each in `ROWS_PER_CLASS` rows on
    average, are also classes, unless they look like counts or grades.  Several columns of 0 and 1,
    or of booleans, are multi-label.  Everything else is regression.
    """
    if len(columns) > 1:
        return "multilabel" if all(c.is_binary for c in columns) else "regression"
    (column,) = columns
    if column.kind in ("text", "boolean"):
        return "classification"
    values = column.distinct()
    few = len(values) <= 2 or (
        len(values) <= FEW_LEVELS and len(column.values) >= ROWS_PER_CLASS * len(values)
    )
    few = few and column.is_integer and bool(np.isfinite(values).all())
    is_class = few and not _are_amounts(column.values)
    return "classification" if is_class else "regression"


def _are_amounts(values: Array) -> bool:
    """Return whether whole numbers (NaN if missing) look like counts or like grades.

    Counts begin at 0 and have at least `MIN_COUNTS` distinct values.  Multiples of 5 beyond the
    most frequent count are ignored, because people round to them.  Grades do not begin at 0, have
    at least `MIN_MARKS` distinct values without a gap, and the smallest value is rare.
    For both, the largest value is rare.  The farther a value is from the most frequent value, the
    fewer rows it has, up to chance.  A value is rare if it has less than 1 / `RARER` as many rows
    as the most frequent value.
    """
    numbers, rows = np.unique(values[~np.isnan(values)], return_counts=True)
    if numbers[0] == 0:
        whole = len(numbers) >= MIN_COUNTS
        is_heap = (numbers % 5 == 0) & (numbers > numbers[rows.argmax()])
        numbers, rows = numbers[~is_heap], rows[~is_heap]
    else:
        whole = len(numbers) >= MIN_MARKS and numbers[-1] - numbers[0] == len(numbers) - 1
        whole = whole and bool(RARER * rows[0] < rows.max())
    top = int(rows.argmax())
    sides = rows[top:], rows[top::-1]
    chance = (3 * np.sqrt(side[1:] + side[:-1]) for side in sides)
    becomes_rarer = all(
        (side[1:] <= side[:-1] + more).all() for side, more in zip(sides, chance, strict=True)
    )
    return whole and becomes_rarer and bool(RARER * rows[-1] < rows[top])


def odd_target_row(column: Column) -> int | None:
    """Return the first row with a text if a target has numbers and a few texts, else None.

    The result is also None if the numbers alone would be classes.
    """
    if column.kind != "text":
        return None
    levels = column.used_levels()
    if not levels or _number_share(levels) < MIXED_SHARE:
        return None
    numbers = _numbers(levels)
    values = np.array([*(numbers.get(level, np.nan) for level in column.levels), np.nan])
    values = values[column.values]
    if task_of([Column(values[~np.isnan(values)])]) != "regression":
        return None
    return odd_row(column)


def _number_share(levels: list[str]) -> float:
    sample = levels[:: -(-len(levels) // SAMPLED_LEVELS)]
    numbers = _numbers(sample)
    if len(numbers) == len(sample) and not all(map(parsing.is_number, sample)):
        return float(len(_numbers(levels)) < len(levels))  # 0 if all are numbers with other marks
    return len(numbers) / len(sample)
