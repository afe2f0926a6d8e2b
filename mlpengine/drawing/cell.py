"""HTML that a notebook shows, with a style of its own."""

from collections.abc import Sequence

from .chart_types import Chart
from .markup import Content, tag
from .style import CELL_CLASS, cell_style
from .svg import grid


def cell_html(*content: Content) -> str:
    """Return content as an element with its own style, for `_repr_html_`."""
    return tag("div", tag("style", cell_style()), *content, class_=CELL_CLASS)


class Cell:
    """HTML that a notebook shows; a terminal shows one line of text instead."""

    def __init__(self, text: str, html: str) -> None:
        self._text, self._html = text, html

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html


def page_cell(text: str, page: str) -> Cell:
    """Return a page in a frame; its style does not affect the notebook."""
    frame = tag("iframe", srcdoc=page, style="width: 100%; height: 800px; border: 0")
    return Cell(text, frame)


def chart_cell(text: str, charts: Sequence[Chart]) -> Cell:
    """Return charts as SVG, side by side."""
    return Cell(text, cell_html(grid(charts)))
