"""Tables from Python objects: data frames, columns by name, rows by name, arrays."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import isnan
from typing import Any

import numpy as np

from mlpengine.core.buffers import with_missing
from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.core.wording import cut, plural, quoted
from mlpengine.data.tables.column_reader import text_column, without_numbers
from mlpengine.data.tables.dialect import CsvOptions
from mlpengine.data.tables.parsing import FIRST_INEXACT
from mlpengine.data.tables.table import Column, Table, column_of, number_text, shortest

_log = logging.getLogger("mlpengine")

LARGEST = int(np.finfo(np.float64).max)
"""The largest float64; Python refuses to convert much larger integers to text."""

_FIRST_DAY = date(1970, 1, 1)
_GAPS = ("NAType", "NaTType")
"""Type names of pandas' missing values; comparisons with these values have no truth value."""


def as_table(
    data: Any,
    *,
    names: Sequence[str] | None = None,
    source: str = "table",
    text: Iterable[str] = (),
    numbers: Iterable[str] = (),
    labels: Iterable[str] = (),
    kept: Iterable[str] = (),
    optional: Iterable[str] = (),
    **dialect: Any,
) -> Table:
    """Return data in memory as a table.

    `data` is a data frame of pandas, polars or pyarrow; a mapping from column names to sequences; a
    list of rows, each a mapping or a named tuple; a single row, a mapping from column names to
    values; or a matrix of numbers.  `names` are the columns of a matrix.  With `names`, a row in a
    list must have these columns and may lack others.  An empty list with `names` is a table without
    rows.

    Text is read as in CSV, with the arguments of `read_table`.  Numbers, dates and true/false are
    recognized, except in columns in `text` and in columns with a categorical dtype.  Whole numbers
    beyond 2**53 are texts, except in columns in `numbers`.  None, NaN, NaT and masked values are
    missing.  Columns other than `kept` and `optional` are left out, as by `read_table`.

    >>> as_table([{"a": 1, "b": "x"}, {"a": None, "b": "y"}])
    Table('table', 2 rows, 2 columns)
    """
    if isinstance(data, Table):
        return data
    options = CsvOptions.of(dialect, text, numbers, labels, kept, (), optional)
    if isinstance(data, list | tuple) and all(hasattr(row, "_asdict") for row in data):
        data = [row._asdict() for row in data]  # named tuples
    elif isinstance(data, list | tuple) and all(
        hasattr(row, "keys") and not isinstance(row, Mapping) for row in data
    ):
        data = [dict(row) for row in data]  # rows of a database, or of a pandas data frame
    if type(data).__name__ == "Series" and all(
        isinstance(name, str) for name in getattr(data, "index", [None])
    ):
        data = data.to_dict()  # a row of a pandas data frame
    if isinstance(data, str | bytes | os.PathLike):
        raise DataError(f"{source}: a table in memory is needed (got {quoted(data)})")
    if isinstance(data, Mapping):
        skipped = options.skipped(map(str, data))
        columns = {str(name): cells for name, cells in data.items() if str(name) not in skipped}
        if columns and all(map(is_scalar, columns.values())):
            columns = {name: [value] for name, value in columns.items()}
    elif _is_frame(data):
        columns = _frame_columns(data, source, options)
    elif isinstance(data, Sequence) and not data:
        if names is None:
            raise DataError(f"{source}: at least one row is needed (got an empty list)")
        columns = {name: [] for name in names}
    elif isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        columns = _columns_of_rows(data, names, source)
        for name in options.skipped(columns):
            del columns[name]
    else:
        table = _matrix(data, names, source)
        if not options.reading.missing_numbers:
            return table
        columns = {**table.columns}
    if not columns:
        raise DataError(f"{source}: columns are needed (got none)")
    _require_unicode(columns, f"{source}: names of columns")
    texts: dict[str, tuple[str, ...]] = {}
    table = Table(
        {
            name: without_numbers(
                _column(values, name, source, options, texts), options.reading.missing_numbers
            )
            for name, values in columns.items()
        },
        source,
    )
    table.number_texts = texts
    return table


def is_scalar(value: Any) -> bool:
    """Return whether an argument is a single value, not a column."""
    return isinstance(value, str | bytes) or not hasattr(value, "__len__")


