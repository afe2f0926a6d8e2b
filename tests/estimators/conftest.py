"""Tables that estimators learn, and how many folds they have at their defaults."""

import numpy as np
import pytest

from mlpengine.settings import recipes


@pytest.fixture(autouse=True)
def two_folds(monkeypatch):
    """Let estimators choose two folds where they choose eight: most tests are about something else.

    A test that is about the number puts it back.
    """
    monkeypatch.setattr(recipes, "FOLDS", 2)


@pytest.fixture(scope="session")
def iris():
    from sklearn.datasets import load_iris  # without which the tests are skipped

    x, codes = load_iris(return_X_y=True)
    return x, np.array(["setosa", "versicolor", "virginica"])[codes]
