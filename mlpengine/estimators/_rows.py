"""Convert features in the forms that scikit-learn accepts to tables."""

import logging
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from mlpengine.core.buffers import with_missing
from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.core.wording import quoted
from mlpengine.data.features import Preprocessor, Profile
from mlpengine.data.features.checks import ColumnProfile
from mlpengine.data.features.column_kinds import FeatureKind
from mlpengine.data.features.dataset import TableFeatures
from mlpengine.data.tables import Table
from mlpengine.data.tables.frames import as_table, categorical_columns, one_number, time_columns
from mlpengine.settings.features import TaskName

_log = logging.getLogger("mlpengine")

FLOATS = [np.float64, np.float32]

FIRST_ROWS = 1_000
"""Number of leading rows that are searched first for three distinct values of a column."""


def checked_rows(
    estimator: Any,
    x: Any,
    y: Any = "no_validation",
    *,
    reset: bool,
    fitted: Preprocessor | None = None,
    **options: Any,
) -> tuple[Table, Any]:
    """Return features as a table, and checked targets if they are given.

    Data frames of pandas, polars or pyarrow may have texts, categories, dates and missing values.
    Other features must be a matrix of numbers with NaN for missing values.  Sparse matrices become
    dense.  scikit-learn's check of the targets gets the `options`.

    Raises: DataError; ValueError or TypeError from scikit-learn.
    """
    name = type(estimator).__name__
    given = () if isinstance(y, str) and y == "no_validation" else (with_missing(y),)
    if given and isinstance(y, str):
        raise DataError(f"{name}: y must have one value per row, not a name (got {quoted(y)})")
    for array, advice in ((x, "a data frame may have dates"), (y, "write days or seconds")):
        if (array is y or not is_frame(x)) and (times := time_columns(array)):
            raise DataError(f"{name}: numbers are needed (got {min(times.values())}); {advice}")
    if not is_frame(x):
        checked = validate_data(
            estimator,
            with_missing(x),
            *given,
            reset=reset,
            accept_sparse="csr",
            dtype=FLOATS,
            ensure_all_finite=False,  # the table's own errors say which row and column
            **(options if given else {}),
        )
        matrix, y = checked if given else (checked, None)
        matrix = matrix.toarray() if issparse(matrix) else matrix
        return Table.from_arrays(matrix, names=_names(estimator), source=name), y
    validate_data(estimator, x, *given, reset=reset, skip_check_array=True)
    if given:
        check_consistent_length(x, *given)
        kind = "numeric" if options.get("y_numeric") else None
        y = check_array(*given, ensure_2d=False, dtype=kind, input_name="y", estimator=estimator)
    how = fitted.read_arguments if fitted else {"text": categorical_columns(x)}
    table = as_table(x, source=name, **how)
    for column, texts in table.number_texts.items() if fitted is None else ():
        if texts:
            line = one_number(column, texts, "use a categorical dtype")
            _log.warning("warning: %s: %s", name, line)
    return table, y


def is_frame(x: Any) -> bool:
    """Return whether features are a data frame."""
    return hasattr(x, "columns") or hasattr(x, "column_names")


def _names(estimator: Any) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def plain_profile(table: Table, target: list[str], task: TaskName) -> Profile | None:
    """Return the facts about a table of numbers from which `complete_config` chooses settings.

    This is faster than `profile`, and drops no column.  Returns None for other tables.
    """
    columns = []
    for name, column in table.columns.items():
        if column.kind not in ("number", "boolean") or column.values.dtype.kind not in "iufb":
            return None
        values = column.values
        missing = int(np.count_nonzero(column.missing)) if np.isnan(values.min()) else 0
        several = _between_ends(values[:FIRST_ROWS]) or _between_ends(values)
        kind: FeatureKind = "number" if several or name in target else "boolean"
        columns.append(ColumnProfile(name, kind, missing, table.n_rows, False, ""))
    return Profile(table.source, table.n_rows, task, columns, duplicates=0)


def _between_ends(values: Array) -> bool:
    """Return whether a value lies between the smallest and the largest one."""
    low, high = np.fmin.reduce(values), np.fmax.reduce(values)
    return bool(((values > low) & (values < high)).any())


def matrix_features(x: Array, fitted: Preprocessor) -> TableFeatures:
    """Return the features of a matrix of usable numbers; they are computed when they are read."""
    numbers, dtype = fitted.fitted_numbers, np.dtype(fitted.options.dtype)

    def write(rows: range, out: Array) -> None:
        if not numbers.write(x[rows.start : rows.stop].astype(np.float64), None, out):
            raise DataError(f"X: must be numbers that {dtype} holds after scaling")

    return TableFeatures(write, (len(x), numbers.width), dtype)
