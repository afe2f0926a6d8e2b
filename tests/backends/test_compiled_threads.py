"""The threads of a compiled step: forks, starts that fail, and their end."""

import ctypes
import gc
import shutil
import subprocess
import sys
import time
from itertools import chain, cycle, repeat
from pathlib import Path

import numpy as np
import pytest
from compiled_table import StepCase
from uncompiled import uncompiled

from mlpengine import MeanSquaredError
from mlpengine.backends.compiled.cache import cache_directory, chosen_target, load_library

CASE = StepCase("shared", (128, 256, 10), 64, "relu", MeanSquaredError())
"""Large enough for two threads."""


def thread_count() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.fixture
def many_threads(monkeypatch):
    monkeypatch.setattr("mlpengine.backends.compiled.emitter.STEP_TERMS_PER_THREAD", 1)


FORKS = """
import os, signal, sys, threading, multiprocessing
import numpy as np
from mlpengine import Mlp, Adam, MeanSquaredError, TrainingStep

signal.alarm(110)  # ends this process if it hangs
mlp = Mlp((128, 256, 10), activation="relu", seed=3)
step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp), 64, backend="compiled", threads=2)
assert "#define THREADS 2\\n" in step.emit_c()
rng = np.random.default_rng(0)
x, y = rng.standard_normal((64, 128), np.float32), rng.standard_normal((64, 10), np.float32)

def in_child(task):
    signal.alarm(100)
    return step(x, y)

def forked():
    child = os.fork()
    if not child:
        try:
            value = in_child(0)
            os._exit(0 if np.isfinite(value) else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0

def between():
    for _ in range(3):
        forked()
        step(x, y)

def during():
    order, done = np.tile(np.arange(64), 500), threading.Event()
    def work():
        while not done.is_set():
            step.run_many(x, y, order)
    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(5):
        forked()
    done.set()
    worker.join()
    assert np.isfinite(step(x, y))

def pool():
    with multiprocessing.get_context("fork").Pool(2) as processes:
        values = processes.map(in_child, range(4), chunksize=1)
    assert np.isfinite(values).all()

step(x, y)
for task in (between, during, pool):
    task()
"""


def test_a_forked_child_makes_steps_between_and_during_those_of_its_parent():
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


FAILING_CREATE = """\
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
__attribute__((weak)) long fail_at = 0;
static int failing_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*main)(void *), void *argument) {
  if (fail_at && !--fail_at) return EAGAIN;
  return pthread_create(thread, attributes, main, argument);
}
#define pthread_create failing_create
"""


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """A compiler whose programs have threads that fail to start, the same for all tests."""
    header = tmp_path_factory.mktemp("failing") / "failing.h"
    header.write_text(FAILING_CREATE)
    return f"cc -include {header}"


@pytest.mark.parametrize("threads", [0, 4])
def test_threads_start_all_or_none(threads, monkeypatch, failing, many_threads):
    """Where the system starts none, the caller makes the steps, and asks again later."""
    x, y, _ = CASE.data(64)
    alone = CASE.step("compiled")
    monkeypatch.setenv("CC", failing)
    step = CASE.step("compiled", threads=4)
    assert "#define THREADS 4\n" in step.emit_c()
    fused = step.bound(64).fused
    fused.call.threads = threads
    fail_at = ctypes.c_long.in_dll(fused.library, "fail_at")
    before = thread_count()
    for number in (1, 2, 3):
        fail_at.value = number
        assert step(x, y) == alone(x, y)
        assert thread_count() == before
    fail_at.value = 0
    end = time.monotonic() + 60
    while thread_count() < before + 3:
        assert step(x, y) == alone(x, y)
        assert time.monotonic() < end
    assert fused.call.together
    assert step.mlp.params.flat.tobytes() == alone.mlp.params.flat.tobytes()


POOL = """
#if IN_UNIT(0)
int mlpengine_claim(int64_t thread, int64_t list, int64_t units[2]) {
  return claim((struct part){thread, THREADS}, list, units, units + 1);
}
void mlpengine_offer(void) {
  for (int64_t t = 0; t < THREADS; t++) offer(t);
}
int mlpengine_choose(const double seconds[2]) {
  pool.alone = pool.trial = pool.retry = pool.nanoseconds[0] = pool.nanoseconds[1] = 0;
  for (int i = 0; i < 20; i++) choose(1, (int64_t)(1e9 * seconds[pool.alone]));
  return pool.alone;
}
#endif
"""
"""Access to the functions of a program's pool."""


LONG = StepCase("long", (40, 400, 10), 8)
"""Its products have tiles to claim."""


def text_of_pool():
    with uncompiled():
        return LONG.step("compiled", threads=2).emit_c()


def pool():
    text = text_of_pool()
    functions = "mlpengine_claim", "mlpengine_offer", "mlpengine_choose"
    return text, load_library(text + POOL, chosen_target(), functions=functions)


