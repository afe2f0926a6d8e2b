"""Measure whether verdicts are right, and whether their fixes help, on healthy and broken runs.

``python benchmarks/diagnoses.py --tables DIR`` (``--half kept`` for the figures to quote,
``--seeds 3``, ``--only rate_high``, ``-v`` for the verdicts, ``--json``, ``--smoke`` for a few
runs) writes a table, calls ``mlpengine init``, edits the config, and calls ``mlpengine train`` and
``mlpengine train --fix``.  A healthy run must get no warning.  The first verdict of a broken run
must be one of its right names in `BROKEN`, which were written down before the first run.

A hash of its name puts each table, with all its runs, into one of two halves; tables of `FRESH` are
always in the half ``kept``.  Rules and thresholds (mlpengine/diagnostics/thresholds.py) are chosen
on the other half only.  Kinds of broken runs in `UNSEEN` are only in the half ``kept``.  If fewer
than 90 % of a rule's warnings on the other half are right, the rule becomes a note.

Scores are measured on rows that no run reads: R2 for numbers; for classes the mean recall, scaled
so that a constant prediction has 0.  A run is harmed if its score is below the score of the sound
config by more than a tenth and by 0.03.  A fix cures a run if it is no longer harmed.  A fix makes
a run worse if the score falls by as much, and by more than two standard errors on the same rows.
"""

import argparse
import hashlib
import io
import json
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import yaml
from sklearn import datasets

from mlpengine_cli.main import run as command

ROWS, HIDDEN, DRAWS = 800, 1000, 200
"""Maximum rows of a run's table, maximum rows for scores, and number of bootstrap samples."""

HEALTHY = """
acs_income ames_housing arrest_released attrition avocado_price:time=date beps_vote bikeshare
ca_schools_math check_times chicago_taxi_tip chile_vote churn computer_prices concrete
contraception_use contraceptive_method credit_approval credit_status cylinder_bands deliveries
ev_charging:group=user_id exam_score:group=school fifa_value fishing_mode german_credit
guatemala_immunization house_votes hsb_math ipf_deadlift:group=name isl_wage kershaw_pitches
king_county_housing:time=date libras marketing_income optdigits_full orange_juice pendigits phoneme
pima psid_wage:group=id rain_innsbruck resume_callback road_speed sa_heart sacramento_housing
satellite slid_wages smoker telco_churn vietnam_pharmacy yogurt_choice yrbss_weight
flchain rotterdam gbsg movielens minneapolis_stops
"""
"""Tables of healthy runs, with options of ``init``.  Each has a run with folds and one without."""

SINGLE = [
    "",
    "units: tanh",
    "optimizer: {name: adam, lr: 0.001}, schedule: constant",
    "dropout: 0.2, hidden: [64, 64]",
    "optimizer: {name: sgd, lr: 0.02, momentum: 0.9}",
    "hidden: [128, 64], batch: 64",
]
"""Further sound settings of healthy runs with one network; a hash chooses one."""

SHORT = {
    "hidden": "model.hidden",
    "units": "model.activation",
    "dropout": "model.dropout",
    "initializer": "model.initializer",
    "lr": "optimizer.lr",
    "decay": "optimizer.weight_decay",
    "epochs": "training.epochs",
    "batch": "training.batch_size",
    "stopping": "training.early_stopping",
    "members": "training.members",
    "scaling": "data.standardize",
}
TEMPLATES = {
    "SGD": "optimizer: {name: sgd, lr: 0.05, momentum: 0.9}",
    "ADAM": "optimizer: {name: adam, lr: 0.003}",
    "RAW": "data.encoding: none, data.clip: none, data.transform_target: none, members: []",
}

