"""Converts texts to numbers, dates, booleans or codes."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from mlpengine.core.spec import Array

MISSING = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?"})
"""Texts that mean missing values by default."""

EMPTY = frozenset({""})

FEW_GAPS = 5
"""A text in MISSING is a level of a text column if more than this many rows have the text."""

FIRST_INEXACT = 2.0**53
"""From here on, float64 cannot hold every whole number; a column with such numbers stays text."""

WORDS = {"true": 1.0, "false": 0.0}

MAX_BOOLEAN_TEXTS = 2**4 + 2**5
"""Number of spellings of true and false, if each letter may be in lower or upper case."""

ISO_DATE = (
    r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}(?::?\d{2})?)?)?"
)
"""Pattern of ISO 8601 dates; digits beyond microseconds are cut off."""

FIRST_SECOND = -62_135_596_800.0
"""First second of the year 1, counted from 1970; no date is earlier."""

_DATE = re.compile(ISO_DATE)
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=UTC)
_DECIMAL_COMMA = re.compile(r"[+-]?\d+(?:,\d+)?(?:[eE][+-]?\d+)?")
_AMBIGUOUS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


_INTEGER = re.compile(r"-?[1-9][0-9]{0,18}")
_PADDED = re.compile(r"\s*0\d+\s*")
_MAY_BE_PADDED = re.compile(r"(?:^|\n)[^\S\n]*0\d")
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<digits>\d{1,9}))?)?"
_POINTS = re.compile(rf"(?P<day>\d{{1,2}})\.(?P<month>\d{{1,2}})\.(?P<year>\d{{4}})(?: {_CLOCK})?")
_TIME = re.compile(rf"{_CLOCK}(?: ?(?P<half>[AaPp])[Mm])?")
_END_OF_DAY = re.compile(r"(?<=[T ])24:00(?::00(?:\.0+)?)?(?![:.])")
_FIRST_DAY = {"year": 1970, "month": 1, "day": 1}

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)

CENTURY_ENDS = 69
"""First two-digit year that is in the 20th century, as in POSIX's strptime."""


def parse_numbers(
    texts: Sequence[str], missing: frozenset[str], *, padded: bool = True, rounded: bool = False
) -> Array | None:
    """Return texts as float64, with NaN for texts in `missing`; None if a text is not a number.

    A number is an ASCII text without underscores that Python's `float` reads; blanks around the
    number are ignored.  Codes (whole numbers with a leading zero) are numbers only with `padded`.
    Whole numbers beyond 2**53 are numbers only with `rounded`.
    """
    values = _floats(texts) if missing == MISSING else None
    if values is None:  # texts in `missing` may be numbers, such as -99
        texts = [text.strip() for text in texts]  # float refuses separators such as "\x1c"
        texts = ["nan" if text in missing else text for text in texts]
        values = _floats(texts)
    if values is None:
        return None
    joined = "\n".join(texts)
    if not joined.isascii():  # no-break spaces beside a number are allowed
        texts = [text.strip() for text in texts]
        joined = "\n".join(texts)
    if "_" in joined or not joined.isascii():
        return None
    # one search in the joined texts is faster than a match of each text
    if not padded and _MAY_BE_PADDED.search(joined) and any(map(_PADDED.fullmatch, texts)):
        return None
    if rounded:
        return values
    large = np.flatnonzero(np.abs(values) >= FIRST_INEXACT).tolist()
    if any(texts[row].strip().lstrip("+-").isdigit() for row in large):
        return None
    return values


def _floats(texts: Sequence[str]) -> Array | None:
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return None


def dates(
    texts: Sequence[str], missing: frozenset[str], pattern: re.Pattern[str] | None = None
) -> Array | None:
    """Return dates as float64 seconds since 1970; None if a text is not a date.

    Dates are in ISO 8601, or in dd.mm.yyyy with an optional time, or match `pattern`.  The groups
    of `pattern` are year, month, day, hour, minute, second, `short` (a two-digit year), `name`
    (name of a month) and `half` (AM or PM).  Dates without an offset are in UTC.  Times of day
    without a date are on the first day of 1970, and cannot be mixed with dates.
    """
    values = np.empty(len(texts), np.float64)
    known: dict[str, float] = {}
    for row, raw in enumerate(texts):
        text = raw.strip()
        if text not in known:
            seconds = np.nan if text in missing else _seconds(text, pattern)
            if seconds is None:
                return None
            known[text] = seconds
        values[row] = known[text]
    are_times = {_TIME.fullmatch(text) is not None for text in known.keys() - missing}
    return None if len(are_times) == 2 else values


def _seconds(text: str, pattern: re.Pattern[str] | None) -> float | None:
    text, days = _END_OF_DAY.subn("00:00", text)  # the start of the next day, as in ISO 8601
    try:
        if _DATE.fullmatch(text):
            moment = datetime.fromisoformat(text)
            since = moment - (_EPOCH_UTC if moment.tzinfo else _EPOCH)
            return (since + timedelta(days)).total_seconds()
        for form in (_POINTS, _TIME, pattern) if text.isascii() else ():
            if form is not None and (match := form.fullmatch(text)):
                since = datetime(**(_FIRST_DAY | _parts(match))) - _EPOCH
                return (since + timedelta(days)).total_seconds()
    except (OverflowError, ValueError):
        pass
    return None


