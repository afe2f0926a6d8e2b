"""Tables as people have them, and what reading and profiling say about each."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Odd(NamedTuple):
    """A file, and what must be found out about it.

    Attributes:
        content: of the file.
        reading: the options of `CsvDialect` that `detect` finds.
        kinds: of columns.
        said: texts in the notes of `detect` and the warnings of `profile`.
        refused: text of the error of reading or of the check of the target.
        row: a row of Python objects that the trained model predicts; tables with one are run from
            `init` to `predict`.
    """

    content: bytes
    reading: dict[str, Any] = {}  # noqa: RUF012
    kinds: dict[str, str] = {}  # noqa: RUF012
    said: tuple[str, ...] = ()
    refused: str = ""
    row: dict[str, Any] | None = None


def lines(
    values: Callable[[int], str], header: str = "a,odd,y", encoding: str = "utf-8", end: str = "\n"
) -> bytes:
    """Return a header and 40 lines."""
    text = end.join([header, *(values(i) for i in range(40))]) + end
    return text.encode(encoding)


def number(i: int, mark: str = ".") -> str:
    """Return a number between 0 and 10 with two decimals, different for each row."""
    return f"{(i * 37 % 101) / 10.1:.2f}".replace(".", mark)


def plain(odd: Callable[[int], str]) -> bytes:
    """Return a table whose second column is the odd one."""
    return lines(lambda i: f"{number(i)},{odd(i)},{number(3 * i)}")


TOWNS = ("Köln", "Genève", "Łódź")
NUMBER, WHOLE, DATE, CATEGORY = ({"odd": k} for k in ("number", "integer", "date", "category"))
ODD = {
    "decimal commas and points between thousands": Odd(
        lines(
            lambda i: f"{number(i, ',')};{1 + i}.{i * 7 % 900 + 100},5;{number(3 * i, ',')}",
            "a;odd;y",
        ),
        {"delimiter": ";", "decimal": ",", "thousands": "."},
        NUMBER,
        row={"a": 1.5, "odd": "2.500,5"},
    ),
    "points between thousands in one column, decimal commas in another": Odd(
        lines(lambda i: f"{number(i, ',')};{1 + i}.{i * 7 % 900 + 100};{9 * i}", "a;odd;y"),
        {"delimiter": ";", "decimal": ",", "thousands": "."},
        WHOLE,
        ("column 'odd': 1.234 is read as 1234",),
        row={"a": 1.5, "odd": "2.500"},
    ),
    "points that may mean either": Odd(
        lines(lambda i: f"{i};{1 + i}.{i * 7 % 900 + 100};{9 * i}", "a;odd;y"),
        {"delimiter": ";"},
        NUMBER,
        ("column 'odd': points are decimal marks; if 1.234 means 1234",),
    ),
    "commas between thousands": Odd(
        plain(lambda i: f'"{1 + i},{i * 7 % 900 + 100}.25"'),
        {"decimal": ".", "thousands": ","},
        NUMBER,
    ),
    "commas that may mean either": Odd(
        plain(lambda i: f'"{1 + i},{i * 7 % 900 + 100}"'),
        {"decimal": "."},
        WHOLE,
        ("read as 1,234 = 1234 (else set data.decimal: ',')",),
    ),
    "blanks between thousands": Odd(
        plain(lambda i: f"{1 + i} {i * 7 % 900 + 100}"), {"decimal": ",", "thousands": " "}, WHOLE
    ),
    "tabs, and commas that other columns make decimal marks": Odd(
        lines(lambda i: f"{number(i, ',')}\t{1 + i},{i * 7 % 900 + 100}\t{3 * i}", "a\todd\ty"),
        {"delimiter": "\t", "decimal": ","},
        NUMBER,
    ),
    "Windows text": Odd(
        lines(lambda i: f"{number(i)},{TOWNS[i % 2]},{number(3 * i)}", encoding="cp1252"),
        {"text_encoding": "cp1252"},
        CATEGORY,
        ("the text is not UTF-8; it is read as cp1252",),
        row={"a": 1.5, "odd": "Köln"},
    ),
    "UTF-16 from a spreadsheet": Odd(
        lines(
            lambda i: f"{number(i)}\t{TOWNS[i % 3]}\t{number(3 * i)}",
            "a\todd\ty",
            encoding="utf-16",
        ),
        {"text_encoding": "utf-16", "delimiter": "\t"},
        CATEGORY,
    ),
    "two Unicode forms of one text": Odd(
        plain(lambda i: ("caf\u00e9", "cafe\u0301", "bar")[i % 3]),
        {},
        CATEGORY,
        ("column 'odd': 'cafe\\u0301', 'caf\\xe9' are taken for different texts",),
    ),
    "a line for spreadsheets": Odd(
        b"sep=;\n" + lines(lambda i: f"{i};{i % 3};{i}", "a;odd;y"),
        refused="line 1: names the delimiter for spreadsheets, not the columns; delete",
    ),
    "a title": Odd(
        b"Sales of the year\n" + lines(lambda i: f"{i},{i % 3},{i}"),
        refused="line 2: 1 cell is needed, as in the header (3 found); delete lines above the",
    ),
    "two formats of dates": Odd(
        lines(
            lambda i: f"{i},{i % 28 + 1}/{i % 12 + 1}/2023,{i % 12 + 1}/{i % 28 + 1}/2023,{i % 9}",
            "a,odd,to,y",
        ),
        {"date_format": {"odd": "dd/mm/yyyy", "to": "mm/dd/yyyy"}},
        {"odd": "date", "to": "date"},
        ("'odd': dates are read as dd/mm/yyyy", "'to': dates are read as mm/dd/yyyy"),
        row={"a": 1.5, "odd": "31/12/2024", "to": "12/31/2024"},
    ),
    "days or months first": Odd(
        plain(lambda i: f"{i % 12 + 1:02}/{i % 11 + 1:02}/20{i + 10}"),
        said=("can have the day or the month first", "set data.date_format to dd/mm/yyyy or"),
    ),
    "an index without a name": Odd(
        lines(lambda i: f"{i},{number(i)},{i % 3},{number(3 * i)}", ",a,odd,y"),
        {},
        {"a": "number", "odd": "integer"},
        ("the first column, row numbers without a name, is left out",),
    ),
    "a comma at the end of each line": Odd(
        lines(lambda i: f"{number(i)},{i % 3},{number(3 * i)},", "a,odd,y,"),
        {},
        {"a": "number", "odd": "integer"},
        ("the last column has no name and no values; it is left out",),
    ),
    "rows without a target": Odd(
        lines(lambda i: f"{number(i)},{i % 3},{number(3 * i) if i % 8 else ''}"),
        said=("target: missing in 5 rows",),
        row={"a": 1.5, "odd": 1},
    ),
    "yes in four ways": Odd(
        plain(lambda i: ("Yes", "yes", "No", "no")[i % 4]),
        {},
        CATEGORY,
        ("column 'odd': 'No', 'no', 'Yes', 'yes' are taken for different texts",),
    ),
    "dashes for gaps": Odd(
        plain(lambda i: "-" if i in (3, 17) else number(2 * i)),
        {"na_values": ["-"]},
        NUMBER,
        ("column 'odd': 2 values '-' read as missing",),
        row={"a": 1.5, "odd": "-"},
    ),
    "a database's gaps among dates": Odd(
        plain(lambda i: "\\N" if i == 4 else f"2023-{i % 12 + 1:02}-{i % 28 + 1:02}"),
        {"na_values": ["\\N"]},
        DATE,
    ),
}
