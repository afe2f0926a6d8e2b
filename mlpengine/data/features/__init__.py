"""From columns to a network's input: preprocessing, splits and batches.

>>> table = read_table("digits")
>>> split = split_rows(table.n_rows, labels=table["digit"].values)
>>> preprocessor = Preprocessor("digit").fit(table, split.train)
>>> train = preprocessor.transform(table, split.train)
>>> train.features.shape, preprocessor.task, preprocessor.n_outputs
((1259, 64), 'classification', 10)
"""

from mlpengine.data.features.batches import Batches
from mlpengine.data.features.checks import ColumnProfile, Profile, profile
from mlpengine.data.features.column_kinds import kind_of, task_of
from mlpengine.data.features.dataset import Dataset
from mlpengine.data.features.leaks import Leak, find_leaks
from mlpengine.data.features.preprocessing import Preprocessor
from mlpengine.data.features.splits import SplitRows, fold_rows, split_rows
from mlpengine.data.features.targets import (
    ClassTarget,
    MultiLabelTarget,
    NumberTarget,
    TimeTarget,
    class_weights,
)

__all__ = [
    "Batches",
    "ClassTarget",
    "ColumnProfile",
    "Dataset",
    "Leak",
    "MultiLabelTarget",
    "NumberTarget",
    "Preprocessor",
    "Profile",
    "SplitRows",
    "TimeTarget",
    "class_weights",
    "find_leaks",
    "fold_rows",
    "kind_of",
    "profile",
    "split_rows",
    "task_of",
]
