"""Category features: texts as codes, with a code for unknown texts."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlpengine.errors import DataError
from mlpengine.features.options import Options
from mlpengine.spec import Array
from mlpengine.tables.cells import parse_numbers
from mlpengine.tables.table import Column, Table, number_text

UNKNOWN, MISSING_LEVEL = "(unknown)", "(missing)"

MAX_ONE_HOT = 1_000
"""A category with more levels than this is not one-hot encoded: drop it."""


class Category:
    """One category column: its levels, then "(unknown)", then "(missing)" if cells were missing.

    Levels in too few training rows count as unknown, so that the unknown feature is trained; a
    missing cell is unknown too if none was missing in training. `text` tells whether the column was
    text in the training table, rather than numbers that are treated as categories.
    """

    def __init__(
        self,
        column: str,
        levels: list[str],
        *,
        gaps: bool,
        strict: bool,
        text: bool,
    ) -> None:
        self.column, self.levels = column, levels
        self.gaps, self.strict, self.text = gaps, strict, text

    @classmethod
    def fit(cls, table: Table, column: str, options: Options) -> "Category":
        """Collect the levels of a column, the most frequent ones if there are too many.

        Raises: DataError for a missing cell if those are errors, or for too many levels to one-hot.
        """
        strict = options.missing == "error"
        codes, texts = coded(table[column])
        _refuse_gap(table, column, codes, strict)
        counts = np.bincount(codes[codes >= 0], minlength=len(texts))
        enough = np.flatnonzero(counts >= max(1, options.min_count)).tolist()
        often = sorted(enough, key=lambda i: (-counts[i], texts[i]))[: options.max_levels]
        levels = sorted(texts[i] for i in often)
        if len(levels) > MAX_ONE_HOT:
            raise DataError(
                f"{table.where(column)}: {len(levels):,} categories are too many to one-hot "
                f"(at most {MAX_ONE_HOT:,}); drop the column, or raise min_count"
            )
        gaps = bool((codes < 0).any())
        text = table[column].kind == "text"
        return cls(column, levels, gaps=gaps, strict=strict, text=text)

    @property
    def size(self) -> int:
        """Number of codes: levels, unknown and missing."""
        return len(self.levels) + 1 + self.gaps

    @property
    def names(self) -> list[str]:
        """One name per code."""
        labels = [*self.levels, UNKNOWN] + [MISSING_LEVEL] * self.gaps
        return [f"{self.column}={label}" for label in labels]

    def encode(self, table: Table) -> Array:
        """Return one int64 code per row, between 0 and `size`.

        Raises: DataError for a missing cell if the options treat missing cells as errors.
        """
        column = table[self.column]
        codes, texts = coded(column)
        if column.kind == "text" and not self.text:
            texts = list(map(_as_number, texts))
        _refuse_gap(table, self.column, codes, self.strict)
        known = {level: code for code, level in enumerate(self.levels)}
        unknown = len(self.levels)
        lookup = np.array([known.get(text, unknown) for text in texts] + [unknown + self.gaps])
        return lookup[codes].astype(np.int64)

    def unknown_rows(self, table: Table) -> Array:
        """Return the rows whose text was in no, or too few, training rows."""
        unknown = self.encode(table) == len(self.levels)
        return np.flatnonzero(unknown & ~table[self.column].missing)

    def state_dict(self) -> dict[str, Any]:
        """Return everything about it, ready for JSON."""
        return {
            "column": self.column,
            "levels": self.levels,
            "gaps": self.gaps,
            "strict": self.strict,
            "text": self.text,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Category":
        """Return the category that `state_dict` described."""
        options = {name: state[name] for name in ("gaps", "strict", "text")}
        return cls(state["column"], list(state["levels"]), **options)


def coded(column: Column) -> tuple[Array, list[str]]:
    """Return any column as codes into texts, -1 where missing."""
    if column.kind == "text":
        return column.values, list(column.levels)
    distinct = column.distinct()
    texts = [number_text(column.kind, float(value)) for value in distinct]
    return codes_into(distinct, column), texts


def codes_into(distinct: Array, column: Column) -> Array:
    """Return a column as int32 codes into its distinct values, -1 where missing."""
    if column.kind == "text":
        return column.values
    codes = np.searchsorted(distinct, column.values).astype(np.int32)
    codes[column.missing] = -1
    return codes


def _as_number(text: str) -> str:
    """Return a text that is a number as columns of numbers write it."""
    values = parse_numbers([text], frozenset())
    return text if values is None else number_text("number", float(values[0]))


def _refuse_gap(table: Table, column: str, codes: Array, strict: bool) -> None:
    if strict and (codes < 0).any():
        row = int(np.flatnonzero(codes < 0)[0])
        raise DataError(
            f"{table.where(column, row)}: is missing (missing: error); fill it, or choose mean, "
            "median or indicator"
        )
