"""HTML and SVG by nested calls of `tag`; all text is escaped, except `Markup`."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from math import floor, isfinite, log10

from mlpengine.core.wording import printable

VOID = frozenset({"circle", "col", "input", "line", "link", "meta", "path", "polyline", "rect"})
"""Elements without content."""

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
"""Signs for an unknown value and before a negative value."""

_has_special = re.compile(r"""[&<>"']""").search
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Markup(str):
    """Text that is HTML or SVG already, and is not escaped."""

    __slots__ = ()


Content = str | int | float | None | Iterable["Content"]


def tag(name: str, /, *content: Content, **attributes: str | float | None) -> Markup:
    """Return an HTML element; `class_` sets its class, and attributes of None are left out."""
    texts = [_attribute(key, str(v)) for key, v in attributes.items() if v is not None]
    start = f"<{name}{''.join(texts)}"
    if name in VOID:
        return Markup(f"{start}/>" if name not in ("col", "input", "link", "meta") else f"{start}>")
    return Markup(f"{start}>{joined(*content)}</{name}>")


def joined(*content: Content) -> Markup:
    """Return nested content as markup."""
    return Markup("".join(map(_one, content)))


def _one(content: Content) -> str:
    if isinstance(content, Markup):
        return content
    if content is None:
        return ""
    if isinstance(content, str):
        return _safe(content)
    if isinstance(content, int | float):
        return number(content)
    return joined(*content)


def _safe(text: str) -> str:
    """Return text with escaped HTML and control characters; line ends are kept."""
    if text.isprintable() and not _has_special(text):
        return text
    return escape("\n".join(map(printable, text.split("\n"))), quote=True)


def _attribute(key: str, text: str) -> str:
    """Return an attribute; a `value` keeps its control characters, because scripts read it."""
    value = escape(text).replace("\r", "&#13;") if key == "value" else _safe(text)
    return f' {key.rstrip("_").replace("_", "-")}="{value}"'


def number(value: float | None, digits: int = 4) -> str:
    """Return a number as text with `digits` significant digits, such as 0.01234 or 1.234·10⁻⁷."""
    if value is None or value != value:
        return DASH
    if not isfinite(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        return _sign(f"{int(value):,}")
    size = log10(abs(value))
    if size >= 15 or size < -4:
        return by_power(value, digits - 1)
    places = max(0, digits - 1 - int(size // 1))
    return _sign(f"{value:,.{places}f}")


def by_power(value: float, digits: int = 2) -> str:
    """Return a number as text with at most `digits` digits and a power of ten, such as 1.2·10⁻⁷."""
    mantissa, power = f"{value:.{max(0, digits - 1)}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return _sign(f"{mantissa}·10{str(int(power)).translate(_SUPERSCRIPTS)}")


def score_text(value: float | None) -> str:
    """Return a metric as text: three decimals if below 10, else three significant digits."""
    if value is None or not isfinite(value):
        return number(value)
    return _sign(f"{round(value, 3) or 0.0:.3f}") if abs(value) < 10 else number(value, 3)


def with_error(value: float | None, error: float | None) -> str:
    """Return a value and its standard error as text, both rounded to two digits of the error."""
    if value is None or error is None or not isfinite(value) or not 0 < error < float("inf"):
        return number(value)
    rounded = float(f"{error:.1e}")
    places = max(0, 1 - floor(log10(rounded) + 1e-9))
    return _sign(f"{value:,.{places}f} ± {error:,.{places}f}") if places < 9 else number(value)


def shortened(text: object, length: int = 40) -> str:
    """Return a text, cut to at most `length` characters."""
    one = " ".join(str(text).split())
    return one if len(one) <= length else f"{one[: length - 1]}…"


def _sign(text: str) -> str:
    return text.replace("-", MINUS, 1) if text.startswith("-") else text


def scrolling_table(
    head: Sequence[str],
    lines: Iterable[Sequence[Content]],
    title: str,
    *,
    words: int = 1,
    named: bool = True,
) -> Markup:
    """Return a table that scrolls in its own box.

    The first `words` columns hold text, the others numbers.  Screen readers read the title; the
    title is visible only if `named`.
    """
    heads = [
        tag("th", text, scope="col", class_="n" if k >= words else None) if text else tag("td")
        for k, text in enumerate(head)
    ]
    rows = []
    for first, *cells in lines:
        shown = [
            cell
            if isinstance(cell, Markup) and cell.startswith("<td")
            else tag("td", cell, class_="n" if k >= words else None)
            for k, cell in enumerate(cells, start=1)
        ]
        rows.append(tag("tr", tag("th", first, scope="row"), *shown))
    caption = tag("caption", title) if named else ""
    body = tag("table", caption, tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    return scroll_box(body, title)


def scroll_box(body: Markup, title: str) -> Markup:
    """Return a table in a box that scrolls sideways."""
    return tag("div", body, class_="scroll", tabindex=0, role="region", aria_label=title)
