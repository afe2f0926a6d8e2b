"""Category features: texts as codes, with a code for unknown texts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.data.features.options import Options
from mlpengine.data.features.thresholds import (
    CLEAR_RATIO,
    MAX_ONE_HOT,
    ONE_HOT_ROWS,
    SMALLEST_VALUE,
    WEIGHED_CODES,
)
from mlpengine.data.tables.parsing import dates, parse_numbers
from mlpengine.data.tables.table import Column, Table, number_text

UNKNOWN, MISSING_LEVEL = "(unknown)", "(missing)"


class Category:
    """Maps the texts of a category column to codes.

    Each level, a frequent text of the training rows, has a code.  All other texts, also rare texts
    of the training rows, have the unknown code.  With `gaps`, missing values have a code of their
    own; else they have the unknown code.  `text` is False if the training table had numbers in this
    column.  The one-hot feature of a row's code is `value` (see `weigh`); all others are 0.
    A text in `missing` is a missing value, unless the text is a level.
    """

    def __init__(
        self,
        column: str,
        levels: list[str],
        *,
        gaps: bool,
        strict: bool,
        text: bool,
        value: float = 1.0,
        missing: frozenset[str] = frozenset(),
    ) -> None:
        self.column, self.levels = column, levels
        self.gaps, self.strict, self.text = gaps, strict, text
        self.value, self.missing = value, missing

    @classmethod
    def fit(cls, table: Table, column: str, options: Options) -> "Category":
        """Collect the levels of a column, at most the `max_levels` most frequent texts."""
        strict = options.missing == "error"
        codes, texts = coded(table[column])
        _refuse_gap(table, column, codes, strict)
        counts = np.bincount(codes[codes >= 0], minlength=len(texts))
        levels = sorted(texts[i] for i in _chosen(counts, texts, options))
        if len(levels) > MAX_ONE_HOT:
            raise DataError(
                f"{table.where(column)}: at most {MAX_ONE_HOT:,} categories can be one-hot "
                f"encoded (got {len(levels):,}); drop the column, or raise min_count"
            )
        gaps = bool((codes < 0).any())
        text = table[column].kind == "text"
        missing = options.reading.missing
        return cls(column, levels, gaps=gaps, strict=strict, text=text, missing=missing)

    def weigh(self, table: Table, target: Array) -> None:
        """Shrink the one-hot features if the levels of training rows explain little of the target.

        Weights of levels with few rows learn noise.  The size of an Adam step does not depend on
        the size of the feature, so a step changes the output less if the feature is small.
        """
        if self.size > WEIGHED_CODES:
            ratio = variance_ratio(self.encode(table), target)
            self.value = float(np.clip((ratio - 1) / CLEAR_RATIO, SMALLEST_VALUE, 1))

    @property
    def size(self) -> int:
        """Number of codes: levels, unknown and missing."""
        return len(self.levels) + 1 + self.gaps

    @property
    def seconds(self) -> Array | None:
        """The levels as seconds since 1970, or None if the training column had no dates."""
        return None if self.text or not self.levels else dates(self.levels, frozenset())

    @property
    def names(self) -> list[str]:
        """Names of the one-hot features, one for each code."""
        labels = [*self.levels, UNKNOWN] + [MISSING_LEVEL] * self.gaps
        return [f"{self.column}={label}" for label in labels]

    def encode(self, table: Table) -> Array:
        """Return one int64 code per row, from 0 to `size` - 1."""
        column = table[self.column]
        codes, texts = coded(column)
        if column.kind == "text" and not self.text:
            texts = list(map(_as_number, texts))
        known: dict[str, int] = dict.fromkeys(self.missing, -1)
        known |= {level: code for code, level in enumerate(self.levels)}
        unknown = len(self.levels)
        codes = np.array([*(known.get(text, unknown) for text in texts), -1], np.int64)[codes]
        _refuse_gap(table, self.column, codes, self.strict)
        return np.where(codes < 0, unknown + self.gaps, codes)

    def unknown_texts(self, table: Table) -> Counter[str]:
        """Count the rows of each text that is not a level."""
        codes, texts = coded(table[self.column])
        unknown = (self.encode(table) == len(self.levels)) & (codes >= 0)
        found, counts = np.unique(codes[unknown], return_counts=True)
        pairs = zip(found.tolist(), counts.tolist(), strict=True)
        return Counter({texts[code]: count for code, count in pairs})

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, ready for JSON."""
        return {
            "column": self.column,
            "levels": self.levels,
            "gaps": self.gaps,
            "strict": self.strict,
            "text": self.text,
            "value": self.value,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], missing: frozenset[str]) -> "Category":
        """Return a category from a `state_dict`; `missing` are the dialect's missing values."""
        options = {name: state[name] for name in ("gaps", "strict", "text", "value")}
        return cls(state["column"], list(state["levels"]), missing=missing, **options)