@pytest.mark.parametrize(("together", "alone"), [(0.7, 0), (0.9, 1), (1.1, 1)])
def test_the_caller_works_alone_unless_all_threads_are_clearly_faster(
    together, alone, many_threads
):
    _, library = pool()
    assert library.mlpengine_choose((ctypes.c_double * 2)(together, 1.0)) == alone


SIMULATED_CLOCK = """\
#define _GNU_SOURCE
#include <time.h>
static double passed;
static int simulated_clock(clockid_t clock, struct timespec *time) {
  (void)clock;
  *time = (struct timespec){(long)passed, (long)(1e9 * (passed - (double)(long)passed))};
  return 0;
}
#define clock_gettime simulated_clock
"""

PASSING = """
#if IN_UNIT(0)
int mlpengine_spend(double seconds) {
  passed += seconds;
  choose(1, (int64_t)(1e9 * seconds));
  return pool.alone;
}
#endif
"""


def spend(library, seconds, together, waking=0.0):
    """Make steps for so long, of a millisecond alone; return the numbers of both kinds.

    The first one of all threads after one of the caller alone takes `waking` seconds more.
    """
    passed, counts, alone = 0.0, [0, 0], library.mlpengine_spend(ctypes.c_double(1e-9))
    slept = False
    while passed < seconds:
        spent = 1e-3 if alone else next(together) + waking * slept
        slept = alone
        counts[alone] += 1
        passed += spent
        alone = library.mlpengine_spend(ctypes.c_double(spent))
    return counts


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The file of a program whose pool chooses by a clock that only `spend` advances."""
    header = tmp_path_factory.mktemp("clock") / "clock.h"
    header.write_text(SIMULATED_CLOCK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlpengine.backends.compiled.emitter.STEP_TERMS_PER_THREAD", 1)
        patch.setenv("CC", f"cc -include {header}")
        library = load_library(text_of_pool() + PASSING, chosen_target())
    return cache_directory() / Path(library._name).name


@pytest.fixture
def library(built, tmp_path):
    """The program of `built` in the state in which it begins."""
    return ctypes.CDLL(shutil.copy(built, tmp_path))


def test_workers_that_wake_late_are_taken_back(library):
    spend(library, 2, repeat(16e-3))
    spend(library, 6, repeat(0.6e-3), waking=1e-3)
    together, alone = spend(library, 2, repeat(0.6e-3), waking=1e-3)
    assert together > 20 * alone


def test_trials_that_are_fast_by_chance_cost_little_on_a_busy_machine(library):
    idle, busy = repeat(0.6e-3), cycle([0.6e-3, 16e-3])
    together, alone = spend(library, 2, idle)
    assert together > 20 * alone
    assert sum(spend(library, 10, busy)) > 0.96 * 10_000
    assert sum(spend(library, 10, busy)) > 0.97 * 10_000
    spend(library, 0.7, idle)  # in which all threads are tried again
    together, alone = spend(library, 2, idle)
    assert together > 20 * alone


def test_each_tile_is_claimed_once_whichever_thread_comes(many_threads):
    text, library = pool()
    tiles = int(text.split("#define CLAIMABLE {")[1].split("}")[0].split(",")[0])
    rng, units = np.random.default_rng(0), (ctypes.c_int64 * 2)()
    for chance in np.linspace(0, 1, 11):  # that the second thread comes before the first one
        library.mlpengine_offer()
        claimed, thread = [[], []], int(rng.random() < chance)
        while library.mlpengine_claim(thread, 0, units):
            claimed[thread] += range(*units)
            thread = int(rng.random() < chance)
        assert sorted(chain(*claimed)) == list(range(tiles))
        for thread, start in enumerate((0, tiles // 2)):
            assert claimed[thread][:1] in ([], [start])  # of its own share first
    assert claimed[0] == []  # a thread without a core delays nobody


def test_threads_end_with_the_step(many_threads):
    kept = CASE.step("compiled", threads=3)  # as a test that failed keeps its steps
    kept.bound(64).fused.call.threads = 3
    own = StepCase("own", (128, 240, 10), 64, "relu", MeanSquaredError())
    x, y, _ = own.data(64)
    kept(x, y)
    before = thread_count()
    for _ in range(4):
        step, twin = (own.step("compiled", threads=3) for _ in range(2))
        step.bound(64).fused.call.threads = 3  # not 1, as the pool may choose
        twin.bound(64).fused.call.threads = 3
        step(x, y)
        assert thread_count() == before + 2
        del step
        gc.collect()
        assert thread_count() == before + 2  # its twin may still want them
        twin(x, y)
        del twin
        gc.collect()
        assert thread_count() == before


def test_a_call_of_no_steps_leaves_the_threads_alone(many_threads):
    alone, step = CASE.step("compiled"), CASE.step("compiled", threads=3)
    x, y, _ = CASE.data(64)
    order, nothing = np.arange(64), np.arange(0)
    for _ in range(200):
        assert step.run_many(x, y, nothing)[0].size == 0
        step.run_many(x, y, order)
        alone.run_many(x, y, order)
    assert step.mlp.params.flat.tobytes() == alone.mlp.params.flat.tobytes()
