"""Write columns atomically as CSV, Parquet or .npy files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.core.files import write_atomically
from mlpengine.core.spec import Array
from mlpengine.core.wording import label_text

TEXT_CELLS = 1 << 15
"""Number of values that are converted to text at once."""

DIGITS = 9
"""Significant digits of a number, enough to distinguish float32 values."""

SUFFIXES = (".csv", ".parquet", ".npy")
FORMULA = re.compile(r"[=\t\r].|[-+@].*[(|!=]", re.DOTALL)
"""Texts that a spreadsheet may run as a formula; an id such as -Kx9 or @name is not matched."""


def write_table(
    path: Path, columns: Mapping[str, Any], numbers: Array, digits: int = DIGITS
) -> None:
    """Write columns by name to a file in the format of its suffix; CSV has `digits`.

    A .npy file gets `numbers` instead.
    """
    match path.suffix:
        case ".npy":
            target = BytesIO()
            np.save(target, numbers, allow_pickle=False)
            data = target.getvalue()
        case ".parquet":
            data = _parquet(columns)
        case _:
            data = csv_text(columns, digits=digits).encode()
    write_atomically(path, data)


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of codes: code k means `labels[k]`, and code -1 the last label.

    `typed` has the labels for Parquet and JSON, by default `labels`.
    """

    codes: Array
    labels: Sequence[object]
    typed: Sequence[object] = ()

    @classmethod
    def joined(cls, parts: "Sequence[Coded]") -> "Coded":
        """Join the rows of several columns into one column."""
        labels = list(chain(*(part.labels for part in parts)))
        typed = list(chain(*(part.typed for part in parts)))
        ends = accumulate((len(part.labels) for part in parts), initial=0)
        codes = [
            part.codes % len(part.labels) + end for part, end in zip(parts, ends, strict=False)
        ]
        return cls(np.concatenate(codes), labels, typed)


def csv_text(columns: Mapping[str, Any], *, header: bool = True, digits: int = DIGITS) -> str:
    """Return columns as CSV; text that may be a `FORMULA` gets a leading '."""
    fields = [
        column if isinstance(column, np.ndarray | Coded) else Coded(np.arange(len(column)), column)
        for column in columns.values()
    ]
    rows = max(len(f.codes if isinstance(f, Coded) else f) for f in fields)
    parts = [",".join(map(_label, columns)) + "\n"] if header else []
    line = ",".join(f"%.{digits}g" if _is_float(field) else "%s" for field in fields) + "\n"
    size = max(1, TEXT_CELLS // len(fields))
    for start in range(0, rows, size):
        cells = [_cells(field, slice(start, start + size)) for field in fields]
        parts.append(line * len(cells[0]) % tuple(chain.from_iterable(zip(*cells, strict=True))))
    return "".join(parts)


def _is_float(field: Array | Coded) -> bool:
    return isinstance(field, np.ndarray) and field.dtype.kind == "f"


def _cells(field: Array | Coded, rows: slice) -> list[object]:
    """Return some rows of a column, numbers unchanged and other cells as text."""
    if isinstance(field, Coded):
        used, codes = np.unique(field.codes[rows], return_inverse=True)
        labels = np.array([_label(field.labels[code]) for code in used.tolist()], object)
        return list(labels[codes].tolist())
    cells: list[object] = field[rows].tolist()
    return [*map(plain_text, cells)] if field.dtype.kind == "b" else cells


def plain_text(value: object) -> str:
    """Return a value as text, with the digits of the CSV files."""
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return label_text(value)


def _label(value: object) -> str:
    text = escaped(value) if isinstance(value, str) else plain_text(value)
    if any(character in text for character in ',"\r\n'):
        text = '"' + text.replace('"', '""') + '"'
    return text


def escaped(text: str) -> str:
    """Return a text for CSV, with a leading ' if a spreadsheet may run it as a formula."""
    return f"'{text}" if FORMULA.match(text) else text


def plain_column(column: Any) -> list[Any]:
    """Return a column as plain Python values, ready for JSON."""
    if isinstance(column, Coded):
        labels = column.typed or column.labels
        return [labels[code] for code in column.codes.tolist()]
    return list(column.tolist() if isinstance(column, np.ndarray) else column)


def records(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of columns as dictionaries of plain Python values, ready for JSON."""
    rows = zip(*map(plain_column, columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _parquet(columns: Mapping[str, Any]) -> bytes:
    import pyarrow  # importing takes long, and few runs write Parquet
    from pyarrow import parquet

    arrays = [
        column
        if isinstance(column, pyarrow.ChunkedArray)
        else pyarrow.array(column if isinstance(column, np.ndarray) else plain_column(column))
        for column in columns.values()
    ]
    target = BytesIO()
    parquet.write_table(pyarrow.Table.from_arrays(arrays, names=[*columns]), target)
    return target.getvalue()
