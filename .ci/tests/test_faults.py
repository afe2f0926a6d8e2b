"""The fault gauntlet itself: what it takes for a failure, and that its library injects one."""

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "faults.py"
TRY = """
import errno, os, sys, ctypes
shim, folder = ctypes.CDLL(os.environ["LD_PRELOAD"]), sys.argv[1]
shim.faults_arm(os.fsencode(folder), 1, 2, errno.ENOSPC)
file = os.open(folder + "/a", os.O_WRONLY | os.O_CREAT)
os.write(1, b"not counted\\n")
print(os.write(file, b"1"), flush=True)
try:
    os.write(file, b"2")
except OSError as error:
    print(error.strerror, shim.faults_count(1), flush=True)
"""


@pytest.fixture(scope="module")
def faults():
    spec = spec_from_file_location("faults", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_library_fails_the_call_that_was_named(faults, tmp_path):
    library = faults.build(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", TRY, str(tmp_path)],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["not counted", "1", "No space left on device 2"]


ENDINGS = {
    "success": (0, "", True),
    "a named error": (1, "error: /r/a.csv: cannot be written (Input/output error)", True),
    "a config that cannot be read": (2, "error: /r/c.yaml: cannot (Input/output error)", True),
    "no file": (1, "error: Input/output error", False),
    "no cause": (1, "error: /r/a.csv: cannot be written", False),
    "a traceback": (1, "Traceback (most recent call last)", False),
    "two errors": (1, "error: /r/a: Input/output error\nerror: /r/b: Input/output error", False),
    "an unknown code": (99, "error: /r/a.csv: Input/output error", False),
    "a crash": (-11, "", False),
    "a kill that nobody asked for": (-9, "", False),
}


def test_endings(faults):
    fault, signal = faults.Fault("write", 1, "EIO"), faults.Fault("write", 1, "SIGINT")
    assert faults.wrong_ending(faults.Ended(130, "interrupted"), signal, Path("/r")) == ""
    assert faults.wrong_ending(faults.Ended(143, "interrupted"), signal, Path("/r"))
    for case, (code, text, clean) in ENDINGS.items():
        found = faults.wrong_ending(faults.Ended(code, text), fault, Path("/r"))
        assert (found == "") == clean, case


def test_files_that_differ_or_are_left_behind_are_found(faults, tmp_path):
    run, whole = tmp_path / "run", tmp_path / "whole"
    for folder in (run, whole):
        folder.mkdir()
        for name in faults.COMPARED:
            (folder / name).write_text(name)
    assert faults.differing(run, whole) == ""
    (run / "metrics.csv").write_text("other")
    (run / "diagnostics.csv").unlink()
    (run / ".tmp-1").write_text("half")
    assert faults.differing(run, whole) == "differs in metrics.csv, diagnostics.csv and left .tmp-1"
