"""Rows of ops that move values: `numpy.concatenate` and indexing say where to."""

import numpy as np
from case import Case, normal

from mlpengine.ops import Cat, Chunk, MapLookup, Reshape, Slice, StructField


def sliced(name, key, *shape):
    return Case(f"slice {name}", Slice(key), lambda n: (normal(n, *shape),), lambda x: x[key])


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
    Case("struct_field", StructField(1, 3), lambda n: (normal(n, 6),), lambda x: x[:, 2:4]),
    Case(
        "struct_field of sizes",
        StructField(2, (1, 2, 3)),
        lambda n: (normal(n, 2, 6),),
        lambda x: x[:, :, 3:],
    ),
    Case(
        "struct_field along the middle",
        StructField(0, (1, 2), axis=1),
        lambda n: (normal(n, 3, 2),),
        lambda x: x[:, :1],
    ),
    Case(
        "map_lookup",
        MapLookup("b", ("a", "b")),
        lambda n: (normal(n, 4),),
        lambda x: x[:, 2:],
    ),
    Case(
        "map_lookup of sizes",
        MapLookup("first", ("first", 2), sizes=(1, 3)),
        lambda n: (normal(n, 4),),
        lambda x: x[:, :1],
    ),
    Case(
        "map_lookup by number",
        MapLookup(1, 2, axis=1),
        lambda n: (normal(n, 2, 3),),
        lambda x: x[:, 1:],
    ),
]
