"""Tables as people have them, and what the commands say about each."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Odd:
    """A file, and what must happen to it.

    Attributes:
        content: of the file.
        config: lines that `init` writes.
        init, check, train, predict: texts in the output of each command.
        kinds: of columns, as `check` prints them.
        target: to predict.
        refused: the error of `init`, where it writes no config.
        row: a row as Python holds it, for the loaded model.
    """

    content: bytes
    config: tuple[str, ...] = ()
    init: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    train: tuple[str, ...] = ()
    predict: tuple[str, ...] = ()
    kinds: dict[str, str] = field(default_factory=dict)
    target: str = "y"
    refused: str = ""
    row: dict[str, object] = field(default_factory=lambda: {"a": 1.5})


def lines(
    cells: Callable[[int], str],
    header: str = "a,odd,y",
    rows: int = 40,
    encoding: str = "utf-8",
    end: str = "\n",
) -> bytes:
    """Return a header and a line for each row number."""
    text = end.join([header, *(cells(i) for i in range(rows))]) + end
    return text.encode(encoding)


def number(i: int, mark: str = ".") -> str:
    """Return a number between 0 and 10 with two decimals, different for each row."""
    return f"{(i * 37 % 101) / 10.1:.2f}".replace(".", mark)


def plain(odd: Callable[[int], str]) -> bytes:
    """Return a table whose second column is the odd one."""
    return lines(lambda i: f"{number(i)},{odd(i)},{number(3 * i)}")


MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
TOWNS = ("Köln", "Genève", "Łódź")

ODD = {
    "decimal commas": Odd(
        lines(lambda i: f"{number(i, ',')};{number(i + 5, ',')};{number(3 * i, ',')}", "a;odd;y"),
        config=('delimiter: ";"', 'decimal: ","'),
        kinds={"a": "number", "odd": "number"},
        row={"a": "1,5", "odd": 2.5},
    ),
    "decimal commas and points between thousands": Odd(
        lines(
            lambda i: f"{number(i, ',')};{1 + i}.{i * 7 % 900 + 100},5;{number(3 * i, ',')}",
            "a;odd;y",
        ),
        config=('delimiter: ";"', 'decimal: ","', 'thousands: "."'),
        kinds={"odd": "number"},
        row={"a": 1.5, "odd": "2.500,5"},
    ),
    "commas between thousands": Odd(
        plain(lambda i: f'"{1 + i},{i * 7 % 900 + 100}.25"'),
        config=('decimal: "."', 'thousands: ","'),
        kinds={"odd": "number"},
        row={"a": 1.5, "odd": "12,345.25"},
    ),
    "commas that may mean either": Odd(
        plain(lambda i: f'"{1 + i},{i * 7 % 900 + 100}"'),
        config=('decimal: "."',),
        init=("can mean", "read as 1,234 = 1234 (else set data.decimal: ',')"),
        kinds={"odd": "integer"},
        row={"a": 1.5, "odd": 2500},
    ),
    "blanks between thousands": Odd(
        plain(lambda i: f"{1 + i} {i * 7 % 900 + 100}"),
        config=('thousands: " "',),
        kinds={"odd": "integer"},
        row={"a": 1.5, "odd": "12 345"},
    ),
    "apostrophes between thousands": Odd(
        plain(lambda i: f"{1 + i}'{i * 7 % 900 + 100}"),
        config=('thousands: "\'"',),
        kinds={"odd": "integer"},
        row={"a": 1.5, "odd": "12'345"},
    ),
    "bars": Odd(
        lines(lambda i: f"{number(i)}|{i % 3}|{number(3 * i)}", "a|odd|y"),
        config=('delimiter: "|"',),
        kinds={"a": "number", "odd": "integer"},
        row={"a": 1.5, "odd": 1},
    ),
    "tabs": Odd(
        lines(lambda i: f"{number(i)}\t{i % 3}\t{number(3 * i)}", "a\todd\ty"),
        config=('delimiter: "\\t"',),
        kinds={"odd": "integer"},
        row={"a": 1.5, "odd": 1},
    ),
    "Windows text": Odd(
        lines(lambda i: f"{number(i)},{TOWNS[i % 2]},{number(3 * i)}", encoding="cp1252"),
        config=("text_encoding: cp1252",),
        init=("the text is not UTF-8 and read as cp1252",),
        check=("Köln (20)", "Genève (20)"),
        kinds={"odd": "category"},
        row={"a": 1.5, "odd": "Köln"},
    ),
    "UTF-16 from a spreadsheet": Odd(
        lines(
            lambda i: f"{number(i)}\t{TOWNS[i % 3]}\t{number(3 * i)}",
            "a\todd\ty",
            encoding="utf-16",
        ),
        config=("text_encoding: utf-16", 'delimiter: "\\t"'),
        check=("Łódź (13)",),
        kinds={"odd": "category"},
        row={"a": 1.5, "odd": "Łódź"},
    ),
    "UTF-16 without a byte order mark": Odd(
        lines(lambda i: f"{number(i)},{TOWNS[i % 2]},{number(3 * i)}", encoding="utf-16-le"),
        config=("text_encoding: utf-16-le",),
        check=("Köln (20)",),
        kinds={"odd": "category"},
        row={"a": 1.5, "odd": "Köln"},
    ),
    "UTF-16 of large ends without a byte order mark": Odd(
        lines(lambda i: f"{number(i)},{i % 3},{number(3 * i)}", encoding="utf-16-be"),
        config=("text_encoding: utf-16-be",),
        kinds={"odd": "integer"},
        row={"a": 1.5, "odd": 1},
    ),
    "two Unicode forms of one text": Odd(
        plain(lambda i: ("caf\u00e9", "cafe\u0301", "bar")[i % 3]),
        init=("column 'odd': 'cafe\\u0301', 'caf\\xe9' are taken for different texts",),
        kinds={"odd": "category"},
        row={"a": 1.5, "odd": "bar"},
    ),
    "whole numbers that float64 cannot hold": Odd(
        plain(lambda i: str(2**53 + 1 + 7 * i)),
        config=("- odd  # 40 different texts, almost one per row",),
        row={"a": 1.5},
    ),
    "a line for spreadsheets": Odd(
        b"sep=;\n" + lines(lambda i: f"{i};{i % 3};{i}", "a;odd;y"),
        refused="odd.csv: line 1: names the delimiter for spreadsheets, not the columns; delete",
    ),
    "a title": Odd(
        b"Sales of the year\n" + lines(lambda i: f"{i},{i % 3},{i}"),
        refused="line 2: 1 cell is needed, as in the header (3 found); delete lines above the",
    ),
    "a date as the target": Odd(
        lines(lambda i: f"{number(i)},{i % 3},2024-01-{i % 28 + 1:02}"),
        refused="must be a number ('2024-01-01T00:00:00'); write a date as days or seconds",
    ),
    "a byte order mark and lines that end in CR LF": Odd(
        b"\xef\xbb\xbf" + lines(lambda i: f"{number(i)},{i % 3},{number(3 * i)}", end="\r\n"),
        kinds={"a": "number", "odd": "integer"},
        row={"a": 1.5, "odd": 1},
    ),
    "days with points": Odd(
        plain(lambda i: f"{i % 28 + 1:02}.{i % 12 + 1:02}.2023"),
        kinds={"odd": "date"},
        row={"a": 1.5, "odd": "05.06.2024"},
    ),
    "days with points and times": Odd(
        plain(lambda i: f"{i % 28 + 1}.{i % 12 + 1}.2023 {i % 24}:15"),
        kinds={"odd": "date"},
        row={"a": 1.5, "odd": "5.6.2024 7:30"},
    ),
    "days before months": Odd(
        plain(lambda i: f"{i % 28 + 1:02}/{i % 12 + 1:02}/2023"),
        config=("date_format: dd/mm/yyyy",),
        init=("column 'odd': dates are read as dd/mm/yyyy",),
        kinds={"odd": "date"},
        row={"a": 1.5, "odd": "31/12/2024"},
    ),
    "years before months": Odd(
        plain(lambda i: f"2023/{i % 12 + 1:02}/{i % 28 + 1:02} {i % 24}:05"),
        config=('date_format: "yyyy/mm/dd HH:MM"',),
        init=("column 'odd': dates are read as yyyy/mm/dd HH:MM",),
        kinds={"odd": "date"},
        row={"a": 1.5, "odd": "2024/12/31 7:30"},
    ),
    "months before days": Odd(
        plain(lambda i: f"{i % 12 + 1}/{i % 28 + 1}/2023"),
        config=("date_format: mm/dd/yyyy",),
        kinds={"odd": "date"},
        row={"a": 1.5, "odd": "12/31/2024"},
    ),
    "months by their names": Odd(
        plain(lambda i: f"{i % 28 + 1:02}-{MONTHS[i % 12]}-{20 + i % 5}"),
        config=("date_format: dd-month-yy",),
        init=("column 'odd': dates are read as dd-month-yy",),
        kinds={"odd": "date"},
        row={"a": 1.5, "odd": "31-Dec-24"},
    ),
    "hours of half a day": Odd(
        plain(
            lambda i: f'"{i % 12 + 1:02}/{i % 28 + 1:02}/2023 {i % 12 + 1:02}:15:00 {"AP"[i % 2]}M"'
        ),
        config=('date_format: "mm/dd/yyyy HH:MM:SS AM"',),
        kinds={"odd": "date"},
        row={"a": 1.5, "odd": "12/31/2024 07:30:00 PM"},
    ),
    "two formats of dates": Odd(
        lines(
            lambda i: f"{i},{i % 28 + 1}/{i % 12 + 1}/2023,{i % 12 + 1}/{i % 28 + 1}/2023,{i % 9}",
            "a,odd,to,y",
        ),
        config=("date_format: {odd: dd/mm/yyyy, to: mm/dd/yyyy}",),
        init=("'odd': dates are read as dd/mm/yyyy", "'to': dates are read as mm/dd/yyyy"),
        kinds={"odd": "date", "to": "date"},
        row={"a": 1.5, "odd": "31/12/2024", "to": "12/31/2024"},
    ),
    "times of day": Odd(
        plain(lambda i: f"{i % 24}:{7 * i % 60:02}"),
        kinds={"odd": "date"},
        row={"a": 1.5, "odd": "17:05"},
    ),
    "years of two digits, any order": Odd(
        plain(lambda i: f"{i % 12 + 1:02}/{i % 11 + 1:02}/{i % 12 + 1:02}"),
        config=("- odd",),
        init=("can have the day or the month or the year first",),
        row={"a": 1.5},
    ),
    "days or months first": Odd(
        plain(lambda i: f"{i % 12 + 1:02}/{i % 11 + 1:02}/20{i + 10}"),
        config=("- odd",),
        init=("can have the day or the month first", "set data.date_format to dd/mm/yyyy or"),
        row={"a": 1.5},
    ),
    "codes with leading zeros": Odd(
        plain(lambda i: ("01067", "10115", "20095", "80331")[i % 4]),
        check=("01067 (10), 10115 (10)",),
        kinds={"odd": "category"},
        row={"a": 1.5, "odd": "01067"},
    ),
    "an index without a name": Odd(
        lines(lambda i: f"{i},{number(i)},{i % 3},{number(3 * i)}", ",a,odd,y"),
        init=("the first column has no name and numbers the rows; it is left out",),
        kinds={"a": "number", "odd": "integer"},
        row={"a": 1.5, "odd": 1},
    ),
    "a comma at the end of each line": Odd(
        lines(lambda i: f"{number(i)},{i % 3},{number(3 * i)},", "a,odd,y,"),
        init=("the last column has no name and no values; it is left out",),
        kinds={"a": "number", "odd": "integer"},
        row={"a": 1.5, "odd": 1},
    ),
    "rows without a target": Odd(
        lines(lambda i: f"{number(i)},{i % 3},{number(3 * i) if i % 8 else ''}"),
        init=("5 rows of 40 have no target and are left out",),
        check=("warning: target: missing in 5 rows; left out",),
        train=("5 rows of 40 left out: the target is missing",),
        row={"a": 1.5, "odd": 1},
    ),
    "texts that are all in few rows": Odd(
        plain(lambda i: f"place {i // 2}"),
        check=("column 'odd': none of its texts is in 3 training rows, so that all are one feat",),
        train=("column 'odd': none of its texts is in 3 training rows",),
        kinds={"odd": "category"},
        row={"a": 1.5, "odd": "place 3"},
    ),
    "yes in four spellings": Odd(
        plain(lambda i: ("Yes", "yes", "No", "no")[i % 4]),
        init=("column 'odd': 'No', 'no', 'Yes', 'yes' are taken for different texts",),
        check=("warning: column 'odd': 'No', 'no', 'Yes', 'yes' are taken for different texts",),
        kinds={"odd": "category"},
        row={"a": 1.5, "odd": "yes"},
    ),
    "dashes for gaps": Odd(
        plain(lambda i: "-" if i in (3, 17) else number(2 * i)),
        config=('na_values: ["-"]', "missing: indicator"),
        init=("column 'odd': 2 values '-' read as missing",),
        kinds={"odd": "number"},
        row={"a": 1.5, "odd": "-"},
    ),
    "n.a. for gaps among dates": Odd(
        plain(lambda i: "n.a." if i == 4 else f"2023-{i % 12 + 1:02}-{i % 28 + 1:02}"),
        config=("na_values: [n.a.]",),
        kinds={"odd": "date"},
        row={"a": 1.5, "odd": "n.a."},
    ),
    "a text among numbers": Odd(
        plain(lambda i: "abc" if i == 20 else number(2 * i)),
        config=("- odd  # numbers with a few texts among them",),
        row={"a": 1.5},
    ),
    "an infinity among numbers": Odd(
        plain(lambda i: "-inf" if i == 20 else number(2 * i)),
        config=("- odd  # -inf in line 22; correct the value",),
        init=("dropped: odd",),
        row={"a": 1.5},
    ),
    "a number that no statistics can hold": Odd(
        plain(lambda i: "1e300" if i == 20 else str(i % 7)),
        config=("- odd  # 1e+300 in line 22; correct the value",),
        row={"a": 1.5},
    ),
    "a text in the target": Odd(
        lines(lambda i: f"{number(i)},{i % 3},{'oops' if i == 25 else number(3 * i)}"),
        refused="line 27, column 'y': the target must be a number, as in most rows ('oops')",
    ),
    "a target of dashes and numbers": Odd(
        lines(lambda i: f"{number(i)},{i % 3},{'-' if i in (2, 9) else number(3 * i)}"),
        config=('na_values: ["-"]',),
        init=("2 rows of 40 have no target and are left out",),
        train=("2 rows of 40 left out: the target is missing",),
        row={"a": 1.5, "odd": 1},
    ),
    "a town that training never saw": Odd(
        lines(lambda i: f"{number(i)},{TOWNS[i % 2]},{number(3 * i)}"),
        predict=("column 'odd': 1 row with a text that has no feature of its own, such as 'Ulm'",),
        kinds={"odd": "category"},
        row={"a": 1.5, "odd": "Ulm"},
    ),
}
