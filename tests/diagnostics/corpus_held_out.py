"""The unseen part of the corpus of diagnostics: tables, broken set-ups and healthy ones.

It was written without sight of the rules and their thresholds, and whether a broken set-up is
broken was decided by scores alone (``python tests/diagnostics/corpus.py --half unseen
--scores``).  No threshold may be set by looking at its verdicts: whoever has done so moves it to
the seen halves and writes another one.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from corpus_setups import (
    COSINE,
    UNSEEN,
    SetUp,
    broken,
    epochs,
    gaps,
    healthy,
    healthy_setups,
    leaking,
    moved,
    net,
    noisy,
    one_row,
    optimizer,
    scaled,
    sgd,
    shifted_biases,
    shuffled,
)
from sklearn import datasets

from mlpengine.data.tables import Table
from mlpengine.data.tables.frames import as_table
from mlpengine.training.loop import Loop


def spirals() -> Table:
    """Return 900 points of the plane on three spiral arms."""
    rng = np.random.default_rng(11)
    arm, radius = rng.integers(0, 3, 900), rng.uniform(0.2, 1, 900)
    angle = 4 * radius + 2 * np.pi / 3 * arm + rng.normal(0, 0.15, 900)
    x = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return Table.from_arrays(x, np.array(["inner", "middle", "outer"])[arm])


def ball() -> Table:
    """Return 4,000 normal points in ten dimensions, inside or outside of a ball."""
    x, y = datasets.make_hastie_10_2(4000, random_state=12)
    return Table.from_arrays(x, np.where(y > 0, "outside", "inside"))


def clusters() -> Table:
    """Return 3,000 rows of six classes with two clusters each, 16 features and few wrong labels."""
    x, y = datasets.make_classification(
        3000,
        16,
        n_informative=8,
        n_redundant=4,
        n_classes=6,
        n_clusters_per_class=2,
        class_sep=1.8,
        flip_y=0.01,
        random_state=13,
    )
    return Table.from_arrays(x, np.array([f"kind {k}" for k in y]))


def parity() -> Table:
    """Return scikit-learn's digits, to be told as even or odd."""
    bunch = datasets.load_digits()
    return Table.from_arrays(bunch.data, np.where(bunch.target % 2, "odd", "even"))


def course() -> Table:
    """Return scikit-learn's diabetes patients, ill above the median or below: noisy classes."""
    bunch = datasets.load_diabetes()
    worse = bunch.target > np.median(bunch.target)
    return Table.from_arrays(bunch.data, np.where(worse, "worse", "better"))


def tumors() -> Table:
    """Return scikit-learn's breast tumors: their worst area from texture, shape and errors."""
    bunch = datasets.load_breast_cancer()
    names = list(bunch.feature_names)
    sizes = ("radius", "perimeter", "area")
    kept = [n for n, name in enumerate(names) if not ("worst" in name and name.endswith(sizes))]
    return Table.from_arrays(bunch.data[:, kept], bunch.data[:, names.index("worst area")])


def arm() -> Table:
    """Return 5,000 poses of an arm of three joints: the distance of its hand from a point."""
    rng = np.random.default_rng(14)
    angles, lengths = rng.uniform(-1.5, 1.5, (5000, 3)), rng.uniform(0.5, 1.5, (5000, 3))
    sums = np.cumsum(angles, axis=1)
    hand = (lengths * np.cos(sums)).sum(axis=1), (lengths * np.sin(sums)).sum(axis=1)
    distance = np.hypot(hand[0] - 1, hand[1] - 1) + rng.normal(0, 0.02, 5000)
    return Table.from_arrays(np.hstack([angles, lengths]), distance)


def houses() -> Table:
    """Return 6,000 made-up houses with texts and gaps: the price, which is skewed."""
    rng = np.random.default_rng(15)
    area, year = rng.lognormal(4.7, 0.4, 6000), rng.integers(1900, 2021, 6000)
    district, kind = rng.integers(0, 12, 6000), rng.choice(3, 6000, p=[0.5, 0.35, 0.15])
    garden = np.where(kind == 0, rng.exponential(300, 6000), 0)
    level = np.sort(rng.normal(0, 0.3, 12))
    price = 2.2 * area**0.9 * np.exp(level[district] + 0.002 * (year - 1960))
    price = (price + 0.05 * garden) * np.array([1.1, 0.9, 1.0])[kind] * rng.lognormal(0, 0.1, 6000)
    columns = {
        "area": gaps(area, 0.02, rng),
        "built": gaps(year.astype(float), 0.1, rng),
        "garden": garden,
        "floor": rng.integers(0, 9, 6000),
        "district": [f"district {k}" for k in district],
        "kind": gaps(np.array(["house", "flat", "loft"])[kind], 0.05, rng),
        "y": price,
    }
    return as_table(columns)


