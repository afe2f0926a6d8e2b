"""Tables from Parquet and Feather files, read in batches of rows by pyarrow."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.data.tables._files import BINARY_BYTES, brief, readable, refuse_bomb
from mlpengine.data.tables.column_reader import (
    NUMBERS,
    TEXT,
    ColumnReader,
    of_texts,
    without_numbers,
)
from mlpengine.data.tables.dialect import CsvOptions
from mlpengine.data.tables.parsing import FIRST_INEXACT
from mlpengine.data.tables.stored import Spill
from mlpengine.data.tables.table import Column, ColumnKind, Table, date_column

_BATCH, _VALUES, _BUFFER = 1 << 17, 1 << 22, 1 << 20
"""Maximum rows of a batch, maximum values of a batch, bytes of a Parquet column per read."""

BatchReader: TypeAlias = Callable[[Sequence[str]], Iterator[Any]]
"""Function that yields batches of rows with the given columns."""


class Opened(NamedTuple):
    """An open file: its schema, its number of rows (0 if unknown), and a reader of its rows."""

    schema: Any
    n_rows: int
    batches: BatchReader


def _where(path: str, name: str) -> str:
    return f"{path}: column {name!r}"


def _batch_rows(names: Sequence[str]) -> int:
    return max(1, min(_BATCH, _VALUES // max(1, len(names))))


def _open_parquet(path: str) -> Opened:
    from pyarrow import parquet

    metadata = parquet.read_metadata(path)
    schema = metadata.schema.to_arrow_schema()
    # dictionary-encoded texts: memory holds each distinct text once
    texts = [field.name for field in schema if _is_text(field.type)]

    def batches(names: Sequence[str]) -> Iterator[Any]:
        with parquet.ParquetFile(
            path, read_dictionary=texts, pre_buffer=False, buffer_size=_BUFFER
        ) as file:
            yield from file.iter_batches(_batch_rows(names), columns=names, use_threads=False)

    return Opened(schema, metadata.num_rows, batches)


def _open_feather(path: str) -> Opened:
    from pyarrow import ipc

    with ipc.open_file(path) as file:
        schema = file.schema

    def batches(names: Sequence[str]) -> Iterator[Any]:
        with ipc.open_file(path) as file:
            for number in range(file.num_record_batches):
                batch = file.get_batch(number).select(names)
                rows = _batch_rows(names)
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)

    return Opened(schema, 0, batches)


class ArrowFiles(NamedTuple):
    """Reads files of one format; `name` is the format's name in messages."""

    name: str
    open: Callable[[str], Opened]

    def read(self, path: str, options: CsvOptions) -> Table:
        """Return the table of a file.  Raises: DataError."""
        return self._read(path, options, None)

    def store(self, path: str, spill: Spill, options: CsvOptions) -> Table:
        """Write the columns of a file into `spill`; return a table without columns."""
        return self._read(path, options, spill)

    def _read(self, path: str, options: CsvOptions, spill: Spill | None) -> Table:
        with self._errors(path):
            schema, expected, batches = self._opened(path)
            size = os.path.getsize(path)
            if spill is None:
                refuse_bomb(8 * expected * len(schema.names), size, path, BINARY_BYTES)
            text = set(options.text)
            skipped = spill.skipped if spill else options.skipped(schema.names)
            todo = [name for name in schema.names if name not in skipped]
            grown: dict[str, _GrowingColumn] = {}
            n_rows = 0
            while todo:
                grown |= {name: _GrowingColumn(name, options, spill, expected) for name in todo}
                unpacked = n_rows = 0
                for batch in batches(todo):
                    n_rows += batch.num_rows
                    unpacked += batch.nbytes + 8 * batch.num_rows * len(todo)
                    if spill is None:
                        refuse_bomb(unpacked, size, path, BINARY_BYTES)
                    for name in todo:
                        grown[name].add(*_values(batch[name], _where(path, name), name in text))
                # whole numbers beyond 2**53 are texts, as in CSV
                whole = {
                    name for name in todo if _is_integer(schema.field(name).type)
                } - options.numbers
                todo = [name for name in todo if name in whole - text and grown[name].is_inexact]
                text |= {*todo}
            if not n_rows:
                raise DataError(f"{path}: holds no rows")
        table = Table({}, path)
        for name in schema.names:
            if name not in grown:
                if spill is not None:
                    spill.skip(name)
                continue
            kind = schema.field(name).type
            column = _parsed(grown.pop(name).column(), kind, path, name, options)
            if spill is None:
                table.columns[name] = column
            else:
                spill.keep(name, column)
        return table if spill is not None else Table(table.columns, path)

    def blocks(self, path: str, options: CsvOptions) -> Iterator[Table]:
        """Yield the rows of a file as tables, one per block of rows.  Raises: DataError."""
        first = 0
        with self._errors(path):
            schema, _, batches = self._opened(path)
            skipped = options.skipped(schema.names)
            kept = [name for name in schema.names if name not in skipped]
            for batch in batches(kept):
                if batch.num_rows:
                    columns = {n: arrow_column(batch[n], path, n, options) for n in kept}
                    origin = np.arange(first, first + batch.num_rows)
                    yield Table(columns, path, origin=origin)
                first += batch.num_rows
        if not first:
            raise DataError(f"{path}: holds no rows")

    def column(self, path: str, name: str) -> Any:
        """Return a column of a file unchanged, as a pyarrow.ChunkedArray.  Raises: DataError."""
        import pyarrow

        with self._errors(path):
            schema, _, batches = self._opened(path)
            kind = schema.field(name).type
            return pyarrow.chunked_array([b[name].cast(kind) for b in batches([name])], kind)

    def _opened(self, path: str) -> Opened:
        opened = self.open(path)
        names = opened.schema.names
        if wrong := [name for name, count in Counter(names).items() if count > 1 or not name]:
            raise DataError(f"{path}: each column needs a name of its own (got {wrong})")
        return opened

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        import pyarrow

        with readable(path):
            try:
                yield
            except (pyarrow.ArrowException, OverflowError) as error:
                unknown = isinstance(error, pyarrow.ArrowNotImplementedError)
                fault = (
                    "has a type that cannot be read" if unknown else f"is not a whole {self.name}"
                )
                raise DataError(f"{path}: {fault} ({brief(error)})") from error


