"""Columns as the text of a CSV file, for all rows at once.

Text is a matrix of bytes, one row for each value, in which FILL stands where there is no character;
the other bytes, row by row, are the lines.
"""

from collections.abc import Sequence

import numpy as np

from mlpengine.spec import Array

DIGITS = 9
"""Significant digits of a number: enough to distinguish float32 values."""

FILL = 0xFF
"""A byte that no text in UTF-8 has."""

_WIDTH = DIGITS + 8  # sign, point, zeros before the digits or an exponent
_ZERO, _POINT, _MINUS = b"0.-"
_POWERS = np.array([float(f"1e{n}") for n in range(23)])
"""Powers of ten that float64 holds exactly."""

_LOWEST, _HIGHEST = DIGITS - 1 - 22, DIGITS - 1 + 22  # exponents that _POWERS reach


def csv_lines(fields: Sequence[Array]) -> bytes:
    """Return rows of text fields as lines of CSV."""
    rows = len(fields[0])
    parts = []
    for field in fields:
        parts += [field, np.full((rows, 1), ord(","), np.uint8)]
    parts[-1] = np.full((rows, 1), ord("\n"), np.uint8)
    text = np.concatenate(parts, axis=1)
    return bytes(text[text != FILL])


def texts(codes: Array, labels: Sequence[bytes]) -> Array:
    """Return the label of each code."""
    width = max(map(len, labels), default=0)
    table = np.frombuffer(b"".join(label.ljust(width, b"\xff") for label in labels), np.uint8)
    return table.reshape(len(labels), width)[codes]


def integers(values: Array) -> Array:
    """Return whole numbers as text."""
    magnitude = np.abs(values.astype(np.int64))
    width = len(str(int(magnitude.max(initial=0))))
    out = np.full((len(values), 1 + width), FILL, np.uint8)
    for place in range(width, 0, -1):
        tens = magnitude // 10
        out[:, place] = magnitude - 10 * tens + _ZERO
        if place < width:
            out[magnitude == 0, place] = FILL
        magnitude = tens
    out[values < 0, 0] = _MINUS
    return out


def decimals(values: Array) -> Array:
    """Return numbers as text, as the format ".9g" writes them."""
    values = values.astype(np.float64)
    magnitude = np.abs(values)
    plain = (magnitude > 10.0 ** (_LOWEST + 1)) & (magnitude < 10.0 ** (_HIGHEST - 1))
    magnitude[~plain] = 1.0
    exponent = np.floor(np.log10(magnitude)).astype(np.int64)
    scaled = _scaled(magnitude, exponent)
    # the logarithm may be off by one next to a power of ten
    exponent += (scaled >= 10.0**DIGITS).astype(np.int64) - (scaled < 10.0 ** (DIGITS - 1))
    scaled = _scaled(magnitude, exponent)
    whole = np.rint(scaled)
    # a product is off by less than 2e-7: beyond that from the middle its rounding is certain
    plain &= np.abs(scaled - np.floor(scaled) - 0.5) > 1e-6
    carried = whole == 10.0**DIGITS
    whole[carried] = 10.0 ** (DIGITS - 1)
    exponent += carried
    out = np.full((len(values), _WIDTH), FILL, np.uint8)
    out[np.signbit(values), 0] = _MINUS
    _place(out, _digits(whole), exponent)
    for row in np.flatnonzero(~plain).tolist():
        text = f"{values[row]:.{DIGITS}g}".encode()
        out[row] = np.frombuffer(text.ljust(_WIDTH, b"\xff"), np.uint8)
    return out


def _scaled(magnitude: Array, exponent: Array) -> Array:
    """Return the numbers times the power of ten that gives them DIGITS digits."""
    shift = DIGITS - 1 - exponent
    up = _POWERS.take(shift, mode="clip")
    down = _POWERS.take(-shift, mode="clip")
    scaled: Array = magnitude * up / down
    return scaled


def _digits(whole: Array) -> Array:
    left = whole.astype(np.uint32)
    digits = np.empty((len(whole), DIGITS), np.uint8)
    for place in range(DIGITS - 1, -1, -1):
        tens = left // np.uint32(10)
        digits[:, place] = left - tens * np.uint32(10)
        left = tens
    return digits


def _place(out: Array, digits: Array, exponent: Array) -> None:
    """Write the digits with their point, zeros or exponent."""
    count = DIGITS - np.argmax(digits[:, ::-1] != 0, axis=1)  # without zeros at the end
    digits = digits + np.uint8(_ZERO)
    shown = np.where(np.arange(DIGITS) < count[:, None], digits, np.uint8(FILL))
    for power in np.unique(exponent).tolist():
        rows = np.flatnonzero(exponent == power)
        text = np.full((len(rows), _WIDTH - 1), FILL, np.uint8)
        if 0 <= power < DIGITS:
            before = power + 1
            text[:, :before] = digits[rows, :before]
            text[:, before] = np.where(count[rows] > before, _POINT, FILL)
            text[:, before + 1 : DIGITS + 1] = shown[rows, before:]
        elif -4 <= power < 0:
            text[:, : 1 - power] = _ZERO
            text[:, 1] = _POINT
            text[:, 1 - power : 1 - power + DIGITS] = shown[rows]
        else:
            text[:, 0] = digits[rows, 0]
            text[:, 1] = np.where(count[rows] > 1, _POINT, FILL)
            text[:, 2 : DIGITS + 1] = shown[rows, 1:]
            tail = f"e{power:+03d}".encode()
            text[:, DIGITS + 1 : DIGITS + 1 + len(tail)] = np.frombuffer(tail, np.uint8)
        out[rows, 1:] = text
