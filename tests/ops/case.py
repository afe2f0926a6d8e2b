"""A row of the op table, and the draws that rows share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.ops import GradOp

Operands = tuple[Array | None, ...]

ROWS = 5
"""Rows of the batch in which most checks draw their operands."""


@dataclass(frozen=True)
class Case:
    """An op, operands to try it on, and an independent formula for its value.

    Every check of `checks.py` runs on every row; what a row cannot keep is said in its fields.
    """

    id: str
    op: GradOp
    make: Callable[[int], Operands]
    """Rows of the batch to float64 operands; None for one that is left out."""
    expect: Callable[..., Any]
    """Operands to the value, or a tuple of values, in float64."""
    rtol: float = 1e-6
    """Tolerance of the gradient against differences: 1e-6 where smooth, 1e-4 near kinks."""
    tolerance: float = 1e-5
    """Tolerance of the value in float32 against the formula in float64, relative and absolute."""
    gradient_tolerance: float = 1e-4
    """Tolerance of float32 gradients against float64 ones, relative to the largest."""
    empty: bool = True
    """Whether a batch of no rows has a value."""
    extremes: tuple[float, ...] = (1e-12, 1e12)
    """Factors of the operands at which value and gradients are still finite, in both dtypes."""
    scaled: int | None = None
    """How many operands, the first ones, such a factor is for; None for all."""
    memory_rows: tuple[int, int] = (8200, 16400)
    """Rows between which memory must not grow; the fewer fill NumPy's bounded buffers."""
    dtypes: tuple[str, ...] = ("float64", "float32")
    before: Callable[[], object] | None = None
    """Restores what a forward pass changes, say the state of a generator."""

    def operands(self, rows: int = ROWS, dtype: str = "float64", scale: float = 1.0) -> Operands:
        """Return fresh operands; the floating ones in `dtype` and times `scale`."""

        drawn = self.make(rows)
        scaled = len(drawn) if self.scaled is None else self.scaled

        def cast(i: int, x: Array | None) -> Array | None:
            if x is None:
                return None
            x = np.asarray(x)
            if x.dtype.kind != "f":
                return x.copy()
            return np.asarray(x * scale if i < scaled else x).astype(dtype)

        return tuple(cast(i, x) for i, x in enumerate(drawn))

    def prepare(self) -> None:
        """Make the next forward pass repeatable."""
        if self.before is not None:
            self.before()


def normal(*shape: int) -> Array:
    """Return normal numbers, always the same for a shape."""
    return np.asarray(np.random.default_rng((*shape, 7)).standard_normal(shape))


def positive(*shape: int) -> Array:
    """Return numbers between 0.2 and 3."""
    return np.asarray(np.random.default_rng((*shape, 8)).uniform(0.2, 3.0, shape))


def away_from(kinks: Sequence[float], *shape: int) -> Array:
    """Return numbers of order 1 that keep 0.05 from every kink."""
    x = normal(*shape)
    for kink in kinks:
        x = np.where(np.abs(x - kink) < 0.05, kink + np.where(x < kink, -0.1, 0.1), x)
    return np.asarray(x)


def distinct(*shape: int) -> Array:
    """Return numbers of order 1, evenly spaced, in random order."""
    n = int(np.prod(shape))
    order = np.random.default_rng((*shape, 9)).permutation(n)
    return np.asarray(np.linspace(-2, 2, n)[order].reshape(shape))
