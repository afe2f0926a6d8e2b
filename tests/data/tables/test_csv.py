import io

import numpy as np
import pytest
from traced import traced

from mlpengine.core.errors import DataError
from mlpengine.data.features import Preprocessor, profile
from mlpengine.data.tables import Table, _csv, read_blocks, read_table
from mlpengine.data.tables._records import sniff

DAY = "2020-02-03"


def read(content, **options):
    return read_table(
        io.BytesIO(content if isinstance(content, bytes) else content.encode()), **options
    )


def cells(table: Table) -> dict[str, list[str]]:
    return {
        name: [column.text(row) for row in range(table.n_rows)]
        for name, column in table.columns.items()
    }


GOOD = {
    "comma": ("a,b\n1,2\n3,4\n", "a:number:1,3 b:number:2,4"),
    "semicolon": ("a;b\n1;2\n3;4\n", "a:number:1,3 b:number:2,4"),
    "tab": ("a\tb\n1\t2\n", "a:number:1 b:number:2"),
    "one column": ("a\n1\n2\n", "a:number:1,2"),
    "no last newline": ("a,b\n1,2", "a:number:1 b:number:2"),
    "windows": ("a,b\r\n1,x\r\n2,y\r\n", "a:number:1,2 b:text:x,y"),
    "old mac": ("a,b\r1,x\r2,y\r", "a:number:1,2 b:text:x,y"),
    "byte order mark": (b"\xef\xbb\xbfa,b\n1,2\n", "a:number:1 b:number:2"),
    "quoted": ('"a","b"\n"1","x"\n', "a:number:1 b:text:x"),
    "blanks": ("a, b\n 1 , x\n2, y \n", "a:number:1,2 b:text:x,y"),
    "blank lines": ("\n\na,b\n1,2\n\n3,4\n\n", "a:number:1,3 b:number:2,4"),
    "missing numbers": ("a,b\n1,\nNA,2\n?,3\nnull,4\n", "a:number:1,,, b:number:,2,3,4"),
    "missing text": ("a,b\nx,1\nNone,2\n,3\n", "a:text:x,, b:number:1,2,3"),
    "all missing": ("a,b\n,1\n,2\n", "a:number:, b:number:1,2"),
    "booleans": ("a,b\ntrue,False\nFALSE,True\n", "a:boolean:true,false b:boolean:false,true"),
    "dates": ("a\n2020-02-03\n2020-02-03 04:05:06\n", f"a:date:{DAY}T00:00:00,{DAY}T04:05:06"),
    "decimal comma": ("a;b\n1,5;x\n-2,25;y\n3;z\n", "a:number:1.5,-2.25,3 b:text:x,y,z"),
    "text among numbers": ("a\n1\nx\n2\n", "a:text:1,x,2"),
    "counted names": ("0,1,2\n5,6,7\n", "0:number:5 1:number:6 2:number:7"),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_reads_what_people_write(name):
    content, expected = GOOD[name]
    table = read(content)
    text = content if isinstance(content, str) else content.decode()
    for marked in ("utf-8-sig", "utf-16", "utf-32"):  # a byte order mark decides
        assert cells(read(text.encode(marked), text_encoding="cp1252")) == cells(table)
    found = " ".join(
        f"{column}:{table[column].kind}:{','.join(values)}"
        for column, values in cells(table).items()
    )
    assert found.rstrip(",") == expected.rstrip(",")


@pytest.mark.parametrize("size", [20, 64])  # the first block ends within the quoted cell, or later
def test_quoted_cells_hold_delimiters_quotes_and_line_breaks(size, monkeypatch):
    monkeypatch.setattr(_csv, "_CHUNK", size)
    monkeypatch.setattr(_csv, "_CHUNK_ROWS", 1)
    blocks = [*read_blocks(io.BytesIO(b'a,b\nplain,2\n"x, ""y""\nz",1\nw,3\n'))]
    texts = [text for block in blocks for text in cells(block)["a"]]
    assert texts == ["plain", 'x, "y"\nz', "w"]
    places = [block.place(row) for block in blocks for row in range(block.n_rows)]
    assert places == ["line 2", "line 3", "line 5"]


@pytest.mark.parametrize(
    ("options", "content", "expected"),
    [
        ({"delimiter": ";"}, "a,b;c\n1;2\n", {"a,b": ["1"], "c": ["2"]}),
        ({"decimal": ","}, "a;b\n1,234;1\n", {"a": ["1.234"], "b": ["1"]}),
        ({"decimal": "."}, "a;b\n1,234;1\n", {"a": ["1234"], "b": ["1"]}),
        ({"decimal": "."}, "a;b\n-1,234,567.5;1\n", {"a": ["-1234567.5"], "b": ["1"]}),
        ({"decimal": "."}, "a;b\n1,5;1\n", {"a": ["1,5"], "b": ["1"]}),
        ({"decimal": "."}, "a;b\n12,34,567;0,123\n", {"a": ["12,34,567"], "b": ["0,123"]}),
        ({"na_values": ["-99"]}, "a,b\n-99,1\n2,3\n", {"a": ["", "2"], "b": ["1", "3"]}),
        ({"na_values": []}, "a,b\nNA,1\n", {"a": ["NA"], "b": ["1"]}),
        ({"text": ["a"]}, "a,b\n01,1\ntrue,2\n", {"a": ["01", "true"], "b": ["1", "2"]}),
    ],
)
def test_options(options, content, expected):
    assert cells(read(content, **options)) == expected


BAD = {
    "empty": (b"", "is empty; a header and rows are needed"),
    "only blank lines": (b"\n\n", "is empty"),
    "header only": (b"a,b\n", "has a header and no rows"),
    "not utf-8": (b"a,b\n1,2\n3,caf\xe9\n", "line 3: must be UTF-8 (byte 0xe9 at offset 13)"),
    "utf-16": ("a,b\n1,2\n".encode("utf-16"), "looks like UTF-16: save it as UTF-8"),
    "utf-32": ("a,b\n1,2\n".encode("utf-32"), "set data.text_encoding: utf-32"),
    "cut character": (b"a,b\n1,x\xc3", "must be UTF-8"),
    "short row": (b"a,b\n1,2\n# end\n", "line 3: 2 cells are needed, as in the header (1 found); "),
    "long row": (b"a,b\n1,2\n3,4,\n", "in the header (3 found); delete ',' at the end of the line"),
    "decimal commas": (b"a,b\n1,2\n3,45,2\n", "if 3,45 is a number with a decimal comma"),
    "remarks": (b"# by hand\n# in May\na,b\n1,2\n", "delete lines above the header"),
    "twice": (b"a,b,a\n1,2,3\n", "columns 1 and 3 are both called 'a'"),
    "no name": (b"a,,b\n1,2,3\n", "column 2 has no name"),
    "no name, last": (b"a,b,\n1,2,\n3,4,5\n", "column 3 has no name, but line 3 has a value"),
    "no name, broken": (b'a,b,,\n1,"2\n",,\n3,4,,\n5,6,,x\n', "column 4 has no name, but line 5 "),
    "nul byte": (b"a,b\n1,\0\n", "line 2: holds a NUL byte"),
    "open quote": (b'a,b\n1,"x\n2,3\n', "a quoted cell is never closed"),
    "text after a quote": (b'a,b\n1,"x"y\n', "text follows a closing quote"),
    "open quote in the header": (b'a,"b\n1,2\n', "line 2: unexpected end of data"),
    "no header": (b"1.5,2.5\n3,4\n", "must name the columns, but holds only numbers"),
    "many columns": (b"c," * 100_000 + b"c\n1\n", "at most 100,000 columns are read (100,001)"),
    "many cells in a row": (b"a,b\n" + b"1," * 100_000, "line 2: 2 cells are needed"),
    "a huge line": (b"a,b\n1," + b"x" * (1 << 24), "line 2: is longer than 16,777,216"),
    "comma or thousand": (b'a,b\n1,"1,234"\n', "2, column 'b': '1,234' can mean 1234 or 1.234"),
}


@pytest.mark.parametrize("name", BAD)
def test_refuses_with_the_place_and_the_fix(name):
    content, message = BAD[name]
    with pytest.raises(DataError) as caught:
        read(content)
    assert message in str(caught.value)
    assert str(caught.value).startswith("standard input: ")


@pytest.mark.parametrize(("cell", "told"), [("4.55", False), ("4.550", True), ("4", True)])
def test_a_decimal_point_beside_it_is_no_decimal_comma(cell, told):
    with pytest.raises(DataError, match=r"\(3 found\); quote cells that hold ','") as caught:
        read(f"a,b\n1,2\n{cell},68,16\n")
    assert ("decimal comma" in str(caught.value)) is told


def test_reading_takes_less_memory_than_three_times_the_file(tmp_path):
    generator = np.random.default_rng(0)
    numbers = generator.normal(60, 9, (30_000, 7)).round(2).tolist()
    words = generator.choice(["Ideal", "Premium", "Good"], (30_000, 3)).tolist()
    rows = (
        "{},{},{},{},{},{},{},{},{},{}\n".format(*a, *b)
        for a, b in zip(numbers, words, strict=True)
    )
    path = tmp_path / "t.csv"
    # long against the blocks that are parsed at once
    path.write_text("a,b,c,d,e,f,g,h,i,j\n" + 4 * "".join(rows))
    size = path.stat().st_size
    del numbers, words, rows
    table, peak = traced(read_table, path)
    assert table.n_rows == 120_000
    assert peak < 3 * size


@pytest.mark.parametrize(
    ("lines", "delimiter"),
    [
        (["a;c\n", "1,5;2,5\n", "2,5;3,5\n"], ";"),
        (["a\n", "1\n"], ","),
        (["a;b,c\n", "1\n"], ","),
        (['"a;b"\t"c"\n', "1\t2\n"], "\t"),
        ([], ","),
    ],
)
def test_sniffing(lines, delimiter):
    assert sniff(lines) == delimiter


PIECES = (b",", b'"', b"\n", b"\r", b"\0", b"\xff", b"nan", b"1e999", b"9999-12-31", b"1,234", b" ")


def mutated(content, rng):
    """Return a file with a few cuts, repeats, swapped bytes and foreign pieces."""
    content = bytearray(content if isinstance(content, bytes) else content.encode())
    for _ in range(rng.integers(1, 6)):
        place, length = (int(rng.integers(n)) for n in (len(content) + 1, 12))
        part = content[place : place + length]
        made = [b"", bytes(part) * int(rng.integers(40)), rng.bytes(1), PIECES[rng.integers(11)]]
        content[place : place + length] = made[rng.integers(4)]
    return bytes(content)


def test_mutated_files_are_read_or_refused():
    """What can be read is profiled, fitted and transformed; no other error passes through."""
    rng, contents = np.random.default_rng(0), [content for content, _ in GOOD.values()]
    refused = 0
    for number in range(300):
        try:
            table = read(mutated(contents[number % len(contents)], rng))
            target = table.names[number % len(table.names)]
            profile(table, target).lines()
            fitted = Preprocessor(target, missing="indicator", standardize="robust").fit(table)
            assert np.isfinite(fitted.transform(table).features).all()
        except DataError:
            refused += 1
    assert 30 < refused < 290


def test_blocks_of_many_columns_have_as_many_rows(monkeypatch):
    """Each takes calls for each column: with blocks of so many bytes their number grew with it."""
    monkeypatch.setattr(_csv, "_CHUNK", 1 << 12)
    monkeypatch.setattr(_csv, "_CHUNK_ROWS", 64)
    for columns in (100, 800):
        row = ",".join(["1.25"] * columns)
        content = "\n".join([",".join(f"c{i}" for i in range(columns)), *[row] * 256, ""])
        rows = [table.n_rows for table in read_blocks(io.BytesIO(content.encode()))]
        assert sum(rows) == 256
        assert len(rows) <= 4


def test_another_delimiter_than_the_chosen_one_is_named():
    with pytest.raises(DataError, match="header has ';': change data"):
        read("a;b\n1,5;2,5\n", delimiter=",")
    fitted = Preprocessor().fit(read("a;b\n1;2\n3;4\n", delimiter=";"))
    with pytest.raises(DataError, match="the model was trained on files with ';'"):
        fitted.transform(read("a,b\n1,2\n", delimiter=";"))
