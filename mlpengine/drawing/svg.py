"""Charts as inline SVG, in the colors of the page.

A chart is 360 units wide, so that its text is as large as the page's text on a phone.  Shapes have
classes such as ``c1``; the style sheet sets their colors on light and dark screens and in print.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mlpengine.core.spec import Array

from .chart_types import (
    NAME_LENGTH,
    Bars,
    Chart,
    Diagonal,
    HorizontalLine,
    LegendEntry,
    Line,
    Mark,
    Points,
    Shape,
    Spans,
    thinned,
)
from .markup import Markup, joined, shortened, tag

WIDTH, HEIGHT = 360, 216
RIGHT, TOP, BOTTOM = 350, 10, 180
LEFT, NAMED = 52, 116
"""Minimum and maximum x of the left end of the axes; longer labels need more space."""

CHARACTER = 7.5
"""Width of a digit beside an axis, in the widest usual font."""


def figure(chart: Chart) -> Markup:
    """Return a chart with its title, legend and note."""
    frame = _Frame(chart)
    picture = tag(
        "svg",
        tag("g", *frame.grid(), class_="axes"),
        *map(frame.shape, chart.shapes),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=shortened(chart.description, 1000),
    )
    keys = [tag("li", _swatch(key), key.name) for key in chart.legend]
    legend = tag("ul", *keys, class_="legend") if keys else ""
    note = tag("p", chart.note, class_="note") if chart.note else ""
    return tag("figure", tag("figcaption", chart.title), picture, legend, note)


def strip(value: float, error: float, highest: float, look: str = "f1") -> Markup:
    """Return a small bar from 0 to a value, with an error bar, for a cell of a table."""
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


def grid(charts: Sequence[Chart]) -> Markup:
    """Return charts side by side, as many as the page's width allows."""
    return tag("div", joined(map(figure, charts)), class_="charts")


class _Frame:
    """The area of a chart, and the elements that are drawn there."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        longest = max((len(text) for _, text in chart.y.ticks), default=0)
        self.left = min(NAMED, max(LEFT, round(9 + CHARACTER * longest)))

    def x(self, values: Array | Sequence[float] | float) -> Array:
        return self.left + (RIGHT - self.left) * self.chart.x.share(values)

    def y(self, values: Array | Sequence[float] | float) -> Array:
        return BOTTOM - (BOTTOM - TOP) * self.chart.y.share(values)

    def grid(self) -> list[Markup]:
        shapes, (x, y) = [], (self.chart.x, self.chart.y)
        for place, (_, text) in zip(self.y([v for v, _ in y.ticks]), y.ticks, strict=True):
            shapes.append(tag("path", d=f"M{self.left} {place:.1f}H{RIGHT}", class_="grid"))
            label = tag("text", shortened(text, NAME_LENGTH), x=self.left - 6,
                        y=f"{place + 4:.1f}", text_anchor="end")  # fmt: skip
            shapes.append(label)
        shapes.append(tag("path", d=f"M{self.left} {BOTTOM}H{RIGHT}", class_="base"))
        places = self.x([v for v, _ in x.ticks]).tolist()
        for place, text, middle in _apart(places, [text for _, text in x.ticks]):
            shapes.append(tag("path", d=f"M{place:.1f} {BOTTOM}v4", class_="base"))
            shapes.append(tag("text", text, x=f"{middle:.1f}", y=BOTTOM + 17, text_anchor="middle"))
        if self.chart.below:
            middle = (self.left + RIGHT) / 2
            shapes.append(
                tag("text", self.chart.below, x=middle, y=HEIGHT - 3, text_anchor="middle",
                    class_="unit")
            )  # fmt: skip
        return shapes

    def shape(self, shape: Shape) -> Markup:
        match shape:
            case Line():
                return self._line(shape)
            case Points():
                count = len(shape.x)
                size = " many" if count > 400 else " few" if count <= 100 else ""
                return self._dots(shape.x, shape.y, f"cloud{size} c{shape.color}")
            case Bars():
                return self._bars(shape)
            case Spans():
                places = zip(self.x(shape.x), self.y(shape.low), self.y(shape.high), strict=True)
                moves = "".join(f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in places)
                return tag("path", d=moves, class_="span c1")
            case HorizontalLine():
                moves = f"M{self.left} {self.y(shape.value):.1f}H{RIGHT}"
                return tag("path", d=moves, class_="rule") if self.chart.shows(shape) else joined()
            case Mark():
                return tag("path", d=f"M{self.x(shape.value):.1f} {TOP}V{BOTTOM}", class_="rule")
            case Diagonal():
                ends = [self.chart.x.low, self.chart.x.high]
                (a, c), (b, d) = self.x(ends), self.y(ends)
                return tag("path", d=f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}", class_="rule")

    def _line(self, line: Line) -> Markup:
        kept = thinned(line.y)
        if not len(kept):
            return joined()
        gaps = np.zeros(len(kept), bool)
        if len(kept) == np.isfinite(line.y).sum():
            gaps[1:] = np.diff(kept) > 1
        x, y = line.x[kept], line.y[kept]
        moves = "".join(
            f"{'M' if k == 0 or gap else 'L'}{a:.1f} {b:.1f}"
            for k, (a, b, gap) in enumerate(zip(self.x(x), self.y(y), gaps, strict=True))
        )
        path = tag("path", d=moves, class_=f"line c{line.color}")
        dotted = line.dots or len(kept) == 1
        return joined(path, self._dots(x, y, f"dots c{line.color}") if dotted else None)

    def _dots(self, x: Array, y: Array, look: str) -> Markup:
        places = zip(self.x(x), self.y(y), strict=True)
        return tag("path", d="".join(f"M{a:.1f} {b:.1f}h0" for a, b in places), class_=look)

    def _bars(self, bars: Bars) -> Markup:
        ends = self.x(bars.edges)
        return joined(
            tag("rect", x=f"{a:.1f}", y=f"{top:.1f}", width=f"{max(0.5, b - a - 0.8):.1f}",
                height=f"{max(0.0, BOTTOM - top):.1f}", class_="bar f1")
            for a, b, top in zip(ends[:-1], ends[1:], self.y(bars.counts), strict=True)
            if top < BOTTOM
        )  # fmt: skip


def _apart(places: Sequence[float], texts: Sequence[str]) -> list[tuple[float, str, float]]:
    """Return every k-th tick, for the smallest k at which the labels do not overlap.

    A tick is (position, label, middle of the label).  A tick at zero is always kept.
    """
    middles = [
        min(x, WIDTH - CHARACTER * len(one) / 2) for x, one in zip(places, texts, strict=True)
    ]
    ticks = [*zip(places, texts, middles, strict=True)]
    zero = texts.index("0") if "0" in texts else 0
    for every in range(1, len(ticks)):
        kept = ticks[zero % every :: every]
        if all(
            right - left >= CHARACTER * (len(one) + len(other) + 1) / 2
            for (_, one, left), (_, other, right) in pairwise(kept)
        ):
            return kept
    return ticks[zero : zero + 1]


def _swatch(key: LegendEntry) -> Markup:
    match key.kind:
        case "rule":
            shape = tag("path", d="M1 6H21", class_="rule")
        case "dots":
            shape = tag("path", d="M11 6h0", class_=f"dots c{key.number}")
        case _:
            shape = tag("path", d="M1 6H21", class_=f"line c{key.number}")
    return tag("svg", shape, viewBox="0 0 22 12", width=22, height=12, aria_hidden="true")
