"""The launcher of several ranks: its variables, and the end of a job that cannot begin."""

import os
import stat
from contextlib import suppress
from time import sleep

LAUNCHED = {
    "PMI_RANK": "PMI_SIZE",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "PMIX_RANK": "SLURM_NTASKS",
}
"""Variables of the rank and of the number of ranks, set by the launchers of MPICH and Intel MPI,
Open MPI, and Slurm."""

FORWARD_SECONDS = 0.5
"""So long the launcher may take to forward what a rank said, before it ends all and drops it."""

START_SECONDS = 300
"""So long a rank waits for the others to start.  MPI would wait forever for one that has ended."""


def launched() -> tuple[int, int]:
    """Return rank and number of the processes that a launcher started, as its variables say."""
    name = next((name for name in LAUNCHED if name in os.environ), None)
    return (int(os.environ[name]), int(os.environ.get(LAUNCHED[name], "1"))) if name else (0, 1)


def end_job(code: int) -> None:
    """Ask the launcher to end all ranks, where this one ends before it has started MPI.

    The launcher of MPICH waits for the others, which wait for this one; that of Open MPI ends them.
    """
    with suppress(KeyError, ValueError, OSError):
        connection = int(os.environ["PMI_FD"])
        if stat.S_ISSOCK(os.fstat(connection).st_mode):
            sleep(FORWARD_SECONDS)
            os.write(connection, b"cmd=abort exitcode=%d\n" % code)
