"""One network on two ranks: against one rank, and against PyTorch's data-parallel training.

``python benchmarks/ranks.py`` (``--smoke`` for seconds, ``--rounds 5``, ``--networks medium``,
``--alone`` without PyTorch; extras `mpi`, `bench`).
Training steps of a whole batch, one thread a process: compiled steps of one process in one call,
steps in two shards on two ranks under ``mpiexec -n 2``, and PyTorch's DistributedDataParallel
over gloo in two processes, each on half of the rows.  One rank and two take turns, window by
window, in the same processes, of which the second sleeps while one rank works.  Processes are
started anew in each round.  Medians of microseconds a step; the gain of two ranks is the median
over pairs of windows, and that of the shortest windows; the gain over PyTorch is the median by
round.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from machine import describe, figure, restart_clean, table
from peer_libraries import Workload
from threadpoolctl import threadpool_limits

from mlpengine import Adam, TrainingStep
from mlpengine.step.ranks import Ranks

WORKLOADS = {
    "small": Workload("small", (64, 128, 10), 64),
    "medium": Workload("medium", (784, 256, 128, 10), 128),
    "large": Workload("large", (784, 1024, 1024, 10), 256),
}
STEPS = {"small": 2_000, "medium": 200, "large": 20}
"""Steps in one window of time; a process measures `WINDOWS` of them, after one to warm up."""

WINDOWS = 9
OURS, ONE, TWO, TORCH = "ranks", "one rank", "two ranks", "PyTorch, two processes"


def located(name: str) -> str:
    """Return a file of the package of MPICH, or the name where another MPI is installed."""
    try:
        paths = [f.locate() for f in files("mpich") or [] if f.name == name]
    except PackageNotFoundError:
        return name
    return str(Path(paths[0]).resolve())


def launched(ranks: int, *arguments: str) -> str:
    """Run this script on `ranks` ranks, 0 for no launcher, and return its output."""
    launcher = [located("mpiexec.hydra"), "-n", str(ranks)] if ranks else []
    environment = dict(os.environ)
    if Path(library := located("libmpi.so.12")).is_file():
        environment.setdefault("MPI4PY_LIBMPI", library)
    command = [*launcher, sys.executable, str(Path(__file__).resolve()), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def window(run: Callable[[], object], steps: int) -> float:
    """Return microseconds a step."""
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) / steps * 1e6


def windows(run: Callable[[], object], steps: int) -> list[float]:
    """Return microseconds a step of each window after the first."""
    return [window(run, steps) for _ in range(WINDOWS + 1)][1:]


def our_steps(work: Workload, steps: int) -> list[list[float]]:
    """Return microseconds a step of one rank and of two, window by window in turn."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD

    def run_of(**options: Any) -> Callable[[], object]:
        mlp = work.mlp()
        given = {"backend": "compiled", **options}
        step = TrainingStep(mlp, work.engine_loss(), Adam(mlp, lr=1e-3), work.batch, **given)
        x, y, order = *work.data(), work.order(steps)
        return lambda: step.run_many(x, y, order)

    def meet() -> None:
        """Wait for the other rank without keeping a core busy, as a barrier of MPI does."""
        request = comm.Ibarrier()
        while not request.Test():
            time.sleep(1e-3)

    one, two = run_of(), run_of(shards=2, ranks=Ranks(comm))
    times: list[list[float]] = [[], []]
    for _ in range(WINDOWS + 1):
        meet()
        if comm.rank == 0:
            times[0].append(window(one, steps))
        meet()
        times[1].append(window(two, steps))
    return [each[1:] for each in times]


def torch_steps(work: Workload, steps: int, rank: int, meeting: str) -> list[float]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    modules: list[torch.nn.Module] = []
    for i in range(len(work.sizes) - 1):
        modules += [torch.nn.Linear(work.sizes[i], work.sizes[i + 1])]
        modules += [torch.nn.ReLU()] if i < len(work.sizes) - 2 else []
    net = DistributedDataParallel(torch.nn.Sequential(*modules), gradient_as_bucket_view=True)
    adam = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    loss_of = torch.nn.CrossEntropyLoss()
    x, y = map(torch.from_numpy, work.data())
    half = work.batch // 2
    batches = torch.from_numpy(work.order(steps)).reshape(steps, 2, half)[:, rank]

    def run() -> None:
        for rows in batches:
            adam.zero_grad()
            loss_of(net(x[rows]), y[rows]).backward()
            adam.step()

    times = windows(run, steps)
    torch.distributed.destroy_process_group()
    return times


def worker(kind: str, name: str, steps: int, rank: int, meeting: str) -> None:
    """Measure in a process of its own, and print the times of rank 0."""
    work = WORKLOADS.get(name, WORKLOADS["small"])
    with threadpool_limits(1, user_api="blas"):
        if kind == TORCH:
            times: Any = torch_steps(work, steps, rank, meeting)
        else:
            times = our_steps(work, steps)
    if rank == 0 and os.environ.get("PMI_RANK", "0") == "0":
        print(json.dumps(times))


def measured(kind: str, name: str, steps: int) -> Any:
    """Start the processes of a contestant, and return what rank 0 measures."""
    arguments = ["--worker", kind, "--workload", name, "--steps", str(steps)]
    if kind != TORCH:
        return json.loads(launched(2, *arguments))
    with tempfile.TemporaryDirectory() as folder:
        more = [*arguments, "--meeting", f"{folder}/meeting"]
        command = [sys.executable, str(Path(__file__).resolve()), *more]
        second = subprocess.Popen([*command, "--rank", "1"])
        try:
            return json.loads(launched(0, *more))
        finally:
            second.wait(timeout=60)


def compare(names: list[str], rounds: int, steps: dict[str, int], *, peer: bool) -> None:
    lines = []
    median = statistics.median
    head = ["us a step", ONE, TWO, f"gain over {ONE}", "of the shortest"]
    head += [TORCH, "gain over it"] if peer else []
    for name in names:
        one: list[float] = []
        two: list[float] = []
        torch: list[float] = []
        over_torch: list[float] = []
        for _ in range(rounds):
            ours = measured(OURS, name, steps[name])
            one, two = one + ours[0], two + ours[1]
            if peer:
                torch.append(median(measured(TORCH, name, steps[name])))
                over_torch.append(torch[-1] / median(ours[1]))
        gain = median(a / b for a, b in zip(one, two, strict=True))
        line = [
            figure(median(one)),
            figure(median(two)),
            f"{gain:.2f}",
            f"{min(one) / min(two):.2f}",
        ]
        line += [figure(median(torch)), f"{median(over_torch):.2f}"] if peer else []
        lines.append([WORKLOADS[name].label, *line])
        print(f"{name}: {dict(zip(head[1:], line, strict=True))}", flush=True)
    print(f"\n{table(head, lines)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few steps of one network, one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--networks", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--alone", action="store_true", help="leave out PyTorch")
    for name in ("--worker", "--workload", "--meeting"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker, args.workload, args.steps, args.rank, args.meeting)
    elif args.smoke:
        compare(["small"], 1, {"small": 50}, peer=False)
    else:
        compare(args.networks, args.rounds, STEPS, peer=not args.alone)
        describe()


if __name__ == "__main__":
    restart_clean()
    main()
