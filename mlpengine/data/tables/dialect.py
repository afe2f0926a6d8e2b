"""The format of a text table: encoding, delimiter, numbers, dates and missing values."""

import codecs
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, NamedTuple, Self, TypeAlias, get_args

from pydantic import Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from mlpengine.core.errors import DataError
from mlpengine.core.fork_locks import cached_property
from mlpengine.data.tables.parsing import EMPTY, MISSING, parse_numbers
from mlpengine.settings.base import STRICT, Texts, rule
from mlpengine.settings.fix import SECTIONS
from mlpengine.settings.structure import fault_of

Delimiter: TypeAlias = Literal[",", ";", "\t", "|"]
DecimalMark: TypeAlias = Literal[".", ","]
Thousands: TypeAlias = Literal[",", ".", " ", "'"]

NUMBER_MARKS: tuple[tuple[DecimalMark | None, Thousands | None], ...] = (
    *((None, None), (".", ","), (",", "."), (",", " "), (".", " "), (".", "'"), (",", "'")),
)
"""Pairs of decimal mark and thousands mark, the most common first."""

DELIMITERS: tuple[str, ...] = get_args(Delimiter)
_TOKENS = {
    "yyyy": r"(?P<year>\d{4})",
    "yy": r"(?P<short>\d{2})",
    "month": r"(?P<name>[A-Za-z]{3,9})",
    "mm": r"(?P<month>\d{1,2})",
    "dd": r"(?P<day>\d{1,2})",
    "HH": r"(?P<hour>\d{1,2})",
    "MM": r"(?P<minute>\d{2})",
    "SS": r"(?P<second>\d{2})(?:\.(?P<digits>\d{1,9}))?",
    "AM": r"(?P<half>[AaPp])[Mm]",
}
_DECIMAL = re.compile(r"([+-]?(?:0|[1-9][0-9]*))(?:([.,])([0-9]+))?")

MAX_DECIMALS = 6
"""A number in `na_values` also stands for the same number with up to this many decimals."""

_TOKEN = re.compile("|".join(_TOKENS))


@dataclass(frozen=True, config=STRICT)
class TextOptions:
    """The notation of numbers, dates and missing values in a text table."""

    delimiter: Delimiter | None = Field(
        default=None, description="Delimiter of CSV; by default inferred from the file."
    )
    decimal: DecimalMark | None = Field(
        default=None, description="Decimal mark; by default 1.5 and 1,5 are both read."
    )
    thousands: Thousands | None = Field(
        default=None, description="Mark between groups of three digits, if there is one."
    )
    text_encoding: str = Field(
        default="utf-8", description="Encoding of the file, such as cp1252 or utf-16."
    )
    na_values: Texts | None = Field(
        default=None,
        description="Further texts to read as missing; -999 also stands for -999.0. By default, "
        "NA, N/A, NaN, null, None and ? are missing, except as classes, and except in text columns "
        "where more than five rows have the text. With [], only the empty text is missing.",
    )
    date_format: str | dict[str, str] | None = Field(
        default=None,
        description="Format of dates other than 2024-12-31 and 31.12.2024, such as mm/dd/yyyy, "
        "dd-month-yy, or mm/dd/yyyy HH:MM AM; or a mapping from columns to formats.",
    )

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        if self.thousands and self.thousands == (self.decimal or "."):
            raise rule(f"must differ from decimal (both {self.thousands!r})", "thousands")
        try:
            codecs.lookup(self.text_encoding)
            "".encode(self.text_encoding)
        except (LookupError, ValueError, TypeError):
            known = "such as utf-8, cp1252 or utf-16"
            text = f"must be one that Python knows, {known} (got {self.text_encoding!r})"
            raise rule(text, "text_encoding") from None
        _ = date_patterns(self.date_format)
        return self


SECTIONS[TextOptions] = "data"  # verdicts may propose further texts of missing values


