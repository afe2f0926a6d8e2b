"""What holds for every test: one BLAS thread, the same random numbers, a cache of programs."""

import functools
import os

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import mlpengine
from mlpengine.backends.compiled import target
from mlpengine.settings import recipes
from mlpengine.step.step import TrainingStep

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # for the processes that tests start


@pytest.fixture(scope="session", autouse=True)
def _one_blas_thread():
    """Keep parallel runs from competing for cores."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk():
    """Flush nothing: no test cuts the power, and a run waits for the disk twenty times.

    A descriptor that is closed is an error all the same, and tests that count or break flushes
    put their own function in this place.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def _program_cache(tmp_path_factory):
    """Compile each program once for all workers, away from the user's own programs."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "programs"
    folder.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLPENGINE_CACHE", str(folder))
        yield


@pytest.fixture(autouse=True)
def quick_programs(monkeypatch):
    """Compile without optimization, in a third of the time; no bit depends on it.

    The table of steps in tests/backends and `.ci/targets` compile as users do.
    """
    if "MLPENGINE_TARGET" not in os.environ:
        monkeypatch.setattr(target, "FLAGS", ("-O0", *target.FLAGS[1:]))


@pytest.fixture(autouse=True)
def numpy_steps(monkeypatch):
    """Let steps that name no backend run on NumPy: most tests are about something else.

    A program takes a second to compile.  A module that is about the default overrides this.
    """
    monkeypatch.setitem(TrainingStep.__init__.__kwdefaults__, "backend", "numpy")


@pytest.fixture
def two_folds(monkeypatch):
    """Let tables have two folds where the recipe gives them eight, for what is not about that."""
    monkeypatch.setattr(recipes, "FOLDS", 2)


@pytest.fixture(scope="session")
def flats():
    """Return a model of numbers with folds, from categories, gaps, dates and booleans."""
    rng, rows = np.random.default_rng(2), 300
    area = rng.uniform(20, 200, rows)
    cells = {
        "area": area.round(1).tolist(),
        "rooms": rng.integers(1, 6, rows).tolist(),
        "kind": rng.choice(["old", "n\u00a0e\r\u200d\tw", "</script>"], rows).tolist(),
        "sold": [f"2024-{m:02}-{d:02}" for m, d in rng.integers(1, 13, (rows, 2)).tolist()],
        "lift": rng.choice(["true", "false"], rows).tolist(),
    }
    for name in ("area", "kind", "lift"):
        for row in rng.integers(0, rows, 20).tolist():
            cells[name][row] = None
    cells["price"] = (1000 * area + rng.normal(0, 5000, rows)).tolist()
    few = {"training": {"folds": 3, "epochs": 5}, "data": {"na_values": ["1e5"]}}
    return mlpengine.fit(cells, target="price", model={"hidden": [8]}, **few)[0]


@functools.cache
def _generators(module):
    """Return the random generators of a module, with the states for its fixtures and its tests."""
    generators = [g for g in vars(module).values() if isinstance(g, np.random.Generator)]
    states = [g.bit_generator.state for g in generators]
    jumped = [g.bit_generator.jumped().state for g in generators]
    return generators, jumped, states


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Let fixtures of a module draw the same numbers whichever tests ran before."""
    generators, states, _ = _generators(item.module)
    for generator, state in zip(generators, states, strict=True):
        generator.bit_generator.state = state


@pytest.fixture(autouse=True)
def _same_numbers(request):
    """Let a test draw the same numbers whichever tests and fixtures ran before."""
    generators, _, states = _generators(request.module)
    for generator, state in zip(generators, states, strict=True):
        generator.bit_generator.state = state
