"""Charts as data: axes and the shapes on them.  The module `svg` draws them."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any, NamedTuple

import numpy as np

from mlpengine.core.spec import Array

from .markup import MINUS, by_power, number, shortened

POINTS = 300
"""Maximum number of points of a curve on a page."""

SHADES = 8
"""Number of shades of the cells of a confusion matrix."""

LIGHT = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C6D00", "#56B4E9")
DARK = ("#56B4E9", "#F28E2B", "#3DC79B", "#E59ECA", "#F0E442", "#FFFFFF")
"""Colors of lines on white and on black that color-blind readers can distinguish.

Source: Okabe and Ito 2008."""

DASHES = ((), (5.0, 2.0), (1.0, 1.2), (5.0, 2.0, 1.0, 2.0))
"""Lengths of dashes and gaps by color, in line widths; they distinguish curves that coincide."""

NO_RANGE = 1e-300
"""A range of at most this width counts as a single value, because its ticks would underflow."""

NAME_LENGTH = 14
"""Maximum number of characters of a name beside an axis."""


class Axis(NamedTuple):
    """A range of values, linear or in powers of ten, and its labeled ticks."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def share(self, values: Array | Sequence[float] | float) -> Array:
        """Return positions of values, 0 at `low` and 1 at `high`, clipped to -0.02 and 1.02."""
        numbers = np.asarray(values, np.float64)
        low, high = self.low, self.high
        if self.log:
            numbers = np.log10(np.maximum(numbers, low / 10 or low))
            low, high = log10(low), log10(high)
        return np.clip((numbers - low) / (high - low), -0.02, 1.02)


def axis(
    *values: Array | Sequence[float] | float,
    log: bool | None = False,
    zero: bool = False,
    whole: bool = False,
    most: float = np.inf,
    margin: float = 0.04,
) -> Axis:
    """Return the axis of some values.

    `log=None` chooses a logarithmic axis if the largest value exceeds 8 times the smallest.  With
    `zero`, the axis includes 0.  With `whole`, ticks are whole numbers.  `margin` is the space at
    both ends, as a share of the range; the axis does not extend beyond `most`.
    """
    known = np.concatenate([np.ravel(np.asarray(one, np.float64)) for one in values])
    known = known[np.isfinite(known)]
    if not known.size:
        return Axis(0.0, 1.0, False, ((0.0, "0"), (1.0, "1")))
    low, high = float(known.min()), float(known.max())
    positive = known[known > 0]
    if (log is None and high > 8 * low > 0) or (log and high > 2 * positive.min(initial=high)):
        return _powers(float(positive.min()), high)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    space = margin * (high - low)
    largest = max(abs(low), abs(high))
    if high - low <= max(1e-12 * largest, NO_RANGE):
        space = abs(high) / 2 if largest > NO_RANGE else 1.0
    low, high = low if zero and low == 0 else low - space, min(high + space, max(high, most))
    step = _step((high - low) / 5)
    step = max(1.0, round(step)) if whole else step
    first = ceil(low / step)
    ticks = [k * step for k in range(first, floor(high / step + 1e-9) + 1)]
    return Axis(low, high, False, tuple((tick, _label(tick, step, largest)) for tick in ticks))


def name_axis(names: Sequence[object]) -> Axis:
    """Return an axis of names from top to bottom; name k of n is at n - k - 0.5."""
    count = len(names)
    ticks = ((count - k - 0.5, shortened(name, NAME_LENGTH)) for k, name in enumerate(names))
    return Axis(0.0, float(count), False, tuple(ticks))


def _powers(low: float, high: float) -> Axis:
    low, high = low / 1.15, high * 1.15
    decades = log10(high) - log10(low)
    steps: tuple[float, ...] = (1, 2, 5) if decades > 0.8 else (1, 1.5, 2, 3, 4, 5, 7)
    every = 1
    if decades >= 2.5:
        steps, every = (1,), max(1, round(decades / 5))
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    values = [s * 10.0**p for p in powers if p % every == 0 for s in steps]
    return Axis(low, high, True, tuple((v, _plain(v)) for v in values if low <= v <= high))


def _plain(value: float) -> str:
    return by_power(value) if value and not 1e-3 <= abs(value) < 1e6 else f"{value:,.6g}"