@dataclass(frozen=True, config=STRICT)
class CsvDialect(TextOptions):
    """The notation of texts in a CSV, and in text columns in memory.

    A date format has yyyy or yy, mm or month (the month's name), dd, and for times HH, MM, SS, AM;
    SS may have a fraction.
    Without `decimal`, a column is refused if all its numbers with commas are ambiguous (1,234).

    Raises: pydantic's ValidationError for invalid values.
    """

    @cached_property
    def missing(self) -> frozenset[str]:
        """Texts that mean missing values in columns of numbers and dates."""
        return self.missing_texts | (EMPTY if self.na_values == () else MISSING)

    @property
    def missing_texts(self) -> frozenset[str]:
        """Texts that mean missing values in all columns, also in text columns."""
        return EMPTY.union(*(_spellings(value.strip()) for value in self.na_values or ()))

    @cached_property
    def missing_numbers(self) -> list[float]:
        """Numbers in `na_values`; they mean missing values in columns of numbers, too."""
        texts = [value.replace(self.thousands or "", "") for value in self.na_values or ()]
        if self.decimal == ",":
            texts = [text.replace(",", ".") for text in texts]
        known = [parse_numbers([text], MISSING, padded=False, rounded=True) for text in texts]
        return [float(v[0]) for v in known if v is not None and v[0] == v[0]]

    def date_pattern(self, column: str) -> re.Pattern[str] | None:
        """Return the pattern of `date_format` for the dates of a column, or None."""
        return self._date_patterns.get(column if isinstance(self.date_format, dict) else "")

    @cached_property
    def _date_patterns(self) -> dict[str, re.Pattern[str]]:
        return date_patterns(self.date_format)

    def to_dict(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, for JSON."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in given.items()
            if value != getattr(DEFAULT, name)
        }

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> "CsvDialect":
        """Return a dialect from the data of `to_dict`.  Raises: DataError."""
        values = options.get("na_values")
        given = {**options, "na_values": None if values is None else tuple(values)}
        try:
            return cls(**given)
        except ValidationError as error:
            raise DataError(fault_of(error, given).removeprefix(".")) from None


def _spellings(text: str) -> set[str]:
    """Return a text and, for a number such as -999, the same number with up to six decimals."""
    if not (number := _DECIMAL.fullmatch(text)):
        return {text}
    whole, mark, digits = number[1], number[2] or "", (number[3] or "").rstrip("0")
    decimals = {digits.ljust(count, "0") for count in range(len(digits) or 1, MAX_DECIMALS + 1)}
    marked = {f"{whole}{m}{some}" for m in (mark if digits else ".,") for some in decimals}
    return {text, *marked, *([] if digits else [whole])}


def date_patterns(forms: str | Mapping[str, str] | None) -> dict[str, re.Pattern[str]]:
    """Return patterns of dates by column name; the name "" stands for all columns.

    Raises: PydanticCustomError for a text that is not a date format.
    """
    each = {"": forms} if isinstance(forms, str) else forms or {}
    return {name: _date_pattern(form) for name, form in each.items()}


def _date_pattern(form: str) -> re.Pattern[str]:
    tokens = _TOKEN.findall(form)
    apart = "month" in tokens or re.search(r"[a-z][^A-Za-z0-9]+[a-z]", form)
    parts = (("yyyy", "yy"), ("month", "mm"), ("dd",))
    one_of_each = all(sum(tokens.count(token) for token in part) == 1 for part in parts)
    whole = one_of_each and ("AM" not in tokens or "HH" in tokens)
    if not (whole and apart) or len(set(tokens)) < len(tokens):
        raise rule(
            "needs yyyy, mm and dd with separators between them, and HH if there is AM, such as "
            f"mm/dd/yyyy, dd-month-yy or mm/dd/yyyy HH:MM AM (got {form!r})",
            "date_format",
        )
    return re.compile(_TOKEN.sub(lambda token: _TOKENS[token[0]], re.escape(form)))


DEFAULT = CsvDialect()
"""The dialect that infers everything from the file."""


class CsvOptions(NamedTuple):
    """How to read a CSV.

    Attributes:
        text: columns that stay text.
        labels: columns of classes, where the default texts of `na_values` are classes.
        codes: columns where dates, and numbers with several spellings (3.1, 3.10), stay text.
        numbers: columns where whole numbers with leading zeros are numbers, not codes.
        kept: columns to read.  All columns are read if `kept` is empty, or if the file lacks one of
            these columns.
        optional: further columns to read, if the file has them.
    """

    reading: CsvDialect = DEFAULT
    text: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    codes: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        dialect: Mapping[str, Any],
        text: Iterable[str] = (),
        numbers: Iterable[str] = (),
        labels: Iterable[str] = (),
        kept: Iterable[str] = (),
        codes: Iterable[str] = (),
        optional: Iterable[str] = (),
    ) -> "CsvOptions":
        """Return the options for arguments of `CsvDialect`.  Raises: DataError."""
        reading = CsvDialect.from_dict(dialect)
        return cls(reading, *map(frozenset, (text, numbers, labels, kept, codes, optional)))

    def skipped(self, names: Iterable[str]) -> frozenset[str]:
        """Return the columns of `names` that are left out."""
        known = frozenset(names)
        used = self.kept | self.optional
        return known - used if self.kept and self.kept <= known else frozenset()

    def first_step(self, name: str) -> int:
        """Return the kind that is tried first for a column: 0 numbers, 1 dates, 2 text."""
        return 2 if name in self.text | self.codes else self.first_number_step

    @property
    def first_number_step(self) -> int:
        """The kind that is tried first for a column that may have numbers."""
        # with this mark, 1.234 means 1234, but parse_numbers would read 1.234
        return 1 if self.reading.thousands == "." else 0
