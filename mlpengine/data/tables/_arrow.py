"""Tables from Parquet and Feather files, read in batches of rows by pyarrow."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.data.tables._files import BINARY_BYTES, brief, readable, refuse_bomb
from mlpengine.data.tables.cells import FIRST_INEXACT, sorted_levels
from mlpengine.data.tables.column_reader import Growing, answers_of, dates_of
from mlpengine.data.tables.dialect import CsvOptions
from mlpengine.data.tables.stored import Spill
from mlpengine.data.tables.table import Column, ColumnKind, Table, date_column

_BATCH, _BUFFER = 1 << 16, 1 << 20
"""Rows of a batch, and bytes of a column chunk of Parquet that are read at once."""

Batches: TypeAlias = Callable[[Sequence[str]], Iterator[Any]]
"""Yields batches of rows of these columns."""


def _open_parquet(path: str) -> tuple[Any, Batches]:
    from pyarrow import parquet

    schema = parquet.read_schema(path)
    # a text that is stored once and stands in all rows is kept once
    texts = [field.name for field in schema if _is_text(field.type)]

    def batches(names: Sequence[str]) -> Iterator[Any]:
        with parquet.ParquetFile(
            path, read_dictionary=texts, pre_buffer=False, buffer_size=_BUFFER
        ) as file:
            yield from file.iter_batches(_BATCH, columns=names, use_threads=False)

    return schema, batches


def _open_feather(path: str) -> tuple[Any, Batches]:
    from pyarrow import ipc

    with ipc.open_file(path) as file:
        schema = file.schema

    def batches(names: Sequence[str]) -> Iterator[Any]:
        with ipc.open_file(path) as file:
            for number in range(file.num_record_batches):
                batch = file.get_batch(number).select(names)
                for start in range(0, batch.num_rows, _BATCH):
                    yield batch.slice(start, _BATCH)

    return schema, batches


class ArrowFiles(NamedTuple):
    """How files of a format are read.

    Attributes:
        name: the format's name.
        open: returns the schema of a file, and its batches.
    """

    name: str
    open: Callable[[str], tuple[Any, Batches]]

    def read(self, path: str, options: CsvOptions) -> Table:
        """Return the table of a file.  Raises: DataError."""
        return self._read(path, options, None)

    def store(self, path: str, spill: Spill, options: CsvOptions) -> Table:
        """Read a file into a spill; return a table without columns.  Raises: DataError."""
        return self._read(path, options, spill)

    def _read(self, path: str, options: CsvOptions, spill: Spill | None) -> Table:
        with self._errors(path):
            schema, batches = self._opened(path)
            text, skipped = set(options.text), spill.skipped if spill else ()
            todo = [name for name in schema.names if name not in skipped]
            grown: dict[str, _GrowingColumn] = {}
            n_rows = 0
            while todo:
                grown |= {name: _GrowingColumn(spill) for name in todo}
                unpacked = n_rows = 0
                for batch in batches(todo):
                    n_rows += batch.num_rows
                    unpacked += batch.nbytes + 8 * batch.num_rows * len(todo)
                    if spill is None:
                        refuse_bomb(unpacked, os.path.getsize(path), path, BINARY_BYTES)
                    for name in todo:
                        grown[name].add(_column(batch[name], path, name, name in text))
                # whole numbers beyond 2**53 are texts, as in CSV
                whole = {name for name in todo if _is_integer(schema, name)} - options.numbers
                todo = [name for name in todo if name in whole - text and grown[name].is_inexact]
                text |= {*todo}
            if not n_rows:
                raise DataError(f"{path}: holds no rows")
        table = Table({}, path)
        for name in schema.names:
            if name not in grown:
                assert spill is not None
                spill.skip(name)
                continue
            column = _spelled(grown.pop(name).column(), schema, name, name in text, options)
            if spill is None:
                table.columns[name] = column
            else:
                spill.keep(name, column)
        return table if spill is not None else Table(table.columns, path)

    def blocks(self, path: str, options: CsvOptions) -> Iterator[Table]:
        """Yield the rows of a file as tables of some rows each.  Raises: DataError."""
        first = 0
        with self._errors(path):
            schema, batches = self._opened(path)
            skipped = options.skipped(schema.names)
            kept = [name for name in schema.names if name not in skipped]
            for batch in batches(kept):
                if batch.num_rows:
                    columns = {n: _block_column(batch, path, n, schema, options) for n in kept}
                    origin = np.arange(first, first + batch.num_rows)
                    yield Table(columns, path, origin=origin)
                first += batch.num_rows
        if not first:
            raise DataError(f"{path}: holds no rows")

    def is_whole(self, path: str, name: str) -> bool:
        """Return whether a column has a type of whole numbers."""
        return _is_integer(self.open(path)[0], name)

    def _opened(self, path: str) -> tuple[Any, Batches]:
        schema, batches = self.open(path)
        if len(set(schema.names)) < len(schema.names) or "" in schema.names:
            raise DataError(f"{path}: every column needs a name of its own ({schema.names})")
        return schema, batches

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        import pyarrow

        with readable(path):
            try:
                yield
            except (pyarrow.ArrowException, OverflowError) as error:
                raise DataError(f"{path}: is not a whole {self.name} ({brief(error)})") from error


PARQUET = ArrowFiles("Parquet file", _open_parquet)
FEATHER = ArrowFiles("Arrow (Feather) file", _open_feather)


class _GrowingColumn:
    """A column that is read in batches, each with texts of its own."""

    def __init__(self, spill: Spill | None) -> None:
        self._spill = spill
        self._grown: Growing | None = None
        self._codes: dict[str, int] = {}
        self._kind: ColumnKind = "number"
        self.is_inexact = False

    def add(self, column: Column) -> None:
        """Add the values of further rows."""
        values = column.values
        if column.kind == "text":
            codes = self._codes
            own = [codes.setdefault(level, len(codes)) for level in column.levels]
            values = np.array([*own, -1], np.int32)[values]
        else:
            self.is_inexact |= bool((np.abs(values) >= FIRST_INEXACT).any())
        if self._grown is None:
            self._kind = column.kind
            self._grown = Growing(values.dtype.type, self._spill)
        self._grown.append(values)

    def column(self) -> Column:
        """Return the finished column."""
        assert self._grown is not None
        values = self._grown.values()
        if self._kind != "text":
            return Column(values, self._kind)
        codes, levels = sorted_levels(values, list(self._codes))
        return Column(codes, "text", levels)


def _block_column(batch: Any, path: str, name: str, schema: Any, options: CsvOptions) -> Column:
    """Return a column of a batch, in the kind that its own rows imply."""
    as_text = name in options.text
    column = _column(batch[name], path, name, as_text)
    if not as_text and name not in options.numbers and _is_integer(schema, name):
        as_text = bool((np.abs(column.values) >= FIRST_INEXACT).any())
        column = _column(batch[name], path, name, as_text)
    return _spelled(column, schema, name, as_text, options)


def _spelled(column: Column, schema: Any, name: str, as_text: bool, options: CsvOptions) -> Column:
    """Return a column of texts that spell true and false, or dates, as one of these, as in CSV.

    It stays as it is if it is `as_text`, or of a categorical type.
    """
    from pyarrow import types

    if column.kind != "text" or as_text or types.is_dictionary(schema.field(name).type):
        return column
    return answers_of(column) or dates_of(column, name, options) or column


def _is_integer(schema: Any, name: str) -> bool:
    from pyarrow import types

    return bool(types.is_integer(schema.field(name).type))


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _column(values: Any, path: str, name: str, as_text: bool) -> Column:
    """Return an array as a column; whole numbers are texts if that is wanted."""
    from pyarrow import types

    kind = values.type
    if as_text and types.is_integer(kind):
        return _text(values.cast("string"))
    if _is_text(kind):
        return _text(values)
    if types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if types.is_boolean(kind):
        return Column(_numbers(values.cast("int8")), "boolean")
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
            return Column(seconds)
        return date_column(seconds, f"{path}: column {name!r}")
    if types.is_null(kind):
        return Column(np.full(len(values), np.nan))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return Column(_numbers(values))
    raise DataError(
        f"{path}: column {name!r}: type {kind} is not supported; write the "
        "file without it, or with numbers, texts or dates in its place"
    )


def _text(values: Any) -> Column:
    """Return texts as codes; their dictionary may repeat or lack texts."""
    whole = values if hasattr(values, "dictionary") else values.dictionary_encode()
    texts = whole.dictionary.to_pylist()
    levels = list(dict.fromkeys(text for text in texts if text is not None))
    places = {text: place for place, text in enumerate(levels)}
    codes = np.array([*(places.get(text, -1) for text in texts), -1], np.int32)
    places_of_rows = array_of(whole.indices.cast("int32"), np.int32, len(texts))
    return Column(codes[places_of_rows], "text", tuple(levels))


def _numbers(values: Any) -> Array:
    return array_of(values.cast("float64", safe=False), np.float64, np.nan)


def array_of(values: Any, dtype: type[np.generic], gap: float) -> Array:
    """Return an array of pyarrow as one of NumPy, with `gap` where it is null.

    `to_numpy` would import pandas where that is installed.
    """
    valid, data = values.buffers()
    part = slice(values.offset, values.offset + len(values))
    array = np.frombuffer(data, dtype)[part] if len(values) else np.empty(0, dtype)
    if not values.null_count:
        return array
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), count=part.stop, bitorder="little")
    return np.where(bits[part], array, dtype(gap))
