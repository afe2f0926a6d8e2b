"""Evenly spaced rows are distinct and contain both ends."""

import numpy as np
import pytest

from mlpengine.core.rows import evenly_spaced


@pytest.mark.parametrize("rows", [1, 2, 3, 10, 299, 1_000_003])
@pytest.mark.parametrize("count", [1, 2, 7, 300, 10_000, 2_000_000])
def test_rows_are_distinct_and_evenly_spaced(rows, count):
    chosen = evenly_spaced(rows, count)
    assert len(chosen) == min(rows, count)
    assert chosen[0] == 0
    assert chosen[-1] == (rows - 1 if len(chosen) > 1 else 0)
    steps = np.diff(chosen)
    assert steps.size == 0 or 1 <= steps.min() <= steps.max() <= steps.min() + 1


def test_no_rows_have_none():
    assert evenly_spaced(0, 5).tolist() == []
