"""The features of a single row, in buffers that are allocated once."""

from collections.abc import Mapping
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.features.categories import Category
from mlpengine.data.features.preprocessing import Preprocessor
from mlpengine.data.features.sources import LIMIT
from mlpengine.data.features.summary import bounds
from mlpengine.data.tables.table import number_text

_NUMBERS = frozenset({float, int, bool, np.float64, np.float32, np.int64, np.int32, np.bool_})
_NUMBERS_OR_NONE = _NUMBERS | {type(None)}


def _within(low: float, value: float, high: float) -> bool:
    return low <= value <= high


class _OneHot(NamedTuple):
    """A category, the code of each level, the index of its first feature, and missing texts."""

    category: Category
    codes: Mapping[str, int]
    start: int
    missing: frozenset[str]

    def code(self, value: Any) -> int | None:
        """Return the code of a value; None if `Category.encode` must decide or refuse the value."""
        kind = type(value)
        if kind is str:
            if not self.category.text:
                return None
            text = value.strip()
            if text in self.missing and text not in self.codes:
                value, kind = None, type(None)
        elif kind is bool or kind is np.bool_:
            text = number_text("boolean", float(value))
        elif kind in _NUMBERS:
            if isnan(value):
                value, kind = None, type(None)
            else:
                text = number_text("number", value)
        elif value is not None:
            return None
        if value is None:
            return None if self.category.strict else len(self.codes) + self.category.gaps
        return self.codes.get(text, len(self.codes))


class RowEncoder:
    """Writes the features of one row into `out` (1, features), as `Preprocessor.transform` does.

    `encode` returns False for a missing column, a value of another type and other unusual rows.
    The caller then passes the row to `Preprocessor.transform`.

    Attributes:
        unknown: texts of the last row that are not levels, by column.
        far: numbers of the last row that are far outside training, by column.
    """

    def __init__(self, preprocessor: Preprocessor, out: Array) -> None:
        numbers = preprocessor.fitted_numbers
        self._numbers, self._out, self._row = numbers, out[:, : numbers.width], out[0]
        self.unknown: dict[str, str] = {}
        self.far: dict[str, float] = {}
        summary = preprocessor.summary["columns"]
        ends = [bounds(summary.get(source.column, {"missing": 0.0})) for source in numbers.sources]
        self._low, self._high = ([*each] for each in zip(*ends, strict=True)) if ends else ([], [])
        self._names = [source.column for source in numbers.sources]
        self._values = np.empty((1, len(self._names)))
        self._one_hots: list[_OneHot] = []
        self._missing = preprocessor.options.reading.missing
        start = numbers.width
        for category in preprocessor.categories:
            codes = {level: code for code, level in enumerate(category.levels)}
            self._one_hots.append(_OneHot(category, codes, start, self._missing))
            start += category.size
        self._categories = self._row[numbers.width :]
        order = {name: i for i, name in enumerate(preprocessor.columns)}
        self._columns = np.array([order[name] for name in self._names], np.int64)

    @staticmethod
    def suits(preprocessor: Preprocessor) -> bool:
        """Return whether rows of this preprocessing can be encoded one by one."""
        numbers = preprocessor.numbers
        return (
            numbers is not None
            and not preprocessor.computed
            and not preprocessor.options.reading.missing_numbers
            and "date" not in preprocessor.kinds.values()
        )

    def encode(self, row: Mapping[str, Any]) -> bool:
        """Write the features of a row, a mapping from columns to values; return False if unable."""
        try:
            return self._write_numbers([row[n] for n in self._names]) and self._write_texts(row)
        except (KeyError, OverflowError):
            return False

    def encode_array(self, row: Array) -> bool:
        """Do the same as `encode` for an array of numbers in the order of the columns."""
        if self._one_hots or len(row) != len(self._names) or row.dtype.kind not in "iufb":
            return False
        return self._write_numbers(row.take(self._columns).tolist())

    def _write_numbers(self, values: list[Any]) -> bool:
        kinds, missing = set(map(type, values)), None
        if not kinds <= _NUMBERS:
            if not kinds <= _NUMBERS_OR_NONE:
                return False
            values = [nan if value is None else value for value in values]
        self._values[0] = values
        self.far = {}
        if not all(map(_within, self._low, values, self._high)):
            missing = np.isnan(self._values)
            if (self._numbers.strict and missing.any()) or (np.abs(self._values) > LIMIT).any():
                return False
            each = zip(self._names, self._low, values, self._high, strict=True)
            self.far = {n: value for n, low, value, high in each if value < low or value > high}
        return self._numbers.write(self._values, missing, self._out)

    def _write_texts(self, row: Mapping[str, Any]) -> bool:
        self.unknown = {}
        self._categories.fill(0.0)
        for one in self._one_hots:
            value = row[one.category.column]
            code = one.code(value)
            if code is None:
                return False
            if code == len(one.codes) and not self._is_gap(value):
                self.unknown[one.category.column] = str(value)
            self._row[one.start + code] = one.category.value
        return True

    def _is_gap(self, value: Any) -> bool:
        if isinstance(value, str):
            return value.strip() in self._missing
        return value is None or value != value
