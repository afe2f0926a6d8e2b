"""A pydantic model for the rows of requests, made for a trained model's columns."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WrapValidator, create_model

from mlpengine.data.features import Preprocessor
from mlpengine.data.features.categories import Category
from mlpengine.data.features.sources import LIMIT
from mlpengine.data.tables.table import number_text

LEVELS_SHOWN = 50
"""Maximum number of levels of a category that the schema lists as examples."""


def _unchanged(cell: Any, check: Callable[[Any], Any]) -> Any:
    """Check a cell and return it unchanged, so that a whole number keeps all its digits."""
    check(cell)
    return cell


NumberCell = Annotated[float, Field(ge=float(-LIMIT), le=float(LIMIT), allow_inf_nan=False)]
CodeCell = Annotated[NumberCell, WrapValidator(_unchanged)]


def row_model(preprocessor: Preprocessor) -> type[BaseModel]:
    """Return the pydantic model of a row; the alias of a field is the name of its column."""
    nullable = preprocessor.options.missing != "error"
    own, fields = preprocessor.columns, dict[str, Any]()
    for number, column in enumerate(preprocessor.table_columns):
        kind, about, examples = _described(preprocessor, column)
        fields[f"column_{number}"] = (
            kind | None if nullable or column not in own else kind,
            Field(alias=column, title=column, description=about, examples=examples),
        )
    return create_model("Row", __config__=ConfigDict(strict=True), **fields)


def _described(preprocessor: Preprocessor, column: str) -> tuple[Any, str, list[Any]]:
    """Return the type of a column's values, a text about their range in training, and examples."""
    for category in preprocessor.categories:
        if category.column == column:
            levels = _cells(category) or [""]
            cell = {bool: bool, str: str}.get(type(levels[0]), CodeCell)
            return cell, "A category; the examples are known values.", levels[:LEVELS_SHOWN]
    if column not in preprocessor.columns:
        ordering = column in (preprocessor.history.time, preprocessor.history.series)
        earlier = CodeCell | bool | str if ordering else CodeCell | bool
        return earlier, "Used only for lags and windows of later rows in the request.", [None]
    operand = preprocessor.operands.get(column)
    kind = preprocessor.kinds.get(column) or (operand.kind if operand else "number")
    if kind == "boolean":
        return bool, "", [True]
    trained = preprocessor.summary["columns"].get(column)
    center = round(operand.center) if operand else 0.0  # only formulas read the column
    quantiles = (trained and trained.get("quantiles")) or [center]
    low, usual, high = (quantiles[i] for i in (0, len(quantiles) // 2, -1))
    if kind == "date":
        first, middle, last = (number_text("date", value) for value in (low, usual, high))
        return str, f"A date, written as in training; trained on {first} to {last}.", [middle]
    return NumberCell, f"Trained on {low:.6g} to {high:.6g}.", [float(f"{usual:.6g}")]


def _cells(category: Category) -> list[Any]:
    """Return the levels of a category as JSON values: texts and dates, numbers, or booleans."""
    if not category.text:
        with suppress(ValueError):  # dates are not JSON; their levels stay texts
            return [json.loads(level) for level in category.levels]
    return list(category.levels)
