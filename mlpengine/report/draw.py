"""Small charts as inline SVG, in the colors of the page that holds them.

A chart is 360 units wide, so that its text has the size of the page's at the width of a phone.
Colors are classes that the style sheet defines for light and dark screens and for print.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import NamedTuple

import numpy as np

from mlpengine.spec import Array

from .markup import MINUS, Markup, by_power, joined, number, shortened, tag

WIDTH, HEIGHT = 360, 216
LEFT, RIGHT, TOP, BOTTOM = 52, 350, 10, 180
NAMED = 100
"""Left end of a chart with names beside it."""

POINTS = 300
"""Maximum number of points of a curve: about one for each unit of width."""

LEVELS = 8
"""Shades of a heat map."""

COLORS = 6


class Axis(NamedTuple):
    """A range of values, linear or by powers of ten, and its labeled ticks."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def share(self, values: Array | Sequence[float] | float) -> Array:
        """Return where values lie between the ends, 0 to 1, beyond which they are cut off."""
        numbers = np.asarray(values, np.float64)
        low, high = self.low, self.high
        if self.log:
            numbers = np.log10(np.maximum(numbers, low / 10))
            low, high = log10(low), log10(high)
        return np.clip((numbers - low) / (high - low), -0.02, 1.02)


def axis(
    *values: Array | Sequence[float] | float,
    log: bool | None = False,
    zero: bool = False,
    whole: bool = False,
    margin: float = 0.04,
) -> Axis:
    """Return the axis of some values; `log` None chooses powers if they span nearly one.

    With `zero` it begins at 0, with `whole` its ticks are whole numbers.
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
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        space = abs(high) / 2 or 1.0
    low, high = low if zero and low == 0 else low - space, high + space
    step = _step((high - low) / 5)
    step = max(1.0, round(step)) if whole else step
    first = ceil(low / step)
    ticks = [k * step for k in range(first, floor(high / step + 1e-9) + 1)]
    return Axis(low, high, False, tuple((tick, _label(tick, step)) for tick in ticks))


_SPANS = {"Y": 31_556_952, "M": 2_629_746, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
"""Mean length in seconds of the units of NumPy's dates."""

_COUNTS = {
    "Y": tuple(c * 10**k for k in range(5) for c in (1, 2, 5)),
    "M": (1, 2, 3, 6),
    "D": (1, 2, 5, 10),
    "h": (1, 2, 3, 6, 12),
    "m": (1, 2, 5, 10, 30),
    "s": (1, 2, 5, 10, 30),
}
"""How many of a unit may lie between two ticks."""


def date_axis(seconds: Array) -> Axis:
    """Return the axis of dates, given in seconds since 1970, with ticks where a unit begins."""
    low, high = float(seconds.min()), float(seconds.max())
    space = 0.04 * (high - low) or _SPANS["D"]
    low, high = low - space, high + space
    steps = [(count * _SPANS[unit], unit, count) for unit in _SPANS for count in _COUNTS[unit]]
    _, unit, count = min((s for s in steps if 5 * s[0] >= high - low), default=max(steps))
    ends = np.array([low, high]).astype("datetime64[s]").astype(f"datetime64[{unit}]")
    first, last = ends.astype(np.int64).tolist()
    shift = 1970 if unit == "Y" else 0  # units count from 1970
    numbers = range(first - (first + shift) % count, last + 1, count)
    dates = np.array(numbers, np.int64).astype(f"datetime64[{unit}]")
    places = dates.astype("datetime64[s]").astype(np.float64).tolist()
    ticks = zip(places, map(_date_label, map(str, dates)), strict=True)
    return Axis(low, high, False, tuple(tick for tick in ticks if tick[0] >= low))


def _date_label(date: str) -> str:
    """Return 2024, 2024-05, 2024-05-31, and within a day 13:00, 13:05 or 13:05:30."""
    day, _, clock = date.partition("T")
    if clock in ("00", "00:00", "00:00:00"):
        return day
    return f"{clock}:00" if len(clock) == 2 else clock or day


