"""What holds for every test: one BLAS thread a process, so that parallel runs do not contend."""

import os

import pytest
from threadpoolctl import threadpool_limits

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # for the processes that tests start


@pytest.fixture(scope="session", autouse=True)
def _one_blas_thread():
    with threadpool_limits(1):
        yield
