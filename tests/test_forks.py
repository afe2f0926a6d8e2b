"""Forks beside threads: a child finds every lock free, whatever the threads of its parent did."""

import subprocess
import sys
from pathlib import Path

import forks
import pytest

PROGRAM = Path(forks.__file__)


def ran(*arguments):
    """Return the lines that a program prints; it may not hang."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.no_cover
def test_forks_at_every_lock():
    found = [line.split() for line in ran(PROGRAM)]
    assert "mlpengine.formula.expr._lock" in [path for path, *_ in found]
    planted = {path.split(".")[3]: waited for path, waited, _ in found if "planted" in path}
    assert planted == {f"planted_{kind}": "False" for kind in forks.PLANTED}
    others = [one for one in found if "planted" not in one[0]]
    assert [one for one in others if one[1:] != ["True", "True"]] == []


BUILDING = """\
import os, signal, threading
from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep, formula

def build(number):
    x, count = formula.variable("x"), 0
    for count in range(200):
        x = x * (number + count + 0.5) + 1.0
    mlp = Mlp([2, 3, 1])
    TrainingStep(mlp, MeanSquaredError(), Adam(mlp), batch_size=2, backend="numpy")

def build_on():
    number = 0
    while not ended.is_set():
        build(number := number + 1)

build(0)
ended = threading.Event()
threads = [threading.Thread(target=build_on) for _ in range(2)]
for thread in threads:
    thread.start()
codes = []
for number in range(25):
    child = os.fork()
    if not child:
        signal.alarm(30)  # ends a child that waits for a thread that it does not have
        build(-number)
        os._exit(0)
    codes.append(os.waitpid(child, 0)[1])
    if codes[-1]:
        break
ended.set()
for thread in threads:
    thread.join()
print(codes)
"""


def test_a_fork_while_threads_build_formulas_and_steps():
    """Before, about every third child waited forever for a lock of the graph of formulas."""
    assert ran("-c", BUILDING) == [str([0] * 25)]
