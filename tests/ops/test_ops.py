"""Every promise of `GradOp` on every row of the op table."""

import pytest
from cases import CASES
from checks import CHECKS

from mlpengine.ops import REGISTRY


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_op(case):
    """All promises in one test: a test of its own for each would take longer than the promise."""
    for check in CHECKS:
        check(case)


def test_every_registered_op_has_a_row():
    assert set(REGISTRY) == {case.op.name for case in CASES}
