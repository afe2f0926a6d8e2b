"""Every promise of `GradOp` on every row of the op table."""

from collections import Counter

import pytest
from cases import CASES
from checks import CHECKS

from mlpengine.ops import REGISTRY, Activation


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_op(case):
    """All promises in one test: a test of its own for each would take longer than the promise."""
    for check in CHECKS:
        check(case)


def test_every_registered_op_has_a_row():
    assert set(REGISTRY) == {case.op.name for case in CASES}


def test_rows_have_distinct_names():
    assert [name for name, n in Counter(case.id for case in CASES).items() if n > 1] == []


def test_the_rows_reach_from_no_axes_to_four():
    for name in {case.op.name for case in CASES if isinstance(case.op, Activation)}:
        ranks = {max(x.ndim for x in c.operands()) for c in CASES if c.op.name == name}
        assert {0, 2, 4} <= ranks, name
