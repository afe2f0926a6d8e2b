"""Files of other formats, pipes, very long cells, and numbers that are written with marks."""

import os

import pytest
from odd_tables import number, plain

from mlpengine.data.tables import read_blocks, read_table

TEXT = plain(lambda i: f"n{i % 3}")
CONFIG = "data: {source: t.csv, target: y}\ntraining: {epochs: 1}\nreport: false\n"


def test_a_pipe_is_refused(mlpengine, tmp_path):
    (tmp_path / "t.csv").write_bytes(TEXT)
    (tmp_path / "c.yaml").write_text(CONFIG)
    assert mlpengine("train", "c.yaml", "-q", "-o", "run").code == 0
    os.mkfifo("pipe")
    assert mlpengine("init", "t.csv", "--target", "y", "-o", "/dev/null").out == ""
    for command in (("evaluate", "pipe"), ("check", "pipe", "t.csv")):
        assert mlpengine(*command).code == 2  # a model is no pipe
    for command in (("init", "pipe", "--target", "y"), ("predict", "run", "pipe")):
        answer = mlpengine(*command)
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert "must be a file" in answer.err
        assert "read - from standard input" in answer.err
    (tmp_path / "c.yaml").write_text(CONFIG.replace("t.csv", "pipe"))
    assert "must be a file" in mlpengine("train", "c.yaml").err
    given = f"/dev/fd/{os.pipe()[0]}"
    refused = mlpengine("check", "c.yaml", settings=[f"data.source={given}"])
    assert f"(got {given}, a pipe" in refused.err


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