def customers() -> Table:
    """Return 8,000 made-up customers with texts and gaps, of whom a third leaves: noisy classes."""
    rng = np.random.default_rng(16)
    months, fee = rng.exponential(20, 8000), rng.uniform(10, 100, 8000)
    calls, plan = rng.poisson(1.5, 8000), rng.integers(0, 4, 8000)
    contract, income = rng.random(8000) < 0.4, rng.lognormal(10.3, 0.5, 8000)
    urge = 0.05 * (fee - 55) + 0.9 * (calls - 1.5) - 0.06 * (months - 20) - 3 * contract
    urge += np.array([1.5, 0, -1, 0.5])[plan] - 1e-5 * (income - 33000)
    columns = {
        "months": months,
        "fee": gaps(fee, 0.03, rng),
        "calls": calls,
        "income": gaps(income, 0.15, rng),
        "plan": np.array(["basic", "plus", "family", "night"])[plan].tolist(),
        "contract": np.where(contract, "yes", "no").tolist(),
        "region": [f"region {k}" for k in rng.integers(0, 20, 8000)],
        "y": np.where(rng.logistic(size=8000) < 1.5 * urge, "leaves", "stays").tolist(),
    }
    return as_table(columns)


def parcels() -> Table:
    """Return 20,000 made-up parcels with texts: in time, late or lost, the last one is rare."""
    rng = np.random.default_rng(17)
    distance, weight = rng.gamma(2, 200, 20000), rng.lognormal(0.5, 0.8, 20000)
    carrier, hour = rng.integers(0, 5, 20000), rng.uniform(0, 24, 20000)
    slow = distance / 400 + np.array([0, 0.5, 1, -0.5, 1.5])[carrier] + 1.5 * np.cos(hour / 24 * 6)
    late = slow + rng.normal(0, 0.3, 20000) > 1.8
    lost = (weight < 0.6) & (carrier >= 3) & (rng.random(20000) < 0.95)
    columns = {
        "distance": distance,
        "weight": weight,
        "hour": hour,
        "carrier": [f"carrier {k}" for k in carrier],
        "insured": (rng.random(20000) < 0.3).astype(int),
        "y": np.where(lost, "lost", np.where(late, "late", "in time")).tolist(),
    }
    return as_table(columns)


def claims() -> Table:
    """Return 6,000 made-up claims, of which four in a hundred are false, and not easy to tell."""
    rng = np.random.default_rng(18)
    false = rng.random(6000) < 0.04
    x = rng.normal(size=(6000, 6))
    x[:, 0] += 1.1 * false
    x[:, 1] = np.where(false, 0.7 * x[:, 1] + 1, x[:, 1])
    x[:, 2] *= 1 + 0.8 * false
    return Table.from_arrays(x, np.where(false, "false", "sound"))


def demand() -> Table:
    """Return 2,000 made-up days: a noisy number, more than half of which no model can explain."""
    rng = np.random.default_rng(19)
    x = rng.normal(size=(2000, 7))
    y = 50 + 6 * np.sin(1.5 * x[:, 0]) + 4 * np.abs(x[:, 1]) + 2 * x[:, 2]
    return Table.from_arrays(x, y + rng.standard_t(4, 2000) * 4)


TABLES = {
    table.__name__: table
    for table in (
        spirals,
        ball,
        clusters,
        parity,
        course,
        tumors,
        arm,
        houses,
        customers,
        parcels,
        claims,
        demand,
    )
}
NUMBERS = ("tumors", "arm", "houses", "demand")
"""Tables whose target is a number."""

