"""What is odd about the columns of a run: single cells, and columns that tell the target."""

import numpy as np

from mlpengine.config.load import ConfigFile
from mlpengine.config.tables import Tables
from mlpengine.data import Leak
from mlpengine.data.checks import CORRECT, KEEP_IF
from mlpengine.data.leaks import ANSWER, find_leak, find_leaks
from mlpengine.data.outliers import FAR, find_outliers
from mlpengine.diagnostics.verdict import Verdict

SAMPLE_ROWS = 10_000
"""Number of evenly spaced training rows that are examined, to limit the time at a run's end."""


def cell_verdicts(file: ConfigFile, tables: Tables) -> list[Verdict]:
    """Return a verdict for each column of numbers with a training cell far from all others."""
    if file.config.data.stream:
        return []  # to read a column of such a table is to read the whole file
    table, rows = tables.parts["train"]
    target = tables.preprocessor.target
    names = [*tables.preprocessor.kinds, *(target.columns if target else [])]
    return [
        Verdict("outlier", None, o.text, o.times, FAR, f"{CORRECT}, or leave the row out")
        for o in find_outliers(tables.preprocessor.with_computed(table), names, rows)
    ]


def column_verdicts(file: ConfigFile, tables: Tables) -> list[Verdict]:
    """Return a verdict for each column, used or dropped, that explains nearly all of the target."""
    task, target = tables.preprocessor.task, tables.preprocessor.target
    if target is None or len(target.columns) != 1 or task == "multilabel":
        return []
    table, rows = tables.parts["train"]
    rows = np.arange(table.n_rows) if rows is None else rows
    sample = table.rows(rows[:: -(-len(rows) // SAMPLE_ROWS)])
    values = sample[target.columns[0]].values.astype(np.float64)  # of classes the codes
    sample = tables.preprocessor.with_computed(sample)
    used = find_leaks(sample, list(tables.preprocessor.kinds), values, task or "regression")
    dropped = [
        find_leak(name, sample[name], values, task or "regression")
        for name in file.config.data.drop
    ]
    return [
        *(_verdict(leak, "") for leak in used),
        *(_verdict(leak, " (left out)") for leak in dropped if leak and not leak.is_target),
    ]


def _verdict(leak: Leak, note: str) -> Verdict:
    if note:
        advice = "take it out of data.drop if it is known when you predict"
    else:
        advice = "list it under data.drop" if leak.is_target else KEEP_IF
    finding = f"column {leak.column!r}{note}: {leak.reason}"
    return Verdict("column", None, finding, leak.share, ANSWER, advice)