PARQUET = ArrowFiles("Parquet file", _open_parquet)
FEATHER = ArrowFiles("Arrow file (Feather version 2, not a stream)", _open_feather)


class _GrowingColumn:
    """Joins the batches of a column; each batch has its own dictionary of texts."""

    def __init__(
        self, name: str, options: CsvOptions, spill: Spill | None = None, expected: int = 0
    ) -> None:
        self._name, self._options, self._spill, self._expected = name, options, spill, expected
        self._kind: ColumnKind = "number"
        self._reader: ColumnReader | None = None
        self.is_inexact = False

    def add(self, kind: ColumnKind, values: Array, texts: Sequence[str | None] = ()) -> None:
        """Add the values of further rows, or codes of `texts`; None is a missing text."""
        if self._reader is None:
            step = TEXT if kind == "text" else NUMBERS
            self._kind, self._dtype = kind, values.dtype
            self._reader = ColumnReader(self._name, self._options, step, self._spill)
            self._reader.expect(self._expected)
        if kind == "text":
            self._reader.add([text or "" for text in texts], values)
        else:
            self.is_inexact |= bool((np.abs(values) >= np.float64(FIRST_INEXACT)).any())
            self._reader.append(values)

    def column(self) -> Column:
        assert self._reader is not None
        column = self._reader.column()
        if self._kind == "text":
            return column
        return Column(column.values.astype(self._dtype, copy=False), self._kind)


def arrow_column(array: Any, path: str, name: str, options: CsvOptions) -> Column:
    """Convert a pyarrow array to a column; the values determine the kind of the column.

    Raises: DataError that begins with `path`, for a type that is not supported.
    """
    as_text, is_whole = name in options.text, _is_integer(array.type)
    while True:
        grown = _GrowingColumn(name, options)
        grown.add(*_values(array, _where(path, name), as_text))
        if as_text or not (grown.is_inexact and is_whole) or name in options.numbers:
            return _parsed(grown.column(), array.type, path, name, options)
        as_text = True  # whole numbers beyond 2**53 are texts, as in CSV


def _parsed(column: Column, kind: Any, path: str, name: str, options: CsvOptions) -> Column:
    """Return a text column as numbers, booleans or dates if all texts allow it, as in CSV.

    Texts of a dictionary stay texts, except in `options.numbers`.
    """
    from pyarrow import types

    if column.kind != "text" or name in options.text:
        return without_numbers(column, options.reading.missing_numbers)
    is_id = name in options.kept  # an id such as 1.50 stays as it is
    if name not in options.numbers and (is_id or types.is_dictionary(kind)):
        return column
    return of_texts(column, path, name, options)


def _is_integer(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind))


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _values(
    values: Any, where: str, as_text: bool
) -> tuple[ColumnKind, Array, Sequence[str | None]]:
    """Return the kind, the values or codes, and the texts of a pyarrow array."""
    from pyarrow import types

    kind = values.type
    if types.is_string_view(kind):
        values = values.cast("large_string")
        kind = values.type
    if as_text and types.is_integer(kind):
        return _text(values.cast("string"))
    if _is_text(kind):
        return _text(values)
    if types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if types.is_boolean(kind):
        return "boolean", _numbers(values.cast("int8")), ()
    if types.is_date(kind):
        values = values.cast("timestamp[s]" if types.is_date32(kind) else "timestamp[ms]")
        kind = values.type
    if types.is_time32(kind):
        values = values.cast("time64[us]")
        kind = values.type
    if types.is_timestamp(kind) or types.is_time(kind) or types.is_duration(kind):
        per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[kind.unit]
        seconds = _numbers(values.cast("int64")) / per_second
        if types.is_duration(kind):
            return "number", seconds, ()
        return "date", date_column(seconds, where).values, ()
    if types.is_null(kind):
        return "number", np.full(len(values), np.nan), ()
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number", _numbers(values), ()
    raise DataError(
        f"{where}: type {kind} is not supported; write the table without this column (data.drop "
        "is not enough), or with numbers, texts or dates in it"
    )


def _text(values: Any) -> tuple[ColumnKind, Array, Sequence[str | None]]:
    whole = values if hasattr(values, "dictionary") else values.dictionary_encode()
    codes = array_of(whole.indices.cast("int32"), np.int32, -1)
    return "text", codes, whole.dictionary.to_pylist()


def _numbers(values: Any) -> Array:
    dtype = values.type.to_pandas_dtype()
    if dtype not in (np.float16, np.float32):
        values, dtype = values.cast("float64", safe=False), np.float64
    return array_of(values, dtype, np.nan)


def array_of(values: Any, dtype: type[np.generic], gap: float) -> Array:
    """Convert a pyarrow array to NumPy, with `gap` for null (`to_numpy` may import pandas)."""
    valid, data = values.buffers()
    part = slice(values.offset, values.offset + len(values))
    array = np.frombuffer(data, dtype)[part] if len(values) else np.empty(0, dtype)
    if not values.null_count:
        return array
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), count=part.stop, bitorder="little")
    return np.where(bits[part], array, dtype(gap))
