"""Forks beside threads: a child finds every lock free, whatever the threads of its parent did."""

import os
import threading

import pytest

from mlpengine.core.fork_locks import process_lock

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")


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
