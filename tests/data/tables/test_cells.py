"""Values of CSV files that pyarrow reads, against the csv module, `float` and `datetime`."""

import csv
import io
import sys
from datetime import UTC, datetime
from itertools import product

import numpy as np
import pandas as pd
import pytest

from mlpengine.core.errors import DataError
from mlpengine.data.features.outliers import find_gap
from mlpengine.data.tables import _csv, read_table
from mlpengine.data.tables.frames import as_table

MISSING = {"", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?"}
PLAIN_AND_ODD = """
0 -0 +0 1 -1 +7 007 00 0123456789 -07 00.5 1. .5 -.5 +.25 0.0 -0.0 00.10 3.141592653589793 0.1
0.30000000000000004 1.3456.8901 12345678.1234567.1 .12345678901234567890123
123456789012345 9007199254740991 9007199254740993.0 9007199254740992.5 0.1234567890123456789
123456789.123456789 12345678.12345678 1e3 1E-3 1e400 -1e400 1e-400 2.5e-324 4.9e-324 inf -inf
+Infinity nan NaN -nan nan(1) 1.7976931348623157e308 99999999999999999999.5
0.00000000000000000001 0.000000000000000000000001 12345678901234567.8 5e-1 1_0 0x10 1,5 - + . +. -.
1.2.3 1..2 ++1 1- 1e 1d5 --1 NA N/A ? null None 9007199254740993 99999999999999999999 abc
1e22 1e23 1e-22 1e-23 123456789e-20 9007199254740993e1 9007199254740991e3 0e500 -0e5 1e+05 00e1 5.e2
.5e1 .e1 1e+ 1e- e5 1e1000 1e0000000000000000000000001 1.5e3.2 12345678 123456789 -12345678 1234567.
.12345678 12345678.9 99999999.5e-3 0.000012345678901234567 4000000000000000000.5 -.e 7e 1E5 2.5E+2
"""
BLANKS = [
    "", " 1", "1 ", " 2.5 ", "\t3", "1\u00a0", "\u0661", "1 2", "  ", '4"', "- 1", " 007", "0 ",
]  # fmt: skip
NUMBERS = [*PLAIN_AND_ODD.split(), *BLANKS]


@pytest.fixture(params=["csv module", "pyarrow"])
def way(request, monkeypatch):
    """Every promise holds for small files, and for rows after the first ones of larger files."""
    if request.param == "pyarrow":
        cut_small(monkeypatch, 100)
    return request.param


def cut_small(monkeypatch, size):
    """Have pyarrow read all but the first line, in blocks of so many bytes."""
    for name, value in (("SMALL", 8), ("FIRST", 1), ("_BLOCK", size), ("_BLOCK_ROWS", 1)):
        monkeypatch.setattr(_csv, name, value)


def as_float(cell: str) -> float | None:
    """Return the number that the documentation promises for a cell, None for text."""
    text = cell.strip()
    if text in MISSING:
        return float("nan")
    is_long = text[text[:1] in ("+", "-") :].isdigit() and abs(float(text)) >= 2**53
    is_code = text.isdigit() and text[0] == "0" and len(text) > 1
    if "_" in text or not text.isascii() or is_long or is_code:
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
    return columns, table.row_numbers().tolist()


def test_a_text_is_the_number_that_float_reads(way):
    """Beside plain numbers in one column, and in the first row of it."""
    for text in NUMBERS:
        expected = as_float(text)
        for rows in ([text, "2.5"], ["2.5"] * 9 + [text], ["2"] * 3 + [text] * 9):
            buffer = io.StringIO()
            csv.writer(buffer).writerows([("a", "b"), *((row, "1") for row in rows)])
            column = read(buffer.getvalue())["a"]
            if expected is None:
                assert column.kind == "text" or text == "1,5", text
            else:
                truth = np.array([as_float(row) for row in rows])
                assert column.kind == "number", text
                assert column.values.tobytes() == truth.tobytes() or np.isnan(expected), text
                np.testing.assert_array_equal(column.values, truth, text)


@pytest.mark.parametrize("gap", ["not_known", "k\u00e9in", "00", "-9", "-999999999.5", '""', "x"])
def test_numbers_beside_a_spelling_of_missing_cells_stay_numbers(gap, way):
    cells = [gap, "2.5", "-7.0", "", "1e3", f" {gap}", "-8", "123456789012.5"]
    column = read("a,b\n" + "".join(f"{cell},1\n" for cell in cells), na_values=[gap])["a"]
    truth = [np.nan, 2.5, -7.0, np.nan, 1e3, np.nan, -8.0, 123456789012.5]
    assert column.kind == "number"
    np.testing.assert_array_equal(column.values, truth)


@pytest.mark.parametrize("gap", ["-999", "-999.0", "-999.00", "1.5", "1.50", "0", "1.51"])
def test_a_number_that_means_missing_matches_each_spelling_as_in_pandas(gap, way, tmp_path):
    cells = ["-999", "-999.0", "-999.000", "1.5", "1.50", "0", "0.0", "1.51", "-99.0", "7"]
    text = "a,b\n" + "".join(f"{cell},1\n" for cell in cells)
    expected = pd.read_csv(io.StringIO(text), na_values=[gap])["a"]
    np.testing.assert_array_equal(read(text, na_values=[gap])["a"].values, expected)
    frame = pd.read_csv(io.StringIO(text))
    frame.to_parquet(tmp_path / "t.parquet")
    matrix = as_table(frame.to_numpy(), names=["a", "b"], na_values=[gap])
    file = read_table(tmp_path / "t.parquet", na_values=[gap])
    for table in (as_table(frame, na_values=[gap]), matrix, file):
        np.testing.assert_array_equal(table["a"].values, expected)
    for dtype in ("f4", "f2"):
        frame.astype(dtype).to_parquet(tmp_path / "t.parquet")
        file = read_table(tmp_path / "t.parquet", na_values=[gap])
        for table in (as_table(frame.astype(dtype), na_values=[gap]), file):
            np.testing.assert_array_equal(table["a"].values, expected.astype(dtype))
            assert (find_gap(table["a"]) is None) == gap.startswith("-999")
    exponent = read("a\n1e20\n1.00e+20\n7\n", na_values=["1" + "0" * 20])["a"]
    np.testing.assert_array_equal(exponent.values, [np.nan, np.nan, 7])
    infinite = as_table({"a": np.array([np.inf, 7], "f2")}, na_values=["inf", "1e9"])["a"]
    np.testing.assert_array_equal(infinite.values, [np.nan, 7])


ISO = """
2020-01-02 2020-02-29 2019-02-29 1900-02-29 2000-02-29 0001-01-01 0000-01-01 9999-12-31 2020-13-01
2020-00-10 2020-01-00 2020-04-31 2020-01-02T03:04:05 2020-01-02T23:59:59 2020-01-02T24:00:01
2020-01-02T03:60:00 2020-01-02T03:04:60 2020-01-02T03:04 2020-01-02T03:04:05Z 2020/01/02 20200102
2020-1-2 2020-01-02T03:04:05.5 2020-01-02T03:04:05+01 2O20-01-02 1969-12-31T23:59:59 2020-01-0x
2020-01-02T03:04:05.123456 2020-01-02T03:04:05.999999Z 2020-01-02T03:04-0930 0001-01-01T00:00+14:00
2020-01-02T03:04Z 2020-01-02T03:04:05.123456789Z 1969-12-31T23:59:59.25+00:00
9999-12-31T23:59:59 9999-12-31T23:59:59-00:01
"""
MORE = ["2020-01-02 03:04:05", "2020-01-02 03:04", " 2020-01-02", "2020-01-02\t", ""]
MOMENTS = [*ISO.split(), *MORE]


def test_a_text_is_the_moment_that_python_reads(way):
    """Among plain ones, and alone; one that is no ISO date makes the column text."""
    plain = ["2021-03-04", "2021-03-04T05:06:07"]
    for cell, before in product(MOMENTS, (plain, plain[:1] * 9)):
        days = [*before, cell]
        column = read("a,b\n" + "".join(f"{day},1\n" for day in [*days, "1970-01-01"]))["a"]
        try:
            moment = datetime.fromisoformat(cell.strip()) if cell else None
        except ValueError:
            assert column.kind == "text"
            continue
        if moment and "-" not in cell:  # the basic format is a number
            assert column.kind == "text"
            continue
        assert column.kind == "date"
        seconds = float("nan")
        if moment:
            known = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            seconds = known.timestamp()
        np.testing.assert_array_equal(column.values[len(days) - 1], seconds)


PIECES = [
    *(cell.replace('"', "").replace(",", ";") for cell in NUMBERS if cell != "1,5"),
    "Ideal", "Good", "2020-01-02", "2020-02-03 04:05:06", "true", "false", '"x"', '"1.5"', '"a, b"',
    '"say ""so"""', '"two\nlines"', '""', 'in"ch', "caf\u00e9", "x" * 70, "e\r\nf", '"007"', ' "q"',
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


def test_pyarrow_and_the_csv_module_read_the_same(monkeypatch):
    generator = np.random.default_rng(0)
    add, blocks = _csv._ArrowBlocks.add, []
    for number in range(150):
        content = content_of(generator)
        by_parser = outcome(content)
        with monkeypatch.context() as patch:
            cut_small(patch, int(generator.choice([24, 100, 1 << 18])))
            patch.setattr(_csv._ArrowBlocks, "add", lambda *a: blocks.append(1) or add(*a))
            by_blocks = outcome(content)
        assert by_blocks == by_parser, f"table {number}: {content!r}"
    assert len(blocks) > 400


def test_without_pyarrow_the_csv_module_reads_all(monkeypatch):
    """Slowly; such as where pyarrow has no wheel."""
    rng = np.random.default_rng(0)
    content = "a,b\n" + "".join(f"{v!r},n{v > 0}\n" for v in rng.normal(size=40_000).tolist())
    assert len(content) > _csv.SMALL
    by_pyarrow = outcome(content.encode())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert outcome(content.encode()) == by_pyarrow


LATE = {
    "a text among numbers": ("x", ["7", "x"], "text"),
    "a date among numbers": ("2020-01-02", ["7", "2020-01-02"], "text"),
    "a code among numbers": ("007", ["7", "007"], "text"),
    "a quoted code": ('"007"', ["7", "007"], "text"),
    "a large whole number": ("9007199254740993", ["7", "9007199254740993"], "text"),
    "an infinity": ("inf", ["7", "inf"], "number"),
    "blanks for a gap": ("  ", ["7", ""], "number"),
    "blanks around a gap": (" NA ", ["7", ""], "number"),
    "a decimal comma": ('"1,5"', ["7", "1.5"], "number"),
}


@pytest.mark.parametrize("name", LATE)
def test_a_late_cell_decides_the_kind(name, monkeypatch):
    cut_small(monkeypatch, 1 << 10)
    cell, expected, kind = LATE[name]
    rows = 2_000
    lines = [f"{cell if i == rows - 9 else 7},{i}" for i in range(rows)]
    table = read("\n".join(["a,b", *lines]) + "\n")
    assert table["a"].kind == kind
    assert [table["a"].text(row) for row in (0, rows - 9)] == expected
    np.testing.assert_array_equal(table["b"].values, np.arange(rows))


def test_lines_are_those_of_rows_after_line_breaks_in_cells(way):
    lines = ["a,b", "1,x", '2,"two\nlines"', "3,y", "", *(f"{i},z" for i in range(4, 30)), '7,"']
    with pytest.raises(DataError, match=r"line 33: a quoted cell is never closed"):
        read("\n".join(lines) + "\n")
    lines[-1] = "1,2,3"
    with pytest.raises(DataError, match=r"line 33: 2 cells are needed, as in the header \(3 found"):
        read("\n".join(lines) + "\n")
    assert read("\n".join(lines[:-1])).row_numbers().tolist() == [2, 3, 5, *range(7, 33)]
