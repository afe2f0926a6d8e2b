"""Reading tables: CSV, Parquet, `.npy`, `.npz`, and the data sets that ship with the package."""

import os
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from errno import ENOMEM
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from warnings import catch_warnings

import numpy as np

from mlpengine.core.errors import DataError, importing
from mlpengine.core.spec import Array
from mlpengine.data.tables._csv import CsvOptions, answers_of, dates_of, read_csv, read_csv_blocks
from mlpengine.data.tables._files import (
    BINARY_BYTES,
    buffered,
    checked_stream,
    opener,
    readable,
    refuse_bomb,
    require_file,
    transcoded,
)
from mlpengine.data.tables.cells import FIRST_INEXACT, sorted_levels
from mlpengine.data.tables.dialect import DEFAULT, CsvDialect
from mlpengine.data.tables.progress import OnProgress
from mlpengine.data.tables.stored import Segment, Spill, stored_table
from mlpengine.data.tables.table import Column, ColumnKind, Table, column_of, date_column

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

DATASETS: Mapping[str, str] = {"digits": "digit", "diabetes": "progression", "penguins": "species"}
"""The data sets that ship with the package, and the target column of each."""


def read_table(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    missing: Iterable[str] | None = None,
    text: Iterable[str] = (),
    numbers: Iterable[str] = (),
    progress: OnProgress | None = None,
    **spelling: Any,
) -> Table:
    r"""Read a data set by name ("digits"), a file by path, or an open binary stream of CSV.

    CSV has a header; the delimiter (comma, semicolon, tab or bar) is inferred, quoted cells may
    hold delimiters and line breaks, blanks around cells and blank lines are dropped. A first column
    that has no name and numbers the rows is left out, and so are last ones with neither names nor
    values.
    Cells spelled as in `missing` (by default empty, NA, N/A, NaN, null, None, ?) are missing.
    Numbers may be written 1e-3, inf or, unless 1,234 leaves it open, 1,5; a column with whole
    numbers beyond 2**53 is text, and so are the columns `text` and, unless they are among
    `numbers`, those with codes such as 007. Dates of ISO 8601 or dd.mm.yyyy, times
    of day and true/false are recognized. `spelling` are the options of `CsvDialect`: delimiter,
    decimal, thousands, text_encoding, na_values, date_format.
    `.npy` is memory-mapped: a matrix has columns "x0", "x1", ..., a vector one column called like
    the file; `.npz` has one column per 1-D array and "name0", "name1", ... per matrix. Parquet
    needs the extra `data`; whole numbers beyond 2**53, texts of true/false, of dates and the
    columns `text` are read as those of CSV. `progress` is called with the share of a CSV file that
    is read.

    >>> read_table("penguins")
    Table('penguins', 344 rows, 7 columns)

    Raises: DataError if it cannot be read; MissingExtraError for Parquet without the extra.
    """
    options = CsvOptions.of(CsvDialect.from_dict(spelling), text, numbers)
    if missing is not None:
        options = options._replace(missing=frozenset(map(str.strip, missing)) | {""})
    encoding = options.reading.text_encoding
    if not isinstance(source, str | os.PathLike):
        return read_csv(buffered(checked_stream(source), encoding), "standard input", options)
    name = os.fspath(source)
    if name in DATASETS and not os.path.isfile(name):
        return load_dataset(name)
    _refuse_config(name)
    if known := table_format(name):
        require_file(name)
        return known.read(name, options)
    if not os.path.splitext(name)[1] and not os.path.exists(name):
        raise DataError(
            f"{name}: no such file, and not one of the data sets {', '.join(sorted(DATASETS))}"
        )
    return read_csv(opener(name, progress, encoding), name, options)


