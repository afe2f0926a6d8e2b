"""Forks beside threads: a child finds every lock free, whatever the threads of its parent did."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import mlpengine
import mlpengine_cli
from mlpengine.core.fork_locks import process_lock

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")


def test_locks_are_made_in_two_modules_that_hold_them_during_forks():
    roots = (Path(package.__path__[0]) for package in (mlpengine, mlpengine_cli))
    files = (path for root in roots for path in root.rglob("*.py"))
    made = re.compile(r"\b(R?Lock|Condition|Semaphore)\(")
    makers = [path.name for path in files if made.search(path.read_text())]
    assert sorted(makers) == ["fork_locks.py", "system.py"]


@FORKS
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks beside threads
def test_a_fork_waits_for_a_lock_that_another_thread_holds():
    lock, held = process_lock(), threading.Event()
    done = []

    def hold():
        with lock:
            held.set()
            threading.Event().wait(0.2)
            done.append(True)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        os._exit(0 if done and lock.acquire(blocking=False) else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


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
for number in range(12):
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


@FORKS
def test_a_fork_while_threads_build_formulas_and_steps():
    """Before, about every third child waited forever for a lock of the graph of formulas."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", BUILDING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == str([0] * 12)
