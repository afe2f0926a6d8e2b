"""Whether verdicts are right, and whether their fixes help, on broken and on healthy runs.

``python benchmarks/diagnoses.py`` (``--part unseen`` for the figures to quote, ``--seeds 3``,
``--fixes`` to train each broken run again with the settings that its verdicts ask for, ``-v`` for
the verdicts, ``--smoke`` for a few runs) trains the runs of the tables below.  A healthy run must
get no verdict; a broken one must get the verdict that names its cause.  The last lines are the
shares of right and of false verdicts.

Thresholds (mlpengine/diagnostics/thresholds.py) are set by the runs of ``seen`` alone.  The runs of
``unseen`` are on tables of their own; no threshold was changed while looking at them.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partialmethod
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import yaml
from sklearn import datasets
from threadpoolctl import threadpool_limits

from mlpengine import Callback, Mlp
from mlpengine.config.baselines import linear_comparison
from mlpengine.config.build import LoadedData, load_data, trainer_of
from mlpengine.config.columns import cell_verdicts, column_verdicts
from mlpengine.config.load import check_config
from mlpengine.config.reader import Document
from mlpengine.config.tables import read_source, read_tables
from mlpengine.core.errors import NumericalError
from mlpengine.data.tables import Table, load_dataset
from mlpengine.data.tables.frames import as_table
from mlpengine.diagnostics import Verdict, combined_fix
from mlpengine.training.diagnose import LoopDiagnostics
from mlpengine.training.loop import Loop
from mlpengine.training.trainer import Trainer

BASES = """
digits     | hidden: [64], epochs: 20
diabetes   | hidden: [16], epochs: 40
penguins   | hidden: [16], optimizer.lr: 0.005, epochs: 40, batch: 16
cancer     | hidden: [16], optimizer.lr: 0.002, epochs: 30, batch: 16
wine       | hidden: [16], optimizer.lr: 0.005, epochs: 40, batch: 16
customers  | hidden: [16], optimizer.lr: 0.001, epochs: 8, batch: 64
waves      | hidden: [32, 32], optimizer.lr: 0.005, epochs: 60
friedman   | hidden: [32], optimizer.lr: 0.005, epochs: 40
fares      | hidden: [32], optimizer.lr: 0.003, epochs: 15
mixture    | hidden: [], optimizer.lr: 0.01, epochs: 60
spirals    | hidden: [32, 32], optimizer.lr: 0.005, epochs: 60
clusters   | hidden: [64], optimizer.lr: 0.003, schedule: cosine, epochs: 30
parity     | hidden: [32], optimizer.lr: 0.002, schedule: cosine, epochs: 20
course     | hidden: [8], optimizer.lr: 0.003, epochs: 20, batch: 16
arm        | hidden: [64, 64], optimizer.lr: 0.003, schedule: cosine, epochs: 40, batch: 64
houses     | hidden: [48], optimizer.lr: 0.003, schedule: cosine, epochs: 20, batch: 64
parcels    | hidden: [32], optimizer.lr: 0.005, schedule: cosine, epochs: 12, batch: 128
claims     | hidden: [12], optimizer.lr: 0.002, epochs: 12, batch: 64, by_class: true
demand     | hidden: [24], optimizer.lr: 0.002, epochs: 20
"""
"""Sound settings of each table, beside the defaults of configs; `SHORT` has the short keys."""

SHORT = {
    "hidden": "model.hidden",
    "units": "model.activation",
    "epochs": "training.epochs",
    "batch": "training.batch_size",
}

OPTIMIZERS = {"sgd", "adam", "adamw", "rmsprop"}
"""Keys with a learning rate, for a whole section."""

HEALTHY = {
    "seen": """
digits     |
digits     | hidden: [256, 128], model.dropout: 0.3, adamw: 0.002
digits     | hidden: [64, 64], sgd: 0.05, optimizer.momentum: 0.9
digits     | hidden: [64, 64, 64, 64], units: gelu
digits     | adam: 0.005, epochs: 60, batch: 256
diabetes   | hidden: [32], units: silu, loss: huber
diabetes   | hidden: [16, 16], units: tanh, sgd: 0.02, epochs: 60
diabetes   | hidden: [32], model.dropout: 0.2
penguins   |
cancer     |
wine       |
friedman   |
friedman   | rmsprop: 0.002, loss: huber
fares      |
fares      | sgd: 0.01, optimizer.momentum: 0.9
""",
    "unseen": """