BROKEN = """
rate_high | lr_high nonfinite+optimizer.lr | any | | lr: 3.0
rate_high_sgd | lr_high nonfinite+optimizer.lr | any | SGD | lr: 2.0
rate_30_times | lr_high spikes+optimizer.lr | any | | lr: 0.1
rate_low | lr_low unfinished+optimizer.lr | any | | lr: 3.0e-6
rate_low_sgd | lr_low unfinished+optimizer.lr | any | SGD | lr: 2.0e-6
few_epochs | unfinished few_epochs few_steps | any | | epochs: 2
no_scaling | input_scale | number | RAW | scaling: none
target_unscaled | target_scale | number | RAW | data.standardize_target: false
absurd_target | outlier target_outlier | number | RAW | change: absurd_target 1e6
absurd_cell | outlier input_scale sentinel | measured | RAW | change: absurd_cell 1e9
codes_as_numbers | codes class_codes | many | | change: codes, data.task: regression
sentinel | sentinel input_scale outlier | measured | RAW | change: sentinel -99999
leak_dates | leak too_good | any | | change: dates
leak_copy | leak too_good | any | | change: target_copy
leak_filled | leak too_good | two | | change: filled_later
leak_number | leak too_good | any | | change: sorted_number
near_copies | copies near_copies duplicates too_good | any | | change: near_copies
labels_shuffled | labels nothing_learned | any | | change: shuffled 1
labels_half | noisy_labels labels | clear | | change: shuffled 0.5
validation_unit | shifted | measured single | | change: other_unit 2.54
validation_later | shifted | measured single | | change: cut_by_feature
validation_one_class | shifted classes one_class | class single | | change: cut_by_class
sensor_stuck | shifted constant constant_column | measured single | | change: stuck
decay | decay_high | any | | decay: 10.0
decay_sgd | decay_high lr_high | any | SGD | decay: 1.0
momentum | momentum_high | any | SGD | optimizer.momentum: 0.999
initial_zeros | no_gradient | any | | initializer: zeros
dead_first | dead no_gradient | any | hidden: [64, 64] | units: ["maximum(x - 20, 0)", relu]
dead_all | dead no_gradient | any | hidden: [64] | units: ["maximum(x - 8, 0)"]
saturated | saturated input_scale start | number | RAW, units: tanh | scaling: none
saturated_start | saturated start | any | units: tanh, hidden: [128, 128]
                | initializer: unit_normal
deep_sigmoid | vanishing | any | | hidden: [32, 32, 32, 32, 32, 32, 32, 32], units: sigmoid
tiny | underfitting narrow | many | | hidden: [1]
huge_batch | few_steps noise_scale unfinished | any | epochs: 20 | batch: 4096
wrong_loss | wrong_loss loss biased | number | | loss: {name: quantile, levels: [0.98]}
clip_low | clip_low | any | SGD | training.clip_norm: 1.0e-4
dropout | dropout_high | any | hidden: [32, 32] | dropout: 0.9
decays_at_once | schedule lr_low unfinished+schedule | any
               | | schedule: {name: exponential, factor: 0.1}
steps_down | schedule lr_low unfinished+schedule | any
           | | schedule: {name: step, every_epochs: 1, factor: 0.2}
overfit | overfitting | any single
        | change: few 60, stopping: null, hidden: [256, 256], epochs: 10
        | epochs: 300, decay: 0.0
mixed_units | outlier target_scale target_unit mixed_units | number | RAW
            | change: mixed_units 1000
text_numbers | text text_numbers numbers_as_text | measured | | change: text_numbers
eps_large | eps_large lr_low | any | ADAM | optimizer.eps: 10.0
frozen | frozen no_gradient underfitting | any | hidden: [16, 16] | training.freeze: [0, 1]
batch_of_one | lr_high spikes small_batch | any | lr: 0.02 | batch: 1
rows_moved | labels nothing_learned | any | | change: moved
leak_binned | leak too_good | number | | change: binned 20
validation_repeats | copies near_copies duplicates too_good | any single | | change: repeats
"""
"""Broken runs: kind, right names of verdicts, tables, sound settings, settings that break the run.

A name with ``+key`` is right only with a fix of this setting.  Tables are `CLASSES`, `NUMBERS`, or
both (any); a hash chooses one table for a single network and one for folds.  ``change`` names a
function in `CHANGES` that changes rows.
"""

UNSEEN = """
one_epoch | unfinished few_epochs few_steps | any | | epochs: 1
rate_high_tanh | lr_high nonfinite+optimizer.lr | any | units: tanh | lr: 1.0
rate_high_lion | lr_high nonfinite+optimizer.lr | any
               | optimizer: {name: lion, lr: 0.0003} | lr: 0.5
rate_low_rmsprop | lr_low unfinished+optimizer.lr | any
                 | optimizer: {name: rmsprop, lr: 0.001} | lr: 1.0e-7
rate_high_rmsprop | lr_high nonfinite+optimizer.lr | any
                  | optimizer: {name: rmsprop, lr: 0.001} | lr: 1.0
momentum_adam | momentum_high | any | ADAM | optimizer.betas: [0.999, 0.9995]
warm_up | schedule lr_low unfinished+schedule | any
        | | schedule: {name: constant, warmup_epochs: 3000}
deep_sigmoid_sgd | vanishing | any | SGD | hidden: [24, 24, 24, 24, 24, 24], units: sigmoid
labels_third | noisy_labels labels | clear | | change: shuffled 0.35
validation_unit_1000 | shifted | measured single | | change: other_unit 1000
sentinel_9999 | sentinel input_scale outlier | measured | RAW | change: sentinel 9999999
validation_target | shifted target_shifted target_unit target_scale | number single
                  | | change: other_target 1000
"""
"""Kinds of broken runs that are only in the half ``kept``; no rule was made for them."""

