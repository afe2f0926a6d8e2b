"""Tables whose columns and features stay in files: the same values, in bounded memory."""

import os

import numpy as np
import pytest

from mlpengine.core.errors import DataError, RunError
from mlpengine.core.rows import gather_rows
from mlpengine.data.features import Batches, Preprocessor
from mlpengine.data.features import prepared as prepared_module
from mlpengine.data.features.prepared import PreparedRows, Windows
from mlpengine.data.tables import read_table
from mlpengine.data.tables.reader import store_table
from mlpengine.data.tables.stored import StoredColumn

ROWS = 3_000
HEAD = "n,whole,gaps,late,flag,day,word,comma,y\n"
DECIMALS = {"late kind": lambda i: "7" if i < 2_900 else "text", "comma": lambda i: f'"{i % 9},5"'}


def cells(i):
    return (
        f"{i * 0.37 % 11:.4f},{i % 70},{'' if i % 9 == 0 else i % 13},"
        f"{DECIMALS['late kind'](i)},{'true' if i % 4 else 'false'},2024-0{i % 9 + 1}-11,"
        f"{'abcde'[i * i % 5]},{DECIMALS['comma'](i)},{i % 3}"
    )


LAYOUTS = {
    "plain": lambda lines: HEAD + "\n".join(lines) + "\n",
    "blank lines": lambda lines: HEAD + "\n\n".join(lines),
    "line breaks in cells": lambda lines: (
        HEAD + "\n".join(line.replace("true", '"true\n"') for line in lines)
    ),
    "one row": lambda lines: HEAD + lines[0],
}


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(LAYOUTS["plain"](map(cells, range(ROWS))))
    return path


def same(table, other):
    assert table.names == other.names
    assert len(table) == len(other)
    assert table.row_numbers().tolist() == other.row_numbers().tolist()
    for name in table.names:
        one, two = table[name], other[name]
        assert (one.kind, one.levels, one.values.dtype) == (two.kind, two.levels, two.values.dtype)
        np.testing.assert_array_equal(one.values, two.values)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stored_csv_is_what_is_read_into_memory(layout, csv, tmp_path):
    csv.write_text(LAYOUTS[layout](list(map(cells, range(ROWS)))))
    stored = store_table(csv, tmp_path / "p")
    assert all(isinstance(column, StoredColumn) for column in stored.columns.values())
    same(stored, read_table(csv))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "p").glob("*.columns")}
    same(store_table(csv, tmp_path / "p"), stored)
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "p").glob("*.columns")}


def test_stored_parquet_is_what_is_read_into_memory(csv, tmp_path, monkeypatch):
    import pandas

    frame = pandas.read_csv(csv, parse_dates=["day"])
    frame["factor"] = pandas.Categorical(frame["word"])
    frame["none"] = [None if i % 2 else "x" for i in range(ROWS)]
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=700)
    monkeypatch.setattr("mlpengine.data.tables._arrow._BATCH", 512)
    same(store_table(tmp_path / "t.parquet", tmp_path / "p"), read_table(tmp_path / "t.parquet"))


def test_a_changed_source_is_read_again(csv, tmp_path):
    assert len(store_table(csv, tmp_path / "p")) == ROWS
    with csv.open("a") as file:
        file.write(cells(0) + "\n")
    assert len(store_table(csv, tmp_path / "p")) == ROWS + 1


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


