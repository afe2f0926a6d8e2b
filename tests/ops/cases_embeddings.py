"""Rows of embeddings of numbers: the formula by `numpy.einsum`, in float64."""

import numpy as np
from case import Case, normal

from mlpengine.ops import PeriodicEmbedding


def embedded(name, features, count, waves, outputs=None):
    """A row on `features`; the first `count` of them have `waves` waves."""

    def make(n):
        mixing = (None, None)
        if outputs is not None:
            mixing = normal(count, outputs, waves), normal(count, outputs)
        return normal(n, features), normal(count, waves), normal(waves, count).T, *mixing

    def value(x, frequency, phase, weight, bias):
        wave = np.cos(2 * np.pi * np.einsum("nj,jk->njk", x[:, :count], frequency) + phase)
        if weight is not None:
            wave = np.einsum("njk,jqk->njq", wave, weight) + bias
        return np.concatenate([x, *wave.transpose(1, 0, 2)], axis=1)

    # Angles grow with the square of the scale: their rounding does too.
    return Case(
        f"periodic_embedding {name}",
        PeriodicEmbedding(),
        make,
        value,
        extremes=(1e-12, 1.0),
        memory_rows=(4096, 8192),
    )


CASES = [
    embedded("with mixing", 4, 3, 5, 2),
    embedded("of all features", 2, 2, 16, 3),
    embedded("waves alone", 3, 2, 4),
    embedded("with sizes 1", 1, 1, 1, 1),
]