def _powers(low: float, high: float) -> Axis:
    low, high = low / 1.15, high * 1.15
    decades = log10(high / low)
    steps: tuple[float, ...] = (1, 2, 5) if decades > 0.8 else (1, 1.5, 2, 3, 4, 5, 7)
    every = 1
    if decades >= 2.5:
        steps, every = (1,), max(1, round(decades / 5))
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    values = [s * 10.0**p for p in powers if p % every == 0 for s in steps]
    return Axis(low, high, True, tuple((v, _plain(v)) for v in values if low <= v <= high))


def _plain(value: float) -> str:
    """Return a number without zeros at its end."""
    return by_power(value) if value and not 1e-3 <= abs(value) < 1e6 else f"{value:,.6g}"


def _step(rough: float) -> float:
    """Return the step of 1, 2, 5 times a power of ten that is nearest."""
    power = 10.0 ** floor(log10(rough))
    return min((s * power for s in (1, 2, 5, 10)), key=lambda step: abs(log10(step / rough)))


def _label(value: float, step: float) -> str:
    power = floor(log10(step) + 1e-9)
    if value and not -5 < power < 7:
        exponent = floor(log10(abs(value)) + 1e-9)
        return by_power(value, 1 + max(0, exponent - power))
    text = f"{value:,.{max(0, -power)}f}"
    return text.replace("-", MINUS) if float(text.replace(",", "")) else "0"


def thinned(x: Array, y: Array, points: int = POINTS) -> Array:
    """Return the numbers of the points that a screen shows: ends and extremes of each column."""
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


