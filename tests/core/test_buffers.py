"""Addresses of arrays."""

import numpy as np
import pytest

from mlpengine.core.buffers import address_of

BASE = np.arange(12.0).reshape(3, 4)
READ_ONLY = np.frombuffer(bytes(16))


@pytest.mark.parametrize(
    "array",
    [BASE, BASE[1:], BASE[:, 1:], BASE.T, BASE[::-1], BASE[:0], np.zeros(()), READ_ONLY],
    ids=["whole", "from row 1", "columns", "turned", "backwards", "empty", "0-d", "read-only"],
)
def test_the_address_is_that_of_the_first_element(array):
    assert address_of(array) == array.__array_interface__["data"][0]


def test_an_array_is_as_free_as_before():
    """An address does not hold the memory: the array can still be resized."""
    array = np.zeros(3)
    address_of(array)
    array.resize(5, refcheck=False)
    assert len(array) == 5
