"""What `init` proposes, against one network as version 0.1 proposed it, over seeds.

``python benchmarks/defaults.py`` (``--smoke`` for one small table, ``--seeds 10``) trains both on
the tables that ship with the package and on those in the folder ``MLPENGINE_TABLES``.  Each seed
has a test part of its own, a fifth of the rows.  It prints R2 or accuracy, loss and seconds as mean
and standard deviation over seeds, and the ratio of the losses.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import describe, restart_clean, table

from mlpengine.config import load_config, parse_override
from mlpengine.config.build import build
from mlpengine.config.measure import measure
from mlpengine.config.proposal import propose
from mlpengine.data import DATASETS, profile, read_table
from mlpengine.train.threads import pinned

TARGETS = {"diamonds": "price", "mpg": "mpg", "titanic": "survived"}
"""Target columns of the tables in the folder."""

SINGLE = (
    (500, "[16]", 0.0, 3e-3, 0.1, 200, 16, 50, 0.1),
    (2_000, "[32, 16]", 0.1, 3e-3, 0.1, 200, 16, 50, 0.1),
    (20_000, "[64, 32]", 0.05, 3e-3, 0.01, 100, 64, 25, 0.1),
    (float("inf"), "[256, 128]", 0.0, 2e-3, 0.01, 40, 256, 20, 0.05),
)
"""The sizes of 0.1: rows, hidden, dropout, lr, decay, epochs, batch, patience, validation."""


def single(rows: int) -> list[str]:
    """Return the settings that make a config of `init` one network of version 0.1."""
    size = next(size for size in SINGLE if rows <= size[0])
    _, hidden, dropout, lr, decay, epochs, batch, patience, validation = size
    return [
        f"model.hidden={hidden}",
        f"model.dropout={dropout}",
        f"optimizer.lr={lr}",
        f"optimizer.weight_decay={decay}",
        f"training.epochs={epochs}",
        f"training.batch_size={batch}",
        f"training.early_stopping.patience={patience}",
        f"data.split.validation={validation}",
        "data.encoding=none",
        "training.folds=null",
    ]


def tables() -> list[tuple[str, str]]:
    """Return source and target of each table."""
    folder = Path(os.environ.get("MLPENGINE_TABLES", "nowhere"))
    paths = {folder / f"{name}.csv": target for name, target in TARGETS.items()}
    outside = [(str(path), target) for path, target in paths.items() if path.is_file()]
    return [*DATASETS.items(), *outside]


def run(config: Path, settings: list[str]) -> tuple[float, float, float]:
    """Train; return R2 or accuracy and loss on the test part, and seconds."""
    began = time.perf_counter()
    experiment = build(load_config(config, [parse_override(text) for text in settings]))
    loop = experiment.loop()
    with pinned(experiment.blas_threads):
        loop.run()
        scores = measure(experiment, loop).metrics["test"]
    return (
        scores[experiment.task.headline[0]],
        scores["loss"],
        time.perf_counter() - began,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="one table, one seed, two epochs")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", help="names of tables")
    args = parser.parse_args()
    lines = []
    for source, target in [("penguins", "species")] if args.smoke else tables():
        name = Path(source).stem
        if args.only and name not in args.only:
            continue
        rows = read_table(source)
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "config.yaml"
            text = propose(profile(rows, [target]), [target], source=source, schema="none")
            config.write_text(text)
            results = {}
            for label, settings in (("0.1", single(rows.n_rows)), ("now", [])):
                fast = ["training.epochs=2"] if args.smoke else []
                each = [
                    run(config, [*settings, *fast, f"seed={seed}"])
                    for seed in range(1 if args.smoke else args.seeds)
                ]
                results[label] = np.array(each)
        old, new = results["0.1"], results["now"]
        ratio = float(np.exp(np.mean(np.log(new[:, 1] / old[:, 1]))))
        cells = [f"{one[:, k].mean():.4g} +- {one[:, k].std():.2g}" for k in (0, 1, 2)
                 for one in (old, new)]  # fmt: skip
        lines.append([name, *cells, f"{ratio:.3f}"])
        print(*lines[-1], sep="  ", flush=True)
    describe()
    titles = ["score", "loss", "seconds"]
    head = [f"{title}, {label}" for title in titles for label in ("0.1", "now")]
    print(f"\n{table(['table', *head, 'loss ratio'], lines)}")


if __name__ == "__main__":
    restart_clean()
    main()