BASES: dict[str, dict[str, Any]] = {
    "spirals": {**net(32, 32), **optimizer("adam", 5e-3), **epochs(60)},
    "ball": {**net(64), **optimizer("adam", 5e-3), **COSINE, **epochs(40, 64)},
    "clusters": {**net(64), **optimizer("adam", 3e-3), **COSINE, **epochs(30)},
    "parity": {**net(32), **optimizer("adam", 2e-3), **COSINE, **epochs(20)},
    "course": {**net(8), **optimizer("adam", 3e-3), **epochs(20, 16)},
    "tumors": {**net(32), **optimizer("adam", 3e-3), **COSINE, **epochs(60, 16)},
    "arm": {**net(64, 64), **optimizer("adam", 3e-3), **COSINE, **epochs(40, 64)},
    "houses": {**net(48), **optimizer("adam", 3e-3), **COSINE, **epochs(20, 64)},
    "customers": {**net(16), **optimizer("adam", 1e-3), **epochs(8, 64)},
    "parcels": {**net(32), **optimizer("adam", 5e-3), **COSINE, **epochs(12, 128)},
    "claims": {**net(12), **optimizer("adam", 2e-3), **epochs(12, 64)},
    "demand": {**net(24), **optimizer("adam", 2e-3), **epochs(20)},
}
"""Sound settings of each data set, beside the defaults of configs."""

BALANCED = {"data.class_weights": "balanced"}

HEALTHY = (
    *healthy_setups(
        UNSEEN,
        {
            "spirals": {
                "relu": {},
                "tanh, adamw, cosine": net(48, 48, activation="tanh")
                | optimizer("adamw", 1e-2, weight_decay=0.01)
                | COSINE
                | epochs(80),
            },
            "ball": {"relu": {}, "silu, momentum": net(64, activation="silu") | sgd(0.1, 0.9)},
            "clusters": {
                "relu": {},
                "three elu layers, dropout, cosine": net(64, 64, 64, activation="elu", dropout=0.1)
                | COSINE,
                "robust scaling, sgd": sgd(0.05, 0.9) | {"data.standardize": "robust"},
            },
            "parity": {"relu": {}, "gelu, batch 128": net(64, activation="gelu") | epochs(40, 128)},
            "course": {
                "relu": {},
                "early stopping": net(16, activation="tanh") | {"training.early_stopping": True},
            },
            "tumors": {"relu": {}, "huber, gelu": net(32, activation="gelu") | {"loss": "huber"}},
            "arm": {
                "relu": {},
                "tanh, cosine, clipping": net(64, 64, activation="tanh")
                | COSINE
                | {"training.clip_norm": 5.0},
                "leaky relu, sgd": net(64, 64, activation="leaky_relu") | sgd(0.02, 0.9),
            },
            "houses": {"relu": {}, "rmsprop, mae": optimizer("rmsprop", 1e-3) | {"loss": "mae"}},
            "customers": {
                "relu": {},
                "logistic, sgd": net(32) | sgd(0.05) | {"loss": "bce_with_logits"},
            },
            "parcels": {
                "relu": {},
                "two layers, minmax": net(32, 32) | {"data.standardize": "minmax"},
            },
            "demand": {
                "relu": {},
                "dropout, adamw": net(64, dropout=0.2) | optimizer("adamw", 2e-3),
            },
        },
    ),
    healthy("claims", "class weights", BALANCED, by_class=True),
)


def shifted_output(by: float) -> Callable[[Loop], None]:
    """Return what adds a number to the biases of the outputs, alternately up and down."""

    def spoil(loop: Loop) -> None:
        bias = loop.step.mlp.biases[-1]
        bias += by * (-1.0) ** np.arange(len(bias))

    return spoil


def reversed_scales(by: float) -> Callable[[Loop], None]:
    """Return what makes the first layer small and the last one large."""

    def spoil(loop: Loop) -> None:
        weights = loop.step.mlp.weights
        weights[0] /= by
        weights[-1] *= by

    return spoil


CONSTANT = {"schedule": "constant"}
RAW = {"data.standardize": "none"}
SIGMOID, TANH = {"activation": "sigmoid"}, {"activation": "tanh"}

