"""Cutting blocks of CSV into cells and cells into numbers, for all cells of a block at once.

A long file is cut and converted by `_native`, to the same values; this module defines them.

A cell is a pair of offsets into the bytes of the block. Its characters are read eight at a time as
one 64-bit word, and arithmetic on words treats the eight bytes side by side (SIMD within a
register). Whatever is not a plain decimal number is marked and left to the caller.
"""

import ctypes
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mlpengine.core.buffers import address_of
from mlpengine.core.fork_locks import cached_property
from mlpengine.core.spec import Array
from mlpengine.data.tables import _native
from mlpengine.data.tables import cells as _cells
from mlpengine.data.tables._lines import MAX_LINE, PAD, LineBlock

_NEWLINE, _RETURN, _POINT, _MINUS, _PLUS, _QUOTE, _ZERO = b'\n\r.-+"0'
_HIGH_BITS = np.uint64(0x8080808080808080)
_POWERS = np.array([float(f"1e{n}") for n in range(23)])
"""Powers of ten that float64 holds exactly."""

_LIMIT = 4e18
"""Digits without their point are an int64; beyond this the cell is left to the caller."""

_CELLS = 12_000
"""Cells in a slice: temporary arrays stay below the size from which malloc asks the kernel."""


NATIVE_BYTES = 1 << 22
"""Bytes of a file after which its cells are cut and converted in C: NumPy takes 0.1 s for them, and
the compiler, once on a machine, 0.3 s."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a block, column by column.

    `is_quoted` says whether there are quotes, of which those inside a cell still stand twice;
    `loops` is the library in C, or None. Shapes: start, stop (one behind the last
    character), points (how many) and point (offset of the last one) are int32 (columns, rows);
    the loops in C need no points.
    """

    content: bytes | bytearray
    loops: ctypes.CDLL | None
    is_quoted: bool
    start: Array
    stop: Array
    points: Array | None = None
    point: Array | None = None

    @cached_property
    def _addresses(self) -> tuple[int, int, int]:
        content = np.frombuffer(self.content, np.uint8)
        return address_of(content), address_of(self.start), address_of(self.stop)

    def native(self, column: int) -> tuple[int, int, int, int]:
        """Return the address of the block, the number of rows, and those of a column's offsets."""
        skipped = column * self.start.strides[0]
        content, start, stop = self._addresses
        return content, self.start.shape[1], start + skipped, stop + skipped

    @cached_property
    def words(self) -> Array:
        """The eight bytes from each offset on."""
        view = np.ndarray((len(self.content) - 7,), "<u8", self.content, strides=(1,))
        return view.astype(np.uint64)

    def texts(self, column: int, rows: Array) -> list[str]:
        """Return the cells of a column in these rows as text."""
        starts, stops = self.start[column, rows].tolist(), self.stop[column, rows].tolist()
        content = self.content
        texts = [content[a:b].decode() for a, b in zip(starts, stops, strict=True)]
        return [text.replace('""', '"') for text in texts] if self.is_quoted else texts


