"""Profile of a table: types, missing values, leaks, duplicates, balance of classes."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from unicodedata import normalize

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.core.wording import columns_of, cut, cut_apart, left, plural, printable, quoted
from mlpengine.data.features.column_kinds import (
    FeatureKind,
    are_codes,
    comma_text,
    few_texts,
    kind_of,
    marked_number,
    odd_row,
    task_of,
)
from mlpengine.data.features.duplicate_rows import count_duplicates
from mlpengine.data.features.leaks import Leak, find_leaks
from mlpengine.data.features.outliers import Outlier, find_outliers, gap_code
from mlpengine.data.features.sources import EQUAL, LIMIT
from mlpengine.data.features.targets import ClassTarget, check_target, marked_text
from mlpengine.data.features.thresholds import (
    LISTED_CLASSES,
    MOSTLY_MISSING,
    RARE_CLASS,
    SHOWN_LEVELS,
    SMALL_CLASS,
)
from mlpengine.data.tables.parsing import FIRST_INEXACT
from mlpengine.data.tables.progress import OnProgress, tracked
from mlpengine.data.tables.rows import has_target
from mlpengine.data.tables.table import Column, Table, number_text
from mlpengine.settings.features import TaskName

KEEP_IF = "keep it only if it is known when you predict, else list it under data.drop"

USE_IT = (
    "to use it, if it is known when you predict, set data.drop: [], or a list without this column"
)

CORRECT = "correct or clear the value"

ONE_VALUE = "the target has one value in the training rows, so nothing can be learned"
ROW_NUMBERS = "row numbers"


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """Facts about a column; `summary` is the range of numbers, or the most frequent texts."""

    name: str
    kind: FeatureKind
    missing: int
    distinct: int
    constant: bool
    summary: str

    @property
    def is_of_one_day(self) -> bool:
        """Whether all dates are on the same day, as in a column of times of day."""
        days = {end[:10] for end in self.summary.split(" to ") if "-" in end}
        return self.kind == "date" and len(days) < 2  # times of day have no date


@dataclass(frozen=True, slots=True)
class Profile:
    """The result of `profile`.

    `remarks` maps a column to remarks on the format of its values (see `REMARKS`).  `drop` maps
    each column that training should leave out to the reason.
    """

    source: str
    n_rows: int
    task: TaskName | None
    columns: list[ColumnProfile]
    duplicates: int
    classes: dict[str, int] = field(default_factory=dict)
    leaks: list[Leak] = field(default_factory=list)
    drop: dict[str, str] = field(default_factory=dict)
    target_missing: int = 0
    remarks: dict[str, list[str]] = field(default_factory=dict)
    outliers: list[Outlier] = field(default_factory=list)

    @property
    def suspects(self) -> list[Leak]:
        """Columns that explain nearly all of the target and may be honest predictors."""
        return [leak for leak in self.leaks if not leak.is_target and leak.column not in self.drop]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain lists and dictionaries, ready for JSON."""
        return asdict(self)

    def warnings(self, dropped: Collection[str] = ()) -> list[str]:
        """Return a line for each warning, without warnings about the columns `dropped`."""
        reasons = self.drop | {leak.column: f"{leak.reason}; {KEEP_IF}" for leak in self.suspects}
        lines = [f"column {n!r}: {why}" for n, why in reasons.items() if n not in dropped]
        lines += [
            f"column {column.name!r}: {column.missing} of {self.n_rows} values are missing"
            for column in self.columns
            if MOSTLY_MISSING * self.n_rows < column.missing < self.n_rows
            and column.name not in dropped
        ]
        remarks = (f"column {n!r}: {t}" for n, t in self.format_remarks() if n not in dropped)
        lines += [line for line in remarks if line not in lines]
        lines += [f"{o.text}; {CORRECT}" for o in self.outliers if o.column not in dropped]
        if self.target_missing:
            rows = plural(self.target_missing, "row")
            lines.append(f"target: missing in {rows}; training leaves these rows out")
        if self.duplicates:
            lines.append(
                f"{self.duplicates} of {self.n_rows} rows are copies of an earlier row; remove "
                "the copies if they are mistakes"
            )
        few = max(SMALL_CLASS, RARE_CLASS * self.n_rows)
        return lines + self.small_classes(few)

    def small_classes(self, few: float) -> list[str]:
        """Return a line for each class with fewer than `few` rows, or one line for many classes."""
        small = {name: count for name, count in self.classes.items() if count < few}
        if len(small) > LISTED_CLASSES:
            smallest, count = min(small.items(), key=lambda pair: pair[1])
            return [
                f"{len(small):,} of {plural(len(self.classes), 'class', 'classes')} have fewer "
                f"than {few:,.0f} rows, such as {quoted(smallest)} with {count}; consider merging "
                "classes"
            ]
        return [
            f"class {quoted(name)}: only {plural(count, 'row')}; consider class weights, or "
            "merging it with another class"
            for name, count in small.items()
        ]

    def recodings(self, dropped: Collection[str]) -> list[str]:
        """Return a line for each column in `dropped` that is the target in another coding."""
        return [
            f"column {leak.column!r} is dropped: {leak.reason}; {USE_IT}"
            for leak in self.leaks
            if leak.is_target and leak.column in dropped
        ]

    def misread(self) -> list[str]:
        """Return a line for each column to correct or reformat, or that recodes the target."""
        marks = ("correct the ", "; multiply ", "to use them, ")
        damaged = {n: why for n, why in self.drop.items() if any(mark in why for mark in marks)}
        lines = [f"column {name!r} is dropped: {why}" for name, why in damaged.items()]
        return [
            *self.recodings(self.drop),
            *lines,
            *(f"column {name!r}: {text}" for name, text in self.format_remarks()),
        ]

    def format_remarks(self) -> list[tuple[str, str]]:
        """Return columns and remarks on the format of their values."""
        return [(name, text) for name, texts in self.remarks.items() for text in texts]

    def lines(self) -> list[str]:
        """Return the facts as lines of text, without the warnings."""
        names = cut_apart([printable(column.name) for column in self.columns], 60)
        width = max(map(columns_of, names), default=0)
        size = f"{plural(self.n_rows, 'row')}, {plural(len(self.columns), 'column')}"
        report = [f"{self.source}: {size}"]
        for name, column in zip(names, self.columns, strict=True):
            gaps = f", {column.missing} missing" if column.missing else ""
            report.append(
                f"  {left(name, width)}  {column.kind:<8}  {column.distinct} distinct{gaps}; "
                f"{printable(column.summary)}"
            )
        if self.task:
            report.append(f"task: {self.task}")
        report += [
            f"  class {cut(printable(name))}: {plural(rows, 'row')}"
            for name, rows in list(self.classes.items())[:LISTED_CLASSES]
        ]
        if len(self.classes) > LISTED_CLASSES:
            report.append(
                f"  {plural(len(self.classes) - LISTED_CLASSES, 'other class', 'other classes')}"
            )
        return report


