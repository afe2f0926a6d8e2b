"""Rows of ops that pick by index arrays, with repeated and negative indices."""

import numpy as np
from case import Case, normal

from mlpengine.ops import Embedding, Gather, IndexSelect


def indices(high, *shape, dtype="int64"):
    """Return indices from -high to high - 1; with many of them, all repeat."""
    return np.random.default_rng(shape).integers(-high, high, shape).astype(dtype)


def gathered(name, axis, make):
    def value(x, i):
        return np.take_along_axis(x, i, axis)

    return Case(f"gather {name}", Gather(axis), make, value)


def selected(name, axis, make):
    def value(x, i):
        return x.take(i, axis)

    return Case(f"index_select {name}", IndexSelect(axis), make, value)


def embedded(name, make):
    def value(weight, i):
        return weight[i]

    return Case(f"embedding {name}", Embedding(), make, value)


CASES = [
    gathered("along the middle", 1, lambda n: (normal(n, 3, 2), indices(3, n, 5, 2))),
    gathered("along the batch", 0, lambda n: (normal(4, 3), indices(4, n, 3))),
    gathered("one of each row", -1, lambda n: (normal(n, 4), indices(4, n, 1, dtype="int32"))),
    gathered("broadcast", 1, lambda n: (normal(1, 3, 2), indices(3, n, 2, 1))),
    gathered("of 4 axes", 2, lambda n: (normal(n, 1, 3, 2), indices(3, n, 1, 1, 2))),
    gathered("of nothing", 1, lambda n: (normal(n, 3), indices(3, n, 0))),
    selected("of rows", 0, lambda n: (normal(5, 3), indices(5, n))),
    selected("along the middle", 1, lambda n: (normal(n, 3, 2), indices(3, 7))),
    selected("along the last", -1, lambda n: (normal(n, 2, 1, 3), indices(3, 2, dtype="int16"))),
    selected("of a vector", 0, lambda n: (normal(5), indices(5, n))),
    selected("of one", 1, lambda n: (normal(n, 1), indices(1, 4))),
    embedded("of rows", lambda n: (normal(6, 4), indices(6, n))),
    embedded("of sequences", lambda n: (normal(6, 1), indices(6, n, 3))),
    embedded("of bytes", lambda n: (normal(6, 2), np.arange(n).astype("uint8") % 6)),
    embedded("of one index", lambda n: (normal(6, 4), indices(6))),
]
