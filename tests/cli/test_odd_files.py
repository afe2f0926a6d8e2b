"""Files of other formats, pipes, very long cells, and numbers that are written with marks."""

import gzip
import io
import os
import sqlite3
import threading
import zipfile
from contextlib import suppress

import pandas as pd
import pytest
from odd_tables import number, plain

from mlpengine.core.errors import DataError
from mlpengine.data.features import profile
from mlpengine.data.tables import _files, read_blocks, read_table

TEXT = plain(lambda i: f"n{i % 3}")
CONFIG = "data: {source: t.csv, target: y}\ntraining: {epochs: 1}\nreport: false\n"


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return stream.getvalue()


def saved(write):
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


FRAME = pd.DataFrame({"a": [1.0, 2.0], "y": ["u", "v"]})
FORMATS = {
    "gzip": (gzip.compress(TEXT), "packed with gzip; let its name end in .gz, or unpack it"),
    "Excel": (zipped(xl__workbook_xml=b"<x/>"), "an Excel workbook; save the sheet as CSV"),
    "OpenDocument": (
        zipped(mimetype=b"application/vnd.oasis.opendocument.spreadsheet"),
        "an OpenDocument file; save the sheet as CSV",
    ),
    "Parquet": (saved(FRAME.to_parquet), "a Parquet file; let its name end in .parquet"),
    "pickle": (saved(FRAME.to_pickle), "a Python pickle; save the table as CSV or Parquet"),
    "HTML": (b"<!DOCTYPE html>\n<html>sign in, please</html>\n", "a web page; download the file"),
    "JSON": (b'[{"a": 1, "y": 2},\n {"a": 3, "y": 4}]\n', "JSON; save the table as CSV"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_of_another_format_is_named(name):
    content, told = FORMATS[name]
    with pytest.raises(DataError) as caught:
        read_table(io.BytesIO(content))
    assert str(caught.value).startswith(f"standard input: is not CSV but {told}")


def test_a_database_is_named_and_text_is_no_other_format(tmp_path):
    with sqlite3.connect(tmp_path / "t.csv") as base:
        base.execute("create table t (a)")
    base.close()
    with pytest.raises(DataError, match="is not CSV but an SQLite database; export the table"):
        read_table(tmp_path / "t.csv")
    for first in ("PAR1", "ARROW1", "BZh9", "PK", "7z", "<html_tags", "{braces}"):
        content = f"{first},y\n1,2\n".encode()
        assert read_table(io.BytesIO(content)).names == [first, "y"]


def write(path, content):
    with open(path, "wb") as pipe:
        pipe.write(content)


def test_a_pipe_is_predicted_and_not_trained_on(mlpengine, tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_bytes(TEXT)
    (tmp_path / "c.yaml").write_text(CONFIG)
    assert mlpengine("train", "c.yaml", "-q", "-o", "run").code == 0
    os.mkfifo("pipe")
    for name, content in (("pipe", TEXT), ("pipe.gz", gzip.compress(TEXT))):
        if name != "pipe":
            os.rename("pipe", name)
        writer = threading.Thread(target=write, args=(name, content))
        writer.start()
        answer = mlpengine("predict", "run", name)
        writer.join()
        assert (answer.code, answer.err) == (0, "")
        assert answer.out == mlpengine("predict", "run", "t.csv").out
    monkeypatch.setattr(_files, "PIPE_SECONDS", 0.1)
    answer = mlpengine("predict", "run", name)
    assert (answer.code, "pipe.gz: nothing is written into this pipe (0.1 s)" in answer.err) == (
        *(2, True),
    )
    for arguments in (("init", name, "--target", "y"), ("train", "p.yaml")):
        (tmp_path / "p.yaml").write_text(CONFIG.replace("t.csv", name))
        answer = mlpengine(*arguments)
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert "must be a file" in answer.err
    os.rename(name, "x.npy")
    assert "must be a file, because it is read more" in mlpengine("predict", "run", "x.npy").err


@pytest.mark.parametrize("quote", ["", '"'])
def test_cells_may_be_as_long_as_lines(quote, mlpengine, tmp_path):
    """The csv module refuses cells above 131,072 characters unless it is told otherwise."""
    long = "long, " * 50_000 if quote else "long " * 50_000
    rows = [f"{number(i)},{quote}{long[i:]}{quote},{number(3 * i)}" for i in range(12)]
    (tmp_path / "t.csv").write_text("\n".join(["a,note,y", *rows]) + "\n")
    table = read_table("t.csv")
    assert table["note"].text(3) == long[3:].strip()
    assert [block["note"].text(3) for block in read_blocks("t.csv")] == [long[3:].strip()]
    answer = mlpengine("init", "t.csv", "--target", "y")
    assert (answer.code, len(answer.err) < 1_000) == (0, True)
    assert len((tmp_path / "t.yaml").read_text()) < 3_000
    checked = mlpengine("check", "t.yaml")
    assert (checked.code, len(checked.out) < 2_000) == (0, True)


MARKED = {
    "percent": (lambda i: f"{number(i)}%", "%"),
    "kilograms": (lambda i: f"{number(i)} kg", "kg"),
    "losses in parentheses": (lambda i: f"({number(i)})" if i % 2 else number(i), "("),
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
    sign = "-" if mark in "(\N{MINUS SIGN}" else ""
    assert line.startswith("column 'odd': ")
    assert mark in text
    assert written == sign + text.strip("%$kg l€()\N{MINUS SIGN}")
    with suppress(DataError):
        assert "y" in profile_of(odd, target=True).marked
        return
    with pytest.raises(DataError, match=f"write {sign}"):
        profile_of(odd, target=True)


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
    "a wrong text": (lambda i: "abc" if i == 9 else comma(number(i)), ", and correct 'abc'"),
}


@pytest.mark.parametrize("name", COMMAS)
def test_numbers_with_commas_are_named(name, mlpengine, tmp_path):
    odd, said = COMMAS[name]
    assert any(said in line for line in profile_of(odd).warnings())
    (tmp_path / "t.csv").write_bytes(plain(odd).replace(b"odd,y", b"y,odd"))
    assert said in mlpengine("init", "t.csv", "--target", "y").err


def test_lists_and_codes_are_no_numbers_with_commas_or_marks():
    for texts in (
        ['"1,2"', "1", '"1,2,3"', '"2,3"'], ["1-2", "3-4"], ['"A,1"', '"B,2"'], ["00123"],
        ["S", "2XL", "3XL"], ["1a", "2b", "3c", "4d"], ["A1", "A2"],
    ):  # fmt: skip
        found = profile_of(lambda i, c=texts: c[i % len(c)])
        assert (found.marked, found.commas) == ({}, {})


def test_names_in_another_unicode_form_are_named():
    table = read_table(io.BytesIO("caf\u00e9,y\n1,2\n".encode()))
    with pytest.raises(DataError, match=r"'cafe\\u0301' \(it has 'caf\\xe9', another Unicode form"):
        table.require(["cafe\u0301"])