FAULTS = {
    "cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
    "lost": lambda path: path.unlink(),
    "no description": lambda path: path.with_suffix(".json").unlink(),
    "a flipped bit": lambda path: flip(path, path.stat().st_size // 2),
    "a flipped bit in the description": lambda path: flip(path.with_suffix(".json"), 60),
    "damaged description": lambda path: path.with_suffix(".json").write_text("{"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_prepared_file_that_is_not_whole_is_written_again(fault, csv, tmp_path):
    first = features_of(csv, tmp_path)[:]
    for path in sorted((tmp_path / "p").glob("*.columns")) + sorted(
        (tmp_path / "p").glob("*.rows")
    ):
        FAULTS[fault](path)
        np.testing.assert_array_equal(features_of(csv, tmp_path)[:], first)


def fitted(table):
    options = {"missing": "indicator", "encoding": "piecewise", "features": {"twice": "2 * n"}}
    rows = np.arange(0, ROWS, 2)
    return Preprocessor("y", drop=["late"], task="classification", **options).fit(table, rows), rows


def features_of(csv, tmp_path, window=64) -> PreparedRows:
    table = store_table(csv, tmp_path / "p")
    preprocessor, rows = fitted(table)
    return preprocessor.stream(table, rows, batch_size=50, window=window).features


def test_prepared_features_have_the_bits_of_those_in_memory(csv, tmp_path, monkeypatch):
    monkeypatch.setattr(prepared_module, "BLOCK_BYTES", 100 * 4 * 50)
    monkeypatch.setattr(prepared_module, "PREPARED_ROWS", 64)
    table = read_table(csv)
    in_memory, rows = fitted(table)
    whole = in_memory.transform(table, rows)
    assert fitted(store_table(csv, tmp_path / "p"))[0].state_dict() == in_memory.state_dict()
    part = features_of(csv, tmp_path, window=2)
    assert part.shape == whole.features.shape
    np.testing.assert_array_equal(part[:], whole.features)
    np.testing.assert_array_equal(part[10:200:7], whole.features[10:200:7])
    np.testing.assert_array_equal(part[np.array([1_400, 3])], whole.features[[1_400, 3]])
    rng = np.random.default_rng(0)
    out = np.empty((50, part.shape[1]), np.float32)
    for _ in range(3):  # orders that need more blocks than are in memory, too
        for indices in (rng.integers(0, 1_500, 50), rng.integers(300, 400, 50), np.arange(50)):
            gather_rows(part, indices, out)
            np.testing.assert_array_equal(out, whole.features[indices])
    gather_rows(part, np.array([1_499]), out[:1])
    np.testing.assert_array_equal(out[0], whole.features[1_499])


@pytest.mark.parametrize(("n_rows", "block", "count"), [(1_000, 32, 4), (64, 8, 8), (10, 3, 1)])
def test_windows_shuffle_every_row_near_its_block(n_rows, block, count):
    batches = Batches(n_rows, 7, seed=5, windows=Windows(block, count))
    first = np.concatenate([b.copy() for b in batches.epoch()])
    second = np.concatenate([b.copy() for b in batches.epoch()])
    for order in (first, second):
        assert sorted(order) == list(range(n_rows))
        size = block * count
        blocks = {len(set(order[i : i + size] // block)) for i in range(0, n_rows, size)}
        assert max(blocks) <= 2 * count  # the short block shifts the windows
    assert first.tolist() != second.tolist()
    if n_rows <= block * count:
        plain = Batches(n_rows, 7, seed=5)
        assert first.tolist() == np.concatenate(list(plain.epoch())).tolist()


def test_an_epoch_in_windows_reads_every_block_once(csv, tmp_path, monkeypatch):
    monkeypatch.setattr(prepared_module, "BLOCK_BYTES", 100 * 4 * 50)
    part = features_of(csv, tmp_path, window=3)
    read, real = [], PreparedRows._block
    monkeypatch.setattr(
        PreparedRows, "_block", lambda self, block: (read.append(block), real(self, block))[1]
    )
    monkeypatch.setattr(PreparedRows, "__getitem__", lambda self, rows: 0)  # beside the cache
    out = np.empty((50, part.shape[1]), np.float32)
    for indices in Batches(len(part), 50, windows=part.windows).epoch():
        gather_rows(part, indices, out[: len(indices)])
    assert sorted(read) == list(range(-(-len(part) // part.windows.block)))
    assert len(read) > 6


def full(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "where",
    [
        "tables.stored.write_all",
        "features.prepared.write_all",
    ],
)
def test_a_full_disk_leaves_nothing_behind(where, csv, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(f"mlpengine.data.{where}", full)
        with pytest.raises(RunError, match=r"cannot be written \(No space left on device\); make"):
            features_of(csv, tmp_path)
    left = {path.suffix for path in (tmp_path / "p").iterdir()}
    assert left <= {".lock", ".columns", ".json"}
    assert features_of(csv, tmp_path).shape[0] == ROWS // 2


CELLS = {
    "too large": ("1e200", "must be finite and within 1e\\+100"),
    "infinite": ("inf", "must be finite \\(it is inf for n inf\\)"),
    "a ragged row": ("1,2", "9 cells are needed, as in the header"),
}


@pytest.mark.parametrize("cell", CELLS)
def test_a_bad_cell_is_named_with_its_line(cell, csv, tmp_path):
    text, message = CELLS[cell]
    lines = csv.read_text().splitlines()
    lines[2_401] = text + lines[2_401][lines[2_401].index(",") :]
    csv.write_text("\n".join(lines))
    with pytest.raises(DataError, match=message) as stored:
        features_of(csv, tmp_path)
    with pytest.raises(DataError) as in_memory:
        fitted(read_table(csv))
    assert str(stored.value) == str(in_memory.value)
    assert "line 2402" in str(stored.value)


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="is not a whole Parquet file"):
        store_table(tmp_path / "t.parquet", tmp_path / "p")