def profile(
    table: Table,
    target: str | Sequence[str] | None = None,
    *,
    task: TaskName | None = None,
    trusted: Collection[str] = (),
    progress: OnProgress | None = None,
) -> Profile:
    """Describe every column of a table, and how columns relate to the target.

    With a single target column, all other columns except `trusted` are searched for leaks.
    `progress` is called with the share of columns described so far.

    Raises: DataError if the table has no rows, or if a target column does not exist or holds
        neither classes nor numbers.
    """
    if not table.n_rows:
        raise DataError(f"{table.source}: rows are needed (got none)")
    targets = [target] if isinstance(target, str) else list(target or ())
    table.require(targets, "the target")
    described = [
        column_profile(name, column) for name, column in tracked(table.columns.items(), progress)
    ]
    complete = has_target(table, targets)
    if targets and task is None:
        check_target(table, targets)
        task = task_of([table[name] for name in targets])
    features = [column for column in described if column.name not in targets]
    drop = _to_drop(table, features)
    if len(drop) == len(features):  # a time series may have the row number as its only feature
        drop = {name: why for name, why in drop.items() if why != ROW_NUMBERS}
    classes: dict[str, int] = {}
    leaks: list[Leak] = []
    if len(targets) == 1 and complete.any():
        names = [one.name for one in features if one.name not in {*drop, *trusted}]
        classes, leaks = _relations(table.rows(complete), targets[0], names, task)
    remarks = {
        name: [text for remark in REMARKS if (text := remark(column))] or _few_texts(table, name)
        for name, column in table.columns.items()
    }
    for column in described:
        if column.name in targets and column.distinct == 1 and task != "survival":
            remarks[column.name].append(ONE_VALUE)
    return Profile(
        source=table.source,
        n_rows=table.n_rows,
        task=task,
        columns=described,
        duplicates=count_duplicates(table),
        classes=classes,
        leaks=leaks,
        drop=drop | {leak.column: leak.reason for leak in leaks if leak.is_target},
        target_missing=int((~complete).sum()),
        remarks={name: texts for name, texts in remarks.items() if texts},
        outliers=find_outliers(table, table.names, targets=targets),
    )


