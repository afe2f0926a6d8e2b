"""Commands whose terminal, reader or disk goes away: training goes on, without a traceback."""

import errno
import io
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from small import SMALL

from mlpengine_cli.streams import Results, say

CONFIG = """\
data: {source: digits}
model: {hidden: [8]}
training: {epochs: 25, backend: numpy}
report: false
"""
COMMAND = [sys.executable, "-m", "mlpengine_cli.main"]
TRAIN = [*COMMAND, "train", "c.yaml", "--out", "run"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "c.yaml").write_text(CONFIG)
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


def start(folder, command, **streams):
    return subprocess.Popen(command, cwd=folder, **streams)


def leave_pipe(folder):
    """Read three lines of both streams and close them, as ``2>&1 | head -3`` does."""
    with start(folder, TRAIN, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for _ in range(3):
            process.stdout.readline()
    return process.returncode


def lose_terminal(folder):
    """Close the other end of a terminal after the first line; its program ignores the hang-up."""
    master, slave = os.openpty()
    with start(folder, TRAIN, stdout=slave, stderr=slave) as process:
        os.close(slave)
        os.read(master, 100)
        os.close(master)
    return process.returncode


SEVERAL = """\
import json, sys
from pathlib import Path
from mlpengine_cli.main import run
from mlpengine_cli.streams import keep_streams
keep_streams()
Path("codes.json").write_text(json.dumps([run(one.split()) for one in sys.argv[1:]]))
"""


def closed(which, *before):
    """Run commands in one process, and training last."""
    calls = [*before, " ".join(TRAIN[3:])]

    def run(folder):
        words = [sys.executable, "-c", SEVERAL, *calls]
        command = ["sh", "-c", f'exec "$@" {which}', "sh", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        assert "Exception" not in done.stderr
        assert done.returncode == 0
        *codes, last = json.loads((folder / "codes.json").read_text())
        assert codes == [2 if call.startswith("predict") else 141 for call in before]
        return last

    return run


LOSSES = {
    "the reader leaves": leave_pipe,
    "the terminal is closed": lose_terminal,
    "no stdout": closed(">&-", "schema"),
    "no streams": closed("<&- >&- 2>&-", "check small.yaml", "predict no -"),
    "a full disk for messages": closed("2>/dev/full"),
}


@pytest.mark.parametrize("case", LOSSES)
def test_training_goes_on(case, folder):
    assert LOSSES[case](folder) == 0
    run = folder / "run"
    assert json.loads((run / "result.json").read_text())["ending"] == "epochs"
    lines = (run / "metrics.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["epoch", *map(str, range(1, 26))]


SPACE = '{"trials":1,"space":{"optimizer.lr":{"choice":[0.1]}}}'
SWEPT = f"sweep small.yaml -q -o run --set sweep={SPACE}"


@pytest.mark.parametrize("call", ["schema", "train small.yaml -q -o run", SWEPT])
def test_a_result_without_stdout_is_lost_with_an_error(call, folder):
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *call.split()]
    done = subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (141, 1)
    assert done.stderr.startswith("error: stdout ")
    assert ("in run\n" in done.stderr) == (folder / "run").is_dir() == (call != "schema")


def test_comparison_refuses_a_pipe(folder):
    os.mkfifo(folder / "pipe")
    command = [*COMMAND, "compare", "pipe", "pipe"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def test_long_lines_are_broken_between_words_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    text = "  one two-three four five " + "x" * 30 + "\na      b"
    say(text)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    say(text)
    plain, broken = capsys.readouterr().out.split("b\n", 1)
    assert plain + "b" == text
    assert broken == f"  one two-three four\n    five\n    {'x' * 30}\na      b\n"


@pytest.mark.parametrize("arguments", [["train", "small.yaml", "-q"], ["schema"]])
def test_results_on_a_full_disk_are_an_error_that_names_stdout(arguments, folder):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: stdout: No space left on device")
    assert (arguments[0] == "train") == done.stderr.endswith("complete: runs/small\n")
    assert len(done.stderr.splitlines()) == 1


def test_a_signal_without_a_terminal_is_answered(folder, monkeypatch):
    stopping = import_module("mlpengine_cli.stopping")
    calls = []

    def gone(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", gone)
    state = stopping.Stopping()
    state.attach(lambda: calls.append("stop"))
    state.handle(2, None)
    assert (state.code, calls) == (130, ["stop"])


class NoReader(io.FileIO):
    """A pipe whose reader has gone, on Windows."""

    def write(self, _data):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


class ToNoReader(Results, NoReader):
    pass


def test_a_pipe_without_a_reader_is_one_on_windows_too(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    with ToNoReader(writing, "w") as stream, pytest.raises(BrokenPipeError):
        stream.write(b"text")
    with ToNoReader(tmp_path / "file", "w") as stream, pytest.raises(OSError, match="Invalid"):
        stream.write(b"text")
