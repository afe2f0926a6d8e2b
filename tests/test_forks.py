"""Forks beside threads: a child finds every lock free, whatever the threads of its parent did."""

import os
import re
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
