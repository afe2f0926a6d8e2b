"""What a row of the comparison with PyTorch is, and the draws that rows share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: parity is NOT checked")

Rng = np.random.Generator


@dataclass
class Draw:
    """One random case: the operands, and the op on them as each library writes it.

    `state` yields pairs of (ours, theirs) that must agree after the forward pass as well.
    """

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    operands: list[Any]
    state: Callable[[], list[tuple[Any, Any]]] = field(default=list)


Row = Callable[[Rng, np.dtype], Draw]


def sizes(rng: Rng, lowest: int = 0, highest: int = 4) -> tuple[int, ...]:
    """Draw a shape of `lowest` to `highest` axes of 1 to 5 entries."""
    return tuple(int(n) for n in rng.integers(1, 6, rng.integers(lowest, highest + 1)))


def normal(rng: Rng, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def steps(rng: Rng, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Draw integers, so that ties, zeros and bounds are met."""
    return np.asarray(rng.integers(-3, 4, shape)).astype(dtype)


def positive(rng: Rng, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.asarray(rng.uniform(0.2, 3.0, shape)).astype(dtype)


def axis_of(rng: Rng, shape: tuple[int, ...]) -> int:
    """Draw an axis, counted from either end."""
    return int(rng.integers(-len(shape), len(shape)))


def stretched(rng: Rng, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts to `shape`: some axes 1, some leading ones left out."""
    kept = shape[rng.integers(0, len(shape) + 1) :]
    return tuple(1 if rng.random() < 0.3 else n for n in kept)
