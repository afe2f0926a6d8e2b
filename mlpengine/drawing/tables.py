"""Tables of pages and cells."""

from collections.abc import Iterable, Sequence

from .markup import Content, Markup, tag


def scrolling_table(
    head: Sequence[str],
    lines: Iterable[Sequence[Content]],
    title: str,
    *,
    words: int = 1,
    named: bool = True,
) -> Markup:
    """Return a table that scrolls in its own box; columns after the first `words` are numbers.

    If `named`, its title is shown.  Screen readers always read the title.
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