FRESH = frozenset(["flchain", "rotterdam", "gbsg", "movielens", "minneapolis_stops"])
"""Tables on which no rule was chosen with any salt; always in the half ``kept``."""

NUMBERS = """ames_housing avocado_price bikeshare check_times computer_prices concrete deliveries
fifa_value ipf_deadlift isl_wage king_county_housing road_speed sacramento_housing
flchain rotterdam gbsg"""
TWO = """churn credit_approval credit_status orange_juice phoneme pima smoker telco_churn
minneapolis_stops"""
MANY = "letters libras optdigits_full pendigits satellite shuttle yogurt_choice"
CLEAR = "letters optdigits_full pendigits satellite shuttle phoneme"
POOLS = {"number": NUMBERS, "measured": re.sub("ipf_deadlift|flchain", "", NUMBERS), "clear": CLEAR,
         "class": f"{TWO} {MANY}", "two": TWO, "many": MANY,
         "any": f"{NUMBERS} {TWO} {MANY}"}  # fmt: skip
"""Tables of broken runs.  Tables in ``measured`` have number features without missing values.

Without a folder, formulas make the tables.
"""

SMOKE = ("initial_zeros, pendigits", "healthy, concrete folds")


Rows = tuple[pd.DataFrame, str, bool]
"""A table of texts, its target, and whether the target is a class."""


def by_formula(name: str) -> Rows:
    """Return nine overlapping classes of 12 features, or a curved function of 8."""
    if is_class := name not in NUMBERS.split():
        x, y = datasets.make_classification(2400, 12, n_informative=8, n_redundant=2, n_classes=9,
                                            class_sep=1.6, random_state=3)  # fmt: skip
        x, y = 100 * x, np.array([f"letter {'ABCDEFGHI'[k]}" for k in y])
    else:
        x, y = datasets.make_friedman1(2000, 8, noise=1.0, random_state=0)
    frame = pd.DataFrame(np.round(x, 3)).add_prefix("x").astype(str)
    return frame.assign(y=y.astype(str)), "y", is_class


@cache
def table_of(folder: str, name: str) -> Rows:
    """Return a table of the folder; without a folder, a table made by a formula."""
    if name == "letters" or not folder:
        return by_formula(name)
    known = {one["name"]: one for one in json.loads((Path(folder) / "tables.json").read_text())}
    facts = known[name]
    frame = pd.read_csv(Path(folder) / f"{name}.csv.gz", dtype=str, keep_default_na=False)
    frame = frame[~frame[facts["target"]].isin(["", "NA"])]
    keep = {facts.get("group"), "date"}
    frame = frame.drop(columns=[one for one in facts["drop"] if one not in keep])
    return frame, facts["target"], facts["task"] == "classification"


def number_of(name: str) -> int:
    """Return the hash of a name; another salt gives other halves."""
    text = f"2026-11-29b {name}"
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), 16)


@cache
def kept_back() -> frozenset[str]:
    """Return the tables of the half ``kept``: in each group, every second table by hash."""
    healthy = {line.partition(":")[0] for line in HEALTHY.split()}
    groups = [{*NUMBERS.split()} - FRESH, {*TWO.split()} - FRESH, {*MANY.split()}]
    groups.append(healthy.difference(FRESH, *groups))
    return FRESH.union(*(sorted(group, key=number_of)[::2] for group in groups))


def half_of(table: str) -> str:
    """Return the half of a table; all its runs belong to it."""
    return "kept" if table in kept_back() else "choosing"


