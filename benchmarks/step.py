"""The engine's whole training step against the same step by hand, PyTorch eager and scikit-learn.

Run ``python benchmarks/step.py`` (``--smoke`` for seconds, ``--threads 1 2``).  All contestants of
a workload run in turn, window by window, so that a change of the machine's speed hits them alike;
medians over the windows are printed, and their ratio to the hand-written step.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from against import add_option, compare
from handwritten import make_step
from machine import describe, figure, in_turn, restart_clean, table
from threadpoolctl import threadpool_limits

from mlpengine import Adam, MeanSquaredError, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.core.wording import plural


@dataclass(frozen=True)
class Workload:
    """A network, a batch and a loss."""

    name: str
    sizes: tuple[int, ...]
    batch: int
    activation: str
    loss: str

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(0)
        x = rng.standard_normal((self.batch, self.sizes[0])).astype("f4")
        if self.loss == "mse":
            return x, rng.standard_normal((self.batch, self.sizes[-1])).astype("f4")
        return x, rng.integers(0, self.sizes[-1], self.batch)

    def mlp(self) -> Mlp:
        return Mlp(self.sizes, activation=self.activation, seed=0)


WORKLOADS = (
    Workload("tiny", (4, 32, 32, 1), 32, "tanh", "mse"),
    Workload("small", (64, 128, 10), 64, "relu", "softmax_cross_entropy"),
    Workload("medium", (784, 256, 128, 10), 128, "relu", "softmax_cross_entropy"),
    Workload("large", (784, 1024, 1024, 10), 256, "relu", "softmax_cross_entropy"),
)

Step = Callable[[], object]


def engine(work: Workload, backend: str) -> Step:
    mlp = work.mlp()
    loss = MeanSquaredError() if work.loss == "mse" else SoftmaxCrossEntropy()
    step = TrainingStep(mlp, loss, Adam(mlp, lr=1e-3), work.batch, backend=backend)
    x, y = work.data()
    return lambda: step(x, y)


def by_hand(work: Workload) -> Step:
    x, y = work.data()
    params = work.mlp().params.flat
    step = make_step(params, work.sizes, work.batch, work.activation, work.loss)
    return lambda: step(x, y)


def torch_eager(work: Workload, threads: int) -> Step | None:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    activation = torch.nn.Tanh if work.activation == "tanh" else torch.nn.ReLU
    modules: list[torch.nn.Module] = []
    for i, (n_in, n_out) in enumerate(zip(work.sizes[:-1], work.sizes[1:], strict=True)):
        modules += [torch.nn.Linear(n_in, n_out)]
        modules += [activation()] if i < len(work.sizes) - 2 else []
    net = torch.nn.Sequential(*modules)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    loss_of = torch.nn.MSELoss() if work.loss == "mse" else torch.nn.CrossEntropyLoss()
    x, y = (torch.from_numpy(a) for a in work.data())

    def step() -> None:
        optimizer.zero_grad()
        value = loss_of(net(x), y)
        value.backward()
        optimizer.step()

    return step


def scikit_learn(work: Workload) -> Step | None:
    try:
        from sklearn.neural_network import MLPClassifier, MLPRegressor
    except ImportError:
        return None
    kind = MLPRegressor if work.loss == "mse" else MLPClassifier
    x, y = work.data()
    net = kind(
        hidden_layer_sizes=work.sizes[1:-1],
        activation=work.activation,
        batch_size=work.batch,
        alpha=0,
    )
    if work.loss == "mse":
        return lambda: net.partial_fit(x, y.ravel())
    classes = np.arange(work.sizes[-1])
    return lambda: net.partial_fit(x, y, classes=classes)


def contestants(work: Workload, threads: int) -> dict[str, Step]:
    candidates = {
        "by hand": by_hand(work),
        "mlpengine NumPy": engine(work, "numpy"),
        "mlpengine compiled": engine(work, "compiled"),
        "torch eager": torch_eager(work, threads),
        "scikit-learn": scikit_learn(work),
    }
    return {name: step for name, step in candidates.items() if step is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a fraction of a second a contestant")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="BLAS threads")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each contestant")
    add_option(parser)
    args = parser.parse_args()
    describe()
    if args.against:
        compare("step", args.against, seconds=0.001 if args.smoke else 0.05)
        return
    seconds, windows = (0.05, 3) if args.smoke else (args.seconds, 25)
    workloads = WORKLOADS[:2] if args.smoke else WORKLOADS
    for threads in args.threads[:1] if args.smoke else args.threads:
        with threadpool_limits(threads):
            rows = []
            for work in workloads:
                times = in_turn(contestants(work, threads), seconds, windows)
                print(
                    f"{work.name} {'-'.join(map(str, work.sizes))} batch {work.batch}, "
                    f"{plural(threads, 'thread')}"
                )
                label = f"{'-'.join(map(str, work.sizes))}, batch {work.batch}"
                rows.append([label, *(figure(statistics.median(v)) for v in times.values())])
                for name, values in times.items():
                    ratios = [a / b for a, b in zip(values, times["by hand"], strict=True)]
                    print(
                        f"  {name:<18} median {statistics.median(values):10.1f} us   "
                        f"minimum {min(values):10.1f} us   "
                        f"ratio to by hand {statistics.median(ratios):6.2f}"
                    )
            print(f"\n{table([plural(threads, 'thread'), *times], rows)}\n", flush=True)


if __name__ == "__main__":
    restart_clean()
    main()
