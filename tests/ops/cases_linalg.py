"""Rows of linear algebra: formulas by `numpy.einsum`, spelled out per index."""

import numpy as np
from case import Case, normal

from mlpengine.ops import BatchMatMul, Linear, MatMul, Transpose


def dense(name, subscripts, *shape, w, bias=True):
    """A row of linear: `shape` of x without its batch, `w` of the weight."""

    def make(n):
        return normal(n, *shape), normal(*w), normal(w[0]) if bias else None

    def value(x, w, b):
        y = np.einsum(subscripts, x, w)
        return y if b is None else y + b

    return Case(f"linear {name}", Linear(), make, value)


def product(name, subscripts, make, op=None):
    def value(a, b):
        return np.einsum(subscripts, a, b)

    return Case(name, op or BatchMatMul(), make, value)


def permuted(name, axes, subscripts, *shape):
    return Case(
        f"transpose {name}",
        Transpose(axes),
        lambda n: (normal(n, *shape),),
        lambda x: np.einsum(subscripts, x),
    )


CASES = [
    dense("plain", "ni,oi->no", 3, w=(4, 3)),
    dense("without bias", "ni,oi->no", 3, w=(4, 3), bias=False),
    dense("of 4 axes", "nabi,oi->nabo", 2, 1, 3, w=(4, 3)),
    dense("with sizes 1", "ni,oi->no", 1, w=(1, 1)),
    product("matmul", "nk,km->nm", lambda n: (normal(n, 3), normal(3, 4)), MatMul()),
    product("matmul of columns", "nk,km->nm", lambda n: (normal(n, 1), normal(1, 4)), MatMul()),
    product("matmul to rows", "nk,km->nm", lambda n: (normal(1, n), normal(n, 4)), MatMul()),
    product("batch_matmul", "bnk,bkm->bnm", lambda n: (normal(n, 2, 3), normal(n, 3, 4))),
    product("batch_matmul by one", "bnk,km->bnm", lambda n: (normal(n, 2, 3), normal(3, 4))),
    product("batch_matmul of one", "nk,bkm->bnm", lambda n: (normal(2, 3), normal(n, 3, 4))),
    product(
        "batch_matmul broadcast on either side",
        "bcnk,akm->banm",
        lambda n: (normal(n, 1, 2, 3), normal(3, 3, 4)),
    ),
    product(
        "batch_matmul broadcast in the middle",
        "acbnk,adckm->adbnm",
        lambda n: (normal(2, 1, n, 2, 1), normal(2, 3, 1, 1, 2)),
    ),
    permuted("reversed", None, "abc->cba", 2, 3),
    permuted("of 4 axes", (1, -1, 0, 2), "abcd->bdac", 2, 1, 3),
    Case("transpose of none", Transpose(), lambda n: (normal(),), lambda x: x),
]
