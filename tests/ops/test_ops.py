"""Every promise of `GradOp` on every row of the op table."""

from collections import Counter

import pytest
from cases import CASES
from checks import CHECKS

from mlpengine.ops import REGISTRY

ELEMENTWISE = (
    "add sub mul div neg scalar_mul scalar_add pow exp log log2 log_eps sin cos sqrt rsqrt abs "
    "clamp where maximum minimum relu leaky_relu elu selu gelu silu softplus sigmoid tanh "
    "mish hardswish softsign"
)
OTHERS = (
    "softmax log_softmax matmul batch_matmul linear conv2d max_pool2d transpose "
    "sum mean var max min logsumexp reshape cast detach cat chunk slice gather index_select "
    "embedding struct_field map_lookup layer_norm batch_norm dropout normal "
    "ssm_scan periodic_embedding mse mae huber mean_output bce_with_logits softmax_cross_entropy "
    "log_cosh quantile binary_focal poisson gamma gaussian_nll formula formula_activation "
    "learned_activation slope"
)
"""The ops that the project promises, the three kinds of leaves aside."""


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_op(case):
    """All promises in one test: a test of its own for each would take longer than the promise."""
    for check in CHECKS:
        check(case)


def test_the_registry_holds_the_promised_ops():
    assert sorted(REGISTRY) == sorted(f"{ELEMENTWISE} {OTHERS}".split())


def test_every_registered_op_has_a_row():
    assert set(REGISTRY) == {case.op.name for case in CASES}


def test_rows_have_distinct_names():
    assert [name for name, n in Counter(case.id for case in CASES).items() if n > 1] == []


def test_the_rows_reach_from_no_axes_to_four():
    for name in ELEMENTWISE.split():
        ranks = {max(x.ndim for x in c.operands()) for c in CASES if c.op.name == name}
        assert {0, 2, 4} <= ranks, name