def write_one_hots(categories: Sequence[Category], codes: Sequence[Array], out: Array) -> None:
    """Write the one-hot features of all categories; `codes` has an array (rows,) for each."""
    for start in range(0, len(out), ONE_HOT_ROWS):
        block = out[start : start + ONE_HOT_ROWS]
        block[...] = 0.0
        rows, first = np.arange(len(block)), 0
        for category, own in zip(categories, codes, strict=True):
            block[rows, own[start : start + ONE_HOT_ROWS] + first] = category.value
            first += category.size


def variance_ratio(codes: Array, target: Array) -> float:
    """Return the F statistic of an analysis of variance, about 1 if levels differ by chance alone.

    F is the variance of the target between levels, divided by the variance within levels.  Each
    variance is summed over the classes, or over the standardized targets.

    Shapes: `codes` (rows,); `target` (rows,) classes from 0 on, or (rows, targets) numbers.
    Source: Fisher 1925, "Statistical methods for research workers", chapter 7.
    """
    rows, counts = len(codes), np.bincount(codes)
    levels = np.count_nonzero(counts)
    if target.ndim == 1:
        classes = int(target.max()) + 1
        pairs, of_pair = np.unique(codes * classes + target, return_counts=True)
        chance = np.square(np.bincount(target)).sum() / rows
        between, whole = (of_pair**2 / counts[pairs // classes]).sum() - chance, rows - chance
    else:
        centered = target - np.nanmean(target, axis=0, dtype=np.float64)
        centered[np.isnan(centered)] = 0.0
        deviations = centered.std(axis=0)
        centered /= np.where(deviations > 0, deviations, 1.0)
        sums = np.stack([np.bincount(codes, column) for column in centered.T])
        between, whole = (sums**2 / np.maximum(counts, 1)).sum(), np.square(centered).sum()
    if levels < 2 or rows == levels or between <= 0:
        return 0.0
    within = max(whole - between, 1e-9 * whole)
    return float(between / (levels - 1) * (rows - levels) / within)


def coded(column: Column) -> tuple[Array, list[str]]:
    """Return the code of each row, -1 for a missing value, and the text of each code."""
    if column.kind == "text":
        return column.values, list(column.levels)
    distinct = column.distinct()
    return codes_into(distinct, column), [number_text(column.kind, value) for value in distinct]


def codes_into(distinct: Array, column: Column) -> Array:
    """Return int32 codes: text codes, or indices into the sorted `distinct`; -1 if missing."""
    if column.kind == "text":
        return column.values
    codes = np.searchsorted(distinct, column.values).astype(np.int32)
    codes[column.missing] = -1
    return codes


def level_shares(column: Column, options: Options) -> tuple[float, float]:
    """Return the share of the rows of a column whose text is a level, and that of new rows.

    A row stands for a new row if its text remains a level without this row.  Texts of one row are
    left out of the first share, because no other row trains their feature.
    Source: Quenouille 1956, Notes on bias in estimation (the jackknife).
    """
    codes, texts = coded(column)
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    ranked = _chosen(counts, texts, replace(options, max_levels=None))
    levels = ranked[: options.max_levels]
    first = ranked[len(levels)] if len(levels) < len(ranked) else None  # without a feature
    known = fresh = 0
    for level in levels:
        rest = int(counts[level]) - 1
        known += rest + 1 if rest else 0
        is_ahead = first is None or (-rest, texts[level]) < (-counts[first], texts[first])
        fresh += rest + 1 if rest >= max(1, options.min_count) and is_ahead else 0
    return known / len(codes), fresh / len(codes)


def _chosen(counts: Array, texts: Sequence[str], options: Options) -> list[int]:
    """Return the most frequent texts, at most `max_levels`, with at least `min_count` rows."""
    enough = np.flatnonzero(counts >= max(1, options.min_count)).tolist()
    return sorted(enough, key=lambda i: (-counts[i], texts[i]))[: options.max_levels]


def _as_number(text: str) -> str:
    """Write a number as `number_text` does, such as "1.50" as "1.5"; keep other texts."""
    values = parse_numbers([text], frozenset())
    return text if values is None else number_text("number", float(values[0]))


def _refuse_gap(table: Table, column: str, codes: Array, strict: bool) -> None:
    if strict and (codes < 0).any():
        row = int(np.flatnonzero(codes < 0)[0])
        raise DataError(
            f"{table.where(column, row)}: the value is missing; fill it in, or train with "
            "data.missing: mean, median or indicator"
        )
