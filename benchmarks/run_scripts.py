"""What a person would write for a whole run with another library: table in, model file out.

``python benchmarks/run_scripts.py torch job.json`` (or scikit-learn) reads the CSV file that the
job names, encodes it, trains, measures held-out rows, and writes the model.  benchmarks/runs.py
times it from outside.
"""

import argparse
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np


def encode(job: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 features, standardized or one-hot, and the target."""
    import pandas as pd

    frame = pd.read_csv(job["csv"])
    target = frame.pop(job["target"])
    numbers = frame.select_dtypes("number")
    spread = numbers.std(ddof=0).replace(0.0, 1.0)
    scaled = (numbers - numbers.mean()) / spread
    words = [pd.get_dummies(frame[name]) for name in frame.columns.difference(numbers.columns)]
    x = np.concatenate([scaled, *words], axis=1).astype("f4")
    if job["classes"]:
        return x, target.to_numpy(np.int64)
    y = target.to_numpy(np.float64)
    return x, ((y - y.mean()) / y.std()).astype("f4")[:, None]


def split(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return training, validation and test rows, 70, 15 and 15 percent."""
    order = np.random.default_rng(0).permutation(rows)
    return np.split(order, [int(0.7 * rows), int(0.85 * rows)])


def run_torch(job: dict[str, Any]) -> float:
    import torch
    from torch import nn

    torch.manual_seed(0)
    x, y = map(torch.from_numpy, encode(job))
    train, validation, test = map(torch.from_numpy, split(len(x)))
    sizes = [x.shape[1], *job["hidden"], job["classes"] or 1]
    layers: list[nn.Module] = []
    for i, (in_dim, out_dim) in enumerate(pairwise(sizes)):
        last = i == len(sizes) - 2
        layers += [nn.Linear(in_dim, out_dim), *([] if last else [nn.ReLU()])]
    net = nn.Sequential(*layers)
    loss_of = nn.CrossEntropyLoss() if job["classes"] else nn.MSELoss()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    for _ in range(job["epochs"]):
        net.train()
        order = train[torch.randperm(len(train))]
        for rows in order.split(job["batch"]):
            optimizer.zero_grad()
            loss_of(net(x[rows]), y[rows]).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            loss_of(net(x[validation]), y[validation]).item()
    with torch.no_grad():
        score = loss_of(net(x[test]), y[test]).item()
    torch.save(net.state_dict(), job["out"])
    return score


def run_scikit(job: dict[str, Any]) -> float:
    import joblib
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    x, y = encode(job)
    train, _, test = split(len(x))
    kind = MLPClassifier if job["classes"] else MLPRegressor
    net = kind(
        hidden_layer_sizes=job["hidden"],
        batch_size=job["batch"],
        max_iter=job["epochs"],
        n_iter_no_change=job["epochs"] + 1,
        random_state=0,
    )
    target = y if job["classes"] else y[:, 0]
    net.fit(x[train], target[train])
    score = net.score(x[test], target[test])
    joblib.dump(net, job["out"])
    return score


RUNS = {"torch": run_torch, "scikit-learn": run_scikit}


def main() -> None:
    import warnings

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=RUNS)
    parser.add_argument("job", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # that max_iter was reached is meant
    print(RUNS[args.library](json.loads(args.job.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
