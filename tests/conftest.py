"""What holds for every test: one BLAS thread, the same random numbers, a cache of programs."""

import os

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # for the processes that tests start


@pytest.fixture(scope="session", autouse=True)
def _one_blas_thread():
    """Keep parallel runs from competing for cores."""
    with threadpool_limits(1):
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


@pytest.fixture(scope="module", autouse=True)
def _generators(request):
    """Return the random generators of a module, each with its state at import."""
    values = vars(request.module).values()
    return [(g, g.bit_generator.state) for g in values if isinstance(g, np.random.Generator)]


@pytest.fixture(autouse=True)
def _same_numbers(_generators):
    """Let a test draw the same numbers whichever tests ran before it in its process."""
    for generator, state in _generators:
        generator.bit_generator.state = state