def store_table(
    path: str | os.PathLike[str],
    directory: Path,
    *,
    text: Iterable[str] = (),
    numbers: Iterable[str] = (),
    skip: Iterable[str] = (),
    progress: OnProgress | None = None,
    **spelling: Any,
) -> Table:
    """Return what `read_table` returns, with columns in a file below `directory`.

    CSV and Parquet are read in blocks, so that the memory that it takes is that of a few columns,
    and of the different texts of all. Of the columns `skip` no cell is read: all are missing.  A
    file that is mapped needs no other.

    Raises: DataError, also for a file of another format; MissingExtraError; RunError if the file
        cannot be written.
    """
    name = os.fspath(path)
    if known := table_format(name):
        options = CsvOptions.of(DEFAULT, text, numbers)
        if known.mapped:
            return known.read(name, options)
        store = known.store
        if store is None:
            raise DataError(f"{name}: only CSV, Parquet and .npy can be streamed")
        how = {"text": sorted(options.text), "numbers": sorted(options.numbers)}
        return stored_table(
            Path(path), directory, how, lambda at, spill: store(at, spill, options), frozenset(skip)
        )

    reading = CsvDialect.from_dict(spelling)
    options = CsvOptions.of(reading, text, numbers)

    def read(where: str, spill: Spill) -> Table:
        open_file = opener(where, progress, reading.text_encoding)
        return read_csv(open_file, where, options, spill=spill)

    how = {**asdict(reading), "text": sorted(options.text), "numbers": sorted(options.numbers)}
    with readable(name):
        return stored_table(Path(path), directory, how, read, frozenset(skip))


def read_blocks(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    text: Iterable[str] = (),
    numbers: Iterable[str] = (),
    kept: Iterable[str] = (),
    **spelling: Any,
) -> Iterator[Table]:
    """Yield the rows of a table as `read_table` reads them, in blocks of bounded memory.

    A CSV column is of the kind that its cells in a block imply.  Only the columns `kept` are read;
    all of them if none are given or one of them is missing.  Formats other than CSV and Parquet are
    one block.

    Raises: DataError; MissingExtraError.
    """
    options = CsvOptions.of(CsvDialect.from_dict(spelling), text, numbers, kept)
    encoding = options.reading.text_encoding
    if not isinstance(source, str | os.PathLike):
        yield from read_csv_blocks(
            transcoded(checked_stream(source), encoding), "standard input", options
        )
        return
    name = os.fspath(source)
    _refuse_config(name)
    known = table_format(name)
    if known and known.blocks:
        require_file(name)
        yield from known.blocks(name, options)
        return
    if os.path.isfile(name) and not known:
        with readable(name), opener(name, encoding=encoding)() as stream:
            yield from read_csv_blocks(stream, name, options)
        return
    yield read_table(source, text=text, numbers=numbers, **spelling)


def _refuse_config(name: str) -> None:
    """Raise DataError for the name of a config."""
    if name.lower().endswith((".yaml", ".yml")):
        raise DataError(f"{name}: is a config, not a table; name a file of CSV or Parquet")


_BATCH, _BUFFER = 1 << 16, 1 << 20
"""Rows of a block of Parquet, and bytes of a column chunk that are read at once."""

_DAMAGED = (
    ValueError, TypeError, KeyError, EOFError, SyntaxError, TokenError, OverflowError,
    RecursionError, MemoryError,
)  # fmt: skip
"""What NumPy raises for a header that is damaged: it is a Python literal, of any shape."""


def load_dataset(name: str) -> Table:
    """Return one of the data sets that ship with the package.

    Raises: DataError for an unknown name.
    """
    if name not in DATASETS:
        raise DataError(f"{name}: the data sets are {', '.join(sorted(DATASETS))}")
    path = Path(__file__).parents[1] / "datasets" / f"{name}.csv.gz"
    return read_csv(opener(path), name, CsvOptions())


def _read_npy(path: str, _options: CsvOptions) -> Table:
    with readable(path):
        try:
            with catch_warnings(action="ignore"):  # of headers that Python 2 wrote
                array = np.lib.format.open_memmap(path, mode="r")
        except (*_DAMAGED, OSError) as error:
            if isinstance(error, OSError) and error.errno != ENOMEM:  # Windows, of a file cut short
                raise
            raise DataError(
                f"{path}: is not a whole .npy file of numbers ({_brief(error)})"
            ) from error
    return _from_array(np.asarray(array), path)


