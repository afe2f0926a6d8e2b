"""Reading tables of any format, and the data sets that ship with the package."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from mlpengine.core.errors import DataError
from mlpengine.data.tables._arrow import FEATHER, PARQUET
from mlpengine.data.tables._csv import read_csv
from mlpengine.data.tables._files import (
    buffered,
    checked_stream,
    opener,
    require_file,
)
from mlpengine.data.tables.dialect import CsvOptions
from mlpengine.data.tables.progress import OnProgress
from mlpengine.data.tables.table import Table

DATASETS: Mapping[str, str] = {"digits": "digit", "diabetes": "progression", "penguins": "species"}
"""The data sets of the package, each with its target column."""


def read_table(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    text: Iterable[str] = (),
    numbers: Iterable[str] = (),
    labels: Iterable[str] = (),
    kept: Iterable[str] = (),
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

    Numbers may be written as 1e-3, inf or, if no number is ambiguous (1,234), as 1,5.  Columns in
    `text` are text.  Columns with whole numbers beyond 2**53 or codes such as 007 are text, unless
    they are in `numbers`.  Dates in ISO 8601 or dd.mm.yyyy, times of day and true/false are
    recognized.  `dialect` are options of `CsvDialect`: delimiter, decimal, thousands,
    text_encoding, na_values, date_format.  Only the columns `kept` are read.  All columns are read
    if `kept` is empty, or if the table lacks one of these columns.

    In Parquet and Feather, whole numbers beyond 2**53, texts of true/false and dates, and the
    columns `text` are read as in CSV.  `progress` is called with the share of a CSV file that has
    been read.

    >>> read_table("penguins")
    Table('penguins', 344 rows, 7 columns)

    Raises: DataError if the table cannot be read.
    """
    options = CsvOptions.of(dialect, text, numbers, labels, kept)
    encoding = options.reading.text_encoding
    if not isinstance(source, str | os.PathLike):
        return read_csv(buffered(checked_stream(source), encoding), "standard input", options)
    name = os.fspath(source)
    if name in DATASETS and not os.path.isfile(name):
        return load_dataset(name)
    _refuse_config(name)
    if known := table_format(name):
        require_file(name)
        return known(name, options)
    if not os.path.splitext(name)[1] and not os.path.exists(name):
        raise DataError(
            f"{name}: no such file, and not one of the data sets {', '.join(sorted(DATASETS))}"
        )
    return read_csv(opener(name, encoding), name, options, progress=progress)


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


Format = Callable[[str, CsvOptions], Table]
"""Function that returns the table of a file."""

FORMATS: dict[str, Format] = {
    ".parquet": PARQUET.read,
    ".pq": PARQUET.read,
    ".feather": FEATHER.read,
    ".arrow": FEATHER.read,
}
"""Formats other than CSV, by the lower-case suffix of a file."""


def table_format(path: str) -> Format | None:
    """Return the format of a file by its name; None for CSV."""
    return FORMATS.get(os.path.splitext(path)[1].lower())