@dataclass
class Parts:
    """The rows of a run as texts: training, `hidden` (for its score), and perhaps validation."""

    rows: pd.DataFrame
    hidden: pd.DataFrame
    target: str
    is_class: bool
    rng: np.random.Generator
    validation: pd.DataFrame | None = None

    @property
    def both(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        return self.rows, self.hidden

    def codes(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the target as numbers, the classes in the order of their names."""
        if not self.is_class:
            return frame[self.target].astype(float).to_numpy()
        levels = sorted({*self.rows[self.target], *self.hidden[self.target]})
        return frame[self.target].map(levels.index).to_numpy(float)

    def numbers(self) -> list[str]:
        """Return the number columns, the most predictive first."""
        found, y = {}, self.codes(self.rows)
        for name in self.rows.columns.drop(self.target):
            values = pd.to_numeric(self.rows[name], errors="coerce").to_numpy(float)
            if np.isfinite(values).all() and len(set(values)) > 5:
                found[name] = abs(np.corrcoef(values, y)[0, 1])
        return sorted(found, key=lambda name: -found[name])

    def add(self, name: str, train: np.ndarray, hidden: np.ndarray) -> None:
        """Add a column; its values in `hidden` are those that are known at prediction time."""
        self.rows[name], self.hidden[name] = train.astype(str), hidden.astype(str)


def absurd_target(parts: Parts, factor: float) -> None:
    row, column = len(parts.rows) // 2, parts.rows.columns.get_loc(parts.target)
    parts.rows.iloc[row, column] = f"{float(parts.rows.iloc[row, column]) * factor:.10g}"


def absurd_cell(parts: Parts, value: float) -> None:
    column = parts.rows.columns.get_loc(parts.numbers()[0])
    parts.rows.iloc[len(parts.rows) // 2, column] = f"{value:.0f}"


def sentinel(parts: Parts, value: float) -> None:
    for name in parts.numbers()[:2]:
        for frame in parts.both:
            frame.loc[parts.rng.random(len(frame)) < 0.06, name] = f"{value:.0f}"


def dates(parts: Parts, _: float) -> None:
    """Add two dates; their distance reveals the target, but not in the hidden rows."""
    y = parts.codes(parts.rows)
    scaled = (y - y.min()) / np.ptp(y)
    for frame, apart in zip(parts.both, (scaled, parts.rng.permutation(scaled)), strict=True):
        begin = pd.Timestamp("2024-01-01") + pd.to_timedelta(
            parts.rng.integers(0, 700, len(frame)), unit="D"
        )
        days = np.resize(np.round(10 + 300 * apart), len(frame))
        frame["opened"] = begin.strftime("%Y-%m-%d")
        frame["closed"] = (begin + pd.to_timedelta(days, unit="D")).strftime("%Y-%m-%d")


def target_copy(parts: Parts, _: float) -> None:
    """Add a column that is recorded afterwards: the target in another unit, with small errors."""
    y = parts.codes(parts.rows)
    copy = np.round(3.7 * (y + 0.02 * y.std() * parts.rng.normal(size=len(y))) + 11, 3)
    parts.add("settled", copy, np.resize(parts.rng.permutation(copy), len(parts.hidden)))


def filled_later(parts: Parts, _: float) -> None:
    """Add a text column that is filled in afterwards, only for rows of one class."""
    y = parts.codes(parts.rows)
    reasons = parts.rng.choice(["called back", "by letter", "in person"], len(y))
    filled = (y == y.max()) & (parts.rng.random(len(y)) < 0.97)
    parts.add("reason", np.where(filled, reasons, ""), np.full(len(parts.hidden), ""))


def sorted_number(parts: Parts, _: float) -> None:
    """Add row numbers of a file that was sorted by the target."""
    y = parts.codes(parts.rows)
    order = np.argsort(y + 1e-9 * parts.rng.random(len(y)))
    number = np.empty(len(y), int)
    number[order] = 1000 + 3 * np.arange(len(y)) + parts.rng.integers(0, 3, len(y))
    parts.add("record", number, number.max() + 7 * np.arange(1, len(parts.hidden) + 1))


def near_copies(parts: Parts, _: float) -> None:
    """Repeat each row four times with small errors in the numbers, as from repeated visits."""
    parts.rows = parts.rows.iloc[: len(parts.rows) // 3]
    numbers, copies = parts.numbers(), []
    for _ in range(4):
        copy = parts.rows.copy()
        for name in numbers:
            values = copy[name].astype(float)
            errors = 0.003 * values.std() * parts.rng.normal(size=len(copy))
            copy[name] = [f"{value:.6g}" for value in values + errors]
        copies.append(copy)
    order = parts.rng.permutation(4 * len(parts.rows))
    parts.rows = pd.concat(copies, ignore_index=True).iloc[order]


def shuffled(parts: Parts, share: float) -> None:
    places = np.flatnonzero(parts.rng.random(len(parts.rows)) < share)
    values = parts.rows[parts.target].to_numpy().copy()
    values[places] = values[parts.rng.permutation(places)]
    parts.rows[parts.target] = values


def cut(parts: Parts, order: np.ndarray, size: int = 0) -> None:
    """Make the last `size` of the ordered rows (by default a quarter) the validation file."""
    rows, size = parts.rows.iloc[order], size or len(order) // 4
    parts.rows, parts.validation = rows.iloc[:-size].copy(), rows.iloc[-size:].copy()


def other_unit(parts: Parts, factor: float) -> None:
    names = parts.numbers()[:4]
    cut(parts, parts.rng.permutation(len(parts.rows)))
    for name in names:
        values = factor * parts.validation[name].astype(float)
        parts.validation[name] = [f"{value:.6g}" for value in values]


def cut_by_feature(parts: Parts, _: float) -> None:
    """Sort the file by its most predictive column, and validate on its end."""
    values = parts.rows[parts.numbers()[0]].astype(float)
    cut(parts, np.argsort(values.to_numpy(), kind="stable"))


def cut_by_class(parts: Parts, _: float) -> None:
    """Validate on half of the rows of the most common class."""
    codes = parts.codes(parts.rows).astype(int)
    counts = np.bincount(codes)
    cut(parts, np.argsort(counts[codes], kind="stable"), int(counts.max()) // 2)


def codes(parts: Parts, _: float) -> None:
    """Write the classes as numbers."""
    both = [parts.codes(frame) for frame in parts.both]  # before a class changes its name
    for frame, numbers in zip(parts.both, both, strict=True):
        frame[parts.target] = numbers.astype(int).astype(str)


def stuck(parts: Parts, _: float) -> None:
    """Make the most predictive column constant in the training rows, as from a stuck sensor."""
    name = parts.numbers()[0]
    cut(parts, parts.rng.permutation(len(parts.rows)))
    parts.rows[name] = parts.rows[name].iloc[0]


def moved(parts: Parts, _: float) -> None:
    """Move the target down by one row, as after a wrong join."""
    parts.rows[parts.target] = np.roll(parts.rows[parts.target], 1)


def binned(parts: Parts, bins: float) -> None:
    """Add a grade that is given afterwards, from the target."""
    grade = pd.qcut(parts.codes(parts.rows), int(bins), labels=False, duplicates="drop")
    later = parts.rng.permutation(grade)
    names = [np.array([f"grade {one}" for one in of]) for of in (grade, later)]
    parts.add("grade", names[0], np.resize(names[1], len(parts.hidden)))


def repeats(parts: Parts, _: float) -> None:
    """Make most validation rows training rows, too."""
    cut(parts, parts.rng.permutation(len(parts.rows)))
    count = int(0.8 * len(parts.validation))
    parts.validation.iloc[:count] = parts.rows.iloc[:count].to_numpy()


def other_target(parts: Parts, factor: float) -> None:
    """Write the target of the validation file in another unit."""
    cut(parts, parts.rng.permutation(len(parts.rows)))
    values = factor * parts.validation[parts.target].astype(float)
    parts.validation[parts.target] = [f"{value:.8g}" for value in values]


def few(parts: Parts, count: float) -> None:
    """Keep `count` training rows, and 200 validation rows."""
    order = parts.rng.permutation(len(parts.rows))[: int(count) + 200]
    rows = parts.rows.iloc[order]
    parts.rows, parts.validation = rows[: int(count)].copy(), rows[int(count) :].copy()


def mixed_units(parts: Parts, factor: float) -> None:
    """Write the target of a tenth of the rows in another unit, as from another source."""
    other = parts.rng.random(len(parts.rows)) < 0.1
    values = parts.rows[parts.target].astype(float)
    parts.rows[parts.target] = [f"{v:.8g}" for v in values.where(~other, factor * values)]


def text_numbers(parts: Parts, _: float) -> None:
    """Write the two most predictive numbers with a unit, as texts."""
    for name in parts.numbers()[:2]:
        for frame in parts.both:
            frame[name] = [f"{float(value):.10g} units" for value in frame[name]]


CHANGES: dict[str, Callable[[Parts, float], None]] = {
    one.__name__: one
    for one in (
        absurd_target, absurd_cell, sentinel, dates, target_copy, filled_later,
        sorted_number, near_copies, shuffled, other_unit, cut_by_feature, cut_by_class, stuck, few,
        codes, mixed_units, text_numbers, moved, binned, repeats, other_target,
    )
}  # fmt: skip


@dataclass(frozen=True)
class SetUp:
    """A run: kind ("healthy", or what is broken), right names of verdicts, table and settings."""

    kind: str
    right: tuple[str, ...]
    table: str
    folds: bool
    sound: str
    broken: str = ""
    options: tuple[str, ...] = ()

    @property
    def both(self) -> str:
        """The sound settings, changed by the settings that break the run."""
        return ", ".join(filter(None, [self.sound, self.broken]))

    def __str__(self) -> str:
        return f"{self.kind}, {self.table} {'folds' if self.folds else 'single'}"


def setups() -> Iterator[tuple[str, SetUp]]:
    """Return all runs, each with its half."""
    for lines in (BROKEN, UNSEEN):
        for line in re.sub(r"\n +", " ", lines.strip()).splitlines():
            kind, right, pool, sound, broken = (cell.strip() for cell in line.split(" |"))
            name, _, single = pool.partition(" ")
            for half in ("kept",) if lines == UNSEEN else ("choosing", "kept"):
                tables = sorted(
                    (table for table in POOLS[name].split() if half_of(table) == half),
                    key=lambda table: number_of(f"{kind} {table}"),
                )
                for table, folds in zip(tables, (False, not single), strict=False):
                    yield half, SetUp(kind, tuple(right.split()), table, folds, sound, broken)
    for table in HEALTHY.split():
        name, _, option = table.partition(":")
        options = tuple(f"--{option}".split("=")) if option else ()
        variant = SINGLE[number_of(name) // 2 % len(SINGLE)]
        for folds in (True, False):
            sound = "" if folds else variant
            yield half_of(name), SetUp("healthy", (), name, folds, sound, "", options)


def call(*args: str) -> tuple[int, str, str]:
    """Run the command line in this process; return its exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = command([*args], [])
        except Exception as error:  # a person would see a traceback
            code, _ = 99, err.write(f"crash: {error!r}")
    return code, out.getvalue(), err.getvalue()


def parts_of(folder: str, setup: SetUp, seed: int) -> Parts:
    """Return the rows of a run and its hidden rows, before any change."""
    (frame, target, is_class), rng = table_of(folder, setup.table), np.random.default_rng(seed)
    order = rng.permutation(len(frame))
    count = min(ROWS, len(frame) - min(HIDDEN, len(frame) // 3))
    chosen = [frame.iloc[np.sort(order[:count])], frame.iloc[order[count:][:HIDDEN]]]
    return Parts(*(one.reset_index(drop=True) for one in chosen), target, is_class, rng)


def write(setup: SetUp, parts: Parts, settings: str, seed: int) -> str:
    """Write the tables, call ``init``, and edit the config; return an error message, or ""."""
    for short, text in TEMPLATES.items():
        settings = settings.replace(short, text)
    read = yaml.safe_load(f"{{{settings}}}")
    changes = {SHORT.get(key, key): value for key, value in read.items()}
    how, _, number = changes.pop("change", "").partition(" ")
    if how:
        CHANGES[how](parts, float(number or 0))
    parts.rows.to_csv("table.csv", index=False)
    parts.hidden.to_csv("hidden.csv", index=False)
    code, _, err = call("init", "table.csv", "--target", parts.target, "--force", *setup.options)
    if code:
        return err
    config = yaml.safe_load(Path("table.yaml").read_text())
    config["seed"] = seed
    if not setup.folds:
        for key in ("folds", "members", "calibration"):
            config["training"].pop(key, None)
        config["data"]["split"]["validation"] = 0.2
    if parts.validation is not None:
        parts.validation.to_csv("validation.csv", index=False)
        config["data"]["validation_source"] = "validation.csv"
        config["data"]["split"].pop("validation")
    for key, value in changes.items():
        *above, last = key.split(".")
        section = config
        for name in above:
            section = section.setdefault(name, {})
        section[last] = value
    Path("table.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return ""


def predictions(run: str, parts: Parts) -> np.ndarray | None:
    """Return the predictions of a run for the hidden rows; None if it cannot predict them."""
    if call("predict", run, "hidden.csv", "-o", "predicted.csv")[0]:
        return None
    predicted = pd.read_csv("predicted.csv", dtype=str, keep_default_na=False)
    guess = predicted[parts.target if parts.target in predicted else predicted.columns[1]]
    if parts.is_class and guess[0] in set(parts.hidden[parts.target]):
        return guess.to_numpy()
    numbers = pd.to_numeric(guess, errors="coerce").fillna(0)  # perhaps for codes of classes
    return (numbers.round().astype(int).astype(str) if parts.is_class else numbers).to_numpy()


def score(guess: np.ndarray | None, parts: Parts, rows: Any = slice(None)) -> float:
    """Return the score on all hidden rows, or on some `rows` of them; 0 without predictions."""
    if guess is None:
        return 0.0
    guess, truth = guess[rows], parts.hidden[parts.target].to_numpy()[rows]
    if not parts.is_class:
        y = truth.astype(float)
        return max(0.0, 1 - float(np.square(y - guess).sum() / np.square(y - y.mean()).sum()))
    recalls = [float((guess[truth == one] == one).mean()) for one in set(truth)]
    return max(0.0, (len(recalls) * fmean(recalls) - 1) / (len(recalls) - 1))


def error_of_lead(one: np.ndarray | None, other: np.ndarray | None, parts: Parts) -> float:
    """Return the standard error of the difference of two scores on the same rows (bootstrap)."""
    count = len(parts.hidden)
    draws = np.random.default_rng(0).integers(count, size=(DRAWS, count))
    return float(np.std([score(one, parts, d) - score(other, parts, d) for d in draws]))


def tolerance(wanted: float) -> float:
    return max(0.03, 0.1 * wanted)


def train(run: str) -> dict[str, Any]:
    """Call ``train``; return its verdicts, warnings first, and an error, if any.

    A verdict is (name, severity, settings of its fix, text).
    """
    code, out, err = call("train", "table.yaml", "-q", "--json", "-o", run)
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if lines and "verdicts" in lines[-1]:
        told = [(one["name"], one.get("severity") or "warning", list(one.get("fix") or {}),
                 one["text"]) for one in lines[-1]["verdicts"]]  # fmt: skip
    else:  # a failed run prints its verdicts on stderr
        said = [line.strip() for line in err.splitlines()]
        found = [re.fullmatch(r"(.* \[(\w+)\])", line) for line in said]
        told = [(m[2], "warning", re.findall(r"[a-z]+\.[a-z_]+", m[1]), m[1]) for m in found if m]
    told.sort(key=lambda one: one[1] != "warning")
    return {"told": told, "error": err.strip().splitlines()[-1] if code and err else ""}


def fixed(run: str) -> tuple[str | None, str]:
    """Call ``train --fix``; return the run that it keeps as better, and an error, if any."""
    code, out, err = call("train", "table.yaml", "--fix", "-q", "--json", "-o", run)
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    last = lines[-1] if lines else {}
    if "runs" in last:
        return str(last.get("better") or last["runs"][-1]), ""
    runs = sorted(Path(run).parent.glob(f"{Path(run).name}-*"))
    crashed = (code and runs) or code == 99
    return str(runs[-1]) if runs else None, err.strip().splitlines()[-1] if crashed else ""


@cache
def sound_score(folder: str, setup: SetUp, seed: int) -> float:
    """Return the score of the sound config on its own rows."""
    parts = parts_of(folder, setup, seed)
    with TemporaryDirectory() as place, chdir(place):
        error = write(setup, parts, setup.sound, seed) or train("runs/sound")["error"]
        return float("nan") if error else score(predictions("runs/sound", parts), parts)


def judge(folder: str, setup: SetUp, seed: int, *, fixes: bool = True) -> dict[str, Any]:
    """Return a run's verdicts, whether the first is right, and scores before and after a fix."""
    parts = parts_of(folder, setup, seed)
    result: dict[str, Any] = {"kind": setup.kind, "table": setup.table, "folds": setup.folds,
                              "seed": seed, "wanted": setup.right}  # fmt: skip
    with TemporaryDirectory() as place, chdir(place):
        if error := write(setup, parts, setup.both, seed):
            return result | {"told": [], "error": error, "first": "", "right": False}
        result |= train("runs/first")
        told = result["told"]
        warned = [one[0] for one in told if one[1] == "warning"]
        first = told[0][0] if told else ""
        if setup.kind == "healthy":
            return result | {"first": warned[0] if warned else "", "right": not warned}
        right = [one.partition("+")[::2] for one in setup.right]
        named = any(first == name and any(one.startswith(key) for one in [*told[0][2], ""])
                    for name, key in right)  # fmt: skip
        result |= {"first": first, "right": named}
        if fixes:
            guess = after = None if result["error"] else predictions("runs/first", parts)
            result["before"] = score(guess, parts)
            better, result["fix_error"] = fixed("runs/tried")
            if better:
                if result["fix_error"] or Path(better).name != "tried":  # it equals the first run
                    after = None if result["fix_error"] else predictions(better, parts)
                result["after"] = score(after, parts)
    if fixes:
        sound = SetUp("sound", (), setup.table, setup.folds, setup.sound)
        wanted = result["sound"] = sound_score(folder, sound, seed)
        result["harmed"] = result["before"] < wanted - tolerance(wanted)
        if "after" in result:
            lead = result["before"] - result["after"]
            result["cured"] = result["after"] >= wanted - tolerance(wanted)
            failed = bool(result["fix_error"])
            lower = result["lower"] = failed or lead > tolerance(result["before"])
            result["worse"] = failed or (lower and lead > 2 * error_of_lead(guess, after, parts))
    return result


def line_of(one: Mapping[str, Any], *, verbose: bool) -> str:
    """Return the line of a run, with its verdicts if asked for."""
    names = ", ".join(n + ("" if s == "warning" else " (note)") for n, s, *_ in one["told"])
    where = f"{one['kind']}, {one['table']} {'folds' if one['folds'] else 'single'}"
    text = f"{'ok   ' if one['right'] else 'WRONG'} {one['seed']} {where} -> {names or '-'}"
    if one["error"]:
        text += f"\n        error: {one['error']}"
    if "sound" in one:
        before, sound = (f"{one[key]:.2f}" for key in ("before", "sound"))
        after = f"{one['after']:.2f}" if "after" in one else "no fix"
        marks = [key for key in ("harmed", "cured", "worse", "fix_error") if one.get(key)]
        text += f"\n        {before} -> {after}, sound {sound}: {', '.join(marks) or 'harmless'}"
    return "\n".join([text, *(f"        {t[3]}" for t in one["told"] if verbose)])


def warned_by(judged: list[dict[str, Any]]) -> dict[str, list[tuple[bool, bool]]]:
    """Return for each rule a list: is the warning right, is it the first warning."""
    rules = defaultdict(list)
    for one in judged:
        right = {name.partition("+")[0] for name in one["wanted"]}
        for place, (name, severity, *_) in enumerate(one["told"]):
            if severity == "warning":
                rules[name].append((name in right, not place))
    return rules


def report(judged: list[dict[str, Any]]) -> dict[str, Any]:
    """Print shares and confusions; return the shares."""
    broken = [one for one in judged if one["kind"] != "healthy"]
    healthy = [one for one in judged if one["kind"] == "healthy"]
    fixable = [one for one in broken if "after" in one]
    harmed = [one for one in broken if one.get("harmed")]
    counts = {
        "first verdict right": [one["right"] for one in broken],
        "first verdict right, harmed runs": [one["right"] for one in harmed],
        "false on healthy runs, folds": [not one["right"] for one in healthy if one["folds"]],
        "false on healthy runs, single": [not one["right"] for one in healthy if not one["folds"]],
        "fixes that cure": [one["cured"] for one in fixable if one["harmed"]],
        "fixes that made it worse": [one["worse"] for one in fixable],
        "fixes with a lower score": [one["lower"] for one in fixable],
        "harmed runs mended": [one.get("cured", False) for one in harmed],
    }
    kinds = defaultdict(list)
    for one in judged:
        kinds[one["kind"]].append(one)
    print("\nkind                   right  cured  worse  said first instead")
    for kind, ones in kinds.items():
        tried = [one for one in ones if "after" in one]
        shares = [[one["right"] for one in ones], [one["cured"] for one in tried if one["harmed"]],
                  [one["worse"] for one in tried]]  # fmt: skip
        text = "".join(f"{f'{sum(x)}/{len(x)}' if x else '-':>7}" for x in shares)
        said = Counter(one["first"] or "nothing" for one in ones if not one["right"])
        print(f"{kind:<21}{text}  {', '.join(f'{name} {n}' for name, n in said.items())}")
    print("\nrule                 first right  all right")
    for name, ones in sorted(warned_by(judged).items()):
        firsts = [right for right, first in ones if first]
        first, every = f"{sum(firsts)}/{len(firsts)}", f"{sum(r for r, _ in ones)}/{len(ones)}"
        print(f"{name:<21}{first:>11}{every:>11}")
    print()
    for title, values in counts.items():
        if values:
            print(f"{title:<33} {sum(values):>4} of {len(values):>4} ({fmean(values):.1%})")
    return {title: [sum(values), len(values)] for title, values in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="", help="folder with tables.json")
    parser.add_argument("--half", choices=("choosing", "kept"), default="choosing")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--only", default="", help="part of the names of the runs")
    parser.add_argument("--no-fixes", action="store_true", help="only the verdicts")
    parser.add_argument("--json", metavar="FILE", help="write every result")
    parser.add_argument("--smoke", action="store_true", help="a few runs")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the verdicts")
    args = parser.parse_args()
    if not args.tables:
        print("NO FOLDER OF REAL TABLES (--tables): scikit-learn's and made-up ones; do not quote")
    folder = str(Path(args.tables).resolve()) if args.tables else ""
    chosen = [one for half, one in setups() if args.smoke or half == args.half]
    if args.smoke:
        chosen = [one for one in chosen if str(one).startswith(SMOKE)]
    chosen = [one for one in chosen if args.only in str(one)]
    judged = []
    for one in chosen:
        for seed in range(1, args.seeds + 1):
            judged.append(judge(folder, one, seed, fixes=not args.no_fixes))
            print(line_of(judged[-1], verbose=args.verbose), flush=True)
    shares = report(judged)
    if args.json:
        Path(args.json).write_text(json.dumps({"shares": shares, "runs": judged}, indent=1))
    if args.smoke and not all(one["right"] for one in judged):
        sys.exit("a verdict is wrong")


if __name__ == "__main__":
    main()
