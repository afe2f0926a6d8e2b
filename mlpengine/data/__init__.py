"""From a file to arrays that a network reads: tables, preprocessing, splits and batches.

>>> table = read_table("digits")
>>> split = split_rows(table.n_rows, labels=table["digit"].values)
>>> preprocessor = Preprocessor("digit").fit(table, split.train)
>>> train = preprocessor.transform(table, split.train)
>>> train.features.shape, preprocessor.task, preprocessor.n_outputs
((1259, 64), 'classification', 10)
"""

from mlpengine.data.batches import Batches, gather
from mlpengine.data.checks import ColumnProfile, Profile, profile
from mlpengine.data.dataset import Dataset, Stream
from mlpengine.data.kinds import kind_of, task_of
from mlpengine.data.leaks import Leak, find_leak
from mlpengine.data.preprocessing import Preprocessor
from mlpengine.data.reader import DATASETS, load_dataset, read_blocks, read_table
from mlpengine.data.splits import SplitRows, fold_rows, split_rows
from mlpengine.data.table import Column, Table
from mlpengine.data.targets import ClassTarget, MultiLabelTarget, NumberTarget, class_weights

__all__ = [
    "DATASETS",
    "Batches",
    "ClassTarget",
    "Column",
    "ColumnProfile",
    "Dataset",
    "Leak",
    "MultiLabelTarget",
    "NumberTarget",
    "Preprocessor",
    "Profile",
    "SplitRows",
    "Stream",
    "Table",
    "class_weights",
    "find_leak",
    "fold_rows",
    "gather",
    "kind_of",
    "load_dataset",
    "profile",
    "read_blocks",
    "read_table",
    "split_rows",
    "task_of",
]
