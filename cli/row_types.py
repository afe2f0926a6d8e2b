"""What JSON a cell of each column of a model may be: its schema, and what is wrong with a cell."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mlpengine.core.wording import suggestion
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.sources import LIMIT
from mlpengine.data.tables.table import number_text

MAX_TOLD = 20
"""Cells that a refusal names."""

CELL_KINDS = {
    "number": ("a number", "write it without quotes"),
    "boolean": ("true or false", "write it without quotes"),
    "string": ("a text", "write it in quotes"),
    "date": ("a date as a text, spelled as in training", "write it in quotes"),
}
"""What a cell is, and how to write one that has the wrong quotes."""


class CellProblem(NamedTuple):
    """What is wrong with a cell; rows are counted from 1."""

    row: int
    column: str
    detail: str


@dataclass(frozen=True)
class CellType:
    """The JSON of the cells of one column.

    Attributes:
        column: its name.
        kind: one of `CELL_KINDS`.
        nullable: whether a cell may be null, which is a missing cell.
        levels: the cells of a category that have a feature of their own, if it is one.
        about: what training saw.
        example: a usual cell.
    """

    column: str
    kind: str
    nullable: bool
    levels: Sequence[Any] = ()
    about: str = ""
    example: Any = None

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema."""
        plain: dict[str, Any] = {"type": "string" if self.kind == "date" else self.kind}
        if self.kind == "number":
            plain |= {"minimum": -LIMIT, "maximum": LIMIT}
        options = [plain, *([{"type": "null"}] if self.nullable else [])]
        if self.levels:
            options.insert(0, {"enum": list(self.levels)})
        shown: dict[str, Any] = {"anyOf": options} if len(options) > 1 else plain
        if self.about:
            shown = {"description": self.about, **shown}
        return shown if self.example is None else {**shown, "examples": [self.example]}

    def problem(self, cell: Any) -> str | None:
        """Return what is wrong with a cell, and the fix, or None."""
        what, fix = CELL_KINDS[self.kind]
        if cell is None:
            return None if self.nullable else f"must not be missing; write {what}"
        if self.kind == "number":
            if type(cell) in (int, float):
                within = abs(cell) <= float(LIMIT)  # of Python, as whole numbers may be larger
                return None if within else f"must be within {LIMIT:g}; correct the cell"
        elif type(cell) is (bool if self.kind == "boolean" else str):
            return None
        quotes = isinstance(cell, str) == (self.kind in ("number", "boolean"))
        fix = fix if quotes and not isinstance(cell, dict | list) else "correct the cell"
        return f"must be {what} (got {_shown(cell)}); {fix}"


def cell_types(preprocessor: Preprocessor) -> list[CellType]:
    """Return the types of the columns that predictions need."""
    categories = {category.column: category for category in preprocessor.categories}
    summary = preprocessor.summary["columns"]
    nullable = preprocessor.options.missing != "error"
    types = []
    for name in preprocessor.columns:
        if name in categories:
            category = categories[name]
            kind, levels = _levels(category.levels, text=category.text)
            about = "A category; other cells are predicted as a rare one."
            types.append(CellType(name, kind, nullable, levels, about, (levels or [None])[0]))
            continue
        operand = preprocessor.operands.get(name)
        kind = preprocessor.kinds.get(name) or (operand.kind if operand else "number")
        quantiles = summary[name].get("quantiles") if name in summary else None
        about, example = "", None
        if quantiles and kind != "boolean":
            low, usual, high = (quantiles[i] for i in (0, len(quantiles) // 2, -1))
            if kind == "date":
                ends, example = [number_text("date", n) for n in (low, high)], None
            else:
                ends, example = [f"{n:.6g}" for n in (low, high)], float(f"{usual:.6g}")
                example = int(example) if kind == "integer" and abs(example) < 2**53 else example
            about = f"Trained on {ends[0]} to {ends[1]}."
        kind = kind if kind in ("boolean", "date") else "number"
        types.append(CellType(name, kind, nullable, (), about, example))
    return types


def _levels(texts: Sequence[str], *, text: bool) -> tuple[str, list[Any]]:
    """Return the kind of a category's cells, and its levels as cells."""
    if text:
        return "string", list(texts)
    if set(texts) <= {"true", "false"}:
        return "boolean", [level == "true" for level in texts]
    try:
        numbers = [float(level) for level in texts]
    except ValueError:
        return "date", list(texts)
    return "number", [int(n) if n.is_integer() and abs(n) < 2**53 else n for n in numbers]


def problems(types: Sequence[CellType], rows: Sequence[Any]) -> list[CellProblem]:
    """Return what is wrong with rows by name, `MAX_TOLD` at the most."""
    wrong: list[CellProblem] = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            text = f"must be an object of cells by column (got {_shown(row)})"
            wrong.append(CellProblem(number, "", text))
        else:
            wrong += _row_problems(types, row, number)
        if len(wrong) >= MAX_TOLD:
            break
    return wrong[:MAX_TOLD]


def _row_problems(
    types: Sequence[CellType], row: Mapping[str, Any], number: int
) -> list[CellProblem]:
    wrong = []
    for one in types:
        if one.column in row:
            detail = one.problem(row[one.column])
        else:
            others = row.keys() - {each.column for each in types}
            null = "; null is a missing cell" if one.nullable else ""
            detail = f"must be there{null}{suggestion(one.column, others)}"
        if detail:
            wrong.append(CellProblem(number, one.column, detail))
    return wrong


def _shown(cell: Any) -> str:
    """Return a value as JSON; containers, which may be deep, by their kind."""
    if isinstance(cell, dict | list):
        return "an object" if isinstance(cell, dict) else "a list"
    return f"{json.dumps(cell):.60}"
