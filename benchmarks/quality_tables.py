"""The tables of ``benchmarks/arena.py``: shipped, bundled with scikit-learn, and generated.

Real tables in a folder of their own are added where ``MLPENGINE_TABLES`` names it.  A column that
gives the target away is left out for every method.
"""

import gzip
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets


@dataclass(frozen=True)
class Problem:
    """A table and the column to predict."""

    name: str
    frame: pd.DataFrame
    target: str
    is_classification: bool
    together: tuple[str, pd.Series] | None = None
    """``group`` or ``time``, and the column of groups or times of the rows to learn from."""

    def with_together(self, train: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
        """Return rows to learn from with the column `together`, and its option of ``init``."""
        if self.together is None:
            return train, []
        kind, column = self.together
        return train.assign(**{column.name: column.to_numpy()}), [f"--{kind}", column.name]

    @property
    def classes(self) -> list[object]:
        """The sorted labels of a classification."""
        return sorted(self.frame[self.target].unique()) if self.is_classification else []


OUTSIDE = {
    "diamonds": ("price", False, []),
    "mpg": ("mpg", False, []),
    "taxis": ("fare", False, ["total"]),
    "titanic": ("survived", True, ["alive"]),
}
"""File, target, whether classes, columns that give the target away."""

LARGEST = 12_000
"""Rows taken of a larger table, so that five splits of ten methods take hours and not days."""


def _shipped(name: str, target: str, *, classes: bool) -> Problem:
    raw = files("mlpengine.data.datasets").joinpath(f"{name}.csv.gz").read_bytes()
    frame = pd.read_csv(io.BytesIO(gzip.decompress(raw)))
    return Problem(name, frame.dropna(subset=[target]), target, classes)


def _outside(folder: Path) -> Iterator[Problem]:
    for name, (target, classes, leaks) in OUTSIDE.items():
        path = folder / f"{name}.csv"
        if path.is_file():
            frame = pd.read_csv(path).drop(columns=leaks).dropna(subset=[target])
            if len(frame) > LARGEST:
                frame = frame.sample(LARGEST, random_state=0).reset_index(drop=True)
            yield Problem(name, frame, target, classes)


def _bundled(name: str, load: Callable[..., object]) -> Problem:
    frame = load(as_frame=True).frame.rename(columns={"target": "y"})  # type: ignore[attr-defined]
    return Problem(name, frame, "y", is_classification=True)


def _columns(x: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])
    return frame.assign(y=y)


def _friedman(number: int, rows: int, noise: float) -> Problem:
    make = getattr(datasets, f"make_friedman{number}")
    x, y = make(n_samples=rows, noise=noise, random_state=number)
    return Problem(f"friedman{number}", _columns(x, y), "y", is_classification=False)


def _thresholds(rng: np.random.Generator) -> Problem:
    """Sums of steps along a few axes, as trees have them."""
    x = rng.uniform(-1, 1, (3000, 8))
    y = sum(
        (x[:, i] > c) * s
        for i, c, s in zip(range(5), rng.uniform(-0.5, 0.5, 5), (3, 2, 2, 1, 1), strict=True)
    )
    y = y + 2.0 * ((x[:, 0] > 0) & (x[:, 5] > 0.3)) + rng.normal(0, 0.3, len(x))
    return Problem("thresholds", _columns(x, y), "y", is_classification=False)


def _robot_arm(rng: np.random.Generator) -> Problem:
    """Distance of the hand of an arm with six joints from a point: smooth, with interactions."""
    angles = np.cumsum(rng.uniform(-np.pi / 2, np.pi / 2, (5000, 6)), axis=1)
    hand = np.stack([np.cos(angles).sum(1) - 2, np.sin(angles).sum(1)], 1)
    y = np.hypot(*hand.T) + rng.normal(0, 0.1, len(hand))
    return Problem(
        "robot arm", _columns(np.diff(angles, prepend=0.0), y), "y", is_classification=False
    )


