"""Messages count in good English, and near misses are offered, everywhere by the same helpers."""

import ast
import re
from pathlib import Path

import pytest

from mlpengine.core.wording import plural, printable, suggestion

ROOT = Path(__file__).parents[2]
NOUNS = (
    "cells|classes|columns|entries|epochs|features|files|layers|lines|numbers|outputs|parameters|"
    "rows|steps|texts|threads|units|values|weights"
)
PLURAL = re.compile(rf" (?:\w+ )?(?:{NOUNS})\b(?!/s)")  # a rate is 1 rows/s, too
UNCOUNTED = re.compile(r"\b(?:of|about|than|to) $")  # "1 of 1 rows" is English


def unhelped(source: str) -> list[str]:
    """Return f-strings in which a number that may be 1 stands before a plural noun."""
    wrong = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        parts = ["", *(p.value if isinstance(p, ast.Constant) else p for p in node.values), ""]
        for before, value, after in zip(parts, parts[1:], parts[2:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not PLURAL.match(str(after)):
                continue
            name = ast.unparse(value.value)
            text = isinstance(before, str) and UNCOUNTED.search(before)
            if not text and not name.isupper() and not is_text(value.value):
                wrong.append(f"{node.lineno}: {{{name}}}{after}")
    return wrong


def is_text(value: ast.expr) -> bool:
    """Whether an expression is a call that returns text, such as "".join or power."""
    return isinstance(value, ast.Call) and not ast.unparse(value.func).startswith(("len", "int"))


@pytest.mark.no_cover
@pytest.mark.parametrize("package", ["mlpengine", "cli"])
def test_no_message_says_1_rows(package):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in unhelped(path.read_text(encoding="utf-8"))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('f"{n} rows"', 1),
        ('f"{len(x):,} different texts"', 1),
        ('f"only {n} rows" f" and {m} columns"', 2),
        ("f\"{plural(n, 'row')}\"", 0),
        ('f"{k} of {n} rows"', 0),
        ('f"{MAX_ROWS} rows"', 0),
        ('f"{rate:,.0f} rows/s"', 0),
    ],
)
def test_the_search_finds_what_it_should(source, count):
    assert len(unhelped(source)) == count


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((1, "row"), "1 row"),
        ((0, "row"), "0 rows"),
        ((1234, "class", "classes"), "1,234 classes"),
        ((1, "class", "classes"), "1 class"),
    ],
)
def test_plural(args, text):
    assert plural(*args) == text


@pytest.mark.parametrize(
    ("wrong", "text"),
    [("Adam", " - did you mean 'adam'?"), ("PRICE", " - did you mean 'Price'?"), (3, "")],
)
def test_suggestion(wrong, text):
    assert suggestion(wrong, ["adam", "Price"]) == text


CONTROLS = ["a\x1b[31m", "a\nb", "\x9b2J", "\u202eabc", "\x7f", "caf\xe9 \u4e2d"]


@pytest.mark.parametrize("text", CONTROLS)
def test_control_characters_are_escaped_as_repr_writes_them(text):
    assert printable(text) == repr(text)[1:-1]


def test_bytes_of_a_path_that_are_no_characters_stay():
    assert printable("run\udcff\n") == "run\udcff\\n"
