"""Rows of linear algebra: formulas by `numpy.einsum`, spelled out per index."""

import numpy as np
from case import Case, normal

from mlpengine.ops import BatchMatMul, Linear, MatMul, Transpose


def einsum(subscripts):
    return lambda *operands: np.einsum(subscripts, *operands)


CASES = [
    Case(
        "linear",
        Linear(),
        lambda n: (normal(n, 3), normal(4, 3), normal(4)),
        lambda x, w, b: np.einsum("ni,oi->no", x, w) + b,
    ),
    Case(
        "linear without bias",
        Linear(),
        lambda n: (normal(n, 3), normal(4, 3), None),
        lambda x, w, _: np.einsum("ni,oi->no", x, w),
    ),
    Case(
        "linear of 4 axes",
        Linear(),
        lambda n: (normal(n, 2, 1, 3), normal(4, 3), normal(4)),
        lambda x, w, b: np.einsum("nabi,oi->nabo", x, w) + b,
    ),
    Case(
        "linear with sizes 1",
        Linear(),
        lambda n: (normal(n, 1), normal(1, 1), normal(1)),
        lambda x, w, b: x * w[0, 0] + b[0],
    ),
    Case("matmul", MatMul(), lambda n: (normal(n, 3), normal(3, 4)), einsum("nk,km->nm")),
    Case(
        "matmul of columns", MatMul(), lambda n: (normal(n, 1), normal(1, 4)), einsum("nk,km->nm")
    ),
    Case("matmul to rows", MatMul(), lambda n: (normal(1, n), normal(n, 4)), einsum("nk,km->nm")),
    Case(
        "batch_matmul",
        BatchMatMul(),
        lambda n: (normal(n, 2, 3), normal(n, 3, 4)),
        einsum("bnk,bkm->bnm"),
    ),
    Case(
        "batch_matmul by one matrix",
        BatchMatMul(),
        lambda n: (normal(n, 2, 3), normal(3, 4)),
        einsum("bnk,km->bnm"),
    ),
    Case(
        "batch_matmul of one matrix",
        BatchMatMul(),
        lambda n: (normal(2, 3), normal(n, 3, 4)),
        einsum("nk,bkm->bnm"),
    ),
    Case(
        "batch_matmul broadcast on either side",
        BatchMatMul(),
        lambda n: (normal(n, 1, 2, 3), normal(3, 3, 4)),
        einsum("bcnk,akm->banm"),
    ),
    Case(
        "batch_matmul broadcast in the middle",
        BatchMatMul(),
        lambda n: (normal(2, 1, n, 2, 1), normal(2, 3, 1, 1, 2)),
        einsum("acbnk,adckm->adbnm"),
    ),
    Case("transpose", Transpose(), lambda n: (normal(n, 2, 3),), einsum("abc->cba")),
    Case(
        "transpose of 4 axes",
        Transpose((1, -1, 0, 2)),
        lambda n: (normal(n, 2, 1, 3),),
        einsum("abcd->bdac"),
    ),
    Case("transpose of none", Transpose(), lambda n: (normal(),), lambda x: x),
]
