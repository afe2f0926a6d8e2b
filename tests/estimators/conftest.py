"""Tables that estimators learn."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def iris():
    from sklearn.datasets import load_iris  # without which the tests are skipped

    x, codes = load_iris(return_X_y=True)
    return x, np.array(["setosa", "versicolor", "virginica"])[codes]