def _relations(
    table: Table, target: str, names: Sequence[str], task: TaskName | None
) -> tuple[dict[str, int], list[Leak]]:
    column = table[target]
    classes: dict[str, int] = {}
    if task == "classification":
        try:
            encoder = ClassTarget.fit(table, target)
        except DataError:  # a single class: training reports this
            return {column.text(0): table.n_rows}, []
        values = encoder.encode(table)
        counts = np.bincount(values, minlength=len(encoder.classes)).tolist()
        classes = dict(zip(encoder.codes, counts, strict=True))
    elif column.kind == "text":
        return classes, []
    else:
        values = column.values.astype(np.float64)
    if task == "multilabel" or not (np.abs(values) <= LIMIT).all():
        return classes, []
    return classes, find_leaks(table, names, values, task or "regression")


def column_profile(name: str, column: Column) -> ColumnProfile:
    """Return the facts about one column."""
    distinct = column.distinct()
    missing = int(column.missing.sum())
    if column.kind == "text":
        counts = np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
        top = np.argsort(-counts, kind="stable")[:SHOWN_LEVELS]
        shown = [f"{cut(column.levels[i])} ({counts[i]})" for i in top if counts[i]]
        summary = ", ".join(shown) + (", ..." if len(distinct) > len(shown) else "")
    elif len(distinct):
        low, high = (number_text(column.kind, value) for value in distinct[[0, -1]])
        summary = low if low == high else f"{low} to {high}"
        if column.kind == "date" and 0 <= distinct[0] <= distinct[-1] < 86_400:
            summary = summary.replace("1970-01-01T", "")
    else:
        summary = "all values are missing"
    constant = len(distinct) == 1 and not missing
    return ColumnProfile(name, kind_of(column), missing, len(distinct), constant, summary)