def _hull(rng: np.random.Generator) -> Problem:
    """A resistance that one column, the speed, explains almost alone; designs on a small grid."""
    speeds = np.arange(0.125, 0.46, 0.025)
    designs = rng.choice([-5.0, -2.3, 0.0], (22, 1))
    shape = np.hstack([designs, rng.uniform([0.53, 4.3, 2.8, 2.7], [0.6, 5.1, 5.3, 3.6], (22, 4))])
    x = np.hstack([np.repeat(shape, len(speeds), 0), np.tile(speeds, 22)[:, None]])
    y = np.exp(13 * x[:, 5]) * 0.17 * (1 + 0.3 * (x[:, 1] - 0.56) + 0.04 * (x[:, 2] - 4.7))
    return Problem("hull", _columns(x, y * (1 + rng.normal(0, 0.01, len(y)))), "y", False)


def _skewed(rng: np.random.Generator) -> Problem:
    """A heavy-tailed positive target with columns of very different scales."""
    x = np.exp(rng.normal(0, [0.2, 1, 2, 1, 0.5, 1], (4000, 6)))
    y = np.exp(0.8 * np.log(x[:, 1]) + 0.3 * np.sin(2 * np.log(x[:, 2])) + rng.normal(0, 0.2, 4000))
    return Problem("skewed", _columns(x, y), "y", is_classification=False)


def _categories(rng: np.random.Generator) -> Problem:
    """Classes that depend on texts, many of them rare, and on numbers within each text."""
    town, kind = rng.zipf(1.6, 4000) % 40, rng.integers(0, 5, 4000)
    size, age = rng.normal(size=4000), rng.uniform(0, 1, 4000)
    effect, slope = rng.normal(0, 1.5, 40), rng.normal(0, 1.5, 5)
    logit = effect[town] + slope[kind] * size + np.where(age > 0.7, 1.0, -0.5)
    y = np.where(rng.uniform(size=4000) < 1 / (1 + np.exp(-logit)), "yes please", "not now")
    frame = pd.DataFrame(
        {
            "town": [f"town {i}" for i in town],
            "kind": [f"k{i}" for i in kind],
            "size": size,
            "age": age,
        }
    )
    frame.loc[rng.uniform(size=4000) < 0.05, "age"] = np.nan
    return Problem("categories", frame.assign(y=y), "y", is_classification=True)


def _rings(rng: np.random.Generator) -> Problem:
    """Three classes by distance from the center, among columns that say nothing."""
    x = rng.normal(size=(3000, 8))
    distance = np.sqrt((x[:, :3] ** 2).sum(1)) + rng.normal(0, 0.15, 3000)
    return Problem("rings", _columns(x, np.digitize(distance, (1.2, 1.9))), "y", True)


def _rare(rng: np.random.Generator) -> Problem:
    """One class in twelve, by an interaction."""
    x = rng.normal(size=(5000, 10))
    logit = 2 * x[:, 0] * x[:, 1] + x[:, 2] - 4.0
    y = (rng.uniform(size=5000) < 1 / (1 + np.exp(-logit))).astype(int)
    return Problem("rare", _columns(x, y), "y", is_classification=True)


def problems() -> list[Problem]:
    """Return every table that is there."""
    rng = np.random.default_rng(0)
    tables = [
        _shipped("digits", "digit", classes=True),
        _shipped("diabetes", "progression", classes=False),
        _shipped("penguins", "species", classes=True),
        _bundled("breast cancer", datasets.load_breast_cancer),
        _bundled("wine", datasets.load_wine),
        _friedman(1, 1000, 1.0),
        _friedman(2, 1500, 50.0),
        _friedman(3, 1500, 0.1),
        *(make(rng) for make in (_thresholds, _robot_arm, _hull, _skewed)),
        *(make(rng) for make in (_categories, _rings, _rare)),
    ]
    folder = os.environ.get("MLPENGINE_TABLES")
    return tables + (list(_outside(Path(folder))) if folder else [])
