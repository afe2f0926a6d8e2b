"""Trials an hour of `mlpengine sweep`: two workers against one, and Optuna with scikit-learn.

``python benchmarks/sweep.py`` (``--smoke`` for seconds, ``--trials`` for another number) runs the
same random search twice over two tables: the penguins that ship with the package (classes), and a
made-up table of the size and kinds of mpg (398 rows, numbers and a text, regression).  Contestants
are one worker, two workers, and a loop of one process in which Optuna drives scikit-learn's MLP
over the same space, rows, epochs and preprocessing, after whose fit the validation part is scored.
Each is a process of its own, whose start is part of the time, as is the preprocessing of ours (but
not the writing of byte code, which is there after an installation); arrays are ready for
scikit-learn.  Contestants take part in each round, in turn.  Prints medians
over the rounds and the best validation losses.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
from machine import describe, restart_clean

from mlpengine.config import load_config
from mlpengine.config.build import build

CONFIG = """\
data: {data}
training: {{epochs: {epochs}, batch_size: 32}}
report: false
sweep:
  trials: {trials}
  sampler: random
  space:
    optimizer.lr: {{log: [1e-3, 3e-2]}}
    model.hidden: {{choice: [[32], [64], [64, 32]]}}
"""
SCIKIT_LEARN = """\
import json, sys, warnings
import numpy as np
import optuna
from sklearn.neural_network import MLPClassifier, MLPRegressor
warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
arrays, trials, epochs = np.load(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
x, y, vx, vy = (arrays[name] for name in ("x", "y", "vx", "vy"))
def objective(trial):
    lr = trial.suggest_float("lr", 1e-3, 3e-2, log=True)
    hidden = json.loads(trial.suggest_categorical("hidden", ["[32]", "[64]", "[64, 32]"]))
    kind = MLPClassifier if y.dtype.kind == "i" else MLPRegressor
    net = kind(
        hidden_layer_sizes=hidden, learning_rate_init=lr, batch_size=32, max_iter=epochs,
        alpha=0.0, n_iter_no_change=epochs, random_state=0,
    ).fit(x, y)
    if y.dtype.kind == "i":
        return -np.log(np.clip(net.predict_proba(vx)[np.arange(len(vy)), vy], 1e-15, 1)).mean()
    return np.square(net.predict(vx) - vy).mean()
storage = optuna.storages.journal
journal = storage.JournalStorage(storage.JournalFileBackend(sys.argv[1] + ".log"))
study = optuna.create_study(storage=journal, sampler=optuna.samplers.RandomSampler(seed=0))
study.optimize(objective, n_trials=trials)
print(json.dumps(study.best_value))
"""


def write_cars(path: Path) -> None:
    """Write a table like mpg: consumption of 398 cars."""
    rng = np.random.default_rng(0)
    lines = ["mpg,cylinders,displacement,horsepower,weight,acceleration,year,origin"]
    for _ in range(398):
        cylinders = int(rng.choice([4, 4, 6, 8]))
        size, year = cylinders * rng.normal(35, 5), int(rng.integers(70, 83))
        power, origin = size / 2 + rng.normal(10, 9), rng.choice(["usa", "japan", "europe"])
        weight = 1_500 + 9 * size + rng.normal(0, 200)
        mpg = 60 - weight / 120 + 0.7 * (year - 76) + 2 * (origin == "japan") + rng.normal(0, 2)
        cells = (mpg, cylinders, size, power, weight, rng.normal(15, 2), year)
        lines.append(",".join([*(f"{cell:.1f}" for cell in cells), origin]))
    path.write_text("\n".join(lines) + "\n")


def ours(config: Path, out: Path, workers: int) -> tuple[float, float]:
    """Return the seconds of a sweep and its best loss."""
    command = [sys.executable, "-m", "mlpengine_cli.main", "sweep", str(config), "-q", "--json"]
    result, seconds = timed([*command, "--out", str(out), "--workers", str(workers)])
    return seconds, json.loads(result)["best"]["value"]


def theirs(arrays: Path, trials: int, epochs: int) -> tuple[float, float]:
    """Return the seconds of the loop around scikit-learn and its best loss."""
    command = [sys.executable, "-c", SCIKIT_LEARN, str(arrays), str(trials), str(epochs)]
    result, seconds = timed(command)
    arrays.with_name(arrays.name + ".log").unlink()
    return seconds, json.loads(result)


def timed(command: list[str]) -> tuple[str, float]:
    """Run a command; return its last line and the seconds it took."""
    began = perf_counter()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    return ran.stdout.splitlines()[-1], perf_counter() - began


def prepared(config: Path, path: Path) -> None:
    """Write the arrays of a config for scikit-learn."""
    parts = build(load_config(config)).parts
    train, validation = parts["train"], parts["validation"]
    np.savez(path, x=train.x, y=train.y.squeeze(), vx=validation.x, vy=validation.y.squeeze())


def measure(name: str, config: Path, directory: Path, options: argparse.Namespace) -> None:
    """Run all contestants in turn and print a line for each."""
    arrays = directory / f"{name}.npz"
    prepared(config, arrays)
    contestants = {
        "one worker": lambda out: ours(config, out, 1),
        "two workers": lambda out: ours(config, out, 2),
        "Optuna, scikit-learn": lambda _: theirs(arrays, options.trials, options.epochs),
    }
    if options.smoke:
        del contestants["one worker"]
    seconds: dict[str, list[float]] = {title: [] for title in contestants}
    best = {}
    for number in range(options.rounds):
        for title, run in contestants.items():
            out = directory / f"{name}-{title.replace(' ', '-')}-{number}"
            spent, best[title] = run(out)
            seconds[title].append(spent)
    first = statistics.median(next(iter(seconds.values())))
    for title, spent in seconds.items():
        middle = statistics.median(spent)
        print(
            f"{name:10}{title:22}{middle:8.1f}{3600 * options.trials / middle:12,.0f}"
            f"{first / middle:8.2f}{best[title]:10.4f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="few trials, in seconds")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.smoke:
        options.trials, options.epochs, options.rounds = 2, 2, 1
    restart_clean()
    describe()
    print(f"{'':10}{'':22}{'s':>8}{'trials/h':>12}{'ratio':>8}{'best':>10}")
    with TemporaryDirectory() as name:
        directory = Path(name)
        write_cars(directory / "cars.csv")
        tables = {
            "penguins": "{source: penguins}",
            "cars": f"{{source: {directory}/cars.csv, target: mpg}}",
        }
        for table, data in tables.items():
            if options.smoke and table == "cars":
                continue
            config = directory / f"{table}.yaml"
            text = CONFIG.format(data=data, epochs=options.epochs, trials=options.trials)
            config.write_text(text)
            measure(table, config, directory, options)


if __name__ == "__main__":
    main()
