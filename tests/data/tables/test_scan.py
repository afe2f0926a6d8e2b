"""Cells that are converted a block at a time, against Python's csv module and `float`."""

import csv
import io
from datetime import UTC, datetime

import numpy as np
import pytest

from mlpengine.core.errors import DataError
from mlpengine.data.tables import _lines as reader
from mlpengine.data.tables import _native, _scan, read_table

MISSING = {"", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?"}
PLAIN_AND_ODD = """
0 -0 +0 1 -1 +7 007 00 0123456789 -07 00.5 1. .5 -.5 +.25 0.0 -0.0 00.10 3.141592653589793 0.1
0.30000000000000004 1.3456.8901 12345678.1234567.1 .12345678901234567890123
123456789012345 9007199254740991 9007199254740993.0 9007199254740992.5 0.1234567890123456789
123456789.123456789 12345678.12345678 1e3 1E-3 1e400 -1e400 1e-400 2.5e-324 4.9e-324 inf -inf
+Infinity nan NaN -nan 1.7976931348623157e308 99999999999999999999.5 0.00000000000000000001
0.000000000000000000000001 12345678901234567.8 5e-1 1_0 0x10 1,5 - + . +. -. 1.2.3 1..2 ++1
1- 1e 1d5 --1 NA N/A ? null None 9007199254740993 99999999999999999999 abc
1e22 1e23 1e-22 1e-23 123456789e-20 9007199254740993e1 9007199254740991e3 0e500 -0e5 1e+05 00e1 5.e2
.5e1 .e1 1e+ 1e- e5 1e1000 1e0000000000000000000000001 1.5e3.2 12345678 123456789 -12345678 1234567.
.12345678 12345678.9 99999999.5e-3 0.000012345678901234567 4000000000000000000.5 -.e 7e 1E5 2.5E+2
"""
BLANKS = ["", " 1", "1 ", " 2.5 ", "\t3", "1\u00a0", "\u0661", "1 2", "  ", '4"', "- 1"]
NUMBERS = [*PLAIN_AND_ODD.split(), *BLANKS]


@pytest.fixture(params=["NumPy", "C"], autouse=True)
def loops(request, monkeypatch):
    """Every promise holds for the loops in C, which long files take, and for those of NumPy."""
    monkeypatch.setattr(_scan, "NATIVE_BYTES", -1 if request.param == "C" else 1 << 60)
    monkeypatch.setattr(_native, "is_loaded", lambda: False)
    return request.param


def as_float(cell: str) -> float | None:
    """Return the number that the documentation promises for a cell, None for text."""
    text = cell.strip()
    if text in MISSING:
        return float("nan")
    is_long = text[text[:1] in ("+", "-") :].isdigit() and abs(float(text)) >= 2**53
    is_code = text.isdigit() and text[0] == "0" and len(text) > 1
    if "_" in text or not cell.isascii() or is_long or is_code:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def read(content: str | bytes, **options):
    return read_table(
        io.BytesIO(content if isinstance(content, bytes) else content.encode()), **options
    )


def outcome(content: bytes):
    """Return everything that reading gives: an error, or kinds, levels, values and lines."""
    try:
        table = read(content)
    except DataError as error:
        return str(error)
    columns = {
        name: (column.kind, column.levels, column.values.tobytes())
        for name, column in table.columns.items()
    }
    return columns, table.first_line


@pytest.mark.parametrize("cell", NUMBERS)
def test_a_cell_is_the_number_that_float_reads(cell):
    """Beside plain numbers in one column, and in the first row of it."""
    expected = as_float(cell)
    for rows in ([cell, "2.5"], ["2.5"] * 9 + [cell], [cell]):
        buffer = io.StringIO()
        csv.writer(buffer).writerows([("a", "b"), *((row, "1") for row in rows)])
        column = read(buffer.getvalue())["a"]
        if expected is None:
            assert column.kind == "text" or cell == "1,5"
        else:
            truth = np.array([as_float(row) for row in rows])
            assert column.kind == "number"
            assert column.values.tobytes() == truth.tobytes() or np.isnan(expected)
            np.testing.assert_array_equal(column.values, truth)


def test_random_decimals_with_exponents_are_those_of_float():
    generator = np.random.default_rng(3)
    cells = []
    for _ in range(20_000):
        digits = "".join(map(str, generator.integers(0, 10, generator.integers(1, 22)).tolist()))
        place = int(generator.integers(0, len(digits) + 1))
        exponent = int(generator.integers(-40, 40))
        form = ("{}.{}", "{}.{}e{}", "{}.{}E+{}")[generator.integers(3)]
        cells.append(form.format(digits[:place], digits[place:], exponent).replace("+-", "-"))
    column = read("a,b\n" + "".join(f"{cell},1\n" for cell in cells))["a"]
    assert column.values.tobytes() == np.array(list(map(float, cells))).tobytes()


@pytest.mark.parametrize("gap", ["not_known", "k\u00e9in", "00", "-9", "-999999999.5", '""', "x"])
def test_numbers_beside_a_spelling_of_missing_cells_stay_numbers(gap):
    cells = [gap, "2.5", "-9.0", "", "1e3", f" {gap}", "-8", "123456789012.5"]
    column = read("a,b\n" + "".join(f"{cell},1\n" for cell in cells), na_values=[gap])["a"]
    truth = [np.nan, 2.5, -9.0, np.nan, 1e3, np.nan, -8.0, 123456789012.5]
    assert column.kind == "number"
    np.testing.assert_array_equal(column.values, truth)


def test_negative_zeros_beside_long_numbers_keep_their_sign():
    cells = ["0.12345678901234567", "-0.0", "-0", "0.0", "-0e5", "98765.432109876543"]
    column = read("a,b\n" + "".join(f"{cell},1\n" for cell in cells))["a"]
    assert column.values.tobytes() == np.array(list(map(float, cells))).tobytes()


@pytest.mark.parametrize("digits", range(1, 20))
@pytest.mark.parametrize("missing", [None, ["-7", "unknown"]])
def test_decimals_round_as_float_does(digits, missing):
    generator = np.random.default_rng(digits)
    cells = []
    for number in generator.integers(0, 10**digits, 400, np.uint64, endpoint=False).tolist():
        text = f"{number:0{digits}d}"
        place = int(generator.integers(0, digits + 1))
        cells.append(generator.choice(["", "-", "+"]) + text[:place] + "." + text[place:])
    table = read("a,b\n" + "".join(f"{cell},1\n" for cell in cells), missing=missing)
    truth = np.array(list(map(float, cells)))
    if missing:
        truth[[cell == "-7" for cell in cells]] = np.nan
    np.testing.assert_array_equal(table["a"].values, truth)
    assert (np.signbit(table["a"].values) == np.signbit(truth)).all()


def test_numbers_halfway_between_two_floats():
    """Where a hair decides the rounding: 2**53 + 1 and its neighbors, divided by powers of ten."""
    middle = [2**53 + 1 + 2 * step for step in range(50)]
    cells = [f"{number + nudge}.0" for number in middle for nudge in (-1, 0, 1)]
    cells += [f"{number}.{tail}" for number in middle for tail in ("0", "01", "00")]
    cells += [f"{float(n) / 1e5 + 2.0**-30:.17f}"[:19] for n in range(1, 200)]
    table = read("a,b\n" + "".join(f"{cell},1\n" for cell in cells))
    np.testing.assert_array_equal(table["a"].values, np.array(list(map(float, cells))))


DAYS_AND_MORE = """
2020-01-02 2020-02-29 2019-02-29 1900-02-29 2000-02-29 0001-01-01 0000-01-01 9999-12-31 2020-13-01
2020-00-10 2020-01-00 2020-04-31 2020-01-02T03:04:05 2020-01-02T23:59:59 2020-01-02T24:00:00
2020-01-02T03:60:00 2020-01-02T03:04:60 2020-01-02T03:04 2020-01-02T03:04:05Z 2020/01/02 20200102
2020-1-2 2020-01-02T03:04:05.5 2020-01-02T03:04:05+01:00 2O20-01-02 1969-12-31T23:59:59 2020-01-0x
"""
MOMENTS = [*DAYS_AND_MORE.split(), "2020-01-02 03:04:05", " 2020-01-02", "2020-01-02\t", ""]


@pytest.mark.parametrize("cell", MOMENTS)
def test_a_cell_is_the_moment_that_python_reads(cell):
    """The cell among plain ones; one that is no ISO date makes the column text."""
    days = ["2021-03-04", "2021-03-04T05:06:07", cell, "1970-01-01"]
    column = read("a,b\n" + "".join(f"{day},1\n" for day in days))["a"]
    try:
        moment = datetime.fromisoformat(cell.strip()) if cell else None
    except ValueError:
        assert column.kind == "text"
        return
    if moment and "-" not in cell:  # the basic format is a number
        assert column.kind == "text"
        return
    assert column.kind == "date"
    seconds = float("nan")
    if moment:
        known = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = known.timestamp()
    np.testing.assert_array_equal(column.values[2], seconds)


PIECES = [
    *(cell.replace('"', "").replace(",", ";") for cell in NUMBERS if cell != "1,5"),
    "Ideal", "Good", "2020-01-02", "2020-02-03 04:05:06", "true", "false", '"x"', '"1.5"', '"a, b"',
    '"say ""so"""', '"two\nlines"', '""', 'in"ch', "caf\u00e9", "x" * 70, "e\r\nf",
]  # fmt: skip


def content_of(generator: np.random.Generator) -> bytes:
    """Return a random CSV: clean columns of a few kinds, then a few foreign pieces."""
    width, rows = int(generator.integers(1, 5)), int(generator.integers(1, 60))
    palettes = [["1", "2.5", "-3", ""], ["Ideal", "Good", ""], ["2020-01-02", "2021-03-04"], PIECES]
    chosen = [palettes[i] for i in generator.choice(4, width, p=[0.4, 0.3, 0.2, 0.1])]
    table = [[str(generator.choice(cells)) for cells in chosen] for _ in range(rows)]
    for _ in range(int(generator.integers(0, 3))):
        row = table[int(generator.integers(rows))]
        row[int(generator.integers(len(row)))] = PIECES[int(generator.integers(len(PIECES)))]
        if generator.random() < 0.1:
            row.append("more")
    end = ["\n", "\r\n", "\r"][generator.choice(3, p=[0.7, 0.25, 0.05])]
    lines = [",".join(f"c{i}" for i in range(width)), *map(",".join, table)]
    if generator.random() < 0.1:
        lines.insert(int(generator.integers(1, len(lines) + 1)), "")
    content = end.join(lines) + (end if generator.random() < 0.8 else "")
    return (b"\xef\xbb\xbf" if generator.random() < 0.1 else b"") + content.encode()


def test_blocks_and_the_csv_module_read_the_same(monkeypatch):
    generator = np.random.default_rng(0)
    cut, used = _scan.Cutter.cut, [0, 0]

    def counted(self, lines, count):
        cells = cut(self, lines, count)
        used[cells is None] += 1
        return cells

    for number in range(400):
        content = content_of(generator)
        with monkeypatch.context() as patch:
            patch.setattr(reader, "TEXT_BYTES", int(generator.choice([24, 100, 1 << 18])))
            patch.setattr(_scan.Cutter, "cut", counted)
            by_blocks = outcome(content)
        with monkeypatch.context() as patch:
            patch.setattr(_scan.Cutter, "cut", lambda self, lines, count: None)
            by_parser = outcome(content)
        assert by_blocks == by_parser, f"table {number}: {content!r}"
    assert min(used) > 100


def test_a_long_table_of_many_kinds_against_the_csv_module():
    generator = np.random.default_rng(1)
    rows = 20_000
    columns = {
        "two digits": [f"{value:.2f}" for value in generator.normal(60, 9, rows)],
        "shortest": list(map(repr, generator.normal(size=rows).tolist())),
        "small": list(map(repr, (generator.normal(size=rows) * 1e-9).tolist())),
        "whole": list(map(str, generator.integers(-(10**6), 10**15, rows))),
        "gaps": [str(generator.choice(["", "NA", "1", "2.25"])) for _ in range(rows)],
        "many texts": [f"customer number {i}" for i in generator.integers(0, 9_000, rows)],
        "few texts": list(map(str, generator.choice(["Ideal", "Very good", ""], rows))),
        "days": list(
            map(str, np.datetime64("2015-01-01") + generator.integers(0, 900, rows).astype("m8[D]"))
        ),
    }
    buffer = io.StringIO()
    csv.writer(buffer).writerows([list(columns), *zip(*columns.values(), strict=True)])
    table = read(buffer.getvalue())
    for name, cells in columns.items():
        column = table[name]
        if column.kind == "number":
            np.testing.assert_array_equal(column.values, [as_float(cell) for cell in cells])
        elif column.kind == "date":
            seconds = np.array(cells, "datetime64[s]").astype(np.float64)
            np.testing.assert_array_equal(column.values, seconds)
        else:
            assert [column.cell(row) for row in range(rows)] == cells
    assert {table[name].kind for name in table.names} == {"number", "text", "date"}


def test_long_files_change_to_the_loops_in_c(monkeypatch, loops):
    """In the middle of a file, whose values are those of one way alone; or not at all."""
    generator = np.random.default_rng(2)
    words = [f"word {i}" for i in range(3_000)]
    values = generator.normal(size=3_000).tolist()
    rows = [f"{v!r},{words[i]},2020-01-{i % 28 + 1:02}" for i, v in enumerate(values)]
    content = "\n".join(["a,b,c", *rows, *rows[::-1]]).encode()
    whole = outcome(content)
    cut, used = _scan.Cutter.cut, []
    monkeypatch.setattr(
        _scan.Cutter, "cut", lambda *a: used.append((cells := cut(*a)).loops is not None) or cells
    )
    monkeypatch.setattr(reader, "TEXT_BYTES", 1 << 14)
    monkeypatch.setattr(_scan, "NATIVE_BYTES", 1 << 16)
    assert outcome(content) == whole
    assert used[0] is False
    assert used[-1] is True
    used.clear()
    monkeypatch.setattr(_native, "library", lambda: None)
    assert outcome(content) == whole
    assert not any(used)


def test_many_texts_are_forgotten_and_read_again(monkeypatch):
    monkeypatch.setattr(_scan.Distinct, "MAX_KNOWN_FAST", 100)
    monkeypatch.setattr("mlpengine.data.tables._csv._FAST_BLOCK", 1 << 10)
    monkeypatch.setattr(reader, "TEXT_BYTES", 1 << 10)
    cells = [f"text {i * 7919 % 900}" for i in range(4_000)]
    column = read("a,b\n" + "".join(f"{cell},1\n" for cell in cells))["a"]
    assert [column.cell(row) for row in range(4_000)] == cells


def test_texts_with_equal_keys_stay_apart(monkeypatch):
    """All texts get one key: lookups must compare the characters."""
    monkeypatch.setattr(_scan, "_MIX", np.zeros(_scan.Distinct.MAX_WORDS, np.uint64))
    monkeypatch.setattr(reader, "TEXT_BYTES", 64)
    cells = [f"text {i % 5}" for i in range(60)]
    column = read("a,b\n" + "".join(f"{cell},1\n" for cell in cells))["a"]
    assert [column.cell(row) for row in range(60)] == cells
