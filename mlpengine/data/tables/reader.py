"""Reading tables of any format, and the data sets that ship with the package."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from mlpengine.core.errors import DataError
from mlpengine.core.files import similar_file
from mlpengine.data.tables._arrow import FEATHER, PARQUET
from mlpengine.data.tables._csv import read_csv, read_csv_blocks
from mlpengine.data.tables._files import (
    buffered,
    checked_stream,
    opener,
    readable,
    require_file,
    transcoded,
)
from mlpengine.data.tables.dialect import CsvOptions
from mlpengine.data.tables.progress import OnProgress
from mlpengine.data.tables.stored import Spill, stored_table
from mlpengine.data.tables.table import Table

DATASETS: Mapping[str, str] = {"digits": "digit", "diabetes": "progression", "penguins": "species"}
"""The data sets of the package, each with its target column."""


def read_table(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    text: Iterable[str] = (),
    numbers: Iterable[str] = (),
    labels: Iterable[str] = (),
    codes: Iterable[str] = (),
    kept: Iterable[str] = (),
    optional: Iterable[str] = (),
    progress: OnProgress | None = None,
    **dialect: Any,
) -> Table:
    r"""Read a data set by name ("digits"), a file by path, or an open binary stream of CSV.

    CSV needs a header.  The delimiter (comma, semicolon, tab or bar) is inferred.  Quoted cells may
    have delimiters and line breaks; blanks around cells and blank lines are dropped.  A first
    column of row numbers may lack a name, and is left out.  Last columns without names and values
    are left out, too.

    Empty values are missing, and so are the texts `na_values`.  Without `na_values`, the texts NA,
    N/A, NaN, null, None and ? are missing in columns of numbers and dates.  In a text column that
    is not in `labels`, such a text is missing if at most `FEW_GAPS` rows have the text.

    Numbers may be written as 1e-3, inf or 1,5; ambiguous numbers (1,234) are refused.  Columns in
    `text` are text.  Columns with whole numbers beyond 2**53 or codes such as 007 are text, unless
    they are in `numbers`.  A column in `codes` is text if it has dates, or a number in several
    spellings, such as 3.1 and 3.10.  Dates in ISO 8601 or dd.mm.yyyy, times of day and true/false
    are recognized.  `dialect` are options of `CsvDialect`: delimiter, decimal, thousands,
    text_encoding, na_values, date_format.

    In Parquet and Feather, whole numbers beyond 2**53 and texts are read as in CSV; texts of a
    dictionary stay texts.  With `kept`, only the columns in `kept` and `optional` are read; all
    columns are read if the table lacks one of `kept`.  `progress` is called with the share of a CSV
    file that has been read.

    >>> read_table("penguins")
    Table('penguins', 344 rows, 7 columns)

    Raises: DataError if the table cannot be read.
    """
    options = CsvOptions.of(dialect, text, numbers, labels, kept, codes, optional)
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
            f"{similar_file(Path(name))}"
        )
    return read_csv(opener(name, encoding), name, options, progress=progress)


def store_table(
    path: str | os.PathLike[str],
    directory: Path,
    *,
    text: Iterable[str] = (),
    numbers: Iterable[str] = (),
    labels: Iterable[str] = (),
    codes: Iterable[str] = (),
    skip: Iterable[str] = (),
    progress: OnProgress | None = None,
    **dialect: Any,
) -> Table:
    """Read a table as `read_table`, but store the columns in a file below `directory`.

    CSV, Parquet and Feather are read in blocks, so that memory holds at most a few columns and the
    distinct texts of all columns.  The columns `skip` are not read; their values are missing.

    Raises: DataError, also for another format; RunError if the file cannot be written.
    """
    name = os.fspath(path)
    options = CsvOptions.of(dialect, text, numbers, labels, codes=codes)
    known = table_format(name)
    if known and not known.store:
        raise DataError(f"{name}: only CSV, Parquet and Feather can be streamed")

    def read(where: str, spill: Spill) -> Table:
        if known and known.store:
            return known.store(where, spill, options)
        open_file = opener(where, options.reading.text_encoding)
        return read_csv(open_file, where, options, spill=spill, progress=progress)

    how = {
        **asdict(options.reading),
        "text": sorted(options.text),
        "numbers": sorted(options.numbers),
        "labels": sorted(options.labels),
        "codes": sorted(options.codes),
    }
    with readable(name):
        return stored_table(Path(path), directory, how, read, frozenset(skip))


def read_blocks(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    text: Iterable[str] = (),
    numbers: Iterable[str] = (),
    labels: Iterable[str] = (),
    kept: Iterable[str] = (),
    **dialect: Any,
) -> Iterator[Table]:
    """Yield blocks of a table's rows, in bounded memory, read as by `read_table`.

    The kinds of CSV columns may differ between blocks.

    Raises: DataError.
    """
    options = CsvOptions.of(dialect, text, numbers, labels, kept)
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
        with readable(name), opener(name, encoding)() as stream:
            yield from read_csv_blocks(stream, name, options)
        return
    yield read_table(source, text=text, numbers=numbers, labels=labels, **dialect)


def _refuse_config(name: str) -> None:
    """Raise DataError for the file name of a config."""
    if name.lower().endswith((".yaml", ".yml")):
        raise DataError(f"{name}: is a config, not a table; name a file of CSV or Parquet")


def load_dataset(name: str) -> Table:
    """Return one of the data sets that ship with the package.

    Raises: DataError for an unknown name.
    """
    if name not in DATASETS:
        raise DataError(f"{name}: the data sets are {', '.join(sorted(DATASETS))}")
    path = Path(__file__).parents[1] / "datasets" / f"{name}.csv.gz"
    return read_csv(opener(path), name, CsvOptions())


class Format(NamedTuple):
    """Functions that read files of one format.

    Attributes:
        read: returns the table of a file.
        blocks: yields tables, each with some rows of a file; None to read files as one block.
        store: writes the columns into the file of a `Spill`; None if files cannot be streamed.
        column: returns a column of a file as a pyarrow.ChunkedArray; None for other formats.
    """

    read: Callable[[str, CsvOptions], Table]
    blocks: Callable[[str, CsvOptions], Iterator[Table]] | None = None
    store: Callable[[str, Spill, CsvOptions], Table] | None = None
    column: Callable[[str, str], Any] | None = None


_PARQUET, _FEATHER = (Format(f.read, f.blocks, f.store, f.column) for f in (PARQUET, FEATHER))

FORMATS: dict[str, Format] = {
    ".parquet": _PARQUET,
    ".pq": _PARQUET,
    ".feather": _FEATHER,
    ".arrow": _FEATHER,
}
"""Formats other than CSV, by the lower-case suffix of a file."""


def table_format(path: str) -> Format | None:
    """Return the format of a file by its name; None for CSV."""
    return FORMATS.get(os.path.splitext(path)[1].lower())
