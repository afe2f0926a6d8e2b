"""Checks for odd columns of a run: single odd cells, and columns that tell the target."""

from pathlib import Path

import numpy as np

from mlpengine.config.load import ConfigFile
from mlpengine.config.tables import Tables
from mlpengine.data.features.checks import CORRECT
from mlpengine.data.features.leaks import find_leaks
from mlpengine.data.features.outliers import find_outliers, gap_code
from mlpengine.data.features.thresholds import OUTLIER_DISTANCE, SAMPLE_ROWS
from mlpengine.diagnostics.leak_verdict import dropped_leak, leak_verdict
from mlpengine.diagnostics.verdict import Verdict, brief


def cell_verdicts(file: ConfigFile, tables: Tables) -> list[Verdict]:
    """Return a verdict for each column of numbers with a cell far off, or a gap code."""
    if file.config.data.stream:
        return []  # reading a column of such a table reads the whole file
    table, rows = tables.parts["train"]
    target = tables.preprocessor.target
    targets = target.columns if target else []
    names = [*tables.preprocessor.kinds, *targets]
    every = np.unique(np.concatenate([r for t, r in tables.parts.values() if t is table]))
    outliers = find_outliers(tables.preprocessor.with_computed(table), names, every, targets)
    name = Path(table.source).name  # the file name, because a path may be long
    headline, limit = "One cell is far off", OUTLIER_DISTANCE
    advice = f"{CORRECT.capitalize()}, or leave the row out."
    no_fix = "the cell must be checked"
    verdicts = []
    for column in names:
        if column not in table or table[column].kind == "text":
            continue  # a text such as "none" is a level like the others
        if text := gap_code(table[column].take(rows)):
            evidence = f"In column {brief(column)!r}, {text.partition('; ')[0]}."
            advice = "If that is a missing value, list it under data.na_values."
            verdicts.append(Verdict("sentinel", None, "Numbers stand for missing values",
                                    evidence, 1.0, 0.0, advice, no_fix=no_fix))  # fmt: skip
    for cell in outliers:
        evidence = f"{name}{cell.text.removeprefix(table.source)}."
        verdicts.append(
            Verdict("outlier", None, headline, evidence, cell.times, limit, advice, no_fix=no_fix)
        )
    return verdicts


def column_verdicts(file: ConfigFile, tables: Tables) -> list[Verdict]:
    """Return a verdict for each column, used or dropped, that explains nearly all of the target."""
    task, target = tables.preprocessor.task, tables.preprocessor.target
    if target is None or len(target.columns) != 1 or task == "multilabel":
        return []
    table, rows = tables.parts["train"]
    sample = table.rows(rows[:: -(-len(rows) // SAMPLE_ROWS)])
    values = sample[target.columns[0]].values.astype(np.float64)  # codes for classes
    sample = tables.preprocessor.with_computed(sample)
    drop = [name for name in file.config.data.drop if name in sample]
    names = [*tables.preprocessor.kinds, *drop]
    verdicts = []
    for leak in find_leaks(sample, list(dict.fromkeys(names)), values, task or "regression"):
        if leak.column not in drop:
            advice = "List it under data.drop"
            verdicts.append(leak_verdict(leak, advice, [*drop, leak.column]))
        elif not leak.is_target:  # advice must not undo a leak
            verdicts.append(dropped_leak(leak))
    return verdicts
