"""The app that learns while it runs, in its short form: memory flat, threads right, saved."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "online.py"


def test_the_short_form_learns_and_holds_its_memory():
    done = subprocess.run(
        [sys.executable, "-W", "error", SCRIPT, "--smoke"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    *table, last = done.stdout.splitlines()
    assert len(table) == 11
    control = [float(line.split()[2]) for line in table[1:]]
    assert max(control) < 0.005  # rounding the action to 0.1 alone would give 0.012 and more
    assert last.endswith("saved, loaded, the same")


@pytest.fixture
def online(monkeypatch):
    spec = importlib.util.spec_from_file_location("online", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SMOKE_STEPS", 3_000)
    monkeypatch.setattr(sys, "argv", ["online.py", "--smoke"])
    return module


def test_growing_memory_is_noticed(online, monkeypatch):
    sizes = iter(range(0, 1 << 30, 1 << 24))
    monkeypatch.setattr(online, "resident_bytes", lambda: next(sizes))
    with pytest.raises(SystemExit, match="memory grew by"):
        online.main()


def test_not_learning_is_noticed(online, monkeypatch):
    monkeypatch.setattr(online.Learner, "learn", lambda *_: 0.0)
    with pytest.raises(SystemExit, match=r"errors of .* are more than"):
        online.main()


def test_a_wrong_answer_of_a_thread_is_noticed(online):
    server = online.Server(online.Learner())
    server.answers.put((0.5, 123.0))
    server.waiting = 1
    with pytest.raises(SystemExit, match=r"a thread answered 123\.0"):
        server.finish()
