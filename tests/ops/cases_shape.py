"""Rows of ops that move values: `numpy.concatenate` and indexing say where to."""

from functools import partial

import numpy as np
from case import Case, normal

from mlpengine.ops import Cast, Cat, Chunk, Detach, MapLookup, Reshape, Slice, StructField


def moved(name, op, view, *shape):
    """A row of an op that copies what a NumPy view shows."""
    return Case(name, op, lambda n: (normal(n, *shape),), view)


def sliced(name, key, *shape):
    return moved(f"slice {name}", Slice(key), lambda x: x[key], *shape)


def rows_of(shape, n):
    return (normal(n, *shape),)


def joined(name, axis, *shapes, sizes=None):
    return Case(
        f"cat {name}",
        Cat(axis, sizes),
        lambda n: tuple(normal(n, *shape) for shape in shapes),
        lambda *xs: np.concatenate(xs, axis),
    )


def chunked(name, parts, axis, *shape):
    return Case(
        f"chunk {name}",
        Chunk(parts, axis),
        lambda n: (normal(n, *shape),),
        lambda x: tuple(np.split(x, parts, axis)),
    )


CASES = [
    Case(
        "reshape", Reshape((-1, 2, 3)), lambda n: (normal(n, 6),), lambda x: x.reshape(len(x), 2, 3)
    ),
    Case(
        "reshape to rows",
        Reshape((-1, 6)),
        lambda n: (normal(n, 2, 1, 3),),
        lambda x: x.reshape(len(x), 6),
    ),
    Case("reshape of one value", Reshape(()), lambda n: (normal(1, 1),), lambda x: x[0, 0]),
    Case("reshape to one value", Reshape((1, 1)), lambda n: (normal(),), lambda x: x[None, None]),
    *(
        Case(f"cast of {len(shape) + 1} axes", Cast("float64"), partial(rows_of, shape), np.copy)
        for shape in ((), (3,), (2, 1, 3))
    ),
    Case("cast of one value", Cast("float64"), lambda n: (normal(),), np.copy),
    *(
        Case(f"detach of {len(shape) + 1} axes", Detach(), partial(rows_of, shape), np.copy)
        for shape in ((), (3,))
    ),
    Case(
        "cat along the batch",
        Cat(0),
        lambda n: (normal(n, 3), normal(2, 3)),
        lambda *xs: np.vstack(xs),
    ),
    joined("along the middle", 1, (3, 4), (1, 4), (2, 4), sizes=(3, 1, 2)),
    joined("along the last", -1, (1, 3, 1), (1, 3, 2)),
    joined("of one", 1, (3,)),
    joined("with an empty one", 1, (3,), (0,), (2,), sizes=(3, 0, 2)),
    chunked("along the last", 3, -1, 6),
    chunked("along the middle", 2, 1, 4, 1, 3),
    chunked("into one", 1, 1, 4),
    sliced("of rows and columns", (slice(None), slice(1, 3)), 4),
    sliced("backwards", (slice(None), slice(None, None, -2)), 5, 2),
    sliced("at integers", (..., 1, -1), 3, 4),
    sliced("with new axes", (None, slice(None), 0, None, ...), 2, 3),
    sliced("of nothing", (slice(None), slice(2, 2)), 3),
    Case("slice of a vector at an integer", Slice(-2), lambda n: (normal(3),), lambda x: x[1]),
    Case("slice of one value", Slice(()), lambda n: (normal(),), lambda x: x),
    moved("struct_field", StructField(1, 3), lambda x: x[:, 2:4], 6),
    moved("struct_field of sizes", StructField(2, (1, 2, 3)), lambda x: x[:, :, 3:], 2, 6),
    moved(
        "struct_field along the middle", StructField(0, (1, 2), axis=1), lambda x: x[:, :1], 3, 2
    ),
    moved("map_lookup", MapLookup("b", ("a", "b")), lambda x: x[:, 2:], 4),
    moved(
        "map_lookup of sizes",
        MapLookup("first", ("first", 2), sizes=(1, 3)),
        lambda x: x[:, :1],
        4,
    ),
    moved("map_lookup by number", MapLookup(1, 2, axis=1), lambda x: x[:, 1:], 2, 3),
]