def categorical_columns(data: Any) -> list[str]:
    """Return the columns of a data frame with a categorical dtype."""
    if isinstance(data, Mapping | Table) or not _is_frame(data):
        return []
    columns = _frame_columns(data, "table")
    return [name for name, values in columns.items() if _is_categorical(values)]


def time_columns(data: Any) -> dict[str, str]:
    """Return the dtypes of dates, times and durations among the columns of a frame, or of one."""
    one = data if isinstance(data, Mapping) else {"": data}
    columns = _frame_columns(data, "table") if _is_frame(data) else one
    kinds = {str(name): _dtype_text(values) for name, values in columns.items()}
    return {k: kind for k, kind in kinds.items() if kind.startswith(("date", "time", "duration"))}


def _is_frame(data: Any) -> bool:
    """Return whether `data` is a data frame.  Raises: DataError for a lazy frame."""
    if type(data).__name__ == "LazyFrame":
        raise DataError("table: must hold its rows (got a LazyFrame); write table.collect()")
    return hasattr(data, "columns") or hasattr(data, "column_names")


def _is_categorical(values: Any) -> bool:
    return _dtype_text(values).startswith(("category", "categorical", "enum", "dictionary"))


def _dtype_text(values: Any) -> str:
    return str(getattr(values, "dtype", getattr(values, "type", ""))).lower()


def _frame_columns(frame: Any, source: str, options: CsvOptions | None = None) -> dict[str, Any]:
    is_arrow = hasattr(frame, "column_names") and not hasattr(frame, "iloc")
    given = list(frame.column_names if is_arrow else frame.columns)
    skipped = options.skipped(map(str, given)) if options else ()
    given = [name for name in given if str(name) not in skipped]
    names = list(map(str, given))
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataError(f"{source}: column names must be unique (twice: {', '.join(twice)})")
    return {name: frame[key] for name, key in zip(names, given, strict=True)}


def _columns_of_rows(
    rows: Sequence[Mapping[Any, Any]], names: Sequence[str] | None, source: str
) -> dict[str, Any]:
    known = dict.fromkeys(name for row in rows for name in row)
    needed = [name for name in known if names is None or str(name) in names]
    for number, row in enumerate(rows, 1):
        if lacking := [name for name in needed if name not in row]:
            raise DataError(
                f"{source}: row {number}: must have {', '.join(map(repr, lacking))}, as other rows "
                f"(it has {', '.join(map(repr, row)) or 'nothing'}); write None for a missing value"
            )
    return {str(name): [row.get(name) for row in rows] for name in known}


def _matrix(data: Any, names: Sequence[str] | None, source: str) -> Table:
    if hasattr(data, "toarray"):
        raise DataError(f"{source}: must be dense (got {type(data).__name__}); write .toarray()")
    try:
        matrix = np.asarray(with_missing(data))
    except ValueError as error:
        raise DataError(f"{source}: rows must have equal lengths ({error})") from None
    if matrix.dtype.kind not in "biuf" or matrix.ndim != 2:
        raise DataError(
            f"{source}: a data frame, columns by name, rows by name or a matrix of numbers is "
            f"needed (got {type(data).__name__} of {matrix.dtype}, shape {matrix.shape})"
        )
    if names is not None and matrix.shape[1] != len(names):
        raise DataError(
            f"{source}: a matrix needs a column for each of {', '.join(map(repr, names[:20]))} "
            f"(got {matrix.shape[1]} for {len(names)})"
        )
    return Table.from_arrays(matrix, names=names, source=source)


