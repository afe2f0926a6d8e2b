"""Files of other formats, pipes, very long cells, and numbers that are written with marks."""

import gzip
import os
import threading

import pytest
from odd_tables import number, plain

from mlpengine.data.tables import _files, read_blocks, read_table

TEXT = plain(lambda i: f"n{i % 3}")
CONFIG = "data: {source: t.csv, target: y}\ntraining: {epochs: 1}\nreport: false\n"


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
    for command in (("evaluate", name), ("check", name, "t.csv"), ("train", "--warm-start", name)):
        assert mlpengine(*command).code == 2  # a model is no pipe
    answer = mlpengine("predict", "run", name)
    assert (answer.code, "pipe.gz: no data came through this pipe in 0.1 s" in answer.err) == (
        *(2, True),
    )
    for arguments in (("init", name, "--target", "y"), ("train", "p.yaml")):
        (tmp_path / "p.yaml").write_text(CONFIG.replace("t.csv", name))
        answer = mlpengine(*arguments)
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert "must be a file" in answer.err
    os.rename(name, "x.parquet")
    assert "must be a file, because it is read more" in mlpengine("predict", "run", "x.parquet").err


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