class Chart:
    """One chart: axes, then what is drawn on them, then `figure`."""

    def __init__(
        self,
        title: str,
        x: Axis,
        y: Axis,
        *,
        below: str = "",
        note: str = "",
        left: float = LEFT,
    ) -> None:
        self.title, self.x, self.y, self.below, self.note = title, x, y, below, note
        self.left = left
        self._parts: list[Markup] = []
        self._front: list[Markup] = []
        self._legend: list[tuple[str, str]] = []
        self._words: list[str] = []

    def line(
        self, x: Array, y: Array, color: int = 1, name: str = "", *, dots: bool = False
    ) -> None:
        """Draw a curve; it is broken where y is not finite, and has `dots` if there are few."""
        kept = thinned(np.asarray(x), np.asarray(y))
        if not len(kept):
            return
        gaps = np.zeros(len(kept), bool)
        if len(kept) == np.isfinite(y).sum():
            gaps[1:] = np.diff(kept) > 1
        xs, ys = self._places(np.asarray(x)[kept], np.asarray(y)[kept])
        moves = "".join(
            f"{'M' if k == 0 or gap else 'L'}{a:.1f} {b:.1f}"
            for k, (a, b, gap) in enumerate(zip(xs, ys, gaps, strict=True))
        )
        self._parts.append(tag("path", d=moves, class_=f"line c{color}"))
        if dots or len(kept) == 1:
            places = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(xs, ys, strict=True))
            self._parts.append(tag("path", d=places, class_=f"dots c{color}"))
        self._name(name, f"line c{color}")
        values = np.asarray(y)[kept]
        self._words.append(
            f"{name or self.title}: from {number(values[0], 3)} to {number(values[-1], 3)}, "
            f"lowest {number(values.min(), 3)}, highest {number(values.max(), 3)}"
        )

    def points(self, x: Array, y: Array, color: int = 1, name: str = "") -> None:
        """Draw a cloud of points."""
        xs, ys = self._places(x, y)
        places = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(xs, ys, strict=True))
        size = " many" if len(xs) > 400 else " few" if len(xs) <= 100 else ""
        self._parts.append(tag("path", d=places, class_=f"cloud{size} c{color}"))
        self._name(name, f"dots c{color}")

    def rule(self, value: float, name: str = "") -> None:
        """Draw a dotted line at a value of y, if it lies within the axis."""
        if np.isfinite(value) and self.y.low <= value <= self.y.high:
            _, (y,) = self._places([self.x.low], [value])
            self._parts.append(tag("path", d=f"M{self.left} {y:.1f}H{RIGHT}", class_="rule"))
            if name:
                self._name(f"{name} {_plain(value)}", "rule")
                self._words.append(f"{name} at {_plain(value)}")

    def band(self, low: float, high: float, name: str) -> None:
        """Shade the values of y between two."""
        _, (bottom, top) = self._places([self.x.low] * 2, [low, high])
        shape = tag("rect", x=self.left, y=f"{top:.1f}", width=RIGHT - self.left,
                    height=f"{max(0.0, bottom - top):.1f}", class_="band")  # fmt: skip
        self._parts.insert(0, shape)
        self._name(name, "band")

    def mark(self, value: float, name: str = "") -> None:
        """Draw an upright line at a value of x; its name is in the legend, beside no curve."""
        (x,), _ = self._places([value], [self.y.low])
        self._parts.append(tag("path", d=f"M{x:.1f} {TOP}V{BOTTOM}", class_="rule"))
        if name:
            self._name(name, "rule")
            self._words.append(name)

    def diagonal(self, low: float, high: float) -> None:
        """Draw the line of equal x and y."""
        xs, ys = self._places([low, high], [low, high])
        moves = f"M{xs[0]:.1f} {ys[0]:.1f}L{xs[1]:.1f} {ys[1]:.1f}"
        self._parts.append(tag("path", d=moves, class_="rule"))

    def bars(self, edges: Array, counts: Array, color: int = 1) -> None:
        """Draw a histogram."""
        xs, _ = self._places(edges, np.full(len(edges), self.y.low))
        _, tops = self._places(np.full(len(counts), self.x.low), counts)
        shapes = [
            tag("rect", x=f"{a:.1f}", y=f"{top:.1f}", width=f"{max(0.5, b - a - 0.8):.1f}",
                height=f"{max(0.0, BOTTOM - top):.1f}", class_=f"bar f{color}")
            for a, b, top in zip(xs[:-1], xs[1:], tops, strict=True)
            if top < BOTTOM
        ]  # fmt: skip
        self._parts += shapes

    def spans(self, x: Array, low: Array, high: Array, color: int = 1) -> None:
        """Draw an upright line from `low` to `high` at each x."""
        xs, lows = self._places(x, low)
        _, highs = self._places(x, high)
        moves = "".join(
            f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in zip(xs, lows, highs, strict=True)
        )
        self._parts.append(tag("path", d=moves, class_=f"span c{color}"))

    def cells(self, x: Array, levels: Array) -> None:
        """Draw a heat map: rows of levels from 0 (blank) to LEVELS, between the edges `x`."""
        xs, _ = self._places(x, np.full(len(x), self.y.low))
        tall = (BOTTOM - TOP) / len(levels)
        for row, line in enumerate(levels):
            top = BOTTOM - (row + 1) * tall
            ends = np.flatnonzero(np.diff(line)) + 1  # runs of equal shade are one rectangle
            for start, stop in zip([0, *ends], [*ends, len(line)], strict=True):
                if line[start]:
                    self._parts.append(
                        tag("rect", x=f"{xs[start]:.1f}", y=f"{top + 0.5:.1f}",
                            width=f"{xs[stop] - xs[start]:.1f}", height=f"{tall - 1:.1f}",
                            class_=f"h{line[start]}")
                    )  # fmt: skip

    def levels(self, names: Sequence[str], values: Array) -> None:
        """Draw a dot for each name, from the top; x is the axis of the values."""
        tall = (BOTTOM - TOP) / len(names)
        xs, _ = self._places(values, np.full(len(names), self.y.low))
        for k, (name, x) in enumerate(zip(names, xs, strict=True)):
            y = f"{TOP + (k + 0.5) * tall:.1f}"
            self._parts.append(tag("path", d=f"M{self.left} {y}H{RIGHT}", class_="grid"))
            self._parts.append(tag("path", d=f"M{x:.1f} {y}h0", class_="dots c1"))
            place = f"{TOP + (k + 0.5) * tall + 4:.1f}"
            label = tag("text", shortened(name, 14), x=self.left - 6, y=place, text_anchor="end")
            self._front.append(label)
            self._words.append(f"{name}: {_plain(float(values[k]))}")

    def say(self, text: str) -> None:
        """Add to the description that readers without the picture get."""
        self._words.append(text)

    def legend(self, name: str, look: str) -> None:
        """Add a line to the legend."""
        self._name(name, look)

    def figure(self) -> Markup:
        """Return the chart with its title and legend."""
        description = ". ".join([self.title, *self._words])
        picture = tag(
            "svg",
            tag("g", *self._grid(), class_="axes"),
            *self._parts,
            *self._front,
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            role="img",
            aria_label=shortened(description, 1000),
        )
        alone = [look for _, look in self._legend] == ["line c1"]
        keys = [tag("li", swatch(look), name) for name, look in self._legend if not alone]
        note = tag("p", self.note, class_="note") if self.note else ""
        legend = tag("ul", *keys, class_="legend") if keys else ""
        return tag("figure", tag("figcaption", self.title), picture, legend, note)

    def _places(
        self, x: Array | Sequence[float], y: Array | Sequence[float]
    ) -> tuple[Array, Array]:
        return (
            self.left + (RIGHT - self.left) * self.x.share(x),
            BOTTOM - (BOTTOM - TOP) * self.y.share(y),
        )

    def _name(self, name: str, look: str) -> None:
        if name and (name, look) not in self._legend:
            self._legend.append((shortened(name), look))

    def _grid(self) -> list[Markup]:
        shapes = []
        _, ys = self._places([self.x.low], [value for value, _ in self.y.ticks])
        for y, (_, text) in zip(ys, self.y.ticks, strict=True):
            shapes.append(tag("path", d=f"M{self.left} {y:.1f}H{RIGHT}", class_="grid"))
            label = tag(
                "text", shortened(text, 9), x=self.left - 6, y=f"{y + 4:.1f}", text_anchor="end"
            )
            shapes.append(label)
        shapes.append(tag("path", d=f"M{self.left} {BOTTOM}H{RIGHT}", class_="base"))
        xs, _ = self._places([value for value, _ in self.x.ticks], [self.y.low])
        for x, (_, text) in zip(xs, self.x.ticks, strict=True):
            anchor = "end" if x > RIGHT - 14 else "middle"
            shapes.append(tag("path", d=f"M{x:.1f} {BOTTOM}v4", class_="base"))
            shapes.append(tag("text", text, x=f"{x:.1f}", y=BOTTOM + 17, text_anchor=anchor))
        if self.below:
            middle = (self.left + RIGHT) / 2
            shapes.append(
                tag("text", self.below, x=middle, y=HEIGHT - 3, text_anchor="middle", class_="unit")
            )
        return shapes