def _brief(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    hidden = "pickle" in text or "Python objects" in text or "Object arrays" in text
    return "pickled objects are never loaded; save plain numbers" if hidden else text


def _from_array(array: Array, path: str) -> Table:
    if array.ndim not in (1, 2) or array.shape[0] == 0:
        raise DataError(f"{path}: rows and columns are needed (shape {array.shape})")
    if array.dtype.names:
        columns = {name: _checked(array[name], path, name) for name in array.dtype.names}
        return Table(columns, path)
    return Table.from_arrays(
        array, names=[Path(path).stem] if array.ndim == 1 else None, source=path
    )


def _checked(values: Array, path: str, name: str) -> Column:
    if values.ndim != 1:
        raise DataError(f"{path}: column {name!r} must be 1-D (shape {values.shape})")
    return column_of(values, f"{path}: column {name!r}")


def _read_npz(path: str, _options: CsvOptions) -> Table:
    from zipfile import BadZipFile, ZipFile  # slow, and few tables need it

    columns: dict[str, Column] = {}
    with readable(path):
        try:
            with ZipFile(path) as archive, catch_warnings(action="ignore"):
                members = archive.infolist()
                unpacked = sum(info.file_size for info in members)
                refuse_bomb(unpacked, os.path.getsize(path), path, BINARY_BYTES)
                for info in members:
                    name = info.filename.removesuffix(".npy")
                    further = _named(name, _member(archive, info, path), path)
                    for twice in columns.keys() & further.keys():
                        raise DataError(
                            f"{path}: every column needs a name of its own (array {name!r} and an "
                            f"array before it both make a column {twice!r}); rename one of them"
                        )
                    columns |= further
        except (*_DAMAGED, BadZipFile, NotImplementedError, zlib.error) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{path}: is not a whole .npz file of numbers ({_brief(error)})"
            ) from error
    if not columns or len(next(iter(columns.values())).values) == 0:
        raise DataError(f"{path}: holds no rows")
    return Table(columns, path)