def _column(
    values: Any, name: str, source: str, options: CsvOptions, number_texts: dict[str, Any]
) -> Column:
    """Convert a column; note columns of texts that become numbers in `number_texts`."""
    where = f"{source}: column {name!r}"
    if isinstance(values, Column):
        return values
    if isinstance(values, list | tuple):
        nested = {kind for kind in set(map(type, values)) if not issubclass(kind, str | bytes)}
        nested = {kind for kind in nested if any("__len__" in vars(one) for one in kind.mro())}
        for row, value in enumerate(values if nested else ()):
            if type(value) in nested and getattr(value, "shape", True) != ():
                raise _not_a_value(value, where, row)
    values = with_missing(values)
    array = _as_array(values, where)
    if array.ndim == 0:
        text = "must have as many values as other columns"
        raise DataError(f"{where}: {text} (got one, {quoted(values)})")
    if array.ndim != 1:
        raise DataError(f"{where}: must be one-dimensional (shape {array.shape}); split it")
    kind = array.dtype.kind
    given_as_float = kind == "f" and isinstance(values, np.ndarray)  # the caller chose float
    if kind in "iuf" and not (name in options.numbers or given_as_float):
        with np.errstate(over="ignore"):  # beyond float16
            kind = "O" if ((array >= FIRST_INEXACT) | (array <= -FIRST_INEXACT)).any() else kind
    if kind in "biufM":
        return column_of(array, where)
    if kind == "m":
        if np.datetime_data(array.dtype)[0] in "YM":
            raise DataError(f"{where}: years and months have no fixed length; write days")
        return Column(array / np.timedelta64(1, "s"))
    as_text = name in options.text or (_is_categorical(values) and name not in options.numbers)
    if isinstance(values, list | tuple):
        objects = list(values)  # NumPy would convert numbers to text if one value is text
    else:
        objects = python_values(values) or array.tolist()
    column = _of_objects(objects, name, where, as_text, options)
    if column.kind in ("number", "boolean"):
        kinds = {type(value) for value in objects if not is_missing(value)}
        if kinds and all(issubclass(kind, str) for kind in kinds):
            number_texts[name] = _equal_texts(objects, column) if column.kind == "number" else ()
    return column


def one_number(name: str, texts: Sequence[str], advice: str) -> str:
    """Return a warning about two texts of a column that are read as one number."""
    return (
        f"column {name!r}: the texts {' and '.join(map(repr, texts))} are read as one number; if "
        f"they are different codes, {advice}"
    )


def _equal_texts(values: list[Any], column: Column) -> tuple[str, ...]:
    """Return two different texts of an equal number, or nothing."""
    known: dict[float, str] = {}
    for row in np.flatnonzero(~column.missing).tolist():
        text = values[row].strip()
        if (first := known.setdefault(float(column.values[row]), text)) != text:
            return first, text
    return ()


def python_values(column: Any) -> list[Any] | None:
    """Return a NumPy, pandas, polars or pyarrow column as a list; None for other objects."""
    ways = (getattr(column, way, None) for way in ("tolist", "to_list", "to_pylist"))
    return next((way() for way in ways if way is not None), None)


def _of_objects(
    values: list[Any], name: str, where: str, as_text: bool, options: CsvOptions
) -> Column:
    """Convert Python objects to a column of their common kind or, if kinds differ, to text."""
    if any(issubclass(kind, np.datetime64 | np.timedelta64) for kind in set(map(type, values))):
        values = [_moment(value) for value in values]
    gaps = [is_missing(value) for value in values]
    known = [value for value, gap in zip(values, gaps, strict=True) if not gap]
    missing = np.array(gaps, bool)
    if all(isinstance(value, bool | np.bool_) for value in known):
        return Column(_with_gaps(known, missing), "boolean" if known else "number")
    whole = [value for value in known if isinstance(value, int | np.integer)]
    is_exact = name in options.numbers or all(abs(int(value)) < FIRST_INEXACT for value in whole)
    if is_exact and all(isinstance(value, int | float | Decimal | np.number) for value in known):
        try:
            return Column(_with_gaps(known, missing))
        except OverflowError:
            raise DataError(f"{where}: numbers must fit into float64") from None
    if all(isinstance(value, date) for value in known):
        return Column(_with_gaps([_seconds(value) for value in known], missing), "date")
    if all(isinstance(value, time) for value in known):  # times of the first day
        moments = [datetime.combine(_FIRST_DAY, value) for value in known]
        return Column(_with_gaps([_seconds(moment) for moment in moments], missing), "date")
    if all(isinstance(value, timedelta) for value in known):
        return Column(_with_gaps([value.total_seconds() for value in known], missing))
    texts = [_text(value, where, row) for row, value in enumerate(values)]
    source = where.removesuffix(f": column {name!r}")
    column = text_column(texts, name, source, options, as_text)
    if column.missing.all() and name not in options.numbers and any(map(str.strip, texts)):
        column = text_column(texts, name, source, options, True)  # NA and others are levels
    _require_unicode(column.levels, where)
    if name in options.labels:
        if blank := sum(isinstance(value, str) and not value.strip() for value in values):
            text = "warning: %s: the empty text is missing, as in a CSV (%s); give the class a name"
            _log.warning(text, where, plural(blank, "row"))
        _refuse_equal_labels(values, column, where)
    return column


