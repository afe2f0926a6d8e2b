"""Tables as people have them: what is found out about their files."""

import gzip
import io
import sqlite3
import zipfile

import pandas as pd
import pytest
from odd_tables import ODD, plain

from mlpengine.core.errors import DataError
from mlpengine.data.features import profile
from mlpengine.data.tables import read_table
from mlpengine.data.tables.detect import detect

TEXT = plain(lambda i: f"n{i % 3}")


@pytest.mark.parametrize("name", ODD)
def test_reading_and_profile_of_an_odd_table(name, tmp_path):
    odd = ODD[name]
    (tmp_path / "odd.csv").write_bytes(odd.content)
    if odd.refused:
        with pytest.raises(DataError) as caught:
            profile(detect(str(tmp_path / "odd.csv"), target=["y"]).table, "y")
        assert odd.refused in str(caught.value)
        return
    detected = detect(str(tmp_path / "odd.csv"), target=["y"])
    found = profile(detected.table, "y")
    kinds = {column.name: column.kind for column in found.columns}
    assert detected.reading.to_dict() == odd.reading
    assert {column: kinds[column] for column in odd.kinds} == odd.kinds
    told = "\n".join([*detected.notes, *found.warnings()])
    assert all(text in told for text in odd.said), told


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
    "gzip": (
        gzip.compress(TEXT),
        "packed with gzip; give a file with a name that ends in .gz, or unpack it",
    ),
    "Excel": (zipped(xl__workbook_xml=b"<x/>"), "an Excel workbook; save the sheet as CSV"),
    "OpenDocument": (
        zipped(mimetype=b"application/vnd.oasis.opendocument.spreadsheet"),
        "an OpenDocument file; save the sheet as CSV",
    ),
    "Parquet": (
        saved(FRAME.to_parquet),
        "a Parquet file; give a file with a name that ends in .parquet",
    ),
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


def test_names_in_another_unicode_form_are_named():
    table = read_table(io.BytesIO("caf\u00e9,y\n1,2\n".encode()))
    with pytest.raises(DataError, match=r"'cafe\\u0301' \(it has 'caf\\xe9', another Unicode form"):
        table.require(["cafe\u0301"])
