"""Tables that estimators learn, and how many folds they have at their defaults."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _two_folds(two_folds):
    """A test that is about the number of folds puts it back."""


@pytest.fixture(scope="session")
def iris():
    from sklearn.datasets import load_iris  # without which the tests are skipped

    x, codes = load_iris(return_X_y=True)
    return x, np.array(["setosa", "versicolor", "virginica"])[codes]
