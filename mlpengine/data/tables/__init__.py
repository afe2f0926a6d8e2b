"""Reads files and data frames into tables of typed columns.

>>> table = read_table("digits")
>>> table.n_rows, table["digit"].kind
(1797, 'integer')
"""

from mlpengine.data.tables.reader import (
    DATASETS,
    FORMATS,
    Format,
    load_dataset,
    read_blocks,
    read_table,
)
from mlpengine.data.tables.table import Column, Table

__all__ = [
    "DATASETS",
    "FORMATS",
    "Column",
    "Format",
    "Table",
    "load_dataset",
    "read_blocks",
    "read_table",
]
