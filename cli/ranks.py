"""Training on several MPI ranks: launchers, errors on any rank, and the work of ranks above 0.

Every command imports this module, so the module imports little.
"""

import logging
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import sleep
from typing import TYPE_CHECKING, NoReturn, TypeVar

from mlpengine.core.errors import (
    MlpEngineError,
    NumericalError,
    RunError,
    UsageError,
    importing,
    install_line,
)
from mlpengine.core.system import ends_within

from .streams import explain

if TYPE_CHECKING:
    from mlpengine.config.build import LoadedData
    from mlpengine.step.ranks import Ranks
    from mlpengine.training.checkpoint import Checkpoint
    from mlpengine.training.trainer import Trainer

    from .stopping import Stopping

T = TypeVar("T")

LAUNCHED = {
    "PMI_RANK": "PMI_SIZE",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "PMIX_RANK": "SLURM_NTASKS",
}
"""Environment variables that launchers set: the rank, and the number of ranks.

The launchers are MPICH and Intel MPI, Open MPI, and Slurm."""

FORWARD_SECONDS = 0.5
"""Seconds for the launcher to forward a rank's output before it ends all ranks."""

START_SECONDS = 300
"""Seconds that a rank waits for the start of the other ranks; MPI itself would wait forever."""


def launched() -> tuple[int, int]:
    """Return the rank and the number of ranks from a launcher; an unknown number is 0."""
    for rank, size in LAUNCHED.items():
        with suppress(KeyError, ValueError):
            return int(os.environ[rank]), int(os.environ.get(size, "0"))
    return 0, 1


def end_job(code: int) -> None:
    """Ask MPICH's launcher to end all ranks, because this rank ends before it has started MPI.

    Otherwise the launcher waits for the other ranks, and the other ranks wait for this rank.  Open
    MPI's launcher ends the other ranks by itself.
    """
    with suppress(KeyError, ValueError, OSError):
        connection = int(os.environ["PMI_FD"])
        if stat.S_ISSOCK(os.fstat(connection).st_mode):
            sleep(FORWARD_SECONDS)
            os.write(connection, b"cmd=abort exitcode=%d\n" % code)


def start_ranks(asked: bool) -> "Ranks | None":
    """Return the ranks if a launcher started this process; None for a single process.

    `asked` (option --mpi) means that the launcher may set other variables than `LAUNCHED`.
    Raises: MissingExtraError without mpi4py; UsageError without a launcher, or with the launcher of
    another MPI library.
    """
    rank = next((name for name in LAUNCHED if name in os.environ), None)
    if launched()[1] == 1 and not asked:
        return None
    with ends_within(START_SECONDS), importing("training on several ranks", "mpi"):
        from mpi4py import MPI
    from mlpengine.step.ranks import Ranks

    ranks = Ranks(MPI.COMM_WORLD)
    if ranks.size == 1:
        started = os.environ.get(LAUNCHED[rank], "1") if rank else "1"
        if rank is None:
            raise UsageError(
                "--mpi: must be started by a launcher, as in mpiexec -n 2 mlpengine train CONFIG "
                f"(mpiexec comes with {install_line('mpi')})"
            )
        if started != "1":
            if os.environ[rank] != "0":
                raise SystemExit(UsageError.exit_code)
            library = " ".join(MPI.Get_library_version().split("\n")[0].split())
            raise UsageError(
                f"mpiexec: must come from the MPI library of mpi4py, {library} (it started "
                f"{started} processes, none sees another); use the mpiexec of this library"
            )
        return None
    ranks.cores = ranks.share_of_cores()
    if ranks.rank:
        logging.getLogger("mlpengine").setLevel(logging.ERROR)
    return ranks


def on_all(ranks: "Ranks | None", make: Callable[[], T]) -> T:
    """Return the result of `make` if it succeeds on every rank.

    Raises: on rank 0, the error of the lowest rank with an error; on other ranks, SystemExit.
    """
    if ranks is None:
        return make()
    error: Exception | None = None
    try:
        result = make()
    except Exception as caught:
        error = caught
        if not isinstance(error, MlpEngineError | OSError | MemoryError):
            sys.excepthook(type(error), error, error.__traceback__)
    failed = ranks.first(None if error is None else (ranks.rank, error))
    if failed is None:
        return result
    rank, first = failed
    ranks.ended = True
    code = first.exit_code if isinstance(first, MlpEngineError) else 1
    if ranks.rank:
        raise SystemExit(code)
    if rank:
        text = f"rank {rank}: {str(first) or type(first).__name__}"
        raise (UsageError if code == UsageError.exit_code else RunError)(text)
    raise first


def on_each(ranks: "Ranks | None", make: Callable[[], T]) -> T:
    """Return the result of `make`, run on rank 0 first, then on the other ranks.

    Rank 0 compiles steps and prepares files that the other ranks use.  Raises: as `on_all`.
    """
    if ranks is None:
        return make()
    first = on_all(ranks, make if ranks.rank == 0 else lambda: None)
    other = on_all(ranks, make if ranks.rank else lambda: None)
    result = first if ranks.rank == 0 else other
    assert result is not None
    return result


@contextmanager
def aborting(ranks: "Ranks | None", state: "Stopping") -> Iterator[None]:
    """End all ranks if an error or a signal ends one rank.

    A NumericalError occurs on every rank; rank 0 raises the error, and the others exit.
    """
    try:
        yield
    except NumericalError:
        if ranks is not None and ranks.rank:
            raise SystemExit(NumericalError.exit_code) from None
        raise
    except SystemExit:
        if ranks is not None and state.code:
            ranks.comm.Abort(state.code)
        raise
    except Exception as error:
        if ranks is None or ranks.ended:
            raise
        _abort(ranks, error)


def _abort(ranks: "Ranks", error: Exception) -> NoReturn:
    code = 1
    try:
        code = explain(error)
    except Exception:
        sys.excepthook(type(error), error, error.__traceback__)
    with suppress(OSError):
        sys.stderr.flush()
    ranks.comm.Abort(code)
    raise SystemExit(code)


def require_equal_ranks(ranks: "Ranks", data: "LoadedData", trainer: "Trainer") -> None:
    """Raise UsageError unless all ranks have the same software, config and data."""
    from mlpengine.config.build import fingerprints
    from mlpengine.training.run_directory import environment

    from .session import AFFECTS_REPRODUCIBILITY

    backends = " ".join(step.backend for step in trainer.steps)
    surroundings = environment(1, backends)
    values = {name: surroundings[name] for name in AFFECTS_REPRODUCIBILITY}
    values["config"] = data.file.flat
    values["data"] = fingerprints(data.parts)
    if difference := ranks.difference(values):
        raise UsageError(f"ranks: {difference}")


def follow(
    data: "LoadedData",
    trainer: "Trainer",
    ranks: "Ranks",
    checkpoint: "Checkpoint | None",
    state: "Stopping",
    *,
    waits_anew: bool,
) -> None:
    """Do the work of a rank above 0: train, and measure all parts; write nothing.

    With `waits_anew`, early stopping counts its patience from 0.
    """
    from mlpengine.training.measure import measure

    loop = trainer.loop()
    if checkpoint:
        loop.load_state_dict(checkpoint.state)
    for member in loop.members if waits_anew else ():
        member.best.waited = 0
    state.attach(loop.stop)
    with trainer.pinned():
        result = loop.run()
        state.share_code(ranks)
        if (
            result.ending != "interrupted" and len(loop.members) == 1
        ):  # other results are measured by rank 0
            measure(trainer.finish(result), data.parts)
