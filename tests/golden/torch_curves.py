"""Loss curves of PyTorch, float64: computed where torch is installed, kept in a file for elsewhere.

``python tests/golden/torch_curves.py`` writes the file again.  The nets start from weights drawn
with NumPy, so that any engine can start from the same ones.
"""

from itertools import pairwise, product
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("torch_curves.npz")
SIZES, ROWS, BATCH, STEPS = (5, 16, 8, 3), 48, 12, 200
OPTIMIZERS = {
    "sgd": {"lr": 0.05, "momentum": 0.9},
    "adam": {"lr": 0.01},
    "adamw": {"lr": 0.01, "weight_decay": 0.1},
    "rmsprop": {"lr": 0.003},
}
CASES = list(product(OPTIMIZERS, ("cross_entropy", "mse"), ("relu", "tanh")))


def start() -> dict[str, np.ndarray]:
    """Return the initial weights, named as in an ``nn.Sequential``."""
    rng = np.random.default_rng(42)
    state = {}
    for i, (n_in, n_out) in enumerate(pairwise(SIZES)):
        state[f"{2 * i}.weight"] = rng.standard_normal((n_out, n_in)) / np.sqrt(n_in)
        state[f"{2 * i}.bias"] = rng.standard_normal(n_out) * 0.1
    return state


def batches(loss: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the batches of all steps, in order."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((ROWS, SIZES[0]))
    labels = rng.integers(0, SIZES[-1], ROWS)
    y = labels if loss == "cross_entropy" else np.sin(x[:, :3] * 2)
    rows = [rng.choice(ROWS, BATCH, replace=False) for _ in range(STEPS)]
    return [(x[r], y[r]) for r in rows]


def torch_curve(optimizer: str, loss: str, activation: str) -> np.ndarray:
    """Train with PyTorch and return the loss before each step."""
    import torch

    torch.set_num_threads(1)

    kinds = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}
    modules: list[torch.nn.Module] = []
    for i, (n_in, n_out) in enumerate(pairwise(SIZES)):
        modules += [torch.nn.Linear(n_in, n_out, dtype=torch.float64)]
        modules += [kinds[activation]()] if i < len(SIZES) - 2 else []
    net = torch.nn.Sequential(*modules)
    net.load_state_dict({k: torch.from_numpy(v) for k, v in start().items()})
    options = dict(OPTIMIZERS[optimizer])
    decay = options.pop("weight_decay", 0.0)
    weights = [p for n, p in net.named_parameters() if n.endswith("weight")]
    biases = [p for n, p in net.named_parameters() if n.endswith("bias")]
    groups = [{"params": weights, "weight_decay": decay}, {"params": biases, "weight_decay": 0.0}]
    kind = {
        "sgd": torch.optim.SGD,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "rmsprop": torch.optim.RMSprop,
    }[optimizer]
    stepper = kind(groups, **options)
    loss_of = torch.nn.CrossEntropyLoss() if loss == "cross_entropy" else torch.nn.MSELoss()
    values = []
    for x, y in batches(loss):
        stepper.zero_grad()
        value = loss_of(net(torch.from_numpy(x)), torch.from_numpy(y))
        value.backward()
        stepper.step()
        values.append(value.item())
    return np.array(values)


if __name__ == "__main__":
    curves = {"-".join(case): torch_curve(*case) for case in CASES}
    np.savez_compressed(FILE, **curves)
    print(f"{FILE.name}: {len(curves)} curves of {STEPS} steps")
