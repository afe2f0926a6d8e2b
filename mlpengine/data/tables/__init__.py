"""From files and data frames to columns.

>>> table = read_table("digits")
>>> table.n_rows, table["digit"].kind
(1797, 'integer')
"""

from mlpengine.data.tables.reader import (
    DATASETS,
    FORMATS,
    load_dataset,
    read_table,
)
from mlpengine.data.tables.table import Column, Table

__all__ = [
    "DATASETS",
    "FORMATS",
    "Column",
    "Table",
    "load_dataset",
    "read_table",
]