spirals    |
spirals    | hidden: [48, 48], units: tanh, adamw: 0.01, epochs: 80
clusters   |
clusters   | hidden: [64, 64, 64], units: elu, model.dropout: 0.1
parity     |
parity     | hidden: [64], units: gelu, epochs: 40, batch: 128
course     |
arm        |
arm        | units: leaky_relu, sgd: 0.02, optimizer.momentum: 0.9
houses     |
customers  |
parcels    |
parcels    | hidden: [32, 32], data.standardize: minmax
claims     | data.class_weights: balanced
demand     |
demand     | hidden: [64], model.dropout: 0.2, adamw: 0.002
""",
}
"""Tables and settings of runs without a fault."""

BROKEN = {
    "seen": """
lr_high        | penguins | | optimizer.lr: 0.5
lr_low         | digits | | optimizer.lr: 1.0e-6
input_scale    | fares | | data.standardize: none
target_scale   | diabetes | | data.standardize_target: false
no_gradient    | digits | hidden: [64, 64] | model.initializer: zeros
start          | digits | hidden: [64, 64] | spoil: scaled 30
vanishing      | digits | hidden: [32], units: tanh | hidden: 32 x 12, spoil: scaled 0.25
exploding      | digits | hidden: 64 x 2, sgd: 0.0001 | spoil: tilted 100
dead           | digits | hidden: [64, 64] | spoil: shifted_biases -20
saturated      | digits | hidden: [64, 64], units: tanh | spoil: scaled 30
clip_low       | digits | sgd: 0.1 | training.clip_norm: 0.001
outlier        | digits | hidden: [64, 64] | spoil: one_row 10000
nonfinite      | friedman | | spoil: one_row nan
labels         | digits | hidden: [128] | epochs: 30, spoil: shuffled
overfitting    | diabetes | | hidden: [128, 128], epochs: 200
unfinished     | digits | hidden: [32, 32, 32] | optimizer.lr: 0.0001
underfitting   | digits | | hidden: [2], epochs: 40
behind_linear  | mixture | | hidden: [64, 64]
leak           | diabetes | | change: leaking 0.02
shifted        | friedman | | spoil: moved 3
noisy_labels   | digits | | spoil: noisy 0.3
decay_high     | digits | | adamw: 0.001, optimizer.weight_decay: 100.0
dropout_high   | digits | hidden: [64, 64] | model.dropout: 0.9
momentum_high  | digits | sgd: 0.05 | optimizer.momentum: 0.999
few_steps      | digits | | batch: 1258
output_clamped | diabetes | | output: relu
eps_large      | digits | | adam: 0.001, optimizer.eps: 1.0
imbalance      | penguins | sgd: 0.005, epochs: 10, change: rare 7 | epochs: 9
noise_scale    | digits | sgd: 0.02 | epochs: 200, batch: 1258
spikes         | waves | hidden: 32 x 2 | sgd: 0.1, optimizer.momentum: 0.9, batch: 840, epochs: 200
nothing_learned | waves | hidden: [2], data.split: {validation: 0, test: 0.3} | spoil: shuffled
""",
    "unseen": """
