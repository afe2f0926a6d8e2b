"""HTML pages, and the styles of pages and of elements in notebooks."""

from collections.abc import Sequence
from functools import cache
from itertools import cycle
from pathlib import Path

from .chart_types import DARK, DASHES, LIGHT, SHADES
from .markup import Content, Markup, tag

CELL_CLASS = "mlpengine"
"""HTML class of the elements in notebooks; the style applies only inside such elements."""

_LIGHT = """\
--ground: #ffffff; --panel: #f6f7f8; --ink: #1f242b; --soft: #59626d; --line: #dfe2e6;
--accent: #00629b; --good: #00694c; --bad: #a84300; --whisker: #1f242b;
"""
_DARK = """\
--ground: #16181d; --panel: #1e2127; --ink: #e6e6e6; --soft: #a3abb6; --line: #343943;
--accent: #6cc0f2; --good: #3dc79b; --bad: #f5a25d; --whisker: #ffffff;
"""
_PRINT = """\
--ground: #ffffff; --panel: #ffffff; --ink: #000000; --soft: #444444; --line: #cccccc;
--accent: #000000; --good: #000000; --bad: #000000; --whisker: #000000;
"""


@cache
def page_style() -> Markup:
    """Return the style of a page."""
    light, dark = _LIGHT + _colors(LIGHT), _DARK + _colors(DARK)
    return Markup(
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"{_shared()}{_text('page.css')}"
        f"@media print {{ :root {{ {_PRINT}{_colors(LIGHT)} }} }}\n"
    )


@cache
def cell_style() -> Markup:
    """Return the style inside elements of class `CELL_CLASS`.

    The colors follow the color scheme of the browser, or the theme of JupyterLab.  The selector
    names the class twice: this gives the style precedence over the notebook's rules for tables.
    """
    light, dark = _LIGHT + _colors(LIGHT), _DARK + _colors(DARK)
    return Markup(
        f".{CELL_CLASS} {{ {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ .{CELL_CLASS} {{ {dark} }} }}\n"
        f"[data-jp-theme-light=true] .{CELL_CLASS} {{ {light} }}\n"
        f"[data-jp-theme-light=false] .{CELL_CLASS} {{ {dark} }}\n"
        f".{CELL_CLASS}.{CELL_CLASS} {{\n{_text('cell.css')}{_shared()}}}\n"
    )


def _shared() -> str:
    """Return the rules of charts, tables and lists."""
    classes = "".join(
        f".c{k} {{ stroke: var(--c{k}); }} .f{k} {{ fill: var(--c{k}); }} "
        f".line.c{k} {{ stroke-dasharray: {' '.join(str(2 * n) for n in dashes) or 'none'}; }}\n"
        for k, dashes in zip(range(1, len(LIGHT) + 1), cycle(DASHES), strict=False)
    )
    shades = "".join(
        f"td.h{k} {{ background: color-mix(in srgb, var(--c1) {5 + 30 * k / SHADES:.0f}%, "
        "var(--ground)); }\n"
        for k in range(1, SHADES + 1)
    )
    return f"{_text('shared.css')}{classes}{shades}"


def _colors(values: Sequence[str]) -> str:
    return " ".join(f"--c{k}: {color};" for k, color in enumerate(values, start=1))


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def html_page(title: str, policy: str, styles: Markup, *body: Content) -> str:
    """Return an HTML document with its content security policy."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", styles),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', *body), lang='en')}\n"
