"""Train with another library as a user's script would: read a CSV file, write a model file.

``python benchmarks/run_scripts.py torch job.json`` (or scikit-learn) reads the CSV file that the
job names, encodes it, trains, measures test rows, and writes the model.  With folds, it trains one
network without each fold, one after another, and measures their mean.  benchmarks/runs.py measures
the time of this script.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


def encode(job: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 features (standardized numbers, quantile bins, one-hot texts), and targets."""
    import pandas as pd

    frame = pd.read_csv(job["csv"])
    target = frame.pop(job["target"])
    numbers = frame.select_dtypes("number")
    spread = numbers.std(ddof=0).replace(0.0, 1.0)
    scaled = (numbers - numbers.mean()) / spread
    words = [pd.get_dummies(frame[name]) for name in frame.columns.difference(numbers.columns)]
    bins = [in_bins(numbers[name].to_numpy(), job["bins"]) for name in numbers if job["bins"]]
    x = np.concatenate([scaled, *bins, *words], axis=1).astype("f4")
    if job["classes"]:
        return x, target.to_numpy(np.int64)
    y = target.to_numpy(np.float64)
    return x, ((y - y.mean()) / y.std()).astype("f4")[:, None]


def in_bins(values: np.ndarray, count: int) -> np.ndarray:
    """Return the position of each value in each quantile bin: 0 below, 1 above, else between."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, count + 1)))
    return np.clip((values[:, None] - edges[:-1]) / np.diff(edges), 0, 1)


def parts(rows: int, folds: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield training, validation and test rows of each network: 70, 15 and 15 percent.

    With folds, 20 percent are for the test, and each fold of the others validates a network.
    """
    order = np.random.default_rng(0).permutation(rows)
    if not folds:
        yield tuple(np.split(order, [int(0.7 * rows), int(0.85 * rows)]))
        return
    others, test = np.split(order, [int(0.8 * rows)])
    for fold in range(folds):
        held_out = np.arange(len(others)) % folds == fold
        yield others[~held_out], others[held_out], test


def run_torch(job: dict[str, Any]) -> float:
    import torch
    from torch import nn

    if job["threads"]:
        torch.set_num_threads(job["threads"])
    torch.manual_seed(0)
    x, y = map(torch.from_numpy, encode(job))
    sizes = [x.shape[1], *job["hidden"], job["classes"] or 1]
    loss_of = nn.CrossEntropyLoss() if job["classes"] else nn.MSELoss()
    nets, outputs, test = [], [], torch.zeros(0)
    for rows in parts(len(x), job["folds"]):
        train, validation, test = map(torch.from_numpy, rows)
        layers: list[nn.Module] = []
        for in_dim, out_dim, rate in zip(sizes, sizes[1:], [*job["dropout"], None], strict=False):
            layers.append(nn.Linear(in_dim, out_dim))
            layers += [] if rate is None else [nn.ReLU()]
            layers += [nn.Dropout(rate)] if rate else []
        net = nn.Sequential(*layers)
        settings = {"lr": job["lr"], "weight_decay": job["weight_decay"]}
        optimizer = torch.optim.AdamW(net.parameters(), **settings, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, job["epochs"])
        for _ in range(job["epochs"]):
            net.train()
            order = train[torch.randperm(len(train))]
            for batch in order.split(job["batch"]):
                optimizer.zero_grad()
                loss_of(net(x[batch]), y[batch]).backward()
                if job["clip_norm"]:
                    nn.utils.clip_grad_norm_(net.parameters(), job["clip_norm"])
                optimizer.step()
            if job["cosine"]:
                schedule.step()
            net.eval()
            with torch.no_grad():
                loss_of(net(x[validation]), y[validation]).item()
        with torch.no_grad():
            outputs.append(net(x[test]))
        nets.append(net.state_dict())
    score = loss_of(torch.stack(outputs).mean(0), y[test]).item()
    torch.save(nets, job["out"])
    return score


def run_scikit(job: dict[str, Any]) -> float:
    import joblib
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    x, y = encode(job)
    target = y if job["classes"] else y[:, 0]
    kind = MLPClassifier if job["classes"] else MLPRegressor
    nets, scores = [], []
    for train, _, test in parts(len(x), job["folds"]):
        net = kind(
            hidden_layer_sizes=job["hidden"],
            batch_size=job["batch"],
            max_iter=job["epochs"],
            n_iter_no_change=job["epochs"] + 1,
            random_state=0,
        )
        net.fit(x[train], target[train])
        scores.append(net.score(x[test], target[test]))
        nets.append(net)
    joblib.dump(nets, job["out"])
    return float(np.mean(scores))


RUNS = {"torch": run_torch, "scikit-learn": run_scikit}


def main() -> None:
    import warnings

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=RUNS)
    parser.add_argument("job", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # scikit-learn warns that max_iter was reached
    print(RUNS[args.library](json.loads(args.job.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
