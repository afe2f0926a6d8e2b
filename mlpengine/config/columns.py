"""Checks of the columns of a run: outliers, codes for missing values, and leaks of the target."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from mlpengine.config.load import ConfigFile
from mlpengine.config.tables import Tables
from mlpengine.core.wording import plural
from mlpengine.data.features.checks import CORRECT
from mlpengine.data.features.leaks import find_leaks
from mlpengine.data.features.outliers import find_gap, find_outliers
from mlpengine.data.features.thresholds import OUTLIER_DISTANCE, SAMPLE_ROWS
from mlpengine.data.tables.dialect import TextOptions
from mlpengine.diagnostics.leak_verdict import dropped_leak, leak_verdict
from mlpengine.diagnostics.verdict import NOTE, Verdict, Verdicts, brief, without
from mlpengine.settings import FeatureSettings, Fix


def joint_list(file: ConfigFile, of_data: Iterable[Verdict], of_run: Iterable[Verdict]) -> Verdicts:
    """Return the verdicts on the data and on a run as one list: warnings first, then notes.

    Verdicts that the config silences are left out.  Of an outlier that both name, the cell is told.
    """
    of_data = [*of_data]
    twice = {one.name for one in of_data} & {"outlier"}
    reported = [*of_data, *(one for one in of_run if one.name not in twice)]
    reported.sort(key=lambda verdict: verdict.severity == NOTE)
    return without(reported, file.silenced)


def cell_verdicts(file: ConfigFile, tables: Tables) -> list[Verdict]:
    """Return a verdict for each number column with an outlier or a code for missing values."""
    if file.config.data.stream:
        return []  # reading a column of such a table reads the whole file
    table, rows = tables.parts["train"]
    target = tables.preprocessor.target
    targets = target.columns if target else []
    names = [*tables.preprocessor.kinds, *targets]
    every = np.unique(np.concatenate([r for t, r in tables.parts.values() if t is table]))
    computed = tables.preprocessor.with_computed(table)
    outliers = find_outliers(computed, names, every, targets)
    name = Path(table.source).name  # the file name, because a path may be long
    known, filtered = file.config.data.na_values or (), file.config.data.where
    verdicts = []
    for column in names:
        if column not in table or table[column].kind == "text":
            continue  # in a text column, a text such as "none" is an ordinary level
        if gap := find_gap(table[column].take(rows)):
            is_date = table[column].kind == "date"
            headline = f"{'Dates' if is_date else 'Numbers'} stand for missing values"
            evidence = (
                f"{plural(gap.times, 'value')} of column {brief(column)!r} equal {gap.text}; the "
                f"others are {gap.low} to {gap.high}."
            )
            advice = f"If that is a missing value, set data.na_values to ['{gap.text}']."
            texts = (gap.text,) if is_date else (gap.text, f"{gap.text}.0")
            fix = [Fix(TextOptions, "na_values", (*known, *texts))]
            verdicts.append(Verdict("sentinel", None, headline, evidence, gap.times, 1.0, advice,
                                    fix))  # fmt: skip
    for cell in outliers:
        evidence = f"{name}{cell.text.removeprefix(table.source)}."
        advice = f"{CORRECT.capitalize()}, or leave its row out (data.where)."
        keep = f"({filtered}) and {cell.keep}" if filtered else cell.keep
        fix, no_fix = [Fix(FeatureSettings, "where", keep)], ""
        if cell.column not in targets and computed[cell.column].missing.any():
            fix, no_fix = [], "the cell must be checked"  # a filter leaves out missing values
        verdicts.append(Verdict("outlier", None, "One cell is far off", evidence, cell.times,
                                OUTLIER_DISTANCE, advice, fix, no_fix))  # fmt: skip
    return verdicts


def column_verdicts(file: ConfigFile, tables: Tables) -> list[Verdict]:
    """Return a verdict for each column, used or dropped, that explains nearly all of the target."""
    task, target = tables.preprocessor.task, tables.preprocessor.target
    if target is None or len(target.columns) != 1 or task == "multilabel":
        return []
    table, rows = tables.parts["train"]
    sample = table.rows(rows[:: -(-len(rows) // SAMPLE_ROWS)])
    values = sample[target.columns[0]].values.astype(np.float64)  # codes of classes
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