def _step(rough: float) -> float:
    """Return the nearest step of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10(rough))
    return min((s * power for s in (1, 2, 5, 10)), key=lambda step: abs(log10(step / rough)))


def _label(value: float, step: float, largest: float) -> str:
    power = floor(log10(step) + 1e-9)
    narrow = power > -10 and 1e-2 <= largest < 1e6  # 0.360455 is shorter than 3.60455·10⁻¹
    if value and not (-5 < power < 7 or narrow):
        exponent = floor(log10(abs(value)) + 1e-9)
        return by_power(value, 1 + max(0, exponent - power))
    text = f"{value:,.{max(0, -power)}f}"
    return text.replace("-", MINUS) if float(text.replace(",", "")) else "0"


def thinned(y: Array, points: int = POINTS) -> Array:
    """Return indices of about `points` points: first, last, and the extremes of equal intervals."""
    known = np.flatnonzero(np.isfinite(y))
    if len(known) <= points:
        return known
    edges = np.linspace(0, len(known), points // 2 + 1).astype(int)
    kept = {0, len(known) - 1}
    for start, stop in pairwise(edges.tolist()):
        values = y[known[start:stop]]
        kept |= {start + int(values.argmin()), start + int(values.argmax())}
    chosen: Array = known[sorted(kept)]
    return chosen


def array_of(values: Iterable[Any]) -> Array:
    """Return numbers as a float64 array, with NaN for None."""
    return np.array([np.nan if v is None else v for v in values], np.float64)


class LegendEntry(NamedTuple):
    """An entry of a legend: its sign (a line, dots or a rule) and its color."""

    name: str
    kind: str
    number: int = 0


class Line(NamedTuple):
    """A curve, broken where y is not finite; with `dots`, each point has a dot."""

    x: Array
    y: Array
    color: int = 1
    name: str = ""
    dots: bool = False


class Points(NamedTuple):
    """A cloud of points."""

    x: Array
    y: Array
    color: int = 1
    name: str = ""


class Bars(NamedTuple):
    """A histogram of n `counts` between n + 1 `edges`."""

    edges: Array
    counts: Array


class Spans(NamedTuple):
    """Vertical lines from `low` to `high` at each x."""

    x: Array
    low: Array
    high: Array


class HorizontalLine(NamedTuple):
    """A dotted line at a value of y, drawn if the axis contains the value."""

    value: float
    name: str = ""


class Mark(NamedTuple):
    """A vertical dotted line at a value of x, with its name in the legend."""

    value: float
    name: str = ""


class Diagonal(NamedTuple):
    """The dotted line where x and y are equal."""


Shape = Line | Points | Bars | Spans | HorizontalLine | Mark | Diagonal


class Chart(NamedTuple):
    """Axes, the shapes on them in drawing order, and texts.

    Args:
        below: the label of the x axis.
        note: a sentence below the chart.
        words: further sentences of the description for screen readers.
    """

    title: str
    x: Axis
    y: Axis
    shapes: Sequence[Shape]
    below: str = ""
    note: str = ""
    words: Sequence[str] = ()

    def shows(self, rule: HorizontalLine) -> bool:
        """Return whether the y axis contains the value of a horizontal line."""
        return bool(np.isfinite(rule.value)) and self.y.low <= rule.value <= self.y.high

    @property
    def legend(self) -> list[LegendEntry]:
        """The entries of the legend; empty for a single line."""
        keys: list[LegendEntry] = []
        for shape in self.shapes:
            match shape:
                case Line(y=y) if np.isfinite(y).any():
                    keys.append(LegendEntry(shape.name, "line", shape.color))
                case Points():
                    keys.append(LegendEntry(shape.name, "dots", shape.color))
                case HorizontalLine(value, name) if name and self.shows(shape):
                    keys.append(LegendEntry(f"{name} {_plain(value)}", "rule"))
                case Mark(name=name):
                    keys.append(LegendEntry(name, "rule"))
        named = list(dict.fromkeys(k._replace(name=shortened(k.name)) for k in keys if k.name))
        return [] if [key[1:] for key in named] == [("line", 1)] else named

    @property
    def description(self) -> str:
        """The chart in words."""
        words = [self.title]
        for shape in self.shapes:
            match shape:
                case Line(y=y) if np.isfinite(y).any():
                    y = y[np.isfinite(y)]
                    words.append(
                        f"{shape.name or self.title}: from {number(y[0], 3)} to "
                        f"{number(y[-1], 3)}, lowest {number(y.min(), 3)}, "
                        f"highest {number(y.max(), 3)}"
                    )
                case HorizontalLine(value, name) if name and self.shows(shape):
                    words.append(f"{name} at {_plain(value)}")
                case Mark(name=name) if name:
                    words.append(name)
        return ". ".join([*words, *self.words])
