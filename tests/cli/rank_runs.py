"""What the tests run on several ranks: ``mpiexec -n N python rank_runs.py NAME ARGUMENT ...``.

Several runs in one process, which is faster than a process for each.
"""

import os
import signal
import sys
from collections.abc import Callable
from copy import deepcopy
from hashlib import sha256

import numpy as np

import mlpengine
from mlpengine import Mlp, SoftmaxCrossEntropy
from mlpengine.backends.compiled import emitter
from mlpengine.core.errors import NumericalError
from mlpengine.optim import AdamW, Sgd
from mlpengine.step.ranks import Ranks
from mlpengine.step.step import TrainingStep
from mlpengine_cli.main import main, run


def bits(config: str, *threads: str) -> int:
    """Train with these numbers of threads, which the test lets small networks take."""
    emitter.STEP_TERMS_PER_THREAD = 1
    Ranks.share_of_cores = lambda ranks: 2
    size = os.environ.get("PMI_SIZE", "1")
    return max(
        run(["train", f"{config}.yaml", "-q", "-o", f"{config}-{size}-{n}", *override(n)])
        for n in threads
    )


def world() -> Ranks | None:
    """Return the ranks, or None for a process of its own."""
    if "PMI_SIZE" not in os.environ:
        return None
    from mpi4py import MPI

    return Ranks(MPI.COMM_WORLD)


def tell(ranks: Ranks | None, name: str, results: list[object]) -> None:
    """Print results once; every rank must have them."""
    text = f"{name}: {' '.join(map(str, results))}"
    if ranks is not None:
        assert not ranks.difference({"results": text})
    if ranks is None or ranks.rank == 0:
        print(text)


UPDATES = {
    "AdamW": (None, AdamW),
    "Sgd, clipped": (0.05, Sgd),
}
"""Optimizers, with the norm that gradients are clipped to."""


def updates() -> int:
    """Make compiled steps, and print everything that they change."""
    ranks = world()
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((64, 40), "f4"), rng.integers(0, 5, 64)
    order = rng.permutation(64 * 6) % 60
    order[-50] = 60  # which is wrong: row 14 of the last batch
    for name, (clip_norm, kind) in UPDATES.items():
        mlp = Mlp([40, 300, 30, 5], seed=0, dropout=0.1)
        optimizer = kind(mlp, lr=0.003, weight_decay=0.1)
        options = {"backend": "compiled", "shards": 4, "ranks": ranks, "clip_norm": clip_norm}
        step = TrainingStep(mlp, SoftmaxCrossEntropy(), optimizer, 64, **options)
        assert step(x, y) == step.loss_value
        done = [step(x[:3], y[:3]), step(x, y), step.grad_norm, step.clipped_norm]
        done += hashes(step.grads.flat, *optimizer.moments.values())
        step(x, y)
        for moment in optimizer.moments.values():
            moment *= 0.5
        wrong = x.copy()
        wrong[60, 1] = np.nan  # of the last rank
        try:
            step(wrong, y)
        except NumericalError as error:
            done.append(str(error))
        copy = deepcopy(step)
        losses, norms = step.run_many(x, y, order)
        done += [*losses, *norms, step.loss_value, step.clipped_norm, *hashes(step.grads.flat)]
        mlp.params.flat *= 0.9  # which the next call takes over
        try:
            step.run_many(wrong, y, order)
        except NumericalError as error:
            done += [str(error), optimizer.steps]
        done += [step(x, y), copy(x, y), step(x, y), *hashes(mlp.params.flat, step.grads.flat)]
        done += hashes(*optimizer.moments.values(), copy.mlp.params.flat)
        tell(ranks, f"update {name}", done)
    return 0


def hashes(*arrays: np.ndarray) -> list[str]:
    return [sha256(array).hexdigest()[:16] for array in arrays]


def override(threads: str) -> list[str]:
    return ["--set", f"training.threads={threads}"]


def train(*arguments: str) -> int:
    """Train."""
    return run(["train", *arguments])


def each(*commands: str) -> int:
    """Run several commands; print the code of each after what it writes to stderr."""
    for command in commands:
        name, *arguments = command.split()
        code = globals()[name](*arguments)
        if os.environ.get("PMI_RANK", "0") == "0":
            print(f"{command}: {code}", file=sys.stderr, flush=True)
    return 0


def from_step_9(act: Callable[[], None], *arguments: str) -> int:
    """Train, and call `act` on rank 1 before a step that is made alone, from the tenth on."""
    plain = TrainingStep.run

    def step(self, bound):
        if self.optimizer.steps >= 9 and os.environ["PMI_RANK"] == "1":
            act()
        return plain(self, bound)

    TrainingStep.run = step
    try:
        return run(["train", *arguments])
    finally:
        TrainingStep.run = plain


def killed(*arguments: str) -> int:
    """Train, and kill rank 1."""
    return from_step_9(lambda: os.kill(os.getpid(), signal.SIGKILL), *arguments)


def stopped(*arguments: str) -> int:
    """Train, and send SIGTERM to rank 1 alone."""
    return from_step_9(lambda: signal.raise_signal(signal.SIGTERM), *arguments)


def other_version(*arguments: str) -> int:
    """Train with a version of its own on each rank."""
    plain = mlpengine.__version__
    mlpengine.__version__ = f"0.{os.environ['PMI_RANK']}"
    try:
        return run(["train", *arguments])
    finally:
        mlpengine.__version__ = plain


def wrong_usage_of_one() -> int:
    """Train; rank 1 ends by wrong usage before it has started MPI."""
    main(["train", "small.yaml", *["--epoch"] * int(os.environ["PMI_RANK"])])


if __name__ == "__main__":
    sys.exit(globals()[sys.argv[1]](*sys.argv[2:]))
