"""What holds for every test: one BLAS thread a process, and one cache of compiled programs."""

import os

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