def swatch(look: str) -> Markup:
    """Return the sign of a line of a legend."""
    shape = {
        "rule": tag("path", d="M1 6H21", class_="rule"),
        "band": tag("rect", x=1, y=2, width=20, height=8, class_="band"),
    }.get(look)
    if shape is None and look.startswith("dots"):
        shape = tag("path", d="M11 6h0", class_=look)
    elif shape is None and look.startswith("h"):
        shape = tag("rect", x=1, y=1, width=20, height=10, class_=look)
    elif shape is None:
        shape = tag("path", d="M1 6H21", class_=look)
    return tag("svg", shape, viewBox="0 0 22 12", width=22, height=12, aria_hidden="true")


def strip(value: float, error: float, highest: float, look: str = "f1") -> Markup:
    """Return a bar from 0 to a value with its spread, as wide as a cell of a table allows."""
    width = 120.0
    scale = width / highest if highest > 0 else 0.0
    end = max(0.0, min(width, value * scale))
    low, high = ((min(width, max(0.0, (value + s * error) * scale))) for s in (-1, 1))
    return tag(
        "svg",
        tag("rect", x=0, y=3, width=f"{end:.1f}", height=8, class_=f"bar {look}"),
        tag("path", d=f"M{low:.1f} 7H{high:.1f}", class_="whisker"),
        viewBox=f"0 0 {width:.0f} 14",
        class_="strip",
        aria_hidden="true",
    )


def grid(*figures: Markup | None) -> Markup:
    """Return figures side by side, as many as fit."""
    return tag("div", joined(*(figure for figure in figures if figure)), class_="charts")