def _to_drop(table: Table, features: list[ColumnProfile]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for column in features:
        if column.kind == "empty":
            reasons[column.name] = "all values are missing"
        elif column.name.startswith("__index_level_"):  # pandas' name in Parquet files
            reasons[column.name] = "the index of a pandas data frame"
        elif column.constant:
            reasons[column.name] = f"constant ({column.summary})"
        elif column.kind in ("text", "mixed") and (text := comma_text(table[column.name])):
            reasons[column.name] = text
        elif column.kind == "text":
            texts = plural(column.distinct, "different text")
            own = table[column.name]
            also = "; they look like numbers with marks" if marked_number(own) else ""
            if are_codes(own.levels):
                also = f": {_codes_text(own.levels)}"
            reasons[column.name] = f"{texts}, almost one per row{also}"
        elif column.kind == "mixed":
            row = odd_row(table[column.name]) or 0
            example = f"{quoted(table[column.name].text(row))} in {table.place(row)}"
            text = f"numbers with a few texts among them, such as {example}; correct the texts"
            reasons[column.name] = f"{text}, or add them to data.na_values and keep the column"
        elif column.kind == "integer" and _counts_rows(table[column.name].values):
            reasons[column.name] = ROW_NUMBERS
        elif column.kind in ("number", "integer"):
            own = table[column.name]
            extreme = np.flatnonzero(np.abs(own.values) > LIMIT)
            if len(extreme):
                row = int(extreme[0])
                text = f"{own.text(row)} in {table.place(row)} is beyond {LIMIT:g}"
                reasons[column.name] = f"{text}; correct the value"
            elif 0 < float(np.nanmax(own.values)) - float(np.nanmin(own.values)) < 1000 * EQUAL:
                reasons[column.name] = "its numbers differ by less than 1e-297; multiply them"
    return reasons


def _codes_text(levels: Sequence[str]) -> str:
    """Return why a column of whole numbers is text, and advice if the numbers are large."""
    values = [*map(int, levels)]
    is_large = max(map(abs, values)) >= FIRST_INEXACT
    if not is_large or any(level.lstrip("+-").startswith("0") for level in levels if int(level)):
        return "whole numbers beyond 2**53, or with zeros before them"
    is_near = max(values) - min(values) < FIRST_INEXACT
    how = f"subtract {min(values)} from all" if is_near else f"write floats, as {values[0]:e}"
    return f"whole numbers beyond 2**53; to use them, {how}"


def _variants(column: Column) -> str | None:
    """Return a remark on up to `SHOWN_LEVELS` levels that differ only in case and blanks."""
    if column.kind != "text" or kind_of(column) != "category":
        return None
    by_form: dict[str, list[str]] = {}
    for level in column.used_levels():
        form = "".join(normalize("NFKC", level).casefold().split())
        by_form.setdefault(form, []).append(level)
    alike = [text for texts in by_form.values() if len(texts) > 1 for text in texts][:SHOWN_LEVELS]
    composed = {normalize("NFC", text) for text in alike}
    show = repr if len(composed) == len(alike) else ascii  # two levels look equal in print
    shown = ", ".join(cut(show(text)) for text in alike)
    return f"{shown} are taken for different texts; use one in all rows" if alike else None


def _marked(column: Column) -> str | None:
    pair = marked_number(column)
    return marked_text(*pair) if pair else None


REMARKS: tuple[Callable[[Column], str | None], ...] = (_variants, _marked, comma_text, gap_code)
"""Functions that return a remark on the format of a column, or nothing.

They find texts that differ only in case and blanks, numbers with units, numbers with decimal
commas, and values that may stand for missing values.
"""


def _few_texts(table: Table, name: str) -> list[str]:
    """Return a remark if a few texts turn a column of numbers into a category."""
    found = few_texts(table[name])
    if found is None:
        return []
    row, count = found
    cell = table[name].text(row)
    return [
        f"{count:,} of {plural(table.n_rows, 'value')} are texts among numbers, such as "
        f"{quoted(cell)} in {table.place(row)}, so the column is a category; correct the texts, or "
        "add them to data.na_values"
    ]


def more_features(features: int, rows: int) -> str:
    """Return the warning for a table with more features than rows."""
    return (
        f"there are more features than rows ({features:,} and {rows:,}): a network can memorize "
        "the rows and predict new rows badly; consider leaving out columns"
    )


def _counts_rows(values: Array) -> bool:
    return bool(len(values) > 2 and (np.abs(values) < LIMIT).all() and (np.diff(values) == 1).all())
