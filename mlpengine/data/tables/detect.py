"""The format of a file, inferred from its values: encoding, numbers, dates, missing values."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic_core import PydanticCustomError

from mlpengine.core.wording import plural
from mlpengine.data.tables import parsing
from mlpengine.data.tables._files import opener, readable, require_file, wide_encoding
from mlpengine.data.tables._records import EncodingError, TextSource, read_header
from mlpengine.data.tables.column_reader import AmbiguousError
from mlpengine.data.tables.dialect import (
    DEFAULT,
    NUMBER_MARKS,
    CsvDialect,
    DecimalMark,
    date_patterns,
)
from mlpengine.data.tables.progress import OnProgress
from mlpengine.data.tables.reader import DATASETS, read_table, table_format
from mlpengine.data.tables.table import Table

GAPS = frozenset(
    {"-", "--", "---", ".", "..", "*", "x", "n.a.", "n.a", "na", "n/a", "n/d", "n.d.", "nd", "nil"}
    | {"none", "null", "missing", "unknown", "not available", "(none)", "(null)", "<na>", "#n/a"}
    | {"#na", "#div/0!", "#value!", "#ref!", "k.a.", "k. a.", "unbekannt", "fehlt", "?"}
    | {"#num!", "#name?", "#null!", "#wert!", "\\n", "0000-00-00", "0000-00-00 00:00:00"}
)
"""Lower-case texts that mean missing values in columns of numbers or dates."""

MAX_GAPS = 3
"""Maximum number of texts in one column that `detect` takes for missing values."""

_DATE = re.compile(
    r"(\d{4}|\d{1,2}|[A-Za-z]{3,9})([-/. ]?)(\d{1,2}|[A-Za-z]{3,9})(,? |\2)(\d{4}|\d{1,2})"
    r"(?:(,? )\d{1,2}:\d{2}(:\d{2}(?:\.\d{1,9})?)?( ?[AaPp][Mm])?)?"
)
"""Pattern of a date: three parts with two separators, and optionally a time."""

_PARTS = {"d": "day", "m": "month", "y": "year"}


@dataclass(frozen=True)
class Detected:
    """A table, the format of its file, and remarks for the user, one line each."""

    table: Table
    reading: CsvDialect
    notes: list[str]


def detect(
    source: str,
    *,
    target: Sequence[str] = (),
    group: str | None = None,
    codes: Sequence[str] = (),
    progress: OnProgress | None = None,
) -> Detected:
    """Read a table and infer the format of its values.

    Texts of a `target` with classes, and of a `group`, never become missing values.  `codes` are
    as in `read_table`.
    """
    is_csv = source not in DATASETS or os.path.isfile(source)
    require_file(source)
    if not is_csv or table_format(source):
        return Detected(read_table(source, progress=progress), DEFAULT, [])
    reading, notes = DEFAULT, []
    named: dict[str, Any] = {"labels": target, "codes": codes}
    try:
        table = read_table(source, **named, progress=progress)
    except EncodingError:
        encoding = _encoding(source)
        reading = replace(reading, text_encoding=encoding)
        notes.append(f"the text is not UTF-8; it is read as {encoding}: check names with accents")
        table, reading = _settled(source, reading, notes, named)
    except AmbiguousError:
        table, reading = _settled(source, reading, notes, named)
    header = _header(source, reading)
    if header.delimiter != ",":
        reading = replace(reading, delimiter=header.delimiter)
    if "" in header.names:
        notes.append("the first column, row numbers without a name, is left out")
    if header.empty:
        notes.append("the last column has no name and no values; it is left out")
    proposed = _proposals(table, reading, notes, target, group)
    may_group = table.decimal_commas or header.delimiter == ";"
    if may_group and proposed.decimal != "." and proposed.thousands is None:
        proposed = _with_thousands(source, table, proposed, notes, named)
    if proposed != reading:
        again = read_table(source, **named, **proposed.to_dict())
        if _is_worse(again, table):
            proposed = replace(proposed, decimal=reading.decimal, thousands=reading.thousands)
            again = read_table(source, **named, **proposed.to_dict())
        table = again
    return Detected(table, proposed, notes)


def _is_worse(table: Table, before: Table) -> bool:
    """Return whether a column of numbers has become text."""
    return any(
        column.kind == "number" and table[name].kind == "text"
        for name, column in before.columns.items()
    )


def _with_thousands(
    source: str, table: Table, reading: CsvDialect, notes: list[str], named: dict[str, Any]
) -> CsvDialect:
    """Return the format with thousands "." if every point may separate thousands, as in 1.234."""
    grouped = replace(reading, decimal=",", thousands=".")
    again = read_table(source, **named, **grouped.to_dict())
    numbers = [name for name, column in table.columns.items() if column.kind == "number"]
    changed = [
        name
        for name in numbers
        if again[name].kind == "number"
        and np.nansum(abs(again[name].values)) > np.nansum(abs(table[name].values))
    ]
    if not changed or _is_worse(again, table):
        return reading
    names = ", ".join(map(repr, changed))
    if reading.decimal is None:
        keys = "data.decimal: ',' and data.thousands: '.'"
        notes.append(f"column {names}: points are decimal marks; if 1.234 means 1234, set {keys}")
        return reading
    notes.append(
        f"column {names}: 1.234 is read as 1234, because other columns have decimal commas; if it "
        "means 1.234, remove data.thousands"
    )
    return grouped


def _settled(
    source: str, reading: CsvDialect, notes: list[str], named: dict[str, Any]
) -> tuple[Table, CsvDialect]:
    """Read a file; decide whether an ambiguous 1,234 means 1234 or 1.234.

    The reading with more columns of numbers is right; if both have as many, the delimiter decides.
    """
    try:
        return read_table(source, **named, **reading.to_dict()), reading
    except AmbiguousError as error:
        likely = "," if _header(source, reading).delimiter == ";" else "."
        marks: tuple[DecimalMark, ...] = (",", ".")
        formats = {mark: replace(reading, decimal=mark) for mark in marks}
        tables = {mark: read_table(source, **named, **formats[mark].to_dict()) for mark in marks}
        numbers = {mark: [one.kind for one in tables[mark].columns.values()] for mark in marks}
        decimal = max(marks, key=lambda mark: (numbers[mark].count("number"), mark == likely))
        means, other = ("1.234", ".") if decimal == "," else ("1234", ",")
        notes.append(f"{error}; read as 1,234 = {means} (else set data.decimal: {other!r})")
        return tables[decimal], formats[decimal]


def _header(source: str, reading: CsvDialect) -> Any:
    with readable(source), opener(source, reading.text_encoding)() as stream:
        return read_header(TextSource(stream, source), reading.delimiter)


def _encoding(source: str) -> str:
    with readable(source), opener(source)() as stream:
        content = stream.read()
    if wide := wide_encoding(content):
        return wide
    try:
        content.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def _proposals(
    table: Table, reading: CsvDialect, notes: list[str], target: Sequence[str], group: str | None
) -> CsvDialect:
    """Return the format with further options, inferred from the text columns of `table`."""
    if table.decimal_commas and reading.decimal is None:
        reading = replace(reading, decimal=",")
    formats: dict[str, str] = {}
    texts = {name: column for name, column in table.columns.items() if column.kind == "text"}
    values = {*texts[group].used_levels()} if group in texts else set()
    added: list[str] = []
    order, unclear = sorted(texts, key=lambda name: name not in target), set[str]()
    for name in order:  # columns with unclear dates come again at the end, with known formats
        levels = texts[name].used_levels()
        gaps = [level for level in levels if level.lower() in GAPS and level not in values]
        filled = [level for level in levels if level not in gaps]
        known = [form for form in dict.fromkeys(formats.values()) if _fits(filled, form)]
        known = known if len(known) == 1 else []
        has_values = any(level not in parsing.MISSING for level in filled)
        fitting = next(_dialects(filled, reading, known), None) if has_values else None
        gaps = [gap for gap in gaps if gap not in parsing.MISSING]
        if fitting is not None and len(gaps) <= MAX_GAPS:
            if form := fitting.date_format:
                formats[name] = str(form)
                if form not in known:
                    notes.append(f"column {name!r}: dates are read as {form}")
            reading = replace(fitting, date_format=None)
            added += gaps
            continue
        if name in target:
            values |= {*levels}
        if filled and len(forms := _date_formats(filled)) > 1:
            if name not in unclear:
                unclear.add(name)
                order.append(name)
                continue
            parts = " or ".join(f"the {_PARTS[form[0]]}" for form in forms)
            only = " for this column (a mapping from columns to formats)" if formats else ""
            notes.append(
                f"column {name!r}: {filled[0]!r} can have {parts} first; to use it as a date, set "
                f"data.date_format to {' or '.join(forms)}{only}, and keep the column"
            )
    if added:
        reading = replace(reading, na_values=tuple(dict.fromkeys(added)))
    for name, column in texts.items():
        if gaps := [level for level in column.used_levels() if level in added]:
            rows = np.isin(column.values, [column.levels.index(gap) for gap in gaps])
            shown = " or ".join(map(repr, gaps))
            count = plural(int(rows.sum()), "value")
            notes.append(f"column {name!r}: {count} {shown} read as missing")
    if len({*formats.values()}) > 1:
        return replace(reading, date_format=formats)
    return replace(reading, date_format=next(iter(formats.values()), None))


def _dialects(texts: list[str], reading: CsvDialect, known: list[str]) -> Iterator[CsvDialect]:
    """Yield formats that read all texts as numbers or as dates, the closest to `reading` first."""
    none: frozenset[str] = frozenset()
    if parsing.parse_numbers(texts, none, padded=False) is not None:
        yield reading
    if parsing.dates(texts, none) is not None:
        yield reading
    yield from (replace(reading, date_format=form) for form in known)
    for decimal, thousands in [(reading.decimal, reading.thousands), *NUMBER_MARKS]:
        if reading.decimal not in (None, decimal) or reading.thousands not in (None, thousands):
            continue
        if isinstance(parsing.formatted_numbers(texts, decimal, thousands), list):
            yield replace(reading, decimal=decimal, thousands=thousands)
    if len(forms := _date_formats(texts)) == 1:
        yield replace(reading, date_format=forms[0])


def _date_formats(texts: list[str]) -> list[str]:
    """Return the date formats that fit all texts; the first text gives the candidates."""
    match = _DATE.fullmatch(texts[0].strip())
    if match is None:
        return []
    first, mark, second, other, last, blank, seconds, half = match.groups()
    clock = f"{blank}HH:MM{':SS' if seconds else ''}" if blank else ""
    clock += half.replace(half.strip(), "AM") if half else ""
    year = "yyyy" if len(last) == 4 else "yy"
    if first.isalpha():
        orders = [("month", "dd", year)]
    elif second.isalpha():
        orders = [("dd", "month", year)]
    elif mark in " " or other != mark:
        return []
    elif len(first) == 4:
        orders = [("yyyy", "mm", "dd")]
    else:
        orders = [("dd", "mm", year), ("mm", "dd", year)]
        orders += [("yy", "mm", "dd")] if year == "yy" else []
    forms = [f"{one}{mark}{two}{other}{three}{clock}" for one, two, three in orders]
    return [form for form in forms if _fits(texts, form)]


def _fits(texts: list[str], form: str) -> bool:
    try:
        pattern = date_patterns(form)[""]
    except PydanticCustomError:  # digits without separators
        return False
    return parsing.dates(texts, frozenset(), pattern) is not None