BROKEN = (
    broken("lr_high", "arm", "lr x 150", {"optimizer.lr": 0.5}),
    broken("lr_high", "clusters", "sgd, lr x 80", sgd(4.0, 0.9), settings=sgd(0.05, 0.9)),
    broken(
        "lr_high",
        "parcels",
        "rmsprop, lr x 1000",
        optimizer("rmsprop", 2.0),
        settings=optimizer("rmsprop", 2e-3),
    ),
    broken("lr_low", "clusters", "lr / 1000", {"optimizer.lr": 2e-6}),
    broken("lr_low", "houses", "sgd, lr / 1000", sgd(5e-5, 0.9), settings=sgd(0.05, 0.9)),
    broken("input_scale", "customers", "raw features", RAW),
    broken("input_scale", "houses", "raw features", RAW),
    broken("target_scale", "tumors", "raw target", {"data.standardize_target": False}),
    broken(
        "no_gradient",
        "parity",
        "zero weights",
        {"model.initializer": "zeros"},
        settings=net(32, 32),
    ),
    broken("start", "arm", "weights x 12", spoil=scaled(12)),
    broken("start", "course", "output biases of 200", spoil=shifted_output(200)),
    broken(
        "vanishing",
        "arm",
        "ten sigmoid layers",
        net(*[32] * 10, **SIGMOID),
        settings=net(32, 32, **SIGMOID),
    ),
    broken(
        "vanishing",
        "clusters",
        "fourteen tanh layers, weights / 3",
        net(*[32] * 14, **TANH),
        spoil=scaled(1 / 3),
        settings=net(32, 32, **TANH),
    ),
    broken(
        "exploding",
        "parity",
        "first layer / 300, last layer x 300",
        spoil=reversed_scales(300),
        settings={**net(32, 32), **sgd(0.05, 0.9)},
    ),
    broken("dead", "clusters", "biases at -15", spoil=shifted_biases(-15)),
    broken(
        "saturated", "ball", "tanh, weights x 25", spoil=scaled(25), settings=net(64, 64, **TANH)
    ),
    broken(
        "clip_low",
        "customers",
        "clipped to nothing",
        {"training.clip_norm": 5e-4},
        settings=sgd(0.1),
    ),
    broken("outlier", "arm", "one row of 5,000s", spoil=one_row(5e3)),
    broken("nonfinite", "customers", "one NaN", spoil=one_row(np.nan)),
    broken("nonfinite", "clusters", "one infinity", spoil=one_row(np.inf)),
    broken("labels", "clusters", "shuffled labels", spoil=shuffled),
    broken("labels", "arm", "shuffled targets", spoil=shuffled),
    broken("labels", "parcels", "shuffled labels", spoil=shuffled),
    broken(
        "overfitting", "course", "150 epochs", epochs(150), settings={**net(128, 128), **epochs(3)}
    ),
    broken(
        "overfitting", "demand", "40 epochs", epochs(40), settings={**net(128, 128), **epochs(4)}
    ),
    broken("unfinished", "arm", "lr 2e-4", {"optimizer.lr": 2e-4} | epochs(8), settings=CONSTANT),
    broken(
        "unfinished", "clusters", "lr 1e-4", {"optimizer.lr": 1e-4} | epochs(12), settings=CONSTANT
    ),
    broken("underfitting", "clusters", "one unit", net(1)),
    broken("underfitting", "arm", "two units", net(2)),
    broken("leak", "houses", "the price as a feature", alter=leaking(0.01)),
    broken("leak", "customers", "the class as a feature", alter=leaking(0.1)),
    broken("shifted", "arm", "a shifted column", spoil=moved([2], 2.5)),
    broken("shifted", "tumors", "three columns", spoil=moved([1, 4, 7], 2.0)),
    broken("noisy_labels", "clusters", "a third of noise", spoil=noisy(0.35)),
    broken("noisy_labels", "parity", "a quarter of noise", spoil=noisy(0.25)),
    broken("decay_high", "arm", "decay 40", optimizer("adamw", 3e-3, weight_decay=40.0)),
    broken("decay_high", "parity", "decay 150", optimizer("adamw", 1e-3, weight_decay=150.0)),
    broken("dropout_high", "arm", "dropout 0.9", {"model.dropout": 0.9}),
    broken("momentum_high", "tumors", "momentum 0.998", sgd(0.02, 0.998), settings=sgd(0.02, 0.5)),
    broken("few_steps", "ball", "full batch", epochs(15, 2800)),
    broken("few_steps", "parcels", "batches of 7,000", epochs(10, 7000)),
    broken("output_clamped", "houses", "relu on the output", output="relu"),
    broken("output_clamped", "arm", "tanh on the output", output="tanh"),
    broken("eps_large", "arm", "eps 1", optimizer("adam", 3e-3, eps=1.0)),
    broken(
        "imbalance",
        "claims",
        "no class weights",
        {"data.class_weights": "none"},
        settings=BALANCED,
        by_class=True,
    ),
    broken("noise_scale", "parity", "full batch, sgd", epochs(150, 1258), settings=sgd(0.05)),
)

SETUPS: list[SetUp] = [replace(setup, half=UNSEEN) for setup in (*HEALTHY, *BROKEN)]