def _parts(match: re.Match[str]) -> dict[str, Any]:
    """Return the arguments of `datetime`.  Raises: ValueError for an unknown month, or 13 pm."""
    texts = {name: text for name, text in match.groupdict().items() if text is not None}
    half, name, short, digits = (texts.pop(k, "") for k in ("half", "name", "short", "digits"))
    parts = {key: int(text) for key, text in texts.items()}
    parts["microsecond"] = int(digits[:6].ljust(6, "0"))
    if short:
        parts["year"] = int(short) + (1900 if int(short) >= CENTURY_ENDS else 2000)
    if name:
        matches = [i for i, month in enumerate(MONTHS, 1) if month.startswith(name.lower())]
        (parts["month"],) = matches
    if half:
        if not 1 <= parts["hour"] <= 12:
            raise ValueError(f"{parts['hour']} {half}m")
        parts["hour"] = parts["hour"] % 12 + 12 * (half in "pP")
    return parts


class Codes:
    """Converts texts to int32 codes: each new text gets the next code, missing values get -1."""

    def __init__(self, missing: frozenset[str]) -> None:
        self.missing = missing
        self.known: dict[str, int] = {}
        self.levels: list[str] = []

    def __call__(self, texts: Sequence[str]) -> Array:
        """Return the codes of texts."""
        known = self.known.get
        codes = [code if (code := known(text)) is not None else self._code(text) for text in texts]
        return np.array(codes, np.int32)

    def _code(self, raw: str) -> int:
        text = raw.strip()
        if text in self.missing:
            code = -1
        elif text in self.known:
            code = self.known[text]
        else:
            code = self.known[text] = len(self.levels)
            self.levels.append(text)
        self.known[raw] = code
        return code


def sorted_levels(codes: Array, levels: Sequence[str]) -> tuple[Array, tuple[str, ...]]:
    """Return codes and levels, with the levels sorted and the codes changed accordingly."""
    order = sorted(range(len(levels)), key=levels.__getitem__)
    rank = np.empty(len(levels) + 1, np.int32)
    rank[order] = np.arange(len(levels), dtype=np.int32)
    rank[-1] = -1
    return rank[codes], tuple(map(levels.__getitem__, order))


def booleans(levels: Sequence[str]) -> list[float] | None:
    """Return 0 or 1 for each level if all levels are spellings of true or false, else None."""
    if len(levels) > MAX_BOOLEAN_TEXTS:
        return None
    values = [WORDS.get(level.lower()) for level in levels]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) and known else None


def formatted_numbers(
    levels: Sequence[str], decimal: str | None, thousands: str | None
) -> list[float] | str | None:
    """Read levels such as 1,5 or 1.234,5 as numbers; None if a level is not a number.

    1,234 may mean 1.234 or 1234.  If every level with a comma is ambiguous, and neither `decimal`
    nor `thousands` is given, an ambiguous level is returned as text, for a message.  With `decimal`
    ".", a comma may only separate groups of three digits.
    """
    if thousands is not None or decimal == ".":
        groups = thousands or ","
        point = decimal or ("," if groups == "." else ".")
        return _grouped(levels, point, groups)
    with_comma = [level for level in levels if "," in level]
    if not with_comma or not all(map(_DECIMAL_COMMA.fullmatch, levels)):
        return None
    if decimal is None and all(map(_AMBIGUOUS.fullmatch, with_comma)):
        return with_comma[0]
    return [float(level.replace(",", ".")) for level in levels]


def _grouped(levels: Sequence[str], point: str, groups: str) -> list[float] | None:
    """Read levels as numbers with decimal mark `point`; None if a level is not a number."""
    if any(map(_PADDED.fullmatch, levels)):
        return None
    group = {" ": "[ \u00a0\u202f]", "'": "['\u2019]"}.get(groups, f"[{groups}]")
    grouped = re.compile(rf"[+-]?[1-9]\d{{0,2}}(?:{group}\d{{3}})+(?![\d{groups}]).*")
    values = []
    for level in levels:
        text = re.sub(group, "", level) if grouped.fullmatch(level) else level
        if point == "," and "." in text:
            return None
        text = text.replace(point, ".")
        if not is_number(text):
            return None
        values.append(float(text))
    return values


def nanoseconds(levels: Sequence[str], *, repeat: bool) -> list[float] | None:
    """Return times in nanoseconds since 1970 as numbers; None if a level is not such a time.

    Times are whole numbers of 64 bits.  Codes may have this size, too.  All levels must therefore
    be whole microseconds or, if levels do not `repeat`, times in the years 1980 to 2099.  Levels 0
    and -1 are allowed, because they may mean a missing time.
    """
    times = [level for level in levels if level not in ("0", "-1")]
    if not times or not all(map(_INTEGER.fullmatch, times)):
        return None
    known = [*map(float, times)]
    is_late = not repeat and min(known) > 3.15e17 and max(known) < 4.1e18
    is_time = is_late or all(level.endswith("000") for level in times)
    return [*map(float, levels)] if is_time else None


def is_number(text: str) -> bool:
    """Return whether `parse_numbers` reads a text as a number."""
    return parse_numbers([text], frozenset()) is not None
