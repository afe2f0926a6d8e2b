"""Writing columns as CSV, Parquet or .npy, whole or not at all."""

import csv
from collections.abc import Iterator, Mapping
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.errors import MissingExtraError
from mlpengine.files import write_atomically
from mlpengine.spec import Array

SUFFIXES = (".csv", ".parquet", ".npy")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a cell starts with that a spreadsheet takes for a formula."""


def write_table(path: Path, columns: Mapping[str, Any], numbers: Array) -> None:
    """Write columns by name to a file of the kind its suffix says.

    `numbers` is what a .npy file holds instead.
    Raises: MissingExtraError for Parquet without the extra; RunError.
    """
    match path.suffix:
        case ".npy":
            target = BytesIO()
            np.save(target, numbers, allow_pickle=False)
            data = target.getvalue()
        case ".parquet":
            data = _parquet(columns)
        case _:
            data = csv_text(columns).encode()
    write_atomically(path, data)


def csv_text(columns: Mapping[str, Any], *, header: bool = True) -> str:
    """Return columns as CSV; text that looks like a formula gets a ' before it."""
    target = StringIO()
    writer = csv.writer(target, lineterminator="\n")
    if header:
        writer.writerow([escaped(name) for name in columns])
    writer.writerows(zip(*map(_cells, columns.values()), strict=True))
    return target.getvalue()


def escaped(text: str) -> str:
    """Return a text cell as a spreadsheet shows it unchanged; numbers stay numbers."""
    return f"'{text}" if text.startswith(FORMULA) and not _is_number(text) else text


def plain(column: Any) -> list[Any]:
    """Return a column as plain Python values, ready for JSON."""
    return list(column.tolist() if isinstance(column, np.ndarray) else column)


def _cells(column: Any) -> Iterator[str]:
    for value in plain(column):
        if isinstance(value, float):
            yield f"{value:.9g}"  # as many digits as float32 has
        elif isinstance(value, bool):
            yield str(value).lower()
        else:
            yield escaped(value) if isinstance(value, str) else str(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(columns: Mapping[str, Any]) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("writing Parquet", "data") from None
    target = BytesIO()
    parquet.write_table(pyarrow.table({name: plain(v) for name, v in columns.items()}), target)
    return target.getvalue()
