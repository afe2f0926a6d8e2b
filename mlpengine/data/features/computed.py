"""Columns computed from other columns by formulas, and filters of rows.

A missing value in a column that a formula reads makes the result missing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from mlpengine.core.errors import DataError, FormulaError
from mlpengine.core.spec import Array
from mlpengine.data.features.sources import check_numeric
from mlpengine.data.features.thresholds import COMPUTED_ROWS
from mlpengine.data.tables.table import Column, Table, decimals
from mlpengine.formula import Expr, evaluate, parse, variables


class ComputedColumn(NamedTuple):
    """A computed column: name, formula as text, parsed formula, and the columns it uses."""

    name: str
    text: str
    formula: Expr
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FormulaColumn:
    """Kind, mean and standard deviation of a column that formulas read."""

    kind: Literal["number", "boolean", "date"]
    center: float
    spread: float

    @classmethod
    def of(cls, column: Column) -> "FormulaColumn":
        """Return kind, mean and deviation of a column of numbers."""
        values = column.values[~column.missing].astype(np.float64)
        kind = "number" if column.kind == "text" else column.kind
        if not len(values):
            return cls(kind, 0.0, 1.0)
        return cls(kind, float(values.mean()), float(values.std()) or 1.0)


def computed_column(name: str, text: str, known: Sequence[str]) -> ComputedColumn:
    """Parse the formula of a new column, which may read the columns `known`."""
    if not name.strip():
        raise FormulaError("a column needs a name")
    if name in known:
        raise FormulaError(f"a column is called {name!r} already; choose another name")
    formula = parse(text, known)
    reads = tuple(variables(formula))
    if not reads:
        raise FormulaError(f"must read at least one column (got {text!r})")
    return ComputedColumn(name, text, formula, reads)


def computed_columns(texts: Mapping[str, str], known: Sequence[str]) -> list[ComputedColumn]:
    """Parse the formulas of columns in order; each may read the earlier columns.

    Raises: FormulaError with the column's name, for the first formula that cannot be parsed.
    """
    columns: list[ComputedColumn] = []
    for name, text in texts.items():
        try:
            columns.append(computed_column(name, text, [*known, *(c.name for c in columns)]))
        except FormulaError as error:
            raise FormulaError(f"features: {name}: {error}", error.position) from None
    return columns


def row_filter(text: str, names: Sequence[str]) -> Expr:
    """Parse a formula that is true for the rows to keep."""
    formula = parse(text, names)
    if not formula.is_mask:
        raise FormulaError(f"must be a comparison, such as price > 0 (got {text!r})")
    return formula


def with_columns(
    table: Table,
    columns: Sequence[ComputedColumn],
    rows: Array | None = None,
    *,
    strict: bool = True,
) -> Table:
    """Append computed columns to a table; their values are missing outside `rows`.

    Without `strict`, a result that is not finite is a missing value.

    Raises: DataError for columns that the table lacks, or that are not numeric.  With `strict`,
        DataError for the first result that is not finite though no operand is missing.
    """
    if not columns:
        return table
    reads = used_columns(columns)
    table.require(reads, "a formula")
    part = table.select(reads)
    if rows is not None:
        part = part.rows(rows)
    computed = {}
    for column in columns:
        values = _values(part, column.formula)
        wrong = ~np.isfinite(values) & ~_missing(part, column.reads)
        if strict and wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            operands = ", ".join(f"{name} {part[name].text(row)}" for name in column.reads)
            raise DataError(
                f"{part.where(column.name, row)}: {column.text} must be finite (it is "
                f"{values[row]:g} for {operands}); correct the row, or leave it out (in "
                "training by data.where)"
            )
        values[wrong] = np.nan
        part = part.join(Table({column.name: Column(values)}, table.source))
        computed[column.name] = Column(values if rows is None else _at_rows(values, rows, table))
    return table.join(Table(computed, table.source))


def _at_rows(values: Array, rows: Array, table: Table) -> Array:
    all_rows = np.full(table.n_rows, np.nan)
    all_rows[rows] = values
    return all_rows


def finite_rows(table: Table, columns: Iterable[ComputedColumn]) -> Array:
    """Return the mask of rows (of a table from `with_columns`) where all formulas are finite.

    A formula that reads a missing value counts as finite.
    """
    finite = np.ones(table.n_rows, bool)
    for column in columns:
        finite &= ~table[column.name].missing | _missing(table, column.reads)
    return finite


def rows_that_fulfil(table: Table, formula: Expr, columns: Sequence[ComputedColumn] = ()) -> Array:
    """Return the mask of the rows where a filter is true; False if a value is missing.

    `columns` are computed columns that the filter may read.
    """
    values = _values(with_columns(table, columns, strict=False), formula)
    fulfilled: Array = values > 0
    return fulfilled


def used_columns(columns: Sequence[ComputedColumn], *formulas: Expr) -> list[str]:
    """Return the columns that formulas read, without the computed columns."""
    own = {column.name for column in columns}
    reads = [name for column in columns for name in column.reads]
    reads += variables(*formulas)
    return list(dict.fromkeys(name for name in reads if name not in own))


def _values(table: Table, formula: Expr) -> Array:
    """Return the float64 values of a formula; NaN in rows with a missing operand."""
    names = variables(formula)
    for name in names:
        check_numeric(table, name, " by a formula")
    values = np.empty(table.n_rows)
    for start in range(0, table.n_rows, COMPUTED_ROWS):
        rows = slice(start, min(start + COMPUTED_ROWS, table.n_rows))
        operands = {name: decimals(table[name].values[rows]) for name in names}
        values[rows] = evaluate(formula, operands)
    values[_missing(table, names)] = np.nan
    return values


def _missing(table: Table, names: Iterable[str]) -> Array:
    missing = np.zeros(table.n_rows, bool)
    for name in names:
        missing |= table[name].missing
    return missing
