import bz2
import gzip
import io
import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import sklearn.datasets
from pyarrow import parquet
from traced import traced

from mlpengine.core.errors import DataError
from mlpengine.data.tables import _arrow, load_dataset, read_blocks, read_table
from mlpengine.data.tables.detect import detect
from mlpengine.data.tables.dialect import CsvDialect
from mlpengine.data.tables.frames import as_table
from mlpengine.data.tables.reader import store_table


def test_digits_are_those_of_scikit_learn():
    table = load_dataset("digits")
    truth = sklearn.datasets.load_digits()
    found = np.column_stack([table[name].values for name in table.names])
    np.testing.assert_array_equal(found, np.column_stack([truth.data, truth.target]))


def test_diabetes_is_that_of_scikit_learn():
    table = load_dataset("diabetes")
    truth = sklearn.datasets.load_diabetes(scaled=False)
    found = np.column_stack([table[name].values for name in table.names])
    np.testing.assert_allclose(found, np.column_stack([truth.data, truth.target]), rtol=1e-9)


def test_penguins_are_complete():
    table = load_dataset("penguins")
    assert (table.n_rows, table["species"].levels) == (344, ("Adelie", "Chinstrap", "Gentoo"))
    gaps = {name: int(table[name].missing.sum()) for name in table.names}
    assert gaps == dict.fromkeys(gaps, 0) | dict.fromkeys(table.names[2:6], 2) | {"sex": 11}


def test_file_of_the_same_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").write_text("a,b\n1,2\n")
    assert read_table("digits").names == ["a", "b"]


BAD = {
    "array.npy": (b"\x93NUMPY\x01", "is not CSV but a NumPy array"),
    "text.csv.gz": (b"a,b\n1,2\n", "is not packed with gzip, as its name says"),
}


@pytest.mark.parametrize("name", BAD)
def test_refuses_broken_files(name, tmp_path):
    content, message = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["nowhere.csv", "nowhere.parquet", "digitz", "."])
def test_refuses_what_is_not_there(name):
    with pytest.raises(DataError, match=r"cannot be read|no such file|must be a file"):
        read_table(name)


@pytest.mark.parametrize(
    "options",
    [
        *({"delimiter": ":"}, {"decimal": "'"}, {"thousands": "_"}, {"text_encoding": "rot13"}),
        {"thousands": ".", "decimal": "."},
        *({"date_format": form} for form in ("yyyymmdd", "dd/mm/dd", "dd/mm/yy AM")),
    ],
)
def test_refuses_unknown_options(options):
    with pytest.raises(DataError, match=next(iter(options))):
        read_table("digits", **options)


@pytest.mark.parametrize(
    ("form", "posix"),
    [
        ("mm/dd/yyyy", "%m/%d/%Y"),
        ("dd-month-yyyy HH:MM:SS", "%d-%b-%Y %H:%M:%S.%f"),
        ("month dd, yyyy", "%B %d, %Y"),
        ("dd month yy", "%d %b %y"),
        ("mm/dd/yy", "%m/%d/%y"),
        ("yyyy/mm/dd HH:MM", "%Y/%m/%d %H:%M"),
        ("mm/dd/yyyy HH:MM:SS AM", "%m/%d/%Y %I:%M:%S %p"),
        ("dd-month-yy, HH:MMAM", "%d-%b-%y, %I:%M%p"),
    ],
)
def test_dates_are_those_of_strptime(form, posix, tmp_path):
    rng, first = np.random.default_rng(0), datetime(1969, 1, 1, tzinfo=UTC)
    moments = [first + timedelta(seconds=s) for s in rng.uniform(0, 3.1e9, 100)]
    cells = [moment.strftime(posix) for moment in moments]
    path = tmp_path / "dates.csv"
    path.write_text("\n".join(["when,x", *(f'"{cell}",1' for cell in cells)]))
    column = read_table(path, date_format=form)["when"]
    truth = [datetime.strptime(cell, posix).replace(tzinfo=UTC).timestamp() for cell in cells]
    assert column.kind == "date"
    assert column.values.tolist() == truth
    assert detect(str(path)).reading.date_format == form


