"""A table of ``benchmarks/arena.py``, and two tables of the package."""

import gzip
import io
from dataclasses import dataclass
from importlib.resources import files

import pandas as pd


@dataclass(frozen=True)
class Problem:
    """A table and the column to predict."""

    name: str
    frame: pd.DataFrame
    target: str
    is_classification: bool
    together: tuple[str, pd.Series] | None = None
    """``group`` or ``time``, and the groups or times of the training rows."""

    def with_together(self, train: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
        """Return training rows with the column `together`, and the option of ``init`` for it."""
        if self.together is None:
            return train, []
        kind, column = self.together
        return train.assign(**{column.name: column.to_numpy()}), [f"--{kind}", column.name]

    @property
    def classes(self) -> list[object]:
        """The sorted labels of a classification."""
        return sorted(self.frame[self.target].unique()) if self.is_classification else []


def _shipped(name: str, target: str, *, classes: bool) -> Problem:
    raw = files("mlpengine.data.datasets").joinpath(f"{name}.csv.gz").read_bytes()
    frame = pd.read_csv(io.BytesIO(gzip.decompress(raw)))
    return Problem(name, frame.dropna(subset=[target]), target, classes)


def shipped() -> list[Problem]:
    """Return the two small tables of ``--smoke``."""
    return [
        _shipped("diabetes", "progression", classes=False),
        _shipped("penguins", "species", classes=True),
    ]