class Cutter:
    """Cuts blocks of whole lines into cells, valid until the next block but one is cut."""

    def __init__(self, delimiter: str, width: int) -> None:
        self.delimiter, self.width = ord(delimiter), width
        self.masks = np.empty((2, 0), bool)
        self.offsets = [np.empty(0, np.int32)] * 2
        self.loops: ctypes.CDLL | None = None
        self.bytes_left = 0 if _native.is_loaded() else NATIVE_BYTES

    @property
    def is_fast(self) -> bool:
        """Whether blocks may be large: no step takes temporary arrays for each byte."""
        return self.loops is not None

    def cut(self, lines: LineBlock, line_count: int) -> Cells | None:
        """Return the cells of so many whole lines, or None if the lines need a full CSV parser.

        The result is None for quotes that do not enclose a whole cell, NUL bytes, lines that end
        with only a carriage return, empty lines, cells that are too long, and lines that do not
        have `width` cells.
        """
        if lines.has(b"\0"):
            return None
        self.bytes_left -= len(lines)
        if self.bytes_left < 0 and self.loops is None:
            self.bytes_left, self.loops = sys.maxsize, _native.library()
        is_open = lines.buffer[lines.stop - 1] != _NEWLINE  # the newline behind the block ends it
        end = lines.stop + is_open
        is_quoted = lines.has(b'"')
        if self.loops is not None:
            return self._cut_fast(lines.buffer, end, line_count + is_open, is_quoted)
        content = bytes(memoryview(lines.buffer)[: lines.stop + PAD])
        characters = np.frombuffer(content, np.uint8)
        if is_quoted and not self._encloses(characters):
            return None
        tokens = self._tokens(characters[PAD:end], is_quoted) + PAD
        kinds = characters[tokens]
        closing = np.flatnonzero(kinds != _POINT)
        if len(closing) % self.width:
            return None
        stop = tokens[closing]
        is_end = (kinds[closing] == _NEWLINE).reshape(-1, self.width)
        if not is_end[:, -1].all() or np.count_nonzero(is_end) != len(is_end):
            return None
        start = np.empty_like(stop)
        start[0] = PAD
        np.add(stop[:-1], 1, out=start[1:])
        if lines.has(b"\r"):
            last = stop[self.width - 1 :: self.width]
            returns = characters[last - 1] == _RETURN
            if np.count_nonzero(returns) != lines.count(b"\r"):
                return None
            last -= returns
        length = stop - start
        if length.max() > MAX_LINE or (self.width == 1 and not length.all()):
            return None
        if is_quoted:
            quoted = characters[start] == _QUOTE
            start += quoted
            stop -= quoted
        points = np.diff(closing, prepend=-1) - 1
        columns = [
            np.ascontiguousarray(of_cells.reshape(-1, self.width).T, np.int32)
            for of_cells in (start, stop, points, tokens[closing - 1])
        ]
        return Cells(content, None, is_quoted, *columns)

    def _cut_fast(self, content: bytearray, end: int, rows: int, is_quoted: bool) -> Cells | None:
        assert self.loops is not None
        size = 2 * self.width * rows
        offsets = self.offsets.pop(0)  # of the block before the last one
        if len(offsets) < size:
            offsets = np.empty(size + size // 8, np.int32)
        self.offsets.append(offsets)
        start, stop = offsets[:size].reshape(2, self.width, rows)
        shape = PAD, end, self.delimiter, self.width, rows, MAX_LINE
        where = address_of(np.frombuffer(content, np.uint8))
        count = self.loops.scan_cut(where, *shape, address_of(start), address_of(stop))
        if count < 0:
            return None
        if count < rows:  # of a block with line breaks in quoted cells
            start, stop = (np.ascontiguousarray(a[:, :count]) for a in (start, stop))
        return Cells(content, self.loops, is_quoted, start, stop)

    def _encloses(self, characters: Array) -> bool:
        """Whether all quotes are at the ends of cells or, inside quotes, doubled."""
        quotes = np.flatnonzero(characters == _QUOTE)
        if len(quotes) % 2:
            return False
        before, after = characters[quotes[::2] - 1], characters[quotes[1::2] + 1]
        edges = (self.delimiter, _NEWLINE, _QUOTE)
        return bool(np.isin(before, edges).all() and np.isin(after, (*edges, _RETURN)).all())

    def _tokens(self, characters: Array, is_quoted: bool) -> Array:
        """Return the offsets of delimiters and line ends outside of quotes, and of points."""
        if self.masks.shape[1] < len(characters):
            self.masks = np.empty((2, len(characters)), bool)
        mask, other = self.masks[:, : len(characters)]
        np.equal(characters, self.delimiter, out=mask)
        np.equal(characters, _NEWLINE, out=other)
        np.logical_or(mask, other, out=mask)
        if is_quoted:
            np.equal(characters, _QUOTE, out=other)
            np.logical_xor.accumulate(other, out=other)
            np.greater(mask, other, out=mask)
        np.equal(characters, _POINT, out=other)
        np.logical_or(mask, other, out=mask)
        return np.flatnonzero(mask)


def parse_columns(
    cells: Cells, columns: Sequence[int], missing: frozenset[str], padded: Collection[int] = ()
) -> dict[int, Array | None]:
    """Return the float64 values of columns, NaN where missing, None where a cell is no number.

    Values are those of `_cells.parse_numbers`, cell by cell; leading zeros are allowed in the
    columns `padded`.
    """
    spellings = _spellings(missing)
    results: dict[int, Array | None] = {}
    picked = np.array(columns, np.int64)
    plain = _Plain(cells, picked)
    size = max(1, _CELLS // cells.start.shape[1])
    for whole_words, part_words, group in plain.groups():
        for first in range(0, len(group), size):
            places = group[first : first + size]
            values, odd = plain.read(places, whole_words, part_words)
            for value in spellings.numbers:
                odd |= values == value
            results |= dict(zip(picked[places].tolist(), values, strict=True))
            for i in np.flatnonzero(odd.any(axis=1)).tolist():
                column = int(picked[places[i]])
                if not _complete(cells, column, values[i], odd[i], missing, column in padded):
                    results[column] = None
    return results


def native_numbers(
    cells: Cells, column: int, missing: frozenset[str], out: Array, *, padded: bool
) -> bool:
    """Write what `parse_numbers` returns for a column; return False where that is None."""
    spellings = _spellings(missing)
    odd = np.empty(len(out), bool)
    words = spellings.address, len(spellings.words), bool(spellings.numbers)
    assert cells.loops is not None
    count = cells.loops.scan_numbers(
        *cells.native(column), *words, address_of(out), address_of(odd)
    )
    for value in spellings.numbers:
        equal = out == value
        count += int(np.count_nonzero(equal))
        odd |= equal
    return not count or _complete(cells, column, out, odd, missing, padded)


class _Spellings(NamedTuple):
    """Spellings of missing cells: those that are numbers, and the short ones as words of bytes."""

    numbers: list[float]
    words: Array
    address: int


@lru_cache
def _spellings(missing: frozenset[str]) -> _Spellings:
    values = [_number(text) for text in missing]
    numbers = [value for value in values if value is not None and value == value]
    encoded = [text.encode() for text in sorted(missing) if not {*text} & {'"', "\0"}]
    words = [int.from_bytes(text, "little") for text in encoded if 0 < len(text) <= 8]
    short = np.array(words, np.uint64)
    return _Spellings(numbers, short, address_of(short))


def _number(text: str) -> float | None:
    values = _cells.parse_numbers([text], frozenset())
    return None if values is None else float(values[0])


def _complete(
    cells: Cells,
    column: int,
    values: Array,
    odd: Array,
    missing: frozenset[str],
    padded: bool,
) -> bool:
    """Fill in the values of odd cells; return whether all of them are numbers."""
    rows = np.flatnonzero(odd)
    for some in (rows[:16], rows[16:]):
        if len(some):
            known = _cells.parse_numbers(cells.texts(column, some), missing, padded=padded)
            if known is None:
                return False
            values[some] = known
    return True


class _Plain:
    """Plain decimal cells of some columns: an optional sign, digits and an optional point.

    Shapes: all arrays (columns, rows).
    """

    def __init__(self, cells: Cells, columns: Array) -> None:
        self.words = cells.words
        self.start, self.stop = cells.start[columns], cells.stop[columns]
        assert cells.points is not None
        assert cells.point is not None
        self.points = cells.points[columns]
        self.whole_stop = np.where(self.points == 1, cells.point[columns], self.stop)
        self.part_count = np.maximum(self.stop - self.whole_stop - 1, 0)

    def groups(self) -> list[tuple[int, int, Array]]:
        """Return the columns grouped by the words of their digits before and after the point."""
        whole = (self.whole_stop - self.start).max(axis=1, initial=0)
        part = self.part_count.max(axis=1, initial=0)
        shape = np.clip((whole + 7) // 8, 1, 3) * 4 + np.clip((part + 7) // 8, 0, 3)
        return [
            (number // 4, number % 4, np.flatnonzero(shape == number))
            for number in sorted(set(shape.tolist()))
        ]

    def read(self, places: Array, whole_words: int, part_words: int) -> tuple[Array, Array]:
        """Return the values of plain cells, NaN of empty ones, and a mask of all others.

        The value is the float64 nearest to the number, as with `float`.
        """
        start, stop, points = self.start[places], self.stop[places], self.points[places]
        whole_stop, part_count = self.whole_stop[places], self.part_count[places]
        first = self.words[start] & np.uint64(0xFF)
        empty = start == stop
        negative = first == _MINUS
        count = whole_stop - start
        count -= (negative | (first == _PLUS)) & ~empty
        digits, wrong = _digits(self.words, whole_stop, count, whole_words)
        odd = (wrong != 0) | (count > 8 * whole_words) | (points > 1)
        odd |= (count + part_count == 0) | ((points == 0) & (digits >= _cells.FIRST_INEXACT))
        odd |= (first == _ZERO) & (count > 1) & (points == 0)  # may be a code
        if part_words:
            part, wrong = _digits(self.words, stop, part_count, part_words)
            odd |= (wrong != 0) | (part_count >= len(_POWERS))
            power = _POWERS.take(part_count, mode="clip")
            values = digits * power + part
            odd |= values > _LIMIT
            if values.max() < _cells.FIRST_INEXACT:
                np.divide(values, power, out=values)
            else:
                scale = np.where(odd | (digits == 0), 0, power).astype(np.int64)
                values = _quotient(np.where(odd, 0, digits * scale + part), power)
                odd |= np.isnan(values)
        else:
            values = digits.astype(np.float64)
        np.negative(values, out=values, where=negative)
        values[empty] = np.nan
        odd &= ~empty
        return values, odd


def _digits(words: Array, stop: Array, count: Array, n_words: int) -> tuple[Array, Array]:
    """Return the int64 numbers that `count` digits before `stop` write, and nonzero where wrong.

    Source: Langdale and Lemire 2019, eight digits of a word in three products.
    """
    value = np.zeros(stop.shape, np.int64)
    wrong = np.zeros(stop.shape, np.uint64)
    for position in range(n_words):
        surplus = (64 - 8 * np.clip(count - 8 * position, 0, 8)).astype(np.uint64)
        word = words[stop - 8 * (position + 1)]
        word ^= np.uint64(0x3030303030303030)
        word >>= surplus
        word <<= surplus
        wrong |= (word + np.uint64(0x7676767676767676)) | word
        word = word * np.uint64(10) + (word >> np.uint64(8))
        pairs = np.uint64(0x000000FF000000FF)
        upper = (word & pairs) * np.uint64(0x000F424000000064)
        word >>= np.uint64(16)
        word &= pairs
        word *= np.uint64(0x0000271000000001)
        word += upper
        word >>= np.uint64(32)
        value += word.astype(np.int64) * 10 ** (8 * position)
        if position == 2:  # 24 digits may exceed int64
            wrong |= np.where(word > 300, _HIGH_BITS, np.uint64(0))
    return value, wrong & _HIGH_BITS


def _quotient(digits: Array, power: Array) -> Array:
    """Return the float64 nearest to digits / power, NaN where this arithmetic cannot determine it.

    The quotient is computed as a sum of two float64 with a relative error below 2**-100; where that
    error could change the rounding, the result is NaN.

    Source: Dekker 1971, exact products and quotients of doubled precision.
    """
    upper = digits.astype(np.float64)
    lower = (digits - upper.astype(np.int64)).astype(np.float64)
    quotient = upper / power
    product, error = _product(quotient, power)
    remainder = ((upper - product) - error + lower) / power
    result = quotient + remainder * (1 + 2.0**-48)
    result[result != quotient + remainder * (1 - 2.0**-48)] = np.nan
    return result


def _product(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a * b rounded, and the rounding error."""
    a_upper, a_lower = _halves(a)
    b_upper, b_lower = _halves(b)
    product = a * b
    error = ((a_upper * b_upper - product) + a_upper * b_lower + a_lower * b_upper) + (
        a_lower * b_lower
    )
    return product, error


def _halves(a: Array) -> tuple[Array, Array]:
    scaled = a * 134217729.0  # 2**27 + 1
    upper = scaled - (scaled - a)
    return upper, a - upper


def moments(cells: Cells, column: int, out: Array) -> Array | None:
    """Return a column's dates as seconds since 1970, or None if a cell has another form.

    The forms are 2020-01-02, 2020-01-02T03:04:05, the same with a blank, and empty (NaN). The
    result may be `out`.
    """
    if cells.loops is not None:
        return out if cells.loops.scan_moments(*cells.native(column), address_of(out)) else None
    start = cells.start[column]
    length = cells.stop[column] - start
    has_time = length == len("2020-01-02T03:04:05")
    empty = length == 0
    if not (has_time | empty | (length == len("2020-01-02"))).all():
        return None
    characters = np.frombuffer(cells.content, np.uint8)
    text = characters[start + np.arange(19)[:, None]]
    form = _PLAIN_MOMENT[:, None]
    text[:10, empty], text[10:, ~has_time] = form[:10], form[10:]
    text[10, text[10] == ord(" ")] = ord("T")
    digits = text - np.uint8(ord("0"))
    is_digit = form[:, 0] == ord("0")
    if (digits[is_digit] > 9).any() or (text[~is_digit] != form[~is_digit]).any():
        return None
    century, years, month, day, hour, minute, second = (
        digits[place] * 10 + digits[place + 1] for place in (0, 2, 5, 8, 11, 14, 17)
    )
    year = century.astype(np.int64) * 100 + years
    months = (year - 1970) * 12 + month - 1
    starts = np.array([months, months + 1]).astype("datetime64[M]").astype("datetime64[D]")
    first, following = starts.astype(np.int64)
    in_range = (year > 0) & (month > 0) & (month <= 12) & (day > 0) & (day <= following - first)
    in_range &= (hour < 24) & (minute < 60) & (second < 60)
    if not (in_range | empty).all():
        return None
    seconds: Array = (first + day - 1) * 86_400.0 + hour * 3_600.0 + minute * 60.0 + second
    seconds[empty] = np.nan
    return seconds


_PLAIN_MOMENT = np.frombuffer(b"0000-00-00T00:00:00", np.uint8)


class Distinct:
    """Values of repeated cells, looked up by their bytes; new ones are converted by `convert`.

    `convert` takes texts and returns one value for each, or None if it cannot convert one.
    """

    MAX_WORDS = 8
    MAX_KNOWN, MAX_KNOWN_FAST = 1 << 16, 1 << 18

    def __init__(
        self, convert: Callable[[Sequence[str]], Array | None], dtype: type[np.generic]
    ) -> None:
        self.convert = convert
        self.keys = np.empty(0, np.uint64)
        self.lengths = np.empty(0, np.int64)
        self.words = np.empty((self.MAX_WORDS, 0), np.uint64)
        self.values = np.empty(0, dtype)
        self.texts: _native.Texts | None = None

    def __call__(self, cells: Cells, column: int, out: Array) -> Array | None:
        """Return the values of a column's cells, perhaps in `out`, None if one is unlike others."""
        if cells.loops is not None:
            return self._fast(cells, column, out)
        start = cells.start[column]
        length = cells.stop[column] - start
        count = -(-int(length.max()) // 8)
        if count > self.MAX_WORDS:
            return self.convert(cells.texts(column, np.arange(len(start))))
        words = np.zeros((max(count, 1), len(start)), np.uint64)
        keys = np.zeros(len(start), np.uint64)
        for i in range(count):
            surplus = (64 - 8 * np.clip(length - 8 * i, 0, 8)).astype(np.uint64)
            np.left_shift(cells.words[start + 8 * i], surplus, out=words[i])
            words[i] >>= surplus
            keys += words[i] * _MIX[i]
        result = np.empty(len(start), self.values.dtype)
        new = self._look_up(keys, length, words, result)
        if not len(new):
            return result
        _, first, place = np.unique(keys[new], return_index=True, return_inverse=True)
        firsts = new[first]
        like = firsts[place]
        equal = (length[new] == length[like]) & (words[:, new] == words[:, like]).all(axis=0)
        values = self.convert(cells.texts(column, firsts))
        if values is None:
            return None
        result[new] = values[place]
        if not equal.all():  # two cells of one key
            unlike = new[~equal]
            others = self.convert(cells.texts(column, unlike))
            if others is None:
                return None
            result[unlike] = others
        if len(self.keys) < self.MAX_KNOWN:
            self._add(keys[firsts], length[firsts], words[:, firsts], values)
        return result

    def _fast(self, cells: Cells, column: int, out: Array) -> Array | None:
        assert cells.loops is not None
        if self.texts is None or self.texts.count > self.MAX_KNOWN_FAST:
            self.texts = _native.Texts(cells.loops)
            self.values = self.values[:0]
        known = self.texts.count
        size = int((cells.stop[column] - cells.start[column]).sum(dtype=np.int64))
        numbers = np.empty(len(out), np.int32)
        self.texts(*cells.native(column), size, address_of(numbers))
        if self.texts.count > known:
            values = self.convert(self.texts.since(known, is_quoted=cells.is_quoted))
            if values is None:
                return None
            self.values = np.concatenate([self.values, values])
        return self.values.take(numbers, out=out, mode="clip")

    def _look_up(self, keys: Array, length: Array, words: Array, result: Array) -> Array:
        """Write the values of known cells into `result`; return the rows of all others."""
        if not len(self.keys):
            return np.arange(len(keys))
        place = np.searchsorted(self.keys, keys)
        np.minimum(place, len(self.keys) - 1, out=place)
        known = self.lengths[place] == length
        for own, of_cells in zip(self.words, words, strict=False):
            known &= own[place] == of_cells
        result[:] = self.values[place]
        return np.flatnonzero(~known)

    def _add(self, keys: Array, length: Array, words: Array, values: Array) -> None:
        keys = np.concatenate([self.keys, keys])
        # of two cells with one key the lookup reaches the first; the other stays unknown
        order = np.argsort(keys, kind="stable")
        self.keys = keys[order]
        self.lengths = np.concatenate([self.lengths, length])[order]
        self.values = np.concatenate([self.values, values])[order]
        wide = np.zeros((self.MAX_WORDS, len(values)), np.uint64)
        wide[: len(words)] = words
        self.words = np.concatenate([self.words, wide], axis=1)[:, order]


_MIX = np.random.Generator(np.random.PCG64(0)).integers(
    0, 2**64, Distinct.MAX_WORDS, np.uint64
) | np.uint64(1)
