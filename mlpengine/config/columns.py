"""Checks of the columns of a run: outliers, codes for missing values, and leaks of the target."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from mlpengine.config.load import ConfigFile
from mlpengine.config.tables import Tables
from mlpengine.core.wording import plural
from mlpengine.data.features.checks import CORRECT
from mlpengine.data.features.column_kinds import comma_text, marked_number
from mlpengine.data.features.leaks import find_leaks
from mlpengine.data.features.outliers import find_gap, find_outliers
from mlpengine.data.features.targets import NumberTarget
from mlpengine.data.features.thresholds import (
    OTHER_VALUES,
    OUTLIER_DISTANCE,
    SAMPLE_ROWS,
    TWO_UNITS,
)
from mlpengine.data.tables.dialect import TextOptions
from mlpengine.data.tables.parsing import is_number
from mlpengine.diagnostics.leak_verdict import dropped_leak, leak_verdict
from mlpengine.diagnostics.verdict import (
    NOTE,
    Verdict,
    Verdicts,
    brief,
    percent,
    two_digits,
    without,
)
from mlpengine.ops import EntryLoss
from mlpengine.settings import FeatureSettings, Fix
from mlpengine.training.measure import Measured


def merged_verdicts(
    file: ConfigFile,
    of_data: Iterable[Verdict],
    of_run: Iterable[Verdict],
    measured: Measured | None = None,
) -> Verdicts:
    """Return the verdicts on data and run as one list, warnings first, then notes.

    Silenced verdicts are left out.  Of two verdicts ``outlier``, the verdict on the data stays: it
    names the cell.  A student that equals its teacher has no verdict ``underfitting``.
    """
    of_data = [*of_data]
    twice = {one.name for one in of_data} & {"outlier"}
    if measured and measured.equals_teacher:
        twice.add("underfitting")
    reported = [*of_data, *(one for one in of_run if one.name not in twice)]
    reported.sort(key=lambda verdict: verdict.severity == NOTE)
    return without(reported, file.silenced)


def cell_verdicts(file: ConfigFile, tables: Tables) -> list[Verdict]:
    """Return verdicts on outliers, codes for missing values, numbers as texts, and two units."""
    if file.config.data.stream:
        return []  # reading one column would read the whole file
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
            continue  # in a text column, a text such as "none" is a level
        if gap := find_gap(table[column].take(rows)):
            is_date = table[column].kind == "date"
            headline = f"{'Dates' if is_date else 'Numbers'} stand for missing values"
            evidence = (
                f"In the training rows, {plural(gap.times, 'value')} of column {brief(column)!r} "
                f"equal {gap.text}; the others are {gap.low} to {gap.high}."
            )
            advice = f"If that is a missing value, add '{gap.text}' to data.na_values."
            fix = [Fix(TextOptions, "na_values", (*known, gap.text))]
            others = [[Fix(FeatureSettings, "missing", "indicator")]]
            verdicts.append(Verdict("sentinel", None, headline, evidence, gap.times, 1.0, advice,
                                    fix, others=others))  # fmt: skip
    for cell in outliers:
        evidence = f"{name}{cell.text.removeprefix(table.source)}."
        advice = f"{CORRECT.capitalize()}, or leave its row out (data.where)."
        keep = f"({filtered}) and {cell.keep}" if filtered else cell.keep
        fix, no_fix = [Fix(FeatureSettings, "where", keep)], ""
        if cell.column not in targets and computed[cell.column].missing.any():
            fix, no_fix = [], "the cell must be checked"  # a filter would leave out missing values
        verdicts.append(Verdict("outlier", None, "One cell is far off", evidence, cell.times,
                                OUTLIER_DISTANCE, advice, fix, no_fix))  # fmt: skip
    verdicts += [*_text_verdicts(tables), *_validation_verdicts(tables)]
    return [*verdicts, *_target_verdicts(file, tables)]


def _text_verdicts(tables: Tables) -> list[Verdict]:
    """Return a verdict for each column of texts that are numbers with units or other marks."""
    table, rows = tables.parts["train"]
    verdicts = []
    for name in tables.preprocessor.kinds:
        if name in table and table[name].kind == "text":
            column = table[name].take(rows)
            levels = column.used_levels()
            texts = sum(not is_number(level) for level in levels)
            if 2 * texts < len(levels):
                continue  # most levels are numbers, such as ages with a few texts like 85+
            if (marked := marked_number(column)) or comma_text(column):
                example = f", such as {brief(marked[0])!r}" if marked else ""
                evidence = f"Column {brief(name)!r} has numbers written as texts{example}."
                advice, no_fix = "Write them as numbers.", "the file must be changed"
                verdicts.append(Verdict("text_numbers", None, "Numbers are read as categories",
                                        evidence, 1.0, 0.0, advice, no_fix=no_fix))  # fmt: skip
    return verdicts


def _validation_verdicts(tables: Tables) -> list[Verdict]:
    """Return a verdict for each column that is constant in training, but not in validation."""
    table, rows = tables.parts["train"]
    other, others = tables.parts.get("validation", (table, rows))
    if other is table:
        return []
    verdicts = []
    for name in table.names:
        if name not in other or table[name].kind != "number" != other[name].kind:
            continue
        values, checked = table[name].values[rows], other[name].values[others]
        differ = float(np.mean(checked != values[0]))
        if (values == values[0]).all() and differ > OTHER_VALUES:
            evidence = (
                f"Column {brief(name)!r} is {values[0]:g} in every training row and another number "
                f"in {percent(differ)} of the validation rows."
            )
            advice = (
                "Check whether the training rows were filtered by it, or leave it out (data.drop)."
            )
            verdicts.append(Verdict("constant", None, "A column varies in validation alone",
                                    evidence, differ, OTHER_VALUES, advice,
                                    no_fix="the rows must be checked"))  # fmt: skip
    return verdicts


def _target_verdicts(file: ConfigFile, tables: Tables) -> list[Verdict]:
    """Return a verdict if the numbers of the target seem to have two units.

    Logarithms are advised for positive targets and a loss that takes logarithms.
    """
    task, target = tables.preprocessor.task, tables.preprocessor.target
    if not isinstance(target, NumberTarget) or task != "regression" or len(target.columns) != 1:
        return []
    if target.log:
        return []
    table, rows = tables.parts["train"]
    sizes = np.abs(table[target.columns[0]].values[rows].astype(np.float64))
    sizes = np.sort(sizes[sizes > 0])
    if not len(sizes):
        return []
    middle, high = sizes[len(sizes) // 2], sizes[int(0.95 * len(sizes))]
    if not high > TWO_UNITS * middle:
        return []
    evidence = (
        f"One value in 20 of {brief(target.columns[0])!r} is {two_digits(high)} or more, "
        f"{two_digits(high / middle)} times the median ({two_digits(middle)})."
    )
    loss = file.config.loss
    values = [part[target.columns[0]].values[used] for part, used in tables.parts.values()]
    advice, fix, no_fix = "Check the unit of the large values.", [], "the unit must be checked"
    if (np.concatenate(values) > 0).all() and (not isinstance(loss, EntryLoss) or loss.takes_logs):
        advice, no_fix = f"{advice[:-1]}, or predict the logarithm.", ""
        fix = [Fix(FeatureSettings, "transform_target", "log")]
    return [Verdict("target_unit", None, "Target seems to have two units", evidence, high / middle,
                    TWO_UNITS, advice, fix, no_fix)]  # fmt: skip


def column_verdicts(file: ConfigFile, tables: Tables) -> list[Verdict]:
    """Return a verdict for each column, used or dropped, that explains nearly all of the target.

    There is no verdict on the only feature of a table: it is used on purpose.
    """
    task, target = tables.preprocessor.task, tables.preprocessor.target
    if target is None or len(target.columns) != 1 or task == "multilabel":
        return []
    table, rows = tables.parts["train"]
    sample = table.rows(rows[:: -(-len(rows) // SAMPLE_ROWS)])
    values = sample[target.columns[0]].values.astype(np.float64)  # codes of classes
    sample = tables.preprocessor.with_computed(sample)
    drop = [name for name in file.config.data.drop if name in sample]
    earlier = tables.preprocessor.history.names  # lags of the target are no leaks
    used = tables.preprocessor.kinds
    used = used if len(used) > 1 else {}
    names = [name for name in [*used, *drop] if name not in earlier]
    verdicts = []
    for leak in find_leaks(sample, list(dict.fromkeys(names)), values, task or "regression"):
        if leak.column not in drop:
            advice = "List it under data.drop"
            verdicts.append(leak_verdict(leak, advice, [*drop, leak.column]))
        elif not leak.is_target:  # never advise to use a recoding of the target
            verdicts.append(dropped_leak(leak))
    return verdicts
