"""Trials an hour of `mlpengine sweep`: two workers against one, and Optuna with scikit-learn.

``python benchmarks/sweep.py`` (``--smoke`` for seconds, ``--trials`` for another number, ``--only
penguins`` for one table, ``--ours`` without scikit-learn) runs the same random search over two
tables: the penguins that ship with the package (classes), and a made-up table of the size and kinds
of mpg (398 rows, numbers and a text, regression).

Contestants are one worker, two workers, and a loop of one process in which Optuna drives
scikit-learn's MLP over the same space, rows, epochs and preprocessing, after whose fit the
validation part is scored.  One and two workers train the same trials: the sampler draws a trial's
values from the seed and its number alone.  Each is a process of its own, whose start is part of the
time, as is the preprocessing of ours (but not the writing of byte code, which is there after an
installation); arrays are ready for scikit-learn.

Contestants take part in each round, in turn.  Prints medians over the rounds: the seconds, trials
an hour, how many times as fast as one worker (the ratio of a round, and its range), the same ratio
without the start and the end of a command, which is measured as a sweep of one trial of one epoch,
the processor time of all processes, which workers that disturb each other would raise, and the best
validation loss.  On a machine whose cores vary in speed, more ``--rounds`` give the ratio.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import numpy as np
from machine import describe, restart_clean

from mlpengine.config import load_config
from mlpengine.config.build import load_data

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
START = "start and end"
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


class Spent(NamedTuple):
    """The time of a command and of the processes it starts, in seconds."""

    wall: float
    processor: float


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


def ours(config: Path, out: Path, workers: int) -> tuple[Spent, float]:
    """Return the time of a sweep and its best loss."""
    command = [sys.executable, "-m", "mlpengine_cli.main", "sweep", str(config), "-q", "--json"]
    result, spent = timed([*command, "--out", str(out), "--workers", str(workers)])
    return spent, json.loads(result)["best"]["value"]


def theirs(arrays: Path, trials: int, epochs: int) -> tuple[Spent, float]:
    """Return the time of the loop around scikit-learn and its best loss."""
    command = [sys.executable, "-c", SCIKIT_LEARN, str(arrays), str(trials), str(epochs)]
    result, spent = timed(command)
    arrays.with_name(arrays.name + ".log").unlink()
    return spent, json.loads(result)


def timed(command: list[str]) -> tuple[str, Spent]:
    """Run a command; return its last line and the time it took."""
    began, before = perf_counter(), getrusage(RUSAGE_CHILDREN)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    seconds, after = perf_counter() - began, getrusage(RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ran.stdout.splitlines()[-1], Spent(seconds, processor)


def prepared(config: Path, path: Path) -> None:
    """Write the arrays of a config for scikit-learn."""
    parts = load_data(load_config(config)).parts
    train, validation = parts["train"], parts["validation"]
    np.savez(path, x=train.x, y=train.y.squeeze(), vx=validation.x, vy=validation.y.squeeze())


def measure(name: str, data: str, directory: Path, options: argparse.Namespace) -> None:
    """Run all contestants in turn and print a line for each."""
    configs = {}
    for title, trials, epochs in (("start", 1, 1), ("whole", options.trials, options.epochs)):
        configs[title] = directory / f"{name}-{title}.yaml"
        configs[title].write_text(CONFIG.format(data=data, epochs=epochs, trials=trials))
    arrays = directory / f"{name}.npz"
    prepared(configs["whole"], arrays)
    contestants = {
        START: lambda out: ours(configs["start"], out, 1),
        "one worker": lambda out: ours(configs["whole"], out, 1),
        "two workers": lambda out: ours(configs["whole"], out, 2),
        "Optuna, scikit-learn": lambda _: theirs(arrays, options.trials, options.epochs),
    }
    if options.ours:
        del contestants["Optuna, scikit-learn"]
    times: dict[str, list[Spent]] = {title: [] for title in contestants}
    best = {}
    ours(configs["start"], directory / f"{name}-warm", 1)  # writes byte code
    for number in range(options.rounds):
        for title, run in contestants.items():
            out = directory / f"{name}-{title.replace(' ', '-')}-{number}"
            spent, best[title] = run(out)
            times[title].append(spent)
    start = median(one.wall for one in times.pop(START))
    print(f"{name:10}{START:22}{start:8.1f}")
    first = times["one worker"]
    for title, spent in times.items():
        pairs = [(a.wall, b.wall) for a, b in zip(first, spent, strict=True)]
        ratios = [a / b for a, b in pairs]
        wall = median(one.wall for one in spent)
        print(
            f"{name:10}{title:22}{wall:8.1f}{3600 * options.trials / wall:12,.0f}"
            f"{median(ratios):8.2f}{f'{min(ratios):.2f}-{max(ratios):.2f}':>14}"
            f"{median((a - start) / (b - start) for a, b in pairs):10.2f}"
            f"{median(one.processor for one in spent):12.1f}{best[title]:12.4g}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="few trials, in seconds")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("penguins", "cars"), help="one table")
    parser.add_argument("--ours", action="store_true", help="without scikit-learn")
    options = parser.parse_args()
    if options.smoke:
        options.trials, options.epochs, options.rounds, options.only = 2, 2, 1, "penguins"
    restart_clean()
    describe()
    print(
        f"{'':10}{'':22}{'s':>8}{'trials/h':>12}{'ratio':>8}{'range':>14}{'trained':>10}"
        f"{'processor s':>12}{'best':>12}"
    )
    with TemporaryDirectory() as name:
        directory = Path(name)
        write_cars(directory / "cars.csv")
        tables = {
            "penguins": "{source: penguins}",
            "cars": f"{{source: {directory}/cars.csv, target: mpg}}",
        }
        for table, data in tables.items():
            if options.only in (None, table):
                measure(table, data, directory, options)


if __name__ == "__main__":
    main()