def _as_array(values: Any, where: str) -> Array:
    """Return a column as an array; lists with texts become object arrays, to save memory."""
    if hasattr(values, "to_pylist") and _is_categorical(values):
        values = values.to_pylist()  # NumPy would read a null of a dictionary as its last value
    is_list = isinstance(values, list | tuple)
    has_texts = is_list and any(issubclass(kind, str) for kind in set(map(type, values)))
    try:
        return np.asarray(values, object if has_texts else None)
    except Exception as error:  # libraries raise classes of their own
        raise DataError(f"{where}: must have a type that NumPy has ({error}); cast it") from None


def _require_unicode(texts: Iterable[str], where: str) -> None:
    """Raise DataError for a lone surrogate; UTF-8 cannot encode surrogates."""
    for text in texts:
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise DataError(f"{where}: texts must be valid Unicode ({cut(ascii(text))})")


def _refuse_equal_labels(values: list[Any], column: Column, where: str) -> None:
    """Raise DataError for labels that differ only in type, such as 1 and "1" or "1.0".

    Texts such as "yes" and "yes " are one label, with a warning.
    """
    known: dict[float, Any] = {}
    joined: dict[str, str] = {}
    for row in np.flatnonzero(~column.missing).tolist():
        value = values[row]
        first = known.setdefault(float(column.values[row]), value)
        kind, before = type(value), type(first)
        if kind is not before and str in (kind, before):
            raise DataError(
                f"{where}, row {row + 1}: equal values must have one type ({quoted(value)} is "
                f"{kind.__name__} here and {before.__name__} before); convert the column to text"
            )
        if isinstance(value, str) and value != first:
            joined.setdefault(value, first)
    other = next((code for code, one in known.items() if not isinstance(one, str)), None)
    if column.kind == "text" and other is not None and str in map(type, known.values()):
        text = "warning: %s: texts and other values are mixed; the label of %r is the text '%s'"
        _log.warning(text, where, known[other], column.levels[int(other)])
    if joined and column.kind == "text":
        pairs = ", ".join(f"{quoted(a)} and {quoted(b)}" for a, b in [*joined.items()][:3])
        text = "warning: %s: %s are one class, as in a CSV; to keep both, change one of them"
        _log.warning(text, where, pairs)


def _with_gaps(known: Sequence[Any], missing: Array) -> Array:
    values = np.full(len(missing), np.nan)
    values[~missing] = np.fromiter(map(shortest, known), np.float64, len(known))
    return values


def is_missing(value: Any) -> bool:
    """Return whether a value of a column is missing: None, NaN, NA or NaT."""
    if value is None or type(value).__name__ in _GAPS:
        return True
    return (isinstance(value, float) and isnan(value)) or (
        isinstance(value, Decimal) and value.is_nan()
    )


def _moment(value: Any) -> Any:
    """Return a time of NumPy as a time of Python, in microseconds; other values unchanged."""
    is_time = isinstance(value, np.datetime64 | np.timedelta64)
    return value.astype(f"{value.dtype.kind}8[us]").item() if is_time else value


def _seconds(moment: date) -> float:
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _text(value: Any, where: str, row: int) -> str:
    """Return a value as text in the notation of CSV."""
    if isinstance(value, str):
        return value
    if is_missing(value):
        return ""
    if isinstance(value, bool | np.bool_):
        return number_text("boolean", float(value))
    if isinstance(value, int | np.integer):
        if not -LARGEST <= int(value) <= LARGEST:
            raise DataError(f"{where}, row {row + 1}: numbers must fit into float64")
        return str(value)
    if isinstance(value, float | np.number):
        return number_text("number", shortest(value))
    if isinstance(value, date | Decimal):
        return str(value)
    raise _not_a_value(value, where, row)


def _not_a_value(value: Any, where: str, row: int) -> DataError:
    kind = type(value).__name__
    ways = {"Interval": "astype(str)", "Period": "dt.to_timestamp()", "bytes": "str.decode('utf8')"}
    advice = f", such as by .{ways[kind]} of pandas" if kind in ways else ""
    return DataError(
        f"{where}, row {row + 1}: a number, boolean, date or text is needed "
        f"({kind} {quoted(value)}); convert the column{advice}, or remove it from the table"
    )