@pytest.mark.parametrize(
    ("cells", "seconds"),
    [
        (["7:05", "17:05", "0:00"], [25_500, 61_500, 0]),
        (["07:05:09", "", "23:59:59"], [25_509, np.nan, 86_399]),
        (["01:16:21.1", "0:00:00.000000000", "23:59:59.0000019"], [4_581.1, 0, 86_399.000001]),
        (["12:00 AM", "12:30 pm", "1:05PM"], [0, 45_000, 47_100]),
        (["24:00", "7:05"], None),
        (["1970-01-01T24:00", "2.1.1970 24:00:00", "1.1.1970 0:00:00.5"], [86_400, 172_800, 0.5]),
        (["1970-01-01 24:00:01", "2.1.1970"], None),
        (["13:05 PM", "7:05"], None),
        (["7:5", "7:05"], None),
        (["7:05", "2024-01-02"], None),
    ],
)
def test_times_of_day_are_seconds_since_midnight(cells, seconds, tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("\n".join(["when,x", *(f"{cell},1" for cell in cells)]))
    column = read_table(path)["when"]
    assert column.kind == ("text" if seconds is None else "date")
    if seconds is not None:
        np.testing.assert_array_equal(column.values, seconds)


@pytest.mark.parametrize(
    "cells",
    [
        *(["12 5 20", "13 5 20"], ["1/2 2024", "13/2 2024"], ["050124", "130124"]),
        *(["5-Foo-2024", "6-Jan-2024"], ["30/02/64", "13/02/24"], ["Jan 2024 5", "Feb 2024 6"]),
    ],
)
def test_what_is_no_date_stays_text(cells, tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("\n".join(["when,x", *(f"{cell},1" for cell in cells)]))
    detected = detect(str(path))
    assert detected.reading.date_format is None
    assert detected.table["when"].kind != "date"


def test_no_class_of_the_target_is_a_gap_of_other_columns(tmp_path):
    path = tmp_path / "strands.csv"
    path.write_text("dose,strand,side\n-,-,l\n1.5,+,-\n2.5,+,r\n")
    of_strand = detect(str(path), target=["strand"])
    assert of_strand.notes == []
    assert of_strand.table["strand"].used_levels() == ["+", "-"]
    assert of_strand.table["dose"].kind == "text"
    of_number = detect(str(path), target=["dose"])
    assert of_number.table["dose"].kind == "number"
    assert of_number.notes == [
        f"column {name!r}: 1 value '-' read as missing" for name in ("dose", "strand", "side")
    ]
    grouped = detect(str(path), target=["dose"], group="side")
    assert not grouped.table["side"].missing.any()


def test_an_order_that_cells_leave_open_is_asked_for(tmp_path):
    path = tmp_path / "dates.csv"
    path.write_text("when,x\n13/05/20,1\n14/06/21,1\n-,1\n")
    (note,) = detect(str(path)).notes
    assert "can have the day or the year first" in note
    assert note.endswith("set data.date_format to dd/mm/yy or yy/mm/dd, and keep the column")
    path.write_text("when,other,x\n13/05/20,25/12/99,1\n14/06/21,-,1\n-,,1\n")
    detected = detect(str(path), target=["x"])  # another column has the order
    assert [column.kind for column in detected.table.columns.values()] == ["date", "date", "number"]
    assert not any("when" in note and "first" in note for note in detected.notes)
    path.write_text("when,other,two\n13/5/2020,12/25/1999,1/2/2020\n")
    assert "'two': '1/2/2020' can have" in detect(str(path)).notes[-1]  # other columns differ


ALIKE = {
    "answers": (["True", "true", None, "FALSE"], "boolean", ["true", "true", "", "false"]),
    "answers and others": (["True", "true", "maybe", None], "text", ["True", "true", "maybe", ""]),
    "dates": (
        ["2020-01-02", "03.01.2020 10:30", None, "2020-01-02"],
        "date",
        ["2020-01-02T00:00:00", "2020-01-03T10:30:00", "", "2020-01-02T00:00:00"],
    ),
    "dates and others": (["2020-01-02", "x", None, "y"], "text", ["2020-01-02", "x", "", "y"]),
    "large": ([2**53, 5, 7, -1], "text", ["9007199254740992", "5", "7", "-1"]),
    "large, with a gap": ([2**53 + 1, None, 7, 8], "text", ["9007199254740993", "", "7", "8"]),
    "large below 0": ([1, 2, -(2**63), 4], "text", ["1", "2", "-9223372036854775808", "4"]),
    "large without a sign": ([2**64 - 1, 0, 1, 2], "text", ["18446744073709551615", "0", "1", "2"]),
    "not large": ([2**53 - 1, None, 7, 8], "number", ["9007199254740991.0", "", "7", "8"]),
}
"""Columns, their kind, and their cells: the same from CSV, Parquet and data frames."""


@pytest.mark.parametrize("name", ALIKE)
def test_a_column_is_the_same_from_each_format(name, tmp_path, monkeypatch):
    given, kind, texts = ALIKE[name]
    whole = isinstance(given[0], int)
    unsigned = "U" if given[0] == 2**64 - 1 else ""
    plain = pandas.Series(given, dtype=f"{unsigned}Int64" if whole else object)
    frame = pandas.DataFrame({"c": plain, "y": range(4)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    parquet.write_table(pyarrow.table(frame), tmp_path / "u.parquet", write_statistics=False)
    monkeypatch.setattr(_arrow, "_BATCH", 2)  # rows of a block
    tables = [
        *map(read_table, (tmp_path / "t.csv", tmp_path / "t.parquet", tmp_path / "u.parquet")),
        *(store_table(tmp_path / file, tmp_path) for file in ("t.csv", "t.parquet")),
        as_table(frame),
        as_table(pyarrow.table(frame)),
        as_table(polars.from_pandas(frame)),
        as_table({"c": given, "y": range(4)}),
    ]
    if None not in given and whole:
        tables.append(as_table({"c": np.array(given, f"{unsigned.lower()}int64")}))
    for table in tables:
        column = table["c"]
        assert (column.kind, [column.text(row) for row in range(4)]) == (kind, texts)
    if kind != "boolean":
        return
    for table in (
        read_table(tmp_path / "t.parquet", text=["c"]),
        as_table(frame.astype({"c": "category"})),
    ):
        assert table["c"].kind == "text"


def test_a_model_that_has_learned_large_numbers_reads_numbers(tmp_path):
    frame = pandas.DataFrame({"c": [2**60, 5, 7]})
    frame.to_parquet(tmp_path / "t.parquet")
    for table in (
        read_table(tmp_path / "t.parquet", numbers=["c"]),
        as_table(frame, numbers=["c"]),
        as_table({"c": [2**60, 5, 7]}, numbers=["c"]),
    ):
        assert table["c"].kind == "number"
        assert table["c"].values.tolist() == [2.0**60, 5, 7]


def two_formats(path):
    """Write dates of two formats, and return them as days since 1970."""
    days = np.arange(19_000, 19_040)
    dates = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=int(day)) for day in days]
    rows = [f"{d:%d/%m/%Y},{d:%m/%d/%Y},{d:%d/%m/%Y},{i}" for i, d in enumerate(dates)]
    path.write_text("\n".join(["from,to,last,y", *rows]) + "\n")
    return days


FORMATS = {"from": "dd/mm/yyyy", "to": "mm/dd/yyyy", "last": "dd/mm/yyyy"}


def test_columns_may_have_dates_of_formats_of_their_own(tmp_path, monkeypatch):
    days = two_formats(tmp_path / "dates.csv")
    table = read_table(tmp_path / "dates.csv", date_format=FORMATS)
    for name in FORMATS:
        assert table[name].kind == "date"
        np.testing.assert_array_equal(table[name].values, days * 86_400)
    detected = detect(str(tmp_path / "dates.csv"))
    assert detected.reading.date_format == FORMATS
    assert [note.split(": ")[0] for note in detected.notes] == ["column 'from'", "column 'to'"]
    assert all(detected.table[name].kind == "date" for name in FORMATS)
    one = read_table(tmp_path / "dates.csv", date_format={"to": "mm/dd/yyyy"})
    assert [one[name].kind for name in FORMATS] == ["text", "date", "text"]
    rows = as_table([{"from": "13/01/2020", "to": "01/13/2020"}], date_format=FORMATS)
    assert rows["from"].values == rows["to"].values == [18_274 * 86_400]
    assert CsvDialect.from_dict(
        json.loads(json.dumps(CsvDialect(date_format=FORMATS).to_dict()))
    ) == (CsvDialect(date_format=FORMATS))
    with pytest.raises(DataError, match="date_format: needs yyyy"):
        read_table("digits", date_format={"from": "dd/mm/yyyy", "to": "dd"})


PACKINGS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pyarrow.compress(content, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("suffix", PACKINGS)
def test_packed_files(suffix, tmp_path):
    pack = PACKINGS[suffix]
    rng = np.random.default_rng(0)
    content = "a,b\n" + "".join(f"{value!r},x\n" for value in rng.normal(size=10_000).tolist())
    path = tmp_path / f"t.csv{suffix}"
    path.write_bytes(pack(content.encode()))
    table = read_table(path)
    assert (table.n_rows, table["a"].text(9_999)) == (10_000, content.split()[-1].split(",")[0])
    path.write_bytes(pack(content.encode())[:-9])
    with pytest.raises(DataError, match="data are damaged or cut short"):
        read_table(path)
    path.write_bytes(content.encode())
    with pytest.raises(DataError, match="as its name says; rename it without"):
        read_table(path)
    path.write_bytes(pack(b"a,b\n" + b"0,0\n" * 1_200_000))
    with pytest.raises(DataError, match="unpack it yourself"):
        read_table(path)


def test_feather_is_parquet_in_another_file(tmp_path):
    frame = pandas.DataFrame({"a": [1.5, None, 2.0], "t": ["x", None, "y"], "n": [2**60, 1, 2]})
    for suffix in (".parquet", ".feather"):
        getattr(frame, f"to{suffix.replace('.', '_')}")(tmp_path / f"t{suffix}")
    for name in ("t.parquet", "t.feather"):
        for table in (
            read_table(tmp_path / name),
            store_table(tmp_path / name, tmp_path / "p"),
            *read_blocks(tmp_path / name),
        ):
            cells = {n: [table[n].text(row) for row in range(3)] for n in table.names}
            assert cells == {
                "a": ["1.5", "", "2"],
                "t": ["x", "", "y"],
                "n": [str(2**60), "1", "2"],
            }
    (tmp_path / "t.feather").write_bytes(b"ARROW1\0\0 not really")
    with pytest.raises(DataError, match=r"is not a whole Arrow file \(Feather version 2,"):
        read_table(tmp_path / "t.feather")


def test_parquet(tmp_path):
    moments = np.array(["2020-01-01T00:00:01", "2020-01-02", "NaT"], "datetime64[s]")
    columns = {
        "number": pyarrow.array([1.5, None, 2.0]).dictionary_encode(),
        "whole": pyarrow.array([1, 2, None]), "digits": pyarrow.array(["1.5", None, "2.50"]),
        "word": pyarrow.array(["b", None, "a"]), "code": pyarrow.array(["01", None, "2"]),
        "level": pyarrow.array(["1", "2", "1"]).dictionary_encode(),
        "flag": pyarrow.array([True, None, False]), "when": pyarrow.array(moments),
        "clock": pyarrow.array([3_723, None, 0], "time32[s]"),
        "fine clock": pyarrow.array([3_723_500_000, None, 0], "time64[us]"),
        "length": pyarrow.array([1_500, None, -20], "duration[ms]"), "nothing": pyarrow.nulls(3),
    }  # fmt: skip
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    table = read_table(path)
    expected = {
        "number": ["1.5", "", "2"], "whole": ["1", "2", ""], "digits": ["1.5", "", "2.5"],
        "word": ["b", "", "a"], "code": ["01", "", "2"], "level": ["1", "2", "1"],
        "flag": ["true", "", "false"], "when": ["2020-01-01T00:00:01", "2020-01-02T00:00:00", ""],
        "clock": ["1970-01-01T01:02:03", "", "1970-01-01T00:00:00"],
        "fine clock": ["1970-01-01T01:02:03.500000", "", "1970-01-01T00:00:00"],
        "length": ["1.5", "", "-0.02"], "nothing": ["", "", ""],
    }  # fmt: skip
    for read in (table, as_table(pyarrow.table(columns))):
        for name, cells in expected.items():
            assert [read[name].text(row) for row in range(3)] == cells
        assert [column.kind for column in read.columns.values()] == [
            *["number"] * 3, *["text"] * 3, "boolean", *["date"] * 3, *["number"] * 2,
        ]  # fmt: skip


def test_parquet_texts_that_repeat_are_kept_once(tmp_path, monkeypatch):
    """A text of a million characters in 2,000 rows: two gigabytes if each row had its own."""
    words = ["x" * 1_000_000, "y", "", None]
    codes = np.arange(2_000) % 4
    indices = pyarrow.array(codes.astype(np.int32), mask=codes == 3)
    texts = pyarrow.DictionaryArray.from_arrays(indices, words[:3])
    path = tmp_path / "bomb.parquet"
    columns = {"text": texts, "more": pyarrow.array(["b", "a"] * 1_000, "string_view")}
    parquet.write_table(pyarrow.table(columns), path, compression="zstd", row_group_size=300)
    assert path.stat().st_size < 20_000
    before = pyarrow.default_memory_pool().max_memory()
    table, peak = traced(read_table, path)
    assert peak < 64 << 20
    assert max(pyarrow.default_memory_pool().max_memory(), before) < 256 << 20
    for row in (0, 1, 2, 3, 1_999):
        assert table["text"].text(row) == (words[row % 4] or "")
        assert table["more"].text(row) == "ba"[row % 2]
    assert table["text"].missing.tolist() == (codes >= 2).tolist()
    columns = {"text": [f"{words[0]}{row}" for row in range(5)]}  # each has its own
    parquet.write_table(pyarrow.table(columns), path, compression="zstd")
    monkeypatch.setattr(_arrow, "BINARY_BYTES", 4 << 20)
    with pytest.raises(DataError, match="unpack it yourself"):
        read_table(path)


def test_parquet_dates_of_any_unit(tmp_path):
    moment = np.datetime64("2020-01-02T03:04:05.678901234", "ns")
    columns = {unit: pyarrow.array(np.array([moment]).astype(f"M8[{unit}]")) for unit in
               ("s", "ms", "us", "ns")}  # fmt: skip
    columns |= {"day": pyarrow.array([18263], "date32"), "ms day": pyarrow.array([0], "date64")}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    second = "2020-01-02T03:04:05"
    assert {name: table[name].text(0) for name in table.names} == {
        "s": second, "ms": f"{second}.678000", "us": f"{second}.678901", "ns": f"{second}.678901",
        "day": "2020-01-02T00:00:00", "ms day": "1970-01-01T00:00:00",
    }  # fmt: skip


@pytest.mark.parametrize("fault", ["list", "empty", "damaged", "twice", "late"])
def test_parquet_faults(fault, tmp_path):
    tables = {
        "list": pyarrow.table({"a": [[1], [2]]}),
        "empty": pyarrow.table({"a": pyarrow.array([], "int64")}),
        "late": pyarrow.table({"a": pyarrow.array([0, 10**17], pyarrow.timestamp("ms"))}),
        "twice": pyarrow.Table.from_arrays([pyarrow.array([1])] * 2, ["a", "a"]),
    }
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 not really")
    if fault in tables:
        parquet.write_table(tables[fault], path)
    with pytest.raises(DataError, match=r"t\.parquet"):
        read_table(path)


@pytest.mark.parametrize("rows", [4, 100_000])  # the csv module alone; pyarrow
def test_codes_stay_text_if_they_are_dates_or_a_number_has_several_spellings(rows):
    """A later row decides: the numbers before it have one spelling each."""
    for texts, levels in {
        ("3.1", "3.9", "", "3.10"): ("3.1", "3.10", "3.9"),
        ("1", "2", "", "1.0"): ("1", "1.0", "2"),
        ("1,5", "2,5", "1,25", "1,50"): ("1,25", "1,5", "1,50", "2,5"),
        ("2024-03-01", "2024-04-01", "", "2024-05-01"): ("2024-03-01", "2024-04-01", "2024-05-01"),
        ("9:30", "10:30", "", "11:30"): ("10:30", "11:30", "9:30"),
        ("3.1", "3.9", "NA", "2"): (),
        ("1,5", "2,5", "1,25", "2"): (),
    }.items():
        lines = "".join(f'"{text}",0\n' for text in (*texts[:3] * (rows // 3), texts[3]))
        column = read_table(io.BytesIO(f"code,n\n{lines}".encode()), codes=["code"])["code"]
        assert column.levels == levels
        assert column.text(0) == (texts[0].replace(",", ".") if not levels else texts[0])
        assert column.text(len(column.values) - 1) == texts[3]