def _member(archive: "ZipFile", info: "ZipInfo", path: str) -> Array:
    """Return one array of an archive, after checking its header against its size."""
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read: Any = np.lib.format.read_array_header_1_0
        shape, _, dtype = (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(
            stream
        )
        if prod(shape) * dtype.itemsize > info.file_size and not dtype.hasobject:
            raise DataError(
                f"{path}: {info.filename}: its header declares more than the file holds "
                f"(shape {shape} of {dtype})"
            )
    with archive.open(info) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _named(name: str, array: Array, path: str) -> dict[str, Column]:
    if array.ndim == 1:
        return {name: _checked(array, path, name)}
    if array.ndim != 2:
        raise DataError(f"{path}: array {name!r} must be 1-D or 2-D (shape {array.shape})")
    names = [f"{name}{i}" for i in range(array.shape[1])]
    return Table.from_arrays(array, names=names, source=path).columns if names else {}


def _read_parquet(path: str, options: CsvOptions) -> Table:
    with importing("reading Parquet", "data"):
        import pyarrow
        from pyarrow import parquet
    with readable(path):
        try:
            metadata, schema = parquet.read_metadata(path), parquet.read_schema(path)
            groups = range(metadata.num_row_groups)
            unpacked = sum(metadata.row_group(i).total_byte_size for i in groups)
            unpacked += 8 * metadata.num_rows * metadata.num_columns
            refuse_bomb(unpacked, os.path.getsize(path), path, BINARY_BYTES)
            if not metadata.num_rows:
                raise DataError(f"{path}: holds no rows")
            _check_names(schema.names, path)
            text = _texts(path, schema.names, options)
            columns = {}
            # a text that is stored once and stands in all rows is kept once
            texts = [field.name for field in schema if _is_text(field.type)]
            with parquet.ParquetFile(
                path, read_dictionary=texts, pre_buffer=False, buffer_size=_BUFFER
            ) as file:
                for name in schema.names:
                    column = _parquet_column(file, path, name, name in text)
                    columns[name] = _answered(column, schema, name, text, options)
        except (pyarrow.ArrowException, OverflowError) as error:
            raise DataError(f"{path}: is not a whole Parquet file ({_brief(error)})") from error
    return Table(columns, path)


def _parquet_column(file: Any, path: str, name: str, as_text: bool) -> Column:
    """Return a column, whose numbers are in memory twice for one group of rows at a time."""
    values = np.empty(0)
    stop = 0
    for group in range(file.num_row_groups):
        part = file.read_row_group(group, [name], use_threads=False)[name]
        column = _arrow_column(part, path, name, as_text)
        if file.num_row_groups == 1:
            return column
        if column.kind == "text":
            whole = file.read([name], use_threads=False)[name]
            return _arrow_column(whole, path, name, as_text)
        if not group:
            values = np.empty(file.metadata.num_rows, column.values.dtype)
        start, stop = stop, stop + len(column.values)
        values[start:stop] = column.values
    return Column(values, column.kind)


def _parquet_blocks(
    path: str, skipped: Callable[[Sequence[str]], Collection[str]], options: CsvOptions
) -> Iterator[tuple[Any, Mapping[str, Column], Collection[str]]]:
    """Yield the schema, a block of rows of the columns that are not skipped, and those of text."""
    with importing("reading Parquet", "data"):
        import pyarrow
        from pyarrow import parquet
    with readable(path):
        try:
            schema = parquet.read_schema(path)
            _check_names(schema.names, path)
            texts = [field.name for field in schema if _is_text(field.type)]
            without = skipped(schema.names)
            kept = [name for name in schema.names if name not in without]
            text = _texts(path, kept, options)
            with parquet.ParquetFile(
                path, read_dictionary=texts, pre_buffer=False, buffer_size=_BUFFER
            ) as file:
                for batch in file.iter_batches(_BATCH, columns=kept, use_threads=False):
                    table = pyarrow.Table.from_batches([batch])
                    columns = {n: _arrow_column(table[n], path, n, n in text) for n in kept}
                    yield schema, columns, text
        except (pyarrow.ArrowException, OverflowError) as error:
            raise DataError(f"{path}: is not a whole Parquet file ({_brief(error)})") from error


def _read_parquet_blocks(path: str, options: CsvOptions) -> Iterator[Table]:
    """Yield the rows of a Parquet file as tables of some rows each."""
    first = 0
    for schema, columns, text in _parquet_blocks(path, options.skipped, options):
        answered = {n: _answered(c, schema, n, text, options) for n, c in columns.items()}
        table = Table(answered, path)
        table.origin = np.arange(first, first + table.n_rows)
        first += table.n_rows
        if table.n_rows:
            yield table
    if not first:
        raise DataError(f"{path}: holds no rows")


def _store_parquet(path: str, spill: Spill, options: CsvOptions) -> Table:
    """Read a Parquet file in blocks of rows."""
    spill.restart()
    names: Sequence[str] = ()
    columns: dict[str, _ParquetColumn] = {}
    for schema, block, known in _parquet_blocks(path, lambda _: spill.skipped, options):
        names, text = schema.names, known
        for name, column in block.items():
            columns.setdefault(name, _ParquetColumn(spill)).add(column)
    if not names:
        raise DataError(f"{path}: holds no rows")
    for name in names:
        if name in columns:
            column = columns[name].column()
            spill.keep(name, _answered(column, schema, name, text, options))
        else:
            spill.skip(name)
    return Table({}, path)


class _ParquetColumn:
    """A column that is read in blocks, each with texts of its own."""

    def __init__(self, spill: Spill) -> None:
        self._spill = spill
        self._segments: list[Segment] = []
        self._codes: dict[str, int] = {}
        self._kind: ColumnKind = "number"
        self._dtype = np.dtype(np.float64)

    def add(self, column: Column) -> None:
        """Write the values of further rows."""
        values = column.values
        self._kind, self._dtype = column.kind, values.dtype
        if column.kind == "text":
            known = self._codes
            own = [known.setdefault(level, len(known)) for level in column.levels]
            values = np.array([*own, -1], np.int32)[values]
        self._segments.append(self._spill.write(values))

    def column(self) -> Column:
        """Return the finished column."""
        values = self._spill.read(self._segments, self._dtype)
        if self._kind != "text":
            return Column(values, self._kind)
        codes, levels = sorted_levels(values, list(self._codes))
        return Column(codes, "text", levels)


def _check_names(names: Sequence[str], path: str) -> None:
    if len(set(names)) < len(names) or "" in names:
        raise DataError(f"{path}: every column needs a name of its own ({names})")


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _texts(path: str, names: Collection[str], options: CsvOptions) -> set[str]:
    """Return the columns that are read as texts: whole numbers beyond 2**53 as in CSV, too.

    Those that a model has learned from as numbers stay numbers.
    """
    from pyarrow import compute, parquet, types

    with parquet.ParquetFile(path) as file:
        groups = [file.metadata.row_group(k) for k in range(file.num_row_groups)]
        leaves = [groups[0].column(k).path_in_schema for k in range(file.metadata.num_columns)]
        texts = set(options.text)
        for name in names:
            if name in options.numbers or not types.is_integer(file.schema_arrow.field(name).type):
                continue
            known = [group.column(leaves.index(name)).statistics for group in groups]
            ends = [end for one in known if one and one.has_min_max for end in (one.min, one.max)]
            if not all(one and one.has_min_max for one in known):
                read = compute.min_max(file.read([name], use_threads=False).column(0))
                ends = [read["min"].as_py() or 0, read["max"].as_py() or 0]
            if any(abs(end) >= FIRST_INEXACT for end in ends):
                texts.add(name)
        return texts


def _is_whole(path: str, name: str) -> bool:
    from pyarrow import parquet, types

    return bool(types.is_integer(parquet.read_schema(path).field(name).type))


def _answered(
    column: Column, schema: Any, name: str, text: Collection[str], options: CsvOptions
) -> Column:
    """Return a column of Parquet; one of texts that spell true and false is one of booleans.

    One of texts that spell dates is one of dates, as in CSV. It stays as it is if it is among
    `text`, or of a categorical type.
    """
    from pyarrow import types

    if column.kind != "text" or name in text or types.is_dictionary(schema.field(name).type):
        return column
    return answers_of(column) or dates_of(column, name, options) or column


def _arrow_column(values: Any, path: str, name: str, as_text: bool) -> Column:
    """Return a column; whole numbers are texts if that is wanted."""
    from pyarrow import compute, types

    kind = values.type
    if as_text and types.is_integer(kind):
        return _arrow_text(values.cast("string").dictionary_encode())
    if _is_text(kind):
        return _arrow_text(values)
    if types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if types.is_boolean(kind):
        return Column(_arrow_numbers(compute.cast(values, "int8")), "boolean")
    if types.is_date(kind):
        values = compute.cast(values, "timestamp[s]" if types.is_date32(kind) else "timestamp[ms]")
        kind = values.type
    if types.is_time32(kind):
        values = compute.cast(values, "time64[us]")
        kind = values.type
    if types.is_timestamp(kind) or types.is_time(kind) or types.is_duration(kind):
        per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[kind.unit]
        seconds = _arrow_numbers(compute.cast(values, "int64")) / per_second
        if types.is_duration(kind):
            return Column(seconds)
        return date_column(seconds, f"{path}: column {name!r}")
    if types.is_null(kind):
        return Column(np.full(len(values), np.nan))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return Column(_arrow_numbers(values))
    raise DataError(
        f"{path}: column {name!r}: type {kind} is not supported; write the "
        "file without it, or with numbers, texts or dates in its place"
    )


def _arrow_text(values: Any) -> Column:
    """Return the codes of a text column, whose dictionary may repeat or lack texts."""
    whole = values.unify_dictionaries().combine_chunks()
    texts = np.array(whole.dictionary.fill_null("").to_pylist(), object)
    is_null = whole.dictionary.is_null().to_numpy(zero_copy_only=False)
    levels, places = np.unique(texts, return_inverse=True)
    places = np.append(np.where(is_null, -1, places), -1).astype(np.int32)
    return Column(places[whole.indices.fill_null(len(texts)).to_numpy()], "text", tuple(levels))


def _arrow_numbers(values: Any) -> Array:
    from pyarrow import compute

    numbers = compute.cast(values, "float64", safe=False).fill_null(np.nan)
    if numbers.num_chunks == 1:  # several are copied
        return np.asarray(numbers.chunk(0).to_numpy())
    return np.asarray(numbers.to_numpy())


class Format(NamedTuple):
    """How files of a format are read.

    Attributes:
        read: returns the table of a file.
        blocks: yields its rows as tables of some rows each; without it, it is one block.
        store: writes the columns into a file of `store_table`; without it, and unless the format is
            `mapped`, files cannot be streamed.
        mapped: whether a table of `read` takes no memory.
        is_whole: returns whether the type of a column is one of whole numbers.
    """

    read: Callable[[str, CsvOptions], Table]
    blocks: Callable[[str, CsvOptions], Iterator[Table]] | None = None
    store: Callable[[str, Spill, CsvOptions], Table] | None = None
    mapped: bool = False
    is_whole: Callable[[str, str], bool] = lambda path, name: False


_PARQUET = Format(_read_parquet, _read_parquet_blocks, _store_parquet, is_whole=_is_whole)

FORMATS: dict[str, Format] = {
    ".npy": Format(_read_npy, mapped=True),
    ".npz": Format(_read_npz),
    ".parquet": _PARQUET,
    ".pq": _PARQUET,
}
"""The formats other than CSV, by the ends of files' names in lower case."""


def table_format(path: str) -> Format | None:
    """Return the format of a file by its name; None for CSV."""
    return FORMATS.get(os.path.splitext(path)[1].lower())
