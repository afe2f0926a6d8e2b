"""How many folds models of these tests have at their defaults."""

import pytest


@pytest.fixture(autouse=True)
def _two_folds(two_folds):
    """Half the rows for each of two networks say as much here as eight folds."""