lr_high        | arm | | optimizer.lr: 0.5
lr_high        | clusters | sgd: 0.05, optimizer.momentum: 0.9 | optimizer.lr: 4.0
lr_low         | clusters | | optimizer.lr: 2.0e-6
lr_low         | houses | sgd: 0.05, optimizer.momentum: 0.9 | optimizer.lr: 5.0e-5
input_scale    | customers | | data.standardize: none
no_gradient    | parity | hidden: [32, 32] | model.initializer: zeros
start          | arm | | spoil: scaled 12
vanishing      | arm | hidden: [32, 32], units: sigmoid | hidden: 32 x 10
vanishing      | clusters | hidden: [32, 32], units: tanh | hidden: 32 x 14, spoil: scaled 0.333
exploding      | parity | hidden: [32, 32], sgd: 0.05, optimizer.momentum: 0.9 | spoil: tilted 300
dead           | clusters | | spoil: shifted_biases -15
saturated      | spirals | hidden: [64, 64], units: tanh | spoil: scaled 25
clip_low       | customers | sgd: 0.1 | training.clip_norm: 0.0005
outlier        | arm | | spoil: one_row 5000
nonfinite      | customers | | spoil: one_row nan
labels         | clusters | | spoil: shuffled
labels         | arm | | spoil: shuffled
overfitting    | course | hidden: [128, 128], epochs: 3 | epochs: 150
overfitting    | demand | hidden: [128, 128], epochs: 4 | epochs: 40
unfinished     | arm | schedule: constant | optimizer.lr: 0.0002, epochs: 8
unfinished     | clusters | schedule: constant | optimizer.lr: 0.0001, epochs: 12
underfitting   | clusters | | hidden: [1]
underfitting   | arm | | hidden: [2]
leak           | houses | | change: leaking 0.01
shifted        | arm | | spoil: moved 2
noisy_labels   | clusters | | spoil: noisy 0.35
decay_high     | arm | | adamw: 0.003, optimizer.weight_decay: 40.0
dropout_high   | arm | | model.dropout: 0.9
momentum_high  | demand | sgd: 0.02, optimizer.momentum: 0.5 | optimizer.momentum: 0.998
few_steps      | parcels | | epochs: 10, batch: 7000
output_clamped | houses | | output: relu
eps_large      | arm | | adam: 0.003, optimizer.eps: 1.0
imbalance      | claims | data.class_weights: balanced | data.class_weights: none
noise_scale    | parity | sgd: 0.05 | epochs: 150, batch: 1258
""",
}
"""The verdict that names the cause, the table, settings of both runs, and what breaks the run."""

SMOKE = ("lr_high, penguins", "leak, diabetes", "nonfinite, friedman", "healthy, wine")


def made_up(name: str) -> Table:
    """Return the rows of a made-up table."""
    rng = np.random.default_rng(sum(map(ord, name)))
    g, u = (lambda *shape: rng.normal(size=shape)), rng.uniform
    if name == "waves":
        x = u(-2, 2, (1200, 2))
        y = np.where(np.sin(2 * x[:, 0]) * np.sin(2 * x[:, 1]) > 0, "above", "below")
    elif name == "friedman":
        x, y = datasets.make_friedman1(1500, 10, noise=1.0, random_state=2)
    elif name == "mixture":
        x = g(500, 40)
        y = x @ g(40) + 1.5 * g(500)
    elif name == "demand":
        x = g(2000, 7)
        y = 6 * np.sin(1.5 * x[:, 0]) + 4 * np.abs(x[:, 1]) + 2 * x[:, 2]
        y += 4 * rng.standard_t(4, 2000)
    elif name == "spirals":
        arm, radius = rng.integers(0, 3, 900), u(0.2, 1, 900)
        angle = 4 * radius + 2 * np.pi / 3 * arm + 0.15 * g(900)
        x = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
        y = np.array(["inner", "middle", "outer"])[arm]
    elif name == "clusters":
        kinds = {"n_informative": 8, "n_redundant": 4, "n_classes": 6, "class_sep": 1.8}
        x, y = datasets.make_classification(3000, 16, flip_y=0.01, random_state=13, **kinds)
        y = np.array([f"kind {k}" for k in y])
    elif name == "arm":
        angles, lengths = u(-1.5, 1.5, (5000, 3)), u(0.5, 1.5, (5000, 3))
        sums, x = np.cumsum(angles, axis=1), np.hstack([angles, lengths])
        hand = (lengths * np.cos(sums)).sum(axis=1), (lengths * np.sin(sums)).sum(axis=1)
        y = np.hypot(hand[0] - 1, hand[1] - 1) + 0.02 * g(5000)
    else:  # claims
        false, x = rng.random(6000) < 0.04, g(6000, 6)
        x[:, 0] += 1.1 * false
        x[:, 1] = np.where(false, 0.7 * x[:, 1] + 1, x[:, 1])
        y = np.where(false, "false", "sound")
    return Table.from_arrays(x, y)


def of_texts(name: str) -> Table:
    """Return the rows of a made-up table with texts and missing cells."""
    rng, rows = np.random.default_rng(sum(map(ord, name))), 4000
    a, b, c = rng.gamma(2.0, 1.5, rows), rng.lognormal(0, 0.5, rows), rng.normal(size=rows)
    level, kind = rng.integers(0, 8, rows), rng.integers(0, 3, rows)
    late = a + 0.5 * level + c > 5
    lost = (b < 0.7) & (kind == 1) & (rng.random(rows) < 0.9)
    y = {
        "fares": 3 + 1.8 * a + 0.5 * level + 1.5 * (kind == 2) + rng.normal(0, 1, rows),
        "houses": np.exp(0.3 * level + 0.5 * np.log(a) + 0.1 * rng.normal(size=rows)) * (1 + kind),
        "customers": np.where(2 * c + 1.5 * (kind == 0) > rng.logistic(size=rows), "go", "stay"),
        "parcels": np.where(lost, "lost", np.where(late, "late", "in time")),
    }[name]
    missing = rng.random(rows) < 0.05
    columns = {
        "a": [None if gap else v for v, gap in zip(a.tolist(), missing, strict=True)],
        "b": b,
        "c": 40 + 1000 * c if name in ("customers", "houses", "fares") else c,
        "level": [f"level {k}" for k in level],
        "kind": [f"kind {k}" for k in kind],
        "y": y.tolist(),
    }
    return as_table(columns)


def of_scikit_learn(name: str) -> Table:
    """Return the rows of a data set of scikit-learn as classes."""
    loader = {"cancer": "breast_cancer", "parity": "digits", "course": "diabetes"}.get(name, name)
    bunch = getattr(datasets, f"load_{loader}")()
    y = {"parity": bunch.target % 2, "course": bunch.target > 140}.get(name, bunch.target)
    return Table.from_arrays(bunch.data, np.array([f"class {k}" for k in y]))


TARGETS = {"digits": "digit", "diabetes": "progression", "penguins": "species"}
"""Target columns; of the other tables "y"."""


@cache
def table_of(name: str, change: str = "") -> Table:
    """Return a table, after a change."""
    if name in TARGETS:
        table = load_dataset(name)
    elif name in ("cancer", "wine", "parity", "course"):
        table = of_scikit_learn(name)
    elif name in ("fares", "houses", "customers", "parcels"):
        table = of_texts(name)
    else:
        table = made_up(name)
    return changed(table, TARGETS.get(name, "y"), *change.split()) if change else table


def changed(table: Table, target: str, how: str, number: str = "1") -> Table:
    """Return a table with a leak or a rare class."""
    values = table[target].values.astype(np.float64)
    if how == "rare":  # one row in so many of the last class
        chosen = values == values.max()
        return table.rows(np.flatnonzero(~chosen | (np.cumsum(chosen) % int(number) == 0)))
    noise = np.random.default_rng(0).normal(size=len(values))
    leak = (values - values.mean()) / values.std() + float(number) * noise
    return table.join(Table.from_arrays(leak[:, None], names=["settled"]))


class Spoiler(Callback):
    """Changes network and rows of a loop before the diagnostics look at them."""

    order = -100

    def __init__(self, how: str) -> None:
        self._how, number = [*how.split(), "0"][:2]
        self._number = float(number)

    def on_train_start(self, loop: Loop) -> None:
        """Change them in place."""
        by, train, mlp, rng = self._number, loop.train, loop.step.mlp, np.random.default_rng(0)
        if self._how == "scaled":
            for weight in mlp.weights:
                weight *= by
        elif self._how == "tilted":
            mlp.weights[0][...] /= by
            mlp.weights[-1][...] *= by
        elif self._how == "shifted_biases":
            for bias in mlp.biases[:-1]:
                bias += by
        elif self._how == "one_row":
            train.x[100, :4] = by
        elif self._how == "moved":
            loop.validation.x[:, int(by)] += 2.0
        elif self._how == "shuffled":
            order = rng.permutation(len(train))
            train.y[...], train.truth[...] = train.y[order], train.truth[order]
        else:  # a share of noisy labels
            rows = rng.choice(len(train), round(by * len(train)), replace=False)
            other = train.truth[rows] + rng.integers(1, train.truth.max() + 1, len(rows))
            train.truth[rows] = other % (train.truth.max() + 1)
            train.y[rows] = train.truth[rows] if train.y.ndim == 1 else train.truth[rows, None]


@dataclass(frozen=True)
class SetUp:
    """A run: its table, sound settings, what breaks it, and the verdict on the cause."""

    reason: str
    table: str
    settings: Mapping[str, Any]
    broken: Mapping[str, Any]

    def __str__(self) -> str:
        changes = self.broken if self.reason else self.settings
        text = ", ".join(f"{key} {value}" for key, value in changes.items())
        return f"{self.reason or 'healthy'}, {self.table}: {text}"


def settings_in(text: str) -> dict[str, Any]:
    """Return the settings of a cell of a table, with whole keys."""
    settings = {SHORT.get(key, key): value for key, value in yaml.safe_load(f"{{{text}}}").items()}
    for name in OPTIMIZERS & settings.keys():
        settings = {"optimizer": {"name": name, "lr": settings.pop(name)}, **settings}
    if isinstance(layers := settings.get("model.hidden"), str):
        units, count = map(int, layers.split(" x "))
        settings["model.hidden"] = [units] * count
    return settings


def cells(text: str) -> list[list[str]]:
    """Return the cells of the lines of a table."""
    return [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]


SOUND = {name: settings_in(text) for name, text in cells(BASES)}


def setups(part: str) -> list[SetUp]:
    """Return the runs of a part, the broken ones first."""
    broken = [
        SetUp(reason, table, settings_in(settings), settings_in(change))
        for reason, table, settings, change in cells(BROKEN[part])
    ]
    return [*broken, *(SetUp("", name, settings_in(s), {}) for name, s in cells(HEALTHY[part]))]


class Outcome(NamedTuple):
    """The verdicts of a run, its score on the validation rows (NaN if it failed), its watcher."""

    verdicts: list[Verdict]
    score: float
    watcher: LoopDiagnostics

    @property
    def names(self) -> list[str]:
        return [verdict.name for verdict in self.verdicts]


def trainer_for(setup: SetUp, seed: int, settings: Mapping[str, Any]) -> tuple[LoadedData, Trainer]:
    """Return data and trainer of a run with these settings by dotted key."""
    config: dict[str, Any] = {"seed": seed, "report": False, "training": {"batch_size": 32}}
    config["data"] = {"source": "benchmark", "target": TARGETS.get(setup.table, "y"),
                      "missing": "median", "split": {"validation": 0.3, "test": 0}}  # fmt: skip
    extra = {key: settings.get(key) for key in ("change", "output")}
    for key, value in settings.items():
        *above, last = key.split(".")
        section = config
        for name in above:
            section = section.setdefault(name, {})
        if key not in ("change", "spoil", "output", "by_class"):
            section[last] = deepcopy(value)
    document = Document("benchmark", data=config)
    document.places[()] = ("benchmark", 0)
    file = check_config(Path("benchmark"), document)
    table = table_of(setup.table, extra["change"] or "")
    data = load_data(file, tables=read_tables(file, read_source(file, table=table)))
    made = partialmethod(Mlp.__init__, output_activation=extra["output"])
    with patch("mlpengine.training.networks.Mlp", type("Mlp", (Mlp,), {"__init__": made})):
        return data, trainer_of(data)


def run(setup: SetUp, seed: int = 1, fix: Mapping[str, Any] | None = None, *,
        is_broken: bool = True) -> Outcome:  # fmt: skip
    """Train a run, with the settings of a fix, or its healthy counterpart."""
    settings: dict[str, Any] = {}
    broken = setup.broken if is_broken else {}
    for one in (SOUND[setup.table], setup.settings, broken, fix or {}):
        settings = {k: v for k, v in settings.items() if k not in one} | one  # the last ones last
    data, trainer = trainer_for(setup, seed, settings)
    watcher, score = LoopDiagnostics(), float("nan")
    spoilers = [Spoiler(settings["spoil"])] if "spoil" in settings else []
    loop = trainer.loop([*spoilers, watcher])
    with suppress(NumericalError):  # the verdicts have it
        loop.run()
        part = trainer.validation or trainer.train
        predicted = trainer.task.predict(trainer.networks[0].predict(part.x))
        score = score_on(predicted, part.truth, by_class=settings.get("by_class", False))
    columns = [*cell_verdicts(data.file, data.tables), *column_verdicts(data.file, data.tables)]
    watcher.core.baseline_score = linear_comparison(data, trainer.mean)
    return Outcome([*columns, *watcher.verdicts()], score, watcher)


def score_on(predicted: np.ndarray, truth: np.ndarray, *, by_class: bool) -> float:
    """Return the accuracy, the mean recall, or minus the root mean squared error."""
    if truth.ndim == 2:
        return -float(np.sqrt(np.square(predicted - truth).mean()))
    right = predicted == truth
    return fmean(right[truth == k].mean() for k in np.unique(truth)) if by_class else right.mean()


def judge(task: tuple[SetUp, int, bool, bool]) -> dict[str, Any]:
    """Return whether the verdicts on a run are right, the first one, too, and the fix cures."""
    setup, seed, verbose, fixes = task
    with threadpool_limits(1), np.errstate(all="ignore"):
        outcome = run(setup, seed)
        names, cured = outcome.names, None
        right = setup.reason in names if setup.reason else not names
        lines = [f"{'ok   ' if right else 'WRONG'} {seed} {setup!s:.70} -> {', '.join(names)}"]
        lines += [f"        {verdict}" for verdict in outcome.verdicts if verbose]
        settings = {key: value for key, (value, _) in combined_fix(outcome.verdicts).items()}
        if fixes and settings:
            after = run(setup, seed, settings).score
            wanted = run(setup, seed, is_broken=False).score
            cured = after >= (0.95 if wanted > 0 else 1.05) * wanted
            lines.append(
                f"        cured: {cured} ({outcome.score:.3g} -> {after:.3g}, {wanted:.3g})"
            )
    first = names[:1] == [setup.reason]
    return {"is_broken": bool(setup.reason), "right": right, "first": first, "cured": cured,
            "text": "\n".join(lines)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("seen", "unseen"), default="seen")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--only", default="", help="part of the names of the runs")
    parser.add_argument("--fixes", action="store_true", help="also carry out the fixes")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--smoke", action="store_true", help="a few runs")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the verdicts")
    args = parser.parse_args()
    chosen = [one for one in setups(args.part) if args.only in str(one)]
    if args.smoke:
        chosen = [one for one in chosen if str(one).startswith(SMOKE)]
    tasks = [(one, seed, args.verbose, args.fixes or args.smoke) for one in chosen
             for seed in range(1, args.seeds + 1)]  # fmt: skip
    judged = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for one in pool.map(judge, tasks) if args.jobs > 1 else map(judge, tasks):
            judged.append(one)
            print(one["text"], flush=True)
    report(judged)
    if args.smoke and not all(one["right"] for one in judged):
        sys.exit("a verdict is wrong")


def report(judged: list[dict[str, Any]]) -> None:
    """Print the shares of right and of false verdicts, and of fixes that cure."""
    counts: list[tuple[str, Callable[[dict[str, Any]], bool], str]] = [
        ("broken runs whose cause is named", lambda one: one["is_broken"], "right"),
        ("broken runs whose first verdict is right", lambda one: one["is_broken"], "first"),
        ("healthy runs without a verdict", lambda one: not one["is_broken"], "right"),
        ("fixes that cure", lambda one: one["cured"] is not None, "cured"),
    ]
    for title, belongs, key in counts:
        values = [one[key] for one in judged if belongs(one)]
        if values:
            print(f"{title:<42} {sum(values):>4} of {len(values):>4} ({fmean(values):.1%})")


if __name__ == "__main__":
    main()
