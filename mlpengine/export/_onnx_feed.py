"""Convert tables to the inputs of an exported ONNX model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.categories import Category, coded
from mlpengine.data.features.column_kinds import FeatureKind
from mlpengine.data.features.computed import ComputedColumn, finite_rows, with_columns
from mlpengine.data.features.sources import LIMIT
from mlpengine.data.tables import Column, Table
from mlpengine.data.tables.frames import as_table
from mlpengine.data.tables.parsing import WORDS, dates

RANDOM_ROWS = 512
"""Number of random rows for the comparison of an ONNX model with mlpengine."""


def onnx_inputs(preprocessor: Preprocessor, table: Any) -> dict[str, Array]:
    """Return the inputs of an exported model, by column name, each (rows, 1).

    Numbers, booleans, dates and numeric categories are float64, and a missing value is NaN.  Other
    categories are text, and a missing value is "".  `table` may also be a data frame.
    """
    table = as_table(table, **preprocessor.read_arguments)
    table.require(preprocessor.columns, "the model")
    texts = {c.column for c in preprocessor.categories if numeric_levels(c) is None}
    feed = {}
    for name in preprocessor.columns:
        column = table[name]
        if name in texts:
            codes, levels = coded(column)
            feed[name] = np.array([*levels, ""], object)[codes][:, None]
        elif column.kind == "text":
            numbers = [_number(level) for level in column.levels]
            feed[name] = np.array([*numbers, np.nan])[column.values][:, None]
        else:
            feed[name] = column.values.astype(np.float64)[:, None]
    return feed


def numeric_levels(category: Category) -> Array | None:
    """Return the levels as float64 (dates in seconds), or None if the model reads them as text."""
    numbers = np.array([_number(level) for level in category.levels], np.float64)
    return None if category.text or not np.isfinite(numbers).all() else numbers


def _number(text: str) -> float:
    """Return a number, boolean or date that is written as text; infinity for other texts."""
    try:
        return WORDS[text] if text in WORDS else float(text)
    except ValueError:
        seconds = dates([text], frozenset())
        return np.inf if seconds is None else float(seconds[0])


def probe_table(preprocessor: Preprocessor) -> Table:
    """Return random rows with every level, an unknown level, and missing values where allowed."""
    rng = np.random.default_rng(0)
    numbers = preprocessor.fitted_numbers
    columns = {c.column: _probe_category(c, rng) for c in preprocessor.categories}
    spread = np.where(numbers.factor == 0, 1.0, numbers.factor)
    spread = np.where(spread == 1.0, np.maximum(1.0, np.abs(numbers.fill)), 1.0 / spread)
    computed = {column.name for column in preprocessor.computed}
    for name, kind in preprocessor.kinds.items():
        if kind == "date":  # the date itself may be no feature, only its hour, weekday or season
            columns[name] = _probe_numbers(kind, 1.7e9, 1e8, not numbers.strict, rng)
    for i, source in enumerate(numbers.sources):
        if source.part or source.column in computed:
            continue
        kind = preprocessor.kinds[source.column]
        column = _probe_numbers(kind, numbers.center[i], spread[i], not numbers.strict, rng)
        if source.minus:  # the feature is the time since the date in `minus`
            column.values[...] += columns[source.minus].values
        columns[source.column] = column
    for name, operand in preprocessor.operands.items():
        columns[name] = _probe_numbers(
            operand.kind, operand.center, operand.spread, not numbers.strict, rng
        )
    return _in_domain(Table(columns, "made-up rows"), preprocessor.computed)


def _probe_numbers(
    kind: FeatureKind, center: float, spread: float, gaps: bool, rng: np.random.Generator
) -> Column:
    values = np.clip(center + spread * rng.standard_normal(RANDOM_ROWS), -LIMIT, LIMIT)
    if kind == "boolean":
        values = rng.integers(0, 2, RANDOM_ROWS).astype(np.float64)
    if kind == "integer":
        values = np.rint(values)
    if gaps:
        values[rng.random(RANDOM_ROWS) < 0.1] = np.nan
    return Column(
        values, "boolean" if kind == "boolean" else "date" if kind == "date" else "number"
    )


def _in_domain(table: Table, computed: Sequence[ComputedColumn]) -> Table:
    """Return the rows of a table in which every formula is finite or reads a missing value."""
    valid = finite_rows(with_columns(table, computed, strict=False), computed)
    return table if valid.all() else table.rows(valid)


def _probe_category(category: Category, rng: np.random.Generator) -> Column:
    unknown = "unseen"
    while unknown in category.levels:
        unknown += "_"
    levels = (*category.levels, unknown)
    first = 0 if category.strict else -1
    codes = np.arange(RANDOM_ROWS) % (len(levels) - first) + first
    return Column(rng.permutation(codes).astype(np.int32), "text", levels)
