"""From files and data frames to columns.

>>> table = read_table("digits")
>>> table.n_rows, table["digit"].kind
(1797, 'integer')
"""

from mlpengine.tables.reader import DATASETS, load_dataset, read_blocks, read_table
from mlpengine.tables.table import Column, Table

__all__ = ["DATASETS", "Column", "Table", "load_dataset", "read_blocks", "read_table"]
