"""Numbers that are written with units, marks and decimal commas are named."""

import io

import pytest
from odd_tables import number, plain

from mlpengine.core.errors import DataError
from mlpengine.data.features import profile
from mlpengine.data.tables import read_table

MARKED = {
    "percent": (lambda i: f"{number(i)}%", "%"),
    "kilograms": (lambda i: f"{number(i)} kg", "kg"),
    "losses in parentheses": (lambda i: f"({number(i)})" if i % 2 else number(i), "("),
    "a minus after numbers": (lambda i: f"{number(i)}-" if i % 2 else number(i), "-"),
    "durations": (lambda i: f"{i} days 01:00:00.5" if i % 2 else f"{24 * i + 1}:00:00.5", ":"),
    "days": (lambda i: f"{i} days", "days"),
    "exponents of Fortran": (lambda i: f"1.{i:02}5D-03", "D"),
    "few long minus signs": (lambda i: f"\u2212{number(i)}" if i % 9 == 0 else number(i), "\u2212"),
    "litres with decimal commas": (lambda i: f'"{number(i, ",")} l"', " l"),
}


def profile_of(odd, target=False):
    """Return the profile of a table with an odd column, or the error of an odd target."""
    content = plain(odd).replace(b"odd,y", b"y,odd") if target else plain(odd)
    return profile(read_table(io.BytesIO(content)), "y")


@pytest.mark.parametrize("name", MARKED)
def test_numbers_with_marks_are_named(name):
    odd, mark = MARKED[name]
    found = profile_of(odd)
    (line,) = [line for line in found.warnings() if "is read as text" in line]
    text, written = line.split("'")[3], line.split("write ")[1].split()[0]
    sign = "-" if mark in "-(\N{MINUS SIGN}" else ""
    assert (line.startswith("column 'odd': "), mark in text) == (True, True)
    if mark == ":":
        days = int(text.split()[0]) if "day" in text else int(text.split(":")[0]) // 24
        assert f"write {days * 86_400 + 3600.5} (seconds)" in line
    else:
        assert written == sign + text.strip("%$kg l€()-\N{MINUS SIGN}days").replace("D", "e")
        assert ("one unit" in line) == (not sign and mark != "D")
    try:
        said = str(profile_of(odd, target=True).remarks["y"])
    except DataError as error:
        said = str(error)
    assert f"is read as text, not as a number; write {sign}" in said


def comma(text: str) -> str:
    return f'"{text.replace(".", ",")}"'


COMMAS = {
    "few numbers": (
        lambda i: ["0.5", "2.5", "3.5"][i % 3] if i != 30 else '"3,5"',
        "1 of 40 values are like '3,5', so that all are read as text; write 3.5, with one decimal",
    ),
    "one among many": (lambda i: comma(number(i)) if i == 7 else number(i), "1 of 40 values are"),
    "groups of digits": (
        lambda i: f'"1.{i:03},5"',
        "40 of 40 values are like '1.020,5', so that all are read as text; write 1020.5, or set "
        "data.decimal: ',' and data.thousands: '.' if all columns are written so",
    ),
    "a wrong text": (lambda i: "abc" if i == 9 else comma(number(i)), "such as 'abc' in line 11"),
}


@pytest.mark.parametrize("name", COMMAS)
def test_numbers_with_commas_are_named(name):
    odd, said = COMMAS[name]
    assert any(said in line for line in profile_of(odd).warnings())


def test_lists_and_codes_are_no_numbers_with_commas_or_marks():
    for texts in (
        ['"1,2"', "1", '"1,2,3"', '"2,3"'], ["1-2", "3-4"], ['"A,1"', '"B,2"'], ["00123"],
        ["S", "2XL", "3XL"], ["1a", "2b", "3c", "4d"], ["A1", "A2"],
    ):  # fmt: skip
        assert profile_of(lambda i, c=texts: c[i % len(c)]).remarks == {}
